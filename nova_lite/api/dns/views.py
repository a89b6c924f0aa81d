"""Documents of the DNS API in Designate's form."""

from __future__ import annotations

import datetime
from typing import Any

from nova_lite.dns.objects import RecordSet, Zone

View = dict[str, Any]

#: The one pool of name servers.
POOL = "794ccc2c-d751-44fe-b57f-8894c9f5c842"


def zone(shown: Zone, url: str) -> View:
    """Return a zone. ``url``: of the API's ``/v2``."""
    return {
        "id": shown.id,
        "pool_id": POOL,
        "project_id": shown.project_id,
        "name": shown.name,
        "email": shown.email,
        "ttl": shown.ttl,
        "description": shown.description,
        "serial": shown.serial,
        "version": shown.version,
        "status": shown.status,
        "action": shown.action,
        "type": "PRIMARY",
        "masters": [],
        "attributes": {},
        "shared": False,
        "transferred_at": None,
        "created_at": _time(shown.created_at),
        "updated_at": _time(shown.updated_at),
        "links": {"self": f"{url}/zones/{shown.id}"},
    }


def recordset(shown: RecordSet, url: str) -> View:
    return {
        "id": shown.id,
        "zone_id": shown.zone_id,
        "zone_name": shown.zone_name,
        "project_id": shown.project_id,
        "name": shown.name,
        "type": shown.type,
        "ttl": shown.ttl,
        "records": shown.records,
        "description": shown.description,
        "version": shown.version,
        "status": shown.status,
        "action": shown.action,
        "created_at": _time(shown.created_at),
        "updated_at": _time(shown.updated_at),
        "links": {"self": f"{url}/zones/{shown.zone_id}/recordsets/{shown.id}"},
    }


def pointer(shown: RecordSet, region: str, url: str) -> View:
    """Return the name of the address of a floating address."""
    key = f"{region}:{shown.id}"
    return {
        "id": key,
        "address": shown.address,
        "ptrdname": shown.records[0] if shown.records and shown.action != "DELETE" else None,
        "ttl": shown.ttl,
        "description": shown.description,
        "status": shown.status,
        "action": shown.action,
        "links": {"self": f"{url}/reverse/floatingips/{key}"},
    }


def _time(moment: datetime.datetime | None) -> str | None:
    return None if moment is None else moment.strftime("%Y-%m-%dT%H:%M:%S.%f")
