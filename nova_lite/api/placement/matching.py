"""Comparison of resource providers with what a request asks for. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import msgspec

from nova_lite.objects import ResourceInventory, ResourceProvider


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """Requirements of a request for one provider.

    ``resources``: amount by resource class. ``required``: sets of traits; the provider has one of each. ``forbidden``:
    traits that it does not have. ``member_of``, ``not_member_of``: the same of aggregates, by uuid. ``in_tree``: uuid
    of a provider of the host.
    """

    resources: dict[str, int] = msgspec.field(default_factory=dict)
    required: list[frozenset[str]] = msgspec.field(default_factory=list)
    forbidden: frozenset[str] = frozenset()
    member_of: list[frozenset[str]] = msgspec.field(default_factory=list)
    not_member_of: frozenset[str] = frozenset()
    in_tree: str | None = None


class Candidate(NamedTuple):
    """Way to meet a request at a host. ``providers``: the host and its devices. ``amounts``: resources by uuid of the
    provider. ``mappings``: uuids by suffix of the group.
    """

    providers: list[ResourceProvider]
    amounts: dict[str, Counter[str]]
    mappings: dict[str, list[str]]


def matches(provider: ResourceProvider, needs: Needs) -> bool:
    """Check whether the provider has all that is needed, resources included."""
    return _qualifies(provider, needs) and has_room(provider, needs.resources, Counter())


def _qualifies(provider: ResourceProvider, needs: Needs) -> bool:
    return _has(provider.traits, needs.required, needs.forbidden) and _has(
        provider.aggregates, needs.member_of, needs.not_member_of
    )


def has_room(provider: ResourceProvider, resources: Mapping[str, int], taken: Mapping[str, int]) -> bool:
    """Check whether a claim fits, as `nova_lite.db.servers.claims` decides. ``taken``: by the rest of the request."""
    return all(
        name in provider.inventories and _free(provider.inventories[name]) >= amount + taken.get(name, 0)
        for name, amount in resources.items()
    )


def candidate(
    providers: list[ResourceProvider], groups: Mapping[str, Needs], root: Needs, separate: bool
) -> Candidate | None:
    """Return a way to meet all groups together at a host, and ``root``. A host that is down accepts no claims.

    ``providers``: the host and its devices. ``separate``: the groups with a suffix do not share a provider. The largest
    groups choose first.
    """
    host, uuids = providers[0], {provider.uuid for provider in providers}
    wanted = [needs.in_tree for needs in (root, *groups.values()) if needs.in_tree is not None]
    if not (host.up and _qualifies(host, root) and uuids.issuperset(wanted)):
        return None
    amounts: dict[str, Counter[str]] = {provider.uuid: Counter() for provider in providers}
    mappings: dict[str, list[str]] = {}
    for suffix in sorted(groups, key=lambda suffix: (suffix == "", -sum(groups[suffix].resources.values()))):
        busy = {uuid for own in mappings.values() for uuid in own} if separate and suffix else set()
        free = [provider for provider in providers if provider.uuid not in busy]
        chosen = _choose(free, groups[suffix], amounts, suffix == "")
        if chosen is None:
            return None
        mappings[suffix] = list(dict.fromkeys(provider.uuid for provider, _ in chosen))
        for provider, resources in chosen:
            amounts[provider.uuid].update(resources)
    return Candidate(providers, {uuid: found for uuid, found in amounts.items() if found}, mappings)


def _choose(
    providers: list[ResourceProvider], needs: Needs, amounts: Mapping[str, Counter[str]], may_split: bool
) -> list[tuple[ResourceProvider, dict[str, int]]] | None:
    """Return the resources of a group by provider: one provides all, or if it ``may_split`` one all of each class.

    The traits of a group without a suffix are those of its providers together, and its aggregates those of the host.
    """
    parts = [{name: amount} for name, amount in needs.resources.items()] if may_split else [needs.resources]
    chosen = []
    for part in parts:
        fits = (
            provider
            for provider in providers
            if has_room(provider, part, amounts[provider.uuid]) and (may_split or _qualifies(provider, needs))
        )
        provider = next(fits, None)
        if provider is None:
            return None
        chosen.append((provider, part))
    if may_split:
        together = {trait for provider, _ in chosen for trait in provider.traits}
        if not (
            _has(together, needs.required, needs.forbidden)
            and _has(providers[0].aggregates, needs.member_of, needs.not_member_of)
        ):
            return None
    return chosen


def _free(inventory: ResourceInventory) -> int:
    return inventory.capacity - inventory.used


def _has(present: Collection[str], required: Iterable[frozenset[str]], forbidden: frozenset[str]) -> bool:
    return all(not some.isdisjoint(present) for some in required) and forbidden.isdisjoint(present)
