"""Members of security groups on a host: for each group and realm a set of addresses, which rules about the group match.

A realm is a router with its networks here, or a network without a router. Networks of two realms may have equal
addresses, so a member counts in its own realm only. A router may connect a network for one IP version only, so the
realm of a network differs by IP version.

A set exists if a rule in force on this host needs it. Its name is made of the group and the realm.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

import msgspec

from nova_lite.base import ip
from nova_lite.objects import HostRouter, PortFilters, SecurityGroup
from nova_lite.objects.security_group import IPV4, IPV6, NetworkMembers
from nova_lite.virt.libvirt.net import nft

FAMILIES = {IPV4: "ip", IPV6: "ip6"}
VERSIONS = {IPV4: 4, IPV6: 6}
_TYPES = {IPV4: "ipv4_addr", IPV6: "ipv6_addr"}
_NONE = NetworkMembers(members=[])


class MemberSet(NamedTuple):
    """The addresses of a group's members in one realm, of one IP version."""

    group_id: str
    realm: str
    ethertype: str

    @property
    def name(self) -> str:
        return f"members{FAMILIES[self.ethertype]}_{nft.identifier(self.group_id)}_{nft.identifier(self.realm)}"


class Place(NamedTuple):
    """The realms of a network."""

    ipv4: str
    ipv6: str

    @property
    def name(self) -> str:
        """Return the part of names in nft that is for this place."""
        return "_".join(map(nft.identifier, dict.fromkeys(self)))

    def members(self, group_id: str, ethertype: str) -> MemberSet:
        return MemberSet(group_id, self.ipv4 if ethertype == IPV4 else self.ipv6, ethertype)


class Realms:
    """Realms of this host."""

    def __init__(self, routers: Iterable[HostRouter]) -> None:
        self._networks: dict[tuple[str, str], list[str]] = {}
        self._realms: dict[tuple[str, str], str] = {}
        for router in routers:
            for network in router.networks:
                for ethertype, version in VERSIONS.items():
                    if router.only.get(network.id, version) == version:
                        self._realms[network.id, ethertype] = router.id
                        self._networks.setdefault((router.id, ethertype), []).append(network.id)

    def place(self, network_id: str) -> Place:
        return Place(*(self._realms.get((network_id, ethertype), network_id) for ethertype in (IPV4, IPV6)))

    def networks(self, members: MemberSet) -> tuple[str, ...]:
        """Return the networks of the set's realm."""
        return tuple(self._networks.get((members.realm, members.ethertype), [members.realm]))


def definitions(sets: Collection[MemberSet], filters: PortFilters, realms: Realms) -> list[str]:
    """Return the sets in nft's syntax."""
    lines = []
    for item in sorted(sets):
        texts = _of_version(_texts(filters.groups[item.group_id], realms.networks(item)), item.ethertype)
        found = nft.usable(f"member of group {item.group_id}", sorted(texts), _address, str)
        elements = f" elements = {{ {', '.join(sorted(set(found)))} }}" if found else ""
        lines.append(f"  set {item.name} {{ type {_TYPES[item.ethertype]};{elements} }}")
    return lines


def changes(
    table: str, before: PortFilters, after: PortFilters, needed: Callable[[PortFilters], Collection[MemberSet]]
) -> str | None:
    """Return the nft commands that change a loaded table, if the filters differ in members of groups only.

    None if more differs. ``needed``: returns the sets of the table. Loading 100,000 members takes a second, loading
    one of them 25 ms.
    """
    if _without_members(before) != _without_members(after):
        return None
    realms = Realms(after.routers or ())
    known: dict[tuple[str, tuple[str, ...]], tuple[set[str], set[str]]] = {}
    lines = []
    for item in sorted(needed(after)):
        networks = realms.networks(item)
        if (item.group_id, networks) not in known:
            old, new = (_texts(filters.groups[item.group_id], networks) for filters in (before, after))
            known[item.group_id, networks] = old - new, new - old
        for verb, either in zip(("delete", "add"), known[item.group_id, networks], strict=True):
            texts = _of_version(either, item.ethertype)
            found = nft.usable(f"member of group {item.group_id}", sorted(texts), _address, str)
            if set(found) != texts:
                return None  # one address may have several texts
            if found:
                lines.append(f"{verb} element inet {table} {item.name} {{ {', '.join(found)} }}\n")
    return "".join(lines)


def _texts(group: SecurityGroup, networks: Iterable[str]) -> set[str]:
    """Return the members on these networks. A conductor of an older version names no networks."""
    if group.members_by_network is None:
        return set(group.members)
    return set().union(*(group.members_by_network.get(network_id, _NONE).members for network_id in networks))


def _of_version(texts: Iterable[str], ethertype: str) -> set[str]:
    return {text for text in texts if (":" in text) == (ethertype == IPV6)}


def _address(text: str) -> str:
    return nft.address(ip.parse(text))


def _without_members(filters: PortFilters) -> PortFilters:
    groups = {
        key: msgspec.structs.replace(
            group, members=[], members_by_network=None if group.members_by_network is None else {}
        )
        for key, group in filters.groups.items()
    }
    return msgspec.structs.replace(filters, groups=groups)
