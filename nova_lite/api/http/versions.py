"""Version documents of the compute API. Clients read them first, so they need no authentication."""

from __future__ import annotations

from typing import Any

import webob

from nova_lite.api.http import deploy, microversions, wsgi
from nova_lite.base import exceptions

MEDIA_TYPE = "application/vnd.openstack.compute+json"

#: Properties of each version, by its id.
_KNOWN: dict[str, dict[str, str]] = {
    "v2.0": {
        "status": "DEPRECATED",
        "version": "",
        "min_version": "",
        "updated": "2025-07-04T12:00:00Z",
    },
    "v2.1": {
        "status": "CURRENT",
        "version": str(microversions.MAXIMUM),
        "min_version": str(microversions.MINIMUM),
        "updated": "2013-07-23T11:33:21Z",
    },
}
_PATHS = {"v2.0": "/v2/", "v2.1": "/v2.1/"}
_MEDIA = {"v2.0": "2", "v2.1": "2.1"}


def app_factory(global_conf: dict[str, str], **local_conf: str) -> ComputeVersions:
    """Make the application for paste. ``show = v2.1`` (or v2.0) serves that version's document, else all are listed."""
    del global_conf
    return ComputeVersions(deploy.conf().api.compute_link_prefix, local_conf.get("show"))


class ComputeVersions:
    """WSGI application that serves the document of one version, or the list of versions at the root."""

    def __init__(self, link_prefix: str | None, show: str | None) -> None:
        self._link_prefix = link_prefix
        self._show = show

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        try:
            response = wsgi.to_response(self._respond(environ))
            if self._show == "v2.1":
                requested = microversions.requested_version(webob.Request(environ).headers)
                microversions.name_version(response, requested)
        except exceptions.InvalidGlobalAPIVersion as error:
            response = wsgi.fault_of(error, environ)
            microversions.name_version(response, error.kwargs["req_ver"])
        except exceptions.NovaLiteException as error:
            response = wsgi.fault_of(error, environ)
        return response(environ, start_response)

    def _respond(self, environ: dict[str, Any]) -> wsgi.Response:
        if self._show:
            return wsgi.Response({"version": self._document(environ, self._show)})
        path = environ.get("PATH_INFO", "")
        if path in ("", "/"):
            return wsgi.Response({"versions": [self._summary(environ, version) for version in _KNOWN]})
        return wsgi.Response({"choices": [self._choice(environ, version, path) for version in _KNOWN]}, 300)

    def _root(self, environ: dict[str, Any]) -> str:
        """Return the URL of the root: the parent of a version such as ``/v2.1``, or ``/`` itself."""
        if self._show:
            return wsgi.root_url(environ, self._link_prefix)
        return wsgi.root_url({**environ, "SCRIPT_NAME": environ.get("SCRIPT_NAME", "") + "/"}, self._link_prefix)

    def _summary(self, environ: dict[str, Any], version: str) -> dict[str, Any]:
        href = self._root(environ) + _PATHS[version]
        return {"id": version, **_KNOWN[version], "links": [{"rel": "self", "href": href}]}

    def _document(self, environ: dict[str, Any], version: str) -> dict[str, Any]:
        document = self._summary(environ, version)
        document["links"].append({"rel": "describedby", "type": "text/html", "href": "http://docs.openstack.org/"})
        document["media-types"] = [_media_type(version)]
        return document

    def _choice(self, environ: dict[str, Any], version: str, path: str) -> dict[str, Any]:
        href = f"{self._root(environ)}{_PATHS[version].rstrip('/')}/{wsgi.quote_path(path.lstrip('/'))}"
        return {
            "id": version,
            "status": _KNOWN[version]["status"],
            "links": [{"rel": "self", "href": href}],
            "media-types": [_media_type(version)],
        }


def _media_type(version: str) -> dict[str, str]:
    return {"base": "application/json", "type": f"{MEDIA_TYPE};version={_MEDIA[version]}"}
