"""Interface of network backends: the ports and addresses of instances.

A backend works inside the conductor. It stores its data through a `NetworkStore`, in the caller's transaction, and
never uses SQL.

A remote backend sends its requests to the other service in `NetworkBackend.call`, between two transactions. The first
one plans the `NetworkCall`, the second one stores its result. So no transaction waits for the other service.
"""

from __future__ import annotations

import abc
import enum
from collections.abc import Collection
from typing import Any, NamedTuple, Protocol

import msgspec
from oslo_config import cfg

from nova_lite.base import exceptions, faults, plugins
from nova_lite.base.context import RequestContext
from nova_lite.objects import VIF, Network, NetworkRequest, PCIDevice
from nova_lite.objects.pci import NORMAL

NAMESPACE = "nova_lite.network.backends"

AUTO = "auto"
NONE = "none"


class NetworkMethod(enum.StrEnum):
    """Methods of a remote network service."""

    #: Resolve and check the networks and security groups that a user requests.
    RESOLVE = "resolve"
    #: Make all interfaces of an instance.
    ALLOCATE = "allocate"
    #: Remove all interfaces of an instance.
    DEALLOCATE = "deallocate"
    #: Make the one interface in ``networks``.
    ATTACH = "attach"
    #: Remove the interfaces in ``vifs``, or the interface that ATTACH made with the same ``key``.
    DETACH = "detach"
    #: Bind all interfaces to ``host``.
    BIND = "bind"
    #: Read the current state of the interfaces.
    LOOK = "look"
    #: Add every interface to ``security_groups``, besides the groups it is in.
    JOIN = "join"
    #: Remove every interface from ``security_groups``.
    LEAVE = "leave"
    #: List the networks that the caller can see.
    NETWORKS = "networks"


class NetworkCall(msgspec.Struct, kw_only=True):
    """Request to the other service. A repeated request for the same instance is harmless.

    ``networks``: requested networks. For RESOLVE: "auto", "none" or a list, as in the request. For DETACH these
    are ports of users, which are released. ``vifs``: interfaces that the instance already has. ``project_id``: owner of
    the instance. ``host``, ``zone``: where the instance is to be. ``security_groups``: names or ids for RESOLVE, else
    ids. ``devices``: of the instance on the host. ``key``: the same for each attempt of one ATTACH.
    ``started_at``: start of the time limit by the monotonic clock, for callers that wait only until its end; None: the
    start of the call.
    """

    method: NetworkMethod
    context: RequestContext
    instance_uuid: str = ""
    networks: str | list[NetworkRequest] = msgspec.field(default_factory=list)
    vifs: list[VIF] = msgspec.field(default_factory=list)
    project_id: str = ""
    host: str = ""
    zone: str = ""
    security_groups: list[str] = msgspec.field(default_factory=list)
    devices: list[PCIDevice] = msgspec.field(default_factory=list)
    key: str = ""
    started_at: float | None = None


class PortQuota(NamedTuple):
    """Limit of a project's ports, and how many it has."""

    limit: int
    used: int


class ResolvedNetworks(msgspec.Struct, kw_only=True):
    """Result of RESOLVE. Each request names its network. ``security_groups``: ids. ``group_names``: their names.
    ``port_quota``: of the project; None: it has no limit, or the request needs no new port.
    """

    requests: list[NetworkRequest] = msgspec.field(default_factory=list)
    security_groups: list[str] = msgspec.field(default_factory=list)
    group_names: list[str] = msgspec.field(default_factory=list)
    port_quota: PortQuota | None = None


class StoredPort(NamedTuple):
    """Owner and use of a port.

    ``owner``: project of the port or of its instance. ``project_id``: None for a port that was made with its instance.
    ``is_routers``: only a router may have it, since it is an interface of one or has the address of the gateway.
    ``has_address``: a server needs that. ``device_id``: of another program that has the port.
    ``vnic_type``: see `nova_lite.objects.pci.PORT_DEVICES`. ``physical_network``: of its network.
    """

    network_id: str
    owner: str
    project_id: str | None
    instance_uuid: str | None
    is_routers: bool = False
    has_address: bool = True
    device_id: str = ""
    vnic_type: str = NORMAL
    physical_network: str | None = None


class Addresses(NamedTuple):
    """Addresses of one interface. ``address6``: IPv6 address, None if the network has no IPv6."""

    address: str
    mac_address: str
    address6: str | None = None


