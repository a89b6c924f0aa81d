"""Points where a fault can happen during an operation, derived from its definition, and the faults that can happen
there.

`of` returns the points that an operation surely passes: plan, effect and record of each step. `of_undos` returns
those of its undo. The constants here name the transactions and messages that no definition has.

Two checks find a name that no code has: tests/unit/test_fault_points.py searches the code, and a matrix case without
a fault (``by itself``) fails if it does not pass a named point.
"""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from nova_lite import operations
from nova_lite.base import failpoints
from tests.faults.daemon import AHEAD, BEHIND
from tests.faults.outages import BROKER, DATABASE, TARGET

API, CONDUCTOR, SCHEDULER, COMPUTE = "api", "conductor*", "scheduler*", "compute-*"

#: Method of the conductor that accepts an operation of an existing server.
REQUEST = "accept_action"

# Transactions of the conductor: the functions that it has `Database.write` run, without a leading underscore.
ACCEPT_CREATE, ACCEPT = "create_instances", "accept_in"
LEASE, CLAIM, NO_HOST = "lease", "claim", "fail"
START_BUILD, FINISH_BUILD, FINISH = "start_build", "finish_build", "finish_action"
#: Transactions: due actions are taken and expired ones ended; a fence is confirmed; a build had succeeded.
SWEEP, UNDONE, REVIVED = "take_due", "fenced", "revived"
#: A host asks whether its order is still wanted.
WANTED = "action_for_command"
#: Transaction of an operator's retirement of a host.
RETIRE = "retire"
#: A host lacks a domain that it ought to have.
DOMAIN_LOST = "domain_lost"
#: A protected guest that has crashed is to be started again.
RESTART = "restart_crashed"
#: A device that a guest has has vanished.
DEVICE_LOST = "report_lost_devices"
#: Transactions around a call to a network service: for interfaces, and to release them at the end of a server, which
#: may fail, or during a build that was deleted.
ASK, TELL, TOLD, TELL_AGAIN, TAKEN_BACK = (
    "plan_networks",
    "network_call",
    "network_done",
    "network_failed",
    "taken_back",
)
#: Transactions of a further task state of a host, and around a call to the image backend.
TASK, IMAGE_ASK, IMAGE_TOLD, IMAGE_FAILED = "report_task", "image_call", "image_done", "image_failed"
#: Transactions around a report to Cinder about a snapshot.
SNAPSHOT_ASK, SNAPSHOT_TOLD = "snapshot_call", "snapshot_reported"
#: A volume is accepted, its work is given to a host, and that has done it.
VOLUME_CREATE, VOLUME_TAKE, VOLUME_END = "create_volume", "take_volume_work", "finish_volume_work"
#: Other requests for a volume are accepted: a larger size, an image of it, its deletion, and a change of its row alone.
VOLUME_EXTEND, VOLUME_UPLOAD, VOLUME_DELETE, VOLUME_UPDATE = (
    "extend_volume",
    "upload_volume",
    "delete_volume",
    "update_volume",
)
#: A snapshot is accepted, and its deletion.
SNAPSHOT_CREATE, SNAPSHOT_DELETE = "create_snapshot", "delete_snapshot"
#: A backup is accepted, and its restoration.
BACKUP_CREATE, BACKUP_RESTORE = "create_backup", "restore_backup"
#: Transactions of a Cinder volume: one conductor leases it, stores Cinder's state, releases it, and forgets it with its
#: server. Another stores a volume that was created for a server.
CINDER_TAKE, CINDER_NOTE, CINDER_GIVE_BACK, CINDER_FORGET = "take", "keep", "settle", "forget"
CINDER_MADE, CINDER_IS_MADE = "record_created", "is_made"
#: Transaction of an interface from Neutron before it is requested.
ATTACH_ASK = "plan"
#: Transactions that make the key of a server's TPM, or of its disk, or read it.
TPM_KEY_MADE, DISK_KEY_MADE = "key_for_host", "key_of_disk"
#: Transaction that stores Neutron's ports.
PORTS = "record"
TRANSACTIONS = (
    # Load balancers (`tests/faults/balancers.py`): users' changes, reports of hosts, and lost hosts.
    "create",
    "add",
    "remove",
    "failover",
    "sync",
    "sweep",
    # Forwardings and routers (`tests/faults/outside.py`). Many functions have the last name.
    "allocate",
    "release",
    "remove_interface",
    "create_object",
    "delete_object",
    "update",
    CINDER_TAKE,
    CINDER_NOTE,
    CINDER_GIVE_BACK,
    CINDER_FORGET,
    CINDER_MADE,
    CINDER_IS_MADE,
    ATTACH_ASK,
    TPM_KEY_MADE,
    DISK_KEY_MADE,
    PORTS,
    VOLUME_CREATE,
    VOLUME_TAKE,
    VOLUME_END,
    BACKUP_CREATE,
    BACKUP_RESTORE,
    VOLUME_EXTEND,
    VOLUME_UPLOAD,
    VOLUME_DELETE,
    VOLUME_UPDATE,
    SNAPSHOT_CREATE,
    SNAPSHOT_DELETE,
    ACCEPT_CREATE,
    ACCEPT,
    LEASE,
    CLAIM,
    NO_HOST,
    START_BUILD,
    FINISH_BUILD,
    FINISH,
    SWEEP,
    UNDONE,
    REVIVED,
    WANTED,
    RETIRE,
    DOMAIN_LOST,
    RESTART,
    DEVICE_LOST,
    ASK,
    TELL,
    TOLD,
    TELL_AGAIN,
    TAKEN_BACK,
    TASK,
    IMAGE_ASK,
    IMAGE_TOLD,
    IMAGE_FAILED,
    SNAPSHOT_ASK,
    SNAPSHOT_TOLD,
    # Lost hosts, moves off busy hosts, and backups by policies (`tests/faults/automatic.py`).
    "expire_lease",
    "plan_restarts",
    "evacuate_protected",
    "report_load",
    "begin_plan",
    "note_hot",
    "begin_move",
    "settle_moves",
    "begin_backup",
    "store_backup",
    "image_dropped",
    "delete",
    "forget_backup",
    "register_image",
    "restored_image",
    "end_restore",
    "begin_stop",
    "last_backup",
    "learn",
    "begin_rebuild",
    "rebuild_ended",
    "note_published",
)

