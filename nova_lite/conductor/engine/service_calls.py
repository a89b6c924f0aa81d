"""Steps whose effect is a call to another service, between the transactions that plan and record it."""

from __future__ import annotations

import logging
from typing import Any

from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.conductor.engine import image_calls
from nova_lite.conductor.engine.context import lock_action
from nova_lite.conductor.engine.network_calls import PORT_ID, plan
from nova_lite.conductor.engine.ports import SnapshotReports
from nova_lite.conductor.engine.unavailable_hosts import Transitions
from nova_lite.db.core import actions
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.network import builtin_networks, pending_attaches
from nova_lite.image.driver import ImageBackend, ImageCall
from nova_lite.network.driver import NetworkBackend, NetworkCall, NetworkMethod
from nova_lite.operations import DISCONNECT, MAKES_IMAGE, ImageStep, ImageVerb, NetworkStep, SnapshotStep

LOG = logging.getLogger(__name__)


class ServiceCalls:
    """Carries out network, image and snapshot steps. An action at another kind of step is left alone."""

    def __init__(
        self,
        db: Database,
        conf: cfg.ConfigOpts,
        network: NetworkBackend,
        images: ImageBackend,
        snapshots: SnapshotReports | None,
        transitions: Transitions,
    ) -> None:
        self.db = db
        self.conf = conf
        self.network = network
        self.images = images
        self.snapshots = snapshots
        self.transitions = transitions

    def make(self, action_id: int) -> None:
        """Make the call of the action's step, whichever service it is to."""
        self.to_network(action_id)
        self.to_images(action_id)
        self.to_cinder(action_id)

    # --- the network service

    def to_network(self, action_id: int) -> None:
        """Carry out a `NetworkStep` of a backend that calls another service."""
        call = self.db.write(self._network_call, action_id)
        if call is None:
            return
        try:
            self.network.call(call)
        except exceptions.NovaLiteException as error:
            self.db.write(self._network_failed, action_id, error.message)
        else:
            self.db.write(self._network_done, action_id)

    def _network_call(self, uow: UnitOfWork, action_id: int) -> NetworkCall | None:
        """Return the call to make, or None while an earlier call for the instance may still be carried out."""
        ctx = lock_action(uow, action_id)
        if ctx is None or not isinstance(ctx.step, NetworkStep):
            return None
        instance = ctx.instance
        if instance.network_call_until is not None and instance.network_call_until > uow.now:
            ctx.action.lease_expires_at = instance.network_call_until
            return None
        actions.extend(uow, self.conf, ctx.action, self.conf.network.call_timeout)
        if ctx.step.name != DISCONNECT:
            return plan(uow, self.network, instance, ctx.context, NetworkMethod.DEALLOCATE)
        call = plan(uow, self.network, instance, ctx.context, NetworkMethod.DETACH)
        call.vifs = [vif for vif in call.vifs if vif.id == ctx.action.payload[PORT_ID]]
        return call

    def _network_done(self, uow: UnitOfWork, action_id: int) -> None:
        ctx = lock_action(uow, action_id)
        if ctx is None or not isinstance(ctx.step, NetworkStep):
            return
        store, uuid = builtin_networks.Store(uow), ctx.instance.uuid
        if ctx.step.name == DISCONNECT:
            remaining = [vif for vif in self.network.vifs(store, uuid) if vif.id != ctx.action.payload[PORT_ID]]
            store.record(uuid, remaining)
        else:
            self.network.deallocate(store, uuid)
            ctx.instance.network_call_until = None
            if self.network.has_remote_ports:
                pending_attaches.drop(uow, uuid)
        self.transitions.advance(ctx)

    def _network_failed(self, uow: UnitOfWork, action_id: int, cause: str) -> None:
        ctx = lock_action(uow, action_id)
        if ctx is not None and isinstance(ctx.step, NetworkStep):
            LOG.warning("The network service failed at %s of %s: %s", ctx.step.name, ctx.instance.uuid, cause)
            actions.back_off(uow, self.conf, ctx.action, cause)

    # --- the image service

    def to_images(self, action_id: int) -> None:
        """Carry out an `ImageStep`."""
        try:
            planned = self.db.write(self._image_call, action_id)
            if planned is None:
                return
            verb, call = planned
            image = getattr(self.images, verb)(call)
        except exceptions.NovaLiteException as error:
            self.db.write(self._image_failed, action_id, error)
            return
        if not self.db.write(self._image_done, action_id, verb, call, image):
            self._discard(call)

    def _discard(self, call: ImageCall) -> None:
        """Delete an image that was published in vain. No action needs it, so a failure fails none."""
        try:
            self.images.discard(call)
        except exceptions.NovaLiteException as error:
            LOG.warning("Image %s, which no action needs any more, is left behind: %s", call.image_id, error.message)

    def _image_call(self, uow: UnitOfWork, action_id: int) -> tuple[ImageVerb, ImageCall] | None:
        ctx = lock_action(uow, action_id)
        if ctx is None or not isinstance(ctx.step, ImageStep):
            return None
        actions.extend(uow, self.conf, ctx.action)
        return ctx.step.verb, image_calls.plan(uow, self.images, ctx.step.verb, ctx.instance, ctx.action)

    def _image_done(self, uow: UnitOfWork, action_id: int, verb: ImageVerb, call: ImageCall, image: Any) -> bool:
        """Record the call. Returns False if it has published an image that is not wanted any more."""
        image_calls.drop(uow, call.removed_ids)
        ctx = lock_action(uow, action_id)
        if ctx is None or not isinstance(ctx.step, ImageStep) or ctx.step.verb is not verb:
            return verb not in MAKES_IMAGE or image_calls.is_wanted(uow, self.images, call.image_id)
        if ctx.step.outlives_action:
            self.transitions.advance(ctx)
            return True
        published = image_calls.published(uow, self.images, call.image_id, image)
        if published is None:
            self.transitions.fail(ctx, exceptions.ImageNotFound(image_id=call.image_id).message, reported=True)
            return False
        self.transitions.handlers(ctx.action.action).on_published(uow, ctx.instance, published)
        self.transitions.done(ctx)
        return True

    def _image_failed(self, uow: UnitOfWork, action_id: int, error: exceptions.NovaLiteException) -> None:
        ctx = lock_action(uow, action_id)
        if ctx is None or not isinstance(ctx.step, ImageStep):
            return
        LOG.warning("The image backend failed at %s of %s: %s", ctx.step.verb, ctx.action.action, error.message)
        if ctx.step.outlives_action or isinstance(error, exceptions.ServiceUnavailable):
            actions.back_off(uow, self.conf, ctx.action, error.message)
        else:
            self.transitions.fail(ctx, error.message, reported=True)

    # --- Cinder

    def to_cinder(self, action_id: int) -> None:
        """Carry out a `SnapshotStep`."""
        planned = self.db.write(self._snapshot_call, action_id)
        if planned is None:
            return
        snapshot_id, status = planned
        try:
            self._report_snapshot(snapshot_id, status)
        except (exceptions.SnapshotNotFound, exceptions.InvalidVolume) as error:
            LOG.warning("Cinder does not wait for snapshot %s to be %s: %s", snapshot_id, status, error.message)
        except exceptions.NovaLiteException as error:
            self.db.write(self._snapshot_failed, action_id, error.message)
            return
        self.db.write(self._snapshot_reported, action_id, status)

    def _report_snapshot(self, snapshot_id: str, status: str) -> None:
        if self.snapshots is None:
            raise exceptions.ConfigurationError(reason="[volume] backend is not cinder any more")
        self.snapshots.update_snapshot_status(snapshot_id, status)

    def _snapshot_call(self, uow: UnitOfWork, action_id: int) -> tuple[str, str] | None:
        ctx = lock_action(uow, action_id)
        if ctx is None or not isinstance(ctx.step, SnapshotStep):
            return None
        actions.extend(uow, self.conf, ctx.action)
        return str(ctx.action.payload["snapshot_id"]), ctx.step.status

    def _snapshot_reported(self, uow: UnitOfWork, action_id: int, status: str) -> None:
        ctx = lock_action(uow, action_id)
        if ctx is not None and isinstance(ctx.step, SnapshotStep) and ctx.step.status == status:
            self.transitions.advance(ctx)

    def _snapshot_failed(self, uow: UnitOfWork, action_id: int, cause: str) -> None:
        ctx = lock_action(uow, action_id)
        if ctx is not None and isinstance(ctx.step, SnapshotStep):
            LOG.warning("Cinder does not take the status of %s: %s", ctx.action.payload["snapshot_id"], cause)
            actions.back_off(uow, self.conf, ctx.action, cause)
