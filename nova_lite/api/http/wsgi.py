"""Request, response, faults, and the dispatch from a route to its handler: the parts under every compute resource.

A handler is a method of an `Extension`. It takes the `Request` and the variables of its URL. ``@declares`` above it
names its policy rule and its schemas. The dispatcher enforces the rule and validates the request before it calls the
handler::

    @declares(policies.UPDATE, body=UPDATE_BODY, response="server")
    def update(self, req: Request, id: str) -> Response:
        instance = self.conductor.instance_update(req.context, id, req.data["server"])
        return Response({"server": view.show(req, instance)})

An extension with a handler that declares nothing is refused at startup.
"""

from __future__ import annotations

import datetime
import functools
import inspect
import logging
import re
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

import msgspec
import webob
import webob.exc
from oslo_config import cfg

from nova_lite.api.audit import notes
from nova_lite.api.http import json_text, languages, microversions, validation
from nova_lite.api.http.microversions import Change, Version, Versioned
from nova_lite.base import exceptions, metrics, structured_logs
from nova_lite.base.context import RequestContext
from nova_lite.compute.api import API
from nova_lite.daemon import http_parser
from nova_lite.image.driver import ImageBackend
from nova_lite.policies.enforcer import Policy
from nova_lite.rpcapi.conductor import ConductorRPC

LOG = logging.getLogger(__name__)

T = TypeVar("T")
Handler = TypeVar("Handler", bound=Callable[..., Any])
Adder = TypeVar("Adder", bound=Callable[..., None])

CONTEXT = "nova_lite.base.context"
#: Key of a request's environment: the id that it got.
REQUEST_ID = "openstack.request_id"
#: The API's `Endpoint`, if the operator has set it.
ENDPOINT = "nova_lite.endpoint"
ROUTE_MATCH = "nova_lite.route_match"
#: Key of a request's environment: a function that checks whether a project exists, where the cloud's own identity
#: service knows that.
HAS_PROJECT = "nova_lite.has_project"

JSON_TYPES = ("application/json", "application/vnd.openstack.compute+json", "text/plain", "")

FAULT_NAMES = {
    400: "badRequest",
    401: "unauthorized",
    403: "forbidden",
    404: "itemNotFound",
    405: "badMethod",
    409: "conflictingRequest",
    413: "overLimit",
    415: "badMediaType",
    429: "overLimit",
    501: "notImplemented",
    503: "serviceUnavailable",
}

#: Seconds after which a client may try again, by status, for the header of that name. Errors may know better.
RETRY_AFTER = {429: 60, 503: 2}

#: Schema of the query string of a GET that declares none, since `Change.NO_UNKNOWN_QUERIES`.
_NO_PARAMETERS: validation.Schema = {"type": "object", "properties": {}, "additionalProperties": False}

#: NUL in a query string. No text has it, and not every database can compare with it.
_NUL = re.compile("%00|\0")

#: Form of a project's id at the front of a URL. As in Nova, other text there is no project but an unknown URL.
_PROJECT_ID = re.compile("[0-9a-f-]+")

_HOST = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?")


class Endpoint(NamedTuple):
    """Endpoint of an API in the catalog. ``root``: scheme and host. ``hosts``: of all endpoints, in lower case."""

    root: str
    hosts: frozenset[str | None]


class ApiServices(NamedTuple):
    """The objects that handlers work with. `nova_lite.cmd.api` builds them once; tests build them from fakes."""

    conf: cfg.ConfigOpts
    policy: Policy
    compute: API

    @property
    def conductor(self) -> ConductorRPC:
        return self.compute.conductor

    @property
    def images(self) -> ImageBackend:
        return self.compute.images


