"""Finding drivers, backends, filters and weighers by their entry points, ours and those of other installed packages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stevedore import named

from nova_lite.base import exceptions


def load(namespace: str, names: Sequence[str], option: str) -> list[Any]:
    """The classes registered as ``names``, in that order.

    Raises `ConfigurationError` for a name that is unknown, telling the known ones and the option, and
    for one that cannot be imported.
    """

    def refuse(manager: Any, entry_point: Any, error: BaseException) -> None:
        raise exceptions.ConfigurationError(
            reason=f"{option}: {entry_point.name} ({entry_point.value}) cannot be loaded: {error}"
        ) from error

    found: named.NamedExtensionManager[Any] = named.NamedExtensionManager(
        namespace,
        names=list(dict.fromkeys(names)),
        name_order=True,
        on_load_failure_callback=refuse,
        on_missing_entrypoints_callback=None,
    )
    unknown = [name for name in names if name not in found]
    if unknown:
        known = ", ".join(sorted(found.entry_points_names()))
        raise exceptions.ConfigurationError(reason=f"{option}: unknown {', '.join(unknown)}. Known are {known}.")
    return [plugin.plugin for plugin in found]
