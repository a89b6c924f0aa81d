"""The compute API's route table, which stevedore extensions fill, and the router that looks requests up in it.

Each route has two URLs: with the project's id in front (``/v2.1/{project_id}/servers``) and without.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import routes

from nova_lite.api.http import deploy, wsgi
from nova_lite.base import plugins

LOG = logging.getLogger(__name__)

NAMESPACE = "nova_lite.api.v21.extensions"


def app_factory(global_conf: dict[str, str], **local_conf: str) -> Router:
    """Make the router for paste. ``legacy = true`` serves the resources as ``/v2`` does."""
    del global_conf
    services = deploy.services()
    return Router(services, load_extensions(services), legacy=local_conf.get("legacy", "").lower() == "true")


def load_extensions(services: wsgi.ApiServices) -> list[wsgi.Extension]:
    """Return all extensions, sorted by alias. An extension that cannot be loaded is logged and left out."""
    extensions: list[wsgi.Extension] = plugins.installed(NAMESPACE, "extension", services)
    return sorted(extensions, key=lambda item: item.alias)


def extension_classes() -> list[type[wsgi.Extension]]:
    """Return the classes of all installed extensions, sorted by alias."""
    classes: list[type[wsgi.Extension]] = plugins.installed(NAMESPACE, "extension")
    return sorted(classes, key=lambda item: item.alias)


def route_table() -> list[tuple[str, str, str]]:
    """Return verb, URL, and function of every route and action."""
    return sorted(
        (
            (
                route.method,
                f"{route.path} {route.action}" if route.action else route.path,
                f"{extension.__module__}:{extension.__name__}.{route.handler}",
            )
            for extension in extension_classes()
            for route in extension.routes
        ),
        key=lambda entry: (entry[1], entry[0]),
    )


@functools.lru_cache(maxsize=2)
def _mapper(paths: frozenset[str]) -> routes.Mapper:
    """Return the matcher of ``paths``. ``/v2`` and ``/v2.1`` have the same paths and share it.

    Paths without variables come first, so that ``/servers/detail`` does not match ``/servers/{id}``.
    """
    mapper = routes.Mapper(controller_scan=None)
    mapper.minimization = False
    ordered = sorted(paths, key=lambda path: (path.count("{"), path))
    for prefix in ("", "/{project_id}"):
        for path in ordered:
            mapper.connect(None, prefix + path, controller=path)
    mapper.create_regs()
    return mapper


class Router:
    """WSGI application. Matches the URL and passes the request to the dispatcher."""

    def __init__(self, services: wsgi.ApiServices, extensions: list[wsgi.Extension], legacy: bool = False) -> None:
        self.extensions = extensions
        self._dispatcher = wsgi.ResourceDispatcher(services, legacy)
        self._routes: dict[str, list[wsgi.BoundRoute]] = {}
        for extension in extensions:
            for bound in extension.bound_routes:
                self._routes.setdefault(bound.route.path, []).append(bound)
        for extension in extensions:
            for addition, adder in extension.adders:
                self._extend(extension, addition, adder)
        self._mapper = _mapper(frozenset(self._routes))

    def _extend(self, extension: wsgi.Extension, addition: wsgi.Addition, adder: Callable[..., None]) -> None:
        key = (addition.method, addition.action)
        known = self._routes.get(addition.path, [])
        changed = [
            bound._replace(adders=(*bound.adders, (addition, adder)))
            if (bound.route.method, bound.route.action) == key
            else bound
            for bound in known
        ]
        if changed == known:
            what = " ".join(filter(None, (addition.method, addition.path, addition.action)))
            LOG.error("API extension %s adds to %s, which is not served", extension.alias, what)
            return
        self._routes[addition.path] = changed

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        path = environ.get("PATH_INFO", "").encode("latin-1", "replace").decode("utf-8", "replace")
        variables = self._mapper.match(path)
        match = None
        if variables is not None and "\0" not in path:
            bound_routes = self._routes[variables.pop("controller")]
            variables.pop("action", None)
            wsgi.decode_slashes(environ, variables)
            match = wsgi.RouteMatch(bound_routes, variables, variables.pop("project_id", None))
        environ[wsgi.ROUTE_MATCH] = match
        return self._dispatcher(environ, start_response)
