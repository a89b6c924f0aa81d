"""REST applications without microversions: the base of the identity, image, network, and volume services.

A `ServiceApplication` has one table of `ServiceRoute`. The table names the policy rule of each route, which is enforced
before the handler runs. A handler takes a `ServiceRequest` and the variables of the URL. It returns a `wsgi.Response`,
or a complete `webob.Response`. A request that no rule has authorized gets no response.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

import routes
import webob
import webob.exc

from nova_lite.api.http import wsgi
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.conductor.rpcapi import ConductorRPC

LOG = logging.getLogger(__name__)

MAX_BODY_BYTES = 114688


#: In place of a rule's name: served without authentication.
PUBLIC = ""


class ServiceRoute(NamedTuple):
    """``policy``, ``target`` and ``authorizes`` are as in `wsgi.Declaration`. ``streams``: its handler reads the body
    itself, of whatever size."""

    method: str
    path: str
    handler: str
    policy: str
    target: Mapping[str, str] | None = None
    authorizes: bool = False
    streams: bool = False


class ServiceRequest(wsgi.Request):
    @property
    def context(self) -> RequestContext:
        """Raises `Unauthorized` when nobody was authenticated."""
        context = self.environ.get(wsgi.CONTEXT)
        if context is None:
            raise exceptions.Unauthorized()
        found: RequestContext = context
        return found

    @functools.cached_property
    def base_url(self) -> str:
        """Where this application is mounted, as the client sees it."""
        environ = self.environ
        return wsgi.root_url({**environ, "SCRIPT_NAME": environ.get("SCRIPT_NAME", "") + "/"}, None)

    def json_object(self) -> dict[str, Any]:
        value = self.json_value
        if not isinstance(value, dict):
            raise exceptions.ValidationError(detail=wsgi.MALFORMED_BODY)
        return value


class ServiceApplication:
    """WSGI application. A subclass has the table, the handlers, and the form of its faults."""

    routes: tuple[ServiceRoute, ...]

    def __init__(self, services: wsgi.ApiServices) -> None:
        self.services = services
        self.conf = services.conf
        self._rows: dict[str, dict[str, ServiceRoute]] = {}
        self._mapper = routes.Mapper(controller_scan=None)
        self._mapper.minimization = False
        for route in self.routes:
            self._rows.setdefault(route.path, {})[route.method] = route
        for path in sorted(self._rows, key=lambda path: (path.count("{"), path)):
            self._mapper.connect(None, path, controller=path)
        self._mapper.create_regs()

    @property
    def conductor(self) -> ConductorRPC:
        return self.services.conductor

    def fault(self, req: ServiceRequest, code: int, message: str) -> webob.Response:
        raise NotImplementedError

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        req = ServiceRequest(environ)
        req.services = self.services
        req.authorized = False
        try:
            answer = self._handle(req)
            response = wsgi.to_response(answer) if isinstance(answer, wsgi.Response) else answer
        except Exception as error:
            response = self._fault_of(req, error)
        return response(environ, start_response)

    def _handle(self, req: ServiceRequest) -> wsgi.Response | webob.Response:
        path = req.environ.get("PATH_INFO", "").encode("latin-1", "replace").decode("utf-8", "replace")
        match = self._mapper.match(path.rstrip("/") or "/")
        if match is None:
            raise wsgi.UnknownUrl()
        rows = self._rows[match.pop("controller")]
        match.pop("action", None)
        route = rows.get(req.method) or (rows.get("GET") if req.method == "HEAD" else None)
        if route is None:
            allowed = ", ".join(sorted(rows))
            told = f"{req.method} is not supported here by this cloud; {allowed} may be used."
            raise webob.exc.HTTPMethodNotAllowed(explanation=told, headers={"Allow": allowed})
        if route.policy != PUBLIC and wsgi.CONTEXT not in req.environ:
            raise exceptions.Unauthorized()
        if not route.streams:
            _check_size(req)
        req.authorize_and_validate(
            wsgi.Declaration(route.policy, target=route.target, authorizes=route.authorizes), match
        )
        answer: wsgi.Response | webob.Response = getattr(self, route.handler)(req, **match)
        if route.policy != PUBLIC and not req.authorized:
            raise RuntimeError(f"{req.method} {req.path} was answered without authorization")
        return answer

    def _fault_of(self, req: ServiceRequest, error: Exception) -> webob.Response:
        if isinstance(error, wsgi.UnknownUrl):
            return self.fault(req, 404, "The resource could not be found.")
        if isinstance(error, exceptions.NovaLiteException) and error.code != 500:
            return self.fault(req, error.code, error.message)
        if isinstance(error, webob.exc.HTTPException):
            return self._with_headers(self.fault(req, error.code, error.explanation or error.title), error.headers)
        if isinstance(error, UnicodeDecodeError):
            return self.fault(req, 400, "The request is not valid UTF-8.")
        LOG.error("Unexpected error in %s", type(self).__name__, exc_info=error)
        return self.fault(req, 500, "An unexpected error prevented the server from fulfilling your request.")

    @staticmethod
    def _with_headers(response: webob.Response, headers: Mapping[str, str]) -> webob.Response:
        if "Allow" in headers:
            response.headers["Allow"] = headers["Allow"]
        return response


def _check_size(req: ServiceRequest) -> None:
    if req.headers.get("Transfer-Encoding"):
        raise webob.exc.HTTPLengthRequired(explanation="A body needs a Content-Length here.")
    if (req.content_length or 0) > MAX_BODY_BYTES:
        raise webob.exc.HTTPRequestEntityTooLarge(explanation="Request is too large.")
