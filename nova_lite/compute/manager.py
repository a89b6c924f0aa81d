"""The compute daemon's RPC methods, and the wiring of its parts."""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections.abc import Callable, Iterable
from typing import Any

from oslo_config import cfg

from nova_lite import operations
from nova_lite.base import exceptions, metrics
from nova_lite.base.context import RequestContext
from nova_lite.compute import consoles
from nova_lite.compute.claims import Claims
from nova_lite.compute.executor import CommandExecutor
from nova_lite.compute.fencing import FencingTokenStore
from nova_lite.compute.heartbeat import Heartbeat
from nova_lite.compute.host import LocalHost
from nova_lite.compute.host_boot import HostBoot
from nova_lite.compute.image_caching import ImageFetcher
from nova_lite.compute.jobs import Jobs
from nova_lite.compute.operations import snapshot
from nova_lite.compute.operations.create import Builder
from nova_lite.compute.port_filters import PortFilterKeeper
from nova_lite.compute.reconciler import DomainReconciler
from nova_lite.compute.registration import Registration
from nova_lite.compute.reports import Retrier
from nova_lite.compute.volumes import VolumeWorker
from nova_lite.conductor.rpcapi import ConductorRPC
from nova_lite.image.driver import ImageBackend
from nova_lite.objects import ActionCommand, BuildRequest, Console, Diagnostics, Image, VolumeWork
from nova_lite.operations.states import PowerState
from nova_lite.virt.driver import ComputeDriver, ConsoleOutput, InstanceDiagnostics
from nova_lite.volume.driver import VolumeBackend
from nova_lite.volume.driver import load_backend as load_volumes

LOG = logging.getLogger(__name__)

#: Seconds that `fence_instance` waits for work on the instance to end, before the caller has to ask again. Less than
#: the caller waits for the answer.
FENCE_WAIT = 20.0

Order = Callable[[RequestContext, ActionCommand], None]


