"""Types of the operation table: an operation, its steps, and the host role where each step happens."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nova_lite.operations.notifications import Notification

#: Key in an action's payload: the move's source was forced down or retired before it reported how the move ended.
LOST_SOURCE = "lost_source"

#: Key in an action's payload: the undo that was begun first, after the action had failed.
UNDONE_FROM = "undone_from"

#: Stands for all vm states or all task states.
ANY = None

#: Names of the two steps that hosts recognise by the instance's generation, so that they need no sequence number.
BUILD = "build"
COMPENSATE = "compensate"


class ImageVerb(enum.StrEnum):
    """Calls to the image backend.

    PUBLISH: activate the image that the host has uploaded. ACTIVATE: activate an image without data. DISCARD: delete
    the image and whatever is left of its upload. ROTATE: of a server's backups of one kind, delete the oldest ones
    beyond ``rotation``.
    """

    PUBLISH = "publish"
    ACTIVATE = "activate"
    DISCARD = "discard"
    ROTATE = "rotate"


#: The verbs that create an image.
MAKES_IMAGE = (ImageVerb.PUBLISH, ImageVerb.ACTIVATE)


class HostRole(enum.StrEnum):
    """The host of a step.

    CURRENT: the instance's host. ALL: every host where the instance has an allocation, one after the other. SOURCE and
    DESTINATION: the two hosts of a move; the action's payload has them under these names.
    """

    CURRENT = "current"
    ALL = "all"
    SOURCE = "source"
    DESTINATION = "destination"


#: The two hosts of a move.
MOVE_ROLES = (HostRole.SOURCE, HostRole.DESTINATION)


@dataclasses.dataclass(frozen=True)
class Step:
    """A step: planned in one transaction, its effect happens outside any, and another transaction records it.

    - ``name``: the action's row shows it
    - ``task``: the task state while the step lasts; None leaves it unchanged
    - ``event``: its name among the action's events
    - ``becomes``: the vm state once the step is done; None leaves it unchanged
    - ``undo``: steps that release what this one took, in this order. They run when the operation fails at this step
      or a later one, newest step first.
    - ``commits``: once the step is done, the operation cannot be undone any more
    - ``only_if``: a key of the action's payload; without it the step is left out
    - ``deadline``: the option of ``[conductor]`` with the seconds that the step may take; None: the action's deadline
      stays
    - ``moves_to``: the instance belongs to this host once the step is done
    - ``notification``: what other systems are notified of
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
    notification: Notification | None = None

    @property
    def outlives_action(self) -> bool:
        """True if the step is repeated until it succeeds, even beside later operations of the server."""
        return False


@dataclasses.dataclass(frozen=True)
class ScheduleStep(Step):
    """Ask the scheduler for a host and claim resources there.

    With ``moves`` the instance belongs to that host at once. Otherwise it stays where it is, and the host becomes the
    destination of a move, with the resources of the payload's ``flavor``.
    """

    _: dataclasses.KW_ONLY
    moves: bool = True


@dataclasses.dataclass(frozen=True)
class HostStep(Step):
    """A command to the host ``at``: RPC method ``method``, which compute has from version ``since`` on.

    - ``begun``: the task state once the host has everything to start with
    - ``tasks``: the task states that the host reports as it reaches them, in this order
    - ``driver``: ability and method of the virt driver that does the whole step; without it the host has its code
    - ``fences``: the host first revokes the instance's generation, so that it never builds it again
    - ``retry_forever``: repeated until it succeeds; neither a failure nor the deadline ends it
    - ``offline_step``: the step's name while its host is away; the owner already sees it as done
    - ``self_compensating``: a host that reports a failure has undone its own part, so the step's undo there is skipped
    - ``minimal``: the command carries the instance without its interfaces and tags
    - ``may_complete_late``: for an undo; the host may find that the step succeeded after all, and then leaves it done
    """

    method: str
    _: dataclasses.KW_ONLY
    at: HostRole = HostRole.CURRENT
    begun: str | None = None
    tasks: tuple[str, ...] = ()
    driver: str | None = None
    fences: bool = False
    retry_forever: bool = False
    since: str = "2.0"
    offline_step: str | None = None
    self_compensating: bool = False
    minimal: bool = False
    may_complete_late: bool = False

    @property
    def is_sequenced(self) -> bool:
        """True unless hosts recognise the command by its generation, as they do builds and fences."""
        return self.name not in (BUILD, COMPENSATE)


@dataclasses.dataclass(frozen=True)
class NetworkStep(Step):
    """A call to the network backend about all interfaces of the server, or (step `DISCONNECT`) the action's only one.

    With built-in networks nothing is called: the transaction that plans the step records it, too.
    """


@dataclasses.dataclass(frozen=True)
class ServiceStep(Step):
    """A call to another service that concerns no host. A later operation of the server may begin beside it."""