class NetworkStore(Protocol):
    """Networks and ports in one transaction."""

    free: dict[str, list[str]]
    """Addresses, by network, that were free when this transaction read them, and that it has not used since."""

    def networks(self, ids: Collection[str] | None = None) -> list[Network]:
        """Return all networks, or the existing ones among ``ids``, sorted by name."""
        ...

    def is_external(self, network_id: str) -> bool:
        """Check whether this is a pool of floating addresses, which the network API shows as an external network."""
        ...

    def is_shared(self, network_id: str, project_id: str | None) -> bool:
        """Check whether another project shares this network with the project."""
        ...

    def locked(self, ids: Collection[str]) -> dict[str, Network]:
        """Return the existing networks by id. Their subnets cannot change until the transaction ends."""
        ...

    def links(self, network: Network, instance_uuid: str | None = None) -> list[Network]:
        """Return the network and its segments, if they have an IPv4 subnet. Segments are locked if the network is.

        ``instance_uuid``: without the subnets whose service types name other ports than those of this server.
        """
        ...

    def usable(self, project_id: str | None) -> list[Network]:
        """Return the shared networks and the project's networks, if they have a subnet, sorted by name."""
        ...

    def taken(self, network_id: str, addresses: Collection[str] | None = None, version: int = 4) -> set[str]:
        """Return the addresses of this version in use on a network, or only the ones among ``addresses``."""
        ...

    def port(self, port_id: str) -> StoredPort | None: ...

    def bind_port(self, port_id: str, instance_uuid: str, position: int, tag: str | None) -> bool:
        """Assign a user's port to the instance. Returns False, without a change, if the port is not free."""
        ...

    def vifs(self, instance_uuid: str) -> list[VIF]:
        """Return the interfaces of an instance in their order."""
        ...

    def recorded(self, instance_uuid: str) -> list[VIF]:
        """Return the interfaces that another service has made, as last recorded."""
        ...

    def record(self, instance_uuid: str, vifs: list[VIF] | None) -> None:
        """Record the interfaces that another service has made. None removes the record."""
        ...

    def add_port(
        self, instance_uuid: str, network_id: str, position: int, addresses: Addresses, tag: str | None
    ) -> str | None:
        """Store an interface and return its id. Returns None, without a change, if an address is in use."""
        ...

    def remove_port(self, instance_uuid: str, port_id: str) -> None:
        """Delete an interface, or release it if it is a user's port. Does nothing if there is none."""
        ...

    def remove_ports(self, instance_uuid: str) -> None:
        """Delete all interfaces of an instance, and release the users' ports among them."""
        ...


class NetworkBackend(abc.ABC):
    """Way to give instances their interfaces. ``result`` is the result of `call`, None for a backend without it."""

    #: True if another service is involved: `call` runs before `resolve` and `allocate`.
    remote = False
    #: True if the other service has the ports, security groups and floating addresses, instead of the database.
    has_remote_ports = False

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self.conf = conf

    def call(self, call: NetworkCall) -> Any:
        """Send a request to the other service, outside any transaction, within ``[network] call_timeout``.

        Raises the errors of `resolve`, `allocate` and `attach`. After `ServiceUnavailable` the request may or may not
        have taken effect.
        """
        raise NotImplementedError

    @abc.abstractmethod
    def resolve(
        self, store: NetworkStore, context: RequestContext, networks: str | list[NetworkRequest], result: Any = None
    ) -> list[NetworkRequest]:
        """Return the networks that a user requests ("auto", "none" or a list) as requests that each name a network.

        Raises a 400: `NetworkUnavailable`, `NetworkAmbiguous`, `NetworkRequiresSubnet`, `FixedIpInvalid`,
        `FixedIpInUse`, `PortUnavailable`, `InvalidInput`; a 403: `FixedIpForbidden`; a 409: `PortInUse`.
        """

    def reserve(  # noqa: B027 optional
        self, store: NetworkStore, instance_uuid: str, requests: list[NetworkRequest]
    ) -> None:
        """Assign the users' ports in ``requests`` to an instance that is being accepted. Raises `PortInUse`."""

    @abc.abstractmethod
    def allocate(
        self, store: NetworkStore, instance_uuid: str, requests: list[NetworkRequest], result: Any = None
    ) -> list[VIF]:
        """Make the interfaces that the instance does not have yet. A repeat is harmless.

        Raises `NoMoreFixedIps`, `FixedIpInUse` or `NetworkUnavailable`. The caller then rolls its transaction back.
        """

    def vifs(self, store: NetworkStore, instance_uuid: str) -> list[VIF]:
        """Return the interfaces of an instance in their order."""
        return store.vifs(instance_uuid)

    def attach(self, store: NetworkStore, context: RequestContext, instance_uuid: str, request: NetworkRequest) -> VIF:
        """Make another interface for a built instance, as a user requests.

        Raises the errors of `resolve` and `allocate`. A backend with remote ports uses ATTACH instead.
        """
        raise exceptions.NotImplementedByDriver(operation="attaching interfaces")

    @abc.abstractmethod
    def deallocate(self, store: NetworkStore, instance_uuid: str) -> None:
        """Release all interfaces. Does nothing if there are none."""


def load_backend(conf: cfg.ConfigOpts) -> NetworkBackend:
    """Return the backend that ``[network] backend`` names. Raises `ConfigurationError`."""
    (loaded,) = plugins.load(NAMESPACE, [conf.network.backend], "[network] backend")
    backend: NetworkBackend = loaded(conf)
    return faults.methods(backend, {"call": _point}, _refused)


def _point(call: NetworkCall) -> str:
    return f"network/{call.method}"


def _refused() -> exceptions.ServiceUnavailable:
    return exceptions.ServiceUnavailable("A test makes the network service fail.")
