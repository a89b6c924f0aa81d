"""Every operation on a server, as data: what allows it, its steps in order, what each becomes, and what undoes it.

No I/O. The conductor's engine (`nova_lite.conductor.operations.engine`) drives the rows, the host's
(`nova_lite.compute.operations.engine`) carries out its steps; only what is an operation's own is code, in the module
of its name beside each engine. Routes, rules, the table of states in the docs, and the fault matrix are made of these
rows.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator, Mapping
from typing import Any

from nova_lite import states

#: In place of vm states or task states: all of them.
ANY = None


class End(enum.StrEnum):
    """Where a step happens: at the host that the instance is on, or at every one where it holds something, in turn."""

    HERE = "here"
    EVERY = "every"


@dataclasses.dataclass(frozen=True)
class Step:
    """One step: planned in one transaction, one effect outside any, recorded in another.

    ``name`` is what the action's row calls it. ``task``: the task state while it lasts (None: as it was). ``event``:
    its name among the action's events. ``becomes``: the vm state once it is done (None: as it was). ``undo`` gives back
    what it took, in this order; it is run when the operation fails at this step or a later one, newest step first.
    ``commits``: once it is done, the operation cannot be undone any more. ``only_if``: a key of the action's payload
    without which the step is left out. ``deadline``: the option of ``[conductor]`` that gives it so many seconds of its
    own (None: what is left of the time of the step before).
    """

    name: str
    _: dataclasses.KW_ONLY
    task: str | None = None
    event: str | None = None
    becomes: str | None = None
    undo: tuple[Step, ...] = ()
    commits: bool = False
    only_if: str | None = None
    deadline: str | None = None


@dataclasses.dataclass(frozen=True)
class Schedule(Step):
    """The scheduler is asked for a host; it is claimed, and the instance belongs there from then on."""


@dataclasses.dataclass(frozen=True)
class OnHost(Step):
    """An order to the host ``at``, by the RPC method ``method`` (of the compute service's version ``since``).

    ``begun``: the task state once the host has said that it begins. ``driver``: the method of the virt driver that is
    all there is to do; without one the host's module has it. ``fences``: the host promises to build the instance no
    more before anything else. ``lasting``: tried until it has worked, neither a failure nor the deadline ends it.
    ``away``: while the host is away the step counts as done for the owner, and is called this until the host is back.
    """

    method: str
    _: dataclasses.KW_ONLY
    at: End = End.HERE
    begun: str | None = None
    driver: str | None = None
    fences: bool = False
    lasting: bool = False
    since: str = "1.0"
    away: str | None = None


@dataclasses.dataclass(frozen=True)
class Network(Step):
    """The network backend is told; nothing is, and the step joins the one before, where it is built in."""


@dataclasses.dataclass(frozen=True)
class Release(Step):
    """All that the instance holds of hosts is given back. A record only."""


@dataclasses.dataclass(frozen=True)
class Operation:
    """A row. ``kind`` is what `openstack server event list` shows.

    Accepted in the vm states ``allowed`` and, if a task runs, in the task states ``during`` (empty: only without one).
    ``despite_lock``: also on a locked server. ``joins``: a request while one is open is the same one. ``needs_host``:
    refused while the server is on no host. ``method``: its name in the texts of refusals.

    ``failed``: the vm state once it has failed and was undone (None: what its guest is). ``supersedes``: closes what is
    open when it is accepted.

    ``action``: how it is called at ``/servers/{id}/action`` where that only accepts it, under the policy ``rule``,
    which is for admins or else for the project's members. ``variants``: the row to take instead, by a key of the
    payload and its value. An operation without steps is done when it is accepted.
    """

    kind: str
    _: dataclasses.KW_ONLY
    allowed: tuple[str, ...] | None = ANY
    during: tuple[str, ...] | None = ()
    steps: tuple[Step, ...] = ()
    despite_lock: bool = False
    joins: bool = False
    needs_host: bool = True
    supersedes: bool = True
    failed: str | None = None
    method: str = ""
    action: str | None = None
    rule: str | None = None
    admin: bool = False
    summary: str = ""
    variants: tuple[tuple[str, Any, Operation], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "method", self.method or self.kind)

    def step(self, name: str) -> Step:
        """The step of this name, an undo or the name of one while its host is away included; raises `LookupError`."""
        for step in self.all_steps():
            if name in (step.name, getattr(step, "away", None)):
                return step
        raise LookupError(f"{self.kind} has no step {name}")

    def all_steps(self) -> Iterator[Step]:
        """Steps and their undos, in order."""
        for step in self.steps:
            yield step
            yield from step.undo

    def after(self, name: str, payload: Mapping[str, Any]) -> Step | None:
        """What follows the step (or undo) of this name, if anything does."""
        names = [step.name for step in self.steps]
        if name not in names:
            every = self._undos(names[-1])
            return next(iter(every[[undo.name for undo in every].index(name) + 1 :]), None)
        later = self.steps[names.index(name) + 1 :]
        return next((step for step in later if step.only_if is None or payload.get(step.only_if)), None)

    def is_undo(self, name: str) -> bool:
        return all(name not in (step.name, getattr(step, "away", None)) for step in self.steps)

    def undos(self, name: str) -> tuple[Step, ...]:
        """What takes back the step of this name and those before it, in the order in which to run it."""
        names = [step.name for step in self.steps]
        begun = self.steps[: names.index(name) + 1]
        return () if any(step.commits for step in begun[:-1]) else self._undos(name)

    def _undos(self, name: str) -> tuple[Step, ...]:
        names = [step.name for step in self.steps]
        begun = self.steps[: names.index(name) + 1]
        return tuple(undo for step in reversed(begun) for undo in step.undo)


# Names of steps, as the rows of the action log have them.
SCHEDULE = "schedule"
BUILD = "build"
COMPENSATE = "compensate"
PERFORM = "perform"
CLEANUP = "cleanup"
DEALLOCATE = "deallocate"
RELEASE = "release"

_FENCE = OnHost(COMPENSATE, "fence_instance", lasting=True)
_BUILD = OnHost(
    BUILD,
    "build_and_run_instance",
    begun=states.SPAWNING,
    event="compute__do_build_and_run_instance",
    becomes=states.ACTIVE,
    undo=(_FENCE,),
    commits=True,
)
_SCHEDULE_EVENT = "conductor_schedule_and_build_instances"

CREATE = Operation(
    "create",
    failed=states.ERROR,
    steps=(
        Schedule(SCHEDULE, task=states.SCHEDULING, event=_SCHEDULE_EVENT, undo=(Network(DEALLOCATE), Release(RELEASE))),
        _BUILD,
    ),
)

DELETE = Operation(
    "delete",
    during=ANY,
    joins=True,
    needs_host=False,
    steps=(
        OnHost(
            PERFORM,
            "terminate_instance",
            task=states.DELETING,
            event="compute_terminate_instance",
            at=End.EVERY,
            becomes=states.DELETED,
            fences=True,
            lasting=True,
            away=CLEANUP,
        ),
        Network(DEALLOCATE),
        Release(RELEASE),
    ),
)


def _by_host(kind: str, task: str, becomes: str, **fields: Any) -> OnHost:
    """The only step of an operation that its host carries out: ``<kind>_instance``."""
    method = f"{kind}_instance"
    return OnHost(PERFORM, method, task=task, event=f"compute_{method}", becomes=becomes, **fields)


def _by_driver(kind: str, task: str, becomes: str, **fields: Any) -> OnHost:
    """The same, where the driver's method ``<kind>`` is all that it takes."""
    return _by_host(kind, task, becomes, driver=kind, **fields)


STOP = Operation(
    "stop",
    allowed=(states.ACTIVE, states.ERROR),
    steps=(_by_host("stop", states.POWERING_OFF, states.STOPPED),),
    action="os-stop",
    rule="os_compute_api:servers:stop",
    summary="Stop a server",
)

START = Operation(
    "start",
    allowed=(states.STOPPED,),
    steps=(_by_host("start", states.POWERING_ON, states.ACTIVE),),
    action="os-start",
    rule="os_compute_api:servers:start",
    summary="Start a server",
)


#: It also mends an instance that is stopped, paused, suspended or in error, and one that is stuck in a soft reboot.
HARD_REBOOT = Operation(
    "reboot",
    allowed=(states.ACTIVE, states.STOPPED, states.PAUSED, states.SUSPENDED, states.ERROR),
    during=(states.REBOOTING,),
    steps=(_by_host("reboot", states.REBOOTING_HARD, states.ACTIVE),),
)
REBOOT = Operation(
    "reboot",
    allowed=(states.ACTIVE,),
    steps=(_by_host("reboot", states.REBOOTING, states.ACTIVE),),
    variants=(("reboot_type", "HARD", HARD_REBOOT),),
    action="reboot",
    rule="os_compute_api:servers:reboot",
    summary="Reboot a server",
)

EVACUATE = Operation(
    "evacuate",
    allowed=(states.ACTIVE, states.STOPPED, states.ERROR),
    during=(
        *(states.POWERING_OFF, states.POWERING_ON, states.REBOOTING, states.REBOOTING_HARD),
        *(states.REBUILDING, states.REBUILD_SPAWNING),
    ),
    needs_host=False,
    failed=states.ERROR,
    steps=(
        Schedule(SCHEDULE, task=states.REBUILDING, event=_SCHEDULE_EVENT, undo=(Release(RELEASE),)),
        dataclasses.replace(_BUILD, begun=states.REBUILD_SPAWNING),
        _by_host("stop", states.POWERING_OFF, states.STOPPED, only_if="stop", deadline="action_deadline"),
    ),
)

PAUSE = Operation(
    "pause",
    allowed=(states.ACTIVE,),
    steps=(_by_driver("pause", states.PAUSING, states.PAUSED, since="1.1"),),
    action="pause",
    rule="os_compute_api:os-pause-server:pause",
    summary="Pause a server",
)

UNPAUSE = Operation(
    "unpause",
    allowed=(states.PAUSED,),
    steps=(_by_driver("unpause", states.UNPAUSING, states.ACTIVE, since="1.1"),),
    action="unpause",
    rule="os_compute_api:os-pause-server:unpause",
    summary="Let a paused server run on",
)

SUSPEND = Operation(
    "suspend",
    allowed=(states.ACTIVE,),
    steps=(_by_driver("suspend", states.SUSPENDING, states.SUSPENDED, since="1.1"),),
    action="suspend",
    rule="os_compute_api:os-suspend-server:suspend",
    summary="Suspend a server, its memory kept on disk",
)

RESUME = Operation(
    "resume",
    allowed=(states.SUSPENDED,),
    steps=(_by_driver("resume", states.RESUMING, states.ACTIVE, since="1.1"),),
    action="resume",
    rule="os_compute_api:os-suspend-server:resume",
    summary="Resume a suspended server",
)

LOCK = Operation("lock", during=ANY, despite_lock=True, needs_host=False, supersedes=False)
UNLOCK = Operation("unlock", during=ANY, despite_lock=True, needs_host=False, supersedes=False)
RESET_STATE = Operation("reset_state", during=ANY, despite_lock=True, needs_host=False)

#: Every row, by its kind.
OPERATIONS: dict[str, Operation] = {
    row.kind: row
    for row in (
        *(CREATE, DELETE, STOP, START, REBOOT, EVACUATE, PAUSE, UNPAUSE, SUSPEND, RESUME),
        *(LOCK, UNLOCK, RESET_STATE),
    )
}


def get(kind: str, payload: Mapping[str, Any]) -> Operation:
    """The row of an action; raises `KeyError` for a kind that there is not."""
    row = OPERATIONS[kind]
    return next((variant for key, value, variant in row.variants if payload.get(key) == value), row)


def order_methods() -> dict[str, OnHost]:
    """The RPC methods that carry out a step at a host (builds apart, whose order is another one), with such a step."""
    steps = [step for row in OPERATIONS.values() for step in row.steps if isinstance(step, OnHost)]
    return {step.method: step for step in steps if step.name != BUILD}


def orders() -> list[str]:
    """The kinds of operations that begin with an order to the instance's host."""
    return [row.kind for row in OPERATIONS.values() if row.steps and isinstance(row.steps[0], OnHost)]


def order_of(kind: str, payload: Mapping[str, Any]) -> str:
    """The RPC method of the last step at a host: what an action is that does not say at which step it is."""
    return [step.method for step in get(kind, payload).steps if isinstance(step, OnHost) and step.name != BUILD][-1]


def compute_version() -> str:
    """The compute service's version: that of its newest order."""
    return max((step.since for step in order_methods().values()), key=lambda text: [*map(int, text.split("."))])
