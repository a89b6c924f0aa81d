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

from nova_lite import exception, operations
from nova_lite.compute import rpcapi as compute_rpcapi
from nova_lite.compute.rpcapi import ComputeRPC
from nova_lite.conductor.rpcapi import ConductorRPC
from nova_lite.console import tokens
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

    conductor: ConductorRPC
    compute: ComputeRPC
    images: ImageBackend

    def connect(self, conductor: ConductorRPC, compute: ComputeRPC, images: ImageBackend) -> None:
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

    def accept(self, context: RequestContext, instance_uuid: str, kind: str, payload: dict[str, Any]) -> None:
        """Have an operation of `nova_lite.operations` accepted; raises 404, or 409 where its row does not allow it."""
        ticket = _again(lambda: self.conductor.accept_action(context, instance_uuid, kind, payload))
        steps = operations.get(kind, ticket.payload).steps
        if steps and isinstance(steps[0], operations.Schedule):
            _nudge(kind, [instance_uuid], lambda: self.conductor.build_instances(context, [instance_uuid]))
        elif steps:
            _nudge(kind, [instance_uuid], lambda: compute_rpcapi.send_ticket(self.compute, context, ticket))

    def delete(self, context: RequestContext, instance_uuid: str, soft: bool) -> None:
        """Have a delete accepted; ``soft``: one that can be taken back, if there is anything yet to keep."""
        kind = operations.DELETE.kind
        if soft:
            try:
                self.accept(context, instance_uuid, kind, {"soft": True})
                return
            except (exception.InstanceInvalidState, exception.InstanceNotReady) as error:
                LOG.info("Instance %s is deleted for good: %s", instance_uuid, error.message)
        self.accept(context, instance_uuid, kind, {})

    def rebuild(self, context: RequestContext, instance_uuid: str, payload: dict[str, Any]) -> Instance:
        """Have a rebuild accepted; ``payload`` is that of `nova_lite.conductor.operations.rebuild`, with images as this
        finds them. Returns the server as it is to be."""
        images = self.images.describe(context, [payload["image_ref"]])
        described = {"images": msgspec.to_builtins(images)}
        self.accept(context, instance_uuid, operations.REBUILD.kind, {**payload, **described})
        return self.conductor.instance_get(context, instance_uuid)

    def rescue(self, context: RequestContext, instance_uuid: str, image_ref: str | None, password: str) -> None:
        """Have a rescue accepted; ``image_ref`` None: with the server's own image."""
        images = {}
        if image_ref is not None:
            try:
                images = msgspec.to_builtins(self.images.describe(context, [image_ref]))
            except exception.Invalid as error:
                raise exception.UnsupportedRescueImage(image=image_ref) from error
        payload = {"image_ref": image_ref, "images": images, "admin_password": password}
        self.accept(context, instance_uuid, operations.RESCUE.kind, payload)

    def get_console_output(self, context: RequestContext, instance_uuid: str, length: int | None) -> str:
        """The last ``length`` lines of the console; None: all that is kept.

        Raises `InstanceNotReady` while there is no guest, `ComputeHostUnavailable` when its host does not answer.
        """
        instance = self.conductor.instance_get(context, instance_uuid)
        return _ask_host(instance, lambda host: self.compute.get_console_output(context, host, instance_uuid, length))

    def get_console_url(self, context: RequestContext, instance_uuid: str, protocol: str, console_type: str) -> str:
        """Where a browser (or a program) opens the console, once and soon.

        Raises `ConsoleTypeInvalid`, `ConsoleTypeUnavailable`, `InstanceInvalidState` unless the guest runs, and what
        `get_console_output` raises. The token in it is told to nobody else: the conductor knows its hash.
        """
        instance = self.conductor.instance_get(context, instance_uuid)
        asked = {"vnc": self.compute.get_vnc_console, "serial": self.compute.get_serial_console}.get(protocol)
        if asked is None:
            raise exception.ConsoleTypeUnavailable(console_type=console_type)
        console = _ask_host(instance, lambda host: asked(context, host, instance_uuid, console_type))
        token = tokens.new()
        self.conductor.console_token_create(context, instance_uuid, str(instance.host), tokens.digest(token), console)
        return tokens.url(console, token)

    def get_diagnostics(self, context: RequestContext, instance_uuid: str) -> tuple[Instance, Diagnostics]:
        """The server and what its hypervisor tells of it.

        Raises `InstanceInvalidState` unless it runs, and what `get_console_output` raises.
        """
        instance = self.conductor.instance_get(context, instance_uuid)
        return instance, _ask_host(
            instance, lambda host: self.compute.get_instance_diagnostics(context, host, instance_uuid)
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
