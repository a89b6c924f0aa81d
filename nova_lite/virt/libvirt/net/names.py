"""What things of ours are called on a host."""

from __future__ import annotations

from nova_lite.objects import VIF, Network


def network_name(network: Network) -> str:
    """libvirt's network for one of ours."""
    return f"nova-lite-{network.id}"


def bridge_name(network: Network) -> str:
    """The kernel allows 15 characters."""
    return network.bridge or f"nl{network.id.replace('-', '')[:12]}"


def bridge_mac(vni: int) -> str:
    """MAC address of the bridge that we make of a network that spans hosts, on each of them; no guest's."""
    return "fa:16:3f:" + ":".join(f"{byte:02x}" for byte in vni.to_bytes(3, "big"))


def tunnel_name(network: Network | None = None) -> str:
    """The VXLAN device of a network with a VNI; None: how all of them begin."""
    return f"nlvx{'' if network is None else network.vni}"


def tap_name(vif: VIF) -> str:
    """The host's end of a guest's interface."""
    return f"tap{vif.id[:11]}"
