"""The port to networks: where instances get their interfaces and addresses.

A backend works inside the conductor, in the transaction of whoever asks, and keeps what it has to keep through a
`NetworkStore`. It never talks SQL itself.
"""

from __future__ import annotations

import abc
from collections.abc import Collection
from typing import Any, Protocol

from oslo_config import cfg
from stevedore import driver as stevedore_driver

from nova_lite import exception
from nova_lite.context import RequestContext
from nova_lite.objects import VIF, Network, NetworkRequest

NAMESPACE = "nova_lite.network.backends"

AUTO = "auto"
NONE = "none"


class NetworkStore(Protocol):
    """Networks and ports, as one transaction sees them."""

    def networks(self, ids: Collection[str] | None = None) -> list[Network]:
        """All networks, or those of these ids that exist, by name."""
        ...

    def taken(self, network_id: str, addresses: Collection[str] | None = None) -> set[str]:
        """Which of ``addresses`` are in use on a network; None: all that are."""
        ...

    def vifs(self, instance_uuid: str) -> list[VIF]:
        """An instance's interfaces, in their order."""
        ...

    def add_port(
        self, instance_uuid: str, network_id: str, position: int, address: str, mac_address: str, tag: str | None
    ) -> bool:
        """Record an interface. False, and nothing done, when the address or the MAC address is in use."""
        ...

    def remove_ports(self, instance_uuid: str) -> None:
        """Forget all of an instance's interfaces; quiet when there are none."""
        ...


class NetworkBackend(abc.ABC):
    """One way to give instances their interfaces."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self.conf = conf

    @abc.abstractmethod
    def resolve(
        self, store: NetworkStore, context: RequestContext, networks: str | list[NetworkRequest]
    ) -> list[NetworkRequest]:
        """What a user asked for ("auto", "none" or a list), as a list of requests that each name a network.

        Raises a 400: `NetworkUnavailable`, `NetworkAmbiguous`, `FixedIpInvalid`, `FixedIpInUse`, `InvalidInput`.
        """

    @abc.abstractmethod
    def allocate(self, store: NetworkStore, instance_uuid: str, requests: list[NetworkRequest]) -> list[VIF]:
        """Make the interfaces. An instance that has some already keeps exactly those, so a repeat is harmless.

        Raises `NoMoreFixedIps`, `FixedIpInUse` or `NetworkUnavailable`; the caller's transaction then takes back what
        was made before.
        """

    @abc.abstractmethod
    def deallocate(self, store: NetworkStore, instance_uuid: str) -> None:
        """Give everything back; quiet when there is nothing."""


def load_backend(conf: cfg.ConfigOpts) -> NetworkBackend:
    """The backend named by ``[network] backend``; raises `ConfigurationError`."""
    name = conf.network.backend
    try:
        plugin: Any = stevedore_driver.DriverManager(NAMESPACE, name, invoke_on_load=False)
    except Exception as error:
        raise exception.ConfigurationError(reason=f"[network] backend = {name} cannot be loaded: {error}") from error
    backend: NetworkBackend = plugin.driver(conf)
    return backend
