"""Compares the domains of hosts with the database: where they belong, and whether their guests run."""

from __future__ import annotations

import logging

import msgspec

from nova_lite import operations
from nova_lite.base.context import RequestContext, get_admin_context
from nova_lite.conductor.engine import faults
from nova_lite.conductor.engine.engine import ActionEngine
from nova_lite.conductor.hosts import crashes
from nova_lite.db.core import actions
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance
from nova_lite.db.hosts import evacuations, host_storage, leases, unknown_domains
from nova_lite.db.servers import claims, instances
from nova_lite.db.upkeep import purge
from nova_lite.objects import (
    DomainReport,
    DomainVerdict,
    ExpectedDomain,
    Incident,
    IncidentKind,
    ReportNumber,
    Verdict,
)
from nova_lite.objects.incident import cause_of_end, cause_of_pause
from nova_lite.objects.replication import MAY_RUN
from nova_lite.operations import states
from nova_lite.operations.states import PowerState

LOG = logging.getLogger(__name__)

#: The fault of an instance whose domain has disappeared. Users see it.
LOST = (
    "The server is not known to its hypervisor any more. A hard reboot makes it again if its disks are still there; "
    "a rebuild makes it from its image, with a new disk."
)


class DomainChecks:
    """The RPC methods `reconcile_domains`, `domains_expected` and `domain_lost`."""

    def __init__(self, engine: ActionEngine) -> None:
        self.engine = engine
        self.db = engine.db

    def reconcile_domains(
        self,
        context: RequestContext,
        host: str,
        domains: list[DomainReport],
        leftovers: list[str],
        number: ReportNumber | None = None,
    ) -> list[DomainVerdict]:
        return self.db.write(self._reconcile_domains, context, host, domains, leftovers, number)

    def _reconcile_domains(
        self,
        uow: UnitOfWork,
        context: RequestContext,
        host: str,
        domains: list[DomainReport],
        leftovers: list[str],
        number: ReportNumber | None,
    ) -> list[DomainVerdict]:
        own = get_admin_context(context.request_id)
        if any(domain.booted for domain in domains):
            protected = leases.protected(uow, self.engine.conf, host)
            domains = [_lost_power(domain) if domain.uuid in protected else domain for domain in domains]
        comparison = Comparison(uow, host, domains, leftovers)
        verdicts = comparison.verdicts(domains, leftovers)
        for instance, incident in comparison.crashed:
            crashes.record_crash(uow, self.engine.conf, instance, incident)
        ended = {incident.id for _, incident in comparison.crashed}
        for report in domains:
            # Each comparison reports the crash of a guest that is off.
            incidents = [item for item in report.incidents if item.id not in ended and item.kind != IncidentKind.CRASH]
            if incidents and (row := _current(uow, host, report)) is not None:
                crashes.record_incidents(uow, self.engine.conf, row, incidents)
        for instance in comparison.to_start:
            LOG.info("Instance %s ran when its host lost power: it is started again", instance.uuid)
            self.engine.accept_in(uow, own, instance.uuid, operations.START.kind, {})
            evacuations.plan_start(uow, self.engine.conf, instance)
        # Instances are locked before hosts.
        found = comparison.unknown, comparison.without_disks, comparison.newer
        unknown_domains.record(uow, host, *found, number)
        return verdicts

    def domains_expected(self, context: RequestContext, host: str) -> list[ExpectedDomain]:
        return self.db.read(instances.with_domain, host)

    def domain_lost(self, context: RequestContext, host: str, expected: ExpectedDomain) -> None:
        self.db.write(self._domain_lost, host, expected)

    def _domain_lost(self, uow: UnitOfWork, host: str, expected: ExpectedDomain) -> None:
        """Set the instance to ERROR. It keeps its host and claims, which a hard reboot or a rebuild needs.

        Does nothing if the instance has changed since the host got its list: the domain may exist again, or be
        elsewhere.
        """
        instance = instances.lock(uow, expected.uuid)
        if instance is None or instance.deleted or instance.task_state is not None:
            return
        if (instance.host, instance.generation) != (host, expected.generation):
            return
        if instance.vm_state not in states.HAS_DOMAIN or actions.all_open(uow, instance.uuid):
            return
        if actions.newest(uow, instance.uuid) != expected.last_action_id:
            return
        LOG.warning("Instance %s was %s: its domain is not on host %s", instance.uuid, instance.vm_state, host)
        faults.set_error(uow, instance, LOST)
        instance.power_state = int(PowerState.NOSTATE)


def _lost_power(report: DomainReport) -> DomainReport:
    """Return the report of a protected server, which runs again after a boot of its host whatever the host's option."""
    return msgspec.structs.replace(report, lost_power=report.lost_power or report.booted)


