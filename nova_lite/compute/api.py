"""What the REST layer calls to have something done to servers.

Accepting is the conductor's: one call, one transaction, and the answer is true from then on. The cast that follows is a
nudge; when it cannot be sent, the conductor's reconciler picks the action up a little later.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import oslo_messaging as messaging

from nova_lite import operations
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.compute import rpcapi as compute_rpcapi
from nova_lite.compute.rpcapi import ComputeRPC
from nova_lite.conductor.rpcapi import ConductorRPC
from nova_lite.console import tokens
from nova_lite.image.driver import ImageBackend
from nova_lite.objects import VIF, ActionCommand, CreateRequest, CreateResult, Diagnostics, Instance, NetworkRequest
from nova_lite.operations import states

if TYPE_CHECKING:
    from nova_lite.compute.user_volumes import UserVolumes

LOG = logging.getLogger(__name__)

T = TypeVar("T")

#: How often a call whose answer did not come is made, in all. The request id makes a repeated one harmless.
ATTEMPTS = 2

#: How long a request waits for its turn while another one of its kind is under way, and between two looks, in seconds.
IN_TURN_SECONDS, IN_TURN_POLL_SECONDS = 30.0, 0.3


class API:
    """``conductor`` and ``compute`` are the RPC clients, ``images`` the source of images, ``volumes`` what is asked of
    Cinder (None: volumes are the conductor's); `connect` sets them once the process may talk to others (after a
    fork)."""

    conductor: ConductorRPC
    compute: ComputeRPC
    images: ImageBackend
    volumes: UserVolumes | None = None

    def connect(
        self,
        conductor: ConductorRPC,
        compute: ComputeRPC,
        images: ImageBackend,
        volumes: UserVolumes | None = None,
    ) -> None:
        self.conductor = conductor
        self.compute = compute
        self.images = images
        self.volumes = volumes

    def create(self, context: RequestContext, request: CreateRequest) -> CreateResult:
        """Servers that are accepted; they are BUILD now, and ACTIVE or ERROR in the end."""
        if self.volumes is not None and request.block_devices:
            known = self.volumes.describe(context, request.block_devices)
            request = msgspec.structs.replace(request, volumes=known)
        parts = [part_id for each in request.volumes.values() if each.image for _, part_id in each.image.boot_parts()]
        named = [each.image_id for each in request.block_devices if each.image_id is not None]
        if request.image_ref or named or parts:
            wanted = dict.fromkeys([*filter(None, [request.image_ref]), *named, *parts])
            images = self.images.describe(context, list(wanted))
            request = msgspec.structs.replace(request, images=images)
        result = _call_with_retry(lambda: self.conductor.create_instances(context, request))
        if self.volumes is not None and not result.earlier:
            self.volumes.make(context, result.instances)
        uuids = [instance.uuid for instance in result.instances]
        if not result.dispatched:
            _send_wake_up("build_instances", uuids, lambda: self.conductor.build_instances(context, uuids))
        return result

    def accept(self, context: RequestContext, instance_uuid: str, kind: str, payload: dict[str, Any]) -> ActionCommand:
        """Have an operation of `nova_lite.operations` accepted; raises 404, or 409 where its row does not allow it."""
        ticket = _call_with_retry(lambda: self.conductor.accept_action(context, instance_uuid, kind, payload))
        steps = operations.get(kind, ticket.payload).steps
        if steps and isinstance(steps[0], operations.ScheduleStep):
            _send_wake_up(kind, [instance_uuid], lambda: self.conductor.build_instances(context, [instance_uuid]))
        elif steps:
            _send_wake_up(kind, [instance_uuid], lambda: compute_rpcapi.send_command(self.compute, context, ticket))
        return ticket

    def delete(self, context: RequestContext, instance_uuid: str, soft: bool) -> None:
        """Have a delete accepted; ``soft``: one that can be taken back, if there is anything yet to keep."""
        kind = operations.DELETE.kind
        if soft:
            try:
                self.accept(context, instance_uuid, kind, {"soft": True})
                return
            except (exceptions.InstanceInvalidState, exceptions.InstanceNotReady) as error:
                LOG.info("Instance %s is deleted for good: %s", instance_uuid, error.message)
        self.accept(context, instance_uuid, kind, {})

    def rebuild(self, context: RequestContext, instance_uuid: str, payload: dict[str, Any]) -> Instance:
        """Have a rebuild accepted; ``payload`` is that of `nova_lite.conductor.operations.rebuild`, with images as this
        finds them. Returns the server as it is to be."""
        images = self.images.describe(context, [payload["image_ref"]])
        described = {"images": msgspec.to_builtins(images)}
        self.accept(context, instance_uuid, operations.REBUILD.kind, {**payload, **described})
        return self.conductor.instance_get(context, instance_uuid)

    def rescue(
        self,
        context: RequestContext,
        instance_uuid: str,
        image_ref: str | None,
        password: str,
        allow_bfv_rescue: bool = False,
    ) -> None:
        """Have a rescue accepted; ``image_ref`` None: with the server's own image. ``allow_bfv_rescue``: also one that
        boots from a volume."""
        images = {}
        if image_ref is not None:
            try:
                images = msgspec.to_builtins(self.images.describe(context, [image_ref]))
            except exceptions.Invalid as error:
                raise exceptions.UnsupportedRescueImage(image=image_ref) from error
        payload = {
            "image_ref": image_ref,
            "images": images,
            "admin_password": password,
            "allow_bfv_rescue": allow_bfv_rescue,
        }
        self.accept(context, instance_uuid, operations.RESCUE.kind, payload)

    def attach_volume(self, context: RequestContext, instance_uuid: str, payload: dict[str, Any]) -> Instance:
        """Have an attachment accepted; ``payload`` is that of `nova_lite.conductor.operations.volumes`, but for what
        Cinder says. Raises `VolumeNotFound`, `InvalidVolume`."""
        if self.volumes is not None:
            volume = self.volumes.attachable(context, payload["volume_id"])
            payload = {**payload, "volume": msgspec.to_builtins(volume)}
        return self.accept(context, instance_uuid, operations.ATTACH_VOLUME.kind, payload).instance

    def attach_interface(
        self, context: RequestContext, instance_uuid: str, request: NetworkRequest
    ) -> tuple[Instance, VIF]:
        """Have another interface accepted; the server, and the interface as it is to be."""
        payload = {"request": msgspec.to_builtins(request)}
        ticket = self._in_turn(context, instance_uuid, operations.ATTACH_INTERFACE.kind, payload)
        port_id = ticket.payload["port_id"]
        for vif in ticket.instance.vifs:
            if vif.id == port_id:
                return ticket.instance, vif
        raise exceptions.PortNotFound(port_id=port_id, instance_id=instance_uuid)

    def detach_interface(self, context: RequestContext, instance_uuid: str, port_id: str) -> None:
        """Raises `PortNotFound`."""
        self._in_turn(context, instance_uuid, operations.DETACH_INTERFACE.kind, {"port_id": port_id})

    def _in_turn(
        self, context: RequestContext, instance_uuid: str, kind: str, payload: dict[str, Any]
    ) -> ActionCommand:
        """Accept what clients ask for several at a time of one server: while another one is under way it waits, for as
        long as a client does. Then that is the 409 that it is."""
        deadline = time.monotonic() + IN_TURN_SECONDS
        while True:
            try:
                return self.accept(context, instance_uuid, kind, payload)
            except exceptions.InstanceInvalidState as error:
                waits = error.kwargs.get("state") in (states.ATTACHING_INTERFACE, states.DETACHING_INTERFACE)
                if not waits or time.monotonic() >= deadline:
                    raise
            time.sleep(IN_TURN_POLL_SECONDS)

    def get_console_output(self, context: RequestContext, instance_uuid: str, length: int | None) -> str:
        """The last ``length`` lines of the console; None: all that is kept.

        Raises `InstanceNotReady` while there is no guest, `ComputeHostUnavailable` when its host does not answer.
        """
        instance = self.conductor.instance_get(context, instance_uuid)
        return _call_host(instance, lambda host: self.compute.get_console_output(context, host, instance_uuid, length))

    def get_console_url(self, context: RequestContext, instance_uuid: str, protocol: str, console_type: str) -> str:
        """Where a browser (or a program) opens the console, once and soon.

        Raises `ConsoleTypeInvalid`, `ConsoleTypeUnavailable`, `InstanceInvalidState` unless the guest runs, and what
        `get_console_output` raises. The token in it is told to nobody else: the conductor knows its hash.
        """
        instance = self.conductor.instance_get(context, instance_uuid)
        asked = {"vnc": self.compute.get_vnc_console, "serial": self.compute.get_serial_console}.get(protocol)
        if asked is None:
            raise exceptions.ConsoleTypeUnavailable(console_type=console_type)
        console = _call_host(instance, lambda host: asked(context, host, instance_uuid, console_type))
        token = tokens.new()
        self.conductor.console_token_create(context, instance_uuid, str(instance.host), tokens.digest(token), console)
        return tokens.url(console, token)

    def get_diagnostics(self, context: RequestContext, instance_uuid: str) -> tuple[Instance, Diagnostics]:
        """The server and what its hypervisor tells of it.

        Raises `InstanceInvalidState` unless it runs, and what `get_console_output` raises.
        """
        instance = self.conductor.instance_get(context, instance_uuid)
        return instance, _call_host(
            instance, lambda host: self.compute.get_instance_diagnostics(context, host, instance_uuid)
        )


def _call_host(instance: Instance, ask: Callable[[str], T]) -> T:
    """Ask the instance's host for what only it knows, if it can be expected to answer."""
    host = instance.host
    if host is None:
        raise exceptions.InstanceNotReady(instance_id=instance.uuid)
    if instance.host_status in ("DOWN", "UNKNOWN"):
        raise exceptions.ComputeHostUnavailable(host=host)
    try:
        return ask(host)
    except exceptions.MessagingUnavailable as error:
        raise exceptions.ComputeHostUnavailable(host=host) from error
    except exceptions.DomainNotFound as error:
        raise exceptions.InstanceNotReady(instance_id=instance.uuid) from error


def _call_with_retry(call: Callable[[], T]) -> T:
    """Make the call once more when no answer came in time. A broker that is not there is not asked again."""
    for _ in range(ATTEMPTS - 1):
        try:
            return call()
        except exceptions.MessagingUnavailable as error:
            if not isinstance(error.__cause__, messaging.MessagingTimeout):
                raise
    return call()


def _send_wake_up(what: str, instance_uuids: list[str], cast: Callable[[], None]) -> None:
    try:
        cast()
    except (exceptions.MessagingUnavailable, exceptions.ServiceTooOld) as error:
        LOG.warning(
            "%s of %s is accepted but could not be sent on (%s); the conductor will drive it.",
            what,
            ", ".join(instance_uuids),
            error.message,
        )
