"""REST applications without microversions: the base of the identity, image, network, and volume services.

A `ServiceApplication` is composed of resources. A `ServiceResource` has the handlers of one kind of things. ``@route``
above a handler names its URL, policy rule, body and response. The rule is enforced before the handler runs::

    class AddressGroups(ServiceResource):
        @route("PUT", "/address-groups/{id}", policies.UPDATE, body=ChangedGroup, key="address_group")
        def update(self, req: ServiceRequest, id: str) -> Response: ...

A handler takes a `ServiceRequest` and the variables of the URL. It returns the value that its route's ``response``
names, a `wsgi.Response`, or a complete `webob.Response`. A request that no rule has authorized gets no response.
Bodies: `nova_lite.api.http.bodies`.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple, TypeVar

import routes
import webob
import webob.exc

from nova_lite.api.audit import notes
from nova_lite.api.http import json_text, languages, wsgi
from nova_lite.api.http.bodies import Body
from nova_lite.base import exceptions, plugins
from nova_lite.base.context import RequestContext
from nova_lite.rpcapi.conductor import ConductorRPC

LOG = logging.getLogger(__name__)

MAX_BODY_BYTES = 114688

#: Group of entry points, before the name of an API.
NAMESPACE = "nova_lite.api.resources"

#: Replaces a rule's name: the route needs no authentication.
PUBLIC = ""


H = TypeVar("H", bound=Callable[..., Any])
R = TypeVar("R", bound="ServiceResource")


class ServiceRoute(NamedTuple):
    """Entry of a service's route table: ``handler`` of ``resource`` serves ``method path``.

    ``policy``, ``target``, ``authorizes`` and ``status`` mean the same as in `wsgi.Declaration`. ``streams``: the
    handler reads the body itself, without a limit of its size. ``body``: the object of the body, which is under
    ``key``, or is the whole body. ``query``: names of the query parameters. ``response``: the key at the top of the
    response.
    """

    method: str
    path: str
    handler: str
    policy: str
    target: Mapping[str, str] | None = None
    authorizes: bool = False
    streams: bool = False
    body: type[Body] | None = None
    key: str | None = None
    query: tuple[str, ...] = ()
    response: str | None = None
    status: int = 200
    resource: type[ServiceResource] | None = None


def route(
    method: str,
    path: str,
    policy: str,
    *,
    target: Mapping[str, str] | None = None,
    authorizes: bool = False,
    streams: bool = False,
    body: type[Body] | None = None,
    key: str | None = None,
    query: tuple[str, ...] = (),
    response: str | None = None,
    status: int = 200,
) -> Callable[[H], H]:
    """Declare a URL of the handler below. A handler may have several. ``response``: by default ``key``."""

    def mark(handler: H) -> H:
        name = getattr(handler, "__name__", "")
        shown = key if response is None and status != 204 else response
        made = ServiceRoute(method, path, name, policy, target, authorizes, streams, body, key, query, shown, status)
        handler.declared_routes = [made, *getattr(handler, "declared_routes", ())]  # type: ignore[attr-defined]
        return handler

    return mark


class ServiceRequest(wsgi.Request):
    """A request to a `ServiceApplication`. It may be unauthenticated, and has no microversion."""

    service_route: ServiceRoute

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


class ServiceResource:
    """Handlers of one kind of resource of the application ``app``. Its docstring is its title in documents."""

    def __init__(self, app: ServiceApplication) -> None:
        self.app = app
        self.conf = app.conf

    @property
    def conductor(self) -> ConductorRPC:
        return self.app.conductor

    @classmethod
    def declared_routes(cls) -> Iterator[ServiceRoute]:
        """Yield the routes of the handlers, in their order."""
        names = dict.fromkeys(name for base in reversed(cls.__mro__) for name in vars(base))
        for name in names:
            for made in getattr(getattr(cls, name), "declared_routes", ()) if name != "declared_routes" else ():
                yield made._replace(resource=cls)


class _Routes:
    """Attribute of an application's class. Resources of other packages are loaded only when the routes are needed."""

    def __get__(self, app: ServiceApplication | None, kind: type[ServiceApplication]) -> tuple[ServiceRoute, ...]:
        return tuple(made for resource in kind.all_resources() for made in resource.declared_routes())


class ServiceApplication:
    """WSGI application. A subclass names its resources, and has the form of its faults.

    ``api``: its name in ``[api] enabled_apis``. Entry points of ``nova_lite.api.resources.<api>`` add resources.
    """

    api = ""
    resources: ClassVar[tuple[type[ServiceResource], ...]] = ()
    routes = _Routes()
    #: True if a URL with a slash at its end names nothing, as in Glance and Cinder.
    strict_slashes = False

    @classmethod
    @functools.cache
    def all_resources(cls) -> tuple[type[ServiceResource], ...]:
        """Return the application's own resources and the installed resources."""
        return (*cls.resources, *(plugins.installed(f"{NAMESPACE}.{cls.api}", "resource") if cls.api else ()))

    def __init__(self, services: wsgi.ApiServices) -> None:
        self.services = services
        self.conf = services.conf
        self._made: dict[Any, Any] = {kind: kind(self) for kind in self.all_resources()}
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

    def part(self, kind: type[R]) -> R:
        """Return this application's resource of a kind, for another resource that needs it."""
        found: R = self._made[kind]
        return found

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
            response = self.fault_of(req, error)
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
        req.service_route = route
        notes.route(req.environ, route.path, variables)
        if route.policy != PUBLIC and wsgi.CONTEXT not in req.environ:
            raise exceptions.Unauthorized()
        if not route.streams:
            _check_size(req)
        declared = wsgi.Declaration(route.policy, target=route.target, authorizes=route.authorizes)
        req.authorize_and_validate(declared, variables)
        result = getattr(self._made[route.resource], route.handler)(req, **variables)
        if not isinstance(result, wsgi.Response | webob.Response):
            result = wsgi.Response(result if route.response is None else {route.response: result}, route.status)
        if route.policy != PUBLIC and not req.authorized:
            raise RuntimeError(f"No rule authorized {req.method} {req.path}; its response is withheld")
        if req.method == "POST" and isinstance(result, wsgi.Response):
            notes.made(req.environ, result.body)
        return result

    def fault_of(self, req: ServiceRequest, error: Exception) -> webob.Response:
        """Return the fault of any error of a handler."""
        if isinstance(error, wsgi.UnknownUrl):
            return self.fault(req, 404, "The resource could not be found.")
        if isinstance(error, exceptions.NovaLiteException) and error.code != 500:
            response = languages.localized(req.environ, error, functools.partial(self.refusal, req))
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