@dataclasses.dataclass(frozen=True)
class ImageStep(ServiceStep):
    """A call to the image backend about the image ``image_id`` of the action's payload."""

    _: dataclasses.KW_ONLY
    verb: ImageVerb

    @property
    def outlives_action(self) -> bool:
        """True if the step releases something that is no part of the server."""
        return self.verb not in MAKES_IMAGE


@dataclasses.dataclass(frozen=True)
class SnapshotStep(ServiceStep):
    """A report to Cinder that the snapshot ``snapshot_id`` of the action's payload has this ``status``."""

    _: dataclasses.KW_ONLY
    status: str

    @property
    def outlives_action(self) -> bool:
        """True, because Cinder waits for the report."""
        return True


@dataclasses.dataclass(frozen=True)
class ReleaseStep(Step):
    """Release the instance's allocations, or only the one in the role ``at``. A change of the database only."""

    _: dataclasses.KW_ONLY
    at: HostRole = HostRole.ALL


@dataclasses.dataclass(frozen=True)
class Operation:
    """The definition of an operation. ``kind`` is the name that `openstack server event list` shows.

    Conditions of its acceptance:

    - ``allowed``: vm states; ``during``: task states in which it is accepted although a task runs
    - ``despite_lock``: accepted on a locked server, too
    - ``at_replica``: accepted although another site may run the server, because it starts nothing
    - ``needs_host``: refused while the server is on no host
    - ``loses_tpm``: refused for a server with a TPM, because it would lose the TPM's state, as in Nova
    - ``copies_root``: refused for a server with an encrypted root disk, because the copy would be plain
    - ``copies_memory``: refused for a server with shares, which virtiofs would lose, or with encrypted memory, as in
      Nova
    - ``without_points``: refused for a server with snapshot points, which it would lose
    - ``deduplicates``: a request while such an action is open returns that action
    - ``supersedes``: accepting it closes the open actions. ``preempts``: even actions that are being undone, because
      their results do not matter any more; otherwise it is refused until the undo is over.

    Course:

    - ``reported``: no user requests it; it records what a hypervisor has reported of a guest
    - ``steps``: in order; an operation without steps is done when it is accepted
    - ``failed``: the vm state after it failed and was undone; None: the state follows the guest
    - ``variants``: payload key, value, and the definition that replaces this one for that value
    - ``notification``: what other systems are notified of; that of a variant replaces it
    - ``rollback``: the same for the undo, if it has events of its own

    API: ``action`` is its name at ``/servers/{id}/action`` if the generic handler accepts it there, from minor version
    ``microversion`` on. The policy ``rule`` admits admins (``admin``) or the project's members. ``method`` is its name
    in error texts.
    """

    kind: str
    _: dataclasses.KW_ONLY
    allowed: tuple[str, ...] | None = ANY
    during: tuple[str, ...] | None = ()
    steps: tuple[Step, ...] = ()
    despite_lock: bool = False
    at_replica: bool = False
    deduplicates: bool = False
    needs_host: bool = True
    loses_tpm: bool = False
    copies_root: bool = False
    copies_memory: bool = False
    without_points: bool = False
    supersedes: bool = True
    preempts: bool = False
    failed: str | None = None
    reported: bool = False
    method: str = ""
    action: str | None = None
    microversion: int = 1
    rule: str | None = None
    admin: bool = False
    summary: str = ""
    variants: tuple[tuple[str, Any, Operation], ...] = ()
    notification: Notification | None = None
    rollback: Notification | None = None

    # Lookup tables made of ``steps``, because the engine consults them many times in each action.
    _by_name: Mapping[str, Step] = dataclasses.field(init=False, repr=False, compare=False)
    _undo_names: frozenset[str] = dataclasses.field(init=False, repr=False, compare=False)
    _undone_by: Mapping[str, Step] = dataclasses.field(init=False, repr=False, compare=False)
    _following: Mapping[str, tuple[Step, ...]] = dataclasses.field(init=False, repr=False, compare=False)
    _undos: Mapping[tuple[str, bool], tuple[Step, ...]] = dataclasses.field(init=False, repr=False, compare=False)
    _sequences: Mapping[str, int] = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        derived = {"method": self.method or self.kind, **_lookup_tables(self)}
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    def variant(self, payload: Mapping[str, Any]) -> Operation:
        """Return the definition for an action with this payload."""
        for key, value, variant in self.variants:
            if payload.get(key) == value:
                return variant
        return self

    def step(self, name: str) -> Step:
        """Return the step or undo of this name, which may be an `offline_step`. Raises `LookupError`."""
        try:
            return self._by_name[name]
        except KeyError:
            raise LookupError(f"{self.kind} has no step {name}") from None

    def all_steps(self) -> Iterator[Step]:
        """Yield each step, followed by its undo."""
        for step in self.steps:
            yield step
            yield from step.undo

    def following(self, name: str, payload: Mapping[str, Any]) -> Step | None:
        """Return the step after the step of this name, or the undo after the undo of this name."""
        return first_applicable(self._following[name], payload)

    @property
    def ends_for_owner_with(self) -> Step | None:
        """The step after which the owner sees the operation as done, although it may continue until its host is
        back."""
        return next((step for step in self.steps if isinstance(step, HostStep) and step.offline_step), None)

    @property
    def has_choice(self) -> bool:
        """True if another host may be tried after a failed build."""
        return any(isinstance(step, ScheduleStep) for step in self.steps)

    def is_undo(self, name: str) -> bool:
        """Check whether an undo has this name."""
        return name in self._undo_names

    def undone_by(self, name: str) -> Step:
        """Return the step that the undo of this name undoes."""
        return self._undone_by[name]

    def undos(self, name: str, begun: bool = True) -> tuple[Step, ...]:
        """Return the undo of the step of this name and of those before it, in the order in which to run it.

        Without ``begun`` the step itself took nothing, so only those before it are undone. Nothing is undone after a
        step that commits.
        """
        return self._undos[name, begun]

    def sequence(self, name: str) -> int:
        """Return the sequence number of the command of this step or undo. It increases within an action.

        Builds and fences have 0: hosts recognise them by their generation.
        """
        return self._sequences.get(name, 0)

    def last_sequence(self, name: str, payload: Mapping[str, Any], host: str, failed: bool) -> int | None:
        """Return the sequence number of the last command of a closed action that ``host`` carried out; None for none.

        ``name``: the step or undo at which the action was closed. ``host``: that of the instance. If the action
        ``failed``, only undo commands count.
        """
        course = _undos_of(self.steps) if failed else self.steps
        names = [step.name for step in course]
        first = payload.get(UNDONE_FROM) if failed else names[0]
        if first not in names or (failed and name not in names):
            return None
        end = names.index(name) + 1 if name in names else len(names)
        commands = [step for step in course[names.index(first) : end] if _was_carried_out(step, payload, host)]
        return self.sequence(commands[-1].name) if commands else None


