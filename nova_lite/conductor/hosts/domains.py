"""Compares the domains of hosts with the database: where they belong, and whether their guests run."""

from __future__ import annotations

import logging

import msgspec

from nova_lite import operations
from nova_lite.base.context import RequestContext, get_admin_context
from nova_lite.conductor.engine import faults
from nova_lite.conductor.engine.engine import ActionEngine
from nova_lite.conductor.hosts import crashes
from nova_lite.db import actions, claims, host_storage, instances, leases, purge, restarts, unknown_domains
from nova_lite.db.engine import UnitOfWork
from nova_lite.db.models import Instance
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
    "The server is not known to its hypervisor any more. A hard reboot makes it anew if its disks are still there; "
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
        to_start: list[Instance] = []
        if any(domain.booted for domain in domains):
            protected = leases.protected(uow, self.engine.conf, host)
            domains = [_lost_power(domain) if domain.uuid in protected else domain for domain in domains]
        crashed: list[tuple[Instance, Incident]] = []
        unknown: list[str] = []
        verdicts = reconcile_domains(uow, host, domains, leftovers, to_start, crashed, unknown)
        for instance, incident in crashed:
            crashes.record_crash(uow, self.engine.conf, instance, incident)
        ended = {incident.id for _, incident in crashed}
        for report in domains:
            # Each comparison reports the crash of a guest that is off.
            incidents = [item for item in report.incidents if item.id not in ended and item.kind != IncidentKind.CRASH]
            if incidents and (row := _current(uow, host, report)) is not None:
                crashes.record_incidents(uow, self.engine.conf, row, incidents)
        for instance in to_start:
            LOG.info("Instance %s ran when its host lost power: it is started again", instance.uuid)
            self.engine.accept_in(uow, own, instance.uuid, operations.START.kind, {})
            restarts.plan_start(uow, self.engine.conf, instance)
        unknown_domains.record(uow, host, unknown, number)  # Instances are locked before hosts.
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


def reconcile_domains(
    uow: UnitOfWork,
    host: str,
    domains: list[DomainReport],
    leftovers: list[str],
    to_start: list[Instance],
    crashed: list[tuple[Instance, Incident]],
    unknown: list[str],
) -> list[DomainVerdict]:
    """Return a verdict on each domain and leftover, and update the power states of domains that belong here.

    An instance belongs to its host, and to each host where it holds a claim (source or destination of a move). A purged
    instance was deleted and belongs nowhere. Other unknown uuids get no verdict, since they may be of another database.
    The function appends to ``to_start`` the instances that stopped because their host lost power. ``crashed`` gets the
    active ones whose guest has crashed or was paused by its watchdog, ``unknown`` the uuids of domains of no instance.
    """
    rows = instances.rows_by_uuid(uow, [domain.uuid for domain in domains] + leftovers)
    claimed_here = claims.of_instances(uow, rows, host)
    purged = purge.purged(uow, {*leftovers, *(domain.uuid for domain in domains)} - rows.keys())
    verdicts = []
    for domain in domains:
        instance = rows.get(domain.uuid)
        if domain.uuid in purged:
            LOG.warning("Host %s has a domain %s of a server that was deleted and purged", host, domain.uuid)
            verdicts.append(DomainVerdict(uuid=domain.uuid, generation=domain.generation, verdict=Verdict.DESTROY))
            continue
        if instance is None:
            LOG.warning("Host %s has a domain %s that is not in the database; it is left alone", host, domain.uuid)
            unknown.append(domain.uuid)
            continue
        is_current = (instance.host, instance.generation) == (host, domain.generation)
        belongs = not instance.deleted and (is_current or domain.generation in claimed_here.get(domain.uuid, ()))
        if is_current and belongs and instance.task_state is None and _follow(uow, host, instance, domain):
            if domain.halted:
                crashed.append((instance, cause_of_pause(domain.incidents)))
            elif domain.lost_power:
                if instance.site_role in MAY_RUN:
                    to_start.append(instance)
            elif (incident := cause_of_end(domain.incidents)) is not None:
                crashed.append((instance, incident))
        if not belongs and domain.generation > max(instance.generation, instance.last_generation):
            LOG.warning("Domain %s on %s is newer than its row; it is left alone", domain.uuid, host)
            continue
        verdict = Verdict.KEEP if belongs else Verdict.DESTROY
        keeps = not belongs and not instance.deleted and host_storage.may_need(instance, host)
        waits = is_current and belongs and (domain.booted or domain.lost_power) and instance.task_state is not None
        verdicts.append(
            DomainVerdict(
                uuid=domain.uuid, generation=domain.generation, verdict=verdict, keeps_disks=keeps, undecided=waits
            )
        )
    for instance_uuid in leftovers:
        instance = rows.get(instance_uuid)
        if instance_uuid in purged:
            verdicts.append(DomainVerdict(uuid=instance_uuid, generation=0, verdict=Verdict.DESTROY))
            continue
        if instance is None or (not instance.deleted and (instance.host == host or instance_uuid in claimed_here)):
            continue
        if not instance.deleted and host_storage.may_need(instance, host):
            continue
        verdicts.append(DomainVerdict(uuid=instance_uuid, generation=instance.generation, verdict=Verdict.DESTROY))
    return verdicts


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
