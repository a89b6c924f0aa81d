"""RPC methods of the compute daemon, and the wiring of its parts."""

from __future__ import annotations

import copy
import functools
import logging
import os
import threading
from collections.abc import Callable, Iterable
from typing import Any

from oslo_config import cfg

from nova_lite import operations
from nova_lite.base import directory_users, exceptions, faults, files, metrics, tracing
from nova_lite.base.context import RequestContext, get_admin_context
from nova_lite.base.timing import TIMING, ComputeTiming
from nova_lite.compute import consoles, wings
from nova_lite.compute.build_slots import BuildSlots
from nova_lite.compute.claims import Claims
from nova_lite.compute.executor import CommandExecutor
from nova_lite.compute.fencing import FencingTokenStore
from nova_lite.compute.heartbeat import Heartbeat
from nova_lite.compute.host import LocalHost
from nova_lite.compute.host_boot import HostBoot
from nova_lite.compute.host_health import HealthReports
from nova_lite.compute.image_caching import ImageFetcher
from nova_lite.compute.jobs import Jobs
from nova_lite.compute.load_reports import LoadReports
from nova_lite.compute.operations import snapshot
from nova_lite.compute.operations.create import Builder
from nova_lite.compute.port_filters import PortFilterSync
from nova_lite.compute.reconciler import DomainReconciler
from nova_lite.compute.registration import Registration
from nova_lite.compute.reports import Retrier
from nova_lite.compute.self_fencing import SelfFencing
from nova_lite.compute.server_metrics import ServerMetrics
from nova_lite.compute.usage_history import UsageRecorder
from nova_lite.compute.volumes import VolumeWorker
from nova_lite.image.driver import ImageBackend
from nova_lite.objects import (
    ActionCommand,
    BuildRequest,
    Console,
    ConsolePort,
    Diagnostics,
    Image,
    PacketProbe,
    PacketSighting,
    StorageView,
    UsageHistory,
    VolumeWork,
)
from nova_lite.operations.states import PowerState
from nova_lite.rpcapi.conductor import ConductorRPC
from nova_lite.virt.driver import ComputeDriver
from nova_lite.volume.driver import VolumeBackend
from nova_lite.volume.driver import load_backend as load_volumes

LOG = logging.getLogger(__name__)

#: Number of fencing records in one query to the conductor.
PRUNE_BATCH = 500

CommandMethod = Callable[[RequestContext, ActionCommand], None]


