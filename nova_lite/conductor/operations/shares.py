"""Attach and detach shares of servers that are off.

A share is the server's from the acceptance until its host has changed the definition of the guest. An operation that
supersedes the change makes the guest with the share, or deletes the server.
"""

from __future__ import annotations

from typing import Any

from nova_lite import operations
from nova_lite.base import exceptions, ids
from nova_lite.base.context import RequestContext
from nova_lite.conductor.engine.handler import OperationHandler
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance
from nova_lite.db.hosts import compute_nodes
from nova_lite.db.servers import shares
from nova_lite.hardware import traits
from nova_lite.objects import ShareMapping, ShareState
from nova_lite.operations import Step


class AttachShareHandler(OperationHandler):
    """Attaches a share. ``payload``: ``share_id`` and ``tag``."""

    def accept(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any] | None:
        share_id, tag = payload["share_id"], payload["tag"]
        mappings = shares.of(instance)
        if any(mapping.share_id == share_id or mapping.tag == tag for mapping in mappings):
            raise exceptions.ShareMappingAlreadyExists(share_id=share_id, tag=tag)
        share = shares.get(uow, instance.project_id, share_id)
        if traits.VIRTIOFS not in compute_nodes.traits_of_host(uow, instance):
            raise exceptions.SharesNotSupported()
        added = ShareMapping(
            uuid=ids.new_id(),
            share_id=share_id,
            tag=tag,
            location=share.location,
            state=ShareState.ATTACHING,
        )
        shares.keep(instance, [*mappings, added])
        return payload

    def on_step_done(self, uow: UnitOfWork, instance: Instance, step: Step) -> None:
        super().on_step_done(uow, instance, step)
        if step.name == operations.PERFORM:
            shares.settle(instance, ShareState.ATTACHING, ShareState.ATTACHED)

    def on_failed(self, uow: UnitOfWork, instance: Instance) -> None:
        shares.settle(instance, ShareState.ATTACHING, ShareState.ERROR)

    def on_superseded(self, uow: UnitOfWork, instance: Instance, by: str) -> None:
        shares.settle(instance, ShareState.ATTACHING, ShareState.ATTACHED)


class DetachShareHandler(OperationHandler):
    """Detaches a share. ``payload``: ``share_id``."""

    def accept(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any] | None:
        mappings = shares.of(instance)
        mapping = next((mapping for mapping in mappings if mapping.share_id == payload["share_id"]), None)
        if mapping is None:
            raise exceptions.ShareNotFound(share_id=payload["share_id"])
        mapping.state = ShareState.DETACHING
        shares.keep(instance, mappings)
        return payload

    def on_step_done(self, uow: UnitOfWork, instance: Instance, step: Step) -> None:
        super().on_step_done(uow, instance, step)
        shares.settle(instance, ShareState.DETACHING, None)

    def on_failed(self, uow: UnitOfWork, instance: Instance) -> None:
        shares.settle(instance, ShareState.DETACHING, ShareState.ATTACHED)
