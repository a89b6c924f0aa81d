"""The machinery under every resource: request, answer, faults, and the dispatch from a route to its handler.

A handler is a method of an `Extension`; it takes the `Request` and the variables of its URL. Before it runs, the rule
that it declares is asked and the request is checked by the schemas that it declares; it acts, and answers::

    @declares(policies.UPDATE, body=schemas.UPDATE, response="server")
    def update(self, req: Request, id: str) -> Answer:
        instance = self.conductor.instance_update(req.context, id, req.data["server"])
        return Answer({"server": views.show(req, instance)})

An extension of which a handler declares nothing is refused at start.
"""

from __future__ import annotations

import datetime
import functools
import json
import logging
import re
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

import msgspec
import webob
import webob.exc
from oslo_config import cfg

from nova_lite.api.http import microversions, validation
from nova_lite.api.http.microversions import Change, Version, Versioned
from nova_lite.base import exceptions, metrics
from nova_lite.base.context import RequestContext
from nova_lite.compute.api import API
from nova_lite.conductor.rpcapi import ConductorRPC
from nova_lite.image.driver import ImageBackend
from nova_lite.policies.enforcer import Policy

LOG = logging.getLogger(__name__)

T = TypeVar("T")
Handler = TypeVar("Handler", bound=Callable[..., Any])

CONTEXT = "nova_lite.base.context"
LEGACY = "nova_lite.legacy_v2"
ROUTE_MATCH = "nova_lite.route_match"

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

#: What a GET takes of which no query string is declared, since `Change.NO_UNKNOWN_QUERIES`.
_NO_PARAMETERS: validation.Schema = {"type": "object", "properties": {}, "additionalProperties": False}

MALFORMED_BODY = "Malformed request body"

_HOST = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?")


