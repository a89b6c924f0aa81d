"""Steps whose effect is a call to another service, networks' or images', between the transactions that plan and record
it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nova_lite.base import exceptions, failpoints
from nova_lite.conductor.engine import image_calls
from nova_lite.conductor.engine.context import lock_action
from nova_lite.conductor.engine.network_calls import PORT_ID, plan
from nova_lite.conductor.operations.registry import handler_for
from nova_lite.db import actions, networks, pending_attaches
from nova_lite.db.engine import UnitOfWork
from nova_lite.image.driver import ImageCall
from nova_lite.network.driver import NetworkCall, NetworkMethod
from nova_lite.operations import DISCONNECT, MAKES_IMAGE, ImageStep, ImageVerb, NetworkStep

if TYPE_CHECKING:
    from nova_lite.conductor.engine.engine import ActionEngine

LOG = logging.getLogger(__name__)


class ServiceCalls:
    """Of the conductor's own; an action at another kind of step is left alone."""

    def __init__(self, engine: ActionEngine) -> None:
        self.engine = engine

    def make(self, action_id: int) -> None:
        """The call that the action's step is, if it is one."""
        self.to_network(action_id)
        self.to_images(action_id)

    def to_network(self, action_id: int) -> None:
        """The effect of a `NetworkStep` step of a backend that asks another service, between its two transactions."""
        call = self.engine.db.write(self._network_call, action_id)
        if call is None:
            return
        try:
            self.engine.network.call(call)
        except exceptions.NovaLiteException as error:
            self.engine.db.write(self._network_failed, action_id, error.message)
        else:
            self.engine.db.write(self._network_told, action_id)

    def _network_call(self, uow: UnitOfWork, action_id: int) -> NetworkCall | None:
        """The call to make; None while an earlier one for the instance may still take effect."""
        ctx = lock_action(uow, action_id)
        if ctx is None or not isinstance(ctx.step, NetworkStep):
            return None
        instance = ctx.instance
        if instance.network_call_until is not None and instance.network_call_until > uow.now:
            ctx.action.lease_expires_at = instance.network_call_until
            return None
        actions.extend(uow, self.engine.conf, ctx.action, self.engine.conf.network.call_timeout)
        if ctx.step.name != DISCONNECT:
            return plan(uow, self.engine.network, ctx.instance, ctx.context, NetworkMethod.DEALLOCATE)
        call = plan(uow, self.engine.network, ctx.instance, ctx.context, NetworkMethod.DETACH)
        call.vifs = [vif for vif in call.vifs if vif.id == ctx.action.payload[PORT_ID]]
        return call

    def _network_told(self, uow: UnitOfWork, action_id: int) -> None:
        ctx = lock_action(uow, action_id)
        if ctx is not None and isinstance(ctx.step, NetworkStep):
            store = networks.Store(uow)
            if ctx.step.name == DISCONNECT:
                rest = self.engine.network.vifs(store, ctx.instance.uuid)
                store.record(ctx.instance.uuid, [vif for vif in rest if vif.id != ctx.action.payload[PORT_ID]])
            else:
                self.engine.network.deallocate(store, ctx.instance.uuid)
                ctx.instance.network_call_until = None
                if self.engine.network.has_remote_ports:
                    pending_attaches.drop(uow, ctx.instance.uuid)
            self.engine.advance(ctx)

    def _network_failed(self, uow: UnitOfWork, action_id: int, cause: str) -> None:
        ctx = lock_action(uow, action_id)
        if ctx is not None and isinstance(ctx.step, NetworkStep):
            LOG.warning("The network service could not be told about %s: %s", ctx.instance.uuid, cause)
            actions.back_off(uow, self.engine.conf, ctx.action, cause)

    def to_images(self, action_id: int) -> None:
        """The effect of an `ImageStep` step, between its two transactions."""
        try:
            planned = self.engine.db.write(self._image_call, action_id)
            if planned is None:
                return
            verb, call = planned
            answer = self._ask_images(verb, call)
        except exceptions.NovaLiteException as error:
            self.engine.db.write(self._image_failed, action_id, error)
            return
        if not self.engine.db.write(self._image_told, action_id, verb, call, answer):
            self.engine.images.discard(call)

    def _ask_images(self, verb: ImageVerb, call: ImageCall) -> Any:
        ask: Callable[[ImageCall], Any] = getattr(self.engine.images, verb)
        refused = failpoints.reach("image", verb, "before") == failpoints.ERROR
        answer = None if refused else ask(call)
        if refused or failpoints.reach("image", verb, "after") == failpoints.ERROR:
            raise exceptions.ServiceUnavailable("A test refuses the call to the image backend.")
        return answer

    def _image_call(self, uow: UnitOfWork, action_id: int) -> tuple[ImageVerb, ImageCall] | None:
        ctx = lock_action(uow, action_id)
        if ctx is None or not isinstance(ctx.step, ImageStep):
            return None
        actions.extend(uow, self.engine.conf, ctx.action)
        return ctx.step.verb, image_calls.plan(uow, self.engine.images, ctx.step.verb, ctx.instance, ctx.action)

    def _image_told(self, uow: UnitOfWork, action_id: int, verb: ImageVerb, call: ImageCall, answer: Any) -> bool:
        """False: what was published is not wanted any more."""
        image_calls.drop(uow, call.gone)
        ctx = lock_action(uow, action_id)
        if ctx is None or not isinstance(ctx.step, ImageStep) or ctx.step.verb is not verb:
            return verb not in MAKES_IMAGE or image_calls.is_wanted(uow, self.engine.images, call.image_id)
        if ctx.step.outlives_action:
            self.engine.advance(ctx)
            return True
        image = image_calls.published(uow, self.engine.images, call.image_id, answer)
        if image is None:
            self.engine.fail(ctx, exceptions.ImageNotFound(image_id=call.image_id).message, answered=True)
            return False
        handler_for(ctx.action.action).published(uow, ctx.instance, image)
        self.engine.done(ctx)
        return True

    def _image_failed(self, uow: UnitOfWork, action_id: int, error: exceptions.NovaLiteException) -> None:
        ctx = lock_action(uow, action_id)
        if ctx is None or not isinstance(ctx.step, ImageStep):
            return
        LOG.warning("The image backend failed at %s of %s: %s", ctx.step.verb, ctx.action.action, error.message)
        if ctx.step.outlives_action or isinstance(error, exceptions.ServiceUnavailable):
            actions.back_off(uow, self.engine.conf, ctx.action, error.message)
        else:
            self.engine.fail(ctx, error.message, answered=True)
