"""Factories that the paste file names, and the loading of an application from that file.

Paste passes only strings to factories. So `load_app` keeps the application's services (`wsgi.ApiServices`) in a
context variable while the application loads.
"""

from __future__ import annotations

import contextvars
import os
from collections.abc import Callable
from typing import Any

from oslo_config import cfg
from paste import deploy as paste_deploy

from nova_lite.api.audit import recorder, wrapper
from nova_lite.api.http import wsgi
from nova_lite.base import exceptions

App = Callable[[dict[str, Any], Any], Any]

_services: contextvars.ContextVar[wsgi.ApiServices] = contextvars.ContextVar("services")
_name: contextvars.ContextVar[str] = contextvars.ContextVar("name")

#: APIs without changes of users: those of guests and of hosts, and the page, whose changes are those of other APIs.
_NOT_AUDITED = ("metadata", "join", "page", "page_rights")

#: Key of a request's environment: its path at the API's own address, before `UrlMap` and filters change it.
FULL_PATH = "nova_lite.full_path"


def services() -> wsgi.ApiServices:
    """Return the services of the application that is being loaded. For paste factories."""
    return _services.get()


def conf() -> cfg.ConfigOpts:
    """Return the configuration of the application that is being loaded. For paste factories."""
    return _services.get().conf


def api_name() -> str:
    """Return the name of the application that is being loaded, as in ``[api] enabled_apis``. For paste factories."""
    return _name.get()


def load_app(name: str, app_services: wsgi.ApiServices) -> App:
    """Load the application ``name`` of ``[api] paste_config``.

    Raises `LookupError` if the file does not define it, and `ConfigurationError` if the file is missing or wrong.
    """
    path = os.path.abspath(app_services.conf.api.paste_config)
    if not os.path.isfile(path):
        raise exceptions.ConfigurationError(reason=f"[api] paste_config = {path}: the file does not exist.")
    token, name_token = _services.set(app_services), _name.set(name)
    try:
        app: App = paste_deploy.loadapp(f"config:{path}", name=name)
        return app if name in _NOT_AUDITED else _audited(app, name, app_services)
    except (LookupError, exceptions.NovaLiteException):
        raise
    except Exception as error:
        raise exceptions.ConfigurationError(reason=f"[api] paste_config = {path}: {error}") from error
    finally:
        _services.reset(token)
        _name.reset(name_token)


def _audited(app: App, name: str, app_services: wsgi.ApiServices) -> App:
    conf = app_services.conf
    log = recorder.of(conf, app_services.compute)
    return wrapper.AuditWrapper(app, name.removeprefix("osapi_"), log, conf.host) if log.enabled else app


class UrlMap:
    """WSGI application that forwards a request to the application with the longest matching path prefix.

    A prefix that ends in ``/+`` matches only longer paths. So ``/v2.1`` (the version document) and ``/v2.1/+`` (the
    API) can be two applications.

    ``mounts``: the applications are whole APIs, which see their paths as at an address of their own.
    """

    def __init__(self, apps: dict[str, App], mounts: bool = False) -> None:
        self._mounts = mounts
        self._exact = {prefix.rstrip("/"): app for prefix, app in apps.items() if not prefix.endswith("/+")}
        self._inside = {prefix[:-2]: app for prefix, app in apps.items() if prefix.endswith("/+")}
        self._prefixes = sorted({*self._exact, *self._inside}, key=len, reverse=True)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        path = environ.get("PATH_INFO", "")
        if not self._mounts:
            environ.setdefault(FULL_PATH, path)
        for prefix in self._prefixes:
            rest = path[len(prefix) :]
            if not path.startswith(prefix) or (rest and not rest.startswith("/")):
                continue
            app = self._inside.get(prefix) if rest.strip("/") else None
            app = app or self._exact.get(prefix)
            if app is not None:
                environ["SCRIPT_NAME"] = environ.get("SCRIPT_NAME", "") + prefix
                environ["PATH_INFO"] = rest
                return app(environ, start_response)
        return wsgi.unknown_url()(environ, start_response)


def urlmap_factory(loader: Any, global_conf: dict[str, str], **local_conf: str) -> UrlMap:
    """Make a `UrlMap` from the lines ``/path = application`` of a paste composite."""
    return UrlMap(
        {path: loader.get_app(name, global_conf=global_conf) for path, name in local_conf.items() if path[:1] == "/"}
    )


def pipeline_factory(loader: Any, global_conf: dict[str, str], **local_conf: str) -> App:
    """Make the pipeline of ``[api] auth_strategy`` from a paste composite.

    The composite has one line per strategy: the names of the filters, outermost first, and then the application.
    """
    strategy = conf().api.auth_strategy
    if strategy not in local_conf:
        raise exceptions.ConfigurationError(
            reason=f"[api] auth_strategy = {strategy}: the paste file defines only {', '.join(sorted(local_conf))}."
        )
    *filters, app_name = local_conf[strategy].split()
    app: App = loader.get_app(app_name, global_conf=global_conf)
    for name in reversed(filters):
        app = loader.get_filter(name, global_conf=global_conf)(app)
    return app
