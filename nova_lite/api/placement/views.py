"""Documents of the Placement API."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

from nova_lite.api.placement.matching import Candidate
from nova_lite.api.placement.versions import Change
from nova_lite.objects import ResourceAllocation, ResourceInventory, ResourceProvider

View = dict[str, Any]

#: Type of the consumer of every allocation: a server, or one end of its move.
CONSUMER_TYPE = "INSTANCE"

_LINKS = {
    "inventories": 0,
    "usages": 0,
    "aggregates": Change.AGGREGATES,
    "traits": Change.TRAITS,
    "allocations": Change.ALLOCATIONS_LINK,
}
GENERATION = "resource_provider_generation"


def provider(shown: ResourceProvider, mount: str, minor: int) -> View:
    """``mount``: path of the API, which links begin with."""
    url = f"{mount}/resource_providers/{shown.uuid}"
    links = [{"rel": "self", "href": url}]
    links += [{"rel": name, "href": f"{url}/{name}"} for name, since in _LINKS.items() if minor >= since]
    view = {"uuid": shown.uuid, "name": shown.name, "generation": shown.generation, "links": links}
    return view | (_tree(shown) if minor >= Change.TREES else {})


def _tree(shown: ResourceProvider) -> View:
    return {"parent_provider_uuid": shown.parent, "root_provider_uuid": shown.parent or shown.uuid}


def inventory(shown: ResourceInventory) -> View:
    """Return an inventory. Its ``max_unit`` is the capacity, because one server may take all of it."""
    return {
        "total": shown.total,
        "reserved": shown.reserved,
        "min_unit": 1,
        "max_unit": max(shown.capacity, 1),
        "step_size": 1,
        "allocation_ratio": shown.allocation_ratio,
    }


def usages(shown: ResourceProvider) -> dict[str, int]:
    return {name: item.used for name, item in shown.inventories.items()}


def resource_class(name: str, mount: str) -> View:
    return {"name": name, "links": [{"rel": "self", "href": f"{mount}/resource_classes/{name}"}]}


def allocations_of_provider(shown: ResourceProvider, allocations: Iterable[ResourceAllocation], minor: int) -> View:
    by_consumer: dict[str, View] = {}
    for allocation in allocations:
        view = by_consumer.setdefault(allocation.consumer, {"resources": {}})
        _add(view["resources"], allocation)
        if minor >= Change.CONSUMER_GENERATION:
            view["consumer_generation"] = allocation.consumer_generation
    return {"allocations": by_consumer, GENERATION: shown.generation}


def allocations_of_consumer(allocations: list[ResourceAllocation], minor: int) -> View:
    by_provider: dict[str, View] = {}
    for allocation in allocations:
        view = by_provider.setdefault(allocation.provider, {"resources": {}})
        _add(view["resources"], allocation)
        view["generation"] = allocation.provider_generation
    shown: View = {"allocations": by_provider}
    if allocations and minor >= Change.CONSUMERS:
        first = allocations[0]
        shown |= {"project_id": first.project_id, "user_id": first.user_id}
        if minor >= Change.CONSUMER_GENERATION:
            shown["consumer_generation"] = first.consumer_generation
        if minor >= Change.CONSUMER_TYPES:
            shown["consumer_type"] = CONSUMER_TYPE
    return shown


def _add(resources: dict[str, int], allocation: ResourceAllocation) -> None:
    """Add an allocation: a server has two of one provider while it is resized there."""
    for name, amount in allocation.resources.items():
        resources[name] = resources.get(name, 0) + amount


def total_usages(allocations: Iterable[ResourceAllocation], minor: int, consumer_type: str | None) -> View:
    total: Counter[str] = Counter()
    consumers = set()
    for allocation in allocations:
        total.update(allocation.resources)
        consumers.add(allocation.consumer)
    if minor < Change.CONSUMER_TYPES:
        return {"usages": dict(total)}
    if not consumers or consumer_type not in (None, "all", CONSUMER_TYPE):
        return {"usages": {}}
    return {"usages": {consumer_type or CONSUMER_TYPE: {**total, "consumer_count": len(consumers)}}}


def candidates(found: Collection[Candidate], minor: int) -> View:
    requested = {name for item in found for amounts in item.amounts.values() for name in amounts}
    return {
        "allocation_requests": [_allocation_request(item, minor) for item in found],
        "provider_summaries": {
            shown.uuid: _summary(shown, requested, minor) for item in found for shown in item.providers
        },
    }


def _allocation_request(shown: Candidate, minor: int) -> View:
    if minor < Change.CONSUMERS:
        return {
            "allocations": [
                {"resource_provider": {"uuid": uuid}, "resources": dict(amounts)}
                for uuid, amounts in shown.amounts.items()
            ]
        }
    view: View = {"allocations": {uuid: {"resources": dict(amounts)} for uuid, amounts in shown.amounts.items()}}
    if minor >= Change.MAPPINGS:
        view["mappings"] = shown.mappings
    return view


def _summary(shown: ResourceProvider, amounts: Collection[str], minor: int) -> View:
    every = minor >= Change.ALL_RESOURCES
    resources = {
        name: {"capacity": item.capacity, "used": item.used}
        for name, item in shown.inventories.items()
        if every or name in amounts
    }
    view: View = {"resources": resources}
    if minor >= Change.CANDIDATES_TRAITS:
        view["traits"] = shown.traits
    return view | (_tree(shown) if minor >= Change.CANDIDATES_TREES else {})
