"""Names of networks and devices on a host."""

from __future__ import annotations

from nova_lite.objects import VIF, Network

#: Prefix of the names of libvirt networks that we define.
PREFIX = "nova-lite-"


def network_name(network: Network) -> str:
    """Return the name of the libvirt network."""
    return f"{PREFIX}{network.id}"


def bridge_name(network: Network) -> str:
    """Return the bridge's name. The kernel allows 15 characters."""
    return network.bridge or f"nl{network.id.replace('-', '')[:12]}"


def bridge_mac(vni: int) -> str:
    """Return the MAC address that the bridge of a network that spans hosts has on each of them. No guest has it."""
    return "fa:16:3f:" + ":".join(f"{byte:02x}" for byte in vni.to_bytes(3, "big"))


def tunnel_name(network: Network | None = None) -> str:
    """Return the name of the VXLAN device of a network. None: the common prefix of these names."""
    return f"nlvx{'' if network is None else network.vni}"


def tap_name(vif: VIF) -> str:
    """Return the name of an interface's tap device."""
    return f"tap{vif.id[:11]}"
