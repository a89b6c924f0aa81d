"""What hosts report: a build begins, it ended, an action is done, these domains are here.

Every report is checked against (host, generation) of the instance; one that is not current any more changes nothing.
"""

from __future__ import annotations

import logging

import msgspec
from oslo_config import cfg

from nova_lite import exception, states
from nova_lite.conductor.db import actions, claims, hosts, instances, networks
from nova_lite.conductor.db.engine import UnitOfWork
from nova_lite.conductor.db.models import Instance, InstanceAction
from nova_lite.conductor.tasks import accept, end
from nova_lite.network.driver import NetworkBackend
from nova_lite.objects import (
    BuildNetworks,
    BuildResult,
    DomainReport,
    DomainVerdict,
    NetworkRequest,
    Outcome,
    Verdict,
)
from nova_lite.states import ActionKind, PowerState

LOG = logging.getLogger(__name__)


def start_build(
    uow: UnitOfWork,
    conf: cfg.ConfigOpts,
    network_backend: NetworkBackend,
    instance_uuid: str,
    host: str,
    generation: int,
) -> BuildNetworks:
    """Scheduling to spawning, with addresses, in one transaction; repeated, it answers the same."""
    instance, action = _building(uow, instance_uuid, host, generation)
    requests = [msgspec.convert(item, NetworkRequest) for item in instance.request.get("networks", [])]
    vifs = network_backend.allocate(networks.Store(uow), instance_uuid, requests)
    _, instance.task_state = states.BUILD_TASKS[action.action]
    instance.updated_at = uow.now
    actions.extend(uow, conf, action)
    return BuildNetworks(vifs=vifs)


def _building(uow: UnitOfWork, instance_uuid: str, host: str, generation: int) -> tuple[Instance, InstanceAction]:
    """The instance and its open build, locked; raises `InstanceGone` or `StaleReport` when that build is over."""
    instance = instances.lock(uow, instance_uuid)
    if instance is None or instance.deleted or instance.task_state == states.DELETING:
        raise exception.InstanceGone(instance_id=instance_uuid)
    action = actions.find_open(uow, instance_uuid, *states.BUILD_TASKS)
    if (
        action is None
        or action.step != actions.BUILD
        or instance.host != host
        or instance.generation != generation
        or instance.task_state not in states.BUILD_TASKS[action.action]
    ):
        raise exception.StaleReport(instance_id=instance_uuid, generation=generation, host=host)
    return instance, action


def finish_build(uow: UnitOfWork, conf: cfg.ConfigOpts, network_backend: NetworkBackend, result: BuildResult) -> bool:
    """Settle a build; True when the instance is to be scheduled again."""
    if result.outcome == Outcome.BUILT and (_already_built(uow, result) or _built_after_all(uow, conf, result)):
        return False
    try:
        instance, action = _building(uow, result.instance_uuid, result.host, result.generation)
    except (exception.InstanceGone, exception.StaleReport):
        if result.outcome == Outcome.BUILT:
            raise
        return False
    if result.outcome == Outcome.BUILT:
        instance.root_device_name = result.root_device_name
        end.built(uow, conf, instance, action, result.power_state)
        if instance.node is not None:
            hosts.build_succeeded(uow, result.host, instance.node)
        return False
    if result.outcome == Outcome.ABORTED:
        end.failed(uow, network_backend, instance, action, result.message, result.details)
        return False
    return _reschedule(uow, conf, network_backend, instance, action, result)


def _already_built(uow: UnitOfWork, result: BuildResult) -> bool:
    """A report that came twice: the build is finished, and still this one."""
    instance = instances.lock(uow, result.instance_uuid)
    action = actions.find_open(uow, result.instance_uuid, *states.BUILD_TASKS)
    return (
        instance is not None
        and (action is None or action.step == actions.PERFORM)
        and not instance.deleted
        and instance.launched_at is not None
        and instance.task_state != states.DELETING
        and (instance.host, instance.generation) == (result.host, result.generation)
    )


def _built_after_all(uow: UnitOfWork, conf: cfg.ConfigOpts, result: BuildResult) -> bool:
    """A build past its deadline, whose host had not been fenced yet: its owner gets what was asked for."""
    instance = instances.lock(uow, result.instance_uuid)
    action = actions.find_open(uow, result.instance_uuid, *states.BUILD_TASKS)
    if (
        instance is None
        or instance.deleted
        or instance.task_state == states.DELETING
        or action is None
        or action.step != actions.COMPENSATE
        or (instance.host, instance.generation) != (result.host, result.generation)
    ):
        return False
    instance.root_device_name = result.root_device_name
    end.built(uow, conf, instance, action, result.power_state)
    return True


