"""The port to networks: where instances get their interfaces and addresses.

A backend works inside the conductor. What it keeps is written through a `NetworkStore`, in the transaction of whoever
asks; it never talks SQL itself. One that asks another service does that in `call`, between two transactions: the first
says what is wanted (`NetworkCall`), the second writes down what came of it. Nothing in a transaction ever waits.
"""

from __future__ import annotations

import abc
import enum
from collections.abc import Collection
from typing import Any, Protocol

import msgspec
from oslo_config import cfg

from nova_lite import plugins
from nova_lite.context import RequestContext
from nova_lite.objects import VIF, Network, NetworkRequest

NAMESPACE = "nova_lite.network.backends"

AUTO = "auto"
NONE = "none"


class Verb(enum.StrEnum):
    RESOLVE = "resolve"
    ALLOCATE = "allocate"
    DEALLOCATE = "deallocate"


class NetworkCall(msgspec.Struct, kw_only=True):
    """What another service is asked for. Asking again for the same instance is harmless.

    ``networks``: what is asked for, with RESOLVE in the user's words ("auto", "none" or a list). ``vifs``: what the
    instance has by now.
    """

    verb: Verb
    context: RequestContext
    instance_uuid: str = ""
    networks: str | list[NetworkRequest] = msgspec.field(default_factory=list)
    vifs: list[VIF] = msgspec.field(default_factory=list)


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
    ) -> str | None:
        """Record an interface; its id. None, and nothing done, when the address or the MAC address is in use."""
        ...

    def remove_ports(self, instance_uuid: str) -> None:
        """Forget all of an instance's interfaces; quiet when there are none."""
        ...


class NetworkBackend(abc.ABC):
    """One way to give instances their interfaces. ``answer`` is what `call` returned, None where it is not called."""

    #: Whether another service is asked: `call` runs before each of the three others.
    remote = False

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self.conf = conf

    def call(self, call: NetworkCall) -> Any:
        """Ask the other service, outside any transaction, for no longer than ``[network] call_timeout``. Raises what
        the three others raise, or `ServiceUnavailable`: then it may or may not have been done."""
        raise NotImplementedError

    @abc.abstractmethod
    def resolve(
        self, store: NetworkStore, context: RequestContext, networks: str | list[NetworkRequest], answer: Any = None
    ) -> list[NetworkRequest]:
        """What a user asked for ("auto", "none" or a list), as a list of requests that each name a network.

        Raises a 400: `NetworkUnavailable`, `NetworkAmbiguous`, `FixedIpInvalid`, `FixedIpInUse`, `InvalidInput`.
        """

    @abc.abstractmethod
    def allocate(
        self, store: NetworkStore, instance_uuid: str, requests: list[NetworkRequest], answer: Any = None
    ) -> list[VIF]:
        """Make the interfaces. An instance that has some already keeps exactly those, so a repeat is harmless.

        Raises `NoMoreFixedIps`, `FixedIpInUse` or `NetworkUnavailable`; the caller's transaction then takes back what
        was made before.
        """

    @abc.abstractmethod
    def deallocate(self, store: NetworkStore, instance_uuid: str) -> None:
        """Give everything back; quiet when there is nothing."""


def load_backend(conf: cfg.ConfigOpts) -> NetworkBackend:
    """The backend named by ``[network] backend``; raises `ConfigurationError`."""
    (loaded,) = plugins.load(NAMESPACE, [conf.network.backend], "[network] backend")
    backend: NetworkBackend = loaded(conf)
    return backend
