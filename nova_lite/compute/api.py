"""The API side of operations on servers. It runs in the API daemon, as Nova's ``compute/api.py`` does.

Most methods request an operation from the conductor. Some query a host.

The conductor accepts an operation in one call and one transaction, so a 202 is final. The cast that follows is a
wake-up for the conductor or the host. If it fails, the reconciler starts the action later.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import oslo_messaging as messaging

from nova_lite import operations
from nova_lite.base import exceptions
from nova_lite.base.batching import Batcher
from nova_lite.base.context import RequestContext
from nova_lite.base.timing import TIMING, ApiTiming
from nova_lite.console import tokens
from nova_lite.image.driver import ImageBackend
from nova_lite.objects import (
    VIF,
    ActionCommand,
    BatchedCreate,
    BatchedDelete,
    CreateRequest,
    CreateResult,
    Diagnostics,
    Instance,
    NetworkRequest,
    UsageHistory,
)
from nova_lite.operations import states
from nova_lite.rpcapi import compute as compute_rpcapi
from nova_lite.rpcapi.compute import ComputeRPC
from nova_lite.rpcapi.conductor import ConductorRPC

if TYPE_CHECKING:
    from nova_lite.compute.user_volumes import UserVolumes

LOG = logging.getLogger(__name__)

T = TypeVar("T")

#: Total attempts of a call that times out. The request id makes a repeated call harmless.
ATTEMPTS = 2

#: Longest user data, in characters, of a create that is batched: `max_batch` of them have to fit into one message.
MAX_USER_DATA = 4096


class API:
    """Operations on servers.

    - ``conductor``, ``compute``: the RPC clients.
    - ``images``: the image backend.
    - ``volumes``: requests to Cinder in the user's name. None: the conductor owns the volumes.
    - ``batch_creates``: creates that wait at the same time share messages.

    `connect` sets them after a fork, when the process may open connections.
    """

    conductor: ConductorRPC
    compute: ComputeRPC
    images: ImageBackend
    volumes: UserVolumes | None = None
    batch_creates: bool = True

    def __init__(self, timing: ApiTiming = TIMING.api) -> None:
        self.timing = timing
        self._creates: Batcher[tuple[RequestContext, CreateRequest], CreateResult | None] = Batcher(
            self._create_batch, timing.create_batches
        )
        self._deletes: Batcher[tuple[RequestContext, str], bool] = Batcher(self._delete_batch, timing.delete_batches)

    def connect(
        self,
        conductor: ConductorRPC,
        compute: ComputeRPC,
        images: ImageBackend,
        volumes: UserVolumes | None = None,
        batch_creates: bool = True,
    ) -> None:
        self.conductor = conductor
        self.compute = compute
        self.images = images
        self.volumes = volumes
        self.batch_creates = batch_creates

    def create(self, context: RequestContext, request: CreateRequest) -> CreateResult:
        """Request new servers. They have the status BUILD, and later become ACTIVE or ERROR."""
        if self.volumes is not None and request.block_devices:
            volumes = self.volumes.describe(context, request.block_devices)
            request = msgspec.structs.replace(request, volumes=volumes)
        image_ids = [request.image_ref] if request.image_ref else []
        image_ids += [device.image_id for device in request.block_devices if device.image_id is not None]
        for volume in request.volumes.values():
            if volume.image:
                image_ids += [part_id for _, part_id in volume.image.boot_parts()]
        if image_ids:
            images = self.images.describe(context, list(dict.fromkeys(image_ids)))
            request = msgspec.structs.replace(request, images=images)
        if self.batch_creates and self._is_small(request):
            result = self._creates.submit((context, request))
            if result is not None:
                return result
        result = _call_with_retry(lambda: self.conductor.create_instances(context, request))
        if self.volumes is not None and not result.earlier:
            self.volumes.create(context, result.instances)
        self._build(context, [result])
        return result

    def clone(self, context: RequestContext, request: CreateRequest) -> Instance:
        """Request a clone of the server ``request.clone_of``. Its build begins when its source's host has reported."""
        return _call_with_retry(lambda: self.conductor.create_instances(context, request)).instances[0]

    def _is_small(self, request: CreateRequest) -> bool:
        needs_cinder = self.volumes is not None and bool(request.block_devices)
        is_short = not request.injected_files and len(request.user_data or "") <= MAX_USER_DATA
        return request.max_count == 1 and is_short and not needs_cinder

    def _create_batch(self, requests: list[tuple[RequestContext, CreateRequest]]) -> list[CreateResult | None]:
        """Request servers by one message, and their builds by another one.

        Return None for a create that its caller has to request alone, which tells why it is refused.
        """
        first, request = requests[0]
        results: list[CreateResult | None]
        if len(requests) == 1:
            results = [_call_with_retry(lambda: self.conductor.create_instances(first, request))]
        else:
            creates = [BatchedCreate(context=context.to_rpc(), request=request) for context, request in requests]
            results = _call_with_retry(lambda: self.conductor.create_instances_batch(first, creates))
        accepted = [(context, result) for (context, _), result in zip(requests, results, strict=True) if result]
        if accepted:
            self._build(accepted[0][0], [result for _, result in accepted])
        return results

    def _build(self, context: RequestContext, results: list[CreateResult]) -> None:
        """Send the wake-up for new servers. ``context``: of the first one."""
        uuids = [instance.uuid for result in results for instance in result.instances]
        _send_wake_up("build_instances", uuids, lambda: self.conductor.build_instances(context, uuids))

    def accept(self, context: RequestContext, instance_uuid: str, kind: str, payload: dict[str, Any]) -> ActionCommand:
        """Request an operation of `nova_lite.operations`. Return its first command.

        Raises `NotFound`, or `Conflict` if the server's state does not allow the operation.
        """
        command = _call_with_retry(lambda: self.conductor.accept_action(context, instance_uuid, kind, payload))
        steps = operations.get(kind, command.payload).steps
        if steps and isinstance(steps[0], operations.ScheduleStep):
            _send_wake_up(kind, [instance_uuid], lambda: self.conductor.build_instances(context, [instance_uuid]))
        elif steps:
            _send_wake_up(kind, [instance_uuid], lambda: compute_rpcapi.send_command(self.compute, context, command))
        return command

    def accept_volume_snapshot(
        self, context: RequestContext, volume_id: str, kind: str, payload: dict[str, Any]
    ) -> None:
        """Request work on the files of a volume, for Cinder, at the server that has it. Raises a 4xx."""
        command = _call_with_retry(lambda: self.conductor.accept_volume_snapshot(context, volume_id, kind, payload))
        uuids = [command.instance.uuid]
        _send_wake_up(kind, uuids, lambda: compute_rpcapi.send_command(self.compute, context, command))

    def delete(self, context: RequestContext, instance_uuid: str, soft: bool) -> None:
        """Request a delete. ``soft``: the server can be restored, unless it has nothing to keep yet."""
        kind = operations.DELETE.kind
        if soft:
            try:
                self.accept(context, instance_uuid, kind, {"soft": True})
                return
            except (exceptions.InstanceInvalidState, exceptions.InstanceNotReady) as error:
                LOG.info("Instance %s is deleted permanently: %s", instance_uuid, error.message)
        if not self._deletes.submit((context, instance_uuid)):
            self.accept(context, instance_uuid, kind, {})

    def _delete_batch(self, requests: list[tuple[RequestContext, str]]) -> list[bool]:
        """Request deletes by one message, and send one command to each host.

        Return False for a delete that its caller has to request alone, which tells why it is refused.
        """
        if len(requests) == 1:
            self.accept(*requests[0], operations.DELETE.kind, {})
            return [True]
        first, _ = requests[0]
        deletes = [BatchedDelete(context=context.to_rpc(), instance_uuid=uuid) for context, uuid in requests]
        commands = _call_with_retry(lambda: self.conductor.delete_instances_batch(first, deletes))
        of_hosts: dict[str, list[tuple[RequestContext, ActionCommand]]] = {}
        for (context, _), command in zip(requests, commands, strict=True):
            if command is not None and command.host is not None:
                of_hosts.setdefault(command.host, []).append((context, command))
        for host, of_host in of_hosts.items():
            uuids = [command.instance.uuid for _, command in of_host]
            _send_wake_up("delete", uuids, functools.partial(self._send_deletes, host, of_host))
        return [command is not None for command in commands]

    def _send_deletes(self, host: str, commands: list[tuple[RequestContext, ActionCommand]]) -> None:
        if len(commands) == 1:
            compute_rpcapi.send_command(self.compute, *commands[0])
        else:
            self.compute.terminate_instances(commands[0][0], host, [command for _, command in commands])

    def rebuild(self, context: RequestContext, instance_uuid: str, payload: dict[str, Any]) -> Instance:
        """Request a rebuild. Return the server in its new form.

        ``payload`` is described in `nova_lite.conductor.operations.rebuild`. This method adds the images.
        """
        images = self.images.describe(context, [payload["image_ref"]])
        payload = {**payload, "images": msgspec.to_builtins(images)}
        self.accept(context, instance_uuid, operations.REBUILD.kind, payload)
        return self.conductor.instance_get(context, instance_uuid)

    def rescue(
        self,
        context: RequestContext,
        instance_uuid: str,
        image_ref: str | None,
        password: str,
        allow_bfv_rescue: bool = False,
    ) -> None:
        """Request a rescue.

        ``image_ref``: the rescue image. None: the server's own image.
        ``allow_bfv_rescue``: allow the rescue of a server that boots from a volume.
        """
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
        """Request the attachment of a volume.

        ``payload`` is described in `nova_lite.conductor.operations.volumes`. This method adds Cinder's description of
        the volume. Raises `VolumeNotFound` or `InvalidVolume`.
        """
        if self.volumes is not None:
            volume = self.volumes.attachable(context, payload["volume_id"])
            payload = {**payload, "volume": msgspec.to_builtins(volume)}
        return self._accept_device_change(context, instance_uuid, operations.ATTACH_VOLUME.kind, payload).instance

    def detach_volume(self, context: RequestContext, instance_uuid: str, volume_id: str) -> None:
        """Request the detachment of a volume. Raises `VolumeBDMNotFound`."""
        payload = {"volume_id": volume_id}
        self._accept_device_change(context, instance_uuid, operations.DETACH_VOLUME.kind, payload)

    def attach_interface(
        self, context: RequestContext, instance_uuid: str, request: NetworkRequest
    ) -> tuple[Instance, VIF]:
        """Request the attachment of an interface. Return the server and the new interface."""
        payload = {"request": msgspec.to_builtins(request)}
        command = self._accept_device_change(context, instance_uuid, operations.ATTACH_INTERFACE.kind, payload)
        port_id = command.payload["port_id"]
        for vif in command.instance.vifs:
            if vif.id == port_id:
                return command.instance, vif
        raise exceptions.PortNotFound(port_id=port_id, instance_id=instance_uuid)

    def detach_interface(self, context: RequestContext, instance_uuid: str, port_id: str) -> None:
        """Request the detachment of an interface. Raises `PortNotFound`."""
        self._accept_device_change(context, instance_uuid, operations.DETACH_INTERFACE.kind, {"port_id": port_id})

    def attach_share(self, context: RequestContext, instance_uuid: str, share_id: str, tag: str) -> Instance:
        """Request the attachment of a share to a server that is off.

        Raises `ShareNotFound`, `ShareMappingAlreadyExists` or `SharesNotSupported`.
        """
        payload = {"share_id": share_id, "tag": tag}
        return self._accept_device_change(context, instance_uuid, operations.ATTACH_SHARE.kind, payload).instance

    def detach_share(self, context: RequestContext, instance_uuid: str, share_id: str) -> None:
        """Request the detachment of a share. Raises `ShareNotFound`."""
        self._accept_device_change(context, instance_uuid, operations.DETACH_SHARE.kind, {"share_id": share_id})

    def _accept_device_change(
        self, context: RequestContext, instance_uuid: str, kind: str, payload: dict[str, Any]
    ) -> ActionCommand:
        """Request a change of an interface, volume or share, after earlier ones of the same server have finished.

        Clients send several such requests at a time. Raises the 409 if the earlier changes take too long.
        """
        deadline = time.monotonic() + self.timing.device_wait
        while True:
            try:
                return self.accept(context, instance_uuid, kind, payload)
            except exceptions.InstanceInvalidState as error:
                if error.kwargs.get("state") not in states.CHANGING_DEVICES or time.monotonic() >= deadline:
                    raise
            time.sleep(self.timing.device_poll)

    def get_console_output(self, context: RequestContext, instance_uuid: str, length: int | None) -> str:
        """Return the last ``length`` lines of the console log. None: all stored lines.

        Raises `InstanceNotReady` if there is no guest, and `ComputeHostUnavailable` if its host does not reply.
        """
        instance = self.conductor.instance_get(context, instance_uuid)
        return _call_host(instance, lambda host: self.compute.get_console_output(context, host, instance_uuid, length))

    def get_console_url(self, context: RequestContext, instance_uuid: str, protocol: str, console_type: str) -> str:
        """Return the URL at which a browser or program can open the console, for a limited time.

        Raises `ConsoleTypeInvalid`, `ConsoleTypeUnavailable`, `InstanceInvalidState` if the guest does not run, and the
        errors of `get_console_output`. The URL contains a token. The conductor stores only the token's hash.
        """
        instance = self.conductor.instance_get(context, instance_uuid)
        get_console = {
            "vnc": self.compute.get_vnc_console,
            "serial": self.compute.get_serial_console,
            "spice": self.compute.get_spice_console,
        }.get(protocol)
        if get_console is None:
            raise exceptions.ConsoleTypeUnavailable(console_type=console_type)
        console = _call_host(instance, lambda host: get_console(context, host, instance_uuid, console_type))
        token = tokens.new()
        self.conductor.console_token_create(context, instance_uuid, str(instance.host), tokens.digest(token), console)
        return tokens.url(console, token)

    def get_diagnostics(self, context: RequestContext, instance_uuid: str) -> tuple[Instance, Diagnostics]:
        """Return the server, and the diagnostics that its hypervisor reports.

        Raises `InstanceInvalidState` if the server does not run, and the errors of `get_console_output`.
        """
        instance = self.conductor.instance_get(context, instance_uuid)
        return instance, _call_host(
            instance, lambda host: self.compute.get_instance_diagnostics(context, host, instance_uuid)
        )

    def get_usage_history(
        self, context: RequestContext, instance_uuid: str, span: str
    ) -> tuple[Instance, UsageHistory]:
        """Return the server, and what it has used on its host. Raises the errors of `get_console_output`."""
        instance = self.conductor.instance_get(context, instance_uuid)
        return instance, _call_host(
            instance, lambda host: self.compute.get_usage_history(context, host, instance_uuid, span)
        )

    def get_host_usage_history(self, context: RequestContext, host: str, span: str) -> UsageHistory:
        """Return what a host has used. Raises `ComputeHostUnavailable` if it does not reply."""
        try:
            return self.compute.get_usage_history(context, host, None, span)
        except exceptions.MessagingUnavailable as error:
            raise exceptions.ComputeHostUnavailable(host=host) from error


