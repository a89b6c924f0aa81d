"""A build on this host, from the command to the report."""

from __future__ import annotations

import base64
import binascii
import contextlib
import logging
import threading
import time
import traceback
from collections.abc import Callable

from nova_lite import hardware
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.compute.build_slots import BuildSlots
from nova_lite.compute.claims import Resources
from nova_lite.compute.host import LocalHost
from nova_lite.compute.operations import interfaces
from nova_lite.compute.registration import Registration
from nova_lite.compute.reports import Stopping, exception_message
from nova_lite.objects import VIF, BuildOutcome, BuildRequest, BuildResult, GuestReport, Instance, block_device
from nova_lite.virt.abilities import DomainInfo, SpawnSpec

LOG = logging.getLogger(__name__)


#: Failures that would occur on other hosts as well. Any other failure of a driver may be specific to this host.
ABORTING_DRIVER_ERRORS = (exceptions.ImageGone, exceptions.ConfigDriveInvalid)

#: The conductor rejects the work or its report: remove the instance, no conductor waits for a report.
UNWANTED = (exceptions.StaleReport, exceptions.InstanceGone, exceptions.InstanceNotFound)


class Builder:
    """Builds instances, as many at a time as there are ``slots``.

    ``on_plugged`` is called with an instance whose interfaces are new, so that its port filters are queried.
    """

    def __init__(
        self,
        host: LocalHost,
        registration: Registration,
        on_plugged: Callable[[Instance], None],
        slots: BuildSlots,
    ) -> None:
        self._host = host
        self._registration = registration
        self._on_plugged = on_plugged
        self._slots = slots
        self._under_way: dict[tuple[str, int], tuple[RequestContext, BuildRequest]] = {}

    def run(self, context: RequestContext, request: BuildRequest) -> None:
        """Build, undo a failure, and report. This is the whole job, in its own thread.

        The slot is acquired before the lock, so that a waiting build does not block a delete. The lock is released
        before the report, which may take as long as the control plane is unavailable.
        """
        uuid = request.instance.uuid
        key = (uuid, request.generation)
        self._under_way[key] = (context, request)
        try:
            if not self._host.is_hypervisor_up():
                self._abandon(context, request)
                return
            with self._slots.hold(), self._host.jobs.locks.hold(uuid):
                result = self._attempt(context, request)
            if result is not None:
                self._report(context, request, result)
        except exceptions.Fenced as error:
            LOG.info("Instance %s: build of generation %d dropped: %s", uuid, request.generation, error.message)
        finally:
            self._under_way.pop(key, None)

    def abandon_waiting_builds(self) -> None:
        """Leave builds that have not created a domain to other hosts, because the hypervisor does not respond.

        The thread of such a build may hang. When it continues, it finds its generation revoked.
        """
        for context, request in list(self._under_way.values()):
            name = f"give-up-{request.instance.uuid}"
            threading.Thread(target=self._abandon, args=(context, request), name=name, daemon=True).start()

    def _abandon(self, context: RequestContext, request: BuildRequest) -> None:
        """Revoke and report a build without the hypervisor. Do nothing if a domain may exist, since its state is
        unknown."""
        message = f"The hypervisor of host {self._host.name} does not answer."
        result = self._host.fencing.revoke_failed_build_unless_created(
            self._result(request, BuildOutcome.RESCHEDULED, message=message)
        )
        if result is None:
            return
        LOG.warning("Instance %s: generation %d is left to another host", result.instance_uuid, result.generation)
        with contextlib.suppress(Stopping, exceptions.Fenced):
            self._report(context, request, result)

    def _attempt(self, context: RequestContext, request: BuildRequest) -> BuildResult | None:
        """Return the result to report, if any. Unless it is BUILT, nothing of the instance is left here."""
        host, uuid, generation = self._host, request.instance.uuid, request.generation
        record = host.fencing.get(uuid)
        if not record.is_build_in_order(request.action_id):
            if not host.is_command_open(uuid, request.action_id, None, request.request_id):
                raise exceptions.Fenced(f"Instance {uuid}: action {request.action_id} ended before its build arrived.")
            host.fencing.admit(uuid, request.action_id, request_id=request.request_id, is_open=True)
        found = self._find(uuid)
        if found is not None and found.generation > generation:
            raise exceptions.Fenced(f"Instance {uuid} is here at generation {found.generation}.")
        if generation <= record.revoked_generation and not self._is_finished(found, generation):
            return self._repeat_failure(request)
        if found is not None:
            if self._is_finished(found, generation):
                return self._built(request, int(found.power_state))
            LOG.info("Instance %s: removing the remains of generation %d", uuid, found.generation)
            host.remove_with_retries(uuid)
        try:
            return self._build_or_undo(context, request, exceptions.HypervisorUnavailable)
        except exceptions.HypervisorUnavailable as error:
            self._slots.reduce("its connection broke")
            LOG.warning("Instance %s: building generation %d again here: %s", uuid, generation, error.message)
        return self._build_or_undo(context, request)

    def _find(self, instance_uuid: str) -> DomainInfo | None:
        """Return the instance's domain, if any. Without the hypervisor, rely on the fencing token store."""
        try:
            return self._host.domain(instance_uuid)
        except exceptions.VirtDriverError:
            if self._host.fencing.get(instance_uuid).may_have_domain:
                raise
            return None

    def _is_finished(self, found: DomainInfo | None, generation: int) -> bool:
        return found is not None and found.generation == generation and self._host.is_complete(found)

    def _repeat_failure(self, request: BuildRequest) -> BuildResult:
        """Report the failure of a revoked generation again: the conductor may have missed it, and may reschedule the
        build."""
        uuid = request.instance.uuid
        self._host.remove_with_retries(uuid)
        refused = self._host.fencing.get(uuid).failed_build
        if refused is not None and refused.generation == request.generation:
            return refused
        return self._result(request, BuildOutcome.RESCHEDULED, message="This build is revoked on this host.")

    def _build_or_undo(
        self, context: RequestContext, request: BuildRequest, *unjudged: type[Exception]
    ) -> BuildResult | None:
        """Build once, and return the result, if any. ``unjudged`` errors are raised after the build is undone."""
        uuid, generation = request.instance.uuid, request.generation
        raised: tuple[type[Exception], ...] = (Stopping, exceptions.Fenced, *unjudged)
        started = time.monotonic()
        LOG.info("Instance %s: building generation %d", uuid, generation)
        with contextlib.ExitStack() as undo:
            try:
                self._build(context, request, undo)
            except raised:
                raise
            except UNWANTED as error:
                LOG.info("Instance %s: the conductor rejects generation %d: %s", uuid, generation, error)
                self._host.fencing.revoke(uuid, generation)
                return None
            except Exception as error:
                result = self._result(
                    request,
                    BuildOutcome.ABORTED if is_request_error(error) else BuildOutcome.RESCHEDULED,
                    message=exception_message(error, self._host.name),
                    details="".join(traceback.format_exception(error)),
                    blames_host=not isinstance(error, exceptions.HypervisorUnavailable),
                )
                LOG.warning(
                    "Instance %s: build of generation %d %s after %.2f s: %s",
                    uuid,
                    generation,
                    result.outcome,
                    time.monotonic() - started,
                    result.message,
                    exc_info=not isinstance(error, exceptions.NovaLiteException),
                )
                self._host.fencing.revoke_failed_build(result)
                return result
            undo.pop_all()
        LOG.info("Instance %s: took %.2f seconds to build generation %d", uuid, time.monotonic() - started, generation)
        return self._built(request, self._host.power_state(uuid) or 0)

    def _built(self, request: BuildRequest, power_state: int) -> BuildResult:
        result = self._result(request, BuildOutcome.BUILT, power_state=power_state)
        result.devices = self._host.guest_devices(request.instance)
        return result

    def _build(self, context: RequestContext, request: BuildRequest, undo: contextlib.ExitStack) -> None:
        """Claim resources, plug the networks, and spawn. Each step's rollback is pushed to ``undo`` before the step."""
        host, instance, generation = self._host, request.instance, request.generation
        check_injected_files(request.injected_files)
        resources = Resources.of(instance)
        undo.callback(host.claims.release, instance.uuid)
        host.claims.instance_claim(instance.uuid, resources, request.limits)
        known = request.connected == self._registration.admission
        vifs = instance.vifs if known else self._request_vifs(context, request)
        host.fencing.check(instance.uuid, generation)
        host.volumes.prepare(instance.block_devices, request.volume_images)
        if request.reimage is not None:
            host.volumes.reimage(request.reimage.volume_id, request.reimage.image, request.reimage.size)
        host.fencing.check(instance.uuid, generation)
        undo.callback(host.remove_with_retries, instance.uuid)
        volumes = host.volume_paths(instance, lambda: host.fencing.check(instance.uuid, generation))
        host.fencing.check(instance.uuid, generation)
        host.driver.networks.plug(instance, vifs)
        if vifs:
            self._on_plugged(instance)
        host.fencing.check(instance.uuid, generation)
        host.driver.guests.spawn(
            SpawnSpec(
                instance=instance,
                generation=generation,
                vifs=vifs,
                image=request.image,
                images=request.images,
                injected_files=request.injected_files,
                admin_password=request.admin_password,
                fence=lambda: host.fencing.mark_creating(instance.uuid, generation),
                volumes=volumes,
                plugged=interfaces.plugging_wait(host, instance.uuid, vifs, generation),
                disks=request.disks,
                clone_of=request.clone_of,
                still_wanted=lambda: host.fencing.check(instance.uuid, generation),
                placed=lambda devices: self._report_devices(context, request, devices),
            )
        )
        host.fencing.mark_built(instance.uuid, generation, resources)

    def _request_vifs(self, context: RequestContext, request: BuildRequest) -> list[VIF]:
        """Return the interfaces that the conductor assigns. Nothing exists yet, so waiting for the conductor is
        harmless."""
        host, uuid, generation = self._host, request.instance.uuid, request.generation
        reply = host.retrier.call(
            f"Instance {uuid}: start_build",
            lambda: host.conductor.start_build(context, uuid, host.name, generation),
            lambda: host.fencing.check(uuid, generation),
        )
        return reply.vifs

    # --- report

    def _report_devices(self, context: RequestContext, request: BuildRequest, devices: GuestReport) -> None:
        """Report the places of devices before the guest starts: it may query the metadata service at once."""
        host, instance, generation = self._host, request.instance, request.generation
        named = block_device.without_untagged(devices, instance.flavor, instance.block_devices)
        host.retrier.call(
            f"Instance {instance.uuid}: report_guest_devices",
            lambda: host.conductor.report_guest_devices(context, instance.uuid, host.name, generation, named),
            lambda: host.fencing.check(instance.uuid, generation),
        )

    def _result(
        self,
        request: BuildRequest,
        outcome: BuildOutcome,
        power_state: int = 0,
        message: str = "",
        details: str = "",
        blames_host: bool = True,
    ) -> BuildResult:
        return BuildResult(
            instance_uuid=request.instance.uuid,
            generation=request.generation,
            host=self._host.name,
            outcome=outcome,
            power_state=power_state,
            message=message,
            details=details,
            root_device_name=hardware.root_device(request.image),
            action_id=request.action_id,
            blames_host=blames_host,
        )

    def _report(self, context: RequestContext, request: BuildRequest, result: BuildResult) -> None:
        host, uuid = self._host, result.instance_uuid
        try:
            host.retrier.call(
                f"Instance {uuid}: finish_build",
                lambda: host.conductor.finish_build(context, result),
                lambda: self._check_not_superseded(request),
            )
        except UNWANTED as error:
            LOG.info(
                "Instance %s: the conductor rejects the report of generation %d: %s", uuid, result.generation, error
            )
            if result.outcome == BuildOutcome.BUILT:
                self._remove_unwanted(uuid, result.generation)
            return
        if result.outcome == BuildOutcome.BUILT and request.disks is not None:
            host.own_disks(uuid)

    def _check_not_superseded(self, request: BuildRequest) -> None:
        """Raise `Fenced` if a newer build or a command has overtaken this build: then the report is unnecessary."""
        record = self._host.fencing.get(request.instance.uuid)
        if record.revoked_generation > request.generation or record.last_action_id > request.action_id:
            raise exceptions.Fenced(f"Instance {request.instance.uuid}: the report was overtaken.")

    def _remove_unwanted(self, instance_uuid: str, generation: int) -> None:
        host = self._host
        with host.jobs.locks.hold(instance_uuid):
            found = host.domain(instance_uuid)
            if found is not None and found.generation == generation:
                host.fencing.revoke(instance_uuid, generation)
                host.remove_with_retries(instance_uuid)


def is_request_error(error: Exception) -> bool:
    """Check whether the request itself causes a failure, so that no other host would succeed."""
    if isinstance(error, ABORTING_DRIVER_ERRORS):
        return True
    return isinstance(error, exceptions.NovaLiteException) and 400 <= error.code < 500


def check_injected_files(injected_files: dict[str, str]) -> None:
    """Raise `InvalidInput` unless the contents of every file are base64."""
    for path, contents in injected_files.items():
        try:
            base64.b64decode(contents, validate=True)
        except (binascii.Error, ValueError) as error:
            raise exceptions.InvalidInput(reason=f"the contents of injected file {path} are not base64") from error