#: Transactions that belong to no operation, or begin one again that has its points already.
ELSEWHERE = (
    "register_host",
    "report_state",
    "report",
    "reconcile_domains",
    "renew_hosts",
    "retry_later",
    "progress",
    "expire",
    "instances",
    "actions",
    "migrations",
    "put_off",
    "plugged",
    "plan_back",
    "remember",
    "settled",
    "note_unsure",
    "note_error",
    "snapshot_failed",  # Cinder gets the report again, as after a lost one
    # Leases of hosts, which ask again, and what the next sweep of a conductor does again.
    "report_storage",  # a host sends its view again with the next look
    "renew_lease",
    "record_off",
    "record_checks",
    "put_off_restart",
    "forget_old",  # crashes of long ago
    # Hosts with a problem, which the next look finds again (tests/unit/conductor/hosts/test_host_health.py).
    "disable_failing",
    "begin_drain",
    "begin_drain_move",
    "end_drain",
    "settle",
    "record_events",  # the audit log: an API sends events again until they are stored, and each is stored once
    "drop_old",  # notifications that are too old, every few minutes
    "purge",  # old events of the audit log, some time after a conductor's start
    "audit_usage",  # servers of a period: the place that was reached is stored with their notifications
    # Backups by policies: each is repeated by the next run (tests/unit/conductor/backups/test_scheduled_backups.py).
    "plan_backups",
    "put_backup_off",
    "fail_backup",
    "complete_backup",
    "drop_backup",
    # Backups in repositories: likewise (tests/unit/conductor/backups/test_stored_backups.py).
    "run",
    "want_image",
    "begin_storing",
    "put_storing_off",
    "note_image",
    "pruned",
    "retire_backups",
    "lose_backup",
    "drop_backup_image",
    "expire_backups",
    # Replication to another site: likewise (tests/unit/conductor/backups/test_replication.py).
    "note_reason",
    "forget_deleted",
    "messages_taken",  # a message that has changed nothing, before its handler or after it has refused
)

