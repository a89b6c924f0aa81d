"""Scenarios without a request: evacuations, backups by policies, failovers to another site, moves off busy hosts."""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nova_lite import operations
from nova_lite.backups.site_journal import Reason, SiteGeneration, SiteJournal
from nova_lite.base import failpoints
from nova_lite.db.backups import replicated_servers
from nova_lite.db.core import models
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.hosts import leases
from nova_lite.objects import BackupStatus, RestoreStatus
from nova_lite.objects.replication import ReplicatedServer, SiteRole
from nova_lite.operations.states import PowerState
from tests.faults import points
from tests.faults.arena import SETTLE_SECONDS, Arena, Site
from tests.faults.outages import TARGET
from tests.faults.points import API, COMPUTE, CONDUCTOR, Points, around
from tests.support.waiting import wait_for, wait_for_none

#: Effects of these scenarios. Pauses, delays and clocks are in those of the operations that they begin.
EFFECTS = (failpoints.KILL, failpoints.ERROR, failpoints.DROP, failpoints.DUPLICATE, failpoints.FULL, TARGET)

# --- evacuation

ARMED = Site(config="[compute]\nself_fencing = true\nself_fencing_lease = 30\n")
PROTECTED = {"ha:restart": "always", "ha:local-disk": "rebuild", "ha:attempts": "9"}


def one_protected(arena: Arena) -> None:
    """Create a protected server, and wait until its host has confirmed it."""
    body = {"name": "vm", "imageRef": arena.cloud.image_id, "flavorRef": "1", "metadata": PROTECTED}
    arena.insist("POST", "/servers", {"server": body}, (202,))
    arena.settle("ACTIVE", 1)
    wait_for("the host protects it", lambda: _is_confirmed(arena), SETTLE_SECONDS)


def _is_confirmed(arena: Arena) -> bool:
    return any(arena.one() in state.guests for state in arena.db.read(leases.all_hosts))


def lose_its_host(arena: Arena) -> None:
    """Kill its daemon, and leave it dead. The guard stops the guest, which then runs elsewhere without a request."""
    (server,) = arena.servers()
    lost = server["OS-EXT-SRV-ATTR:host"]
    arena.leave_dead(lost)

    def has_left() -> bool:
        (server,) = arena.servers()
        return server["OS-EXT-SRV-ATTR:host"] not in (None, lost)

    wait_for("it leaves the lost host", has_left, SETTLE_SECONDS, 0.3)
    arena.settle("ACTIVE", 1)
    arena.bring_back(lost)
    arena.is_back(lost)


def evacuated() -> Points:
    """Return the points from the end of the lease to the return of the lost host."""
    found = points.of(operations.EVACUATE)
    del found[API]
    found[CONDUCTOR] = [
        name for name in found[CONDUCTOR] if not {points.REQUEST, points.ACCEPT, "build_instances"} & {*name.split("/")}
    ]
    decided = around(*(f"commit/{name}" for name in ("expire_lease", "plan_restarts", "evacuate_protected")))
    returned = around("send/renew_lease", "domain/destroy", "send/register_host")
    return points.join({CONDUCTOR: decided}, found, {COMPUTE: returned})


# --- backups

BACKED_UP = Site(
    config="[server_backups]\nengine = restic\nrepository = {path}/repository\npassword_file = {path}/backup-password\n"
    "interval = 0.5\nspread = 0\nretry_seconds = 1\n",
    target=True,
)


def policy(arena: Arena) -> dict[str, Any]:
    """Return the body of a policy that keeps two backups of the only server."""
    return {
        "backup_policy": {
            "name": "p",
            "schedule": {"every": "week", "weekday": "monday", "hour": 0, "minute": 0},
            "retention": {"hourly": 0, "daily": 0, "weekly": 1},
            "targets": {"servers": [arena.one()]},
        }
    }


def one_with_policy(arena: Arena) -> None:
    arena.create(1)
    arena.settle("ACTIVE", 1)
    arena.insist("POST", "/os-backup-policies", policy(arena), (201,))


def one_backed_up(arena: Arena) -> None:
    one_with_policy(arena)
    back_up(arena)


