"""IPv6 addresses of interfaces."""

from __future__ import annotations

from nova_lite.base import ip
from nova_lite.objects import VIF, ipv6


def addresses(vif: VIF) -> list[str]:
    """Return all IPv6 addresses of an interface of a built-in network: the global one, and the link-local one."""
    found = [fixed.address for fixed in vif.more if ip.parse(fixed.address).version == 6]
    return [*found, ipv6.address_of(ipv6.LINK_LOCAL, vif.mac_address)] if found else []
