"""Names of networks, devices, tables and chains on a host.

Removal of a host's networks goes by these names alone: ``nova_lite/cmd/setup/guests.py``, and the package's postrm.
"""

from __future__ import annotations

import hashlib

from nova_lite.objects import VIF, Network
from nova_lite.virt.libvirt.net import nft

#: Prefix of the names of libvirt networks that we define.
PREFIX = "nova-lite-"
#: First three bytes of the MAC address of a bridge, whose others are its network's VNI.
BRIDGE_MAC = "fa:16:3f"
#: Beginning of the names of daemons' chains in iptables, and by table the chain that leads to them.
CHAINS = "NOVA_LITE_"
CHAIN_PARENTS = {"filter": "FORWARD", "nat": "POSTROUTING"}


def network_name(network: Network) -> str:
    """Return the name of the libvirt network."""
    return f"{PREFIX}{network.id}"


def bridge_name(network: Network) -> str:
    """Return the bridge's name. The kernel allows 15 characters."""
    return network.bridge or f"nl{network.id.replace('-', '')[:12]}"


def bridge_mac(vni: int) -> str:
    """Return the MAC address that the bridge of a network that spans hosts has on each of them. No guest has it."""
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


def tables_of_host(host: str) -> list[tuple[str, str]]:
    """Return family and name of each table that a host has beside those of its networks."""
    return [
        ("inet", ports_table(host)),
        ("bridge", spoofing_table(host)),
        ("bridge", tunnels_table(host)),
        ("inet", tunnels_table(host)),
        ("inet", migrations_table(host)),
        ("bridge", qos_table(host)),
        ("inet", qos_table(host)),
    ]


def chain_name(host: str) -> str:
    """Return the name of the chains of a host's routers, within the 28 characters that iptables accepts."""
    return CHAINS + hashlib.sha256(host.encode("utf-8", "surrogatepass")).hexdigest()[:12]
