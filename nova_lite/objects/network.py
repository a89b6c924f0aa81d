"""Networks and ports of the built-in network service."""

from __future__ import annotations

import datetime
from typing import Any, Protocol

import msgspec

from nova_lite.objects.pci import NORMAL

#: Number of addresses of a port, as in Neutron (``max_fixed_ips_per_port``).
MAX_ADDRESSES = 5
#: Instead of a further address of a port: any free one, by IP version.
ANY_ADDRESS = {4: "any IPv4", 6: "any IPv6"}


class Revised(Protocol):
    """Resource that has a revision: it knows when it was made, and changed last."""

    @property
    def created_at(self) -> datetime.datetime | None: ...
    @property
    def updated_at(self) -> datetime.datetime | None: ...


def revision_number(resource: Revised) -> int:
    """Return a number that grows with each change: the milliseconds from the creation to the change."""
    if resource.created_at is None or resource.updated_at is None:
        return 1
    return 1 + max(0, (resource.updated_at - resource.created_at) // datetime.timedelta(milliseconds=1))


class Subnet6(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Settings of a network's IPv6 subnet that the network API has made.

    ``ra_mode`` and ``address_mode``: Neutron's, None or one of `nova_lite.objects.ipv6.MODES`. ``pools``: objects with
    ``start`` and ``end``. ``host_address``: address of the hosts' bridges, if there is no gateway. The rest is as for
    an IPv4 subnet in `Network` and `NetworkRecord`.
    """

    gateway: str | None = None
    host_address: str | None = None
    pools: list[dict[str, str]] = msgspec.field(default_factory=list)
    dns: list[str] = msgspec.field(default_factory=list)
    host_routes: list[dict[str, str]] | None = None
    enable_dhcp: bool = True
    ra_mode: str | None = None
    address_mode: str | None = None
    name: str = ""
    description: str = ""
    tags: list[str] | None = None


class Network(msgspec.Struct, kw_only=True):
    """Network that instances get addresses from. ``project_id`` None: all projects share it.

    ``cidr`` is "" while the network has no subnet; then no instance can use it. ``start`` and ``end`` bound the address
    pool. ``bridge``: name of the bridge on hosts, which the virt driver creates if it can. ``vni``: number of the VXLAN
    that connects the bridges of hosts; None: guests of different hosts do not reach each other. ``cidr6``: the range
    of its IPv6 subnet; "": none. ``subnet6``: the settings of that; None: an operator has made it, interfaces derive
    their addresses from MAC addresses, and it has a gateway if the IPv4 subnet has one. ``address_mode``: see
    `nova_lite.objects.instance.AddressMode`; "": unknown. ``needs_router``: for its way out; None: hosts give
    it one without a router. ``pools``: objects with ``start`` and ``end``, if there is not exactly one pool.
    ``host_routes``: objects with ``destination`` and ``nexthop``. ``host_address``: address of the hosts' bridges,
    if there is no gateway; None: the hosts choose it. ``port_security_enabled``: of its new ports. ``parent_id``: the
    network of which this is a segment, with further subnets on a bridge of its own; None: it is a network itself.
    ``is_segmented``: it has segments. ``subnet_id`` and ``subnet6_id``: see `nova_lite.objects.ipv6.subnet_id_of`.
    ``physical_network``: network of the hosts' devices, which only ports with such devices reach; ``vlan``: its VLAN.
    ``dns_domain``: of its guests, with a dot at the end; "": ``[network] dns_domain``.
    """

    id: str
    name: str
    cidr: str
    gateway: str | None = None
    dns: list[str] = msgspec.field(default_factory=list)
    bridge: str = ""
    mtu: int = 1500
    start: str | None = None
    end: str | None = None
    project_id: str | None = None
    is_default: bool = False
    vni: int | None = None
    cidr6: str = ""
    subnet6: Subnet6 | None = None
    address_mode: str = ""
    needs_router: bool | None = None
    enable_dhcp: bool = True
    port_security_enabled: bool = True
    pools: list[dict[str, str]] | None = None
    host_routes: list[dict[str, str]] | None = None
    host_address: str | None = None
    parent_id: str | None = None
    is_segmented: bool = False
    subnet_id: str | None = None
    subnet6_id: str | None = None
    physical_network: str | None = None
    vlan: int | None = None
    dns_domain: str = ""

    @property
    def public_id(self) -> str:
        """Return the id of the network that users know."""
        return self.parent_id or self.id


class NetworkRecord(Network, kw_only=True):
    """Network with its descriptions and tags, for the network API.

    ``admin_state_up`` False: no port of the network sends or receives anything but DHCP. ``subnet_pool_id`` and
    ``subnet6_pool_id``: pools of the subnets' prefixes. ``prefixlen``: in a request, the length of the prefix that the
    pool is to give. ``no_pools``: in a request, the subnet has no allocation pools; else one without pools has all
    addresses. ``shared``: the caller's project, or all, may use another project's network. ``segments``: its segments,
    in their order. ``qos_policy_id``: QoS policy of its ports. ``service_types`` and ``service_types6``: owners of the
    ports that get addresses of its subnets; None: all ports do.
    """

    description: str = ""
    tags: list[str] | None = None
    subnet_name: str = ""
    subnet_description: str = ""
    subnet_tags: list[str] | None = None
    admin_state_up: bool = True
    subnet_pool_id: str | None = None
    subnet6_pool_id: str | None = None
    prefixlen: int | None = None
    no_pools: bool = False
    shared: bool = False
    segments: list[NetworkRecord] = msgspec.field(default_factory=list)
    service_types: list[str] | None = None
    service_types6: list[str] | None = None
    qos_policy_id: str | None = None
    created_at: datetime.datetime | None = None
    updated_at: datetime.datetime | None = None


class Port(msgspec.Struct, kw_only=True):
    """Interface as a resource of its own. ``kept``: a user made it, so it outlives its instance.

    ``address6``: IPv6 address. In a request "": any one; None: as its network says, or none without an IPv4 address.
    ``security_groups``: ids; in a request also names, and None for the default group. ``power_state``, ``host`` and
    ``availability_zone`` are those of its instance, None without one. ``router_id``: router whose interface it is.
    ``admin_state_up`` False: it sends and receives nothing but DHCP. ``port_security_enabled``: None in a request: as
    its network says. ``address_pairs``: objects with ``ip_address`` (or a range of addresses) and ``mac_address``.
    ``segment_id``: segment of its subnets; None: these are the network's own, or in a request any ones. ``device_id``
    and ``device_owner``: texts of another program that has the port, such as a load balancer. ``subnet_id`` and
    ``subnet6_id``: of its network or segment; None: a conductor of an older version does not name them. ``vnic_type``:
    see `nova_lite.objects.pci.PORT_DEVICES`. ``qos_network_policy_id``: QoS policy of its network, which it has unless
    it has one of its own (``qos_policy_id``). ``dns_name`` and ``dns_domain``: its own in DNS, "": those of
    ``hostname``, which is its instance's, and of ``network_domain``, which is its network's. ``dhcp_options``: objects
    with ``opt_name``, ``opt_value`` and ``ip_version`` (`nova_lite.objects.dhcp_options`). ``further``: addresses
    besides ``address`` and ``address6``; in a request also `ANY_ADDRESS`, and None for no change.
    """

    id: str
    network_id: str
    address: str = ""
    address6: str | None = None
    mac_address: str = ""
    project_id: str = ""
    name: str = ""
    description: str = ""
    tags: list[str] | None = None
    security_groups: list[str] | None = None
    instance_uuid: str | None = None
    router_id: str | None = None
    kept: bool = True
    tag: str | None = None
    state: str | None = None
    host: str | None = None
    availability_zone: str | None = None
    power_state: int | None = None
    admin_state_up: bool = True
    port_security_enabled: bool | None = True
    address_pairs: list[dict[str, str]] | None = None
    segment_id: str | None = None
    device_id: str = ""
    device_owner: str = ""
    subnet_id: str | None = None
    subnet6_id: str | None = None
    vnic_type: str = NORMAL
    dns_name: str = ""
    dns_domain: str = ""
    hostname: str = ""
    network_domain: str = ""
    dhcp_options: list[dict[str, Any]] | None = None
    qos_policy_id: str | None = None
    qos_network_policy_id: str | None = None
    further: list[str] | None = None
    created_at: datetime.datetime | None = None
    updated_at: datetime.datetime | None = None

    @property
    def link_id(self) -> str:
        """Return the id of the segment or network on which it is."""
        return self.segment_id or self.network_id
