"""Every operation on a server, as data: what allows it, its steps in order, what each becomes, and what undoes it.

No I/O. The conductor's engine (`nova_lite.conductor.operations.engine`) drives the rows, the host's
(`nova_lite.compute.operations.engine`) carries out its steps; only what is an operation's own is code, in the module
of its name beside each engine. Routes, rules, the table of states in the docs, and the fault matrix are made of these
rows.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nova_lite import states

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


class End(enum.StrEnum):
    """Where a step happens: at the host that the instance is on; at every one where it holds something, in turn; or at
    one of the two ends of a move, which the action's payload names (``source``, ``destination``)."""

    HERE = "here"
    EVERY = "every"
    SOURCE = "source"
    DESTINATION = "destination"


#: The ends of a move.
MOVE = (End.SOURCE, End.DESTINATION)


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
    moves_to: End | None = None


@dataclasses.dataclass(frozen=True)
class Schedule(Step):
    """The scheduler is asked for a host; it is claimed, and the instance belongs there from then on. Unless it
    ``moves``, it stays where it is: what is claimed is the destination, for the payload's ``flavor``."""

    _: dataclasses.KW_ONLY
    moves: bool = True


@dataclasses.dataclass(frozen=True)
class OnHost(Step):
    """An order to the host ``at``, by the RPC method ``method`` (of the compute service's version ``since``).

    ``begun``: the task state once the host has said that it begins. ``tasks``: those that the host says as it comes to
    them, in this order. ``driver``: the method of the virt driver that is
    all there is to do; without one the host's module has it. ``fences``: the host promises to build the instance no
    more before anything else. ``lasting``: tried until it has worked, neither a failure nor the deadline ends it.
    ``away``: while the host is away the step counts as done for the owner, and is called this until the host is back.
    ``cleans_up``: a host that reports its failure has taken back its own part, so that its undo there is left out.
    ``bare``: its host needs no more of the instance than its own row; interfaces and tags are left out.
    ``revives``: of an undo; its host may find that what is to be undone was done after all, and then leaves it so.
    """

    method: str
    _: dataclasses.KW_ONLY
    at: End = End.HERE
    begun: str | None = None
    tasks: tuple[str, ...] = ()
    driver: str | None = None
    fences: bool = False
    lasting: bool = False
    since: str = "1.0"
    away: str | None = None
    cleans_up: bool = False
    bare: bool = False
    revives: bool = False


@dataclasses.dataclass(frozen=True)
class Network(Step):
    """The network backend is told, of all interfaces or (`DISCONNECT`) of the action's; nothing is, and the step joins
    the one before, where it is built in."""


@dataclasses.dataclass(frozen=True)
class Image(Step):
    """The image backend is told ``verb``, about the image ``image_id`` of the action's payload.

    What makes no image gives back something that is no part of the server: it goes on until it has worked, also beside
    later operations of the server.
    """

    _: dataclasses.KW_ONLY
    verb: ImageVerb

    @property
    def goes_on(self) -> bool:
        return self.verb not in MAKES_IMAGE


@dataclasses.dataclass(frozen=True)
class Release(Step):
    """All that the instance holds of hosts is given back, or what it holds at one ``end`` of a move. A record only."""

    _: dataclasses.KW_ONLY
    end: End = End.EVERY