class Declaration:
    """The contract of a handler, written as ``@declares(...)`` above it. The API's documents are made from it as well.

    - ``policy``: the rule that the dispatcher enforces first. The rule's target is the caller's own project and user,
      or the URL variables that ``target`` names.
    - ``authorizes``: the handler enforces the rule itself, because its target is in the body or the database.
    - ``body``, ``query``: the schemas of the request.
    - ``status``, ``other_statuses``: the statuses of success. A 204 has no body.
    - ``response``: the key, or the possible keys, at the top of the response's body. None: there is no body.
    - ``faults``: statuses of failure that requests of this method do not usually have.
    """

    def __init__(
        self,
        policy: str,
        *,
        target: Mapping[str, str] | None = None,
        authorizes: bool = False,
        body: validation.Schema | Versioned[validation.Schema] | None = None,
        query: validation.Schema | Versioned[validation.Schema] | None = None,
        status: int | Versioned[int] = 200,
        response: str | tuple[str, ...] | None = None,
        other_statuses: tuple[int, ...] = (),
        faults: tuple[int, ...] = (),
    ) -> None:
        self.policy = policy
        self.target = target or {}
        self.authorizes = authorizes
        self.body = Versioned({1: body}) if isinstance(body, dict) else body
        self.query = Versioned({1: query}) if isinstance(query, dict) else query
        self.status = Versioned({1: status}) if isinstance(status, int) else status
        self.response = (response,) if isinstance(response, str) else response
        self.other_statuses = other_statuses
        self.faults = faults

    def __call__(self, handler: Handler) -> Handler:
        handler.declared = self  # type: ignore[attr-defined]
        return handler


declares = Declaration


class Route(NamedTuple):
    """Entry of the API's route table: ``handler`` serves ``method path`` in the minor versions since..until.

    With ``action``, the route serves only bodies with that single key. ``declared`` replaces ``@declares`` where one
    handler serves several routes.
    """

    method: str
    path: str
    handler: str
    since: int = 1
    until: int | None = None
    action: str | None = None
    declared: Declaration | None = None

    def serves(self, version: Version) -> bool:
        return version.minor >= self.since and (self.until is None or version.minor <= self.until)

    def declaration(self, extension: Extension | type[Extension]) -> Declaration:
        """Return the declaration of the route's handler. Raise `TypeError` if there is none."""
        declared: Declaration | None = self.declared or getattr(getattr(extension, self.handler), "declared", None)
        if declared is None:
            raise TypeError(f"{extension.alias}: {self.handler} needs @declares(...)")
        return declared


def action(
    resource: str,
    name: str,
    handler: str,
    since: int = 1,
    until: int | None = None,
    declared: Declaration | None = None,
) -> Route:
    """Return the route of ``POST /<resource>/{id}/action`` with the body ``{name: ...}``."""
    return Route("POST", f"/{resource}/{{id}}/action", handler, since, until, name, declared)


class Addition(NamedTuple):
    """Mark of an extension's method that adds to the responses of another route (`extends`)."""

    method: str
    path: str
    action: str | None
    since: int
    until: int | None

    def serves(self, version: Version) -> bool:
        return version.minor >= self.since and (self.until is None or version.minor <= self.until)


def extends(
    method: str, path: str, action: str | None = None, since: int = 1, until: int | None = None
) -> Callable[[Adder], Adder]:
    """Mark a method of an extension that changes the responses of another extension's route.

    It is called as ``adder(req, response, **variables)`` after the handler, in the minor versions since..until, if the
    request has succeeded. Several extensions of a route are called in the order of their aliases.
    """

    def mark(adder: Adder) -> Adder:
        adder.additions = [*getattr(adder, "additions", ()), Addition(method, path, action, since, until)]  # type: ignore[attr-defined]
        return adder

    return mark


#: Replaces a rule's name where the operation always fails, so that no rule is needed.
NOT_SERVED = ""
#: Value of ``response``: users choose the keys of the body.
ANY_KEY = "*"


class BoundRoute(NamedTuple):
    """A route with its handler, bound to the extension."""

    route: Route
    handler: Callable[..., Response]
    declared: Declaration
    adders: tuple[tuple[Addition, Callable[..., None]], ...] = ()

    def respond(self, req: Request, variables: Mapping[str, str]) -> Response:
        """Call the handler, and what extends it."""
        response = self.handler(req, **variables)
        for addition, adder in self.adders:
            if addition.serves(req.version):
                adder(req, response, **variables)
        return response