# Messages that are no step's own.
NUDGE, SELECT, NEW_STATES = "build_instances", "select_destinations", "update_host_states"
#: Build commands, for a host with one and with several builds of a request.
BUILD_ONE, BUILD_SEVERAL = "build_and_run_instance", "build_and_run_instances"
#: Commands of several deletes, for a host.
DELETE_SEVERAL = "terminate_instances"

VOLUME_WORK = "volume_work"
#: A host asks whether work on a volume is still wanted.
WORK_WANTED, DATA_NEEDED = "is_volume_work_open", "is_volume_data_needed"
#: A host's request for the key of an encrypted volume.
KEY = "volume_key_get"
#: A host's requests for the keys of a server's TPM, and of its disk.
TPM_KEY, DISK_KEY = "tpm_key_get", "disk_key_get"

#: A host looks at the load balancers that it runs, or asks for its filters.
WING_WAKE_UP, REFRESH = "wing_wake_up", "refresh_security_groups"

CASTS = frozenset(
    {
        WING_WAKE_UP,
        REFRESH,
        NUDGE,
        NEW_STATES,
        BUILD_ONE,
        BUILD_SEVERAL,
        DELETE_SEVERAL,
        VOLUME_WORK,
        *operations.command_methods(),
    }
)

#: Transactions around work on a repository of backups.
STORING = frozenset({"begin_backup", "store_backup", "image_dropped", "register_image", "end_restore", "forget_backup"})

#: Points of a compute host after which it writes something.
WRITES = (
    "snapshot/*",
    "swap/*",
    "handle/*_instance/before",
    "send/start_build/after",
    "fence/*",
    "domain/*/after",
    "domain/spawn/before",
)

#: A lease is 5 s in these clouds: a pause outlives it, so that what wakes up is a zombie.
PAUSE_SECONDS = 7.0
#: Seconds that a fault takes; of some, nothing is judged before they are over, and before what was paused has
#: continued.
SECONDS = {
    failpoints.FULL: 3.0,
    AHEAD: 3.0,
    BEHIND: 3.0,
    failpoints.PAUSE: PAUSE_SECONDS,
    failpoints.DELAY: 2.0,
    failpoints.HOLD: 60.0,
}
LASTING = {failpoints.FULL: 3.0, AHEAD: 3.0, BEHIND: 3.0, failpoints.PAUSE: PAUSE_SECONDS + 0.5}

#: Daemon (a shell pattern) to the names of points, in the order in which they are passed.
Points = dict[str, list[str]]


class Story(NamedTuple):
    """Scenario of a module that `tests.faults.scenarios` imports, with the fields of `Scenario`."""

    name: str
    prepare: Callable[[Any], None]
    run: Callable[[Any], None]
    points: Points
    long: bool = False


def around(*names: str) -> list[str]:
    return [f"{name}/{where}" for name in names for where in ("before", "after")]


def join(*parts: Points) -> Points:
    """Merge points; each point appears once."""
    found: Points = {}
    for part in parts:
        for daemon, points in part.items():
            here = found.setdefault(daemon, [])
            here += [point for point in points if point not in here]
    return found


def of(row: operations.Operation) -> Points:
    """Return the points of an operation from its request to its end, without optional steps."""
    method, transaction = (ACCEPT_CREATE, ACCEPT_CREATE) if row is operations.CREATE else (REQUEST, ACCEPT)
    asked = around(f"handle/{method}", f"commit/{transaction}")
    parts: list[Points] = [{API: around(f"send/{method}"), CONDUCTOR: asked}]
    for step in row.steps:
        if step.only_if is None:
            parts.append(_of_step(step, API if step is row.steps[0] else CONDUCTOR, row.has_choice))
    return join(*parts)