class ApiServices(NamedTuple):
    """What handlers work with: built once at the root (`nova_lite.cmd.api`), or of fakes by the tests."""

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
    """What a handler does, for the dispatcher and for the document of the API: ``@declares(...)`` above it.

    ``policy`` is the rule that is asked first, about the asker's own project and user, or about the variables of the
    URL that ``target`` names. ``authorizes``: the handler asks it, as what it is about is in the body or the database.
    ``body`` and ``query`` are the schemas that the request is checked by, ``status`` is that of the answer, ``answer``
    the key (or one of the keys) at the top of the answer's body; None when there is no body. ``also`` are other
    statuses of success, with the same body (204: none); ``faults`` are those of a reading that not every reading has.
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
        also: tuple[int, ...] = (),
        faults: tuple[int, ...] = (),
    ) -> None:
        self.policy = policy
        self.target = target or {}
        self.authorizes = authorizes
        self.body = Versioned({1: body}) if isinstance(body, dict) else body
        self.query = Versioned({1: query}) if isinstance(query, dict) else query
        self.status = Versioned({1: status}) if isinstance(status, int) else status
        self.response = (response,) if isinstance(response, str) else response
        self.also = also
        self.faults = faults

    def __call__(self, handler: Handler) -> Handler:
        handler.declared = self  # type: ignore[attr-defined]
        return handler


declares = Declaration


class Route(NamedTuple):
    """A row of the API's table: ``method path`` is answered by ``handler`` in the versions since..until; with
    ``action``, if that is the one key of the body. ``declared`` is for a handler of several rows, which says nothing
    of itself."""

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
        """Raises `TypeError` when nothing is declared."""
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
    """``POST /<resource>/{id}/action`` with the body ``{name: ...}``."""
    return Route("POST", f"/{resource}/{{id}}/action", handler, since, until, name, declared)


#: In place of a rule's name: nobody can do it, so nobody is asked.
NOT_SERVED = ""
#: As ``answer``: the keys of the body are the users' own.
ANY_KEY = "*"


class BoundRoute(NamedTuple):
    """A row with the function that answers."""

    route: Route
    handler: Callable[..., Response]
    declared: Declaration


class Extension:
    """A part of the API: the routes it adds, and the actions it adds to any extension's resources.

    ``alias`` is its own name among the others; those that clients know are in `nova_lite.api.compute.extensions`."""

    alias: str
    title: str
    routes: tuple[Route, ...] = ()

    def __init__(self, services: ApiServices) -> None:
        self.conf = services.conf
        self.compute = services.compute
        self.endpoints = [BoundRoute(row, getattr(self, row.handler), row.declaration(self)) for row in self.routes]

    @property
    def conductor(self) -> ConductorRPC:
        return self.compute.conductor

    @property
    def images(self) -> ImageBackend:
        return self.compute.images


class Response:
    """What a handler returns: a JSON body or none, a status, headers."""

    def __init__(self, body: Any = None, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        self.body = body
        self.status = status
        self.headers = headers or {}


class Request(webob.Request):  # type: ignore[misc]
    """A request on its way to a handler."""

    services: ApiServices
    version: Version
    project_url: str
    route: Route
    declared: Declaration
    variables: Mapping[str, str]
    authorized: bool
    #: The body and the query string, as the declared schemas of the request's version demand them.
    data: dict[str, Any]
    query: Query

    #: webob keeps what is not its own in the environment, where each look for it begins with an error.
    __setattr__ = object.__setattr__

    @property
    def context(self) -> RequestContext:
        context: RequestContext = self.environ[CONTEXT]
        return context

    @property
    def legacy(self) -> bool:
        """Whether it came to ``/v2``: looser validation, no microversions."""
        return bool(self.environ.get(LEGACY))

    def has(self, change: Change) -> bool:
        return self.version.minor >= change

    # --- authorize and validate

    def authorize(self, action: str, target: Mapping[str, Any] | None = None) -> None:
        self.services.policy.authorize(self.context, action, target)
        self.authorized = True

    def allows(self, action: str, target: Mapping[str, Any] | None = None) -> bool:
        """Decided once for a request: a list asks the same of each of its items."""
        question = action, None if target is None else frozenset(target.items())
        found = self._allowed.get(question)
        if found is None:
            found = self._allowed[question] = self.services.policy.allows(self.context, action, target)
        return found

    @functools.cached_property
    def _allowed(self) -> dict[Hashable, bool]:
        return {}

    @functools.cached_property
    def json_value(self) -> Any:
        """The body as JSON; None when there is none. Raises `ValidationError` when it is malformed."""
        body = self.body
        if not body:
            return None
        try:
            value = json.loads(body, parse_constant=_reject_constant)
            msgspec.json.encode(value)
        except (ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise exceptions.ValidationError(detail=MALFORMED_BODY) from error
        return value

    def authorize_and_validate(self, declared: Declaration, variables: Mapping[str, str]) -> None:
        """Ask the declared rule, then check query string and body by the declared schemas."""
        self.declared, self.variables = declared, variables
        if declared.policy and not declared.authorizes:
            target = {name: variables[variable] for name, variable in declared.target.items()}
            self.authorize(declared.policy, target or None)
        if declared.query is not None:
            self.query = self._checked_query(declared.query.at(self.version))
        if declared.body is not None:
            validation.validate_body(declared.body.at(self.version), self.json_value, relaxed=self.legacy)
            self.data = self.json_value

    def _checked_query(self, schema: validation.Schema) -> Query:
        """Parameters that the schema does not know are dropped (errors since 2.75)."""
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

    # --- answer

    @functools.cached_property
    def root_url(self) -> str:
        """Where this server is reached, without the version: ``http://host:8774``."""
        return root_url(self.environ, self.services.conf.api.compute_link_prefix)

    def link(self, *segments: str) -> str:
        """URL of a thing in this API version, in the form (with project id or without) that the client used."""
        return "/".join((self._version_url, *segments))

    def bookmark(self, *segments: str) -> str:
        """Permanent URL of a thing, without an API version."""
        return "/".join((self._permanent_url, *segments))

    @functools.cached_property
    def _version_url(self) -> str:
        return self.root_url + version_path(self.environ) + self.project_url

    @functools.cached_property
    def _permanent_url(self) -> str:
        return self.root_url + self.project_url

    def links(self, *segments: str) -> list[dict[str, str]]:
        return [
            {"rel": "self", "href": self.link(*segments)},
            {"rel": "bookmark", "href": self.bookmark(*segments)},
        ]

    def next_page(self, key: str, items: Sequence[T], limit: int | None, marker: Callable[[T], str]) -> dict[str, Any]:
        """``{key: <link to the page after items>}`` if they fill theirs, else nothing. ``marker``: that of an item."""
        if limit is None or not items or len(items) < limit:
            return {}
        query = [(name, value) for name, value in self.GET.items() if name != "marker"]
        query.append(("marker", marker(items[-1])))
        path = self.route.path.lstrip("/").format(**self.variables)
        return {key: [{"rel": "next", "href": f"{self.link(path)}?{urlencode(query)}"}]}