def _call_host(instance: Instance, call: Callable[[str], T]) -> T:
    """Call the instance's host, unless it is known to be down."""
    host = instance.host
    if host is None:
        raise exceptions.InstanceNotReady(instance_id=instance.uuid)
    if instance.host_status in ("DOWN", "UNKNOWN"):
        raise exceptions.ComputeHostUnavailable(host=host)
    try:
        return call(host)
    except exceptions.MessagingUnavailable as error:
        raise exceptions.ComputeHostUnavailable(host=host) from error
    except exceptions.DomainNotFound as error:
        raise exceptions.InstanceNotReady(instance_id=instance.uuid) from error


def _call_with_retry(call: Callable[[], T]) -> T:
    """Call, and retry after a timeout. An unavailable broker is not tried again."""
    for _ in range(ATTEMPTS - 1):
        try:
            return call()
        except exceptions.MessagingUnavailable as error:
            if not isinstance(error.__cause__, messaging.MessagingTimeout):
                raise
    return call()


def _send_wake_up(what: str, instance_uuids: list[str], cast: Callable[[], None]) -> None:
    """Send a cast. A failure is logged only, because the reconciler replaces the cast."""
    try:
        cast()
    except exceptions.ServiceUnavailable as error:
        LOG.warning(
            "%s of %s is accepted, but the wake-up could not be sent (%s); the reconciler will start it.",
            what,
            ", ".join(instance_uuids),
            error.message,
        )
