"""Requests to Neutron's v2.0 API with keystoneauth."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

import requests
from keystoneauth1 import exceptions as keystone_errors
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.base.timing import TIMING, ClientTiming
from nova_lite.conf import service_client
from nova_lite.conf.neutron import GROUP, register_opts

LOG = logging.getLogger(__name__)


class NeutronRefusal(Exception):
    """Neutron refuses a request. ``kind``: type of its error."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status, self.kind, self.message = status, kind, message


class NeutronClient:
    """Client of Neutron, for use by several threads. Raises `NetworkServiceUnavailable` if Neutron is down or fails.

    The URL is ``endpoint_override``, or comes from the catalog of the user in ``[neutron]``.
    """

    def __init__(self, conf: cfg.ConfigOpts, timing: ClientTiming = TIMING.clients) -> None:
        register_opts(conf)
        self._margin = timing.neutron_margin
        self._adapter = service_client.load_adapter(conf, GROUP, "[network] backend = neutron")
        self._timeout = float(conf.neutron.timeout)

    def within(self, seconds: float, started_at: float | None = None) -> NeutronSession:
        """Return a session whose requests together end ``seconds`` after ``started_at`` (None: now)."""
        since = time.monotonic() if started_at is None else started_at
        return NeutronSession(self, since + max(seconds - self._margin, 1.0))

    def send(self, method: str, path: str, deadline: float, **options: Any) -> requests.Response:
        left = deadline - time.monotonic()
        if left <= 0:
            LOG.error("Neutron was too slow: no time is left for %s %s", method, path)
            raise exceptions.NetworkServiceUnavailable()
        try:
            response: requests.Response = self._adapter.request(
                f"{self._root()}/v2.0/{path}",
                method,
                raise_exc=False,
                timeout=min(left, self._timeout),
                connect_retries=0,
                **options,
            )
        except keystone_errors.ClientException as error:
            LOG.error("Request to Neutron failed: %s", error)
            raise exceptions.NetworkServiceUnavailable() from error
        if response.status_code >= 500 or response.status_code in (401, 403):
            LOG.error("Neutron returned %d to %s %s", response.status_code, method, path)
            raise exceptions.NetworkServiceUnavailable()
        return response

    def _root(self) -> str:
        """Return Neutron's URL, without the version that some catalogs include."""
        root = self._adapter.get_endpoint(skip_discovery=True)
        if not root:
            raise keystone_errors.EndpointNotFound("the catalog has no endpoint of the network service")
        return str(root).rstrip("/").removesuffix("/v2.0")


class NeutronSession:
    """Sequence of requests with one deadline by the monotonic clock. Raises `NeutronRefusal`."""

    def __init__(self, client: NeutronClient, deadline: float) -> None:
        self._client = client
        self._deadline = deadline

    def list(self, collection: str, **query: Any) -> list[dict[str, Any]]:
        """List resources. ``collection``: key of the response, in the plural. A list in the query means any of it."""
        path = collection.replace("_", "-")
        items: list[dict[str, Any]] = self._request("GET", path, params=query)[collection]
        return items

    def get(self, kind: str, id: str) -> dict[str, Any] | None:
        """Return a resource, or None if it does not exist."""
        try:
            item: dict[str, Any] = self._request("GET", f"{kind}s/{id}")[kind]
        except NeutronRefusal as error:
            if error.status == 404:
                return None
            raise
        return item

    def create(self, kind: str, values: Mapping[str, Any]) -> dict[str, Any]:
        created: dict[str, Any] = self._request("POST", f"{kind}s", json={kind: values})[kind]
        return created

    def update(self, kind: str, id: str, values: Mapping[str, Any], revision: int | None = None) -> dict[str, Any]:
        """Update a resource. With a ``revision``, Neutron refuses (412) if the resource has another one."""
        headers = {} if revision is None else {"If-Match": f"revision_number={revision}"}
        updated: dict[str, Any] = self._request("PUT", f"{kind}s/{id}", json={kind: values}, headers=headers)[kind]
        return updated

    def delete(self, kind: str, id: str) -> None:
        """Delete a resource. Does nothing if it does not exist."""
        try:
            self._request("DELETE", f"{kind}s/{id}")
        except NeutronRefusal as error:
            if error.status != 404:
                raise

    def _request(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        response = self._client.send(method, path, self._deadline, **options)
        if response.status_code >= 400:
            kind, message = _kind(response)
            raise NeutronRefusal(response.status_code, kind, message or f"Neutron returned {response.status_code}.")
        if response.status_code == 204:
            return {}
        try:
            body = response.json()
        except ValueError:
            body = None
        if not isinstance(body, dict):
            LOG.error("Neutron's response to %s is not a JSON object", response.url)
            raise exceptions.NetworkServiceUnavailable()
        return body


def _kind(response: requests.Response) -> tuple[str, str]:
    """Return type and message of Neutron's error. Both are empty if the response is not in Neutron's form."""
    try:
        error = response.json().get("NeutronError", {})
    except (ValueError, AttributeError):
        return "", ""
    if not isinstance(error, dict):
        return "", str(error)
    return str(error.get("type", "")), str(error.get("message", ""))
