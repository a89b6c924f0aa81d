"""Ports for the network API: ports of servers, and ports that users make and give to servers."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Collection, Mapping
from typing import Any

import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions, ip
from nova_lite.base.context import RequestContext
from nova_lite.db.core import if_match, paging, rows
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.events import FiltersChanged, InterfacesChanged
from nova_lite.db.core.models import FloatingIp, Instance, PortForwarding, RouterInterface, RouterInterface6, Trunk
from nova_lite.db.core.models import Network as NetworkRow
from nova_lite.db.core.models import Port as Row
from nova_lite.db.core.models import Router as RouterRow
from nova_lite.db.core.statements import insert_unless_taken
from nova_lite.db.network import builtin_networks, further_addresses, port_quota, qos, security_groups
from nova_lite.db.servers import interfaces
from nova_lite.network import local
from nova_lite.network.address_pool import AddressPool
from nova_lite.network.trunks import SUBPORT
from nova_lite.objects import ListQuery, Network, Port, dhcp_options, ipv6
from nova_lite.objects.pci import NORMAL
from nova_lite.objects.security_group import DEFAULT

_RANDOM = random.SystemRandom()

#: Instead of an address: the port is to have none.
NO_ADDRESS = "none"

_FIELDS = tuple(name for name in rows.shared_fields(Port, Row) if name not in ("project_id", "security_groups"))

#: Number of address pairs of a port, as in Neutron.
MAX_ADDRESS_PAIRS = 10

#: Fields that decide what a port sends and receives.
_OF_TRAFFIC = (
    "security_groups",
    "admin_state_up",
    "address_pairs",
    "port_security_enabled",
    "qos_policy_id",
    "dhcp_options",
)

#: Texts that name a port in DNS.
_OF_DNS = ("dns_name", "dns_domain")

#: Texts about the device of a port that is of no server and no router.
_DEVICE = ("device_id", "device_owner")
_WAYS = {
    "server": "which gets a port by the compute API: when it is created, or by attaching an interface",
    "router": "which gets a port by its own request add_router_interface",
}

#: Filters of a list.
_FILTERS: Mapping[str, Any] = {
    "id": Row.id,
    "network_id": Row.network_id,
    "mac_address": Row.mac_address,
    "name": Row.name,
    "address": Row.address,
    "address6": Row.address6,
}

_ROUTER = sa.func.coalesce(RouterInterface.router_id, RouterInterface6.router_id)
_QUERY = (
    sa.select(
        *(getattr(Row, name) for name in _FIELDS),
        Row.project_id,
        Row.security_groups,
        Instance.project_id,
        Instance.security_groups,
        sa.func.coalesce(Instance.host, Row.bound_host),
        Instance.availability_zone,
        Instance.power_state,
        _ROUTER,
        NetworkRow.parent_id,
        NetworkRow.subnet_id,
        NetworkRow.subnet6_id,
        NetworkRow.qos_policy_id,
        sa.func.coalesce(Instance.hostname, ""),
        sa.func.coalesce(NetworkRow.dns_domain, ""),
        interfaces.FURTHER,
    )
    .where(further_addresses.IS_PORT)
    .outerjoin(NetworkRow, NetworkRow.id == Row.network_id)
    .outerjoin(Instance, Instance.uuid == Row.instance_uuid)
    .outerjoin(RouterInterface, RouterInterface.port_id == Row.id)
    .outerjoin(RouterInterface6, RouterInterface6.port_id == Row.id)
)


def list_(
    uow: UnitOfWork, context: RequestContext, filters: dict[str, list[str]], query: ListQuery | None = None
) -> list[Port]:
    """Return the project's ports; all ports for an admin.

    ``filters``: keys of `_FILTERS`, ``device_id``, ``host`` and ``project_id``; a port matches one value of each.
    ``query``: a page of them, by id; None: all, oldest first.
    """
    filters = filters | (query.filters if query is not None else {})
    projects = set(filters.pop("project_id")) if "project_id" in filters else None
    if not context.is_admin:
        own = {context.project_id or ""}
        projects = own if projects is None else projects & own
    at_hosts: list[sa.ColumnElement[bool]] = []
    if "host" in filters:
        at_hosts.append(Row.instance_uuid.in_(_servers(Instance.host, filters.pop("host"))))
    if "device_id" in filters:
        devices = filters.pop("device_id")
        # Read first: with a subquery in an OR, no database uses the index of either.
        interfaces = [
            port_id
            for kind in (RouterInterface, RouterInterface6)
            for port_id in uow.session.scalars(sa.select(kind.port_id).where(kind.router_id.in_(devices)))
        ]
        interfaces += uow.session.scalars(
            sa.select(Row.id).where(Row.device_id.in_([item for item in devices if item]))
        )
        of_servers = Row.instance_uuid.in_(devices)
        at_hosts.append(sa.or_(of_servers, Row.id.in_(interfaces)) if interfaces else of_servers)
    if "network_id" in filters:
        filters["network_id"] = builtin_networks.with_segments(uow, filters["network_id"])
    for name in filters.keys() & {"address", "address6"}:
        wanted = filters.pop(name)
        at_hosts.append(sa.or_(_FILTERS[name].in_(wanted), Row.id.in_(further_addresses.having(wanted))))
    conditions = [*at_hosts, *(_FILTERS[name].in_(values) for name, values in filters.items())]
    cases = [sa.and_(case, *conditions) for case in _of_projects(projects)]
    if query is None:
        return _to_objects(uow, _QUERY.where(sa.or_(*cases)).order_by(Row.created_at, Row.id))
    return _to_objects(uow, paging.by_id(_QUERY, Row.id, cases, query))


def _of_projects(projects: Collection[str] | None) -> list[sa.ColumnElement[bool]]:
    """Build the cases of a port of these projects: a user made it, or it came with a server. None: any project."""
    if projects is None:
        return [sa.true()]
    of_servers = Row.instance_uuid.in_(_servers(Instance.project_id, projects))
    return [Row.project_id.in_(projects), sa.and_(Row.project_id.is_(None), of_servers)]


def _servers(column: Any, values: Collection[str]) -> sa.Select[str]:
    return sa.select(Instance.uuid).where(column.in_(values))


def get(uow: UnitOfWork, context: RequestContext, port_id: str) -> Port:
    """Return a port. Raises `NoSuchPort`, also for another project's, except for an admin."""
    for found in list_(uow, context, {"id": [port_id]}):
        return found
    raise exceptions.NoSuchPort(port_id=port_id[:64])