@dataclasses.dataclass(frozen=True)
class Operation:
    """A row. ``kind`` is what `openstack server event list` shows.

    Accepted in the vm states ``allowed`` and, if a task runs, in the task states ``during`` (empty: only without one).
    ``despite_lock``: also on a locked server. ``joins``: a request while one is open is the same one. ``needs_host``:
    refused while the server is on no host. ``method``: its name in the texts of refusals.

    ``failed``: the vm state once it has failed and was undone (None: what its guest is). ``supersedes``: closes what is
    open when it is accepted. ``takes_over``: also what is being undone, since nothing of that can matter any more; else
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
    joins: bool = False
    needs_host: bool = True
    supersedes: bool = True
    takes_over: bool = False
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
        every = self.steps if name in names else self._undos(names[-1])
        return first_wanted(every[[step.name for step in every].index(name) + 1 :], payload)

    @property
    def has_choice(self) -> bool:
        """Whether a build that one host could not do may go to another."""
        return any(isinstance(step, Schedule) for step in self.steps)

    def is_undo(self, name: str) -> bool:
        return all(name not in (step.name, getattr(step, "away", None)) for step in self.steps)

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
        orders = [step for step in done if isinstance(step, OnHost) and step.name not in (BUILD, COMPENSATE)]
        return self.position(orders[-1].name) if orders else None

    def position(self, name: str) -> int:
        """The how-manieth order to a host the step (or undo) of this name is; it grows while an action goes on. Builds
        and fences are no such orders: they are known by their generation."""
        every: list[Step] = []
        for step in self.steps:
            every.append(step)
            if step.commits or step is self.steps[-1]:  # what follows may come after an undo that revives
                every += [undo for undo in self._undos(step.name) if undo not in every]
        orders = [step for step in every if isinstance(step, OnHost) and step.name not in (BUILD, COMPENSATE)]
        found = self.step(name)
        return orders.index(found) if found in orders else 0


def first_wanted(steps: Iterable[Step], payload: Mapping[str, Any]) -> Step | None:
    """The first of these that the payload does not leave out."""
    return next((step for step in steps if step.only_if is None or payload.get(step.only_if)), None)


# Names of steps, as the rows of the action log have them.
SCHEDULE = "schedule"
BUILD = "build"
COMPENSATE = "compensate"
PERFORM = "perform"
CLEANUP = "cleanup"
PUBLISH = "publish"
DISCARD = "discard"
ROTATE = "rotate"
TURN_OFF = "turn-off"
DEALLOCATE = "deallocate"
DISCONNECT = "disconnect"
RELEASE = "release"
LEAVE = "leave"
ARRIVE = "arrive"
DROP = "drop"
RETURN = "return"
CHECK = "check"
PREPARE = "prepare"
HAND_OVER = "hand_over"
ROLL_BACK = "roll_back"
FIND = "find"
SETTLE = "settle"
CLEAR = "clear"
RELEASE_SOURCE = "release_source"
DETACH = "detach"
TAKE_BACK = "take_back"

_FENCE = OnHost(COMPENSATE, "fence_instance", lasting=True, revives=True)
_BUILD = OnHost(
    BUILD,
    "build_and_run_instance",
    begun=states.SPAWNING,
    event="compute__do_build_and_run_instance",
    becomes=states.ACTIVE,
    undo=(_FENCE,),
    commits=True,
    cleans_up=True,
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

_PUBLISH = Image(PUBLISH, verb=ImageVerb.PUBLISH, commits=True)
_DISCARD = Image(DISCARD, verb=ImageVerb.DISCARD)

#: The guest is off and its disks are kept until the reconciler deletes it, or its owner restores it.
SOFT_DELETE = Operation(
    "delete",
    method="soft_delete",
    allowed=(
        *(states.ACTIVE, states.STOPPED, states.PAUSED, states.SUSPENDED, states.RESCUED, states.SHELVED),
        *(states.ERROR, states.SOFT_DELETED),
    ),
    during=(
        *(states.POWERING_OFF, states.POWERING_ON, states.REBOOTING, states.REBOOTING_HARD, states.PAUSING),
        *(states.UNPAUSING, states.SUSPENDING, states.RESUMING, states.SOFT_DELETING),
    ),
    joins=True,
    steps=(
        OnHost(
            PERFORM,
            "soft_delete_instance",
            task=states.SOFT_DELETING,
            event="compute_soft_delete_instance",
            becomes=states.SOFT_DELETED,
            lasting=True,
            away=TURN_OFF,
            since="1.2",
        ),
    ),
)

DELETE = Operation(
    "delete",
    takes_over=True,
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
            bare=True,
        ),
        Network(DEALLOCATE),
        Release(RELEASE),
        dataclasses.replace(_DISCARD, only_if="image_id"),
    ),
    variants=(("soft", True, SOFT_DELETE),),
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
    takes_over=True,
    allowed=(states.ACTIVE, states.STOPPED, states.ERROR, states.RESIZED),
    during=(
        *(states.POWERING_OFF, states.POWERING_ON, states.REBOOTING, states.REBOOTING_HARD),
        *(states.REBUILDING, states.REBUILD_SPAWNING),
        *(states.RESIZE_PREP, states.RESIZE_MIGRATING, states.RESIZE_REVERTING),
        *(states.ATTACHING_VOLUME, states.DETACHING_VOLUME, states.COPYING_VOLUME, states.SWAPPING_VOLUME),
    ),
    needs_host=False,
    failed=states.ERROR,
    steps=(
        Schedule(SCHEDULE, task=states.REBUILDING, event=_SCHEDULE_EVENT, undo=(Release(RELEASE),)),
        dataclasses.replace(_BUILD, begun=states.REBUILD_SPAWNING),
        _by_host("stop", states.POWERING_OFF, states.STOPPED, only_if="stop", deadline="action_deadline"),
    ),
)

#: The same host builds it anew, at a new generation, which replaces what is there: nothing but the build can fail.
REBUILD = Operation(
    "rebuild",
    takes_over=True,
    allowed=(states.ACTIVE, states.STOPPED, states.ERROR),
    failed=states.ERROR,
    steps=(
        dataclasses.replace(
            _BUILD, task=states.REBUILDING, begun=states.REBUILD_SPAWNING, event="compute_rebuild_instance"
        ),
        _by_host("stop", states.POWERING_OFF, states.STOPPED, only_if="stop", deadline="action_deadline"),
    ),
)

RESCUE = Operation(
    "rescue",
    allowed=(states.ACTIVE, states.STOPPED, states.ERROR),
    steps=(_by_host("rescue", states.RESCUING, states.RESCUED, since="1.2"),),
    action="rescue",
    rule="os_compute_api:os-rescue",
    summary="Boot a server from a rescue image, its own disk beside it",
)

UNRESCUE = Operation(
    "unrescue",
    allowed=(states.RESCUED,),
    steps=(_by_host("unrescue", states.UNRESCUING, states.ACTIVE, since="1.2"),),
    action="unrescue",
    rule="os_compute_api:os-unrescue",
    summary="Boot a rescued server from its own disk again",
)

RESTORE = Operation(
    "restore",
    allowed=(states.SOFT_DELETED,),
    steps=(_by_host("restore", states.RESTORING, states.ACTIVE, since="1.2"),),
    action="restore",
    rule="os_compute_api:os-deferred-delete:restore",
    summary="Restore a server that was deleted and not reclaimed yet",
)

CHANGE_PASSWORD = Operation(
    "changePassword",
    method="set_admin_password",
    allowed=(states.ACTIVE,),
    steps=(
        OnHost(
            PERFORM,
            "set_admin_password",
            task=states.UPDATING_PASSWORD,
            event="compute_set_admin_password",
            since="1.2",
        ),
    ),
    action="changePassword",
    rule="os_compute_api:os-admin-password",
    summary="Change the password of a server's administrator",
)

CRASH_DUMP = Operation(
    "trigger_crash_dump",
    allowed=(states.ACTIVE, states.PAUSED, states.RESCUED, states.RESIZED, states.ERROR),
    steps=(
        OnHost(
            PERFORM,
            "trigger_crash_dump",
            event="compute_trigger_crash_dump",
            driver="trigger_crash_dump",
            since="1.2",
        ),
    ),
    action="trigger_crash_dump",
    microversion=17,
    rule="os_compute_api:servers:trigger_crash_dump",
    summary="Have a server's system write a crash dump",
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

#: At the destination nothing is left of the instance, nor will it ever come to be there at that generation.
_DROP = OnHost(
    DROP,
    "drop_resize",
    task=states.RESIZE_REVERTING,
    at=End.DESTINATION,
    fences=True,
    lasting=True,
    revives=True,
    since="1.4",
)
#: At the source the guest is let go on, as it was.
_RETURN = OnHost(
    RETURN,
    "finish_revert_resize",
    task=states.RESIZE_REVERTING,
    at=End.SOURCE,
    lasting=True,
    since="1.4",
)
_MOVE = (
    Schedule(
        SCHEDULE,
        task=states.RESIZE_PREP,
        event="conductor_migrate_server",
        moves=False,
        undo=(Release(RELEASE, end=End.DESTINATION),),
    ),
    OnHost(
        LEAVE,
        "resize_instance",
        task=states.RESIZE_MIGRATING,
        event="compute_resize_instance",
        at=End.SOURCE,
        undo=(_RETURN,),
        since="1.4",
    ),
    OnHost(
        ARRIVE,
        "finish_resize",
        task=states.RESIZE_FINISH,
        event="compute_finish_resize",
        at=End.DESTINATION,
        becomes=states.RESIZED,
        moves_to=End.DESTINATION,
        deadline="migration_deadline",
        undo=(_DROP,),
        commits=True,
        since="1.4",
    ),
)

#: Both ends are one host, which has the guest's former disks beside the new ones until its owner's word.
RESIZE_SAME_HOST = Operation(
    "resize",
    allowed=(states.ACTIVE, states.STOPPED),
    steps=tuple(
        dataclasses.replace(step, method="set_aside_instance", since="1.6")
        if isinstance(step, OnHost) and step.name == LEAVE
        else step
        for step in _MOVE
    ),
)
RESIZE = Operation(
    "resize",
    allowed=(states.ACTIVE, states.STOPPED),
    steps=_MOVE,
    variants=(("same_host", True, RESIZE_SAME_HOST),),
    action="resize",
    rule="os_compute_api:servers:resize",
    summary="Resize a server: give it another flavor, on another host",
)

MIGRATE = Operation(
    "migrate",
    allowed=(states.ACTIVE, states.STOPPED),
    steps=_MOVE,
    action="migrate",
    rule="os_compute_api:os-migrate-server:migrate",
    admin=True,
    summary="Migrate a server, off, to another host",
)

CONFIRM_RESIZE = Operation(
    "confirmResize",
    allowed=(states.RESIZED,),
    steps=(
        OnHost(
            PERFORM,
            "confirm_resize",
            task=states.RESIZE_CONFIRMING,
            event="compute_confirm_resize",
            at=End.SOURCE,
            becomes=states.ACTIVE,
            fences=True,
            lasting=True,
            since="1.4",
        ),
        Release(RELEASE, end=End.SOURCE),
    ),
    method="confirm_resize",
    action="confirmResize",
    rule="os_compute_api:servers:confirm_resize",
    summary="Confirm a resize or a migration",
)

REVERT_RESIZE = Operation(
    "revertResize",
    allowed=(states.RESIZED,),
    steps=(
        dataclasses.replace(
            _DROP, method="revert_resize", event="compute_revert_resize", moves_to=End.SOURCE, revives=False
        ),
        Release(RELEASE, end=End.DESTINATION),
        dataclasses.replace(_RETURN, event="compute_finish_revert_resize", becomes=states.ACTIVE),
    ),
    method="revert_resize",
    action="revertResize",
    rule="os_compute_api:servers:revert_resize",
    summary="Revert a resize or a migration",
)


def _live(name: str, method: str, at: End, event: str | None = None, **fields: Any) -> OnHost:
    """A step of a live migration, or an undo, which has no event."""
    return OnHost(name, method, task=states.MIGRATING, event=event and f"compute_{event}", at=at, since="1.5", **fields)


#: The source will not tell any more: whether the guest has arrived.
_FIND = dataclasses.replace(
    _live(FIND, "find_live_migrated_instance", End.DESTINATION, lasting=True, revives=True),
    only_if=LOST_SOURCE,
    since="1.6",
)

#: The guest runs all the time. Where it is, only the source's hypervisor knows until it has said so: it is asked, when
#: its daemon did not answer, and what it has handed over goes on at the destination.
LIVE_MIGRATE = Operation(
    "live-migration",
    allowed=(states.ACTIVE, states.PAUSED),
    steps=(
        Schedule(
            SCHEDULE,
            task=states.MIGRATING,
            event="conductor_live_migrate_instance",
            moves=False,
            undo=(Release(RELEASE, end=End.DESTINATION),),
        ),
        _live(CHECK, "check_can_live_migrate_source", End.SOURCE, "check_can_live_migrate_source"),
        _live(
            PREPARE,
            "pre_live_migration",
            End.DESTINATION,
            "pre_live_migration",
            undo=(_live(DROP, "rollback_live_migration_at_destination", End.DESTINATION, fences=True, lasting=True),),
        ),
        _live(
            HAND_OVER,
            "live_migration",
            End.SOURCE,
            "live_migration",
            deadline="live_migration_deadline",
            undo=(
                _live(ROLL_BACK, "rollback_live_migration", End.SOURCE, lasting=True, revives=True),
                _FIND,
            ),
            commits=True,
            moves_to=End.DESTINATION,
        ),
        _live(
            SETTLE,
            "post_live_migration_at_destination",
            End.DESTINATION,
            "post_live_migration_at_destination",
            lasting=True,
        ),
        _live(CLEAR, "post_live_migration", End.SOURCE, "post_live_migration", fences=True, lasting=True),
        Release(RELEASE_SOURCE, end=End.SOURCE),
    ),
    method="os-migrateLive",
    action="os-migrateLive",
    rule="os_compute_api:os-migrate-server:migrate_live",
    admin=True,
    summary="Migrate a server, running, to another host",
)


def _snapshot(method: str, task: str, *tasks: str) -> OnHost:
    """The host makes an image file of the server's disk, and uploads it."""
    event = f"compute_{method}"
    deadline = "snapshot_deadline"
    return OnHost(
        PERFORM, method, task=task, tasks=tasks, event=event, since="1.3", deadline=deadline, undo=(_DISCARD,)
    )


