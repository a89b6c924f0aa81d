"""Requests to the cloud's APIs by openstacksdk, which logs in and finds the services."""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

from nova_lite.base import clock
from nova_lite.cmd.apply.document import Mistake

#: Microversions of the services that have some.
_VERSIONS = {"compute": "2.92", "block_storage": "3.60"}
#: Seconds for which a change of a server or volume may take, and between two looks at it.
TIMEOUT = 900.0
_POLL = 0.2
#: States of servers that are being changed, and of volumes that are not.
_SERVERS_AT_WORK = {"BUILD", "RESIZE", "REBUILD", "REBOOT", "HARD_REBOOT", "PASSWORD", "MIGRATING", "REVERT_RESIZE"}
VOLUMES_AT_REST = ("available", "in-use", "reserved", "maintenance")
_SERVICES = ("compute", "network", "image", "identity", "block_storage")


def is_at_work(server: dict[str, Any]) -> bool:
    return server["OS-EXT-STS:task_state"] is not None or server["status"] in _SERVERS_AT_WORK


class NotThere(Mistake):
    """The cloud has no such thing, or not for this user."""


def connect(cloud: str | None) -> Api:
    """Log in to a cloud of clouds.yaml, by default that of the environment. Raises `Mistake`."""
    try:
        import openstack
        from keystoneauth1.exceptions import ClientException
        from openstack.exceptions import SDKException
    except ImportError as error:
        raise Mistake("openstacksdk is missing: pip install nova-lite[apply]") from error
    try:
        return Api(openstack.connect(cloud=cloud))
    except (ClientException, SDKException, ValueError) as error:
        raise Mistake(f"the cloud {cloud or 'of the environment'} cannot be used: {error}") from error


class Api:
    """APIs of a cloud. Each request that the cloud refuses raises `Mistake` with the cloud's sentence."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._adapters = {name: getattr(connection, name) for name in _SERVICES}
        self.project_id: str = connection.current_project_id

    def send(self, service: str, method: str, path: str, body: Any = None, **query: str) -> dict[str, Any]:
        """Return the JSON object of the response, or an empty one."""
        from keystoneauth1.exceptions import ClientException

        url = path + (f"?{urllib.parse.urlencode(query)}" if query else "")
        version = _VERSIONS.get(service)
        try:
            response = self._adapters[service].request(url, method, json=body, raise_exc=False, microversion=version)
        except ClientException as error:
            raise Mistake(f"the cloud's service {service} cannot be used: {error}") from error
        if response.status_code >= 400:
            kind = NotThere if response.status_code in (403, 404) else Mistake
            raise kind(_sentence(response))
        return response.json() if response.content else {}

    def listed(self, service: str, path: str, key: str, **query: str) -> Iterator[dict[str, Any]]:
        """Yield the items of all pages of a list."""
        while True:
            page = self.send(service, "GET", path, **query)
            yield from page[key]
            links = page.get(f"{key}_links") or []
            following = next((link["href"] for link in links if link.get("rel") == "next"), page.get("next"))
            if not following:
                return
            query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(following).query))

    def wait(self, what: str, ready: Callable[[], bool]) -> None:
        """Wait until ``ready`` is true. Raises `Mistake` after `TIMEOUT` seconds."""
        deadline = clock.monotonic() + TIMEOUT
        while not ready():
            if clock.monotonic() > deadline:
                raise Mistake(f"{what} took more than {TIMEOUT:.0f} s: look at it, and apply again.")
            clock.sleep(_POLL)


def _sentence(response: Any) -> str:
    """Return the message of an API's error, whatever its form."""
    try:
        value = response.json()
    except ValueError:
        return f"the cloud answers {response.status_code}."
    while isinstance(value, dict) and value:
        value = value.get("message") or next((item for item in value.values() if isinstance(item, dict | str)), None)
    return str(value or f"the cloud answers {response.status_code}.")
