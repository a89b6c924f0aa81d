"""Messages to the conductor: topic ``conductor``. The only way to the database.

Grouped by who asks. Every method answers within one transaction; `MessagingUnavailable` and `DatabaseUnavailable` (both
503) mean that the answer is unknown or that nothing was done: a retry with the same request id is safe.
"""

from __future__ import annotations

import datetime
from typing import Annotated, Any, Protocol

from nova_lite import rpc
from nova_lite.context import RequestContext
from nova_lite.objects import (
    ActionTicket,
    Aggregate,
    AvailabilityZone,
    BuildNetworks,
    BuildResult,
    ComputeNode,
    Console,
    ConsoleTarget,
    CreateRequest,
    CreateResult,
    DomainExpected,
    DomainReport,
    DomainVerdict,
    Flavor,
    HostReport,
    HostState,
    Image,
    Instance,
    InstanceAction,
    InstanceFilters,
    InstanceUsage,
    KeyPair,
    Limits,
    MigrationFilters,
    MigrationProgress,
    Network,
    Retirement,
    ServerGroup,
    ServerMigration,
    Service,
    Wish,
)


@rpc.service("conductor", version="1.4")
class ConductorRPC(Protocol):
    # --- servers, for the API

    def create_instances(self, context: RequestContext, request: CreateRequest) -> CreateResult:
        """Check against flavor, image, key, networks and quota, and write instances and their create actions."""

    @rpc.cast
    def build_instances(self, context: RequestContext, instance_uuids: list[str]) -> None:
        """Nudge: schedule and cast the builds of these instances now (the reconciler would, a little later)."""

    def accept_action(
        self, context: RequestContext, instance_uuid: str, action: str, payload: dict[str, Any]
    ) -> ActionTicket:
        """Write the action's row and the task state, if the instance's state allows it (else 409). The ticket is then
        cast to its host by the caller."""

    def instance_get(self, context: RequestContext, instance_uuid: str) -> Instance:
        """Of the context's project, or any for an admin; else `InstanceNotFound`."""

    def instance_list(
        self,
        context: RequestContext,
        filters: InstanceFilters,
        limit: int | None,
        marker: str | None,
        sort_keys: list[str],
        sort_dirs: list[str],
    ) -> list[Instance]: ...

    def instance_update(self, context: RequestContext, instance_uuid: str, changes: dict[str, Any]) -> Instance:
        """Change ``display_name``, ``display_description``, ``hostname``, ``access_ip_v4``/``_v6`` or
        ``auto_disk_config``."""

    def instance_metadata_change(
        self, context: RequestContext, instance_uuid: str, metadata: dict[str, str], replace: bool
    ) -> dict[str, str]:
        """Add or change these items, or (``replace``) have no others; returns all of them."""

    def instance_metadata_delete(self, context: RequestContext, instance_uuid: str, key: str) -> None: ...

    def instance_tags_replace(self, context: RequestContext, instance_uuid: str, tags: list[str]) -> list[str]:
        """Have these tags and no others; returns them, sorted."""

    def instance_tag_add(self, context: RequestContext, instance_uuid: str, tag: str) -> bool:
        """False: it was there already."""

    def instance_tag_delete(self, context: RequestContext, instance_uuid: str, tag: str) -> None: ...

    def instance_password_clear(self, context: RequestContext, instance_uuid: str) -> None:
        """Forget the password that its guest posted."""

    @rpc.since("1.3")
    def instances_at_address(self, context: RequestContext, address: str) -> list[Instance]:
        """Those with an interface of this address, one for each network that has it, of all projects; for the metadata
        service."""

    @rpc.since("1.3")
    def instance_password_set(self, context: RequestContext, instance_uuid: str, password: str) -> None:
        """Keep what its guest posted; `PasswordAlreadySet` if there is one."""

    @rpc.since("1.4")
    def console_token_create(
        self, context: RequestContext, instance_uuid: str, compute_host: str, token_hash: str, console: Console
    ) -> None:
        """Keep what the token of this hash (`nova_lite.console.tokens`) stands for, as ``compute_host`` told it. Raises
        `InstanceNotReady` if the instance is not there any more."""

    @rpc.since("1.4")
    def console_token_get(self, context: RequestContext, token_hash: str) -> ConsoleTarget:
        """Of any project; `ConsoleTokenNotFound` if it is void."""

    @rpc.since("1.4")
    def console_token_take(self, context: RequestContext, token_hash: str, console_types: list[str]) -> ConsoleTarget:
        """The same, and it is void from now on. For the proxies: a console of another type is not found."""

    def instance_lock(self, context: RequestContext, instance_uuid: str, reason: str | None) -> None: ...

    def instance_unlock(self, context: RequestContext, instance_uuid: str, may_override: bool) -> None:
        """``may_override``: also where the other side, owner or admin, holds the lock; else `PolicyNotAuthorized`."""

    def instance_reset_state(self, context: RequestContext, instance_uuid: str, vm_state: str) -> None:
        """Raises `InstanceInvalidState` while what is being done to it must end by itself."""

    def action_list(self, context: RequestContext, instance_uuid: str) -> list[InstanceAction]:
        """Newest first, without their events; also of a deleted instance."""

    def action_get(self, context: RequestContext, instance_uuid: str, request_id: str) -> InstanceAction:
        """One action with its events."""

    @rpc.since("1.1")
    def migration_list(
        self, context: RequestContext, filters: MigrationFilters, limit: int | None, marker: str | None
    ) -> list[ServerMigration]:
        """Moves of all servers, newest first."""

    @rpc.since("1.1")
    def migrations_in_progress(self, context: RequestContext, instance_uuid: str) -> list[ServerMigration]:
        """Live migrations of a server that are going on."""

    @rpc.since("1.1")
    def migration_get(self, context: RequestContext, instance_uuid: str, migration_id: int) -> ServerMigration:
        """Of this server, of any kind and status; else `MigrationNotFound`."""

    @rpc.since("1.2")
    def live_migration_abort(
        self, context: RequestContext, instance_uuid: str, migration_id: int, early: bool = False
    ) -> None:
        """Have one that goes on end; ``early``: also one that has not begun to move the guest. Raises a 4xx."""

    @rpc.since("1.2")
    def live_migration_force_complete(self, context: RequestContext, instance_uuid: str, migration_id: int) -> None:
        """Have one that goes on end soon, whatever the guest feels of it. Raises a 4xx."""

    # --- catalogue, for the API

    def flavor_list(
        self,
        context: RequestContext,
        is_public: bool | None,
        min_ram: int | None,
        min_disk: int | None,
        limit: int | None,
        marker: str | None,
        sort_key: str,
        sort_dir: str,
        name: Annotated[str | None, rpc.Since("1.1")] = None,
    ) -> list[Flavor]:
        """``is_public`` None: all of them. ``name``: a regular expression."""

    def flavor_get(self, context: RequestContext, flavor_id: str) -> Flavor: ...

    def flavor_create(self, context: RequestContext, flavor: Flavor) -> Flavor:
        """An empty ``flavorid`` is filled with a new uuid."""

    def flavor_update(self, context: RequestContext, flavor_id: str, description: str | None) -> Flavor: ...

    def flavor_delete(self, context: RequestContext, flavor_id: str) -> None: ...

    def flavor_extra_specs_update(
        self, context: RequestContext, flavor_id: str, extra_specs: dict[str, str]
    ) -> dict[str, str]:
        """Add or change these keys; returns all of them."""

    def flavor_extra_spec_delete(self, context: RequestContext, flavor_id: str, key: str) -> None: ...

    def flavor_access_list(self, context: RequestContext, flavor_id: str) -> list[str]:
        """Ids of the projects that may use a private flavor, here and below; `FlavorAccessNotKept` for a public one."""

    def flavor_access_add(
        self, context: RequestContext, flavor_id: str, project_id: str, even_public: bool
    ) -> list[str]:
        """`FlavorAccessExists`; `FlavorIsPublic` unless ``even_public``."""

    def flavor_access_remove(self, context: RequestContext, flavor_id: str, project_id: str) -> list[str]: ...

    def keypair_list(
        self, context: RequestContext, user_id: str, limit: int | None, marker: str | None
    ) -> list[KeyPair]: ...

    def keypair_get(self, context: RequestContext, user_id: str, name: str) -> KeyPair: ...

    def keypair_create(self, context: RequestContext, keypair: KeyPair) -> KeyPair:
        """Store a public key (the API generates and fingerprints; a private key never comes here)."""

    def keypair_delete(self, context: RequestContext, user_id: str, name: str) -> None: ...

    def image_list(
        self, context: RequestContext, name: str | None, status: str | None, limit: int | None, marker: str | None
    ) -> list[Image]:
        """Images of the built-in backend that the context's project may see."""

    def image_get(self, context: RequestContext, image_id: str) -> Image: ...

    def image_create(self, context: RequestContext, image: Image) -> Image:
        """Write the image's row as it is given; raises `ImageExists` when its id is taken."""

    def image_update(
        self, context: RequestContext, image_id: str, changes: dict[str, Any], expected_status: str | None
    ) -> Image:
        """Set the fields in ``changes``; its ``properties`` are merged in, those that are None go away. Only the owner
        or an admin may; with ``expected_status`` only an image in that status is changed (else
        `ImageStatusConflict`)."""

    def image_delete(self, context: RequestContext, image_id: str) -> None: ...

    def network_list(self, context: RequestContext) -> list[Network]:
        """Networks of the built-in backend that the context's project may use."""

    def limits_get(self, context: RequestContext, project_id: str, user_id: str | None = None) -> Limits:
        """What the project may use and uses, or one user in it."""

    def quota_defaults_get(self, context: RequestContext) -> Limits:
        """What a project without limits of its own may use; no use is counted."""

    def quota_defaults_update(self, context: RequestContext, limits: dict[str, int]) -> Limits:
        """Set these defaults in place of ``[quota]``; returns all."""

    def quota_update(
        self,
        context: RequestContext,
        project_id: str,
        limits: dict[str, int],
        force: bool,
        user_id: str | None = None,
    ) -> Limits:
        """Set limits (-1: none) of a project, or of one user in it; returns all. Unless ``force``, `QuotaBelowUse` for
        one below what is used, and `QuotaAboveProject` for a user's."""

    def quota_delete(self, context: RequestContext, project_id: str, user_id: str | None = None) -> None:
        """The project and its users have no limits of their own any more, or (``user_id``) only this user."""

    def usage_list(
        self,
        context: RequestContext,
        project_id: str | None,
        start: datetime.datetime,
        end: datetime.datetime,
        limit: int | None,
        marker: str | None,
    ) -> list[InstanceUsage]:
        """Instances that ran in the period, by project and uuid; ``project_id`` None: all projects, for an admin."""

    # --- hosts, for the API

    def availability_zone_list(self, context: RequestContext) -> list[AvailabilityZone]:
        """All zones, the control plane's ``internal`` included, with their hosts and services."""

    def service_list(self, context: RequestContext, host: str | None, binary: str | None) -> list[Service]: ...

    def service_update(self, context: RequestContext, service_id: str, changes: dict[str, Any]) -> Service:
        """``service_id``: uuid or numeric id. Changes: ``disabled``, ``disabled_reason``, ``forced_down``."""

    def service_delete(self, context: RequestContext, service_id: str) -> None: ...

    @rpc.since("1.3")
    def host_retire(self, context: RequestContext, host: str, with_instances: bool) -> Retirement:
        """A compute host that is forced down is gone for good: what it holds is given back. While servers are on it,
        nothing is changed, unless they are lost ``with_instances``. `HostNotRetirable` before it is down."""

    def compute_node_list(
        self, context: RequestContext, hostname_pattern: str | None, limit: int | None, marker: str | None
    ) -> list[ComputeNode]:
        """``hostname_pattern``: substring of the node's name; ``marker``: uuid or numeric id."""

    def compute_node_get(self, context: RequestContext, node_id: str) -> ComputeNode:
        """``node_id``: uuid or numeric id."""

    # --- aggregates and server groups, for the API

    def aggregate_list(self, context: RequestContext) -> list[Aggregate]: ...

    def aggregate_get(self, context: RequestContext, aggregate_id: str) -> Aggregate:
        """``aggregate_id``, here and below: number, uuid or name; else `AggregateNotFound`."""

    def aggregate_create(self, context: RequestContext, name: str, availability_zone: str | None) -> Aggregate: ...

    def aggregate_update(self, context: RequestContext, aggregate_id: str, changes: dict[str, str | None]) -> Aggregate:
        """Change ``name``, ``availability_zone`` (None: no zone)."""

    def aggregate_set_metadata(
        self, context: RequestContext, aggregate_id: str, metadata: dict[str, str | None]
    ) -> Aggregate:
        """Add or change these keys; a value of None removes its key."""

    def aggregate_delete(self, context: RequestContext, aggregate_id: str) -> None:
        """`InvalidAggregateAction` while it has hosts."""

    def aggregate_add_host(self, context: RequestContext, aggregate_id: str, host: str) -> Aggregate: ...

    def aggregate_remove_host(self, context: RequestContext, aggregate_id: str, host: str) -> Aggregate: ...

    def aggregate_cache_images(
        self, context: RequestContext, aggregate_id: str, image_ids: list[str], described: dict[str, Image]
    ) -> None:
        """Have the aggregate's hosts fetch these images; returns when they were told. ``described``: those that are not
        in the database, by id. `ImageUnavailable` for one that the context's project may not see or that has no
        data."""

    def server_group_list(
        self, context: RequestContext, all_projects: bool, limit: int | None, offset: int
    ) -> list[ServerGroup]:
        """The project's; ``all_projects`` counts for admins."""

    def server_group_get(self, context: RequestContext, group_id: str) -> ServerGroup: ...

    def server_group_create(self, context: RequestContext, group: ServerGroup) -> ServerGroup:
        """``name``, ``policy`` and ``rules`` of ``group``, for the context's project; counts against its quota."""

    def server_group_delete(self, context: RequestContext, group_id: str) -> None: ...

    # --- for every daemon

    @rpc.cast
    def report_service(self, context: RequestContext, host: str, binary: str, topic: str, version: str) -> None:
        """Heartbeat of a daemon that is not a compute host."""

    # --- for the scheduler

    def host_states_get(
        self, context: RequestContext, after: int = 0, limit: int | None = None, timeout: rpc.Timeout = None
    ) -> list[HostState]:
        """Every host as it is now, or a page: those with an id above ``after``, in its order, at most ``limit``; the
        scheduler's resync. ``timeout`` in seconds, to ask again sooner while the conductor may be starting."""

    # --- for compute

    def register_host(self, context: RequestContext, report: HostReport) -> int:
        """First report after start: services and nodes have their rows, and what is open on this host is due. Returns
        the host's epoch, which its heartbeats tell; `HostForcedDown` while it may not serve."""

    def report_state(self, context: RequestContext, report: HostReport, timeout: rpc.Timeout = None) -> None:
        """Heartbeat: renews the host's lease and the leases of the work it names. Raises `HostNotAdmitted` when the
        host is, or has been, forced down since it registered. ``timeout``: seconds to wait for that."""

    def start_build(self, context: RequestContext, instance_uuid: str, host: str, generation: int) -> BuildNetworks:
        """The host begins a build whose order does not say the interfaces: instance to spawning, and they are
        allocated. Raises `StaleReport` or `InstanceGone` when the build is not wanted (any more); `NoMoreFixedIps` and
        other 4xx abort it."""

    def finish_build(self, context: RequestContext, result: BuildResult) -> None:
        """Report a build's outcome. `StaleReport` or `InstanceGone` after BUILT: destroy what was built."""

    def finish_action(
        self,
        context: RequestContext,
        host: str,
        action_id: int,
        power_state: int | None,
        error: str | None,
        details: str,
        position: Annotated[int, rpc.Since("1.1")] = 0,
        answer: Annotated[dict[str, Any] | None, rpc.Since("1.1")] = None,
        request_id: Annotated[str | None, rpc.Since("1.4")] = None,
    ) -> None:
        """Report an order as done (``error`` None) or failed. ``position`` and ``request_id``: of the ticket.
        ``answer``: what later steps need of it, in their tickets' payload under ``answers`` and the step's name.
        Reporting twice is harmless."""

    @rpc.since("1.1")
    def order_is_wanted(self, context: RequestContext, host: str, action_id: int, position: int) -> bool:
        """Whether the conductor still waits for this order: what a host asks before it makes a guest of another host's
        disks."""

    @rpc.since("1.4")
    def order_is_open(
        self, context: RequestContext, host: str, action_id: int, position: int | None, request_id: str
    ) -> bool:
        """Whether the conductor waits for just this order, although the host has seen one of a later action: a database
        that lost its last commits gives ids again. ``position`` None: whichever of its action."""

    @rpc.since("1.2")
    def live_migration_progress(
        self, context: RequestContext, host: str, action_id: int, position: int, progress: MigrationProgress
    ) -> Wish:
        """How far a live migration away from ``host`` is; answers what is to become of it."""

    @rpc.since("1.1")
    def report_task(self, context: RequestContext, host: str, action_id: int, task_state: str) -> bool:
        """The host has come to this task state of the step that it was ordered. False: the action is over, and what it
        makes is not wanted."""

    def reconcile_domains(
        self, context: RequestContext, host: str, domains: list[DomainReport], leftovers: list[str]
    ) -> list[DomainVerdict]:
        """What to do with each of a host's domains, and (DESTROY) which leftovers without a domain to remove. Uuids
        that are left out of the answer are not to be touched."""

    @rpc.since("1.4")
    def domains_expected(self, context: RequestContext, host: str) -> list[DomainExpected]:
        """The domains that the host has to have now, unless something is being done to them: of what is in none, the
        host makes sure once more, and reports it."""

    @rpc.since("1.4")
    def domain_lost(self, context: RequestContext, host: str, expected: DomainExpected) -> None:
        """A domain that was `domains_expected` is not there, and nothing that is being done there makes it. If that is
        still what the instance is about, it is in ERROR. Reporting twice is harmless."""