_WITH_DISK = (states.ACTIVE, states.STOPPED, states.PAUSED, states.SUSPENDED)

#: Its host copies the volumes, all as they are at one moment; the image has no more than what they are called.
CREATE_IMAGE_OF_VOLUMES = Operation(
    "createImage",
    allowed=_WITH_DISK,
    steps=(
        OnHost(
            PERFORM,
            "snapshot_volumes",
            task=states.IMAGE_SNAPSHOT_PENDING,
            tasks=(states.IMAGE_SNAPSHOT,),
            event="compute_snapshot_instance",
            since="1.13",
            deadline="snapshot_deadline",
            undo=(_DISCARD,),
        ),
        Image(PUBLISH, verb=ImageVerb.ACTIVATE, commits=True),
    ),
)

CREATE_IMAGE = Operation(
    "createImage",
    allowed=_WITH_DISK,
    variants=(("volume_backed", True, CREATE_IMAGE_OF_VOLUMES),),
    steps=(
        _snapshot(
            "snapshot_instance",
            states.IMAGE_SNAPSHOT_PENDING,
            *(states.IMAGE_SNAPSHOT, states.IMAGE_PENDING_UPLOAD, states.IMAGE_UPLOADING),
        ),
        _PUBLISH,
    ),
)

CREATE_BACKUP = Operation(
    "createBackup",
    allowed=_WITH_DISK,
    steps=(
        _snapshot("backup_instance", states.IMAGE_BACKUP, states.IMAGE_PENDING_UPLOAD, states.IMAGE_UPLOADING),
        _PUBLISH,
        Image(ROTATE, verb=ImageVerb.ROTATE),
    ),
)

