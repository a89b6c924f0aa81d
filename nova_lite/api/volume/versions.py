"""Versions of the volume API: the document, which needs no authentication, and the microversion of a request."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from typing import Any

import webob
import webob.exc

from nova_lite.api.http import wsgi
from nova_lite.api.http.microversions import Version

#: Minor parts of Cinder's microversions: the supported range, and the versions that change something here.
MINIMUM, MAXIMUM = 0, 68
SUMMARY, GROUPS, ATTACHMENTS, RESOURCE_FILTERS, SUMMARY_METADATA, SNAPSHOT_USER = 12, 13, 27, 33, 36, 41
EXTEND_ATTACHED, SHARED_TARGETS, TRANSFERS, TRANSFER_PROJECTS, CLUSTER_NAME, DEFAULT_TYPES = 42, 48, 55, 57, 61, 62
STRICT_VOLUMES = 53
TYPE_IDS, ENCRYPTION_KEYS, CONSUMES_QUOTA, SNAPSHOTS_IN_USE, REIMAGE = 63, 64, 65, 66, 68
BACKUP_PROJECT, BACKUP_METADATA, COMPLETE, COUNTS, FROM_BACKUP, BACKEND_STATE, BACKUP_USER = 18, 43, 44, 45, 47, 49, 56
CLUSTERS, GROUP_SNAPSHOTS = 7, 14

HEADER = "OpenStack-API-Version"
_SERVICES = ("volume", "block-storage", "volumev3")


def app_factory(global_conf: dict[str, str], **local_conf: str) -> VolumeVersions:
    del global_conf, local_conf
    return VolumeVersions()


def minor_of(req: webob.Request) -> int:
    """Return the minor version of a request. Raises a 406 for an unsupported version, a 400 for an invalid one."""
    version = _requested(req.headers)
    if version.major != 3 or not MINIMUM <= version.minor <= MAXIMUM:
        raise webob.exc.HTTPNotAcceptable(
            explanation=f"Version {version} is not supported by the API. Minimum is 3.{MINIMUM} and maximum is "
            f"3.{MAXIMUM}."
        )
    return version.minor


def require(req: webob.Request, least: int) -> int:
    """Return the minor version of a request. Raises `UnknownUrl` if that version does not have the URL."""
    minor = minor_of(req)
    if minor < least:
        raise wsgi.UnknownUrl()
    return minor


def _requested(headers: Mapping[str, str]) -> Version:
    for part in headers.get(HEADER, "").split(","):
        service, _, text = part.strip().partition(" ")
        if service.lower() not in _SERVICES:
            continue
        if text.strip() == "latest":
            return Version(3, MAXIMUM)
        match = re.fullmatch(r"(\d{1,3})\.(\d{1,4})", text.strip())
        if match is None:
            raise webob.exc.HTTPBadRequest(explanation="The version of the API is of invalid format.")
        return Version(int(match[1]), int(match[2]))
    return Version(3, MINIMUM)


def with_header(environ: dict[str, Any], start_response: Any) -> Any:
    """Wrap ``start_response`` to add the header with the request's version, if it is one, even an unsupported one."""

    def start(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
        with contextlib.suppress(webob.exc.HTTPBadRequest):
            version = _requested({HEADER: environ.get("HTTP_OPENSTACK_API_VERSION", "")})
            headers = [*headers, (HEADER, f"{_SERVICES[0]} {version}"), ("Vary", HEADER)]
        return start_response(status, headers, *more)

    return start


class VolumeVersions:
    """WSGI application for ``/``, ``/versions`` and ``/v3``."""

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        path = environ.get("PATH_INFO", "").rstrip("/")
        script = environ.get("SCRIPT_NAME", "")
        if path not in ("", "/versions", "/v3"):
            return wsgi.unknown_url()(environ, start_response)
        root = wsgi.root_url({**environ, "SCRIPT_NAME": script + "/"}, None)
        version = {
            "id": "v3.0",
            "status": "CURRENT",
            "version": f"3.{MAXIMUM}",
            "min_version": f"3.{MINIMUM}",
            "updated": "2026-01-01T00:00:00Z",
            "links": [{"rel": "self", "href": f"{root}/v3/"}],
            "media-types": [{"base": "application/json", "type": "application/vnd.openstack.volume+json;version=3"}],
        }
        status = 300 if path == "" else 200
        return wsgi.to_response(wsgi.Response({"versions": [version]}, status))(environ, start_response)