class Extension:
    """A part of the API: routes of its own, actions on the resources of any extension, and additions to the responses
    of other extensions (`extends`).

    ``alias`` is unique among the extensions. The aliases that clients see are in `nova_lite.api.compute.extensions`.
    """

    alias: str
    title: str
    routes: tuple[Route, ...] = ()
    #: Additions to the responses of others, with the names of the methods that make them.
    _additions: tuple[tuple[Addition, str], ...]

    def __init_subclass__(cls) -> None:
        members = inspect.getmembers(cls)
        cls._additions = tuple((item, name) for name, value in members for item in getattr(value, "additions", ()))

    def __init__(self, services: ApiServices) -> None:
        self.conf = services.conf
        self.compute = services.compute
        self.adders = [(addition, getattr(self, name)) for addition, name in self._additions]
        self.bound_routes = [
            BoundRoute(route, getattr(self, route.handler), route.declaration(self)) for route in self.routes
        ]

    @property
    def conductor(self) -> ConductorRPC:
        return self.compute.conductor

    @property
    def images(self) -> ImageBackend:
        return self.compute.images


class Response:
    """The result of a handler: a status, headers, and a JSON body (None: no body), or the ``data`` of a file."""

    def __init__(
        self,
        body: Any = None,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        data: Iterable[bytes] | None = None,
    ) -> None:
        self.body = body
        self.status = status
        self.headers = headers or {}
        self.data = data


class Request(webob.Request):  # type: ignore[misc]
    """A request on its way to a handler."""

    services: ApiServices
    version: Version
    project_url: str
    route: Route
    declared: Declaration
    variables: Mapping[str, str]
    authorized: bool
    #: The request came to ``/v2``, which validates less strictly and has no microversions.
    legacy: bool
    #: The validated body.
    data: dict[str, Any]
    query: Query

    #: webob would store our attributes in the environment, where each access to a missing one raises an error first.
    __setattr__ = object.__setattr__

    def __init__(self, environ: dict[str, Any], services: ApiServices, legacy: bool = False) -> None:
        super().__init__(environ)
        self.services = services
        self.legacy = legacy
        self.authorized = False
        self._decisions: dict[Hashable, bool] = {}

    @property
    def context(self) -> RequestContext:
        context: RequestContext = self.environ[CONTEXT]
        return context

    def has(self, change: Change) -> bool:
        return self.version.minor >= change

    # --- authorize and validate

    def authorize(self, action: str, target: Mapping[str, Any] | None = None) -> None:
        """Enforce the rule ``action``. Raise `PolicyNotAuthorized` (403) if it does not allow the caller."""
        self.services.policy.authorize(self.context, action, target)
        self.authorized = True

    def allows(self, action: str, target: Mapping[str, Any] | None = None) -> bool:
        """Check whether the rule ``action`` allows the caller.

        Decisions are cached for the request: a list checks the same rule for each of its items.
        """
        key = action, None if target is None else frozenset(target.items())
        decision = self._decisions.get(key)
        if decision is None:
            decision = self._decisions[key] = self.services.policy.allows(self.context, action, target)
        return decision

    @functools.cached_property
    def json_value(self) -> Any:
        """The body, decoded from JSON. None if there is no body. Raises `ValidationError` as `json_text.parse` does."""
        body = self.body
        return json_text.parse(body) if body else None

    def authorize_and_validate(self, declared: Declaration, variables: Mapping[str, str]) -> None:
        """Enforce the declared rule, then validate the query string and the body by the declared schemas."""
        self.declared, self.variables = declared, variables
        if declared.policy and not declared.authorizes:
            target = {name: variables[variable] for name, variable in declared.target.items()}
            self.authorize(declared.policy, target or None)
        if _NUL.search(self.query_string):
            raise exceptions.ValidationError(detail="The query string has the character NUL.")
        if declared.query is not None:
            self.query = self._validated_query(declared.query.at(self.version))
        if declared.body is not None:
            validation.validate_body(declared.body.at(self.version), self.json_value, relaxed=self.legacy)
            self.data = self.json_value

    def _validated_query(self, schema: validation.Schema) -> Query:
        """Return the parameters that the schema names. Others are dropped; strict schemas (since 2.75) refuse them."""
        values: dict[str, list[str]] = {}
        for name, value in self.GET.items():
            values.setdefault(name, []).append(value)
        validation.validate_query(schema, values)
        known = schema["properties"]
        patterns = schema.get("patternProperties", {})
        return Query(
            {
                name: items
                for name, items in values.items()
                if name in known or any(re.search(pattern, name) for pattern in patterns)
            },
            self.services.conf.api.max_limit,
        )

    # --- links of the response

    def link(self, *segments: str) -> str:
        """Return a URL in this API version, in the form (with or without project id) that the client used."""
        return "/".join((self._base_urls[0], *segments))

    def bookmark(self, *segments: str) -> str:
        """Return a permanent URL, without an API version."""
        return "/".join((self._base_urls[1], *segments))

    @functools.cached_property
    def _base_urls(self) -> tuple[str, str]:
        """The URLs of this server with and without the API version, each with the project id if the client used it."""
        root = root_url(self.environ, self.services.conf.api.compute_link_prefix)
        return root + version_path(self.environ) + self.project_url, root + self.project_url

    def links(self, *segments: str) -> list[dict[str, str]]:
        return [
            {"rel": "self", "href": self.link(*segments)},
            {"rel": "bookmark", "href": self.bookmark(*segments)},
        ]

    def next_page(self, key: str, items: Sequence[T], limit: int | None, marker: Callable[[T], str]) -> dict[str, Any]:
        """Return ``{key: <link to the next page>}`` if ``items`` fill a page, else ``{}``.

        ``marker`` returns the marker of an item.
        """
        if limit is None or not items or len(items) < limit:
            return {}
        query = [(name, value) for name, value in self.GET.items() if name != "marker"]
        query.append(("marker", marker(items[-1])))
        path = self.route.path.lstrip("/").format(**self.variables)
        return {key: [{"rel": "next", "href": f"{self.link(path)}?{urlencode(query)}"}]}


