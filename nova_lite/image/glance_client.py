"""Requests to Glance's v2 API with keystoneauth."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import requests
from keystoneauth1 import exceptions as keystone_errors
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.conf import service_client
from nova_lite.conf.glance import GROUP, register_opts

LOG = logging.getLogger(__name__)

PATCH_TYPE = "application/openstack-images-v2.1-json-patch"


class GlanceClient:
    """Client of Glance, for use by several threads. Raises `ImageServiceUnavailable` if Glance is down or fails.

    The URL is ``endpoint_override``, or comes from the catalog of the user in ``[glance]``.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        register_opts(conf)
        self._adapter = service_client.load_adapter(conf, GROUP, "[image] backend = glance")

    def request(self, token: str, method: str, path: str, **options: Any) -> requests.Response:
        """Send a request with a user's token. Returns every response with a status below 500."""
        headers = {"X-Auth-Token": token, **options.pop("headers", {})}
        return self._send(method, path, headers=headers, authenticated=False, **options)

    def own(self, method: str, path: str, **arguments: Any) -> requests.Response:
        """Send a request as the user of ``[glance]``."""
        return self._send(method, path, **arguments)

    def send_file(self, path: str, data: Any) -> requests.Response:
        """Send a file as the user of ``[glance]``, without retries. ``data``: a file as in `requests`."""
        headers = {"Content-Type": "application/octet-stream"}
        return self._send("PUT", path, headers=headers, data=data, log=False, connect_retries=0)

    def patch(self, token: str, path: str, operations: Sequence[Mapping[str, Any]]) -> requests.Response:
        headers = {"Content-Type": PATCH_TYPE}
        return self.request(token, "PATCH", path, headers=headers, data=json.dumps(operations))

    def pages(self, token: str | None, query: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """Yield all matching images, page by page. Without a token, as the user of ``[glance]``. Raises
        `MarkerNotFound`.
        """
        path: str | None = f"/v2/images?{urlencode(query)}"
        while path:
            response = self.own("GET", path) if token is None else self.request(token, "GET", path)
            if response.status_code in (400, 404) and "marker" in query:
                raise exceptions.MarkerNotFound(marker=query["marker"])
            if response.status_code != 200:
                LOG.error("Glance lists no images: it returned %d", response.status_code)
                raise exceptions.Forbidden("The image service does not list images for this token.")
            body = json_of(response)
            yield from body.get("images", [])
            path = body.get("next")

    @contextlib.contextmanager
    def download(self, path: str) -> Iterator[requests.Response]:
        """Start a download as the user of ``[glance]``. The caller reads the body."""
        headers = {"Accept": "application/octet-stream"}
        with self._send("GET", path, headers=headers, stream=True, log=False) as response:
            yield response

    def _send(self, method: str, path: str, **options: Any) -> requests.Response:
        try:
            response: requests.Response = self._adapter.request(self._root() + path, method, raise_exc=False, **options)
        except keystone_errors.ClientException as error:
            LOG.error("Request to Glance failed: %s", error)
            raise exceptions.ImageServiceUnavailable() from error
        if response.status_code >= 500:
            LOG.error("Glance returned %d to %s %s", response.status_code, method, path)
            response.close()
            raise exceptions.ImageServiceUnavailable()
        return response

    def _root(self) -> str:
        """Return Glance's URL, without the version that some catalogs include."""
        root = self._adapter.get_endpoint(skip_discovery=True)
        if not root:
            raise keystone_errors.EndpointNotFound("the catalog has no endpoint of the image service")
        return str(root).rstrip("/").removesuffix("/v2")


def json_of(response: requests.Response) -> dict[str, Any]:
    """Return the object in the body. Raises `ImageServiceUnavailable` if there is none, as from a proxy."""
    try:
        body = response.json()
    except requests.JSONDecodeError:
        body = None
    if not isinstance(body, dict):
        LOG.error("Glance's response to %s is not a JSON object", response.url)
        raise exceptions.ImageServiceUnavailable()
    return body
