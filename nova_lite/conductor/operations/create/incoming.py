"""A create request on its way, and how the conductor recognises a repeated request.

The uuids of instances are derived from the request id or the idempotency key. So a repeated request finds the
instances of the first one, and two that run at the same time cannot both insert them.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

from nova_lite import operations
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.base.ids import derived_id
from nova_lite.db.core import actions
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.servers import instances
from nova_lite.db.upkeep import purge
from nova_lite.objects import CreateRequest, CreateResult

_NAMESPACE = uuid.UUID("6d1f4f2e-4e0b-4b52-9d0c-3f1f2c8a7a10")

#: Key in an instance's ``system_metadata``: the fingerprint of the request that came with the idempotency key.
FINGERPRINT = "idempotency_fingerprint"


class IncomingCreate(NamedTuple):
    """A create request.

    ``seed``: the text that uuids are derived from, the same for each try of one request. ``resolution``: the reply of a
    remote network service about the request's networks, else None.
    """

    context: RequestContext
    request: CreateRequest
    project_id: str
    seed: str
    resolution: Any = None


def incoming_create(context: RequestContext, request: CreateRequest) -> IncomingCreate:
    seed = str(context.request_id)
    if request.idempotency_key is not None:
        seed = json.dumps([context.project_id, context.user_id, request.idempotency_key])
    return IncomingCreate(context, request, context.project_id or "", seed)


def instance_uuid(seed: str, index: int) -> str:
    return derived_id(_NAMESPACE, f"{seed}/{index}")


def reservation_id(seed: str) -> str:
    """Return an id in Nova's form, ``r-`` and eight letters or digits."""
    return "r-" + base64.b32encode(uuid.UUID(derived_id(_NAMESPACE, seed)).bytes).decode()[:8].lower()


def was_accepted(uow: UnitOfWork, create: IncomingCreate) -> bool:
    return bool(instances.of_request(uow, instance_uuid(create.seed, 0), create.project_id))


def find_earlier(uow: UnitOfWork, creates: Sequence[IncomingCreate]) -> dict[str, CreateResult]:
    """Return the results of creates that were accepted before, by seed.

    Raises `Forbidden` for a create without a project, `IdempotencyKeyReused` for a key of another or a purged server.
    """
    first_uuids: dict[str, IncomingCreate] = {}
    for create in creates:
        if not create.project_id:
            raise exceptions.Forbidden("A server belongs to a project; this token is for none.")
        first_uuid = instance_uuid(create.seed, 0)
        first_uuids[first_uuid] = create
    projects = instances.projects_of(uow, list(first_uuids))
    earlier = {}
    for first_uuid, create in first_uuids.items():
        if projects.get(first_uuid) == create.project_id:
            earlier[create.seed] = _earlier_result(uow, create, first_uuid)
        elif create.request.idempotency_key is not None and purge.purged(uow, [first_uuid]):
            raise exceptions.IdempotencyKeyReused(
                "The server that was made with this Idempotency-Key was deleted, long ago: take a new key for a new "
                "server."
            )
    return earlier


def _earlier_result(uow: UnitOfWork, create: IncomingCreate, first_uuid: str) -> CreateResult:
    """Return the instances of the first try. Raises `IdempotencyKeyReused` if the key came with another request."""
    rows = instances.of_request(uow, first_uuid, create.project_id)
    result = CreateResult(reservation_id=rows[0].reservation_id, instances=instances.to_objects(uow, rows))
    if create.request.idempotency_key is not None:
        if rows[0].system_metadata.get(FINGERPRINT, create.request.fingerprint) != create.request.fingerprint:
            raise exceptions.IdempotencyKeyReused()
        same_call = actions.find_by_request(uow, create.context.request_id, operations.CREATE.kind, rows[0].uuid)
        result.earlier = same_call is None
    return result