def first_applicable(steps: Iterable[Step], payload: Mapping[str, Any]) -> Step | None:
    """Return the first of these steps that the payload does not leave out."""
    for step in steps:
        if step.only_if is None or payload.get(step.only_if):
            return step
    return None


def _was_carried_out(step: Step, payload: Mapping[str, Any], host: str) -> bool:
    """Check whether a done step was a command to ``host`` that its host knows by a sequence number."""
    if not (isinstance(step, HostStep) and step.is_sequenced and first_applicable([step], payload)):
        return False
    return step.at not in MOVE_ROLES or (payload.get(step.at.value) or {}).get("host") == host


def _undos_of(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return the undo of these steps, newest step first."""
    return tuple(undo for step in reversed(steps) for undo in step.undo)


def _lookup_tables(operation: Operation) -> dict[str, Any]:
    """Return the values of the derived fields of `Operation`."""
    steps, undos = operation.steps, _undos_of(operation.steps)
    by_name: dict[str, Step] = {}
    for step in operation.all_steps():
        for name in _names(step):
            by_name.setdefault(name, step)
    following = {undo.name: undos[index + 1 :] for index, undo in reversed([*enumerate(undos)])}
    following |= {step.name: steps[index + 1 :] for index, step in reversed([*enumerate(steps)])}
    compensation: dict[tuple[str, bool], tuple[Step, ...]] = {}
    committed = False
    for index, step in enumerate(steps):
        for begun in (True, False):
            taken = () if committed else steps[: index + begun]
            compensation |= {(name, begun): _undos_of(taken) for name in _names(step)}
        committed = committed or step.commits
    return {
        "_by_name": by_name,
        "_undo_names": by_name.keys() - {name for step in steps for name in _names(step)},
        "_undone_by": {undo.name: step for step in reversed(steps) for undo in step.undo},
        "_following": following,
        "_undos": compensation,
        "_sequences": _sequences(steps, by_name),
    }


def _sequences(steps: tuple[Step, ...], by_name: Mapping[str, Step]) -> dict[str, int]:
    """Return the sequence number of each command by the step's name."""
    course: list[Step] = []
    for index, step in enumerate(steps):
        course.append(step)
        if step.commits or index == len(steps) - 1:  # a later step may follow an undo that found this one done
            course += [undo for undo in _undos_of(steps[: index + 1]) if undo not in course]
    commands = [step for step in course if isinstance(step, HostStep) and step.is_sequenced]
    return {name: commands.index(step) for name, step in by_name.items() if step in commands}


def _names(step: Step) -> tuple[str, ...]:
    offline = step.offline_step if isinstance(step, HostStep) else None
    return (step.name,) if offline is None else (step.name, offline)
