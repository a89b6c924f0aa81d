"""Requests to Glance's v2 API, by keystoneauth."""

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
    """Several threads may use it. Glance away, or in trouble of its own, is `ImageServiceUnavailable`.

    Where Glance is, the catalog of the user in ``[glance]`` says, or ``endpoint_override``.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        register_opts(conf)
        self._adapter = service_client.load_adapter(conf, GROUP, "[image] backend = glance")

    def request(self, token: str, method: str, path: str, **options: Any) -> requests.Response:
        """As the user whose token it is. Any answer of Glance's below 500 is returned."""
        headers = {"X-Auth-Token": token, **options.pop("headers", {})}
        return self._send(method, path, headers=headers, authenticated=False, **options)

    def own(self, method: str, path: str) -> requests.Response:
        """As the user of ``[glance]``."""
        return self._send(method, path)

    def send_file(self, path: str, data: Any) -> requests.Response:
        """As the user of ``[glance]``: ``data`` (what `requests` takes as a file) is the body. It is not sent twice."""
        headers = {"Content-Type": "application/octet-stream"}
        return self._send("PUT", path, headers=headers, data=data, log=False, connect_retries=0)

    def patch(self, token: str, path: str, operations: Sequence[Mapping[str, Any]]) -> requests.Response:
        headers = {"Content-Type": PATCH_TYPE}
        return self.request(token, "PATCH", path, headers=headers, data=json.dumps(operations))

    def pages(self, token: str | None, query: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """All images that match, page by page; without a token as the user of ``[glance]``."""
        path: str | None = f"/v2/images?{urlencode(query)}"
        while path:
            answer = self.own("GET", path) if token is None else self.request(token, "GET", path)
            if answer.status_code != 200:
                LOG.error("Glance lists no images: it answers %d", answer.status_code)
                raise exceptions.Forbidden("The image service does not list images for this token.")
            body = json_of(answer)
            yield from body.get("images", [])
            path = body.get("next")

    @contextlib.contextmanager
    def download(self, path: str) -> Iterator[requests.Response]:
        """As the user of ``[glance]``; the answer's body is still to be read."""
        headers = {"Accept": "application/octet-stream"}
        with self._send("GET", path, headers=headers, stream=True, log=False) as answer:
            yield answer

    def _send(self, method: str, path: str, **options: Any) -> requests.Response:
        try:
            answer: requests.Response = self._adapter.request(self._root() + path, method, raise_exc=False, **options)
        except keystone_errors.ClientException as error:
            LOG.error("Glance cannot be asked: %s", error)
            raise exceptions.ImageServiceUnavailable() from error
        if answer.status_code >= 500:
            LOG.error("Glance answers %d to %s %s", answer.status_code, method, path)
            answer.close()
            raise exceptions.ImageServiceUnavailable()
        return answer

    def _root(self) -> str:
        """Glance's URL, without the version that some catalogs have in it."""
        root = self._adapter.get_endpoint(skip_discovery=True)
        if not root:
            raise keystone_errors.EndpointNotFound("the catalog has no endpoint of the image service")
        return str(root).rstrip("/").removesuffix("/v2")


def json_of(answer: requests.Response) -> dict[str, Any]:
    """The object in the answer's body; raises `ImageServiceUnavailable` when there is none, as from a proxy."""
    try:
        body = answer.json()
    except requests.JSONDecodeError:
        body = None
    if not isinstance(body, dict):
        LOG.error("Glance's answer to %s is no JSON object", answer.url)
        raise exceptions.ImageServiceUnavailable()
    return body
