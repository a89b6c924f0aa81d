"""Steps whose effect is a call to another service, networks' or images', between the transactions that plan and record
it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nova_lite.base import exceptions, failpoints
from nova_lite.conductor.engine import image_calls
from nova_lite.conductor.engine.context import lock_act
from nova_lite.conductor.engine.network_calls import PORT_ID, plan
from nova_lite.conductor.operations.registry import own
from nova_lite.db import actions, networks, pending_attaches
from nova_lite.db.engine import UnitOfWork
from nova_lite.image.driver import ImageCall
from nova_lite.network.driver import NetworkCall, Verb
from nova_lite.operations import DISCONNECT, MAKES_IMAGE, Image, ImageVerb, Network

if TYPE_CHECKING:
    from nova_lite.conductor.engine.engine import Engine

LOG = logging.getLogger(__name__)


class Calls:
    """Of the conductor's own; an action at another kind of step is left alone."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def make(self, action_id: int) -> None:
        """The call that the action's step is, if it is one."""
        self.to_network(action_id)
        self.to_images(action_id)

    def to_network(self, action_id: int) -> None:
        """The effect of a `Network` step of a backend that asks another service, between its two transactions."""
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
        act = lock_act(uow, action_id)
        if act is None or not isinstance(act.step, Network):
            return None
        instance = act.instance
        if instance.network_call_until is not None and instance.network_call_until > uow.now:
            act.action.lease_expires_at = instance.network_call_until
            return None
        actions.extend(uow, self.engine.conf, act.action, self.engine.conf.network.call_timeout)
        if act.step.name != DISCONNECT:
            return plan(uow, self.engine.network, act.instance, act.context, Verb.DEALLOCATE)
        call = plan(uow, self.engine.network, act.instance, act.context, Verb.DETACH)
        call.vifs = [vif for vif in call.vifs if vif.id == act.action.payload[PORT_ID]]
        return call

    def _network_told(self, uow: UnitOfWork, action_id: int) -> None:
        act = lock_act(uow, action_id)
        if act is not None and isinstance(act.step, Network):
            store = networks.Store(uow)
            if act.step.name == DISCONNECT:
                rest = self.engine.network.vifs(store, act.instance.uuid)
                store.record(act.instance.uuid, [vif for vif in rest if vif.id != act.action.payload[PORT_ID]])
            else:
                self.engine.network.deallocate(store, act.instance.uuid)
                act.instance.network_call_until = None
                if self.engine.network.keeps_ports:
                    pending_attaches.drop(uow, act.instance.uuid)
            self.engine.advance(act)

    def _network_failed(self, uow: UnitOfWork, action_id: int, cause: str) -> None:
        act = lock_act(uow, action_id)
        if act is not None and isinstance(act.step, Network):
            LOG.warning("The network service could not be told about %s: %s", act.instance.uuid, cause)
            actions.back_off(uow, self.engine.conf, act.action, cause)

    def to_images(self, action_id: int) -> None:
        """The effect of an `Image` step, between its two transactions."""
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
        act = lock_act(uow, action_id)
        if act is None or not isinstance(act.step, Image):
            return None
        actions.extend(uow, self.engine.conf, act.action)
        return act.step.verb, image_calls.plan(uow, self.engine.images, act.step.verb, act.instance, act.action)

    def _image_told(self, uow: UnitOfWork, action_id: int, verb: ImageVerb, call: ImageCall, answer: Any) -> bool:
        """False: what was published is not wanted any more."""
        image_calls.drop(uow, call.gone)
        act = lock_act(uow, action_id)
        if act is None or not isinstance(act.step, Image) or act.step.verb is not verb:
            return verb not in MAKES_IMAGE or image_calls.is_wanted(uow, self.engine.images, call.image_id)
        if act.step.goes_on:
            self.engine.advance(act)
            return True
        image = image_calls.published(uow, self.engine.images, call.image_id, answer)
        if image is None:
            self.engine.fail(act, exceptions.ImageNotFound(image_id=call.image_id).message, answered=True)
            return False
        own(act.action.action).published(uow, act.instance, image)
        self.engine.done(act)
        return True

    def _image_failed(self, uow: UnitOfWork, action_id: int, error: exceptions.NovaLiteException) -> None:
        act = lock_act(uow, action_id)
        if act is None or not isinstance(act.step, Image):
            return
        LOG.warning("The image backend failed at %s of %s: %s", act.step.verb, act.action.action, error.message)
        if act.step.goes_on or isinstance(error, exceptions.ServiceUnavailable):
            actions.back_off(uow, self.engine.conf, act.action, error.message)
        else:
            self.engine.fail(act, error.message, answered=True)