def of_clone() -> Points:
    """Return the points of a clone: the disk of the source is frozen, then a server is created."""
    asked = around(f"handle/{ACCEPT_CREATE}", f"commit/{ACCEPT_CREATE}")
    frozen = _of_step(operations.CLONE.steps[0], CONDUCTOR)
    schedule, build = operations.CREATE.steps
    placed = _of_step(schedule, CONDUCTOR)
    # No message begins the step, but the next look at due actions.
    placed[CONDUCTOR] = [name for name in placed[CONDUCTOR] if f"/{NUDGE}/" not in name]
    created = join(placed, _of_step(build, CONDUCTOR, operations.CREATE.has_choice))
    return join({API: around(f"send/{ACCEPT_CREATE}"), CONDUCTOR: asked}, frozen, created)


def of_files(row: operations.Operation) -> Points:
    """Return the points of work on the files of a volume, which Cinder requests."""
    method = "accept_volume_snapshot"
    asked = {API: around(f"send/{method}"), CONDUCTOR: around(f"handle/{method}", f"commit/{ACCEPT}")}
    return join(asked, {CONDUCTOR: around("cinder/post/action")}, *(_of_step(step, API) for step in row.steps))


def of_several() -> Points:
    """Return the points of a create of many servers: each host gets its builds in one message."""
    return {
        daemon: [name.replace(f"/{BUILD_ONE}/", f"/{BUILD_SEVERAL}/") for name in names]
        for daemon, names in of(operations.CREATE).items()
    }


def of_order(row: operations.Operation) -> Points:
    """Return the points of an operation of one command that a conductor starts."""
    return join({CONDUCTOR: around(f"commit/{ACCEPT}")}, _of_step(row.steps[0], CONDUCTOR))


def of_restart(row: operations.Operation) -> Points:
    """Return the points of an operation that a conductor begins because a guest has crashed."""
    return join({CONDUCTOR: around(f"commit/{RESTART}")}, _of_step(row.steps[0], CONDUCTOR))


def of_undos(row: operations.Operation) -> Points:
    """Return the points of the undo of an operation whose last step was begun, from its deadline on."""
    return join(*(_of_undo(step) for step in row.undos(row.steps[-1].name)))


def of_volume() -> Points:
    """Return the points of work on a volume's file, from its request on."""
    asked = {
        CONDUCTOR: around(*(f"handle/{name}" for name in (WORK_WANTED, DATA_NEEDED))),
        COMPUTE: around(*(f"send/{name}" for name in (WORK_WANTED, DATA_NEEDED))),
    }
    return join(_of_work("volume_create", VOLUME_CREATE, VOLUME_WORK, "volume/create"), asked)


def of_extension() -> Points:
    """Return the points of a larger size of a volume."""
    return _of_work("volume_extend", VOLUME_EXTEND, VOLUME_WORK, "volume/extend")


def of_snapshot() -> Points:
    """Return the points of a snapshot of a free volume."""
    return _of_work("snapshot_create", SNAPSHOT_CREATE, VOLUME_WORK, "volume/snapshot")


def of_snapshot_deletion() -> Points:
    """Return the points of the deletion of a snapshot."""
    return _of_work("snapshot_delete", SNAPSHOT_DELETE, VOLUME_WORK, "volume/delete_snapshot")


def of_volume_deletion() -> Points:
    """Return the points of the deletion of a volume."""
    return _of_work("volume_delete", VOLUME_DELETE, VOLUME_WORK, "volume/delete")


def of_upload() -> Points:
    """Return the points of an image that is made of a volume."""
    published = {CONDUCTOR: around("image/publish")}
    return join(_of_work("volume_upload", VOLUME_UPLOAD, VOLUME_WORK, "upload"), published)