def create(uow: UnitOfWork, conf: cfg.ConfigOpts, context: RequestContext, port: Port) -> Port:
    """Create a port from the user's fields of ``port``. The caller chooses its id: a repeated id returns the same port.

    Raises `NetworkNotFound`, `NetworkRequiresSubnet`, `FixedIpInvalid`, `FixedIpInUse`, `MacAddressInUse`,
    `NoMoreFixedIps`, `SecurityGroupNotFound` or `QuotaExceeded`.
    """
    owner = port.project_id or context.project_id
    if not owner:
        raise exceptions.Forbidden("A port belongs to a project; this token is for none.")
    known = uow.session.get(Row, port.id)
    if known is not None and known.project_id == owner:
        return get(uow, context, port.id)
    store = builtin_networks.Store(uow)
    network = store.locked([port.network_id]).get(port.network_id)
    mine = network is not None and (context.is_admin or network.project_id in (None, owner))
    if network is None or network.parent_id is not None or not (mine or store.is_shared(network.id, owner)):
        raise exceptions.NetworkNotFound(network_id=port.network_id)
    links = _links(store, network, port.address, port.address6, port.segment_id, port.device_owner)
    if not links[0].cidr and port.address not in ("", NO_ADDRESS):  # the address is IPv4
        raise exceptions.InvalidInput(reason=f"network {network.id} has no subnet, of which {port.address} could be")
    port_quota.check_port(uow, conf, owner)
    local.check_device(network.id, network.physical_network, port.vnic_type)
    is_secure = network.port_security_enabled if port.port_security_enabled is None else port.port_security_enabled
    if port.vnic_type != NORMAL:
        is_secure = bool(port.port_security_enabled)
    _check_device_port(port.vnic_type, is_secure, port.admin_state_up, port.qos_policy_id)
    qos.check(uow, context, port.qos_policy_id)
    if not is_secure and port.security_groups:
        raise exceptions.PortSecurityRequiredForGroups()
    if not is_secure and port.address_pairs:
        raise exceptions.AddressPairAndPortSecurityRequired()
    wanted = ([DEFAULT] if is_secure else []) if port.security_groups is None else port.security_groups
    values = {
        "id": port.id,
        "project_id": owner,
        "name": port.name,
        "description": port.description,
        "security_groups": security_groups.names_of(uow, context, owner, wanted),
        "tags": port.tags,
        "admin_state_up": port.admin_state_up,
        "port_security_enabled": is_secure,
        "device_id": _device_id(uow, port.device_id),
        "device_owner": port.device_owner,
        "vnic_type": port.vnic_type,
        "dns_name": port.dns_name,
        "dns_domain": port.dns_domain,
        "qos_policy_id": port.qos_policy_id,
        "dhcp_options": _dhcp_options([], port.dhcp_options or []),
        "created_at": uow.now,
    }
    link = _insert_on(uow, links, port, values)
    if port.further:
        further_addresses.add(uow, uow.session.get_one(Row, port.id), link, port.further)
    return get(uow, context, port.id)