def backups(uow: UnitOfWork) -> list[models.ServerBackup]:
    return list(uow.session.query(models.ServerBackup).order_by(models.ServerBackup.id))


def of_status(arena: Arena, *statuses: str) -> list[str]:
    return arena.db.read(lambda uow: [row.uuid for row in backups(uow) if row.status in statuses])


def back_up(arena: Arena) -> None:
    """Run the policy until one more backup is complete. A failed one has its reason, and is not complete."""
    before = set(of_status(arena, BackupStatus.COMPLETE))
    (found,) = arena.cloud.request("GET", "/os-backup-policies").json()["backup_policies"]
    run = functools.partial(arena.send, "POST", f"/os-backup-policies/{found['id']}/run")

    def complete() -> bool:
        under_way = (BackupStatus.PENDING, BackupStatus.RUNNING, BackupStatus.STORING)
        if set(of_status(arena, BackupStatus.COMPLETE)) - before:
            return True
        if not of_status(arena, *under_way):
            run()
        return False

    wait_for("a backup is complete", complete, SETTLE_SECONDS, 0.5)
    restorable(arena)


def restorable(arena: Arena) -> None:
    """Check that each complete backup is whole in the repository. An incomplete one is never taken for complete."""
    wait_for("all complete backups are whole", lambda: verified(arena), SETTLE_SECONDS, 1)


def verified(arena: Arena) -> bool:
    done = arena.cloud.try_manage("backup-policy", "verify")
    return done.returncode == 0


