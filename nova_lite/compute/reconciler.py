"""Domain reconciliation: compares the domains of this hypervisor with the database, at start and periodically."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from nova_lite.base import exceptions
from nova_lite.base.context import get_admin_context
from nova_lite.compute.consistency_check import ConsistencyCheck
from nova_lite.compute.host import LocalHost
from nova_lite.compute.host_boot import HostBoot
from nova_lite.compute.self_fencing import SelfFencing
from nova_lite.objects import (
    DomainReport,
    DomainVerdict,
    Incident,
    IncidentKind,
    ReportNumber,
    Verdict,
    digest_of_domains,
)
from nova_lite.objects.incident import ENDING, cause_of_end
from nova_lite.operations.states import GUEST_OFF, PowerState
from nova_lite.virt.abilities import DomainInfo

LOG = logging.getLogger(__name__)

#: Seconds to wait for an instance's lock. A longer job changes what was listed.
LOCK_WAIT = 0.1

#: Share of the interval between two comparisons for which the reply to a consistency check is awaited.
ANSWER_SHARE = 0.8

#: Seconds until guests that a boot or the end of a lease has stopped are reported again, if their servers had a task.
UNDECIDED_SECONDS = 5.0

#: Incidents that wait for a comparison. Older ones are forgotten.
MAX_INCIDENTS = 1000

#: Number of verdicts that are executed concurrently.
WORKERS = 4


class _Noted(NamedTuple):
    """An incident of an instance. ``noted_at``: on the monotonic clock."""

    uuid: str
    incident: Incident
    noted_at: float


@dataclass
class _Scan:
    """Domains and leftovers that a comparison has listed.

    ``touched``: instances with a job since then, of which nothing is believed; jobs add to it. ``listed``: those with a
    domain. ``domains``: the domains except ``revoked`` ones, which this host has promised to destroy. ``leftovers``:
    instances with disks or settings, and no domain. ``stopped``: guests that this host has stopped at the end of a
    lease. ``withheld``: these, if they may not start yet, so they are not reported. ``remaining``: instances whose
    domain is to be destroyed and still exists. ``without_disks``: those with a domain whose disks are missing.
    """

    touched: set[str]
    listed: set[str]
    domains: dict[str, DomainInfo]
    revoked: list[DomainInfo]
    leftovers: set[str]
    stopped: frozenset[str]
    withheld: frozenset[str]
    remaining: set[str]
    without_disks: set[str]


class DomainReconciler:
    """Reports all domains and leftovers in one call, and executes only the conductor's verdict for each uuid.

    The report includes the power states. Instances with a job are left out: their state is changing, and a domain that
    is still being built must not look like a finished one. ``interval``: seconds between two comparisons. ``boot``: of
    this machine. ``attach_check``: sends a consistency check with the next heartbeat. ``next_number``: numbers the
    report. ``self_fencing``: knows guests that this host has stopped, and that are to run again.
    """

    def __init__(
        self,
        host: LocalHost,
        interval: float,
        boot: HostBoot,
        attach_check: Callable[[ConsistencyCheck], None],
        next_number: Callable[[], ReportNumber],
        self_fencing: SelfFencing | None = None,
    ) -> None:
        self._host = host
        self._attach_check = attach_check
        self._next_number = next_number
        self._self_fencing = self_fencing
        self._consistency_check: ConsistencyCheck | None = None
        #: Time until which the reply to the check is awaited.
        self._answer_deadline = float("-inf")
        self._boot = boot
        #: Guests that are off since the last boot, and on which the conductor has not decided. None: all of them.
        self._undecided: frozenset[str] | None = None
        self._interval = interval
        self._next = time.monotonic() + interval
        self._power_changed = False
        #: Incidents that no comparison has reported yet, with their instances.
        self._incidents: collections.deque[_Noted] = collections.deque(maxlen=MAX_INCIDENTS)

    # --- triggers

    def power_event(self, instance_uuid: str, incident: IncidentKind | None = None) -> None:
        """Note a change of a domain's power state, or an incident. Unless the host caused it, the next `tick` compares.

        Any thread may call this, in eventlet mode a native one too. So it takes no lock and wakes no thread.
        """
        if incident is not None:
            self._incidents.append(_Noted(instance_uuid, Incident(kind=incident), time.monotonic()))
        if incident is not None or not self._host.jobs.is_busy(instance_uuid):
            self._power_changed = True

    def compare_soon(self) -> None:
        """Request a comparison by the next `tick`."""
        self._power_changed = True

    def tick(self) -> None:
        """Call `run` if a power state changed, or if the interval has passed and the consistency check failed.

        Call it about every second.
        """
        if self._power_changed or self._comparison_is_due():
            self.run()

    def _comparison_is_due(self) -> bool:
        """Decide whether to compare now. After the interval, send a consistency check first."""
        now, check = time.monotonic(), self._consistency_check
        if check is None:
            if now < self._next:
                return False
            self._next, self._answer_deadline = now + self._interval, now + ANSWER_SHARE * self._interval
            return not self._start_check()
        if check.is_open and now < self._answer_deadline:
            return False
        self._close_check()
        if check.agrees is None and now < self._answer_deadline:  # The digest is outdated.
            return not self._start_check()
        return not check.agrees

    # --- comparison

    def _start_check(self) -> bool:
        """Attach a check to the next heartbeat. Return False if a difference is known already, so that no check is
        necessary."""
        host = self._host
        if self._boot.is_new() or (self._self_fencing is not None and self._self_fencing.has_stopped_guests):
            return False
        with contextlib.ExitStack() as watch:
            touched = watch.enter_context(host.jobs.watch())
            domains = host.driver.guests.all()
            if touched or host.driver.guests.leftovers() - {info.uuid for info in domains} or self._without_disks():
                return False
            if any(host.fencing.get(info.uuid).is_revoked(info.generation) for info in domains):
                return False
            found = digest_of_domains((info.uuid, info.generation, int(info.power_state)) for info in domains)
            self._consistency_check = ConsistencyCheck(found, touched, watch.pop_all())
        self._attach_check(self._consistency_check)
        return True

    def _close_check(self) -> None:
        if self._consistency_check is not None:
            self._consistency_check.close()
            self._consistency_check = None

    def run(self) -> set[str]:
        """Destroy revoked domains, report the others, and execute the conductor's verdicts.

        Returns the instances whose domain was to be destroyed but still exists. Raises `ServiceUnavailable` or
        `VirtDriverError` if the comparison is impossible now.
        """
        self._power_changed = False
        self._close_check()
        self._next = time.monotonic() + self._interval
        host, fencing = self._host, self._self_fencing
        booted = self._boot.is_new()
        stops = 0 if fencing is None else fencing.stops
        stopped_before = self._stopped_guests()
        with host.jobs.watch() as touched:
            scan = self._scan(touched, stopped_before)
            for info in scan.revoked:
                self._destroy_revoked(info, scan)
            incidents = self._ripe_incidents(scan.domains)
            reports = [
                self._report(
                    info,
                    booted and self._is_undecided(uuid),
                    scan,
                    [item.incident for item in incidents if item.uuid == uuid],
                )
                for uuid, info in scan.domains.items()
                if uuid not in touched and uuid not in scan.withheld
            ]
            verdicts = host.conductor.reconcile_domains(
                get_admin_context(), host.name, reports, sorted(scan.leftovers - touched), self._next_number()
            )
            self._note_boot({verdict.uuid for verdict in verdicts if verdict.undecided}, touched)
            named = {report.uuid for report in reports}
            self._forget_incidents([item for item in incidents if item.uuid in named or item.uuid not in scan.listed])
            if fencing is not None and stops == fencing.stops:
                off = {info.uuid for info in scan.domains.values() if info.power_state in GUEST_OFF}
                fencing.forget(stopped_before - off - touched - scan.withheld)
            self._destroy_all([verdict for verdict in verdicts if verdict.verdict == Verdict.DESTROY], scan)
            if fencing is not None:
                gone = scan.stopped - scan.listed - touched
                fencing.compared(stops, scan.stopped, (named | gone) - scan.remaining)
                if not scan.withheld and scan.stopped & touched:
                    self.compare_soon()
            self._report_lost(scan)
        return scan.remaining

    def _scan(self, touched: set[str], stopped_before: frozenset[str]) -> _Scan:
        """List domains and leftovers. ``stopped_before``: guests that this host had stopped before."""
        guests, fencing = self._host.driver.guests, self._self_fencing
        found = {info.uuid: info for info in guests.all()}
        # A guest may have been stopped before it was listed: then it has not crashed.
        stopped = stopped_before | self._stopped_guests()
        withheld: frozenset[str] = frozenset() if fencing is None or fencing.may_start else stopped
        revoked = [info for info in found.values() if self._host.fencing.get(info.uuid).is_revoked(info.generation)]
        remaining = {info.uuid for info in revoked}
        return _Scan(
            touched=touched,
            listed=set(found),
            domains={uuid: info for uuid, info in found.items() if uuid not in remaining},
            revoked=revoked,
            leftovers=guests.leftovers() - set(found),
            stopped=stopped,
            withheld=withheld,
            remaining=remaining,
            without_disks=self._without_disks(),
        )

    def _without_disks(self) -> set[str]:
        checks = self._host.driver.disk_checks
        return checks.missing() if checks else set()

    def has_to_run_again(self, instance_uuid: str) -> bool:
        """Check whether a boot or the end of a lease may have stopped the guest, and no comparison has started it."""
        return (self._boot.is_new() and self._is_undecided(instance_uuid)) or instance_uuid in self._stopped_guests()

    def _is_undecided(self, instance_uuid: str) -> bool:
        return self._undecided is None or instance_uuid in self._undecided

    def _note_boot(self, undecided: set[str], touched: set[str]) -> None:
        """Note that the conductor knows which guests are off since the last boot.

        Guests whose servers had a task are reported again: the task may end with a server that has to run.
        """
        waiting = undecided | {uuid for uuid in touched if self._is_undecided(uuid)}
        if self._boot.is_new() and waiting:
            self._undecided = frozenset(waiting)
        else:
            self._undecided = None
            self._boot.mark_reconciled()
        if undecided:
            self._next = time.monotonic() + min(self._interval, UNDECIDED_SECONDS)

    def _stopped_guests(self) -> frozenset[str]:
        return frozenset() if self._self_fencing is None else self._self_fencing.stopped()

    def _destroy_revoked(self, info: DomainInfo, scan: _Scan) -> None:
        """Destroy a domain of a revoked generation that an earlier run of this daemon has left.

        The host must destroy it whatever became of the report. The conductor might take a reported domain for a
        success.
        """
        LOG.warning("Instance %s: destroying the remains of revoked generation %d", info.uuid, info.generation)
        with self._log_errors(info.uuid), self._untouched(info.uuid, scan.touched) as free:
            if free:
                self._host.remove(info.uuid)
                scan.remaining.discard(info.uuid)

    def _report_lost(self, scan: _Scan) -> None:
        """Report domains that the conductor expects here and that were not listed.

        A failure is harmless: the next run repeats it.
        """
        error_text = ""
        try:
            expected = self._host.conductor.domains_expected(get_admin_context(), self._host.name)
        except exceptions.ServiceUnavailable as error:
            expected, error_text = [], error.message
        if error_text:
            LOG.info("The domains that belong to this host are unknown now: %s", error_text)
        disks = self._host.driver.shared_disks
        taken = disks.taken() if disks and expected else set()
        for missing in expected:
            if missing.uuid in scan.listed:
                if missing.uuid in taken and missing.uuid not in scan.touched:
                    self._host.own_disks(missing.uuid)
                continue
            with self._log_errors(missing.uuid), self._untouched(missing.uuid, scan.touched) as free:
                if free and self._host.domain(missing.uuid) is None:
                    LOG.warning("Instance %s: its domain of generation %d is missing", missing.uuid, missing.generation)
                    self._host.conductor.domain_lost(get_admin_context(), self._host.name, missing)

    @contextlib.contextmanager
    def _log_errors(self, instance_uuid: str) -> Iterator[None]:
        """Log an error of one instance and continue with the others. The next run repeats it."""
        try:
            yield
        except Exception as error:
            expected = isinstance(error, exceptions.NovaLiteException)
            LOG.warning(
                "Instance %s: reconciliation failed and will be repeated: %s",
                instance_uuid,
                error,
                exc_info=not expected,
            )

    @contextlib.contextmanager
    def _untouched(self, instance_uuid: str, touched: set[str]) -> Iterator[bool]:
        """Hold the instance's lock and yield True if no job has touched the instance since the listing. Does not wait
        for jobs."""
        if instance_uuid in touched:
            yield False
            return
        with self._host.jobs.locks.hold(instance_uuid, LOCK_WAIT):
            yield instance_uuid not in touched

    def _destroy_all(self, verdicts: list[DomainVerdict], scan: _Scan) -> None:
        """Execute verdicts, several at once. What is left of them is in ``scan.remaining``."""
        scan.remaining |= {verdict.uuid for verdict in verdicts if verdict.uuid in scan.domains}
        with concurrent.futures.ThreadPoolExecutor(WORKERS, thread_name_prefix="verdict") as pool:
            list(pool.map(lambda verdict: self._destroy(verdict, scan), verdicts))

    def _destroy(self, verdict: DomainVerdict, scan: _Scan) -> None:
        """Execute one verdict, if the domain has not changed since the report."""
        host, uuid = self._host, verdict.uuid
        with self._log_errors(uuid), self._untouched(uuid, scan.touched) as free:
            if not free:
                return
            found = host.domain(uuid)
            if found is None and uuid in scan.leftovers:
                LOG.info("Instance %s: removing remains without a domain", uuid)
                host.remove_all(uuid)
            elif found is not None and uuid in scan.domains and found.generation == verdict.generation:
                LOG.warning("Instance %s: generation %d does not belong here, destroying it", uuid, found.generation)
                if verdict.keeps_disks and host.driver.shared_disks:
                    host.driver.shared_disks.keep(uuid)
                host.fencing.revoke(uuid, found.generation)
                host.remove(uuid)
            scan.remaining.discard(uuid)

    def _ripe_incidents(self, domains: Mapping[str, DomainInfo]) -> list[_Noted]:
        """Return the incidents to report. An incident that turns a guest off waits a moment until it is off."""
        on = {uuid for uuid, info in domains.items() if info.power_state != PowerState.SHUTDOWN}
        since = time.monotonic() - self._host.timing.incident_wait
        return [
            item
            for item in self._incidents
            if item.uuid not in on or item.incident.kind not in ENDING or item.noted_at < since
        ]

    def _forget_incidents(self, incidents: list[_Noted]) -> None:
        """Forget incidents that were reported. Incidents of an instance with a job wait for the next comparison."""
        for item in incidents:
            with contextlib.suppress(ValueError):  # Newer ones have taken its place.
                self._incidents.remove(item)

    def _report(self, info: DomainInfo, booted: bool, scan: _Scan, incidents: list[Incident]) -> DomainReport:
        """Return the report of a domain."""
        stopped = scan.stopped
        if info.crashed and not (booted or info.uuid in stopped) and cause_of_end(incidents) is None:
            incidents = [*incidents, Incident(kind=IncidentKind.CRASH)]
        resumes = (booted and self._host.conf.resume_guests_state_on_host_boot) or info.uuid in stopped
        is_off = info.power_state in GUEST_OFF
        record = self._host.fencing.get(info.uuid)
        return DomainReport(
            uuid=info.uuid,
            generation=info.generation,
            power_state=int(info.power_state),
            last_action_id=record.last_action_id,
            last_position=record.last_sequence,
            lost_power=resumes and is_off,
            booted=booted and is_off,
            incidents=incidents,
            halted=info.halted,
            lacks_disks=info.uuid in scan.without_disks,
        )
