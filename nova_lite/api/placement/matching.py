"""Comparison of resource providers with what a request asks for. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

import msgspec

from nova_lite.objects import ResourceInventory, ResourceProvider


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """Requirements of a request for one provider.

    ``resources``: amount by resource class. ``required``: sets of traits; the provider has one of each. ``forbidden``:
    traits that it does not have. ``member_of``, ``not_member_of``: the same of aggregates, by uuid. ``in_tree``: uuid
    of the provider.
    """

    resources: dict[str, int] = msgspec.field(default_factory=dict)
    required: list[frozenset[str]] = msgspec.field(default_factory=list)
    forbidden: frozenset[str] = frozenset()
    member_of: list[frozenset[str]] = msgspec.field(default_factory=list)
    not_member_of: frozenset[str] = frozenset()
    in_tree: str | None = None


def matches(provider: ResourceProvider, needs: Needs) -> bool:
    """Check whether the provider has all that is needed, resources included."""
    return (
        needs.in_tree in (None, provider.uuid)
        and _has(provider.traits, needs.required, needs.forbidden)
        and _has(provider.aggregates, needs.member_of, needs.not_member_of)
        and has_room(provider, needs.resources)
    )


def has_room(provider: ResourceProvider, resources: Mapping[str, int]) -> bool:
    """Check whether a claim of these resources fits, as `nova_lite.db.servers.claims` decides it."""
    return all(
        name in provider.inventories and _free(provider.inventories[name]) >= amount
        for name, amount in resources.items()
    )


def candidates(providers: Iterable[ResourceProvider], groups: Collection[Needs], root: Needs) -> list[ResourceProvider]:
    """Return the providers that meet all groups together, and ``root``. A host that is down accepts no claims.

    No provider has another one below it. So one provider meets all groups of a request, or none does.
    """
    together: Counter[str] = Counter()
    for needs in groups:
        together.update(needs.resources)
    return [
        provider
        for provider in providers
        if provider.up
        and matches(provider, root)
        and all(matches(provider, needs) for needs in groups)
        and has_room(provider, together)
    ]


def _free(inventory: ResourceInventory) -> int:
    return inventory.capacity - inventory.used


def _has(present: Collection[str], required: Iterable[frozenset[str]], forbidden: frozenset[str]) -> bool:
    return all(not some.isdisjoint(present) for some in required) and forbidden.isdisjoint(present)
