"""Loader of drivers, backends, filters and weighers by their entry points, ours and those of other packages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stevedore import named

from nova_lite.base import exceptions


def load(namespace: str, names: Sequence[str], option: str) -> list[Any]:
    """Return the classes registered as ``names``, in that order.

    Raises `ConfigurationError` if a name is unknown or cannot be imported. The error names the option and the known
    names.
    """

    def refuse(manager: Any, entry_point: Any, error: BaseException) -> None:
        raise exceptions.ConfigurationError(
            reason=f"{option}: {entry_point.name} ({entry_point.value}) cannot be loaded: {error}"
        ) from error

    plugins: named.NamedExtensionManager[Any] = named.NamedExtensionManager(
        namespace,
        names=list(dict.fromkeys(names)),
        name_order=True,
        on_load_failure_callback=refuse,
        on_missing_entrypoints_callback=None,
    )
    unknown = [name for name in names if name not in plugins]
    if unknown:
        known = ", ".join(sorted(plugins.entry_points_names()))
        raise exceptions.ConfigurationError(reason=f"{option}: unknown {', '.join(unknown)}. Known are {known}.")
    return [plugin.plugin for plugin in plugins]
