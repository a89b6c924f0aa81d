"""Carries out plans of moves through the same operations that users of the API have, and waits for each one.

A running server is migrated live. A server that is off, or cannot be moved while it runs, is migrated cold, and the
move is confirmed.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent import futures
from typing import Any

from nova_lite import operations
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext, get_admin_context
from nova_lite.base.stop_event import StopEvent
from nova_lite.cmd.manage.app import App, at_least
from nova_lite.objects import Instance, InstanceAction

LIVE = "live"
COLD = "cold"

#: Events of the steps at which hosts check whether they can move a running server. They change nothing.
_CHECKS = {step.event for step in operations.LIVE_MIGRATE.steps if step.name in (operations.CHECK, operations.PREPARE)}


@dataclasses.dataclass(frozen=True)
class Move:
    """Move of one server. ``target`` is None if the plan found no host; then ``reason`` explains why.

    ``way``: `COLD` if the server can only move while it is off; None to choose.
    """

    uuid: str
    name: str
    source: str
    target: str | None
    reason: str = ""
    way: str | None = None

    def __str__(self) -> str:
        return f"{self.uuid} ({self.name})"


@dataclasses.dataclass
class Result:
    """Result of a move. ``reason``: why the server did not move; "" if it did."""

    way: str | None = None
    reason: str = ""


class NotMoved(Exception):
    """Reason why a server did not move, for an operator.

    ``unable``: a check failed before anything was changed, so a cold migration can be tried.
    """

    def __init__(self, reason: str, unable: bool = False) -> None:
        super().__init__(reason)
        self.unable = unable


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="print the plan, but move nothing")
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--live", dest="way", action="store_const", const=LIVE, help="migrate live or not at all")
    way.add_argument("--cold", dest="way", action="store_const", const=COLD, help="stop, migrate cold, and confirm")
    parser.add_argument(
        "--at-once", type=at_least(1), default=1, metavar="N", help="number of servers that move concurrently"
    )


def may_move_live(vm_state: str) -> bool:
    return vm_state in (operations.LIVE_MIGRATE.allowed or ())


def disable(app: App, host: str, reason: str = "") -> None:
    """Disable the host, so that it gets no new servers. ``reason``: replaces that of a disabled host."""
    conductor = app.servers.conductor
    for service in conductor.service_list(app.context, host, "nova-compute"):
        if not service.disabled or (reason and reason != service.disabled_reason):
            changes = {"disabled": True, "disabled_reason": reason or "nova-lite-manage host drain"}
            conductor.service_update(app.context, service.uuid, changes)
            app.say(f"Host {host} is disabled: it gets no new servers.")


def carry_out(app: App, args: argparse.Namespace, planned: Sequence[Move]) -> int:
    """Carry out the moves. Return the exit status: 1 if a server is still where it was."""
    results = Mover(app, args.way, args.at_once).run(planned)
    app.show(
        ("Server", "Name", "From", "To", "How", "Why Not"),
        [
            (move.uuid, move.name, move.source, move.target, results[move].way, results[move].reason or None)
            for move in planned
        ],
    )
    moved = sum(not result.reason for result in results.values())
    app.say(f"{moved} of {len(planned)} server(s) moved.")
    return 0 if moved == len(planned) else 1


class Mover:
    """Carries out moves. ``way``: `LIVE`, `COLD`, or None to choose for each server; ``at_once``: number of moves at a
    time."""

    def __init__(self, app: App, way: str | None, at_once: int) -> None:
        self._app = app
        self._servers = app.servers
        self._timing = app.timing
        self._way = way
        self._at_once = at_once
        self._stopping = StopEvent()
        self._leaving = StopEvent()
        self._running: dict[futures.Future[Result], Move] = {}

    def run(self, planned: Sequence[Move]) -> dict[Move, Result]:
        """Carry out each move once, in the order of the plan.

        After SIGINT, no further move begins. After a second one, running moves are not waited for.
        """
        results = {move: Result(reason=move.reason) for move in planned if move.target is None}
        for move, result in results.items():
            self._app.say(f"{move}: not moved: {result.reason}")
        waiting = [move for move in planned if move.target is not None]
        pool = futures.ThreadPoolExecutor(self._at_once, thread_name_prefix="move")
        try:
            with self._stopped_by_signal():
                while self._running or (waiting and not self._stopping.is_set()):
                    self._begin(pool, waiting)
                    done, _ = futures.wait(self._running, timeout=0.2, return_when=futures.FIRST_COMPLETED)
                    for future in done:
                        results[self._running.pop(future)] = future.result()
        finally:
            pool.shutdown()
        return results | {move: Result(reason="not begun: stopped") for move in waiting}

    def _begin(self, pool: futures.Executor, waiting: list[Move]) -> None:
        """Begin the moves for which there is room.

        A move waits while an earlier move takes a server away from its target, because it may need that place.
        """
        for move in list(waiting):
            if self._stopping.is_set() or len(self._running) >= self._at_once:
                return
            earlier = [*self._running.values(), *waiting[: waiting.index(move)]]
            if all(other.source != move.target for other in earlier):
                waiting.remove(move)
                self._running[pool.submit(self._move, move)] = move

    @contextlib.contextmanager
    def _stopped_by_signal(self) -> Iterator[None]:
        def stop(*_: Any) -> None:
            if self._stopping.is_set():
                self._leaving.set()
                return
            self._stopping.set()
            self._app.say(
                "Stopping: no further move begins; waiting for the running ones. Interrupt again to leave them running."
            )

        before = signal.signal(signal.SIGINT, stop)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    # --- one server, in a thread

    def _move(self, move: Move) -> Result:
        result = Result()
        began = time.monotonic()
        try:
            result.way = self._choose(move)
            if move.way is not None:
                self._app.say(f"{move}: {move.reason}")
            try:
                self._go(move, result.way)
            except NotMoved as error:
                if self._way is not None or not error.unable:
                    raise
                self._app.say(f"{move}: cannot be moved while it runs: {error}")
                result.way = COLD
                self._go(move, COLD)
        except NotMoved as error:
            result.reason = str(error)
        except exceptions.InstanceNotFound:
            self._app.say(f"{move}: is deleted")
            return result
        except exceptions.NovaLiteException as error:
            result.reason = error.message
        if result.reason:
            self._app.say(f"{move}: not moved: {result.reason}")
        else:
            self._app.say(f"{move}: moved to {move.target} in {time.monotonic() - began:.0f} s")
        return result

    def _choose(self, move: Move) -> str:
        instance = self._instance(move)
        if instance.host != move.source:
            raise NotMoved(f"it is on {instance.host or 'no host'}, its resize is perhaps not confirmed yet")
        return self._way or move.way or (LIVE if may_move_live(instance.vm_state) else COLD)

    def _go(self, move: Move, way: str) -> None:
        self._app.say(f"{move}: {way} to {move.target}")
        if way == LIVE:
            self._do(move, operations.LIVE_MIGRATE, {"host": move.target, "forced": False, "block": None})
        else:
            self._do(move, operations.MIGRATE, {"host": move.target})
            self._app.say(f"{move}: is on {move.target}; the move is being confirmed")
            self._do(move, operations.CONFIRM_RESIZE, {})
        if (host := self._instance(move).host) != move.target:
            raise NotMoved(f"it is on {host or 'no host'}")

    def _do(self, move: Move, operation: operations.Operation, payload: dict[str, Any]) -> None:
        """Start an operation and wait for its end. Raises `NotMoved` if it fails."""
        context = get_admin_context()
        self._servers.accept(context, move.uuid, operation.kind, payload)
        shown = time.monotonic()
        while (action := self._action(context, move)) is None or action.finish_time is None:
            if self._leaving.wait(self._timing.move_poll):
                raise NotMoved(f"the {operation.kind} continues; the command does not wait for it")
            if time.monotonic() - shown >= self._timing.move_progress:
                shown = time.monotonic()
                self._show_progress(move, operation, action)
        if action.message is not None:
            failed = next((event for event in reversed(action.events) if event.result == "Error"), None)
            cause = (failed.details if failed else None) or f"the {operation.kind} has failed"
            raise NotMoved(cause, unable=failed is not None and failed.event in _CHECKS)

    def _show_progress(self, move: Move, operation: operations.Operation, action: InstanceAction | None) -> None:
        step = (action.events[-1].event if action is not None and action.events else "") or operation.kind
        with contextlib.suppress(exceptions.ServiceUnavailable):
            progress = self._instance(move).progress if operation is operations.LIVE_MIGRATE else 0
            self._app.say(f"{move}: {step}" + (f", {progress} %" if progress else ""))

    def _action(self, context: RequestContext, move: Move) -> InstanceAction | None:
        """Return the action, or None while no conductor replies. An accepted action ends anyway, so the caller reads it
        again."""
        try:
            return self._servers.conductor.action_get(context, move.uuid, str(context.request_id))
        except exceptions.ServiceUnavailable:
            return None

    def _instance(self, move: Move) -> Instance:
        return self._servers.conductor.instance_get(self._app.context, move.uuid)