def _reject_constant(name: str) -> None:
    """NaN and the infinities are Python's, not JSON's."""
    raise ValueError(name)


class Query(dict[str, list[str]]):
    """A checked query string: each parameter with all its values."""

    def __init__(self, values: dict[str, list[str]], max_limit: int) -> None:
        super().__init__(values)
        self._max_limit = max_limit

    def one(self, name: str) -> str | None:
        """The parameter's last value, or None."""
        values = self.get(name)
        return values[-1] if values else None

    @property
    def limit(self) -> int:
        """How many items the page may hold."""
        text = self.one("limit")
        return min(int(text), self._max_limit) if text else self._max_limit

    @property
    def marker(self) -> str | None:
        return self.one("marker")

    def page(self, items: Sequence[T], name: Callable[[T], str]) -> list[T]:
        """The items after the marker, which is the name of one of them; raises `MarkerNotFound`."""
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

    def changes(self) -> tuple[datetime.datetime | None, datetime.datetime | None]:
        """``changes-since`` and ``changes-before``; raises `ValidationError` when they are the wrong way round."""
        since, before = self.time("changes-since"), self.time("changes-before")
        if since is not None and before is not None and since > before:
            raise exceptions.ValidationError(
                detail="The value of changes-since must be less than or equal to changes-before."
            )
        return since, before


def quote_path(path: str) -> str:
    """A path as it stands in a URL; WSGI's latin-1 disguise of UTF-8 is taken off first."""
    return quote(path.encode("latin-1", "replace"), safe="/:@!$&'()*+,;=~-._")


def version_path(environ: Mapping[str, Any]) -> str:
    """``/v2.1`` of ``/compute/v2.1``."""
    last = environ.get("SCRIPT_NAME", "").rpartition("/")[2]
    return f"/{last}" if last else ""


def root_url(environ: Mapping[str, Any], link_prefix: str | None) -> str:
    """Base of all links. From the operator's prefix if set, else from the request; a ``Host`` header that is no host
    name is not repeated to anybody: the address the request came to takes its place."""
    if link_prefix:
        return link_prefix.rstrip("/")
    scheme = environ.get("wsgi.url_scheme", "http")
    if scheme not in ("http", "https"):
        scheme = "http"
    host = environ.get("HTTP_HOST") or ""
    if not _HOST.fullmatch(host):
        name = environ["SERVER_NAME"]
        host = f"[{name}]:{environ['SERVER_PORT']}" if ":" in name else f"{name}:{environ['SERVER_PORT']}"
    return f"{scheme}://{host}{quote_path(environ.get('SCRIPT_NAME', '').rpartition('/')[0])}"


class RouteMatch(NamedTuple):
    """What a URL leads to: its endpoints (of several verbs, actions and versions), its variables, its project."""

    endpoints: list[BoundRoute]
    variables: dict[str, str]
    project_id: str | None


