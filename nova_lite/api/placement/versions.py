"""Versions of the Placement API: the document, which needs no authentication, and the microversion of a request."""

from __future__ import annotations

import contextlib
import datetime
import email.utils
import enum
import re
from collections.abc import Mapping
from typing import Any

import webob
import webob.exc

from nova_lite.api.http import wsgi
from nova_lite.api.http.microversions import Version

MINIMUM, MAXIMUM = 0, 39

HEADER = "OpenStack-API-Version"
_SERVICE = "placement"


class Change(enum.IntEnum):
    """Minor versions that change what can be read."""

    AGGREGATES = 1
    RESOURCE_CLASSES = 2
    MEMBER_OF = 3
    RESOURCES = 4
    TRAITS = 6
    USAGES = 9
    CANDIDATES = 10
    ALLOCATIONS_LINK = 11
    CONSUMERS = 12
    TREES = 14
    CACHE_HEADERS = 15
    CANDIDATES_LIMIT = 16
    CANDIDATES_TRAITS = 17
    REQUIRED = 18
    AGGREGATES_GENERATION = 19
    CANDIDATES_MEMBER_OF = 21
    FORBIDDEN_TRAITS = 22
    ERROR_CODES = 23
    SEVERAL_MEMBER_OF = 24
    GROUPS = 25
    ALL_RESOURCES = 27
    CONSUMER_GENERATION = 28
    CANDIDATES_TREES = 29
    CANDIDATES_IN_TREE = 31
    FORBIDDEN_AGGREGATES = 32
    NAMED_GROUPS = 33
    MAPPINGS = 34
    ROOT_REQUIRED = 35
    SAME_SUBTREE = 36
    CONSUMER_TYPES = 38
    ANY_TRAITS = 39


def app_factory(global_conf: dict[str, str], **local_conf: str) -> PlacementVersions:
    del global_conf, local_conf
    return PlacementVersions()


def minor_of(req: webob.Request) -> int:
    """Return the minor version of a request. Raises a 406 for an unsupported version, a 400 for an invalid one."""
    return _minor_of(req.headers)


def require(req: webob.Request, change: Change) -> int:
    """Return the request's minor version. Raises `UnknownUrl` if that version does not have the URL."""
    minor = minor_of(req)
    if minor < change:
        raise wsgi.UnknownUrl()
    return minor


def _minor_of(headers: Mapping[str, str]) -> int:
    version = _requested(headers)
    if version.major != 1 or not MINIMUM <= version.minor <= MAXIMUM:
        raise webob.exc.HTTPNotAcceptable(explanation=f"Unacceptable version header: {version}")
    return version.minor


def _requested(headers: Mapping[str, str]) -> Version:
    for part in reversed(headers.get(HEADER, "").split(",")):
        service, _, text = part.strip().partition(" ")
        if service.lower() != _SERVICE:
            continue
        if text.strip() == "latest":
            return Version(1, MAXIMUM)
        match = re.fullmatch(r"([0-9]{1,3})\.([0-9]{1,4})", text.strip())
        if match is None:
            raise webob.exc.HTTPBadRequest(explanation=f"invalid version string: {text.strip()[:32]}")
        return Version(int(match[1]), int(match[2]))
    return Version(1, MINIMUM)


def with_header(environ: dict[str, Any], start_response: Any) -> Any:
    """Wrap ``start_response`` to add the header with the request's version, if it is a valid one."""

    def start(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
        with contextlib.suppress(webob.exc.HTTPError):
            version = _minor_of({HEADER: environ.get("HTTP_OPENSTACK_API_VERSION", "")})
            headers = [*headers, (HEADER, f"{_SERVICE} 1.{version}"), ("Vary", HEADER)]
        return start_response(status, headers, *more)

    return start


def cache_headers(minor: int, changed_at: datetime.datetime | None = None) -> dict[str, str]:
    """Return the headers about caches. ``changed_at``: when the shown resource changed; None: now."""
    if minor < Change.CACHE_HEADERS:
        return {}
    moment = datetime.datetime.now(datetime.UTC) if changed_at is None else changed_at.replace(tzinfo=datetime.UTC)
    return {"Cache-Control": "no-cache", "Last-Modified": email.utils.format_datetime(moment, usegmt=True)}


class PlacementVersions:
    """WSGI application for ``/``."""

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        version = {
            "id": f"v1.{MINIMUM}",
            "status": "CURRENT",
            "min_version": f"1.{MINIMUM}",
            "max_version": f"1.{MAXIMUM}",
            "links": [{"rel": "self", "href": ""}],
        }
        start = with_header(environ, start_response)
        return wsgi.to_response(wsgi.Response({"versions": [version]}))(environ, start)
