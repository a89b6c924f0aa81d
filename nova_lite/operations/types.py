"""Types of the operation table: an operation, its steps, and where each step happens."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

#: In the payload of an action: its source was forced down before it had told how a move ended.
LOST_SOURCE = "lost_source"

#: In place of vm states or task states: all of them.
ANY = None


class ImageVerb(enum.StrEnum):
    """PUBLISH: what the host has uploaded is the image, and active. ACTIVATE: the image has no data, and is active.
    DISCARD: the image goes away, with all that is left of its upload. ROTATE: of the backups of one kind, the oldest
    ones beyond ``rotation`` go away."""

    PUBLISH = "publish"
    ACTIVATE = "activate"
    DISCARD = "discard"
    ROTATE = "rotate"


#: After these there is an image.
MAKES_IMAGE = (ImageVerb.PUBLISH, ImageVerb.ACTIVATE)


class HostRole(enum.StrEnum):
    """Where a step happens: at the host that the instance is on; at every one where it holds something, in turn; or at
    one of the two ends of a move, which the action's payload names (``source``, ``destination``)."""

    CURRENT = "current"
    ALL = "all"
    SOURCE = "source"
    DESTINATION = "destination"


#: The ends of a move.
MOVE_ROLES = (HostRole.SOURCE, HostRole.DESTINATION)


@dataclasses.dataclass(frozen=True)
class Step:
    """One step: planned in one transaction, one effect outside any, recorded in another.

    ``name`` is what the action's row calls it. ``task``: the task state while it lasts (None: as it was). ``event``:
    its name among the action's events. ``becomes``: the vm state once it is done (None: as it was). ``undo`` gives back
    what it took, in this order; it is run when the operation fails at this step or a later one, newest step first.
    ``commits``: once it is done, the operation cannot be undone any more. ``only_if``: a key of the action's payload
    without which the step is left out. ``deadline``: the option of ``[conductor]`` that gives it so many seconds of its
    own (None: what is left of the time of the step before). ``moves_to``: once it is done, the instance belongs there.
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
    moves_to: HostRole | None = None


@dataclasses.dataclass(frozen=True)
class ScheduleStep(Step):
    """The scheduler is asked for a host; it is claimed, and the instance belongs there from then on. Unless it
    ``moves``, it stays where it is: what is claimed is the destination, for the payload's ``flavor``."""

    _: dataclasses.KW_ONLY
    moves: bool = True


@dataclasses.dataclass(frozen=True)
class HostStep(Step):
    """An order to the host ``at``, by the RPC method ``method`` (of the compute service's version ``since``).

    ``begun``: the task state once the host has reported that it starts. ``tasks``: the task states that the host
    reports as it reaches them, in this order. ``driver``: the method of the virt driver that does the whole step;
    without one the host's module does it. ``fences``: the host first promises never to build the instance again at this
    generation. ``retry_forever``: repeated until it succeeds; neither a failure nor the deadline ends it.
    ``offline_step``: the step's name while its host is away; the owner already sees it as done.
    ``self_compensating``: a host that reports a failure has undone its own part, so the step's undo there is skipped.
    ``minimal``: the command carries the instance's own row only, without interfaces and tags.
    ``may_complete_late``: of an undo; the host may find that the step succeeded after all, and then leaves it done.
    """

    method: str
    _: dataclasses.KW_ONLY
    at: HostRole = HostRole.CURRENT
    begun: str | None = None
    tasks: tuple[str, ...] = ()
    driver: str | None = None
    fences: bool = False
    retry_forever: bool = False
    since: str = "1.0"
    offline_step: str | None = None
    self_compensating: bool = False
    minimal: bool = False
    may_complete_late: bool = False


@dataclasses.dataclass(frozen=True)
class NetworkStep(Step):
    """The network backend is told, of all interfaces or (`DISCONNECT`) of the action's; nothing is, and the step joins
    the one before, where it is built in."""


@dataclasses.dataclass(frozen=True)
class ImageStep(Step):
    """The image backend is told ``verb``, about the image ``image_id`` of the action's payload.

    What makes no image gives back something that is no part of the server: it goes on until it has worked, also beside
    later operations of the server.
    """

    _: dataclasses.KW_ONLY
    verb: ImageVerb

    @property
    def outlives_action(self) -> bool:
        return self.verb not in MAKES_IMAGE


@dataclasses.dataclass(frozen=True)
class ReleaseStep(Step):
    """All that the instance holds of hosts is given back, or what it holds at one ``end`` of a move. A record only."""

    _: dataclasses.KW_ONLY
    end: HostRole = HostRole.ALL


