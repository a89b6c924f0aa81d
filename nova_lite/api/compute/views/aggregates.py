"""Host aggregates."""

from __future__ import annotations

from typing import Any

from nova_lite.api.compute.views import times
from nova_lite.api.http.microversions import Change
from nova_lite.api.http.wsgi import Request
from nova_lite.objects import Aggregate


def show(req: Request, aggregate: Aggregate) -> dict[str, Any]:
    return created(req, aggregate) | {"hosts": aggregate.hosts, "metadata": aggregate.metadata}


def created(req: Request, aggregate: Aggregate) -> dict[str, Any]:
    """The answer to a create, which leaves out what is empty then or was just given."""
    view: dict[str, Any] = {
        "id": aggregate.id,
        "name": aggregate.name,
        "availability_zone": aggregate.availability_zone,
        "created_at": times.micros(aggregate.created_at),
        "updated_at": times.micros(aggregate.updated_at),
        "deleted": False,
        "deleted_at": None,
    }
    if req.has(Change.AGGREGATE_UUID):
        view["uuid"] = aggregate.uuid
    return view
