"""Requests to Neutron's v2.0 API, by keystoneauth."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

import requests
from keystoneauth1 import exceptions as keystone_errors
from oslo_config import cfg

from nova_lite.base import exceptions, failpoints
from nova_lite.conf import service_client
from nova_lite.conf.neutron import GROUP, register_opts

LOG = logging.getLogger(__name__)

#: Seconds of a call's time that are left to its caller, to write down what came of it.
MARGIN = 2.0


class NeutronRefusal(Exception):
    """Neutron says no: ``status``, the ``kind`` of its error, and its sentence."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status, self.kind, self.message = status, kind, message


class NeutronClient:
    """Several threads may use it. Neutron away, or in trouble of its own, is `NetworkServiceUnavailable`.

    Where Neutron is, the catalog of the user in ``[neutron]`` says, or ``endpoint_override``.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        register_opts(conf)
        self._adapter = service_client.load_adapter(conf, GROUP, "[network] backend = neutron")
        self._timeout = float(conf.neutron.timeout)

    def within(self, seconds: float, started_at: float | None = None) -> NeutronSession:
        """Requests that all together end within this time, since ``started_at`` (None: since now)."""
        since = time.monotonic() if started_at is None else started_at
        return NeutronSession(self, since + max(seconds - MARGIN, 1.0))

    def send(self, method: str, path: str, deadline: float, **options: Any) -> requests.Response:
        left = deadline - time.monotonic()
        if left <= 0:
            LOG.error("Neutron was too slow: there is no time left for %s %s", method, path)
            raise exceptions.NetworkServiceUnavailable()
        point = ("neutron", method.lower(), path.partition("/")[0])
        if failpoints.reach(*point, "before") == failpoints.ERROR:
            raise exceptions.NetworkServiceUnavailable()
        try:
            answer: requests.Response = self._adapter.request(
                f"{self._root()}/v2.0/{path}",
                method,
                raise_exc=False,
                timeout=min(left, self._timeout),
                connect_retries=0,
                **options,
            )
        except keystone_errors.ClientException as error:
            LOG.error("Neutron cannot be asked: %s", error)
            raise exceptions.NetworkServiceUnavailable() from error
        if answer.status_code >= 500 or answer.status_code in (401, 403):
            LOG.error("Neutron answers %d to %s %s", answer.status_code, method, path)
            raise exceptions.NetworkServiceUnavailable()
        if failpoints.reach(*point, "after") == failpoints.ERROR:
            raise exceptions.NetworkServiceUnavailable()
        return answer

    def _root(self) -> str:
        """Neutron's URL, without the version that some catalogs have in it."""
        root = self._adapter.get_endpoint(skip_discovery=True)
        if not root:
            raise keystone_errors.EndpointNotFound("the catalog has no endpoint of the network service")
        return str(root).rstrip("/").removesuffix("/v2.0")


class NeutronSession:
    """Several requests, with one deadline (of the monotonic clock). Refusals are `NeutronRefusal`."""

    def __init__(self, client: NeutronClient, deadline: float) -> None:
        self._client = client
        self._deadline = deadline

    def list(self, what: str, **query: Any) -> list[dict[str, Any]]:
        """``what`` in the plural, with ``_`` for ``-`` as in the answer's key. A list in the query: any of it."""
        path = what.replace("_", "-")
        found: list[dict[str, Any]] = self._ask("GET", path, params=query)[what]
        return found

    def get(self, what: str, id: str) -> dict[str, Any] | None:
        """None if there is none (any more)."""
        try:
            found: dict[str, Any] = self._ask("GET", f"{what}s/{id}")[what]
        except NeutronRefusal as error:
            if error.status == 404:
                return None
            raise
        return found

    def create(self, what: str, values: Mapping[str, Any]) -> dict[str, Any]:
        made: dict[str, Any] = self._ask("POST", f"{what}s", json={what: values})[what]
        return made

    def update(self, what: str, id: str, values: Mapping[str, Any], revision: int | None = None) -> dict[str, Any]:
        """``revision``: refused (412) if it is not what is there any more."""
        headers = {} if revision is None else {"If-Match": f"revision_number={revision}"}
        made: dict[str, Any] = self._ask("PUT", f"{what}s/{id}", json={what: values}, headers=headers)[what]
        return made

    def delete(self, what: str, id: str) -> None:
        """Quiet if there is none."""
        try:
            self._ask("DELETE", f"{what}s/{id}")
        except NeutronRefusal as error:
            if error.status != 404:
                raise

    def _ask(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        answer = self._client.send(method, path, self._deadline, **options)
        if answer.status_code >= 400:
            kind, message = _kind(answer)
            raise NeutronRefusal(answer.status_code, kind, message or f"Neutron answers {answer.status_code}.")
        if answer.status_code == 204:
            return {}
        try:
            body = answer.json()
        except ValueError:
            body = None
        if not isinstance(body, dict):
            LOG.error("Neutron's answer to %s is no JSON object", answer.url)
            raise exceptions.NetworkServiceUnavailable()
        return body


def _kind(answer: requests.Response) -> tuple[str, str]:
    """Type and sentence of an error of Neutron's; empty if it is none."""
    try:
        error = answer.json().get("NeutronError", {})
    except (ValueError, AttributeError):
        return "", ""
    if not isinstance(error, dict):
        return "", str(error)
    return str(error.get("type", "")), str(error.get("message", ""))
