"""Loader of drivers, filters, weighers and parts of APIs by their entry points, ours and those of other packages."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from stevedore import extension, named

from nova_lite.base import exceptions

LOG = logging.getLogger(__name__)


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


def installed(namespace: str, what: str, *arguments: Any) -> list[Any]:
    """Return what the namespace registers, sorted by name. An entry that cannot be loaded is logged and left out.

    ``arguments``: with some, the registered classes are called with them. ``what``: a word for the log.
    """

    def log(manager: Any, entry_point: Any, error: BaseException) -> None:
        LOG.error("API %s %s cannot be loaded and is not served: %s", what, entry_point.name, error, exc_info=error)

    found: extension.ExtensionManager[Any] = extension.ExtensionManager(
        namespace, invoke_on_load=bool(arguments), invoke_args=arguments, on_load_failure_callback=log
    )
    return [loaded.obj if arguments else loaded.plugin for loaded in sorted(found, key=lambda item: str(item.name))]