class Comparison:
    """Comparison of the domains and leftovers of a host with their rows.

    An instance belongs to its host, and to each host where it holds a claim (source or destination of a move). A purged
    instance was deleted and belongs nowhere. Other unknown uuids get no verdict, since they may be of another database.

    ``to_start``: instances that stopped because their host lost power. ``crashed``: active ones whose guest has crashed
    or was paused by its watchdog. ``unknown``: uuids of domains of no instance. ``newer``: uuid, generation and power
    state of domains that are newer than any that their instance has had.
    ``without_disks``: uuids of instances of the host whose disks are missing.
    """

    def __init__(self, uow: UnitOfWork, host: str, domains: list[DomainReport], leftovers: list[str]) -> None:
        self._uow, self._host = uow, host
        uuids = [domain.uuid for domain in domains] + leftovers
        self._rows = instances.rows_by_uuid(uow, uuids)
        self._claimed_here = claims.of_instances(uow, self._rows, host)
        self._purged = purge.purged(uow, set(uuids) - self._rows.keys())
        self.to_start: list[Instance] = []
        self.crashed: list[tuple[Instance, Incident]] = []
        self.unknown: list[str] = []
        self.without_disks: list[str] = []
        self.newer: list[tuple[str, int, int]] = []

    def verdicts(self, domains: list[DomainReport], leftovers: list[str]) -> list[DomainVerdict]:
        """Return what the host does, and update the power states of domains that belong to it."""
        found = [self._of_domain(domain) for domain in domains] + [self._of_leftover(uuid) for uuid in leftovers]
        return [verdict for verdict in found if verdict is not None]

    def _of_domain(self, domain: DomainReport) -> DomainVerdict | None:
        """Return the verdict on a domain; None: it is left alone."""
        if domain.uuid in self._purged:
            LOG.warning("Host %s has a domain %s of a server that was deleted and purged", self._host, domain.uuid)
            return DomainVerdict(uuid=domain.uuid, generation=domain.generation, verdict=Verdict.DESTROY)
        instance = self._rows.get(domain.uuid)
        if instance is None:
            LOG.warning(
                "Host %s has a domain %s that is not in the database; it is left alone", self._host, domain.uuid
            )
            self.unknown.append(domain.uuid)
            return None
        is_current = not instance.deleted and (instance.host, instance.generation) == (self._host, domain.generation)
        if is_current and domain.lacks_disks:
            LOG.warning("Instance %s: its disks are missing on host %s", domain.uuid, self._host)
            self.without_disks.append(domain.uuid)
        if is_current and instance.task_state is None:
            self._follow_power(instance, domain)
        if is_current or (not instance.deleted and domain.generation in self._claimed_here.get(domain.uuid, ())):
            waits = is_current and (domain.booted or domain.lost_power) and instance.task_state is not None
            return DomainVerdict(uuid=domain.uuid, generation=domain.generation, verdict=Verdict.KEEP, undecided=waits)
        if domain.generation > max(instance.generation, instance.last_generation):
            LOG.warning("Domain %s on %s is newer than its row; it is left alone", domain.uuid, self._host)
            self.newer.append((domain.uuid, domain.generation, int(domain.power_state)))
            return None
        return DomainVerdict(
            uuid=domain.uuid,
            generation=domain.generation,
            verdict=Verdict.DESTROY,
            keeps_disks=self._may_need_disks(instance),
        )

    def _follow_power(self, instance: Instance, domain: DomainReport) -> None:
        """Update the instance's power state. If its guest is off now, note what has to follow."""
        if not _follow(self._uow, self._host, instance, domain):
            return
        if domain.halted:
            self.crashed.append((instance, cause_of_pause(domain.incidents)))
        elif domain.lost_power:
            if instance.site_role in MAY_RUN:
                self.to_start.append(instance)
        elif (incident := cause_of_end(domain.incidents)) is not None:
            self.crashed.append((instance, incident))

    def _of_leftover(self, uuid: str) -> DomainVerdict | None:
        """Return the verdict on disks and settings without a domain; None: they are left alone."""
        if uuid in self._purged:
            return DomainVerdict(uuid=uuid, generation=0, verdict=Verdict.DESTROY)
        instance = self._rows.get(uuid)
        if instance is None or self._may_need_disks(instance):
            return None
        if not instance.deleted and (instance.host == self._host or uuid in self._claimed_here):
            return None
        return DomainVerdict(uuid=uuid, generation=instance.generation, verdict=Verdict.DESTROY)

    def _may_need_disks(self, instance: Instance) -> bool:
        return not instance.deleted and host_storage.may_need(instance, self._host)


def _follow(uow: UnitOfWork, host: str, instance: Instance, report: DomainReport) -> bool:
    """Update the instance's state from the report. Returns True if it was active, and its guest is off or halted now.

    While no task runs, the hypervisor is right: a guest that shut itself down is STOPPED, a guest that was started by
    hand is ACTIVE. If a command was carried out after the report, the command's own report is newer.

    Most rows match and are only read. A row that has to change is locked and compared once more.
    """
    if _seen(instance, report) == (instance.power_state, instance.vm_state):
        return False
    now = instances.lock(uow, instance.uuid)
    if now is None or now.deleted or now.task_state is not None:
        return False
    if (now.host, now.generation) != (host, report.generation):
        return False
    if _is_older(report, actions.last_order(uow, now)):
        return False
    before = now.vm_state
    now.power_state, now.vm_state = _seen(now, report)
    now.updated_at = uow.now
    return before == states.ACTIVE and (now.vm_state == states.STOPPED or report.halted)


def _current(uow: UnitOfWork, host: str, report: DomainReport) -> Instance | None:
    """Lock and return the instance of a domain, if the domain belongs to it."""
    now = instances.lock(uow, report.uuid)
    if now is None or now.deleted or (now.host, now.generation) != (host, report.generation):
        return None
    return now


def _is_older(report: DomainReport, last: tuple[int, int]) -> bool:
    """Check whether the command, an action's id and sequence number, came after the report."""
    if report.last_action_id is None:
        return False
    if report.last_position is None:
        return last[0] > report.last_action_id
    return last > (report.last_action_id, report.last_position)


def _seen(instance: Instance, report: DomainReport) -> tuple[int, str]:
    """Return the power state and the vm_state that follow from the report."""
    vm_state, power_state = instance.vm_state, PowerState(report.power_state)
    if vm_state in states.EXPECTED_POWER_STATES and power_state not in states.EXPECTED_POWER_STATES[vm_state]:
        vm_state = states.VM_STATE_OF.get(power_state, vm_state)
    return int(power_state), vm_state