#: Its volumes are what it is, so no image is made: it leaves its host at once.
SHELVE_VOLUME_BACKED = Operation(
    "shelve",
    allowed=_WITH_DISK,
    steps=(
        OnHost(
            PERFORM,
            "shelve_volume_backed_instance",
            task=states.SHELVING_OFFLOADING,
            event="compute_shelve_offload_instance",
            becomes=states.SHELVED_OFFLOADED,
            fences=True,
            since="1.13",
        ),
        Release(RELEASE),
    ),
)

SHELVE = Operation(
    "shelve",
    allowed=_WITH_DISK,
    variants=(("volume_backed", True, SHELVE_VOLUME_BACKED),),
    steps=(
        _snapshot(
            "shelve_instance",
            states.SHELVING,
            *(states.SHELVING_IMAGE_PENDING_UPLOAD, states.SHELVING_IMAGE_UPLOADING),
        ),
        dataclasses.replace(_PUBLISH, becomes=states.SHELVED),
    ),
)

#: Its host gives back all that it has of the server; addresses and quota stay the server's. Whoever asks for it after
#: a shelve may find that the conductor has begun it by itself, or has ended it: no reason to be refused.
SHELVE_OFFLOAD = Operation(
    "shelveOffload",
    allowed=(states.SHELVED, states.SHELVED_OFFLOADED),
    joins=True,
    needs_host=False,
    steps=(
        _by_host("shelve_offload", states.SHELVING_OFFLOADING, states.SHELVED_OFFLOADED, fences=True, since="1.3"),
        Release(RELEASE),
    ),
)

