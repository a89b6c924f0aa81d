"""Retirement of a host: an operator declares that it will never come back.

A host that is forced down may come back, so its instances keep their claims until it has removed its work. A retired
host gets no more commands. A machine that registers under its name later counts as new. Old domains on it hold no
claim, and are destroyed before it serves.
"""

from __future__ import annotations

import logging

from nova_lite import hardware, operations
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.conductor.engine.context import ActionContext
from nova_lite.conductor.engine.engine import ActionEngine
from nova_lite.conductor.operations.resize import give_back_extra
from nova_lite.db.core import actions
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance, Service
from nova_lite.db.hosts import services
from nova_lite.db.servers import claims, instances, server_migrations
from nova_lite.objects import RetiredServer, Retirement
from nova_lite.operations import HostRole, HostStep, NetworkStep, Operation, ScheduleStep, migration_states, states

LOG = logging.getLogger(__name__)

#: The operation, by vm_state, that saves a server with data elsewhere, or finishes its deletion. Others are lost.
REMEDIES: dict[str, tuple[Operation, str]] = {
    states.RESIZED: (operations.REVERT_RESIZE, "reverted, to where it came from"),
    states.SHELVED: (operations.SHELVE_OFFLOAD, "offloaded: it can be unshelved from its image"),
    states.SOFT_DELETED: (operations.DELETE, "deleted permanently"),
}

#: Advice for the operator about a server, by vm_state, before its host is retired.
HINTS: dict[str, str] = {
    states.ACTIVE: "evacuate it",
    states.STOPPED: "evacuate it",
    states.ERROR: "evacuate or delete it",
    states.RESIZED: "revert its resize",
    states.SHELVED: "it is in its image: --with-instances offloads it",
    states.SOFT_DELETED: "delete it permanently",
}
OTHER_HINT = "set its state to error, and evacuate or delete it"
TPM_HINT = "delete it: no other host has the state of its TPM"


class _ServersRemain(Exception):
    """Rolls the transaction back, because ``servers`` are still on the host."""

    def __init__(self, servers: list[RetiredServer]) -> None:
        super().__init__(f"{len(servers)} servers")
        self.servers = servers


class Retirements:
    """The RPC method `host_retire`."""

    def __init__(self, engine: ActionEngine) -> None:
        self.engine = engine
        self.db = engine.db
        self.conf = engine.conf

    def host_retire(self, context: RequestContext, host: str, with_instances: bool) -> Retirement:
        try:
            retirement = self.db.write(self._retire, context, host, with_instances)
        except _ServersRemain as refusal:
            return Retirement(done=False, servers=refusal.servers)
        closed, servers = retirement.closed, len(retirement.servers)
        LOG.warning("Host %s is retired: %d action(s) closed, %d server(s)", host, closed, servers)
        return retirement

    def _retire(self, uow: UnitOfWork, context: RequestContext, host: str, with_instances: bool) -> Retirement:
        """Retire the host in one transaction. It locks instances before the host's service, like all transactions."""
        self._check(uow, host, services.find(uow, host, services.COMPUTE))
        rows = [row for uuid in instances.concerned_with(uow, host) if (row := instances.lock(uow, uuid)) is not None]
        closed = 0
        for instance in rows:
            for ctx in _open_actions(uow, instance):
                if _needs_host(ctx, host):
                    self.engine.transitions.retire_host(ctx, host)
                closed += ctx.action.finish_time is not None
        remaining = [row for row in rows if row.host == host and not row.deleted and not self._leaves(uow, row)]
        if remaining and not with_instances:
            raise _ServersRemain([_server(row, _hint(row)) for row in remaining])
        servers = [self._save_or_lose(uow, context, row, host) for row in remaining]
        for instance in rows:
            for held in claims.held_hosts(uow, instance):
                if held.host == host:
                    claims.release(uow, instance.uuid, held)
            if instance.host == host and not instance.deleted:
                claims.leave(instance)
        self._check(uow, host, services.locked(uow, host, services.COMPUTE))
        return Retirement(done=True, servers=servers, closed=closed)

    def _check(self, uow: UnitOfWork, host: str, service: Service | None) -> None:
        """Raise `HostNotFound` or `HostNotRetirable`, unless the host can be retired."""
        if service is None:
            raise exceptions.HostNotFound(host=host)
        if not service.forced_down:
            raise exceptions.HostNotRetirable(
                host=host,
                reason="it is not forced down. Make sure that nothing runs there, then declare it: "
                f"openstack --os-compute-api-version 2.11 compute service set --down {host} nova-compute",
            )
        seconds, needed = services.seconds_silent(uow, service), self.conf.service_down_time
        if seconds < needed:
            raise exceptions.HostNotRetirable(
                host=host,
                reason=f"it was heard {seconds:.0f} s ago, and counts as silent after {needed} s. Stop its daemon "
                "if it still runs, and try again then.",
            )

    def _leaves(self, uow: UnitOfWork, instance: Instance) -> bool:
        """Check whether a delete, or an undo that calls the network service, takes the instance off the host."""
        return any(
            (isinstance(ctx.step, HostStep) and ctx.step.at is HostRole.ALL)
            or (isinstance(ctx.step, NetworkStep) and ctx.is_undoing)
            for ctx in _open_actions(uow, instance)
        )

    def _save_or_lose(self, uow: UnitOfWork, context: RequestContext, instance: Instance, host: str) -> RetiredServer:
        """Save the server with its remedy, or set it to ERROR. Returns the outcome for the operator."""
        before = instance.vm_state
        remedy = REMEDIES.get(before)
        if remedy is not None and not _open_actions(uow, instance):
            operation, outcome = remedy
            try:
                self.engine.accept_in(uow, context, instance.uuid, operation.kind, {})
            except exceptions.Conflict as error:
                LOG.info("Instance %s is lost: %s", instance.uuid, error.message)
            else:
                for ctx in _open_actions(uow, instance):
                    self.engine.transitions.retire_host(ctx, host)
                if instance.deleted or instance.host != host:
                    return _server(instance, outcome, before)
        for ctx in _open_actions(uow, instance):
            if not ctx.is_undoing and isinstance(ctx.step, HostStep | ScheduleStep):
                self.engine.transitions.fail(ctx, f"Host {host} was retired.", reported=False)
        self.engine.transitions.lose(uow, instance)
        migration = server_migrations.current(uow, instance.uuid)
        if migration is not None and not _open_actions(uow, instance):
            server_migrations.set_status(uow, migration, migration_states.ERROR)
            give_back_extra(uow, instance)
        return _server(instance, "lost: in error, to be deleted or evacuated", before)


def _open_actions(uow: UnitOfWork, instance: Instance) -> list[ActionContext]:
    return [ActionContext(uow, instance, action) for action in actions.all_open(uow, instance.uuid)]


def _needs_host(ctx: ActionContext, host: str) -> bool:
    """Check whether the action needs the host, now or at a later step."""
    hosts = [(ctx.action.payload.get(role.value) or {}).get("host") for role in operations.MOVE_ROLES]
    return host in (ctx.action.host, ctx.instance.host, *hosts)


def _hint(instance: Instance) -> str:
    """Return the advice about a server. One with a TPM cannot be evacuated."""
    has_tpm = hardware.has_tpm(instance.flavor, instance.image)
    return TPM_HINT if has_tpm and instance.vm_state not in REMEDIES else HINTS.get(instance.vm_state, OTHER_HINT)


def _server(instance: Instance, outcome: str, before: str | None = None) -> RetiredServer:
    return RetiredServer(
        uuid=instance.uuid, name=instance.display_name, vm_state=before or instance.vm_state, outcome=outcome
    )
