"""Backend ``none``: every instance boots without an interface."""

from __future__ import annotations

from typing import Any

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.network.driver import NetworkBackend, NetworkStore
from nova_lite.objects import VIF, NetworkRequest


class NoNetworks(NetworkBackend):
    """No networks."""

    def resolve(
        self, store: NetworkStore, context: RequestContext, networks: str | list[NetworkRequest], result: Any = None
    ) -> list[NetworkRequest]:
        """Return nothing for "auto", "none" and an empty list. Raises `NetworkUnavailable` for a named network."""
        for request in [] if isinstance(networks, str) else networks:
            raise exceptions.NetworkUnavailable(network_id=request.network_id or request.port_id)
        return []

    def allocate(
        self, store: NetworkStore, instance_uuid: str, requests: list[NetworkRequest], result: Any = None
    ) -> list[VIF]:
        return []

    def deallocate(self, store: NetworkStore, instance_uuid: str) -> None:
        """Release interfaces that an instance got from another backend, before the option changed."""
        store.remove_ports(instance_uuid)