#: The image that it was built of, if it was made one, has no use any more.
_DISCARD_SHELVED = dataclasses.replace(_DISCARD, only_if="image_id")
UNSHELVE_OFFLOADED = Operation(
    "unshelve",
    allowed=(states.SHELVED_OFFLOADED,),
    needs_host=False,
    steps=(
        Schedule(SCHEDULE, task=states.UNSHELVING, event="conductor_unshelve_instance", undo=(Release(RELEASE),)),
        dataclasses.replace(_BUILD, event="compute_unshelve_instance"),
        _DISCARD_SHELVED,
    ),
)
UNSHELVE = Operation(
    "unshelve",
    allowed=(states.SHELVED, states.SHELVED_OFFLOADED),
    needs_host=False,
    steps=(_by_host("unshelve", states.UNSHELVING, states.ACTIVE, since="1.3"), _DISCARD_SHELVED),
    variants=(("offloaded", True, UNSHELVE_OFFLOADED),),
)

#: A server that is on no host has the volume, or has it no more, as soon as that is accepted.
_WITH_GUEST = (states.ACTIVE, states.PAUSED, states.STOPPED, states.SHELVED, states.SHELVED_OFFLOADED)

#: A task of its own, so that nothing that makes the guest anew comes between; a volume whose attachment has failed is
#: nobody's only when the host has said that the guest does not have it.
ATTACH_VOLUME = Operation(
    "attach_volume",
    allowed=_WITH_GUEST,
    needs_host=False,
    variants=(("offloaded", True, Operation("attach_volume", allowed=(states.SHELVED_OFFLOADED,), needs_host=False)),),
    steps=(
        OnHost(
            PERFORM,
            "attach_volume",
            task=states.ATTACHING_VOLUME,
            event="compute_attach_volume",
            cleans_up=True,
            undo=(OnHost(DETACH, "rollback_attach_volume", task=states.DETACHING_VOLUME, lasting=True, since="1.9"),),
            since="1.9",
        ),
    ),
)

