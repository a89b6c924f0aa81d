"""The port to networks: where instances get their interfaces and addresses.

A backend works inside the conductor. What it keeps is written through a `NetworkStore`, in the transaction of whoever
asks; it never talks SQL itself. One that asks another service does that in `call`, between two transactions: the first
says what is wanted (`NetworkCall`), the second writes down what came of it. Nothing in a transaction ever waits.
"""

from __future__ import annotations

import abc
import enum
from collections.abc import Collection
from typing import Any, NamedTuple, Protocol

import msgspec
from oslo_config import cfg

from nova_lite.base import exceptions, plugins
from nova_lite.base.context import RequestContext
from nova_lite.objects import VIF, Network, NetworkRequest

NAMESPACE = "nova_lite.network.backends"

AUTO = "auto"
NONE = "none"


class Verb(enum.StrEnum):
    """ATTACH, DETACH: the one interface in ``networks``, or those in ``vifs``. BIND: all that there are, to ``host``.
    LOOK: what there is by now. JOIN, LEAVE: every interface is in, or out of, ``security_groups``, beside what it is in
    anyway. NETWORKS: what there are."""

    RESOLVE = "resolve"
    ALLOCATE = "allocate"
    DEALLOCATE = "deallocate"
    ATTACH = "attach"
    DETACH = "detach"
    BIND = "bind"
    LOOK = "look"
    JOIN = "join"
    LEAVE = "leave"
    NETWORKS = "networks"


class NetworkCall(msgspec.Struct, kw_only=True):
    """What another service is asked for. Asking again for the same instance is harmless.

    ``networks``: what is asked for, with RESOLVE in the user's words ("auto", "none" or a list). ``vifs``: what the
    instance has by now. ``project_id``: whose the instance is. ``host``, ``zone``: where it is to be. The same with
    ``security_groups``: with RESOLVE names or ids, else ids. ``key``: the same for each try of one ATTACH; with DETACH
    what that has made is given back, and what is in ``networks`` let go. ``begun``: by the monotonic clock, since when
    its time counts, where others go by the end of that; None: since it is made.
    """

    verb: Verb
    context: RequestContext
    instance_uuid: str = ""
    networks: str | list[NetworkRequest] = msgspec.field(default_factory=list)
    vifs: list[VIF] = msgspec.field(default_factory=list)
    project_id: str = ""
    host: str = ""
    zone: str = ""
    security_groups: list[str] = msgspec.field(default_factory=list)
    key: str = ""
    begun: float | None = None


class Resolution(msgspec.Struct, kw_only=True):
    """What RESOLVE finds: each request names its network; groups by their ids, and by their names for who looks."""

    requests: list[NetworkRequest] = msgspec.field(default_factory=list)
    security_groups: list[str] = msgspec.field(default_factory=list)
    group_names: list[str] = msgspec.field(default_factory=list)


class KeptPort(NamedTuple):
    """A port as far as it matters to whoever wants it. ``owner``: the project that it belongs to, or its instance.
    ``project_id`` None: it was made with its instance."""

    network_id: str
    owner: str
    project_id: str | None
    instance_uuid: str | None


class Addresses(NamedTuple):
    """Of one interface; ``address6``: beside ``address``, None where the network has none."""

    address: str
    mac_address: str
    address6: str | None = None


class NetworkStore(Protocol):
    """Networks and ports, as one transaction sees them."""

    free: dict[str, list[str]]
    """By network, addresses that nobody had when they were looked up, and that were not given out since."""

    def networks(self, ids: Collection[str] | None = None) -> list[Network]:
        """All networks, or those of these ids that exist, by name."""
        ...

    def locked(self, ids: Collection[str]) -> dict[str, Network]:
        """By their ids, those that exist; until the transaction ends they keep their subnets."""
        ...

    def usable(self, project_id: str | None) -> list[Network]:
        """Those with a subnet that servers of the project may be on, everybody's and its own, by name."""
        ...

    def taken(self, network_id: str, addresses: Collection[str] | None = None) -> set[str]:
        """Which of ``addresses`` are in use on a network; None: all that are."""
        ...

    def port(self, port_id: str) -> KeptPort | None: ...

    def bind_port(self, port_id: str, instance_uuid: str, position: int, tag: str | None) -> bool:
        """Give the instance a port that a user made; False, and nothing done, unless it is free."""
        ...

    def vifs(self, instance_uuid: str) -> list[VIF]:
        """An instance's interfaces, in their order."""
        ...

    def recorded(self, instance_uuid: str) -> list[VIF]:
        """What another service has made for an instance, as it was last recorded."""
        ...

    def record(self, instance_uuid: str, vifs: list[VIF] | None) -> None:
        """Write down what it has made; None: nothing is known."""
        ...

    def add_port(
        self, instance_uuid: str, network_id: str, position: int, addresses: Addresses, tag: str | None
    ) -> str | None:
        """Record an interface; its id. None, and nothing done, when one of its addresses is in use."""
        ...

    def remove_port(self, instance_uuid: str, port_id: str) -> None:
        """Forget one of them, or free it if a user made it; quiet when it is not there."""
        ...

    def remove_ports(self, instance_uuid: str) -> None:
        """Forget all of an instance's interfaces, and free those that users made; quiet when there are none."""
        ...


class NetworkBackend(abc.ABC):
    """One way to give instances their interfaces. ``answer`` is what `call` returned, None where it is not called."""

    #: Whether another service is asked: `call` runs before each of the others.
    remote = False
    #: Whether ports, security groups and floating addresses are that service's too, and no rows of ours.
    keeps_ports = False

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

        Raises a 400: `NetworkUnavailable`, `NetworkAmbiguous`, `NetworkRequiresSubnet`, `FixedIpInvalid`,
        `FixedIpInUse`, `PortUnavailable`, `InvalidInput`; a 409: `PortInUse`.
        """

    def reserve(  # noqa: B027 most have nothing to do
        self, store: NetworkStore, instance_uuid: str, requests: list[NetworkRequest]
    ) -> None:
        """What is the instance's from the moment on that it is accepted: ports that users made. Raises `PortInUse`."""

    @abc.abstractmethod
    def allocate(
        self, store: NetworkStore, instance_uuid: str, requests: list[NetworkRequest], answer: Any = None
    ) -> list[VIF]:
        """Make the interfaces. An instance that has some already keeps exactly those, so a repeat is harmless.

        Raises `NoMoreFixedIps`, `FixedIpInUse` or `NetworkUnavailable`; the caller's transaction then takes back what
        was made before.
        """

    def vifs(self, store: NetworkStore, instance_uuid: str) -> list[VIF]:
        """What an instance has, in its order."""
        return store.vifs(instance_uuid)

    def attach(self, store: NetworkStore, context: RequestContext, instance_uuid: str, request: NetworkRequest) -> VIF:
        """Another interface for an instance that has been built, as a user asked for it. Raises what `resolve` and
        `allocate` raise; default: `NotImplementedByDriver`. Not asked of a service that keeps its ports: see ATTACH."""
        raise exceptions.NotImplementedByDriver(operation="attaching interfaces")

    @abc.abstractmethod
    def deallocate(self, store: NetworkStore, instance_uuid: str) -> None:
        """Give everything back; quiet when there is nothing."""


def load_backend(conf: cfg.ConfigOpts) -> NetworkBackend:
    """The backend named by ``[network] backend``; raises `ConfigurationError`."""
    (loaded,) = plugins.load(NAMESPACE, [conf.network.backend], "[network] backend")
    backend: NetworkBackend = loaded(conf)
    return backend