class Query(dict[str, list[str]]):
    """A validated query string: all values of each parameter."""

    def __init__(self, values: dict[str, list[str]], max_limit: int) -> None:
        super().__init__(values)
        self._max_limit = max_limit

    def one(self, name: str) -> str | None:
        """Return the parameter's last value, or None."""
        values = self.get(name)
        return values[-1] if values else None

    @property
    def limit(self) -> int:
        """The maximum number of items of the page."""
        text = self.one("limit")
        return min(int(text), self._max_limit) if text else self._max_limit

    @property
    def marker(self) -> str | None:
        return self.one("marker")

    def page(self, items: Sequence[T], name: Callable[[T], str]) -> list[T]:
        """Return the page of ``items`` that follows the marker. ``name`` returns an item's marker.

        Raises `MarkerNotFound` if no item has the marker.
        """
        start = 0
        if self.marker is not None:
            names = [name(item) for item in items]
            if self.marker not in names:
                raise exceptions.MarkerNotFound(marker=self.marker)
            start = names.index(self.marker) + 1
        return list(items[start : start + self.limit])

    def time(self, name: str) -> datetime.datetime | None:
        text = self.one(name)
        return validation.parse_time(text) if text else None

    def until(self, name: str) -> datetime.datetime | None:
        """Return the last moment of a time of the query.

        Responses show whole seconds, so a time without a fraction means its whole second.
        """
        limit = self.time(name)
        return limit if limit is None or limit.microsecond else limit.replace(microsecond=999_999)

    def changes(self) -> tuple[datetime.datetime | None, datetime.datetime | None]:
        """Return ``changes-since``, and the last moment of ``changes-before``.

        Raises `ValidationError` if the first is the later one.
        """
        since, before = self.time("changes-since"), self.time("changes-before")
        if since is not None and before is not None and since > before:
            raise exceptions.ValidationError(
                detail="The value of changes-since must be less than or equal to changes-before."
            )
        return since, self.until("changes-before")


def quote_path(path: str) -> str:
    """Return a path of the environment, quoted for a URL. WSGI passes UTF-8 paths decoded as latin-1."""
    return quote(path.encode("latin-1", "replace"), safe="/:@!$&'()*+,;=~-._")


def version_path(environ: Mapping[str, Any]) -> str:
    """Return the last segment of the mount point: ``/v2.1`` for ``/compute/v2.1``."""
    last = environ.get("SCRIPT_NAME", "").rpartition("/")[2]
    return f"/{last}" if last else ""