#: Where it fails the volume stays the server's.
DETACH_VOLUME = Operation(
    "detach_volume",
    allowed=_WITH_GUEST,
    needs_host=False,
    variants=(("offloaded", True, Operation("detach_volume", allowed=(states.SHELVED_OFFLOADED,), needs_host=False)),),
    steps=(OnHost(PERFORM, "detach_volume", task=states.DETACHING_VOLUME, event="compute_detach_volume", since="1.9"),),
)

#: The server has both volumes until its host has said which one the guest has. While it copies, the guest has the old
#: one; from the second task on both hold the same, until the guest has the new one.
SWAP_VOLUME = Operation(
    "swap_volume",
    allowed=(states.ACTIVE, states.PAUSED),
    steps=(
        OnHost(
            PERFORM,
            "swap_volume",
            task=states.COPYING_VOLUME,
            tasks=(states.SWAPPING_VOLUME,),
            event="compute_swap_volume",
            deadline="snapshot_deadline",
            undo=(
                OnHost(
                    TAKE_BACK,
                    "rollback_swap_volume",
                    task=states.COPYING_VOLUME,
                    lasting=True,
                    revives=True,
                    since="1.13",
                ),
            ),
            since="1.13",
        ),
    ),
    rule="os_compute_api:os-volumes-attachments:swap",
    admin=True,
)