def restore(arena: Arena) -> None:
    """Make an image of the newest backup, which has its data, and delete that image."""
    backup = of_status(arena, BackupStatus.COMPLETE)[-1]
    arena.insist("POST", f"/os-server-backups/{backup}/image", {"image": {}}, (202, 409))

    def ready() -> str:
        row = arena.db.read(lambda uow: next(row for row in backups(uow) if row.uuid == backup))
        assert row.restore_status != RestoreStatus.FAILED, row.restore_reason
        return row.restored_image_id or "" if row.restore_status == RestoreStatus.READY else ""

    image: str = wait_for("the image is ready", ready, SETTLE_SECONDS, 0.3)
    checked = subprocess.run(
        ["qemu-img", "check", Path(arena.conf.image.store_path, image)], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr
    arena.insist("DELETE", f"/images/{image}", None, (204, 404))


def expire(arena: Arena) -> None:
    """Remove the policy and all backups, and their data."""
    for item in arena.cloud.request("GET", "/os-backup-policies").json()["backup_policies"]:
        arena.insist("DELETE", f"/os-backup-policies/{item['id']}", None, (204, 404))

    def left() -> list[str]:
        """Remove what has ended. A backup may have been under way when its policy was removed."""
        for backup in of_status(arena, BackupStatus.COMPLETE, BackupStatus.FAILED):
            arena.insist("DELETE", f"/os-server-backups/{backup}", None, (202, 204, 404, 409))
        return of_status(arena, *map(str, BackupStatus))

    wait_for_none("no backup is left", left, SETTLE_SECONDS, 0.3)


def then_expire(run: Callable[[Arena], None]) -> Callable[[Arena], None]:
    """Return a scenario that leaves no backup, as all judges expect."""

    def whole(arena: Arena) -> None:
        run(arena)
        expire(arena)

    return whole


def commits(*names: str) -> Points:
    return {CONDUCTOR: around(*(f"commit/{name}" for name in names))}


STORED: Points = {
    CONDUCTOR: around(
        "commit/begin_backup",
        "send/backup_disk",
        "handle/finish_action",
        f"commit/{points.FINISH}",
        "commit/store_backup",
        "commit/image_dropped",
    ),
    COMPUTE: around("handle/backup_disk", "send/finish_action"),
}
RESTORED = commits("register_image", "restored_image", "end_restore")
EXPIRED = commits("delete", "forget_backup")

# --- replication: the other site is the scenario, which reads and writes the journal

HERE, THERE = "here", "there"
REPLICATED = Site(
    config=f"{BACKED_UP.config}[replication]\ndirectory = {{path}}/journal\nsite = {HERE}\ninterval = 0.5\n",
    target=True,
)


def journal(arena: Arena) -> SiteJournal:
    """Return the journal as the other site sees it."""
    return SiteJournal(str(arena.cloud.path / "journal"), THERE)


def one_replicated(arena: Arena) -> None:
    (arena.cloud.path / "journal").mkdir(exist_ok=True)
    one_with_policy(arena)
    (found,) = arena.cloud.request("GET", "/os-backup-policies").json()["backup_policies"]
    arena.cloud.manage("replication", "enable", arena.one(), "--policy", found["id"])
    journal(arena).join(arena.one())


def replicated(arena: Arena) -> ReplicatedServer:
    (found,) = arena.db.read(replicated_servers.list_)
    return found


def is_off(arena: Arena, server: str) -> bool:
    _, power_state = arena.guests().get(server, ("", PowerState.SHUTDOWN))
    return power_state == PowerState.SHUTDOWN


def fail_over_and_back(arena: Arena) -> None:
    """Let a server leave for the other site, which gives it back with the same increments. Its guest runs then."""
    server = arena.one()
    arena.cloud.manage("replication", "failover", server)
    wait_for("it has left", lambda: journal(arena).newest(server).site == THERE, SETTLE_SECONDS, 0.1)
    left = journal(arena).newest(server)
    assert left.backups, "the other site has nothing to begin with"
    assert is_off(arena, server), "its guest runs, and the other site may run it"
    arena.settle("SHUTOFF", 1)
    arena.insist("POST", f"/servers/{server}/action", {"os-start": None}, (409,))
    assert is_off(arena, server), "its guest was started, and the other site may run it"
    returns = SiteGeneration(
        number=left.number + 1, site=HERE, reason=Reason.PLANNED, backups=left.backups, written_at=left.written_at
    )
    assert journal(arena).write(server, returns)
    wait_for("it is back", lambda: replicated(arena).role is SiteRole.PRIMARY, SETTLE_SECONDS, 0.3)
    arena.settle("ACTIVE", 1)
    back_up(arena)
    newest = of_status(arena, BackupStatus.COMPLETE)[-1]
    wait_for("the journal has the backup", lambda: replicated(arena).published == newest, SETTLE_SECONDS, 0.3)
    assert journal(arena).last_backups(server, returns)[-1].id == newest
    arena.cloud.manage("replication", "disable", server)
    for image in arena.cloud.request("GET", "/images").json()["images"]:
        if image["id"] != arena.cloud.image_id:
            arena.insist("DELETE", f"/images/{image['id']}", None, (204, 404))


LEFT_AND_RETURNED = commits("begin_stop", "last_backup", "learn", "begin_rebuild", "rebuild_ended", "note_published")

# --- balancing

BUSY = Site(
    config="[conductor]\nrebalance = on\n[balance]\ninterval = 2\nwindow = 6\nmin_gain = 1\ncooldown = 0\n"
    "moves_per_hour = 1000\nmoves_out_per_hour = 1000\nmoves_in_per_hour = 1000\n",
    places=4,
)


def busy_host(arena: Arena) -> None:
    """Create four servers on one host."""
    arena.enable("compute-2", False)
    arena.create(4)
    arena.settle("ACTIVE", 4)
    arena.enable("compute-2", True)


def relieve(arena: Arena) -> None:
    """Load the guests of one host, until a server has left it. Then they are idle again."""
    arena.cloud.control_host("compute-1", guest_use=0.9)

    def has_moved() -> bool:
        return "compute-2" in {server["OS-EXT-SRV-ATTR:host"] for server in arena.servers()}

    wait_for("a server moves", has_moved, SETTLE_SECONDS, 0.3)
    arena.control_hosts()
    arena.settle("ACTIVE", 4)


def moved() -> Points:
    """Return the points from the measurement to the end of the move. The live migration's points are separate."""
    begun = ("begin_plan", "note_hot", "begin_move", "settle_moves", "report_load")
    return points.join(commits(*begun), {COMPUTE: around("send/report_load")})
