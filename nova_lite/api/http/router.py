"""From URL and verb to handler: the table of the API, filled by stevedore extensions.

Every route is reachable with the project's id in front (``/v2.1/{project_id}/servers``) and without.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

import routes
from stevedore import extension as stevedore_extension

from nova_lite.api.http import deploy, wsgi

LOG = logging.getLogger(__name__)

NAMESPACE = "nova_lite.api.v21.extensions"


def app_factory(global_conf: dict[str, str], **local_conf: str) -> Router:
    """Paste factory. ``legacy = true`` serves the resources as ``/v2`` does."""
    del global_conf
    services = deploy.services()
    return Router(services, load_extensions(services), legacy=local_conf.get("legacy", "").lower() == "true")


def load_extensions(services: wsgi.ApiServices) -> list[wsgi.Extension]:
    """Every extension that can be loaded, by alias; one that cannot is logged and left out."""
    manager: Any = stevedore_extension.ExtensionManager(
        NAMESPACE,
        invoke_on_load=True,
        invoke_args=(services,),
        on_load_failure_callback=_log_failure,
    )
    extensions: list[wsgi.Extension] = [loaded.obj for loaded in manager]
    return sorted(extensions, key=lambda item: item.alias)


def _log_failure(manager: Any, entry_point: Any, error: BaseException) -> None:
    del manager
    LOG.error("API extension %s cannot be loaded and is not served: %s", entry_point.name, error, exc_info=error)


def extension_classes() -> list[type[wsgi.Extension]]:
    """Every extension that is installed, by alias, without making any."""
    manager: Any = stevedore_extension.ExtensionManager(NAMESPACE)
    classes: list[type[wsgi.Extension]] = [loaded.plugin for loaded in manager]
    return sorted(classes, key=lambda item: item.alias)


def route_table() -> list[tuple[str, str, str]]:
    """Verb, URL and function of every route and action: the whole API at a glance."""
    return sorted(
        (
            (
                row.method,
                f"{row.path} {row.action}" if row.action else row.path,
                f"{extension.__module__}:{extension.__name__}.{row.handler}",
            )
            for extension in extension_classes()
            for row in extension.routes
        ),
        key=lambda row: (row[1], row[0]),
    )


@functools.lru_cache(maxsize=2)
def _mapper(paths: frozenset[str]) -> routes.Mapper:
    """Paths without variables first, so that ``/servers/detail`` is not taken for a server named detail. The same paths
    are served twice, as ``/v2`` and as ``/v2.1``."""
    mapper = routes.Mapper(controller_scan=None)
    mapper.minimization = False
    ordered = sorted(paths, key=lambda path: (path.count("{"), path))
    for prefix in ("", "/{project_id}"):
        for path in ordered:
            mapper.connect(None, prefix + path, controller=path)
    mapper.create_regs()
    return mapper


class Router:
    """WSGI application: finds what a URL leads to and hands over to the dispatcher."""

    def __init__(self, services: wsgi.ApiServices, extensions: list[wsgi.Extension], legacy: bool = False) -> None:
        self.extensions = extensions
        self._dispatcher = wsgi.ResourceDispatcher(services, legacy)
        self._endpoints: dict[str, list[wsgi.BoundRoute]] = {}
        for extension in extensions:
            for endpoint in extension.endpoints:
                self._endpoints.setdefault(endpoint.route.path, []).append(endpoint)
        self._mapper = _mapper(frozenset(self._endpoints))

    def find(self, path: str) -> wsgi.RouteMatch | None:
        match = self._mapper.match(path)
        if match is None:
            return None
        endpoints = self._endpoints[match.pop("controller")]
        match.pop("action", None)
        return wsgi.RouteMatch(endpoints, match, match.pop("project_id", None))

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        path = environ.get("PATH_INFO", "").encode("latin-1", "replace").decode("utf-8", "replace")
        environ[wsgi.ROUTE_MATCH] = self.find(path)
        return self._dispatcher(environ, start_response)
