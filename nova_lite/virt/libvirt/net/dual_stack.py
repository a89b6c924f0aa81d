"""Addresses of both IP versions that interfaces have."""

from __future__ import annotations

from nova_lite.base import ip
from nova_lite.objects import VIF, ipv6
from nova_lite.objects.instance import version_of


def addresses4(vif: VIF) -> list[str]:
    """Return all IPv4 addresses of an interface of a built-in network, the first one first."""
    return [vif.address, *(item.address for item in vif.more if item.is_further and version_of(item.address) == 4)]


def every(vif: VIF) -> list[str]:
    """Return all addresses of an interface."""
    return [*addresses4(vif), *addresses(vif)]


def addresses(vif: VIF) -> list[str]:
    """Return all IPv6 addresses of an interface of a built-in network: the global one, and the link-local one."""
    found = [fixed.address for fixed in vif.more if ip.parse(fixed.address).version == 6]
    return [*found, ipv6.address_of(ipv6.LINK_LOCAL, vif.mac_address)] if found else []
