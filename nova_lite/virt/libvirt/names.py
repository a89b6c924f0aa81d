"""What things of ours are called on a host."""

from __future__ import annotations

from nova_lite.objects import VIF, Network


def network_name(network: Network) -> str:
    """libvirt's network for one of ours."""
    return f"nova-lite-{network.id}"


def bridge_name(network: Network) -> str:
    """The kernel allows 15 characters."""
    return network.bridge or f"nl{network.id.replace('-', '')[:12]}"


def tap_name(vif: VIF) -> str:
    """The host's end of a guest's interface."""
    return f"tap{vif.id[:11]}"
