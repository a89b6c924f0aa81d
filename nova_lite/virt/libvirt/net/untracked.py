"""Interfaces with stateless security groups: the kernel does not track their packets.

A packet crosses a bridge once, for its sender and its receiver. So a packet between a stateless and a stateful
interface of one bridge is tracked, for the stateful one. Packets of other machines and of realms are tracked elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from nova_lite.base import ip
from nova_lite.objects import VIF, SecurityGroup
from nova_lite.virt.libvirt.net import address_pairs, dual_stack, nft
from nova_lite.virt.libvirt.net.names import bridge_name

#: Priority of the chain. The kernel tracks connections at -200, and has reassembled fragments at -400.
PRIORITY = -300


def is_stateful(groups: Iterable[SecurityGroup]) -> bool:
    """Check whether replies pass an interface with these groups. One stateless group is enough that they do not."""
    return all(group.stateful for group in groups)


def rules(vifs: Collection[tuple[VIF, bool]]) -> list[str]:
    """Return the rules for packets that are not tracked. ``vifs``: interfaces, and whether they are stateful.

    A bridge where a stateful interface has address pairs tracks all, since its packets may have any of these addresses.
    """
    paired = {bridge_name(vif.network) for vif, stateful in vifs if stateful and address_pairs.of(vif)}
    bridges = {bridge_name(vif.network) for vif, stateful in vifs if not stateful} - paired
    found = [(vif, stateful) for vif, stateful in vifs if bridge_name(vif.network) in bridges]
    tracked = _rules([vif for vif, stateful in found if stateful], "accept")
    return [*tracked, *_rules([vif for vif, stateful in found if not stateful], "notrack")]


def _rules(vifs: Collection[VIF], verdict: str) -> list[str]:
    """Return rules with a verdict for what these interfaces send and receive."""
    lines = []
    for version, family in ((4, "ip"), (6, "ip6")):
        addresses = sorted(
            f"{nft.interface(bridge_name(vif.network))} . {nft.address(address)}"
            for vif in vifs
            for address in map(ip.parse, dual_stack.every(vif))
            if address.version == version
        )
        if addresses:
            lines += [
                f"iifname . {family} {side} {{ {', '.join(addresses)} }} {verdict}" for side in ("saddr", "daddr")
            ]
    return lines
