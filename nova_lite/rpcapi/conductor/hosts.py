"""Hosts: services, nodes, heartbeats, leases, domains, aggregates, and hosts that join."""

from __future__ import annotations

from typing import Any, Protocol

from nova_lite import rpc
from nova_lite.base.context import RequestContext
from nova_lite.objects import (
    Aggregate,
    AvailabilityZone,
    BalancePlan,
    ComputeNode,
    DomainReport,
    DomainVerdict,
    ExpectedDomain,
    HostLoad,
    HostReport,
    HostState,
    HostVersion,
    Image,
    JoinRequest,
    JoinState,
    Lease,
    LeaseRequest,
    ListQuery,
    LoadRequest,
    PendingJoin,
    ReportNumber,
    ResourceAllocation,
    ResourceProvider,
    Retirement,
    Service,
    SettledRecords,
    StorageReport,
    TrustList,
)


class HostsRPC(Protocol):
    """Hosts: services, nodes, heartbeats, leases, domains, aggregates, and hosts that join."""

    @rpc.list_(rpc.API)
    def availability_zone_list(self, context: RequestContext) -> list[AvailabilityZone]:
        """Return all zones with their hosts and services, including ``internal`` of the control plane."""

    @rpc.list_(rpc.API, rpc.MANAGE)
    def service_list(self, context: RequestContext, host: str | None, binary: str | None) -> list[Service]: ...

    @rpc.change(rpc.API, rpc.MANAGE)
    def service_update(self, context: RequestContext, service_id: str, changes: dict[str, Any]) -> Service:
        """Change ``disabled``, ``disabled_reason`` or ``forced_down``. ``service_id``: uuid or numeric id."""

    @rpc.delete(rpc.API, rpc.MANAGE)
    def service_delete(self, context: RequestContext, service_id: str) -> None: ...

    @rpc.change(rpc.MANAGE)
    def host_retire(self, context: RequestContext, host: str, with_instances: bool) -> Retirement:
        """Release everything that a compute host holds which is forced down and lost.

        Changes nothing while servers are on the host, unless ``with_instances``: then they are lost. Raises
        `HostNotRetirable` while the host is not forced down.
        """

    @rpc.list_(rpc.API)
    def compute_node_list(
        self, context: RequestContext, hostname_pattern: str | None, limit: int | None, marker: str | None
    ) -> list[ComputeNode]:
        """Return compute nodes. ``hostname_pattern``: a part of the node's name; ``marker``: uuid or numeric id."""

    @rpc.read(rpc.API)
    def compute_node_get(self, context: RequestContext, node_id: str) -> ComputeNode:
        """Return the compute node with this uuid or numeric id."""

    @rpc.list_(rpc.API)
    def aggregate_list(self, context: RequestContext) -> list[Aggregate]: ...

    @rpc.read(rpc.API)
    def aggregate_get(self, context: RequestContext, aggregate_id: str) -> Aggregate:
        """Return an aggregate. Like the next methods, raises `AggregateNotFound`.

        ``aggregate_id``: number, uuid or name.
        """

    @rpc.change(rpc.API)
    def aggregate_create(self, context: RequestContext, name: str, availability_zone: str | None) -> Aggregate: ...

    @rpc.change(rpc.API)
    def aggregate_update(self, context: RequestContext, aggregate_id: str, changes: dict[str, str | None]) -> Aggregate:
        """Change ``name`` or ``availability_zone`` (None: no zone)."""

    @rpc.change(rpc.API)
    def aggregate_set_metadata(
        self, context: RequestContext, aggregate_id: str, metadata: dict[str, str | None]
    ) -> Aggregate:
        """Add or change these keys. A value of None deletes its key."""

    @rpc.delete(rpc.API)
    def aggregate_delete(self, context: RequestContext, aggregate_id: str) -> None:
        """Delete an aggregate. Raises `InvalidAggregateAction` while it has hosts."""

    @rpc.change(rpc.API)
    def aggregate_add_host(self, context: RequestContext, aggregate_id: str, host: str) -> Aggregate: ...

    @rpc.change(rpc.API)
    def aggregate_remove_host(self, context: RequestContext, aggregate_id: str, host: str) -> Aggregate: ...

    @rpc.change(rpc.API)
    def aggregate_cache_images(
        self, context: RequestContext, aggregate_id: str, image_ids: list[str], described: dict[str, Image]
    ) -> None:
        """Send the aggregate's hosts the request to fetch these images, then return.

        ``described``: images that are not in the database, by id. Raises `ImageUnavailable` for an image without data,
        or that the context's project may not see.
        """

    @rpc.list_(rpc.API)
    def resource_provider_list(self, context: RequestContext, query: ListQuery) -> list[ResourceProvider]:
        """Return a page of the compute nodes with their inventories, in the order of their uuids.

        ``query``: filters by ``uuid`` and ``name``.
        """

    @rpc.list_(rpc.API)
    def resource_allocation_list(self, context: RequestContext, query: ListQuery) -> list[ResourceAllocation]:
        """Return a page of the allocations of all projects, oldest first.

        ``query``: filters by ``provider``, ``consumer``, ``project_id``, ``user_id``.
        """

    @rpc.change(rpc.MANAGE)
    def balance_hosts(self, context: RequestContext, run: bool) -> BalancePlan:
        """Plan moves that relieve hosts under pressure, with an explanation of each server there.

        ``run``: begin the moves as well. Raises `BalancingIsOff` if hosts do not measure their load.
        """

    @rpc.change(rpc.API, replay_safe=True)
    def host_join(self, context: RequestContext, request: JoinRequest) -> JoinState:
        """Accept the request of a machine with a token, or return what became of it. May be repeated.

        Raises `JoinTokenInvalid`, `JoinRefused`, `JoinedHostExists`, `InvalidInput`.
        """

    @rpc.read(rpc.API, rpc.MANAGE)
    def trust_get(self, context: RequestContext) -> TrustList | None:
        """Return the signed list of trusted keys. None: the registrar has published none yet."""

    @rpc.read(rpc.MANAGE)
    def join_list(self, context: RequestContext) -> list[PendingJoin]:
        """Return the hosts that the registrar has to admit or to remove."""

    @rpc.change(rpc.MANAGE, replay_safe=True)
    def join_finish(self, context: RequestContext, work: PendingJoin, reply: str, signature: str, problem: str) -> None:
        """Record what the registrar did, or why it cannot. Nothing is recorded for work that has changed since."""

    @rpc.change(rpc.MANAGE, replay_safe=True)
    def trust_publish(self, context: RequestContext, trust: TrustList) -> None:
        """Store the signed list of trusted keys, unless a newer one is there."""

    @rpc.report(rpc.CONDUCTOR, rpc.SCHEDULER, kind=rpc.CAST, own="host", replay_safe=True)
    def report_service(self, context: RequestContext, host: str, binary: str, topic: str, version: str) -> None:
        """Record the heartbeat of a daemon that is not a compute host."""

    @rpc.report(rpc.SCHEDULER, replay_safe=True)
    def host_states_get(
        self,
        context: RequestContext,
        after: int = 0,
        limit: int | None = None,
        ids: list[int] | None = None,
        timeout: rpc.Timeout = None,
    ) -> list[HostState]:
        """Return the state of every host, for the scheduler's resync. ``timeout``: seconds.

        A page has at most ``limit`` hosts, in the order of their ids, with ids above ``after``; or those with these
        ``ids``.
        """

    @rpc.report(rpc.SCHEDULER, replay_safe=True)
    def host_versions_get(
        self, context: RequestContext, after: int = 0, limit: int | None = None, timeout: rpc.Timeout = None
    ) -> list[HostVersion]:
        """Return the version of every host, in pages like `host_states_get`."""

    @rpc.report(rpc.COMPUTE, own="report.host")
    def register_host(self, context: RequestContext, report: HostReport) -> int:
        """Record the first report of a host after its start, and make its open actions due. Return the host's epoch.

        Creates the rows of services and nodes. Heartbeats carry the epoch. Raises `HostForcedDown` while the host may
        not serve.
        """

    @rpc.report(rpc.COMPUTE, own="report.host", replay_safe=True)
    def report_state(self, context: RequestContext, report: HostReport, timeout: rpc.Timeout = None) -> bool | None:
        """Record a heartbeat: renew the host's lease and the leases of its work. ``timeout``: seconds.

        Raises `HostNotAdmitted` when the host is forced down, or was since it registered.

        A report may carry a digest of the host's ``domains``. True: they match the host's rows and no
        operation is running on them, so that `reconcile_domains` and `domains_expected` would change nothing. False:
        they may differ. None: the report has no digest.
        """

    @rpc.report(rpc.COMPUTE, own="request.host", replay_safe=True)
    def renew_lease(self, context: RequestContext, request: LeaseRequest, timeout: rpc.Timeout = None) -> Lease:
        """Record the promise of a host that fences itself, and return its lease. ``timeout``: seconds.

        Raises `HostNotAdmitted` when the host has to register again, and `HeartbeatIsOld` unless the request is the
        newest one.
        """

    @rpc.report(rpc.COMPUTE, own="report.host")
    def report_storage(self, context: RequestContext, report: StorageReport) -> list[str]:
        """Record what a host sees in its directory of disks. Return the hosts that share it.

        Raises `HostNotAdmitted` when the host has to register again.
        """

    @rpc.report(rpc.COMPUTE, own="host", replay_safe=True)
    def cpu_baseline_get(self, context: RequestContext, host: str) -> str:
        """Return the CPU baseline of the host's aggregates, as in `HostCpu.definition`; "" if they have none."""

    @rpc.report(rpc.COMPUTE, own="host")
    def report_load(self, context: RequestContext, host: str, load: HostLoad | None) -> LoadRequest:
        """Store the load of a host, if it was measured. Return what the conductor needs next."""

    @rpc.report(rpc.COMPUTE, own="host")
    def reconcile_domains(
        self,
        context: RequestContext,
        host: str,
        domains: list[DomainReport],
        leftovers: list[str],
        number: ReportNumber | None = None,
    ) -> list[DomainVerdict]:
        """Return a verdict for each of a host's domains, and (DESTROY) the leftovers without a domain to remove.

        The host must not touch a uuid without a verdict. Domains of no server are recorded for operators, unless the
        ``number`` of the report shows that it is late.
        """

    @rpc.report(rpc.COMPUTE, own="host", replay_safe=True)
    def domains_expected(self, context: RequestContext, host: str) -> list[ExpectedDomain]:
        """Return the domains that the host has to have now, except those with a running operation.

        The host looks again for missing ones, and reports them.
        """

    @rpc.report(rpc.COMPUTE, own="host")
    def domain_lost(self, context: RequestContext, host: str, expected: ExpectedDomain) -> None:
        """Report an expected domain that is missing, and that no running operation creates. Repeated reports are
        harmless.

        The instance goes to ERROR if the domain is still expected.
        """

    @rpc.report(rpc.COMPUTE, own="host", replay_safe=True)
    def fencing_records_settled(self, context: RequestContext, host: str, instance_uuids: list[str]) -> SettledRecords:
        """Return the instances whose fencing record the host may remove."""