def root_url(environ: Mapping[str, Any], link_prefix: str | None) -> str:
    """Return the base of all links: the operator's prefix if it is set, else the host of the request.

    A ``Host`` header that is not a host name is never repeated: the server's own address replaces it. If the operator
    has set the endpoints, a host of none of them is not repeated either, as a cache could give the links to others.
    """
    if link_prefix:
        return link_prefix.rstrip("/")
    scheme = environ.get("wsgi.url_scheme", "http")
    if scheme not in ("http", "https"):
        scheme = "http"
    own, port = environ["SERVER_NAME"], environ["SERVER_PORT"]
    given = _HOST.fullmatch(environ.get("HTTP_HOST") or "")
    host = given[0] if given is not None else f"[{own}]:{port}" if ":" in own else f"{own}:{port}"
    root, endpoint = f"{scheme}://{host}", environ.get(ENDPOINT)
    if given is not None and endpoint is not None:
        name = given[1].strip("[]").lower()
        root = root if name == own.lower() or name in endpoint.hosts else endpoint.root
    return root + quote_path(environ.get("SCRIPT_NAME", "").rpartition("/")[0])


class RouteMatch(NamedTuple):
    """The result of matching a URL: its routes (of all verbs, actions, and versions), its variables, its project."""

    routes: list[BoundRoute]
    variables: dict[str, str]
    project_id: str | None


#: Variables of URLs that are text of users, in which a slash may be. All others are ids and names without one.
_TEXTS = ("key", "tag")


def decode_slashes(environ: Mapping[str, Any], variables: dict[str, str]) -> None:
    """Decode ``%2F`` in keys and tags, after the URL has been divided at its slashes."""
    if environ.get(http_parser.ENCODED_SLASHES):
        for name in _TEXTS:
            if name in variables:
                variables[name] = variables[name].replace("%2F", "/")


def wrong_project(project_id: str, context: RequestContext) -> exceptions.ValidationError:
    """Return the 400 of a URL with the id of another project than the token's."""
    return exceptions.ValidationError(
        detail=f"Malformed request URL: URL's project_id '{project_id[:64]}' doesn't match Context's "
        f"project_id '{context.project_id}'"
    )


class ResourceDispatcher:
    """WSGI application behind the router. Calls the handler of the `RouteMatch` that the router put into environ."""

    def __init__(self, services: ApiServices, legacy: bool) -> None:
        self._services = services
        self._legacy = legacy

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        req = Request(environ, self._services, self._legacy)
        version: Version | None = None
        started = time.perf_counter()
        try:
            req.version = microversions.MINIMUM if self._legacy else microversions.requested_version(req.headers)
            if not self._legacy:
                version = req.version
            response = to_response(self._handle(req, environ[ROUTE_MATCH]))
        except exceptions.InvalidGlobalAPIVersion as error:
            version = error.kwargs["req_ver"]
            response = fault_of(error, environ)
        except Exception as error:
            response = fault_of(error, environ)
        if version is not None:
            microversions.name_version(response, version)
        route = getattr(req, "route", None)
        seconds = metrics.REQUESTS.labels(*_metric_labels(req.method, route), response.status_int)
        seconds.observe(time.perf_counter() - started)
        return response(environ, start_response)

    def _handle(self, req: Request, match: RouteMatch | None) -> Response:
        if match is None:
            raise UnknownUrl()
        notes.route(req.environ, match.routes[0].route.path, match.variables)
        if match.project_id is not None and match.project_id != req.context.project_id:
            if not _PROJECT_ID.fullmatch(match.project_id):
                raise UnknownUrl()
            raise wrong_project(match.project_id, req.context)
        req.project_url = f"/{match.project_id}" if match.project_id is not None else ""
        if req.method in ("POST", "PUT") and req.content_length and req.content_type not in JSON_TYPES:
            raise webob.exc.HTTPUnsupportedMediaType(explanation="Unsupported Content-Type")
        chosen = self._choose(req, match.routes)
        req.route = chosen.route
        notes.route(req.environ, chosen.route.path, match.variables, chosen.route.action)
        req.authorize_and_validate(chosen.declared, match.variables)
        if chosen.declared.query is None and req.method == "GET" and req.has(Change.NO_UNKNOWN_QUERIES):
            validation.validate_query(_NO_PARAMETERS, {name: [] for name in req.GET})
        with structured_logs.about(_server_of(chosen.route, match.variables)):
            response = chosen.respond(req, match.variables)
        if not req.authorized:
            raise RuntimeError(f"No rule authorized {req.method} {req.path}; its response is withheld")
        if req.method == "POST":
            notes.made(req.environ, response.body)
        return response

    @staticmethod
    def _choose(req: Request, routes: list[BoundRoute]) -> BoundRoute:
        """Return the route for the request's verb, its action (the body's single key), and its version."""
        candidates = [bound for bound in routes if bound.route.method == req.method]
        if not candidates:
            raise UnknownUrl()
        if candidates[0].route.action is not None:
            body = req.json_value
            if not isinstance(body, dict) or len(body) != 1:
                raise exceptions.ValidationError(detail=json_text.MALFORMED)
            name = next(iter(body))
            candidates = [bound for bound in candidates if bound.route.action == name]
            if not candidates:
                raise exceptions.ValidationError(detail=f"There is no such action: {name[:64]}")
        for bound in candidates:
            if bound.route.serves(req.version):
                return bound
        raise webob.exc.HTTPNotFound()


