"""The facade of the engine: puts its parts together, and runs their effects in the background."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from concurrent import futures
from typing import Any

from oslo_config import cfg

from nova_lite.base import exceptions, threads, tracing
from nova_lite.base.context import RequestContext
from nova_lite.conductor.engine.accept import Acceptor
from nova_lite.conductor.engine.command_reports import CommandReports
from nova_lite.conductor.engine.context import ActionContext
from nova_lite.conductor.engine.deadlines import Deadlines
from nova_lite.conductor.engine.ports import HandlerLookup, SnapshotReports
from nova_lite.conductor.engine.service_calls import ServiceCalls
from nova_lite.conductor.engine.unavailable_hosts import Transitions
from nova_lite.db.core.engine import Database, UnitOfWork, log_failure
from nova_lite.image.driver import ImageBackend
from nova_lite.network.driver import NetworkBackend
from nova_lite.objects import ActionCommand, ActionReport
from nova_lite.rpcapi.compute import ComputeRPC, send_command
from nova_lite.rpcapi.scheduler import SchedulerRPC

LOG = logging.getLogger(__name__)

#: Threads for effects, so that a slow network service does not delay commands.
PARALLEL_EFFECTS = 4


class ActionEngine:
    """Accepts operations and takes their actions from step to step.

    - ``acceptor``: accepts requests
    - ``reports``: records what hosts report about commands
    - ``deadlines``: takes due actions for the reconciler
    - ``service_calls``: calls network, image and volume services between two transactions
    - ``transitions``: the step machine that all of these share

    It implements the port `nova_lite.conductor.engine.ports.Effects`. ``handlers`` returns the handler of an operation.
    ``snapshots`` is Cinder, if it has the volumes.
    """

    def __init__(
        self,
        db: Database,
        conf: cfg.ConfigOpts,
        network: NetworkBackend,
        images: ImageBackend,
        compute: ComputeRPC,
        scheduler: SchedulerRPC,
        handlers: HandlerLookup,
        snapshots: SnapshotReports | None = None,
    ) -> None:
        self.db = db
        self.conf = conf
        self.network = network
        self.images = images
        self.compute = compute
        self.transitions = Transitions(conf, network, handlers, effects=self)
        self.acceptor = Acceptor(db, conf, self.transitions, scheduler)
        self.reports = CommandReports(db, conf, self.transitions)
        self.deadlines = Deadlines(conf, self.transitions)
        self.service_calls = ServiceCalls(db, conf, network, images, snapshots, self.transitions)
        self.executor: futures.Executor = threads.Pool(PARALLEL_EFFECTS, thread_name_prefix="effect")

    def stop(self) -> None:
        """Drop the effects that have not begun; the reconciler of another conductor repeats them."""
        self.executor.shutdown(wait=False, cancel_futures=True)

    # --- operations

    def accept_action(
        self, context: RequestContext, instance_uuid: str, kind: str, payload: dict[str, Any]
    ) -> ActionCommand:
        """Accept an operation. See `Acceptor.accept`."""
        return self.acceptor.accept(context, instance_uuid, kind, payload)

    def accept_in(
        self,
        uow: UnitOfWork,
        context: RequestContext,
        instance_uuid: str,
        kind: str,
        payload: dict[str, Any],
        by_replication: bool = False,
    ) -> ActionCommand:
        """Accept an operation within the caller's transaction. See `Acceptor.accept_in`."""
        return self.acceptor.accept_in(uow, context, instance_uuid, kind, payload, by_replication)

    def take_due(self, uow: UnitOfWork, owner: str, ids: Iterable[int]) -> list[ActionContext]:
        """Lease due actions. See `Deadlines.take_due`."""
        return self.deadlines.take_due(uow, owner, ids)

    # --- effects

    def send_later(self, command: ActionCommand, context: RequestContext) -> None:
        """Send a command to its host in the background."""
        self.in_background(lambda: self.send(command, context))

    def call_network_later(self, action_id: int) -> None:
        """Call the network service for an action in the background."""
        self.in_background(lambda: self.service_calls.to_network(action_id))

    def call_images_later(self, action_id: int) -> None:
        """Call the image backend for an action in the background."""
        self.in_background(lambda: self.service_calls.to_images(action_id))

    def report_snapshot_later(self, action_id: int) -> None:
        """Report the status of a snapshot for an action in the background."""
        self.in_background(lambda: self.service_calls.to_cinder(action_id))

    def send(self, command: ActionCommand, context: RequestContext) -> None:
        """Send a command to its host.

        If no queue takes it, the reconciler sends it again. If the host's version is too old for it, the command has
        failed.
        """
        try:
            send_command(self.compute, context, command)
        except exceptions.ServiceTooOld as error:
            report = ActionReport(host=str(command.host), action_id=command.action_id, error=error.message)
            self.reports.finish(context, report)
        except exceptions.MessagingUnavailable as error:
            LOG.warning("%s of %s could not be sent: %s", command.action, command.instance.uuid, error.message)

    def in_background(self, effect: Callable[[], None]) -> None:
        """Run an effect in a thread of the engine."""
        self.executor.submit(self.guarded, tracing.carried(effect))

    def guarded(self, effect: Callable[[], None]) -> None:
        """Run an effect. A failure is logged, and the reconciler repeats the effect after the lease."""
        try:
            effect()
        except Exception as error:
            log_failure(LOG, "An effect failed and is repeated after its lease", error)
