"""Networks of older versions: libvirt's, with NAT and an address of the host on their bridges.

They are replaced by realms when the daemon starts, while their guests run. A network of libvirt of the same name stays
for definitions of guests that name it. It only leads to the bridge. The next minor version removes this.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import uuid
import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import Any

import libvirt

from nova_lite.base import exceptions, files
from nova_lite.objects import Network
from nova_lite.virt.libvirt.connection import Connection
from nova_lite.virt.libvirt.net import dhcp, namespaces, nft, realms
from nova_lite.virt.libvirt.net.names import PREFIX, bridge_name, network_name, network_table

LOG = logging.getLogger(__name__)

#: libvirt's code for a network that another daemon has just removed.
_GONE = (libvirt.VIR_ERR_NO_NETWORK,)
#: Priority of the rules of static routes, and chains of iptables that led to those of routers.
_PRIORITY = "29290"
_PARENTS = {"filter": "FORWARD", "nat": "POSTROUTING"}


def remove_rules(host: str) -> None:
    """Remove chains and routing rules of routers, which realms have now. What is missing counts as removed."""
    chain = "NOVA_LITE_" + hashlib.sha256(host.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    for program in ("iptables", "ip6tables"):
        for table, parent in _PARENTS.items():
            for words in (("-D", parent, "-j", chain), ("-F", chain), ("-X", chain)):
                with contextlib.suppress(exceptions.VirtDriverError):
                    namespaces.run(program, "--wait", "-t", table, *words)
    for version in ("-4", "-6"):
        with contextlib.suppress(exceptions.VirtDriverError):
            while True:
                namespaces.run("ip", version, "rule", "delete", "priority", _PRIORITY)


def remove(connection: Connection, is_used: Callable[[str], bool]) -> None:
    """Remove libvirt's networks of older versions that have no guests. ``is_used``: by the id of a network."""
    for found in connection.connect_call("listAllNetworks", 0):
        name = found.name()
        if not name.startswith(PREFIX):
            continue
        root = _parsed(connection, found)
        if root is None or _is_alias(root):
            continue
        network_id, bridge = name.removeprefix(PREFIX), _bridge(root)
        if not is_used(network_id) and not _guests_on(bridge):
            _destroy(connection, found, network_id, bridge)
            LOG.info("Network %s of an older version is removed: no guest uses it", name)


def take_over(connection: Connection, network: Network) -> set[str]:
    """Remove the network of an older version. Return the guests' interfaces that were on its bridge.

    They belong on the new one. The bridge may be there without libvirt's network, when the machine has started.
    """
    found = connection.call_unless(_GONE, connection.get().networkLookupByName, network_name(network))
    root = None if found is None else _parsed(connection, found)
    if root is None or _is_alias(root):
        return set()
    bridge = _bridge(root)
    guests = _guests_on(bridge)
    _destroy(connection, found, network.id, bridge)
    LOG.info("Network %s of an older version gets a realm; its %d interfaces of guests follow", network.id, len(guests))
    return guests


def lead_to(connection: Connection, network: Network) -> None:
    """Let libvirt's network of this name lead to the network's bridge."""
    found = connection.call_unless(_GONE, connection.get().networkLookupByName, network_name(network))
    if found is None:
        found = connection.connect_call("networkDefineXML", alias_xml(network))
    if not connection.call(found.isActive):
        # libvirt's code for a network that another daemon has just started.
        connection.call_unless((libvirt.VIR_ERR_OPERATION_INVALID,), found.create)


def forget(connection: Connection, network_id: str) -> None:
    """Remove libvirt's network of this id, if there is one."""
    found = connection.call_unless(_GONE, connection.get().networkLookupByName, f"{PREFIX}{network_id}")
    if found is not None:
        connection.call_unless((*_GONE, libvirt.VIR_ERR_OPERATION_INVALID), found.destroy)
        connection.call_unless(_GONE, found.undefine)


def alias_xml(network: Network) -> str:
    """Return the XML of libvirt's network that leads to the bridge."""
    root = ET.Element("network")
    for tag, text in (("name", network_name(network)), ("uuid", _network_uuid(network.id))):
        ET.SubElement(root, tag).text = text
    ET.SubElement(root, "forward", mode="bridge")
    ET.SubElement(root, "bridge", name=bridge_name(network))
    return ET.tostring(root, encoding="unicode")


def _network_uuid(network_id: str) -> str:
    try:
        return str(uuid.UUID(network_id))
    except ValueError:
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"urn:nova-lite:network:{network_id}"))


def _parsed(connection: Connection, found: Any) -> ET.Element | None:
    xml = connection.call_unless(_GONE, found.XMLDesc, 0)
    return None if xml is None else ET.fromstring(xml)  # noqa: S314 libvirt's own


def _is_alias(root: ET.Element) -> bool:
    return root.find("forward[@mode='bridge']") is not None


def _bridge(root: ET.Element) -> str:
    bridge = root.find("bridge")
    return "" if bridge is None else bridge.get("name", "")


def _guests_on(bridge: str) -> set[str]:
    """Return the interfaces in a bridge that are no tunnels."""
    return {name for name in realms.members(bridge) if not name.startswith("nlvx")}


def _destroy(connection: Connection, found: Any, network_id: str, bridge: str) -> None:
    """Remove a network of libvirt, with its table of packet filters and its list of leases."""
    connection.call_unless((*_GONE, libvirt.VIR_ERR_OPERATION_INVALID), found.destroy)
    connection.call_unless(_GONE, found.undefine)
    nft.run(f"delete table inet {network_table(network_id)}\n")
    files.remove(os.path.join(dhcp.DIRECTORY, f"{bridge}.status"))