def _server_of(route: Route, variables: Mapping[str, str]) -> str | None:
    """Return the server that a URL names."""
    return variables.get("server_id") or (variables.get("id") if route.path.startswith("/servers/{id}") else None)


def _metric_labels(method: str, route: Route | None) -> tuple[str, str]:
    """Return the method and path labels of the request metric. Text that clients invent must not become a label."""
    if route is None:
        return "other", "none"
    return method, route.path if route.action is None else f"{route.path} {route.action}"


class UnknownUrl(Exception):
    """No resource has this URL, or the resource does not have this verb."""


def to_response(result: Response) -> webob.Response:
    """Return the WSGI response of a handler's result."""
    response = webob.Response(status=result.status, headerlist=[])
    if result.body is not None:
        response.content_type = "application/json"
        response.body = msgspec.json.encode(result.body)
    elif result.data is not None:
        response.app_iter = result.data
    else:
        response.content_length = 0
    for name, value in result.headers.items():
        response.headers[name] = value
    return response


def fault_of(error: Exception, environ: dict[str, Any]) -> webob.Response:
    """Return the JSON fault of an error. An internal error is logged, and its details are kept from the client."""
    if isinstance(error, UnknownUrl):
        return _unknown_resource()
    if isinstance(error, exceptions.NovaLiteException) and error.code != 500:
        return languages.localized(environ, error, lambda said: fault(said.code, said.message, said.retry_after))
    if isinstance(error, webob.exc.HTTPException):
        return fault(error.code, error.explanation or error.title)
    if isinstance(error, UnicodeDecodeError):
        return fault(400, "The URL is not valid UTF-8.")
    LOG.error("Unexpected error in the API", exc_info=error)
    return fault(500, f"Unexpected API Error. Please contact the administrator\n{type(error)}")


def fault(code: int, message: str, retry_after: int | None = None) -> webob.Response:
    """Return the fault ``{"<name>": {"code": ..., "message": ...}}``. ``retry_after``: seconds, for a 429 or 503."""
    name = FAULT_NAMES.get(code, "computeFault")
    body: dict[str, Any] = {"code": code, "message": message}
    headers = {}
    if code in RETRY_AFTER or code == 413:
        headers["Retry-After"] = str(retry_after or RETRY_AFTER.get(code, 0))
    if code in (413, 429):
        body["retryAfter"] = headers["Retry-After"]
    return to_response(Response({name: body}, code, headers))


def unknown_url() -> webob.Response:
    """Return the 404 of a URL outside of all APIs."""
    return fault(404, webob.exc.HTTPNotFound.explanation)


def _unknown_resource() -> webob.Response:
    """Return the 404 of an unknown URL or verb of the compute API. As in Nova, the body is the WSGI library's."""
    error = webob.exc.HTTPNotFound
    body = {"message": f"{error.explanation}<br /><br />\n\n\n", "code": f"404 {error.title}", "title": error.title}
    return to_response(Response(body, 404))