def _check_device_port(vnic_type: str, is_secure: bool, is_up: bool, qos_policy_id: str | None) -> None:
    """Raise `InvalidInput` for what a host does not enforce on a device of a guest."""
    if vnic_type != NORMAL and (is_secure or not is_up or qos_policy_id):
        what = "security groups and addresses" if is_secure else "a QoS policy" if is_up else "admin_state_up"
        raise exceptions.InvalidInput(
            reason=f"a port with binding:vnic_type {vnic_type} bypasses its host, which cannot enforce {what} there: "
            "it has port_security_enabled false, admin_state_up true, and no qos_policy_id"
        )


def _device_id(uow: UnitOfWork, device_id: str) -> str:
    """Return the id of a device that is neither a server nor a router, which have their ports by other requests."""
    for kind, query in (
        ("server", sa.select(Instance.id).where(Instance.uuid == device_id, Instance.deleted == sa.false())),
        ("router", sa.select(RouterRow.id).where(RouterRow.id == device_id)),
    ):
        if device_id and uow.session.scalars(query).first() is not None:
            raise exceptions.InvalidInput(reason=f"device_id {device_id} is a {kind}, {_WAYS[kind]}")
    return device_id


def _links(
    store: builtin_networks.Store,
    network: Network,
    address: str | None,
    address6: str | None,
    link_id: str | None,
    owner: str,
) -> list[Network]:
    """Return the network and its segments on which a port of this owner may be, at least one.

    The addresses are as in `Port`, or `NO_ADDRESS`. ``link_id``: the network or segment of its subnets, None for any.
    Raises `SubnetNotFound`, `NoServiceSubnet`, or `FixedIpInvalid` for an address of no subnet.
    """
    every = [link for link in (network, *store.segments(network)) if link_id in (None, link.id)]
    if not every:
        raise exceptions.SubnetNotFound(subnet_id=link_id)
    found = [store.serving(link, owner) for link in every]
    if (address, address6) != (NO_ADDRESS, NO_ADDRESS):
        needs_ipv4 = link_id is not None and address not in (None, NO_ADDRESS)
        found = [
            link
            for link, whole in zip(found, every, strict=True)
            if link == whole or link.cidr or (link.cidr6 and not needs_ipv4)
        ]
        if not found:
            raise exceptions.NoServiceSubnet(network_id=network.id, owner=owner)
    if not network.is_segmented or (address == NO_ADDRESS and address6 in (None, NO_ADDRESS)):
        return found
    usable = [link for link in found if _may_have(link.cidr, address) and _may_have(link.cidr6, address6)]
    for wanted in (address, address6):
        if not usable and wanted not in (None, "", NO_ADDRESS):
            raise exceptions.FixedIpInvalid(address=wanted, network_id=network.id)
    return usable or found


