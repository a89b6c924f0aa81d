"""Names of networks, devices, tables and chains on a host.

Removal of a host's networks goes by these names alone: ``nova_lite/cmd/setup/guests.py``, and the package's postrm.
"""

from __future__ import annotations

import hashlib

from nova_lite.objects import VIF, Network
from nova_lite.virt.libvirt.net import nft

#: Prefix of the names of libvirt networks that we define.
PREFIX = "nova-lite-"
#: Prefix of the names of namespaces of realms.
REALM = "nl-"
#: Beginnings of the host's ends of links: to a network's gateway, and to a realm's way out. The name of its other end.
GATEWAY, UPLINK, OUTSIDE = "nlg", "nlu", "nlup"
#: First three bytes of the MAC address of a bridge, whose others are its network's VNI.
BRIDGE_MAC = "fa:16:3f"
#: Chain of iptables that accepts what links pass, before other programs' rules refuse it.
CHAIN = "NOVA_LITE_LINKS"


def network_name(network: Network) -> str:
    """Return the name of the libvirt network."""
    return f"{PREFIX}{network.id}"


def bridge_name(network: Network) -> str:
    """Return the bridge's name. The kernel allows 15 characters."""
    return network.bridge or f"nl{network.id.replace('-', '')[:12]}"


def realm_name(realm_id: str) -> str:
    """Return the name of a realm's namespace."""
    return f"{REALM}{realm_id}"


def gateway_name(network_id: str) -> str:
    """Return the name of a network's gateway in its bridge. In the realm the gateway has the bridge's name."""
    return f"{GATEWAY}{_short(network_id)}"


def new_name(network_id: str) -> str:
    """Return the name of a network's bridge while it is being made."""
    return f"nln{_short(network_id)}"


def uplink_name(realm_id: str) -> str:
    """Return the name of the host's end of a realm's way out."""
    return f"{UPLINK}{_short(realm_id)}"


def _short(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def bridge_mac(vni: int) -> str:
    """Return the MAC address that the gateway of a network has on each host. ``vni`` 0: the network spans no hosts.

    No guest has it.
    """
    return f"{BRIDGE_MAC}:" + ":".join(f"{byte:02x}" for byte in vni.to_bytes(3, "big"))


def tunnel_name(network: Network | None = None) -> str:
    """Return the name of the VXLAN device of a network. None: the common prefix of these names."""
    return f"nlvx{'' if network is None else network.vni}"


def tap_name(vif: VIF) -> str:
    """Return the name of an interface's tap device."""
    return tap_of(vif.id)


def tap_of(port_id: str) -> str:
    """Return the name of a port's tap device."""
    return f"tap{port_id[:11]}"


def network_table(network_id: str) -> str:
    """Return the name of the table that restricts what a network's guests reach."""
    return nft.table("nova_lite_", network_id)


def ports_table(host: str) -> str:
    """Return the name of the table of security groups and floating addresses."""
    return nft.table("nova_lite_ports_", host)


def spoofing_table(host: str) -> str:
    """Return the name of the table that keeps guests from forging addresses."""
    return nft.table("nova_lite_spoofing_", host)


def tunnels_table(host: str) -> str:
    """Return the name of the tables that let tunnels in from other hosts only."""
    return nft.table("nova_lite_tunnels_", host)


def qos_table(host: str) -> str:
    """Return the name of the tables of QoS policies."""
    return nft.table("nova_lite_qos_", host)


def migrations_table(host: str) -> str:
    """Return the name of the table that lets the source of a live migration in."""
    return nft.table("nova_lite_migrations_", host)


def links_table(host: str) -> str:
    """Return the name of the table that filters packets between the host and its realms."""
    return nft.table("nova_lite_links_", host)


def floating_table(host: str) -> str:
    """Return the name of the table in a realm that translates the floating addresses of a host's guests."""
    return nft.table("nova_lite_floating_", host)


def tables_of_host(host: str) -> list[tuple[str, str]]:
    """Return family and name of each table that a host has outside of its realms."""
    return [
        ("inet", ports_table(host)),
        ("bridge", spoofing_table(host)),
        ("bridge", tunnels_table(host)),
        ("inet", tunnels_table(host)),
        ("inet", migrations_table(host)),
        ("inet", links_table(host)),
        ("bridge", qos_table(host)),
        ("inet", qos_table(host)),
    ]