class ComputeManager:
    """A compute host. Every command is idempotent: it may arrive twice, late, or after the command that cancels it.

    Each command runs in a thread of its own (`Jobs`), so that the RPC thread pool stays free. ``commands`` holds the
    RPC methods for steps of operations. Builds have methods of their own.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        host: str,
        driver: ComputeDriver,
        conductor: ConductorRPC,
        images: ImageBackend,
        volumes: VolumeBackend | None = None,
        timing: ComputeTiming = TIMING.compute,
    ) -> None:
        self._stopping = threading.Event()
        self.jobs = Jobs()
        self.build_slots = BuildSlots(conf.compute.max_concurrent_builds)
        self._server_metrics = ServerMetrics(driver, conf.metrics.servers, timing)
        self.heartbeat = Heartbeat(conf, host, driver, self.jobs, self.build_slots.answered)
        fencing = FencingTokenStore(fencing_path(conf, host), faults.call("fence", files.write_atomically))
        self.registration = Registration(conf, self.heartbeat, conductor, fencing.identity())
        self.host = LocalHost(
            conf=conf,
            name=host,
            driver=driver,
            conductor=conductor,
            fencing=fencing,
            claims=Claims(self.heartbeat.capacity),
            jobs=self.jobs,
            retrier=Retrier(timing.report_retry, self._stopping),
            images=images,
            snapshot_slots=threading.BoundedSemaphore(conf.compute.max_concurrent_snapshots),
            volumes=volumes or load_volumes(conf, images.fetch),
            is_hypervisor_up=self.heartbeat.is_hypervisor_up,
            timing=timing,
            live_migration_slots=_slots(conf.max_concurrent_live_migrations),
        )
        driver.volume_key = self.host.volumes.volume_key = self.host.volume_key
        driver.cpu_baseline = lambda: conductor.cpu_baseline_get(get_admin_context(), host)
        driver.tpm_key = self.host.tpm_key
        driver.disk_key = self.host.disk_key
        snapshot.clean(self.host)
        boot = HostBoot(os.path.join(conf.state_path, "boots", host))
        self.self_fencing = SelfFencing(conf, host, driver, self.registration, self.jobs, self._compare_soon, timing)
        self.reconciler = DomainReconciler(
            self.host,
            conf.compute.reconcile_interval,
            boot,
            self.registration.attach_check,
            self.heartbeat.next_number,
            self.self_fencing,
        )
        self.port_filters = PortFilterSync(host, driver, conductor, conf.network.security_group_refresh_interval)
        self._builder = Builder(self.host, self.registration, self.port_filters.interfaces_plugged, self.build_slots)
        self._executor = CommandExecutor(self.host, self.reconciler.has_to_run_again)
        self.health_reports = HealthReports(driver, self.registration.attach_health, timing.health_clear_after)
        self.load_reports = LoadReports(host, driver, conductor, timing)
        self.usage_recorder = UsageRecorder(host, driver, os.path.join(conf.state_path, "usage", host))
        self._volume_worker = VolumeWorker(self.host)
        self.wings = wings.load(conf, host, driver, conductor)
        self.commands = {method: self._command_method(step) for method, step in operations.command_methods().items()}
        self._image_fetcher = ImageFetcher(driver)
        self._hypervisor_was_up = True
        self._storage_reported: tuple[StorageView, str] | None = None

    # --- metrics and health

    def states(self) -> Iterable[tuple[str, metrics.Sample]]:
        yield metrics.sample(metrics.JOBS, len(self.jobs.building()), "build")
        yield metrics.sample(metrics.JOBS, len(self.jobs.acting()), "action")
        yield metrics.sample(metrics.BUILD_SLOTS, self.build_slots.limit)
        yield metrics.sample(metrics.HYPERVISOR_UP, float(self.heartbeat.is_hypervisor_up()))
        yield from self._server_metrics.samples()

    def require_hypervisor(self) -> None:
        """Raise `HypervisorUnavailable` while the hypervisor does not answer."""
        if not self.heartbeat.is_hypervisor_up():
            raise exceptions.HypervisorUnavailable(host=self.host.name, reason="it does not answer")

    # --- start and stop

    def connect(self) -> None:
        """Connect to the hypervisor, restore the claims of its domains, and register the host.

        A host with jobs of an earlier registration is not registered yet. A registration would end what the conductor
        has decided about it, so that its guests would wait for the jobs. No command may arrive meanwhile. Raises
        `HypervisorUnavailable` or `ServiceUnavailable` (both: call it again), or `ConfigurationError`.
        """
        self.host.driver.init_host()
        self.heartbeat.refresh()
        here = {info.uuid for info in self.host.driver.guests.all()}
        held = self.host.fencing.resources()
        self.host.claims.restore({uuid: amount for uuid, amount in held.items() if uuid in here})
        if self.jobs.building() or self.jobs.acting():
            raise exceptions.ServiceUnavailable("Jobs of this host's earlier registration have not ended yet.")
        self.registration.register()
        self.self_fencing.let_go()

    def clean_up(self) -> None:
        """Destroy domains that do not belong here. Call it right after `connect`, before any command is accepted.

        Raises `ServiceUnavailable` if that fails. The guest of an evacuated server may run elsewhere, so no late
        command may touch its remains here.
        """
        self.host.images.sweep_uploads(self.host.name)
        self.host.volumes.sweep()
        self._register_directories()
        self.self_fencing.forget_comparisons()
        remaining = self.reconciler.run()
        if remaining:
            raise exceptions.ServiceUnavailable(
                f"{len(remaining)} foreign domain(s) could not be destroyed: {', '.join(sorted(remaining))}."
            )

    def _register_directories(self) -> None:
        """Record that this host uses the directories that it may share with others, as far as they exist."""
        conf, host = self.host.conf, self.host.name
        directories = [conf.volume.store_path, conf.volume.backup_path]
        if conf.image.backend == "local" and not conf.image.store_address:
            directories.append(conf.image.store_path)
        for directory in directories:
            directory_users.register(directory, host)

    def send_heartbeat(self) -> None:
        self.registration.send_heartbeat()

    def _compare_soon(self) -> None:
        self.reconciler.compare_soon()

    def watch_hypervisor(self) -> None:
        """Report a change of the hypervisor's availability to the log, the conductor, and builds that wait for it.

        Call it about every second.
        """
        is_up = self.heartbeat.is_hypervisor_up()
        if is_up == self._hypervisor_was_up:
            return
        self._hypervisor_was_up = is_up
        if is_up:
            LOG.warning("The hypervisor answers again: this host counts as up")
        else:
            LOG.warning("The hypervisor does not answer: this host counts as down, and takes no builds, until it does")
            self._builder.abandon_waiting_builds()
        self.registration.send_heartbeat()

    def report_storage(self) -> None:
        """Report what is in the directory of disks, if that has changed since the last report.

        Report it again while a host there has not seen this one yet.
        """
        disks = self.host.driver.shared_disks
        if not disks:
            return
        view, epoch = disks.view(), self.registration.admission
        if (view, epoch) != self._storage_reported:
            shares = self.registration.report_storage(view)
            self._storage_reported = (view, epoch) if set(view.live) <= set(shares) else None

    def age_images(self) -> None:
        """Remove unused layers of clones, and unused images from the cache, unless the operator has disabled that."""
        options = self.host.conf.image_cache
        if options.remove_unused_base_images:
            self._image_fetcher.remove_unused(options.remove_unused_original_minimum_age_seconds)
        if self.host.driver.clones:
            self.host.driver.clones.remove_unused()

    def age_networks(self) -> None:
        """Remove networks that no guest of this host has used lately. The host never learns that one was deleted."""
        try:
            removed = self.host.driver.networks.remove_unused(self.host.timing.network_age)
        except exceptions.VirtDriverError as error:
            LOG.warning("No idle network is removed: %s", error.message)
            return
        for network_id in removed:
            LOG.info("Network %s is removed from this host: no guest has used it lately", network_id)

    def prune_fencing_records(self) -> None:
        """Remove the fencing records that the conductor calls settled."""
        host, pruned = self.host, 0
        records = host.fencing.without_domain()
        for start in range(0, len(records), PRUNE_BATCH):
            page = records[start : start + PRUNE_BATCH]
            settled = host.conductor.fencing_records_settled(
                get_admin_context(), host.name, [record.uuid for record in page]
            )
            uuids = {uuid for uuid in settled.instance_uuids if not self.jobs.is_busy(uuid)}
            pruned += host.fencing.prune([record for record in page if record.uuid in uuids], settled.last_action_id)
        LOG.debug("%d fencing records were settled and are removed", pruned)

    def stop(self) -> None:
        """Wait for running jobs to finish, up to `ComputeTiming.stop_wait`. No command may arrive any more.

        Unfinished jobs are found again by the next start of the daemon, or their leases expire.
        """
        timeout = self.host.timing.stop_wait
        if not self.jobs.wait_idle(timeout):
            LOG.warning(
                "Stopping with jobs in progress: builds %s, actions %s", self.jobs.building(), self.jobs.acting()
            )
        self._release_lease()
        self._stopping.set()

    def _release_lease(self) -> None:
        error_text = ""
        try:
            self.self_fencing.release()
        except exceptions.ServiceUnavailable as error:
            error_text = error.message
        if error_text:
            LOG.warning("Protected guests stop when the lease ends: it could not be given back: %s", error_text)

    # --- commands (casts)

    def build_and_run_instance(self, context: RequestContext, request: BuildRequest) -> None:
        """Create ``request.instance`` at ``request.generation``, and report with `finish_build`."""
        self.build_and_run_instances(context, [request])

    def build_and_run_instances(self, context: RequestContext, requests: list[BuildRequest]) -> None:
        filters = next((request.filters for request in requests if request.filters is not None), None)
        self.port_filters.commands_received([request.instance.uuid for request in requests], filters)
        for request in requests:
            uuid = request.instance.uuid
            build = tracing.work("build", context, uuid, self._builder.run)
            work = functools.partial(self._if_admitted, uuid, build, context, request)
            self.jobs.start_build(context, uuid, request.generation, work)

    def terminate_instances(self, context: RequestContext, commands: list[ActionCommand]) -> None:
        """Start the deletes, each with the request id of its own caller."""
        execute = self._command_method(operations.command_methods()["terminate_instance"])
        for command in commands:
            of_command = copy.copy(context)
            of_command.request_id = command.request_id
            execute(of_command, command)

    def cache_images(self, context: RequestContext, images: list[Image]) -> None:
        """Fetch images into the host's cache, if it has one."""
        self._image_fetcher.start(images)

    def volume_work(self, context: RequestContext, work: VolumeWork) -> None:
        """Change the file of a volume in a separate thread, and report the result."""
        self._volume_worker.start(work)

    def refresh_security_groups(self, context: RequestContext) -> None:
        self.port_filters.refresh_soon()

    def wing_wake_up(self, context: RequestContext, wing: str) -> None:
        if wing in self.wings:
            self.wings[wing].woken.set()

    def _command_method(self, step: operations.HostStep) -> CommandMethod:
        """Return the RPC method that executes ``step``."""

        def execute(context: RequestContext, command: ActionCommand) -> None:
            uuid = command.instance.uuid
            run = tracing.work(step.name, context, uuid, self._executor.run)
            work = functools.partial(self._if_admitted, uuid, run, context, step, command)
            self.jobs.start_action(context, uuid, command.action_id, work, command.sequence)

        execute.__name__ = step.method
        return execute

    def _if_admitted(self, instance_uuid: str, work: Callable[..., None], *arguments: Any) -> None:
        """Execute a command if the host may serve. Otherwise drop it: the conductor sends it again."""
        try:
            self.registration.check()
            self.self_fencing.require_lease(instance_uuid)
        except exceptions.ServiceUnavailable as error:
            LOG.warning("Instance %s: a command is dropped: %s", instance_uuid, error.message)
        else:
            work(*arguments)

    # --- queries (calls)

    def fence_instance(self, context: RequestContext, instance_uuid: str, generation: int) -> bool:
        """Revoke ``generation`` and all lower ones: this host never builds them again.

        Returns True if they are revoked and nothing of the instance is left here at these generations. Returns False if
        the instance is complete here at exactly ``generation``: its build succeeded.

        A running build is revoked first (on disk), so that it stops at its next step. `FencingTokenStore` lets either
        the build complete or the revocation happen, never both. Raises `ServiceUnavailable` if the build does not end
        within ``fence_wait`` seconds. The revocation stays valid then, and the caller repeats the call. Raises it
        immediately if the result depends on a hypervisor that does not respond.
        """
        host = self.host
        if not host.is_hypervisor_up():
            if host.fencing.revoke_unless_created(instance_uuid, generation):
                return True
            raise exceptions.ServiceUnavailable(f"The hypervisor of host {host.name} does not answer.")
        if self.jobs.is_building(instance_uuid):
            host.fencing.revoke_unless_built(instance_uuid, generation)
        with self.jobs.locks.hold(instance_uuid, host.timing.fence_wait):
            found = host.domain(instance_uuid)
            if found is not None and found.generation == generation and host.is_complete(found):
                return False
            host.fencing.revoke(instance_uuid, generation)
            if found is None or found.generation <= generation:
                host.remove(instance_uuid)
        return True

    def get_console_output(self, context: RequestContext, instance_uuid: str, length: int | None) -> str:
        """Return the last ``length`` lines of the guest's console. None: all lines.

        Raises `InstanceNotReady` without a domain. Takes no instance lock: reading is harmless, and the user must not
        wait for a long build or stop.
        """
        read = self.host.driver.consoles.output
        self.host.require_hypervisor()
        try:
            return read(instance_uuid, length)
        except exceptions.DomainNotFound as error:
            raise exceptions.InstanceNotReady(instance_id=instance_uuid) from error

    def get_vnc_console(self, context: RequestContext, instance_uuid: str, console_type: str) -> Console:
        return consoles.vnc(self.host, instance_uuid, console_type)

    def get_serial_console(self, context: RequestContext, instance_uuid: str, console_type: str) -> Console:
        return consoles.serial(self.host, instance_uuid, console_type)

    def get_spice_console(self, context: RequestContext, instance_uuid: str, console_type: str) -> Console:
        return consoles.spice(self.host, instance_uuid, console_type)

    def find_console_port(
        self, context: RequestContext, instance_uuid: str, port: int, console_type: str
    ) -> ConsolePort:
        return consoles.find_port(self.host, instance_uuid, port, console_type)

    def get_instance_diagnostics(self, context: RequestContext, instance_uuid: str) -> Diagnostics:
        """Return the counters of a running guest. Takes no instance lock.

        Raises `InstanceInvalidState` if the guest does not run.
        """
        read = self.host.driver.diagnostics.read
        self.host.require_hypervisor()
        try:
            state = self.host.driver.guests.get(instance_uuid).power_state
            if state != PowerState.RUNNING:
                raise exceptions.InstanceInvalidState(
                    method="get_diagnostics", instance_id=instance_uuid, attr="power state", state=state.name.lower()
                )
            return read(instance_uuid)
        except exceptions.DomainNotFound as error:
            raise exceptions.InstanceNotReady(instance_id=instance_uuid) from error

    def get_usage_history(self, context: RequestContext, instance_uuid: str | None, span: str) -> UsageHistory:
        return self.usage_recorder.read(instance_uuid, span)

    def probe_packet(self, context: RequestContext, probe: PacketProbe) -> list[PacketSighting]:
        return self.host.driver.probes.run(probe)


def _slots(limit: int) -> threading.BoundedSemaphore | None:
    """Return slots for work of one kind, or None if it has no limit."""
    return threading.BoundedSemaphore(limit) if limit else None


def fencing_path(conf: cfg.ConfigOpts, host: str) -> str:
    """Return the directory of a host's fencing token store. Each host of one machine has its own."""
    return os.path.join(conf.state_path, "fences", host)