def _may_have(cidr: str, wanted: str | None) -> bool:
    """Check whether a subnet with this range, or "" without a subnet, may give the wanted address."""
    if wanted in (None, NO_ADDRESS):
        return True
    return bool(cidr) and (not wanted or ip.parse(wanted) in ip.parse_network(cidr, strict=False))


def _insert_on(uow: UnitOfWork, links: list[Network], port: Port, values: dict[str, Any]) -> Network:
    """Insert the port on the first network or segment with a free address, which is returned."""
    for link in links[:-1]:
        with contextlib.suppress(exceptions.NoMoreFixedIps):
            _insert(uow, link, port, values)
            return link
    _insert(uow, links[-1], port, values)
    return links[-1]


def _insert(uow: UnitOfWork, network: Network, port: Port, values: dict[str, Any]) -> None:
    """Choose addresses and insert the port; choose again when a concurrent request took them."""
    store, values = builtin_networks.Store(uow), values | {"network_id": network.id}
    has_none = port.address == NO_ADDRESS or not network.cidr
    wanted6 = NO_ADDRESS if port.address6 is None and port.address == NO_ADDRESS else port.address6
    address = _address(network, port.address, values["project_id"]) if port.address and not has_none else None
    for _ in range(local.MAX_COLLISIONS):
        mac_address = port.mac_address or local.random_mac_address(_RANDOM)
        free = None if has_none else address or local.free_address(store, network, _RANDOM)
        address6 = _address6(store, network, wanted6, mac_address, free)
        chosen = {"address": free, "address6": address6, "mac_address": mac_address}
        pairs = _address_pairs(port.address_pairs or [], mac_address)
        if insert_unless_taken(uow, Row, {**values, **chosen, "address_pairs": pairs}):
            return
        if address and store.taken(network.id, [address]):
            raise exceptions.FixedIpInUse(address=address, network_id=network.public_id)
        if address6 and store.taken(network.id, [address6], version=6) and (port.address6 or port.mac_address):
            raise exceptions.FixedIpInUse(address=address6, network_id=network.public_id)
        if port.mac_address:
            raise exceptions.MacAddressInUse(mac_address=port.mac_address)
    raise exceptions.NoMoreFixedIps(network_id=network.public_id)


def _address_pairs(wanted: list[dict[str, str]], mac_address: str) -> list[dict[str, str]] | None:
    """Return valid pairs. A pair without a MAC address has the port's."""
    if len(wanted) > MAX_ADDRESS_PAIRS:
        raise exceptions.AllowedAddressPairExhausted(quota=MAX_ADDRESS_PAIRS)
    found: list[dict[str, str]] = []
    for pair in wanted:
        made = {"ip_address": pair["ip_address"], "mac_address": pair.get("mac_address") or mac_address}
        if made in found:
            raise exceptions.DuplicateAddressPairInRequest(**made)
        found.append(made)
    return found or None