def of_retype() -> Points:
    """Return the points of another type for a volume, which is one transaction."""
    return {
        API: around("send/volume_update"),
        CONDUCTOR: around("handle/volume_update", f"commit/{VOLUME_UPDATE}"),
    }


def of_key() -> Points:
    """Return the points at which a host gets the key of an encrypted volume."""
    return {CONDUCTOR: around(f"handle/{KEY}"), COMPUTE: around(f"send/{KEY}")}


def of_tpm_key() -> Points:
    """Return the points at which a host gets the key of a server's TPM."""
    return {CONDUCTOR: around(f"handle/{TPM_KEY}", f"commit/{TPM_KEY_MADE}"), COMPUTE: around(f"send/{TPM_KEY}")}


def of_disk_key() -> Points:
    """Return the points at which a host gets the key of a server's encrypted disk."""
    return {CONDUCTOR: around(f"handle/{DISK_KEY}", f"commit/{DISK_KEY_MADE}"), COMPUTE: around(f"send/{DISK_KEY}")}


def of_encrypted_volume() -> Points:
    """Return the points of an encrypted volume that a plain one does not have."""
    work = {CONDUCTOR: around(f"send/{VOLUME_WORK}"), COMPUTE: around(f"handle/{VOLUME_WORK}")}
    return join(work, of_key())


def of_backup() -> Points:
    """Return the points of a backup."""
    return _of_work("backup_create", BACKUP_CREATE, VOLUME_WORK, "volume/backup")


def of_restoration() -> Points:
    """Return the points of the restoration of a backup into an existing volume."""
    return _of_work("backup_restore", BACKUP_RESTORE, VOLUME_WORK, "volume/restore")


def _of_work(request: str, accepted: str, command: str, effect: str) -> Points:
    return {
        API: around(f"send/{request}"),
        CONDUCTOR: around(
            f"handle/{request}",
            f"commit/{accepted}",
            f"commit/{VOLUME_TAKE}",
            f"send/{command}",
            "handle/finish_volume_work",
            f"commit/{VOLUME_END}",
        ),
        COMPUTE: around(f"handle/{command}", effect, "send/finish_volume_work"),
    }


def _of_step(step: operations.Step, sender: str, claimed: bool = False) -> Points:
    """Return the points of a step.

    ``sender``: the daemon whose message starts it. A step that is only recorded belongs to the previous transaction.
    ``claimed``: a build already has its interfaces, as with built-in networks, and requests none.
    """
    if isinstance(step, operations.ScheduleStep):
        placed = {
            CONDUCTOR: around(f"send/{SELECT}", f"commit/{CLAIM}", f"send/{NEW_STATES}"),
            SCHEDULER: around(f"handle/{SELECT}", f"handle/{NEW_STATES}"),
        }
        nudged = {sender: around(f"send/{NUDGE}"), CONDUCTOR: around(f"handle/{NUDGE}", f"commit/{LEASE}")}
        return join(nudged, placed)
    if isinstance(step, operations.ImageStep):
        return of_image(step.verb)
    if isinstance(step, operations.SnapshotStep):
        return {CONDUCTOR: around(f"commit/{SNAPSHOT_ASK}", f"commit/{SNAPSHOT_TOLD}")}
    if not isinstance(step, operations.HostStep):
        return {}
    if step.begun is not None:
        return join(
            {sender: around(f"send/{step.method}")},
            {
                CONDUCTOR: around(
                    *([] if claimed else ["handle/start_build", f"commit/{START_BUILD}"]),
                    "handle/finish_build",
                    f"commit/{FINISH_BUILD}",
                ),
                COMPUTE: around(
                    f"handle/{step.method}",
                    *([] if claimed else ["send/start_build"]),
                    "domain/spawn",
                    "fence",
                    "send/finish_build",
                ),
            },
        )
    destroyed = ["domain/destroy"] if step.fences else []
    return join(
        {sender: around(f"send/{step.method}")},
        _of_tasks(step) if step.tasks else {},
        {
            CONDUCTOR: around("handle/finish_action", f"commit/{FINISH}"),
            COMPUTE: around(f"handle/{step.method}", "fence", *destroyed, "send/finish_action"),
        },
    )