def _reschedule(
    uow: UnitOfWork,
    conf: cfg.ConfigOpts,
    network_backend: NetworkBackend,
    instance: Instance,
    action: InstanceAction,
    result: BuildResult,
) -> bool:
    """The host has fenced this generation and holds nothing: another one may be tried. Networks are kept."""
    if instance.node is not None:
        hosts.build_failed(uow, result.host, instance.node)
    tried = [*action.payload.get("tried", []), result.host]
    errors = [*action.payload.get("errors", []), result.message]
    if len(tried) >= conf.conductor.max_attempts:
        message = f"Exceeded maximum number of retries. Last error: {result.message}"
        end.failed(uow, network_backend, instance, action, message, result.details)
        return False
    claims.release(uow, instance.uuid)
    instance.host = instance.node = None
    instance.task_state, _ = states.BUILD_TASKS[action.action]
    instance.updated_at = uow.now
    actions.finish_events(uow, action, result.message, result.details)
    action.step = actions.SCHEDULE
    action.host = None
    action.lease_owner = None
    action.lease_expires_at = uow.now
    action.payload = {**action.payload, "tried": tried, "errors": errors}
    return True


def finish_action(
    uow: UnitOfWork,
    conf: cfg.ConfigOpts,
    network_backend: NetworkBackend,
    host: str,
    action_id: int,
    power_state: int | None,
    error: str | None,
    details: str,
) -> None:
    """Settle a delete, stop, start or reboot. One that is finished already, or is not this host's, stays as it is."""
    action = uow.session.get(InstanceAction, action_id)
    if action is None:
        return
    instance = instances.lock(uow, action.instance_uuid)
    uow.session.refresh(action)
    if instance is None or action.finish_time is not None or action.host != host:
        return
    if action.action == ActionKind.DELETE:
        _finish_delete(uow, conf, network_backend, instance, action, error, details)
        return
    instance.task_state = None
    instance.updated_at = uow.now
    if power_state is not None:
        instance.power_state = power_state
    if error is None:
        instance.vm_state = accept.transition_for(action.action, action.payload).result
        instance.fault = None
    else:
        _settle_failed_action(uow, instance, error, details)
    actions.finish(uow, action, error, details)


def _settle_failed_action(uow: UnitOfWork, instance: Instance, error: str, details: str) -> None:
    """The instance is what its guest is: running, off, or (neither) in error."""
    if instance.power_state == PowerState.RUNNING:
        instance.vm_state = states.ACTIVE
    elif instance.power_state == PowerState.SHUTDOWN:
        instance.vm_state = states.STOPPED
    else:
        end.set_error(uow, instance, error, details)


def _finish_delete(
    uow: UnitOfWork,
    conf: cfg.ConfigOpts,
    network_backend: NetworkBackend,
    instance: Instance,
    action: InstanceAction,
    error: str | None,
    details: str,
) -> None:
    """A delete that failed on its host is tried again until it works; the deadline makes that visible."""
    if error is None:
        end.deleted(uow, network_backend, instance, action)
        return
    LOG.warning("Delete of %s failed on %s: %s", instance.uuid, action.host, error)
    actions.finish_events(uow, action, error, details)
    actions.back_off(uow, conf, action, error)


def reconcile_domains(
    uow: UnitOfWork, host: str, domains: list[DomainReport], leftovers: list[str]
) -> list[DomainVerdict]:
    """Say which domains and leftovers do not belong on the host, and note the power states of those that do.

    Unknown uuids are never judged: they may be of another database.
    """
    rows = instances.rows_by_uuid(uow, [domain.uuid for domain in domains] + leftovers)
    verdicts = []
    for domain in domains:
        instance = rows.get(domain.uuid)
        if instance is None:
            LOG.warning("Host %s has a domain %s of ours that is in no row; it is left alone", host, domain.uuid)
            continue
        belongs = not instance.deleted and (instance.host, instance.generation) == (host, domain.generation)
        if belongs and instance.task_state is None:
            _sync_power_state(uow, instance, domain.power_state)
        if not belongs and domain.generation > instance.generation:
            LOG.warning("Domain %s on %s is newer than its row; it is left alone", domain.uuid, host)
            continue
        verdict = Verdict.KEEP if belongs else Verdict.DESTROY
        verdicts.append(DomainVerdict(uuid=domain.uuid, generation=domain.generation, verdict=verdict))
    for instance_uuid in leftovers:
        instance = rows.get(instance_uuid)
        if instance is not None and (instance.deleted or instance.host != host):
            verdicts.append(DomainVerdict(uuid=instance_uuid, generation=instance.generation, verdict=Verdict.DESTROY))
    return verdicts


def _sync_power_state(uow: UnitOfWork, instance: Instance, power_state: int) -> None:
    """With no task running, the hypervisor is right: a guest that shut itself down is STOPPED, one that was started
    by hand is ACTIVE."""
    follows = {PowerState.RUNNING: states.ACTIVE, PowerState.SHUTDOWN: states.STOPPED}
    vm_state = instance.vm_state
    if vm_state in follows.values():
        vm_state = follows.get(PowerState(power_state), vm_state)
    if (instance.power_state, instance.vm_state) != (power_state, vm_state):
        instance.power_state = power_state
        instance.vm_state = vm_state
        instance.updated_at = uow.now
