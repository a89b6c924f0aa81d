"""Every protection of the protocol, its purpose, and the smallest model that fails without it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.model.checker import Model, Result, explore
from tests.model.claims import Claims
from tests.model.fencing import Fencing
from tests.model.joins import Joins
from tests.model.live import LiveMigration
from tests.model.moves import Moves
from tests.model.protocol import Protocol
from tests.model.sites import Replication
from tests.model.state import RUNNING, Action, Host, Message, Row, State

#: An instance that runs on host A. The command to build it may be repeated.
ACTIVE = State(
    row=Row("active", "", 0, 1, 0, True),
    action=Action(1, "create", ""),
    used=(1, 0),
    hosts=(Host(domain=1, power=RUNNING, built=1), Host()),
    net=(Message("build", 0, 1, 1),),
)

BOOT = Protocol()
BOOT_WITHOUT_CRASHES = Protocol(crashes=0)
HOST_LOST = Protocol(crashes=0, losses=1)
POWER = Protocol(users=("stop", "start", "delete"), max_actions=4, start=ACTIVE)
POWER_ONLY = Protocol(users=("stop", "start"), max_actions=3, start=ACTIVE._replace(net=()), crashes=0)
REBUILD = Protocol(users=("rebuild", "stop"), max_actions=3, start=ACTIVE._replace(net=()))
EVACUATE = Moves("evacuate")
RESIZE = Moves("resize")
LIVE_MIGRATE = LiveMigration()
FENCE = Fencing()
FENCE_ONE_FAULT = Fencing(faults=1)
FENCE_LATE = Fencing(faults=1, late=True)
FENCE_POLICIES = Fencing(policies=True, faults=0)
FENCE_WAYS = Fencing(policies=True, faults=0, ways=True)
FENCE_AGENT = Fencing(armed=False, agent="works")
FENCE_LIAR = Fencing(armed=False, agent="lies")
REPLICATION = Replication(faults=1)
TWO_SITES_LOST = Replication(faults=2)
SITE_RESTORED = Replication(faults=0, restores=1)
JOINED_HOST = Joins()
REMOVED_HOST = Joins(removals=1)

#: Models that must hold with all rules in force.
HOLDS: dict[str, Model] = {
    "boot and delete, a crash": BOOT,
    "boot and delete, a host lost permanently": HOST_LOST,
    "stop, start, delete, a crash": POWER,
    "rebuild, stop, a crash": REBUILD,
    "claims of four instances for two places": Claims(),
    "evacuate, a crash": EVACUATE,
    "resize, revert, delete, a crash": RESIZE,
    "live migration, delete, a crash, a machine off": LIVE_MIGRATE,
    "self-fencing, two faults": FENCE,
    "self-fencing, policies that change, a fault": replace(FENCE_POLICIES, faults=1),
    "self-fencing, a late command, a fault": FENCE_LATE,
    "self-fencing, leases by two ways, policies that change": FENCE_WAYS,
    "fence agent, two faults": FENCE_AGENT,
    "fence agent that lies, two faults": FENCE_LIAR,
    "replication to a second site, a fault": REPLICATION,
    "keys of a host, a thief with an old key and an old token": REMOVED_HOST,
    "keys of a host, a thief with an old key and another token": Joins(used=False),
    "replication to a second site, a restored database": SITE_RESTORED,
}

#: The same models with larger bounds, which take minutes.
FULL: dict[str, Model] = {
    "boot and delete, two crashes": Protocol(crashes=2),
    "boot and delete, three crashes": Protocol(crashes=3),
    "boot and delete, a crash and a host lost": Protocol(crashes=1, losses=1),
    "boot, stop, start, delete, a crash": Protocol(users=("stop", "start", "delete"), max_actions=4),
    "stop, start, delete, two crashes": replace(POWER, crashes=2),
    "rebuild, stop, delete, a crash": Protocol(users=("rebuild", "stop", "delete"), max_actions=3, start=ACTIVE),
    "claims of nine instances for five places": Claims(instances=9, capacity=5),
    "evacuate, three crashes": replace(EVACUATE, crashes=3),
    "resize, revert, delete, three crashes": replace(RESIZE, crashes=3),
    "self-fencing and an agent that hangs, two faults": replace(FENCE, agent="hangs"),
    "self-fencing and an agent, two faults": replace(FENCE, agent="works"),
    "self-fencing, three faults": replace(FENCE, faults=3),
    "self-fencing, leases by two ways, policies that change, a fault": replace(FENCE_WAYS, faults=1),
    "replication to a second site, three requests, two faults": Replication(requests=3),
    "live migration, delete, two crashes, both machines off": replace(LIVE_MIGRATE, crashes=2, outages=2),
}


@dataclass(frozen=True)
class Protection:
    """A protection.

    ``upholds``: its purpose. ``code``: its place in `nova_lite`. ``twice``: without it a guest can run twice.
    """

    rule: str
    upholds: str
    code: str
    model: Model
    twice: bool = False

    def without(self) -> Model:
        if isinstance(self.model, Claims):
            return replace(self.model, conditional=False)
        return replace(self.model, rules=self.model.rules - {self.rule})

    def counterexample(self, only_twice: bool = False) -> Result:
        model = self.without()
        return explore(replace(model, only_twice=True) if only_twice else model)


PROTECTIONS = [
    Protection("reconciler", "nothing accepted is lost", "conductor/reconciler.py: sweep", BOOT_WITHOUT_CRASHES),
    Protection(
        "one driver",
        "one claim per attempt",
        "db/core/actions.py: still_leased; conductor/engine/scheduling.py: _locked",
        BOOT_WITHOUT_CRASHES,
        twice=True,
    ),
    Protection(
        "conditional claim",
        "never more than a host has; counter = allocations",
        "db/servers/claims.py: claim",
        Claims(),
    ),
    Protection(
        "confirmation",
        "a build moves only when its host has promised",
        "conductor/engine/build_reports.py: _rescheduled; conductor/reconciler.py: _fence",
        BOOT_WITHOUT_CRASHES,
        twice=True,
    ),
    Protection(
        "revocation",
        "a late order builds nothing",
        "compute/fencing.py: revoke, revoke_failed_build, check",
        BOOT,
        twice=True,
    ),
    Protection(
        "durable revocation", "the promise outlives the daemon", "compute/fencing.py: _write, _load", BOOT, twice=True
    ),
    Protection(
        "fence check at order",
        "a refusal whose report was lost is said again",
        "compute/operations/create.py: _repeat_failure",
        BOOT,
    ),
    Protection(
        "fence before report",
        "who reports a failure has promised before",
        "compute/operations/create.py: _build_or_undo",
        BOOT,
        twice=True,
    ),
    Protection(
        "instance lock",
        "what is removed is not being built meanwhile",
        "compute/jobs.py: InstanceLocks",
        BOOT_WITHOUT_CRASHES,
    ),
    Protection(
        "report generation",
        "a late report does not settle another attempt",
        "conductor/engine/build_reports.py: _building",
        BOOT_WITHOUT_CRASHES,
    ),
    Protection(
        "action order",
        "a late stop does not undo a start",
        "compute/fencing.py: admit; compute/executor.py: _run_once",
        POWER_ONLY,
    ),
    Protection(
        "cleanup",
        "a deleted instance holds its claim until its host has confirmed",
        "conductor/engine/advance.py: record_offline",
        BOOT_WITHOUT_CRASHES,
    ),
    Protection(
        "domain reconciliation",
        "rows follow what hosts really have",
        "compute/reconciler.py; conductor/hosts/domains.py",
        POWER,
    ),
    Protection(
        "late success",
        "a build that is reported late is not destroyed",
        "conductor/engine/build_reports.py: _built",
        BOOT_WITHOUT_CRASHES,
    ),
    Protection(
        "lasting delete", "a delete always ends", "conductor/engine/deadlines.py: _expire", BOOT_WITHOUT_CRASHES
    ),
    Protection(
        "undo first",
        "what is being undone is not forgotten for the next request",
        "conductor/engine/accept.py: _supersede",
        REBUILD,
    ),
    Protection(
        "forced_down is true",
        "the operator's word: host off, guests off, daemon ended",
        "the operator",
        EVACUATE,
        twice=True,
    ),
    Protection(
        "no entry while forced_down",
        "no host comes back while it is evacuated",
        "db/hosts/hosts.py: admit",
        EVACUATE,
        twice=True,
    ),
    Protection(
        "new generation at accept",
        "what is evacuated belongs to its old host no more",
        "conductor/operations/evacuate.py: accept",
        EVACUATE,
        twice=True,
    ),
    Protection(
        "destroy before serving",
        "a returning host obeys no order before it has cleaned up",
        "compute/manager.py: clean_up",
        EVACUATE,
        twice=True,
    ),
    Protection(
        "silent daemon registers again",
        "a daemon that was cut off compares before it serves",
        "compute/registration.py: check; db/hosts/hosts.py: check_epoch",
        EVACUATE,
        twice=True,
    ),
    Protection(
        "source confirms first",
        "a moved guest is off before it is made elsewhere",
        "operations/moves.py: the order of its steps",
        RESIZE,
        twice=True,
    ),
    Protection(
        "source holds back",
        "a host that boots does not start what is on its way elsewhere",
        "compute/fencing.py: hold, check_not_held",
        RESIZE,
        twice=True,
    ),
    Protection(
        "destination fenced first",
        "the way back begins when the destination has promised",
        "operations/moves.py: the undo of `finish_resize`",
        RESIZE,
        twice=True,
    ),
    Protection(
        "both ends belong",
        "domain reconciliation spares both ends of a move",
        "conductor/hosts/domains.py: reconcile_domains",
        RESIZE,
    ),
    Protection(
        "order of steps",
        "a late order of the way there does not stop what has come back",
        "compute/fencing.py: admit; operations/types.py: sequence",
        RESIZE,
    ),
    Protection(
        "delete at both ends",
        "a delete during a move leaves nothing at the far end",
        "conductor/engine/advance.py: done_at_host",
        RESIZE,
    ),
    Protection(
        "live orders are sent again",
        "no live migration is left half-way",
        "conductor/reconciler.py: sweep",
        LIVE_MIGRATE,
    ),
    Protection(
        "source is asked",
        "a hand-over that no host has heard of, or that failed, is not undone on a guess",
        "operations/moves.py: the undo of `live_migration`",
        LIVE_MIGRATE,
    ),
    Protection(
        "later order ends it",
        "who is asked where the guest is ends its hand-over first",
        "compute/operations/live_migration.py: _wish; virt/libvirt/domain/live_migration.py: settle",
        LIVE_MIGRATE,
    ),
    Protection(
        "destination is asked",
        "a guest that is off at the source may run at the destination",
        "virt/libvirt/domain/live_migration.py: settle",
        LIVE_MIGRATE,
        twice=True,
    ),
    Protection(
        "what has arrived counts",
        "a guest that ran at the destination is there, also when it is off by now",
        "virt/libvirt/domain/live_migration.py: _has_arrived_there",
        LIVE_MIGRATE,
    ),
    Protection(
        "source cleared first",
        "a guest's old end holds its claim until it has nothing",
        "operations/moves.py: the order of its steps",
        LIVE_MIGRATE,
    ),
    Protection(
        "no start while it moves",
        "a host that boots does not start what may run elsewhere",
        "conductor/hosts/domains.py: reconcile_domains",
        LIVE_MIGRATE,
        twice=True,
    ),
    Protection(
        "both ends of a live migration belong",
        "domain reconciliation spares what has just arrived",
        "conductor/hosts/domains.py: reconcile_domains",
        LIVE_MIGRATE,
    ),
    Protection(
        "order of live steps",
        "a late order does not start what has moved",
        "compute/fencing.py: admit; operations/types.py: sequence",
        LIVE_MIGRATE,
        twice=True,
    ),
    Protection(
        "delete at both live ends",
        "a delete during a live migration leaves nothing at either end",
        "conductor/engine/advance.py: done_at_host",
        LIVE_MIGRATE,
    ),
    Protection(
        "lease counts from its request",
        "a slow reply makes no lease longer",
        "compute/self_fencing.py: renew",
        FENCE_ONE_FAULT,
    ),
    Protection(
        "margin for clock rates",
        "clocks that run at different rates",
        "conductor/hosts/fencing.py: wait_of",
        FENCE_ONE_FAULT,
    ),
    Protection(
        "own clock",
        "no clock that may jump ends a lease",
        "conductor/hosts/fencing.py: LeaseWatch",
        FENCE_ONE_FAULT,
    ),
    Protection(
        "guard",
        "the lease ends on time when the daemon hangs",
        "compute/guard.py: Guard",
        FENCE_ONE_FAULT,
    ),
    Protection(
        "guard ends the daemon",
        "a daemon that hung starts nothing late, and is started again",
        "compute/guard.py: fire",
        FENCE_ONE_FAULT,
    ),
    Protection(
        "guard knows its guests first",
        "a guest counts as protected when its guard knows it",
        "compute/self_fencing.py: renew",
        FENCE_ONE_FAULT,
    ),
    Protection(
        "only armed hosts",
        "a silent host that does not fence itself is left alone",
        "db/hosts/leases.py: expire_lease",
        FENCE_ONE_FAULT,
    ),
    Protection(
        "armed in this start",
        "a daemon that started without fencing itself is left alone",
        "db/hosts/leases.py: is_armed",
        FENCE_ONE_FAULT,
    ),
    Protection(
        "only confirmed guests",
        "a guest that its host does not know as protected is left alone",
        "db/hosts/leases.py: may_leave",
        FENCE_ONE_FAULT,
    ),
    Protection(
        "no confirmation of a dropped guest",
        "a host drops a guest when no row counts on it any more",
        "db/hosts/leases.py: renew",
        FENCE_POLICIES,
    ),
    Protection(
        "decision compares the lease",
        "a lease that was renewed meanwhile has not ended",
        "db/hosts/leases.py: expire_lease",
        FENCE_ONE_FAULT,
    ),
    Protection(
        "lost registration",
        "a host whose lease ended compares before it serves",
        "db/hosts/hosts.py: check_epoch",
        FENCE_ONE_FAULT,
    ),
    Protection(
        "renewal of this start",
        "a late request of an earlier start confirms nothing",
        "db/hosts/leases.py: renew",
        FENCE_ONE_FAULT,
    ),
    Protection(
        "start needs a lease",
        "a fenced guest starts only when no other host may start it elsewhere",
        "compute/self_fencing.py: require_lease",
        FENCE_ONE_FAULT,
    ),
    Protection(
        "late commands wait for a comparison",
        "a command that waited in the broker starts no guest that runs elsewhere",
        "compute/self_fencing.py: require_lease, compared",
        FENCE_LATE,
        twice=True,
    ),
    Protection(
        "later requests keep their guests",
        "a reply that was overtaken drops no guest that the conductor may count on",
        "compute/self_fencing.py: _grant",
        FENCE_WAYS,
    ),
    Protection(
        "start again after fencing",
        "a host that is back runs its guests again",
        "compute/reconciler.py: _report",
        FENCE_ONE_FAULT,
    ),
    Protection(
        "evacuations come from the rows",
        "another conductor continues with a lost host",
        "conductor/hosts/evacuation.py: sweep",
        FENCE_AGENT,
    ),
    Protection(
        "off is confirmed",
        "an agent's word that it did something is no proof",
        "fence/methods.py: switch_off",
        FENCE_LIAR,
    ),
    Protection(
        "off is newer than the host",
        "a host that came back after it was off is not lost",
        "db/hosts/leases.py: record_off",
        FENCE_LIAR,
    ),
    Protection(
        "exclusive generations",
        "a site hands over, or keeps the server, but not both",
        "backups/site_journal.py: write",
        REPLICATION,
        twice=True,
    ),
    Protection(
        "off before the last increment",
        "a planned failover loses nothing",
        "db/backups/replicated_servers.py: last_backup, is_off",
        REPLICATION,
        twice=True,
    ),
    Protection(
        "host asks before it starts",
        "a command that waited while the site was off starts nothing",
        "compute/executor.py: _refusal; conductor/engine/build_reports.py: start_build",
        REPLICATION,
        twice=True,
    ),
    Protection(
        "answer reads the site's role",
        "a server that leaves its site does not start again",
        "conductor/backups/replication.py: _may_run",
        REPLICATION,
        twice=True,
    ),
    Protection(
        "answer reads the journal",
        "a site that returns does not run what was taken over",
        "conductor/backups/replication.py: _may_run",
        REPLICATION,
        twice=True,
    ),
    Protection(
        "answer compares the generation",
        "a site that gets a server back does not run its old disk",
        "conductor/backups/replication.py: _may_run",
        REPLICATION,
    ),
    Protection(
        "word that the site is off",
        "nothing is taken over from a site that runs it",
        "the operator; cmd/manage/replication.py: take_over",
        REPLICATION,
        twice=True,
    ),
    Protection(
        "increments belong to a generation",
        "a late increment of the other site is never restored",
        "backups/site_journal.py: publish, last_backups",
        TWO_SITES_LOST,
    ),
    Protection(
        "what a site has built is noted",
        "a restored database replaces no disk",
        "backups/site_journal.py: note_built, is_here; db/backups/replicated_servers.py: learn, keep",
        SITE_RESTORED,
    ),
    Protection(
        "replaced key replaces none",
        "an old backup of a host is not the host",
        "db/hosts/joins.py: _renew, _replaced_key",
        JOINED_HOST,
    ),
    Protection(
        "replaced key ends",
        "no key is believed for longer than the overlap",
        "db/hosts/joins.py: _replaced_key",
        JOINED_HOST,
    ),
    Protection(
        "next key signs, too",
        "a rotation that was interrupted for long continues",
        "cmd/setup/admission.py: renewed",
        JOINED_HOST,
    ),
    Protection(
        "token serves one key",
        "a used token is of no use without the host's key",
        "db/hosts/joins.py: join",
        JOINED_HOST,
    ),
    Protection(
        "token serves once", "a removed host's token admits no machine", "db/hosts/joins.py: _check_token", REMOVED_HOST
    ),
    Protection(
        "name is joined once", "another token replaces no host", "db/hosts/joins.py: _same_name", Joins(used=False)
    ),
]

#: No property here needs this rule. The lock is held since the check of the command, so the rule only shortens the wait
#: of a delete or a fence.
REDUNDANT = "fence check at creation"