@dataclasses.dataclass(frozen=True)
class Operation:
    """A row. ``kind`` is what `openstack server event list` shows.

    Accepted in the vm states ``allowed`` and, if a task runs, in the task states ``during`` (empty: only without one).
    ``despite_lock``: also on a locked server. ``deduplicates``: a request while one is open returns that one.
    ``needs_host``: refused while the server is on no host. ``method``: its name in the texts of refusals.

    ``failed``: the vm state once it has failed and was undone (None: what its guest is). ``supersedes``: closes what is
    open when it is accepted. ``preempts``: also what is being undone, since nothing of that can matter any more; else
    it is refused until that is over.

    ``action``: how it is called at ``/servers/{id}/action`` where that only accepts it, from the minor version
    ``microversion`` on, under the policy ``rule``, which is for admins or else for the project's members. ``variants``:
    the row to take instead, by a key of the payload and its value. An operation without steps is done when it is
    accepted.
    """

    kind: str
    _: dataclasses.KW_ONLY
    allowed: tuple[str, ...] | None = ANY
    during: tuple[str, ...] | None = ()
    steps: tuple[Step, ...] = ()
    despite_lock: bool = False
    deduplicates: bool = False
    needs_host: bool = True
    supersedes: bool = True
    preempts: bool = False
    failed: str | None = None
    method: str = ""
    action: str | None = None
    microversion: int = 1
    rule: str | None = None
    admin: bool = False
    summary: str = ""
    variants: tuple[tuple[str, Any, Operation], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "method", self.method or self.kind)

    def step(self, name: str) -> Step:
        """The step of this name, an undo or the name of one while its host is away included; raises `LookupError`."""
        for step in self.all_steps():
            if name in (step.name, getattr(step, "offline_step", None)):
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
        every = self.steps if name in names else self._undos(names[-1])
        return first_wanted(every[[step.name for step in every].index(name) + 1 :], payload)

    @property
    def has_choice(self) -> bool:
        """Whether a build that one host could not do may go to another."""
        return any(isinstance(step, ScheduleStep) for step in self.steps)

    def is_undo(self, name: str) -> bool:
        return all(name not in (step.name, getattr(step, "offline_step", None)) for step in self.steps)

    def undone_by(self, name: str) -> Step:
        """The step that the undo of this name takes back."""
        return next(step for step in self.steps if any(undo.name == name for undo in step.undo))

    def undos(self, name: str, begun: bool = True) -> tuple[Step, ...]:
        """What takes back the step of this name and those before it, in the order in which to run it. Not ``begun``:
        only those before it."""
        names = [step.name for step in self.steps]
        before = self.steps[: names.index(name)]
        return () if any(step.commits for step in before) else self._undos(name, begun)

    def _undos(self, name: str, begun: bool = True) -> tuple[Step, ...]:
        names = [step.name for step in self.steps]
        taken = self.steps[: names.index(name) + begun]
        return tuple(undo for step in reversed(taken) for undo in step.undo)

    def last_order(self, name: str, failed: bool) -> int | None:
        """The position of the last order that was carried out of an action that was closed at this step (or undo); None
        for none. Of what has failed that is an undo. Builds and fences are no such orders."""
        if failed and not self.is_undo(name):
            return None
        every = self._undos(self.steps[-1].name) if failed else self.steps
        names = [step.name for step in every]
        done = every[: names.index(name) + 1] if name in names else every
        orders = [step for step in done if isinstance(step, HostStep) and step.name not in (BUILD, COMPENSATE)]
        return self.position(orders[-1].name) if orders else None

    def position(self, name: str) -> int:
        """The how-manieth order to a host the step (or undo) of this name is; it grows while an action goes on. Builds
        and fences are no such orders: they are known by their generation."""
        every: list[Step] = []
        for step in self.steps:
            every.append(step)
            if step.commits or step is self.steps[-1]:  # what follows may come after an undo that revives
                every += [undo for undo in self._undos(step.name) if undo not in every]
        orders = [step for step in every if isinstance(step, HostStep) and step.name not in (BUILD, COMPENSATE)]
        found = self.step(name)
        return orders.index(found) if found in orders else 0


def first_wanted(steps: Iterable[Step], payload: Mapping[str, Any]) -> Step | None:
    """The first of these that the payload does not leave out."""
    return next((step for step in steps if step.only_if is None or payload.get(step.only_if)), None)


BUILD = "build"
COMPENSATE = "compensate"