class ComputeManager:
    """One compute host. Every order is idempotent: it may come twice, late, or after the one that cancels it.

    Orders are carried out in threads of their own (`Jobs`), so that the RPC pool stays free. ``orders``: the RPC
    methods for steps of operations, builds apart.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        host: str,
        driver: ComputeDriver,
        conductor: ConductorRPC,
        images: ImageBackend,
        volumes: VolumeBackend | None = None,
    ) -> None:
        self._stopping = threading.Event()
        self.jobs = Jobs()
        self.heartbeat = Heartbeat(conf, host, driver, self.jobs)
        fences = FencingTokenStore(fences_path(conf, host))
        self.registration = Registration(conf, self.heartbeat, conductor, fences.identity())
        self.host = LocalHost(
            conf=conf,
            name=host,
            driver=driver,
            conductor=conductor,
            fences=fences,
            claims=Claims(self.heartbeat.capacity),
            jobs=self.jobs,
            retrier=Retrier(conf.compute.report_retry_seconds, self._stopping),
            images=images,
            snapshot_slots=threading.BoundedSemaphore(conf.compute.max_concurrent_snapshots),
            volumes=volumes or load_volumes(conf, images.fetch),
            hypervisor_answers=self.heartbeat.hypervisor_answers,
        )
        snapshot.clean(self.host)
        boot = HostBoot(os.path.join(conf.state_path, "boots", host))
        self.reconciler = DomainReconciler(self.host, conf.compute.reconcile_interval, boot, self.registration.ask)
        self.port_filters = PortFilterKeeper(host, driver, conductor, conf.network.security_group_refresh_interval)
        self._builder = Builder(self.host, self.registration, self.port_filters.plugged)
        self._engine = CommandExecutor(self.host)
        self._volume_worker = VolumeWorker(self.host)
        self.orders = {method: self._order(step) for method, step in operations.command_methods().items()}
        self._image_fetcher = ImageFetcher(driver)
        self._hypervisor_answers = True

    # --- for metrics and health

    def states(self) -> Iterable[tuple[str, metrics.Value]]:
        yield metrics.one(metrics.JOBS, len(self.jobs.building()), "build")
        yield metrics.one(metrics.JOBS, len(self.jobs.acting()), "action")
        yield metrics.one(metrics.HYPERVISOR_UP, float(self.heartbeat.hypervisor_answers()))

    def require_hypervisor(self) -> None:
        """Raises `HypervisorUnavailable` while it does not answer."""
        if not self.heartbeat.hypervisor_answers():
            raise exceptions.HypervisorUnavailable(host=self.host.name, reason="it does not answer")

    # --- life

    def connect(self) -> None:
        """Reach the hypervisor, remember what its domains hold, and have a row in the database.

        Raises `HypervisorUnavailable`, `ServiceUnavailable` (call it again) or `ConfigurationError`.
        """
        self.host.driver.init_host()
        self.heartbeat.refresh()
        here = {info.uuid for info in self.host.driver.list_domains()}
        held = self.host.fences.resources()
        self.host.claims.restore({uuid: amount for uuid, amount in held.items() if uuid in here})
        self.registration.register()

    def clean_up(self) -> None:
        """Destroy what is not meant to be here (any more), right after `connect` and before any order is taken.

        Raises `ServiceUnavailable` if that could not be done: a guest that was evacuated may run elsewhere, and no late
        order may touch what is left of it here.
        """
        if self.jobs.building() or self.jobs.acting():
            raise exceptions.ServiceUnavailable("Work from before this host was forced down has not ended yet.")
        self.host.images.sweep_uploads(self.host.name)
        self.host.volumes.sweep()
        kept = self.reconciler.run()
        if kept:
            raise exceptions.ServiceUnavailable(
                f"{len(kept)} domain(s) that do not belong here could not be destroyed: {', '.join(sorted(kept))}."
            )

    def watch_hypervisor(self) -> None:
        """Say when the hypervisor stops answering, and when it answers again: in the log, to the conductor, and to
        builds that wait for it. Meant to be called about every second."""
        answers = self.heartbeat.hypervisor_answers()
        if answers == self._hypervisor_answers:
            return
        self._hypervisor_answers = answers
        if answers:
            LOG.warning("The hypervisor answers again: this host counts as up")
        else:
            LOG.warning("The hypervisor does not answer: this host counts as down, and takes no builds, until it does")
            self._builder.give_up_waiting()
        self.registration.send_heartbeat()

    def age_images(self) -> None:
        """Remove images that no guest uses from this host's cache, unless that is turned off."""
        options = self.host.conf.image_cache
        if options.remove_unused_base_images:
            self._image_fetcher.age(options.remove_unused_original_minimum_age_seconds)

    def prune_fences(self) -> None:
        self.host.fences.prune()

    def stop(self) -> None:
        """Let running jobs finish for a while; what is left then is found again by the next life, or its lease lapses.
        No order may come in any more."""
        timeout = self.host.conf.compute.graceful_stop_timeout
        if not self.jobs.wait_idle(timeout):
            LOG.warning("Stopping with work in progress: %s %s", self.jobs.building(), self.jobs.acting())
        self._stopping.set()

    # --- orders (casts)

    def build_and_run_instance(self, context: RequestContext, request: BuildRequest) -> None:
        """Make ``request.instance`` exist at ``request.generation``, and report with `finish_build`."""
        self.build_and_run_instances(context, [request])

    def build_and_run_instances(self, context: RequestContext, requests: list[BuildRequest]) -> None:
        filters = next((request.filters for request in requests if request.filters is not None), None)
        self.port_filters.ordered([request.instance.uuid for request in requests], filters)
        for request in requests:
            uuid = request.instance.uuid
            work = functools.partial(self._if_admitted, uuid, self._builder.run, context, request)
            self.jobs.start_build(context, uuid, request.generation, work)

    def cache_images(self, context: RequestContext, images: list[Image]) -> None:
        """Fetch these into the host's cache, as far as it has one."""
        self._image_fetcher.start(images)

    def volume_work(self, context: RequestContext, work: VolumeWork) -> None:
        """Change a volume's file, in a thread of its own, and report."""
        self._volume_worker.start(work)

    def refresh_security_groups(self, context: RequestContext) -> None:
        self.port_filters.refresh_soon()

    def _order(self, step: operations.HostStep) -> Order:
        """The RPC method that carries out a step."""

        def order(context: RequestContext, ticket: ActionCommand) -> None:
            uuid = ticket.instance.uuid
            work = functools.partial(self._if_admitted, uuid, self._engine.run, context, step, ticket)
            self.jobs.start_action(context, uuid, ticket.action_id, work, ticket.sequence)

        order.__name__ = step.method
        return order

    def _if_admitted(self, instance_uuid: str, work: Callable[..., None], *arguments: Any) -> None:
        """Carry out an order if the host may serve; else it is dropped, and sent again by the conductor."""
        try:
            self.registration.check()
        except exceptions.ServiceUnavailable as error:
            LOG.warning("Instance %s: an order is left undone: %s", instance_uuid, error.message)
        else:
            work(*arguments)

    # --- questions (calls)

    def fence_instance(self, context: RequestContext, instance_uuid: str, generation: int) -> bool:
        """Promise never to build ``generation`` or a lower one. True: promised, and nothing of the instance at these
        generations is here. False: it is complete here at just this generation, so its build succeeded.

        A build in progress is told first (on disk), so that it stops at its next step; the note that a build is
        complete and the fence exclude each other in `FencingTokenStore`, so one of the two is always first. Raises
        `ServiceUnavailable` if the build does not end within `FENCE_WAIT`; the promise holds, and the answer is found
        by asking again; and at once where that can only be found out from a hypervisor that does not answer.
        """
        host = self.host
        if not host.hypervisor_answers():
            if host.fences.forbid_unless_made(instance_uuid, generation):
                return True
            raise exceptions.ServiceUnavailable(f"The hypervisor of host {host.name} does not answer.")
        if self.jobs.is_building(instance_uuid):
            host.fences.forbid_unless_built(instance_uuid, generation)
        with self.jobs.locks.hold(instance_uuid, FENCE_WAIT):
            found = host.domain(instance_uuid)
            if found is not None and found.generation == generation and host.is_complete(found):
                return False
            host.fences.forbid(instance_uuid, generation)
            if found is None or found.generation <= generation:
                host.remove(instance_uuid)
        return True

    def get_console_output(self, context: RequestContext, instance_uuid: str, length: int | None) -> str:
        """The last ``length`` lines of the guest's console, None: all; raises `InstanceNotReady` without a domain.
        Asked without the instance's lock: it only reads, and a long build or stop must not make the user wait."""
        driver = self.host.driver
        if not isinstance(driver, ConsoleOutput):
            raise exceptions.NotImplementedByDriver(operation="console output")
        self.host.require_answers()
        try:
            return driver.get_console_output(instance_uuid, length)
        except exceptions.DomainNotFound as error:
            raise exceptions.InstanceNotReady(instance_id=instance_uuid) from error

    def get_vnc_console(self, context: RequestContext, instance_uuid: str, console_type: str) -> Console:
        return consoles.vnc(self.host, instance_uuid, console_type)

    def get_serial_console(self, context: RequestContext, instance_uuid: str, console_type: str) -> Console:
        return consoles.serial(self.host, instance_uuid, console_type)

    def validate_console_port(self, context: RequestContext, instance_uuid: str, port: int, console_type: str) -> bool:
        return consoles.is_at(self.host, instance_uuid, port, console_type)

    def get_instance_diagnostics(self, context: RequestContext, instance_uuid: str) -> Diagnostics:
        """Of a guest that runs, else `InstanceInvalidState`. Asked without the instance's lock, as the console is."""
        driver = self.host.driver
        if not isinstance(driver, InstanceDiagnostics):
            raise exceptions.NotImplementedByDriver(operation="diagnostics")
        self.host.require_answers()
        try:
            state = driver.get_info(instance_uuid).power_state
            if state != PowerState.RUNNING:
                raise exceptions.InstanceInvalidState(
                    method="get_diagnostics", instance_id=instance_uuid, attr="power state", state=state.name.lower()
                )
            return driver.get_instance_diagnostics(instance_uuid)
        except exceptions.DomainNotFound as error:
            raise exceptions.InstanceNotReady(instance_id=instance_uuid) from error


def fences_path(conf: cfg.ConfigOpts, host: str) -> str:
    """Where a host keeps its promises; several hosts on one machine have a directory each."""
    return os.path.join(conf.state_path, "fences", host)