def _dhcp_options(present: list[dict[str, Any]], changes: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    try:
        return dhcp_options.merged(present, changes)
    except ValueError as error:
        raise exceptions.InvalidInput(reason=str(error)) from error


def _address(network: Network, text: str, project_id: str | None) -> str:
    """Return a valid address. The project that has the network may take the gateway's address, for a router."""
    if text == network.gateway and network.project_id == project_id is not None:
        return text
    found = AddressPool(network).parse(text)
    if found is None:
        raise exceptions.FixedIpInvalid(address=text, network_id=network.public_id)
    return str(found)


def _address6(
    store: builtin_networks.Store, network: Network, wanted: str | None, mac_address: str, address: str | None
) -> str | None:
    """Return the IPv6 address of a port. ``wanted``: as in `Port`, or `NO_ADDRESS`. ``address``: its IPv4 address.

    A port with another address has its derived address, too, as in Neutron. Raises a 400, or `NoMoreFixedIps`.
    """
    if not network.cidr6:
        if wanted not in (None, NO_ADDRESS):
            raise exceptions.InvalidInput(reason=f"network {network.public_id} has no IPv6 subnet")
        return None
    derived = ipv6.address_on(network, mac_address)
    if derived is not None and derived == ipv6.host_address(network):
        raise exceptions.InvalidInput(
            reason=f"MAC address {mac_address} belongs to the hosts on network {network.public_id}"
        )
    if wanted == NO_ADDRESS:
        return None if address is None else derived
    if not wanted:
        return derived or local.free_address(store, network, _RANDOM, version=6)
    found = AddressPool(ipv6.as_subnet(network)).parse(wanted)
    if found is None:
        raise exceptions.FixedIpInvalid(address=wanted, network_id=network.public_id)
    if derived is not None and str(found) != derived:
        raise exceptions.InvalidInput(
            reason=f"IPv6 address {found} can not be directly assigned to a port on subnet "
            f"{ipv6.subnet_id_of(network, version=6)} as the subnet is configured for automatic addresses"
        )
    return str(found)


def update(uow: UnitOfWork, context: RequestContext, port_id: str, changes: dict[str, Any]) -> Port:
    """Change fields of a port.

    ``security_groups`` (names or ids) and ``further`` are whole lists. ``dhcp_options`` are merged as
    `nova_lite.objects.dhcp_options.merged` does. Only a port without a server changes its ``address``, ``address6``,
    ``segment_id``, ``device_id`` and ``device_owner``. Raises `PortInUse` and the errors of `create`.
    """
    row = locked(uow, context, port_id)
    found = get(uow, context, port_id)
    known = {"name", "description", "address", "address6", "segment_id", "mac_address"}
    known |= {"further", *_OF_TRAFFIC, *_DEVICE, *_OF_DNS}
    unknown = changes.keys() - known
    if unknown:
        raise exceptions.InvalidInput(reason=f"{', '.join(sorted(unknown))} of a port cannot be changed")
    if found.router_id is not None and changes.keys() & {
        "address",
        "address6",
        "further",
        "mac_address",
        *_OF_TRAFFIC,
        *_DEVICE,
    }:
        raise exceptions.RouterPort(port_id=port_id)
    if changes.keys() & set(_DEVICE):
        if _is_used(row) or row.device_owner == SUBPORT:
            raise exceptions.PortInUse(port_id=port_id)
        row.device_id = _device_id(uow, changes.get("device_id", row.device_id))
        row.device_owner = changes.get("device_owner", row.device_owner)
    _check_security(found, changes)
    _check_device_port(
        row.vnic_type,
        changes.get("port_security_enabled", False),
        changes.get("admin_state_up", True),
        changes.get("qos_policy_id"),
    )
    qos.check(uow, context, changes.get("qos_policy_id", row.qos_policy_id), row.qos_policy_id)
    if "security_groups" in changes:
        row.security_groups = security_groups.names_of(uow, context, found.project_id, changes["security_groups"])
    if changes.get("mac_address", row.mac_address) != row.mac_address:
        _change_mac_address(uow, row, changes["mac_address"])
    if "address_pairs" in changes:
        row.address_pairs = _address_pairs(changes["address_pairs"], row.mac_address)
    if "dhcp_options" in changes:
        row.dhcp_options = _dhcp_options(row.dhcp_options or [], changes["dhcp_options"])
    row.port_security_enabled = changes.get("port_security_enabled", row.port_security_enabled)
    if (further := changes.pop("further", None)) is not None:
        further_addresses.keep(uow, row.id, further)
    is_moved = "address" in changes and changes["address"] != (row.address or NO_ADDRESS)
    if is_moved or changes.keys() & {"address6", "segment_id"}:
        wanted = changes["address"] if is_moved else None
        _move(uow, row, _choose_link(uow, row, wanted, changes), wanted, changes.get("address6"))
    if further is not None:
        _set_further(uow, row, found, further)
    if changes.keys() & {*_OF_TRAFFIC, *_OF_DNS}:
        uow.publish(FiltersChanged(found.project_id))
    for name in changes.keys() & {"name", "description", "admin_state_up", "qos_policy_id", *_OF_DNS}:
        setattr(row, name, changes[name])
    row.updated_at = uow.now
    uow.session.flush()
    return get(uow, context, port_id)


def _is_used(row: Row) -> bool:
    """Check whether a server has a port, or a host has it for a service or as a subport."""
    return row.instance_uuid is not None or row.bound_host is not None


def _set_further(uow: UnitOfWork, row: Row, before: Port, wanted: list[str]) -> None:
    """Give a port these further addresses, besides the kept ones. Its host learns of them."""
    uow.session.flush()
    store = builtin_networks.Store(uow)
    store.segments(store.network_of(row.network_id))
    further_addresses.add(uow, row, store.locked([row.network_id])[row.network_id], wanted)
    if row.instance_uuid is not None:
        uow.publish(InterfacesChanged(row.instance_uuid))
    uow.publish(FiltersChanged(before.project_id))


def _check_security(found: Port, changes: dict[str, Any]) -> None:
    """Raise an error for groups or pairs without port security."""
    if changes.get("port_security_enabled", found.port_security_enabled):
        return
    if changes.get("security_groups"):
        raise exceptions.PortSecurityRequiredForGroups()
    if changes.get("security_groups", found.security_groups):
        raise exceptions.PortSecurityPortHasSecurityGroup()
    if changes.get("address_pairs", found.address_pairs):
        raise exceptions.AddressPairAndPortSecurityRequired()


def _change_mac_address(uow: UnitOfWork, row: Row, mac_address: str) -> None:
    """Give a port without a server another MAC address, and the IPv6 address that follows from it."""
    if _is_used(row):
        raise exceptions.PortInUse(port_id=row.id)
    network = builtin_networks.Store(uow).locked([row.network_id])[row.network_id]
    row.mac_address = mac_address
    if row.address6 is not None and ipv6.is_derived(network.subnet6):
        row.address6 = ipv6.address_on(network, mac_address)
    rows.insert(uow, row, exceptions.MacAddressInUse(mac_address=mac_address))


def _choose_link(uow: UnitOfWork, row: Row, address: str | None, changes: dict[str, Any]) -> Network:
    """Return the network or segment on which a port is with other addresses. A port that leaves one loses its own.

    Raises `PortInUse`, or `Conflict` if a floating address leads to it.
    """
    if _is_used(row):
        raise exceptions.PortInUse(port_id=row.id)
    store = builtin_networks.Store(uow)
    network = store.network_of(row.network_id)
    address6, link_id = changes.get("address6"), changes.get("segment_id")
    links = _links(store, network, address, address6, link_id, row.device_owner)
    for link in links:
        if link.id == row.network_id:
            return link
    _require_no_floating(uow, row)
    row.network_id, row.address, row.address6 = links[0].id, None, None
    further_addresses.keep(uow, row.id, ())
    return links[0]


def _require_no_floating(uow: UnitOfWork, row: Row) -> None:
    if led := uow.session.scalars(sa.select(FloatingIp.address).where(FloatingIp.port_id == row.id)).first():
        raise exceptions.Conflict(f"Floating IP {led} leads to the address of port {row.id}.")


def _move(uow: UnitOfWork, row: Row, network: Network, address: str | None, address6: str | None) -> None:
    """Give a port other addresses on a network or segment. None: it keeps this one, or if it has no IPv4 address any
    more, has none.
    """
    store = builtin_networks.Store(uow)
    if address is not None:
        uow.change(sa.delete(PortForwarding).where(PortForwarding.port_id == row.id))  # as Neutron does
    if address == NO_ADDRESS:
        _require_no_floating(uow, row)
        row.address = None
        address6 = address6 or NO_ADDRESS
    elif address is not None:
        if not network.cidr:
            raise exceptions.InvalidInput(reason=f"network {network.public_id} has no subnet to take an address from")
        found = _address(network, address, row.project_id) if address else None
        row.address = found or local.free_address(store, network, _RANDOM)
    if address6 is not None or (row.address6 is None and ipv6.is_derived(network.subnet6)):
        row.address6 = _address6(store, network, address6, row.mac_address, row.address)
    taken = address or address6 or ""
    if row.address is None and row.address6 is None:
        row.network_id = network.public_id
    rows.insert(uow, row, exceptions.FixedIpInUse(address=taken, network_id=network.public_id))


def locked(uow: UnitOfWork, context: RequestContext, port_id: str) -> Row:
    """Return the row of a port, locked. Raises `NoSuchPort`."""
    get(uow, context, port_id)
    row = uow.session.get(Row, port_id, with_for_update=True, populate_existing=True)
    if row is None:
        raise exceptions.NoSuchPort(port_id=port_id[:64])
    if_match.check(context, row)
    return row


def delete(uow: UnitOfWork, context: RequestContext, port_id: str) -> None:
    """Delete a port. Raises `PortInUse` while a server has it, `RouterPort` for the interface of a router, and
    `PortInUseAsTrunkParent` or `PortInUseAsSubPort` for a port of a trunk.
    """
    found = get(uow, context, port_id)
    if found.router_id is not None:
        raise exceptions.RouterPort(port_id=port_id)
    if (trunk_id := uow.session.scalars(sa.select(Trunk.id).where(Trunk.port_id == port_id)).first()) is not None:
        raise exceptions.PortInUseAsTrunkParent(port_id=port_id, trunk_id=trunk_id)
    if found.device_owner == SUBPORT:
        raise exceptions.PortInUseAsSubPort(port_id=port_id, trunk_id=found.device_id)
    if context.revision is not None:
        locked(uow, context, port_id)
    free = (Row.id == port_id, Row.instance_uuid.is_(None), Row.bound_host.is_(None))
    if found.instance_uuid is not None or not uow.change(sa.delete(Row).where(*free)):
        raise exceptions.PortInUse(port_id=port_id)


def _to_objects(uow: UnitOfWork, query: sa.Select[Any]) -> list[Port]:
    found = uow.session.execute(query).all()
    projects = {item[len(_FIELDS)] or item[len(_FIELDS) + 2] for item in found}
    names_of = [security_groups.groups_of(item[len(_FIELDS) + 1], item[len(_FIELDS) + 3] or []) for item in found]
    ids = security_groups.ids(uow, projects, {name for names in names_of for name in names}) if found else {}
    made = []
    for values, names in zip(found, names_of, strict=True):
        owner, _, instance_project, _, host, zone, power_state, router_id, *of_link = values[len(_FIELDS) :]
        parent_id, subnet_id, subnet6_id, qos_network_policy_id, hostname, network_domain, further = of_link
        project_id = owner or instance_project
        fields = {name: _known(name, value) for name, value in zip(_FIELDS, values, strict=False)}
        link_id = fields["network_id"]
        if parent_id is not None:
            fields |= {"network_id": parent_id, "segment_id": link_id}
        made.append(
            Port(
                **fields,
                project_id=project_id,
                kept=owner is not None,
                router_id=router_id,
                security_groups=[ids[project_id, name] for name in names if (project_id, name) in ids],
                host=host,
                availability_zone=zone,
                power_state=power_state,
                subnet_id=subnet_id or link_id,
                subnet6_id=subnet6_id or ipv6.subnet_id(link_id),
                qos_network_policy_id=qos_network_policy_id,
                hostname=hostname,
                network_domain=network_domain,
                further=ipv6.ordered(further.split(" ")) if further else None,
            )
        )
    return made


def _known(name: str, value: Any) -> Any:
    """Return the value of a field. A port without an address has an empty text, as older APIs expect one."""
    return "" if name == "address" and value is None else value
