"""Messages to the conductor: topic ``conductor``. The only way to the database.

Grouped by who asks. Every method answers within one transaction; `MessagingUnavailable` and `DatabaseUnavailable` (both
503) mean that the answer is unknown or that nothing was done: a retry with the same request id is safe.
"""

from __future__ import annotations

import contextlib
import copy
import datetime
from collections.abc import Mapping
from typing import Annotated, Any, Protocol, TypeAlias

from nova_lite import operations, rpc
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.objects import (
    ActionCommand,
    ActionReport,
    Aggregate,
    AvailabilityZone,
    BatchedCreate,
    BuildNetworks,
    BuildResult,
    ComputeNode,
    Console,
    ConsoleTarget,
    CreateRequest,
    CreateResult,
    DomainReport,
    DomainVerdict,
    ExpectedDomain,
    Flavor,
    FloatingIp,
    FloatingIpPool,
    HostReport,
    HostState,
    Image,
    Instance,
    InstanceAction,
    InstanceFilters,
    InstanceQuery,
    InstanceUsage,
    KeyPair,
    MigrationControl,
    MigrationFilters,
    MigrationProgress,
    Network,
    NetworkRecord,
    Port,
    PortFilters,
    ProjectLimits,
    Retirement,
    SecurityGroup,
    SecurityGroupRule,
    ServerGroup,
    ServerMigration,
    Service,
    Volume,
    VolumeConnection,
    VolumeFilters,
    VolumeSnapshot,
    VolumeUse,
)
from nova_lite.rpc.admission import Priority


def _action_priority(arguments: Mapping[str, Any]) -> Priority:
    """Return the priority of `ConductorRPC.accept_action`: a deleted server frees room for other requests."""
    return Priority.DELETE if arguments.get("action") == operations.DELETE.kind else Priority.CHANGE


#: Sequence number of a command (`nova_lite.objects.ActionCommand`).
Sequence: TypeAlias = Annotated[int, rpc.WireName("position")]

# --- fallbacks for older conductors


def _create_alone(
    conductor: ConductorRPC, context: RequestContext, creates: list[BatchedCreate]
) -> list[CreateResult | None]:
    """Accept none of them, so that every caller sends its own `ConductorRPC.create_instances`."""
    return [None] * len(creates)


def _get_instances(conductor: ConductorRPC, context: RequestContext, queries: list[InstanceQuery]) -> list[Instance]:
    """Read each instance by itself, in the project of its query."""
    instances = {}
    for query in queries:
        of_query = copy.copy(context)
        of_query.project_id, of_query.is_admin = query.project_id, query.is_admin
        with contextlib.suppress(exceptions.InstanceNotFound):
            instances[query.uuid] = conductor.instance_get(of_query, query.uuid)
    return list(instances.values())


def _finish_build(conductor: ConductorRPC, context: RequestContext, result: BuildResult) -> bool:
    try:
        conductor.finish_build(context, result)
    except (exceptions.StaleReport, exceptions.InstanceGone):
        return False
    return True


def _finish_action(conductor: ConductorRPC, context: RequestContext, host: str, report: ActionReport) -> None:
    conductor.finish_action(
        context,
        host,
        report.action_id,
        report.power_state,
        report.error,
        report.details,
        sequence=report.sequence,
        answer=report.answer,
        request_id=report.request_id,
    )


