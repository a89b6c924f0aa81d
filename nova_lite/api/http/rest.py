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

from nova_lite.api.audit import notes
from nova_lite.api.http import json_text, wsgi
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.rpcapi.conductor import ConductorRPC

LOG = logging.getLogger(__name__)

MAX_BODY_BYTES = 114688

#: Replaces a rule's name: the route needs no authentication.
PUBLIC = ""


class ServiceRoute(NamedTuple):
    """Entry of a service's route table.

    ``policy``, ``target`` and ``authorizes`` mean the same as in `wsgi.Declaration`. ``streams``: the handler reads the
    body itself, without a limit of its size.
    """

    method: str
    path: str
    handler: str
    policy: str
    target: Mapping[str, str] | None = None
    authorizes: bool = False
    streams: bool = False


class ServiceRequest(wsgi.Request):
    """A request to a `ServiceApplication`. It may be unauthenticated, and has no microversion."""

    @property
    def context(self) -> RequestContext:
        """The caller. Raises `Unauthorized` if the request is not authenticated."""
        context: RequestContext | None = self.environ.get(wsgi.CONTEXT)
        if context is None:
            raise exceptions.Unauthorized()
        return context

    @functools.cached_property
    def base_url(self) -> str:
        """The URL of this application, as the client sees it."""
        environ = self.environ
        return wsgi.root_url({**environ, "SCRIPT_NAME": environ.get("SCRIPT_NAME", "") + "/"}, None)

    def json_object(self) -> dict[str, Any]:
        """Return the body, which must be a JSON object."""
        value = self.json_value
        if not isinstance(value, dict):
            raise exceptions.ValidationError(detail=json_text.MALFORMED)
        return value


class ServiceApplication:
    """WSGI application. A subclass adds the route table, the handlers, and the form of its faults."""

    routes: tuple[ServiceRoute, ...]
    #: True if a URL with a slash at its end names nothing, as in Glance and Cinder.
    strict_slashes = False

    def __init__(self, services: wsgi.ApiServices) -> None:
        self.services = services
        self.conf = services.conf
        self._routes: dict[str, dict[str, ServiceRoute]] = {}
        self._mapper = routes.Mapper(controller_scan=None)
        self._mapper.minimization = False
        for route in self.routes:
            self._routes.setdefault(route.path, {})[route.method] = route
        for path in sorted(self._routes, key=lambda path: (path.count("{"), path)):
            self._mapper.connect(None, path, controller=path)
        self._mapper.create_regs()

    @property
    def conductor(self) -> ConductorRPC:
        return self.services.conductor

    def fault(self, req: ServiceRequest, code: int, message: str) -> webob.Response:
        """Return a fault in the form of this service's API."""
        raise NotImplementedError

    def refusal(self, req: ServiceRequest, error: exceptions.NovaLiteException) -> webob.Response:
        """Return the fault of an error that the client may see."""
        return self.fault(req, error.code, error.message)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        req = ServiceRequest(environ, self.services)
        try:
            result = self._handle(req)
            response = wsgi.to_response(result) if isinstance(result, wsgi.Response) else result
        except Exception as error:
            response = self._fault_of(req, error)
        return response(environ, start_response)

    def _handle(self, req: ServiceRequest) -> wsgi.Response | webob.Response:
        path = req.environ.get("PATH_INFO", "").encode("latin-1", "replace").decode("utf-8", "replace")
        variables = self._mapper.match(path.rstrip("/") or "/")
        if variables is None or "\0" in path or (self.strict_slashes and len(path) > 1 and path.endswith("/")):
            raise wsgi.UnknownUrl()
        by_method = self._routes[variables.pop("controller")]
        variables.pop("action", None)
        wsgi.decode_slashes(req.environ, variables)
        route = by_method.get(req.method) or (by_method.get("GET") if req.method == "HEAD" else None)
        if route is None:
            allowed = ", ".join(sorted(by_method))
            explanation = f"{req.method} is not supported here by this cloud; {allowed} may be used."
            raise webob.exc.HTTPMethodNotAllowed(explanation=explanation, headers={"Allow": allowed})
        notes.route(req.environ, route.path, variables)
        if route.policy != PUBLIC and wsgi.CONTEXT not in req.environ:
            raise exceptions.Unauthorized()
        if not route.streams:
            _check_size(req)
        declared = wsgi.Declaration(route.policy, target=route.target, authorizes=route.authorizes)
        req.authorize_and_validate(declared, variables)
        result: wsgi.Response | webob.Response = getattr(self, route.handler)(req, **variables)
        if route.policy != PUBLIC and not req.authorized:
            raise RuntimeError(f"No rule authorized {req.method} {req.path}; its response is withheld")
        if req.method == "POST" and isinstance(result, wsgi.Response):
            notes.made(req.environ, result.body)
        return result

    def _fault_of(self, req: ServiceRequest, error: Exception) -> webob.Response:
        if isinstance(error, wsgi.UnknownUrl):
            return self.fault(req, 404, "The resource could not be found.")
        if isinstance(error, exceptions.NovaLiteException) and error.code != 500:
            response = self.refusal(req, error)
            if error.retry_after is not None:
                response.headers["Retry-After"] = str(error.retry_after)
            return response
        if isinstance(error, webob.exc.HTTPException):
            return self._with_headers(self.fault(req, error.code, error.explanation or error.title), error.headers)
        if isinstance(error, UnicodeDecodeError):
            return self.fault(req, 400, "The request is not valid UTF-8.")
        LOG.error("Unexpected error in %s", type(self).__name__, exc_info=error)
        return self.fault(req, 500, "An unexpected error prevented the server from fulfilling your request.")

    @staticmethod
    def _with_headers(response: webob.Response, headers: Mapping[str, str]) -> webob.Response:
        response.headers.update({name: headers[name] for name in ("Allow", "Content-Range") if name in headers})
        return response


def _check_size(req: ServiceRequest) -> None:
    if req.headers.get("Transfer-Encoding"):
        raise webob.exc.HTTPLengthRequired(explanation="A body needs a Content-Length here.")
    if (req.content_length or 0) > MAX_BODY_BYTES:
        raise webob.exc.HTTPRequestEntityTooLarge(explanation="Request is too large.")