class ResourceDispatcher:
    """The WSGI application under the router: from `RouteMatch` (which the router leaves in environ) to the handler."""

    def __init__(self, services: ApiServices, legacy: bool) -> None:
        self._services = services
        self._legacy = legacy

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        environ[LEGACY] = self._legacy
        req = Request(environ)
        req.services = self._services
        req.authorized = False
        headers: dict[str, str] = {}
        started = time.perf_counter()
        try:
            req.version = microversions.MINIMUM if self._legacy else microversions.requested_version(req.headers)
            if not self._legacy:
                headers = microversions.response_headers(req.version)
            response = to_response(self._handle(req, environ[ROUTE_MATCH]))
        except Exception as error:
            response = fault_of(error)
        for name, value in headers.items():
            response.headers.setdefault(name, value)
        route = getattr(req, "route", None)
        seconds = metrics.REQUESTS.labels(*_metric_labels(req.method, route), response.status_int)
        seconds.observe(time.perf_counter() - started)
        return response(environ, start_response)

    def _handle(self, req: Request, target: RouteMatch | None) -> Response:
        if target is None:
            raise UnknownUrl()
        if target.project_id is not None and target.project_id != req.context.project_id:
            raise UnknownUrl()
        req.project_url = f"/{target.project_id}" if target.project_id is not None else ""
        if req.method in ("POST", "PUT") and req.content_length and req.content_type not in JSON_TYPES:
            raise webob.exc.HTTPUnsupportedMediaType(explanation="Unsupported Content-Type")
        endpoint = self._choose(req, target.endpoints)
        req.route = endpoint.route
        req.authorize_and_validate(endpoint.declared, target.variables)
        if endpoint.declared.query is None and req.method == "GET" and req.has(Change.NO_UNKNOWN_QUERIES):
            validation.validate_query(_NO_PARAMETERS, {name: [] for name in req.GET})
        answer = endpoint.handler(req, **target.variables)
        if not req.authorized:
            raise RuntimeError(f"{req.method} {req.path} was answered without authorization")
        return answer

    @staticmethod
    def _choose(req: Request, endpoints: list[BoundRoute]) -> BoundRoute:
        """By the verb, by the body's one key where these are actions, and by the request's version."""
        rows = [row for row in endpoints if row.route.method == req.method]
        if not rows:
            raise UnknownUrl()
        if rows[0].route.action is not None:
            body = req.json_value
            if not isinstance(body, dict) or len(body) != 1:
                raise exceptions.ValidationError(detail=MALFORMED_BODY)
            name = next(iter(body))
            rows = [row for row in rows if row.route.action == name]
            if not rows:
                raise exceptions.ValidationError(detail=f"There is no such action: {name[:64]}")
        for row in rows:
            if row.route.serves(req.version):
                return row
        raise webob.exc.HTTPNotFound()


def _metric_labels(method: str, route: Route | None) -> tuple[str, str]:
    """For metrics: what a client makes up itself is no label of them."""
    if route is None:
        return "other", "none"
    return method, route.path if route.action is None else f"{route.path} {route.action}"


class UnknownUrl(Exception):
    """Nothing is at this URL, or not for this verb."""


def to_response(answer: Response) -> webob.Response:
    response = webob.Response(status=answer.status, headerlist=[])
    if answer.body is not None:
        response.content_type = "application/json"
        response.body = msgspec.json.encode(answer.body)
    else:
        response.content_length = 0
    for name, value in answer.headers.items():
        response.headers[name] = value
    return response


def fault_of(error: Exception) -> webob.Response:
    """The JSON answer for an error, whatever it is. What is a fault of ours is logged, and told without details."""
    if isinstance(error, UnknownUrl):
        return unknown_url()
    if isinstance(error, exceptions.NovaLiteException) and error.code != 500:
        return fault(error.code, error.message, error.kwargs.get("retry_after"))
    if isinstance(error, webob.exc.HTTPException):
        return fault(error.code, error.explanation or error.title)
    if isinstance(error, UnicodeDecodeError):
        return fault(400, "The URL is not valid UTF-8.")
    LOG.error("Unexpected error in the API", exc_info=error)
    return fault(500, f"Unexpected API Error. Please contact the administrator\n{type(error)}")


def fault(code: int, message: str, retry_after: int | None = None) -> webob.Response:
    """``{"<name>": {"code": ..., "message": ...}}``. ``retry_after``: seconds, for a 503."""
    name = FAULT_NAMES.get(code, "computeFault")
    body: dict[str, Any] = {"code": code, "message": message}
    headers = {}
    if code in (413, 429):
        body["retryAfter"] = headers["Retry-After"] = "0"
    if code == 503:
        headers["Retry-After"] = str(retry_after or 2)
    return to_response(Response({name: body}, code, headers))


def unknown_url() -> webob.Response:
    """An unknown URL, or a verb that it has not: in Nova a 404, too, but in the words of the WSGI library."""
    return fault(404, webob.exc.HTTPNotFound.explanation)