@rpc.service("conductor", version="1.18")
class ConductorRPC(Protocol):
    # --- servers, for the API

    @rpc.change(rpc.API)
    def create_instances(self, context: RequestContext, request: CreateRequest) -> CreateResult:
        """Check against flavor, image, key, networks and quota, and write instances and their create actions."""

    @rpc.change(rpc.API, since="1.18", fallback=_create_alone, wire_name="create_instances_together")
    def create_instances_batch(
        self, context: RequestContext, creates: list[BatchedCreate]
    ) -> list[CreateResult | None]:
        """`create_instances` for each of these, in one transaction. None, for one that has to be asked for by itself:
        it is refused, or a network service has to be asked first."""

    @rpc.change(rpc.API, rpc.CONDUCTOR, rpc.MANAGE, kind=rpc.CAST, replay_safe=True)
    def build_instances(self, context: RequestContext, instance_uuids: list[str]) -> None:
        """Nudge: schedule and cast the builds of these instances now (the reconciler would, a little later)."""

    @rpc.change(rpc.API, rpc.MANAGE, priority=_action_priority)
    def accept_action(
        self, context: RequestContext, instance_uuid: str, action: str, payload: dict[str, Any]
    ) -> ActionCommand:
        """Write the action's row and the task state, if the instance's state allows it (else 409). The ticket is then
        cast to its host by the caller."""

    @rpc.read(rpc.API, rpc.MANAGE)
    def instance_get(self, context: RequestContext, instance_uuid: str) -> Instance:
        """Of the context's project, or any for an admin; else `InstanceNotFound`."""

    @rpc.read(rpc.API, since="1.7", fallback=_get_instances)
    def instances_get(
        self, context: RequestContext, queries: Annotated[list[InstanceQuery], rpc.WireName("questions")]
    ) -> list[Instance]:
        """Those that there are, once each, and that whoever asks for them may see; for several requests at once."""

    @rpc.list_(rpc.API)
    def instance_list(
        self,
        context: RequestContext,
        filters: InstanceFilters,
        limit: int | None,
        marker: str | None,
        sort_keys: list[str],
        sort_dirs: list[str],
    ) -> list[Instance]: ...

    @rpc.change(rpc.API)
    def instance_update(self, context: RequestContext, instance_uuid: str, changes: dict[str, Any]) -> Instance:
        """Change ``display_name``, ``display_description``, ``hostname``, ``access_ip_v4``/``_v6`` or
        ``auto_disk_config``."""

    @rpc.change(rpc.API)
    def instance_metadata_change(
        self, context: RequestContext, instance_uuid: str, metadata: dict[str, str], replace: bool
    ) -> dict[str, str]:
        """Add or change these items, or (``replace``) have no others; returns all of them."""

    @rpc.delete(rpc.API)
    def instance_metadata_delete(self, context: RequestContext, instance_uuid: str, key: str) -> None: ...

    @rpc.change(rpc.API)
    def instance_tags_replace(self, context: RequestContext, instance_uuid: str, tags: list[str]) -> list[str]:
        """Have these tags and no others; returns them, sorted."""

    @rpc.change(rpc.API)
    def instance_tag_add(self, context: RequestContext, instance_uuid: str, tag: str) -> bool:
        """False: it was there already."""

    @rpc.delete(rpc.API)
    def instance_tag_delete(self, context: RequestContext, instance_uuid: str, tag: str) -> None: ...

    @rpc.change(rpc.API)
    def instance_password_clear(self, context: RequestContext, instance_uuid: str) -> None:
        """Forget the password that its guest posted."""

    @rpc.read(rpc.API, since="1.3", from_guests=True)
    def instances_at_address(self, context: RequestContext, address: str) -> list[Instance]:
        """Those with an interface of this address, one for each network that has it, of all projects; for the metadata
        service."""

    @rpc.change(rpc.API, since="1.3", priority=Priority.READ, from_guests=True)
    def instance_password_set(self, context: RequestContext, instance_uuid: str, password: str) -> None:
        """Keep what its guest posted; `PasswordAlreadySet` if there is one."""

    @rpc.change(rpc.API, since="1.4")
    def console_token_create(
        self, context: RequestContext, instance_uuid: str, compute_host: str, token_hash: str, console: Console
    ) -> None:
        """Keep what the token of this hash (`nova_lite.console.tokens`) stands for, as ``compute_host`` told it. Raises
        `InstanceNotReady` if the instance is not there any more."""

    @rpc.read(rpc.API, since="1.4")
    def console_token_get(self, context: RequestContext, token_hash: str) -> ConsoleTarget:
        """Of any project; `ConsoleTokenNotFound` if it is void."""

    @rpc.report(rpc.CONSOLE, since="1.4", replay_safe=True, wire_name="console_token_take")
    def console_token_redeem(self, context: RequestContext, token_hash: str, console_types: list[str]) -> ConsoleTarget:
        """The same, and it is void from now on. For the proxies: a console of another type is not found."""

    @rpc.change(rpc.API)
    def instance_lock(self, context: RequestContext, instance_uuid: str, reason: str | None) -> None: ...

    @rpc.change(rpc.API)
    def instance_unlock(self, context: RequestContext, instance_uuid: str, may_override: bool) -> None:
        """``may_override``: also where the other side, owner or admin, holds the lock; else `PolicyNotAuthorized`."""

    @rpc.change(rpc.API)
    def instance_reset_state(self, context: RequestContext, instance_uuid: str, vm_state: str) -> None:
        """Raises `InstanceInvalidState` while what is being done to it must end by itself."""

    @rpc.list_(rpc.API)
    def action_list(self, context: RequestContext, instance_uuid: str) -> list[InstanceAction]:
        """Newest first, without their events; also of a deleted instance."""

    @rpc.read(rpc.API, rpc.MANAGE)
    def action_get(self, context: RequestContext, instance_uuid: str, request_id: str) -> InstanceAction:
        """One action with its events."""

    @rpc.list_(rpc.API, since="1.1")
    def migration_list(
        self, context: RequestContext, filters: MigrationFilters, limit: int | None, marker: str | None
    ) -> list[ServerMigration]:
        """Moves of all servers, newest first."""

    @rpc.list_(rpc.API, since="1.1")
    def migrations_in_progress(self, context: RequestContext, instance_uuid: str) -> list[ServerMigration]:
        """Live migrations of a server that are going on."""

    @rpc.read(rpc.API, since="1.1")
    def migration_get(self, context: RequestContext, instance_uuid: str, migration_id: int) -> ServerMigration:
        """Of this server, of any kind and status; else `MigrationNotFound`."""

    @rpc.change(rpc.API, since="1.2")
    def live_migration_abort(
        self, context: RequestContext, instance_uuid: str, migration_id: int, early: bool = False
    ) -> None:
        """Have one that goes on end; ``early``: also one that has not begun to move the guest. Raises a 4xx."""

    @rpc.change(rpc.API, since="1.2")
    def live_migration_force_complete(self, context: RequestContext, instance_uuid: str, migration_id: int) -> None:
        """Have one that goes on end soon, whatever the guest feels of it. Raises a 4xx."""

    # --- catalogue, for the API

    @rpc.list_(rpc.API)
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

    @rpc.read(rpc.API)
    def flavor_get(self, context: RequestContext, flavor_id: str) -> Flavor: ...

    @rpc.change(rpc.API)
    def flavor_create(self, context: RequestContext, flavor: Flavor) -> Flavor:
        """An empty ``flavorid`` is filled with a new uuid."""

    @rpc.change(rpc.API)
    def flavor_update(self, context: RequestContext, flavor_id: str, description: str | None) -> Flavor: ...

    @rpc.delete(rpc.API)
    def flavor_delete(self, context: RequestContext, flavor_id: str) -> None: ...

    @rpc.change(rpc.API)
    def flavor_extra_specs_update(
        self, context: RequestContext, flavor_id: str, extra_specs: dict[str, str]
    ) -> dict[str, str]:
        """Add or change these keys; returns all of them."""

    @rpc.delete(rpc.API)
    def flavor_extra_spec_delete(self, context: RequestContext, flavor_id: str, key: str) -> None: ...

    @rpc.list_(rpc.API)
    def flavor_access_list(self, context: RequestContext, flavor_id: str) -> list[str]:
        """Ids of the projects that may use a private flavor, here and below; `FlavorAccessNotKept` for a public one."""

    @rpc.change(rpc.API)
    def flavor_access_add(
        self, context: RequestContext, flavor_id: str, project_id: str, even_public: bool
    ) -> list[str]:
        """`FlavorAccessExists`; `FlavorIsPublic` unless ``even_public``."""

    @rpc.change(rpc.API)
    def flavor_access_remove(self, context: RequestContext, flavor_id: str, project_id: str) -> list[str]: ...

    @rpc.list_(rpc.API)
    def keypair_list(
        self, context: RequestContext, user_id: str, limit: int | None, marker: str | None
    ) -> list[KeyPair]: ...

    @rpc.read(rpc.API)
    def keypair_get(self, context: RequestContext, user_id: str, name: str) -> KeyPair: ...

    @rpc.change(rpc.API)
    def keypair_create(self, context: RequestContext, keypair: KeyPair) -> KeyPair:
        """Store a public key (the API generates and fingerprints; a private key never comes here)."""

    @rpc.delete(rpc.API)
    def keypair_delete(self, context: RequestContext, user_id: str, name: str) -> None: ...

    @rpc.list_(rpc.API)
    def image_list(
        self, context: RequestContext, name: str | None, status: str | None, limit: int | None, marker: str | None
    ) -> list[Image]:
        """Images of the built-in backend that the context's project may see."""

    @rpc.read(rpc.API, rpc.COMPUTE, priority=Priority.CHANGE)
    def image_get(self, context: RequestContext, image_id: str) -> Image: ...

    @rpc.change(rpc.API)
    def image_create(self, context: RequestContext, image: Image) -> Image:
        """Write the image's row as it is given; raises `ImageExists` when its id is taken."""

    @rpc.report(rpc.API, rpc.COMPUTE)
    def image_update(
        self, context: RequestContext, image_id: str, changes: dict[str, Any], expected_status: str | None
    ) -> Image:
        """Set the fields in ``changes``; its ``properties`` are merged in, those that are None go away. Only the owner
        or an admin may; with ``expected_status`` only an image in that status is changed (else
        `ImageStatusConflict`)."""

    @rpc.delete(rpc.API)
    def image_delete(self, context: RequestContext, image_id: str) -> None: ...

    @rpc.list_(rpc.API)
    def network_list(self, context: RequestContext) -> list[Network]:
        """Networks of the built-in backend that the context's project may use."""

    @rpc.list_(rpc.API, since="1.8")
    def network_record_list(self, context: RequestContext) -> list[NetworkRecord]:
        """As `network_list`, with those that have no subnet, and all that is known of them."""

    @rpc.change(rpc.API, since="1.8")
    def network_create(self, context: RequestContext, network: NetworkRecord) -> NetworkRecord:
        """Without a subnet, under an id that the API chose. ``project_id`` None: for all projects."""

    @rpc.change(rpc.API, since="1.8")
    def network_update(self, context: RequestContext, network_id: str, changes: dict[str, Any]) -> NetworkRecord:
        """Set ``name``, ``description``, ``subnet_name``, ``subnet_description``."""

    @rpc.delete(rpc.API, since="1.8")
    def network_delete(self, context: RequestContext, network_id: str) -> None:
        """`NetworkInUse` while a port is on it."""

    @rpc.change(rpc.API, since="1.8")
    def subnet_create(self, context: RequestContext, subnet: NetworkRecord) -> NetworkRecord:
        """Give the network ``subnet.id`` its addresses. Raises a 400 for those that it may not have."""

    @rpc.delete(rpc.API, since="1.8")
    def subnet_delete(self, context: RequestContext, network_id: str) -> None:
        """`NetworkInUse` while a port is on it."""

    @rpc.list_(rpc.API, since="1.8")
    def port_list(self, context: RequestContext, filters: dict[str, list[str]]) -> list[Port]:
        """The project's, everybody's for an admin. ``filters``: ``id``, ``network_id``, ``device_id``, ``mac_address``,
        ``name``, ``project_id``, ``address``, ``host``, each with the values that it may have."""

    @rpc.read(rpc.API, since="1.8")
    def port_get(self, context: RequestContext, port_id: str) -> Port:
        """`NoSuchPort` for another project's, here and below."""

    @rpc.change(rpc.API, since="1.8")
    def port_create(self, context: RequestContext, port: Port) -> Port:
        """Under an id that the API chose; ``address`` and ``mac_address`` are chosen unless they are said."""

    @rpc.change(rpc.API, since="1.8")
    def port_update(self, context: RequestContext, port_id: str, changes: dict[str, Any]) -> Port:
        """Set ``name``, ``description``, ``security_groups``, or ``address`` while no server has it."""

    @rpc.delete(rpc.API, since="1.8")
    def port_delete(self, context: RequestContext, port_id: str) -> None:
        """`PortInUse` while a server has it."""

    @rpc.read(rpc.API, since="1.8")
    def network_limits_get(self, context: RequestContext, project_id: str) -> ProjectLimits:
        """What the project may have of networks and what belongs to them, and has; in Neutron's words."""

    @rpc.change(rpc.API, since="1.8")
    def network_limits_update(
        self, context: RequestContext, project_id: str, limits: dict[str, int | None]
    ) -> ProjectLimits:
        """Set these limits, -1: none, None: the default again. Answers as `network_limits_get`."""

    @rpc.list_(rpc.API, since="1.5")
    def security_group_list(
        self, context: RequestContext, all_projects: bool, limit: int | None, offset: int
    ) -> list[SecurityGroup]:
        """With their rules, by name. ``all_projects``: also others', for an admin."""

    @rpc.read(rpc.API, since="1.5")
    def security_group_get(self, context: RequestContext, group_id: str) -> SecurityGroup:
        """By its id, or by its name in the context's project; `SecurityGroupNotFound` for another project's."""

    @rpc.change(rpc.API, since="1.5")
    def security_group_create(self, context: RequestContext, name: str, description: str | None) -> SecurityGroup: ...

    @rpc.change(rpc.API, since="1.5")
    def security_group_update(
        self, context: RequestContext, group_id: str, name: str | None, description: str | None
    ) -> SecurityGroup:
        """What is None stays."""

    @rpc.delete(rpc.API, since="1.5")
    def security_group_delete(self, context: RequestContext, group_id: str) -> None:
        """`SecurityGroupInUse` while a server is in it, `SecurityGroupFixed` for the default one."""

    @rpc.change(rpc.API, since="1.5")
    def security_group_rule_create(self, context: RequestContext, rule: SecurityGroupRule) -> SecurityGroupRule:
        """``rule.id`` does not count. Raises `SecurityGroupRuleInvalid`, `SecurityGroupRuleExists`."""

    @rpc.delete(rpc.API, since="1.5")
    def security_group_rule_delete(self, context: RequestContext, rule_id: str) -> None: ...

    @rpc.read(rpc.API, since="1.5")
    def instance_security_groups(self, context: RequestContext, instance_uuid: str) -> list[SecurityGroup]:
        """None for a server without interfaces."""

    @rpc.change(rpc.API, since="1.5")
    def instance_security_group_add(self, context: RequestContext, instance_uuid: str, name: str) -> None:
        """``name``: or id. Its host filters by it as soon as it has heard of that."""

    @rpc.change(rpc.API, since="1.5")
    def instance_security_group_remove(self, context: RequestContext, instance_uuid: str, name: str) -> None: ...

    @rpc.list_(rpc.API, since="1.5")
    def floating_ip_pool_list(self, context: RequestContext) -> list[FloatingIpPool]: ...

    @rpc.list_(rpc.API, since="1.5")
    def floating_ip_list(
        self, context: RequestContext, all_projects: Annotated[bool, rpc.Since("1.8")] = False
    ) -> list[FloatingIp]:
        """The project's own. ``all_projects``: also others', for an admin."""

    @rpc.read(rpc.API, since="1.5")
    def floating_ip_get(self, context: RequestContext, reference: str) -> FloatingIp:
        """By its id or its address; `FloatingIpNotFound` for another project's."""

    @rpc.change(rpc.API, since="1.5")
    def floating_ip_create(
        self,
        context: RequestContext,
        pool: str | None,
        request: Annotated[FloatingIp | None, rpc.Since("1.8"), rpc.WireName("wanted")] = None,
    ) -> FloatingIp:
        """``pool``: its name or id, None for the first. ``wanted``: its ``pool_id``, and what is said of ``address``,
        ``description``, ``project_id``, ``port_id`` and ``fixed_address``."""

    @rpc.change(rpc.API, since="1.8")
    def floating_ip_update(self, context: RequestContext, reference: str, changes: dict[str, Any]) -> FloatingIp:
        """Set ``description``, or where it leads: ``port_id`` (None: nowhere), with ``fixed_address`` if it is said."""

    @rpc.delete(rpc.API, since="1.5")
    def floating_ip_delete(self, context: RequestContext, reference: str) -> None: ...

    @rpc.change(rpc.API, since="1.5")
    def floating_ip_associate(
        self, context: RequestContext, instance_uuid: str, address: str, fixed_address: str | None
    ) -> None:
        """Lead it to this interface of the instance, None: to its first one."""

    @rpc.change(rpc.API, since="1.5")
    def floating_ip_disassociate(self, context: RequestContext, instance_uuid: str, address: str) -> None: ...

    @rpc.read(rpc.API)
    def limits_get(self, context: RequestContext, project_id: str, user_id: str | None = None) -> ProjectLimits:
        """What the project may use and uses, or one user in it."""

    @rpc.read(rpc.API)
    def quota_defaults_get(self, context: RequestContext) -> ProjectLimits:
        """What a project without limits of its own may use; no use is counted."""

    @rpc.change(rpc.API)
    def quota_defaults_update(self, context: RequestContext, limits: dict[str, int]) -> ProjectLimits:
        """Set these defaults in place of ``[quota]``; returns all."""

    @rpc.change(rpc.API)
    def quota_update(
        self,
        context: RequestContext,
        project_id: str,
        limits: dict[str, int],
        force: bool,
        user_id: str | None = None,
    ) -> ProjectLimits:
        """Set limits (-1: none) of a project, or of one user in it; returns all. Unless ``force``, `QuotaBelowUse` for
        one below what is used, and `QuotaAboveProject` for a user's."""

    @rpc.delete(rpc.API)
    def quota_delete(self, context: RequestContext, project_id: str, user_id: str | None = None) -> None:
        """The project and its users have no limits of their own any more, or (``user_id``) only this user."""

    @rpc.list_(rpc.API)
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

    # --- volumes of the built-in backend, for the API

    @rpc.list_(rpc.API, since="1.6")
    def volume_list(
        self,
        context: RequestContext,
        filters: VolumeFilters,
        limit: int | None,
        marker: str | None,
        sort_keys: list[str],
        sort_dirs: list[str],
        offset: int,
    ) -> list[Volume]: ...

    @rpc.read(rpc.API, since="1.6")
    def volume_get(self, context: RequestContext, volume_id: str) -> Volume:
        """Of the context's project, or any for an admin; else `VolumeNotFound`, here and below."""

    @rpc.change(rpc.API, since="1.6")
    def volume_create(self, context: RequestContext, volume: Volume, images: dict[str, Image]) -> Volume:
        """Accept it: a host makes its file. ``volume``: what was asked for, under an id that the API chose for this
        request; its ``image`` says which. ``images``: by id, as the API describes them. Raises a 4xx."""

    @rpc.change(rpc.API, since="1.6")
    def volume_update(self, context: RequestContext, volume_id: str, changes: dict[str, Any]) -> Volume:
        """Set ``name``, ``description``, ``metadata`` (all of it), ``bootable`` or, by an admin's word, ``status``."""

    @rpc.delete(rpc.API, since="1.6")
    def volume_delete(self, context: RequestContext, volume_id: str) -> None:
        """Accept it: its row goes with its file."""

    @rpc.change(rpc.API, since="1.6")
    def volume_extend(self, context: RequestContext, volume_id: str, size: int, attached: bool) -> None:
        """``size``: GB; ``attached``: also one that a server has."""

    @rpc.list_(rpc.API, since="1.6")
    def snapshot_list(
        self,
        context: RequestContext,
        filters: VolumeFilters,
        limit: int | None,
        marker: str | None,
        sort_keys: list[str],
        sort_dirs: list[str],
        offset: int,
    ) -> list[VolumeSnapshot]: ...

    @rpc.read(rpc.API, since="1.6")
    def snapshot_get(self, context: RequestContext, snapshot_id: str) -> VolumeSnapshot: ...

    @rpc.change(rpc.API, since="1.6")
    def snapshot_create(
        self, context: RequestContext, snapshot: VolumeSnapshot, force: Annotated[bool, rpc.Since("1.11")] = False
    ) -> VolumeSnapshot:
        """``force``: also of a volume that a server has."""
        ...

    @rpc.change(rpc.API, since="1.6")
    def snapshot_update(self, context: RequestContext, snapshot_id: str, changes: dict[str, Any]) -> VolumeSnapshot:
        """Set ``name``, ``description``, ``metadata`` or, by an admin's word, ``status``."""

    @rpc.delete(rpc.API, since="1.6")
    def snapshot_delete(self, context: RequestContext, snapshot_id: str) -> None: ...

    @rpc.read(rpc.API, since="1.6")
    def volume_usage(self, context: RequestContext, project_id: str) -> VolumeUse: ...

    @rpc.change(rpc.API, since="1.6")
    def attachment_update(
        self, context: RequestContext, instance_uuid: str, volume_id: str, delete_on_termination: bool
    ) -> None:
        """Whether the volume is deleted with the server; `VolumeBDMNotFound` if that does not have it."""

    # --- volumes of Cinder's

    @rpc.change(rpc.API, since="1.10", wire_name="volume_made")
    def volume_created(
        self, context: RequestContext, instance_uuid: str, device_uuid: str, volume_id: str | None, error: str | None
    ) -> bool:
        """Cinder has begun to make the volume of a block device, or (``error``) will not. False: it is not wanted any
        more."""

    @rpc.change(rpc.API, since="1.10")
    def volume_extended(self, context: RequestContext, instance_uuid: str, volume_id: str) -> None:
        """Cinder has made it larger: the guest is told. `VolumeBDMNotFound` if that does not have it."""

    # --- hosts, for the API

    @rpc.list_(rpc.API)
    def availability_zone_list(self, context: RequestContext) -> list[AvailabilityZone]:
        """All zones, the control plane's ``internal`` included, with their hosts and services."""

    @rpc.list_(rpc.API, rpc.MANAGE)
    def service_list(self, context: RequestContext, host: str | None, binary: str | None) -> list[Service]: ...

    @rpc.change(rpc.API, rpc.MANAGE)
    def service_update(self, context: RequestContext, service_id: str, changes: dict[str, Any]) -> Service:
        """``service_id``: uuid or numeric id. Changes: ``disabled``, ``disabled_reason``, ``forced_down``."""

    @rpc.delete(rpc.API)
    def service_delete(self, context: RequestContext, service_id: str) -> None: ...

    @rpc.change(rpc.MANAGE, since="1.3")
    def host_retire(self, context: RequestContext, host: str, with_instances: bool) -> Retirement:
        """A compute host that is forced down is gone for good: what it holds is given back. While servers are on it,
        nothing is changed, unless they are lost ``with_instances``. `HostNotRetirable` before it is down."""

    @rpc.list_(rpc.API)
    def compute_node_list(
        self, context: RequestContext, hostname_pattern: str | None, limit: int | None, marker: str | None
    ) -> list[ComputeNode]:
        """``hostname_pattern``: substring of the node's name; ``marker``: uuid or numeric id."""

    @rpc.read(rpc.API)
    def compute_node_get(self, context: RequestContext, node_id: str) -> ComputeNode:
        """``node_id``: uuid or numeric id."""

    # --- aggregates and server groups, for the API

    @rpc.list_(rpc.API)
    def aggregate_list(self, context: RequestContext) -> list[Aggregate]: ...

    @rpc.read(rpc.API)
    def aggregate_get(self, context: RequestContext, aggregate_id: str) -> Aggregate:
        """``aggregate_id``, here and below: number, uuid or name; else `AggregateNotFound`."""

    @rpc.change(rpc.API)
    def aggregate_create(self, context: RequestContext, name: str, availability_zone: str | None) -> Aggregate: ...

    @rpc.change(rpc.API)
    def aggregate_update(self, context: RequestContext, aggregate_id: str, changes: dict[str, str | None]) -> Aggregate:
        """Change ``name``, ``availability_zone`` (None: no zone)."""

    @rpc.change(rpc.API)
    def aggregate_set_metadata(
        self, context: RequestContext, aggregate_id: str, metadata: dict[str, str | None]
    ) -> Aggregate:
        """Add or change these keys; a value of None removes its key."""

    @rpc.delete(rpc.API)
    def aggregate_delete(self, context: RequestContext, aggregate_id: str) -> None:
        """`InvalidAggregateAction` while it has hosts."""

    @rpc.change(rpc.API)
    def aggregate_add_host(self, context: RequestContext, aggregate_id: str, host: str) -> Aggregate: ...

    @rpc.change(rpc.API)
    def aggregate_remove_host(self, context: RequestContext, aggregate_id: str, host: str) -> Aggregate: ...

    @rpc.change(rpc.API)
    def aggregate_cache_images(
        self, context: RequestContext, aggregate_id: str, image_ids: list[str], described: dict[str, Image]
    ) -> None:
        """Have the aggregate's hosts fetch these images; returns when they were told. ``described``: those that are not
        in the database, by id. `ImageUnavailable` for one that the context's project may not see or that has no
        data."""

    @rpc.list_(rpc.API)
    def server_group_list(
        self, context: RequestContext, all_projects: bool, limit: int | None, offset: int
    ) -> list[ServerGroup]:
        """The project's; ``all_projects`` counts for admins."""

    @rpc.read(rpc.API)
    def server_group_get(self, context: RequestContext, group_id: str) -> ServerGroup: ...

    @rpc.change(rpc.API)
    def server_group_create(self, context: RequestContext, group: ServerGroup) -> ServerGroup:
        """``name``, ``policy`` and ``rules`` of ``group``, for the context's project; counts against its quota."""

    @rpc.delete(rpc.API)
    def server_group_delete(self, context: RequestContext, group_id: str) -> None: ...

    # --- for every daemon

    @rpc.report(rpc.CONDUCTOR, rpc.SCHEDULER, kind=rpc.CAST, own="host", replay_safe=True)
    def report_service(self, context: RequestContext, host: str, binary: str, topic: str, version: str) -> None:
        """Heartbeat of a daemon that is not a compute host."""

    # --- for the scheduler

    @rpc.report(rpc.SCHEDULER, replay_safe=True)
    def host_states_get(
        self, context: RequestContext, after: int = 0, limit: int | None = None, timeout: rpc.Timeout = None
    ) -> list[HostState]:
        """Every host as it is now, or a page: those with an id above ``after``, in its order, at most ``limit``; the
        scheduler's resync. ``timeout`` in seconds, to ask again sooner while the conductor may be starting."""

    # --- for compute

    @rpc.report(rpc.COMPUTE, own="report.host")
    def register_host(self, context: RequestContext, report: HostReport) -> int:
        """First report after start: services and nodes have their rows, and what is open on this host is due. Returns
        the host's epoch, which its heartbeats tell; `HostForcedDown` while it may not serve."""

    @rpc.report(rpc.COMPUTE, own="host", since="1.5", replay_safe=True)
    def port_filters_get(self, context: RequestContext, host: str, instance_uuids: list[str]) -> PortFilters:
        """What the security groups of these say, as of now: of all whose interfaces ``host`` has. Those that it has
        nothing to do with are in no group. And the floating addresses of those that are its own."""

    @rpc.report(rpc.COMPUTE, own="report.host", replay_safe=True)
    def report_state(self, context: RequestContext, report: HostReport, timeout: rpc.Timeout = None) -> bool | None:
        """Heartbeat: renews the host's lease and the leases of the work it names. Raises `HostNotAdmitted` when the
        host is, or has been, forced down since it registered. ``timeout``: seconds to wait for that.

        Answers a report that asks with its ``domains`` (since 1.18) whether they are what the host's rows say, and
        nothing is being done to any of it: then `reconcile_domains` would have nothing to change, nor
        `domains_expected` anything to look for. No: it may still be so. None, where it was not asked."""

    @rpc.report(rpc.COMPUTE, own="host", since="1.16")
    def interfaces_bind(self, context: RequestContext, instance_uuid: str, host: str) -> BuildNetworks:
        """Another service is to connect the instance's interfaces at this host from now on; how. Repeated, it answers
        the same. Raises `StaleReport` for an instance that is nothing of the host's."""

    @rpc.report(rpc.COMPUTE, own="host", since="1.16", replay_safe=True)
    def interfaces_active(
        self, context: RequestContext, instance_uuid: str, host: str, refresh: Annotated[bool, rpc.WireName("ask")]
    ) -> bool:
        """Whether another service has connected all of them, as far as it has said so; ``ask``: it is asked."""

    @rpc.report(rpc.API, since="1.16")
    def interfaces_event(self, context: RequestContext, instance_uuid: str, event: str, port_id: str | None) -> None:
        """What another service says has happened to a port (``network-…``, Nova's words); of None to any."""

    @rpc.report(rpc.COMPUTE, own="host")
    def start_build(self, context: RequestContext, instance_uuid: str, host: str, generation: int) -> BuildNetworks:
        """The host begins a build whose order does not say the interfaces: instance to spawning, and they are
        allocated. Raises `StaleReport` or `InstanceGone` when the build is not wanted (any more); `NoMoreFixedIps` and
        other 4xx abort it."""

    @rpc.report(rpc.COMPUTE, own="result.host", replay_safe=True)
    def finish_build(self, context: RequestContext, result: BuildResult) -> None:
        """Report a build's outcome. `StaleReport` or `InstanceGone` after BUILT: destroy what was built."""

    @rpc.report(rpc.COMPUTE, own="host")
    def finish_action(
        self,
        context: RequestContext,
        host: str,
        action_id: int,
        power_state: int | None,
        error: str | None,
        details: str,
        sequence: Annotated[int, rpc.Since("1.1"), rpc.WireName("position")] = 0,
        answer: Annotated[dict[str, Any] | None, rpc.Since("1.1")] = None,
        request_id: Annotated[str | None, rpc.Since("1.4", optional=True)] = None,
    ) -> None:
        """Report an order as done (``error`` None) or failed. ``position`` and ``request_id``: of the ticket.
        ``answer``: what later steps need of it, in their tickets' payload under ``answers`` and the step's name.
        Reporting twice is harmless."""

    @rpc.report(
        rpc.COMPUTE, own="host", since="1.14", replay_safe=True, fallback=rpc.one_by_one("results", _finish_build)
    )
    def finish_builds(self, context: RequestContext, host: str, results: list[BuildResult]) -> list[bool]:
        """`finish_build` for each of these, in one transaction. False, for one that is not wanted (any more)."""

    @rpc.report(rpc.COMPUTE, own="host", since="1.14", fallback=rpc.one_by_one("reports", _finish_action))
    def finish_actions(self, context: RequestContext, host: str, reports: list[ActionReport]) -> None:
        """`finish_action` for each of these, in one transaction."""

    @rpc.report(rpc.COMPUTE, own="host", since="1.1", replay_safe=True, wire_name="order_is_wanted")
    def is_command_current(self, context: RequestContext, host: str, action_id: int, sequence: Sequence) -> bool:
        """Whether the conductor still waits for this order: what a host asks before it makes a guest of another host's
        disks."""

    @rpc.report(
        rpc.COMPUTE, own="host", since="1.4", replay_safe=True, fallback=rpc.result(False), wire_name="order_is_open"
    )
    def is_command_open(
        self,
        context: RequestContext,
        host: str,
        action_id: int,
        sequence: Annotated[int | None, rpc.WireName("position")],
        request_id: str,
    ) -> bool:
        """Whether the conductor waits for just this order, although the host has seen one of a later action: a database
        that lost its last commits gives ids again. ``position`` None: whichever of its action."""

    @rpc.report(rpc.COMPUTE, own="host", since="1.2")
    def live_migration_progress(
        self,
        context: RequestContext,
        host: str,
        action_id: int,
        sequence: Sequence,
        progress: MigrationProgress,
    ) -> MigrationControl:
        """How far a live migration away from ``host`` is; answers what is to become of it."""

    @rpc.report(rpc.COMPUTE, own="host", since="1.1", fallback=rpc.result(True))
    def report_task(self, context: RequestContext, host: str, action_id: int, task_state: str) -> bool:
        """The host has come to this task state of the step that it was ordered. False: the action is over, and what it
        makes is not wanted."""

    @rpc.report(rpc.COMPUTE, own="host", since="1.6")
    def finish_volume_work(self, context: RequestContext, host: str, task_id: int, error: str | None) -> None:
        """Report work on a volume's file as done (``error`` None) or failed. Reporting twice is harmless."""

    @rpc.report(rpc.COMPUTE, own="host", since="1.10")
    def volume_connect(
        self, context: RequestContext, host: str, instance_uuid: str, device_uuid: str, connector: dict[str, Any]
    ) -> VolumeConnection:
        """Have Cinder connect the volume of a block device to a host that the instance is on or comes to.
        ``connector``: what Cinder has to know of the host. Asked again, it answers the same. `VolumeNotReady` while
        Cinder makes the volume, `VolumeServiceUnavailable`; `VolumeNotCreated`, `InvalidVolume` for good."""

    @rpc.report(rpc.COMPUTE, own="host")
    def reconcile_domains(
        self, context: RequestContext, host: str, domains: list[DomainReport], leftovers: list[str]
    ) -> list[DomainVerdict]:
        """What to do with each of a host's domains, and (DESTROY) which leftovers without a domain to remove. Uuids
        that are left out of the answer are not to be touched."""

    @rpc.report(rpc.COMPUTE, own="host", since="1.4", replay_safe=True)
    def domains_expected(self, context: RequestContext, host: str) -> list[ExpectedDomain]:
        """The domains that the host has to have now, unless something is being done to them: of what is in none, the
        host makes sure once more, and reports it."""

    @rpc.report(rpc.COMPUTE, own="host", since="1.4")
    def domain_lost(self, context: RequestContext, host: str, expected: ExpectedDomain) -> None:
        """A domain that was `domains_expected` is not there, and nothing that is being done there makes it. If that is
        still what the instance is about, it is in ERROR. Reporting twice is harmless."""
