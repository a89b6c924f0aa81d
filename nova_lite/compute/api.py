"""What the REST layer calls to have something done to servers.

Accepting is the conductor's: one call, one transaction, and the answer is true from then on. The cast that follows is a
nudge; when it cannot be sent, the conductor's reconciler picks the action up a little later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import oslo_messaging as messaging

from nova_lite import exception, states
from nova_lite.compute import rpcapi as compute_rpcapi
from nova_lite.compute.rpcapi import ComputeAPI
from nova_lite.conductor.rpcapi import ConductorAPI
from nova_lite.context import RequestContext
from nova_lite.image.driver import ImageBackend
from nova_lite.objects import CreateRequest, CreateResult, Diagnostics, Instance

LOG = logging.getLogger(__name__)

T = TypeVar("T")

#: How often a call whose answer did not come is made, in all. The request id makes a repeated one harmless.
ATTEMPTS = 2


class API:
    """``conductor`` and ``compute`` are the RPC clients, ``images`` the source of images; `connect` sets them once the
    process may talk to others (after a fork)."""

    conductor: ConductorAPI
    compute: ComputeAPI
    images: ImageBackend

    def connect(self, conductor: ConductorAPI, compute: ComputeAPI, images: ImageBackend) -> None:
        self.conductor = conductor
        self.compute = compute
        self.images = images

    def create(self, context: RequestContext, request: CreateRequest) -> CreateResult:
        """Servers that are accepted; they are BUILD now, and ACTIVE or ERROR in the end."""
        if request.image_ref:
            images = self.images.describe(context, [request.image_ref])
            request = msgspec.structs.replace(request, images=images)
        result = _again(lambda: self.conductor.create_instances(context, request))
        uuids = [instance.uuid for instance in result.instances]
        _nudge("build_instances", uuids, lambda: self.conductor.build_instances(context, uuids))
        return result

    def delete(self, context: RequestContext, instance_uuid: str) -> None:
        self._act(context, instance_uuid, states.ActionKind.DELETE)

    def start(self, context: RequestContext, instance_uuid: str) -> None:
        self._act(context, instance_uuid, states.ActionKind.START)

    def stop(self, context: RequestContext, instance_uuid: str) -> None:
        self._act(context, instance_uuid, states.ActionKind.STOP)

    def reboot(self, context: RequestContext, instance_uuid: str, reboot_type: str) -> None:
        """``reboot_type``: SOFT asks the guest, HARD cuts its power."""
        self._act(context, instance_uuid, states.ActionKind.REBOOT, {"reboot_type": reboot_type})

    def evacuate(
        self,
        context: RequestContext,
        instance_uuid: str,
        host: str | None,
        forced: bool,
        admin_password: str | None,
        stopped: bool,
    ) -> None:
        """Build the server anew elsewhere: on ``host`` (``forced``: past the filters), or where the scheduler says.
        ``stopped``: it is off in the end, even if it ran. Raises `HostNotForcedDown` unless the host that it is on is
        out of service for sure."""
        payload = {"host": host, "forced": forced, "admin_password": admin_password, "stopped": stopped}
        kind = states.ActionKind.EVACUATE.value
        _again(lambda: self.conductor.accept_action(context, instance_uuid, kind, payload))
        _nudge(kind, [instance_uuid], lambda: self.conductor.build_instances(context, [instance_uuid]))

    def get_console_output(self, context: RequestContext, instance_uuid: str, length: int | None) -> str:
        """The last ``length`` lines of the console; None: all that is kept.

        Raises `InstanceNotReady` while there is no guest, `ComputeHostUnavailable` when its host does not answer.
        """
        instance = self.conductor.instance_get(context, instance_uuid)
        return _ask_host(instance, lambda host: self.compute.get_console_output(context, host, instance_uuid, length))

    def get_diagnostics(self, context: RequestContext, instance_uuid: str) -> tuple[Instance, Diagnostics]:
        """The server and what its hypervisor tells of it.

        Raises `InstanceInvalidState` unless it runs, and what `get_console_output` raises.
        """
        instance = self.conductor.instance_get(context, instance_uuid)
        return instance, _ask_host(
            instance, lambda host: self.compute.get_instance_diagnostics(context, host, instance_uuid)
        )

    def _act(
        self,
        context: RequestContext,
        instance_uuid: str,
        action: states.ActionKind,
        payload: dict[str, Any] | None = None,
    ) -> None:
        ticket = _again(lambda: self.conductor.accept_action(context, instance_uuid, action.value, payload or {}))
        _nudge(
            action.value,
            [instance_uuid],
            lambda: compute_rpcapi.send_ticket(self.compute, context, ticket),
        )


def _ask_host(instance: Instance, ask: Callable[[str], T]) -> T:
    """Ask the instance's host for what only it knows, if it can be expected to answer."""
    host = instance.host
    if host is None:
        raise exception.InstanceNotReady(instance_id=instance.uuid)
    if instance.host_status in ("DOWN", "UNKNOWN"):
        raise exception.ComputeHostUnavailable(host=host)
    try:
        return ask(host)
    except exception.MessagingUnavailable as error:
        raise exception.ComputeHostUnavailable(host=host) from error
    except exception.DomainNotFound as error:
        raise exception.InstanceNotReady(instance_id=instance.uuid) from error


def _again(call: Callable[[], T]) -> T:
    """Make the call once more when no answer came in time. A broker that is not there is not asked again."""
    for _ in range(ATTEMPTS - 1):
        try:
            return call()
        except exception.MessagingUnavailable as error:
            if not isinstance(error.__cause__, messaging.MessagingTimeout):
                raise
    return call()


def _nudge(what: str, instance_uuids: list[str], cast: Callable[[], None]) -> None:
    try:
        cast()
    except (exception.MessagingUnavailable, exception.ServiceTooOld) as error:
        LOG.warning(
            "%s of %s is accepted but could not be sent on (%s); the conductor will drive it.",
            what,
            ", ".join(instance_uuids),
            error.message,
        )
