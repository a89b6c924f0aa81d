"""Zones, record sets, and queries of lists."""

from __future__ import annotations

import datetime
import fnmatch
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import msgspec

from nova_lite.base import exceptions

#: Name of the wing, in ``[DEFAULT] wings`` and in messages.
WING = "dns"

PENDING, ACTIVE, ERROR = "PENDING", "ACTIVE", "ERROR"
CREATE, UPDATE, DELETE, NONE = "CREATE", "UPDATE", "DELETE", "NONE"

#: Types of records. A zone gets its SOA and NS records with its creation.
TYPES = ("A", "AAAA", "CAA", "CNAME", "MX", "NS", "PTR", "SOA", "SRV", "TXT")

#: Limits of projects without own ones, by Designate's names.
LIMITS = {"zones": 10, "zone_recordsets": 500, "zone_records": 500, "recordset_records": 20}

MIN_TTL, MAX_TTL, DEFAULT_TTL = 1, 2**31 - 1, 3600


class Zone(msgspec.Struct, kw_only=True):
    """Zone of a project. ``name`` ends with a dot. ``status``, ``action``: what the name server does not have yet."""

    id: str
    project_id: str
    name: str
    email: str
    ttl: int = DEFAULT_TTL
    description: str | None = None
    serial: int = 0
    version: int = 1
    status: str = PENDING
    action: str = CREATE
    created_at: datetime.datetime | None = None
    updated_at: datetime.datetime | None = None


class RecordSet(msgspec.Struct, kw_only=True):
    """Records of one name and type. ``ttl`` None: that of the zone, which is ``zone_ttl``.

    ``zone_id`` None: a name for the address of the floating address with this id, in the operator's zone.
    ``managed``: no user changes it. ``address``: of that floating address.
    """

    id: str
    project_id: str
    name: str
    type: str
    records: list[str]
    zone_id: str | None = None
    zone_name: str = ""
    zone_ttl: int = DEFAULT_TTL
    ttl: int | None = None
    description: str | None = None
    managed: bool = False
    version: int = 1
    status: str = PENDING
    action: str = CREATE
    address: str = ""
    created_at: datetime.datetime | None = None
    updated_at: datetime.datetime | None = None


class DnsQuery(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Query of a list. ``filters``: attributes with values, in which ``*`` stands for any text. ``everybody``: for an
    admin, those of all projects. ``limit`` None: all.
    """

    filters: dict[str, str] = msgspec.field(default_factory=dict)
    sort_key: str = "created_at"
    descending: bool = False
    marker: str | None = None
    limit: int | None = None
    everybody: bool = False


Item = TypeVar("Item", Zone, RecordSet)


class Page(msgspec.Struct, Generic[Item], kw_only=True):
    """Page of a list. ``total``: number of items on all pages."""

    items: list[Item]
    total: int


def page(found: Sequence[Item], query: DnsQuery) -> Page[Item]:
    """Return the page of a list. Raises a 400 for an unknown marker."""

    def key(item: Item) -> tuple[Any, ...]:
        value = getattr(item, query.sort_key)
        return value is not None, value, item.id

    matching = [item for item in found if all(_matches(item, *one) for one in query.filters.items())]
    matching.sort(key=key, reverse=query.descending)
    start = 0
    if query.marker is not None:
        places = [place for place, item in enumerate(matching) if item.id == query.marker]
        if not places:
            raise exceptions.MarkerNotFound(marker=query.marker[:64])
        start = places[0] + 1
    end = None if query.limit is None else start + query.limit
    return Page(items=matching[start:end], total=len(matching))


def _matches(item: Zone | RecordSet, name: str, wanted: str) -> bool:
    values = getattr(item, "records", []) if name == "data" else [getattr(item, name)]
    return any(fnmatch.fnmatchcase("" if value is None else str(value), wanted.replace("[", "[[]")) for value in values)
