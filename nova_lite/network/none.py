"""No networks at all: every instance boots without an interface."""

from __future__ import annotations

from typing import Any

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.network.driver import NetworkBackend, NetworkStore
from nova_lite.objects import VIF, NetworkRequest


class NoNetworks(NetworkBackend):
    def resolve(
        self, store: NetworkStore, context: RequestContext, networks: str | list[NetworkRequest], answer: Any = None
    ) -> list[NetworkRequest]:
        """Nothing, for "auto", "none" and an empty list; any network that is named does not exist here."""
        for request in [] if isinstance(networks, str) else networks:
            raise exceptions.NetworkUnavailable(network_id=request.network_id or request.port_id)
        return []

    def allocate(
        self, store: NetworkStore, instance_uuid: str, requests: list[NetworkRequest], answer: Any = None
    ) -> list[VIF]:
        return []

    def deallocate(self, store: NetworkStore, instance_uuid: str) -> None:
        """Also what an instance got before the backend was changed to this one."""
        store.remove_ports(instance_uuid)