def of_image(verb: operations.ImageVerb) -> Points:
    """Return the points of a step of the image backend."""
    return {CONDUCTOR: around(f"commit/{IMAGE_ASK}", f"image/{verb}", f"commit/{IMAGE_TOLD}")}


def _of_tasks(step: operations.HostStep) -> Points:
    """Return the points of a step with several task states: it makes an image file, or mirrors a volume."""
    swaps = step.method == "swap_volume"
    here = around("swap", f"send/{TASK}") if swaps else [*around("snapshot", f"send/{TASK}"), "upload/after"]
    return {CONDUCTOR: around(f"handle/{TASK}", f"commit/{TASK}"), COMPUTE: here}


def _of_undo(step: operations.Step) -> Points:
    if isinstance(step, operations.ImageStep):
        return of_image(step.verb)
    if not isinstance(step, operations.HostStep):
        return {}
    return {
        CONDUCTOR: around(f"commit/{SWEEP}", f"send/{step.method}", f"commit/{UNDONE}"),
        COMPUTE: around(f"handle/{step.method}", "fence"),
    }


@dataclasses.dataclass(frozen=True)
class Fault:
    daemon: str
    point: str
    effect: str

    def __str__(self) -> str:
        return f"{self.effect} {self.daemon} at {self.point}"

    def rule(self, rule_id: str) -> dict[str, Any]:
        """Return the rule for `nova_lite.base.failpoints`. For a fault from outside, the daemon is held at the
        point.
        """
        effect = failpoints.HOLD if self.effect in (BROKER, DATABASE, TARGET) else self.effect
        seconds = SECONDS.get(effect, 0.0)
        return {"id": rule_id, "daemon": self.daemon, "point": self.point, "effect": effect, "seconds": seconds}


def effects_at(point: str) -> list[str]:
    found = [failpoints.KILL, failpoints.PAUSE, failpoints.DELAY]
    if point.startswith("send/"):
        found.append(BROKER)
    if point.startswith(("network/", "image/", "neutron/", "cinder/")):
        found.append(failpoints.ERROR)
    if point.startswith("send/") and point.endswith("/before"):
        found.append(failpoints.ERROR)
        if point.split("/")[1] in CASTS:
            found += [failpoints.DROP, failpoints.DUPLICATE]
    if point.startswith("commit/"):
        found.append(DATABASE)
    if point.startswith("commit/") and point.endswith("/before"):
        found.append(failpoints.ERROR)
        if point.split("/")[1] in STORING:
            found.append(TARGET)
    if any(fnmatch.fnmatch(point, pattern) for pattern in WRITES):
        found.append(failpoints.FULL)
    return found


def faults_at(points: Points, clocks: bool = True) -> Iterator[Fault]:
    """Yield each fault that can happen at these points. ``clocks``: also a clock that jumps, once for each daemon."""
    for daemon, names in points.items():
        for clock in (AHEAD, BEHIND) if clocks else ():
            yield Fault(daemon, names[0], clock)
        for name in names:
            for effect in effects_at(name):
                yield Fault(daemon, name, effect)


def not_passed(points: Points, passed: Iterable[tuple[str, str]]) -> list[str]:
    """Return named points that are not among the passed (daemon, point) pairs."""
    seen = list(passed)
    return [
        f"{daemon} at {point}"
        for daemon, names in points.items()
        for point in names
        if not any(fnmatch.fnmatch(who, daemon) and where == point for who, where in seen)
    ]


def not_named(passed: Iterable[tuple[str, str]]) -> list[str]:
    """Return passed transactions that are in no table: no case has a fault there."""
    names = {where.split("/")[1] for _, where in passed if where.startswith("commit/")}
    return sorted(names - {*TRANSACTIONS, *ELSEWHERE})