def _interface(kind: str, task: str, undo: str, attaches: bool) -> Operation:
    """What a host has begun and not told the end of is taken back there: its port is nobody else's before."""
    disconnect = (Network(DISCONNECT),)
    return Operation(
        kind,
        allowed=(states.ACTIVE, states.PAUSED, states.STOPPED),
        steps=(
            OnHost(
                PERFORM,
                kind,
                task=task,
                event=f"compute_{kind}",
                since="1.8",
                undo=(OnHost(TAKE_BACK, undo, lasting=True, since="1.8"), *(disconnect if attaches else ())),
            ),
            *(() if attaches else disconnect),
        ),
    )


ATTACH_INTERFACE = _interface("attach_interface", states.ATTACHING_INTERFACE, "take_back_interface", attaches=True)
DETACH_INTERFACE = _interface("detach_interface", states.DETACHING_INTERFACE, "give_back_interface", attaches=False)

LOCK = Operation("lock", during=ANY, despite_lock=True, needs_host=False, supersedes=False)
UNLOCK = Operation("unlock", during=ANY, despite_lock=True, needs_host=False, supersedes=False)
RESET_STATE = Operation("reset_state", during=ANY, despite_lock=True, needs_host=False)

#: Every row, by its kind.
OPERATIONS: dict[str, Operation] = {
    row.kind: row
    for row in (
        *(CREATE, DELETE, STOP, START, REBOOT, EVACUATE, REBUILD, PAUSE, UNPAUSE, SUSPEND, RESUME),
        *(RESIZE, MIGRATE, CONFIRM_RESIZE, REVERT_RESIZE, LIVE_MIGRATE),
        *(CREATE_IMAGE, CREATE_BACKUP, SHELVE, SHELVE_OFFLOAD, UNSHELVE),
        *(ATTACH_INTERFACE, DETACH_INTERFACE, ATTACH_VOLUME, DETACH_VOLUME, SWAP_VOLUME),
        *(RESCUE, UNRESCUE, RESTORE, CHANGE_PASSWORD, CRASH_DUMP, LOCK, UNLOCK, RESET_STATE),
    )
}


def get(kind: str, payload: Mapping[str, Any]) -> Operation:
    """The row of an action; raises `KeyError` for a kind that there is not."""
    row = OPERATIONS[kind]
    return next((variant for key, value, variant in row.variants if payload.get(key) == value), row)


def order_methods() -> dict[str, OnHost]:
    """The RPC methods that carry out a step at a host, with such a step; builds and their undo apart, which are asked
    for in other words."""
    rows = [each for row in OPERATIONS.values() for each in (row, *(variant for _, _, variant in row.variants))]
    steps = [step for row in rows for step in row.all_steps() if isinstance(step, OnHost)]
    return {step.method: step for step in steps if step.name not in (BUILD, COMPENSATE)}


def order_of(kind: str, payload: Mapping[str, Any]) -> str:
    """The RPC method of the last step at a host: what an action is that does not say at which step it is."""
    return [step.method for step in get(kind, payload).steps if isinstance(step, OnHost) and step.name != BUILD][-1]


def compute_version(calls: str) -> str:
    """The compute service's version: that of its newest order, or of its newest ``calls``."""
    orders = (step.since for step in order_methods().values())
    return max((calls, *orders), key=lambda text: [*map(int, text.split("."))])
