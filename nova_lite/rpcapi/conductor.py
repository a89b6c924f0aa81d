"""RPC methods of the conductor, on topic ``conductor``. Only the conductor has access to the database.

The methods are grouped by their callers. Each method runs in one transaction. After `MessagingUnavailable` or
`DatabaseUnavailable` (both 503) the result is unknown, or nothing was done. A retry with the same request id is safe.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from nova_lite import operations, rpc
from nova_lite.base.context import RequestContext
from nova_lite.objects import (
    ActionCommand,
    ActionReport,
    Aggregate,
    AuditEvent,
    AuditQuery,
    AvailabilityZone,
    BackupPolicy,
    BackupQuery,
    BalancePlan,
    BatchedCreate,
    BatchedDelete,
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
    GuestDevices,
    HostedInstance,
    HostLoad,
    HostReport,
    HostState,
    HostVersion,
    Image,
    ImageMember,
    ImageQuery,
    Instance,
    InstanceAction,
    InstanceFilters,
    InstanceQuery,
    InstanceUsage,
    JoinRequest,
    JoinState,
    KeyPair,
    Lease,
    LeaseRequest,
    ListQuery,
    LoadRequest,
    MetadefNamespace,
    MigrationControl,
    MigrationFilters,
    MigrationProgress,
    Network,
    NetworkObject,
    NetworkRecord,
    NetworkResources,
    PendingJoin,
    PolicyStatus,
    Port,
    PortFilters,
    ProjectLimits,
    ReportNumber,
    ResourceAllocation,
    ResourceProvider,
    Retirement,
    Router,
    SealedIdentityRecords,
    SecurityGroup,
    SecurityGroupRule,
    ServerBackup,
    ServerGroup,
    ServerMigration,
    Service,
    SettledRecords,
    StorageReport,
    TrustList,
    Volume,
    VolumeAttachment,
    VolumeBackup,
    VolumeConnection,
    VolumeEncryption,
    VolumeFilters,
    VolumeQosSpecs,
    VolumeSnapshot,
    VolumeTransfer,
    VolumeType,
    VolumeUse,
    VolumeVerb,
)
from nova_lite.rpc.admission import Priority


def _action_priority(arguments: Mapping[str, Any]) -> Priority:
    """Return the priority of `ConductorRPC.accept_action`: a deleted server frees room for other requests."""
    return Priority.DELETE if arguments.get("action") == operations.DELETE.kind else Priority.CHANGE


T = TypeVar("T")

#: Newest version of the conductor's methods.
VERSION = "2.0"


@rpc.service("conductor", version=VERSION)
class ConductorTexts(Protocol):
    """Reads of `ConductorRPC` for a caller that wants the JSON texts of the objects instead of the objects."""

    @rpc.read(rpc.API)
    def instance_get(self, context: RequestContext, instance_uuid: str) -> msgspec.Raw: ...

    @rpc.read(rpc.API)
    def instances_get(self, context: RequestContext, queries: list[InstanceQuery]) -> list[msgspec.Raw]: ...

    @rpc.list_(rpc.API)
    def instance_list(
        self,
        context: RequestContext,
        filters: InstanceFilters,
        limit: int | None,
        marker: str | None,
        sort_keys: list[str],
        sort_dirs: list[str],
    ) -> list[msgspec.Raw]: ...

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
        name: str | None = None,
    ) -> list[msgspec.Raw]: ...

    @rpc.read(rpc.API)
    def flavor_get(self, context: RequestContext, flavor_id: str) -> msgspec.Raw: ...


@rpc.service("conductor", version=VERSION)
class ConductorRPC(Protocol):
    # --- servers, for the API

    @rpc.change(rpc.API)
    def create_instances(self, context: RequestContext, request: CreateRequest) -> CreateResult:
        """Check the request against flavor, image, key, networks and quota, then write the instances and their create
        actions.
        """

    @rpc.change(rpc.API)
    def create_instances_batch(
        self, context: RequestContext, creates: list[BatchedCreate]
    ) -> list[CreateResult | None]:
        """Accept several `create_instances` requests in one transaction.

        Return None for a request that its caller has to send alone: it is refused, or needs a network service first.
        """

    @rpc.change(rpc.API, rpc.CONDUCTOR, rpc.MANAGE, kind=rpc.CAST, replay_safe=True)
    def build_instances(self, context: RequestContext, instance_uuids: list[str]) -> None:
        """Schedule and send the builds of these instances now. A wake-up: the reconciler would do it a little later."""

    @rpc.change(rpc.API, rpc.MANAGE, priority=_action_priority)
    def accept_action(
        self, context: RequestContext, instance_uuid: str, action: str, payload: dict[str, Any]
    ) -> ActionCommand:
        """Write the action's row and the task state, if the instance's state allows the action (else 409).

        The caller then sends the returned command to its host.
        """

    @rpc.delete(rpc.API)
    def delete_instances_batch(
        self, context: RequestContext, deletes: list[BatchedDelete]
    ) -> list[ActionCommand | None]:
        """Accept several deletes in one transaction, as `accept_action` accepts each.

        Return None for a delete that its caller has to send alone: it is refused.
        """

    @rpc.read(rpc.API, rpc.MANAGE)
    def instance_get(self, context: RequestContext, instance_uuid: str) -> Instance:
        """Return an instance of the context's project, for an admin of any project. Else raise `InstanceNotFound`."""

    @rpc.read(rpc.API)
    def instances_get(self, context: RequestContext, queries: list[InstanceQuery]) -> list[Instance]:
        """Return the existing instances that their queries may see, each once. Serves several requests at once."""

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

    @rpc.list_(rpc.API)
    def hosted_instance_list(self, context: RequestContext, hosts: list[str]) -> list[HostedInstance]:
        """Return the existing instances of these hosts, oldest first."""

    @rpc.change(rpc.API)
    def instance_update(self, context: RequestContext, instance_uuid: str, changes: dict[str, Any]) -> Instance:
        """Change ``display_name``, ``display_description``, ``hostname``, ``access_ip_v4``/``_v6`` or
        ``auto_disk_config``.
        """

    @rpc.change(rpc.API)
    def instance_metadata_change(
        self, context: RequestContext, instance_uuid: str, metadata: dict[str, str], replace: bool
    ) -> dict[str, str]:
        """Add or change these items, or (``replace``) replace all items by them. Return all items."""

    @rpc.delete(rpc.API)
    def instance_metadata_delete(self, context: RequestContext, instance_uuid: str, key: str) -> None: ...

    @rpc.change(rpc.API)
    def instance_tags_replace(self, context: RequestContext, instance_uuid: str, tags: list[str]) -> list[str]:
        """Replace all tags by these. Return them, sorted."""

    @rpc.change(rpc.API)
    def instance_tag_add(self, context: RequestContext, instance_uuid: str, tag: str) -> bool:
        """Add a tag. Return False if the instance has it already."""

    @rpc.delete(rpc.API)
    def instance_tag_delete(self, context: RequestContext, instance_uuid: str, tag: str) -> None: ...

    @rpc.change(rpc.API)
    def instance_password_clear(self, context: RequestContext, instance_uuid: str) -> None:
        """Delete the password that the guest posted."""

    @rpc.read(rpc.API, from_guests=True)
    def instances_at_address(self, context: RequestContext, address: str) -> list[Instance]:
        """Return the instances with an interface of this address, of all projects: one for each network that has the
        address.

        For the metadata service.
        """

    @rpc.change(rpc.API, priority=Priority.READ, from_guests=True)
    def instance_password_set(self, context: RequestContext, instance_uuid: str, password: str) -> None:
        """Store the password that the guest posted. Raises `PasswordAlreadySet` if there is one."""

    # --- servers, for the metadata service of a compute host

    @rpc.read(rpc.METADATA, own="host", from_guests=True)
    def metadata_instances(
        self, context: RequestContext, host: str, address: str | None, instance_uuid: str | None
    ) -> list[Instance]:
        """Return the instances at ``host`` with an interface of this address, or with this uuid: for each network one.

        An instance is at its host, and at each host where it has a claim, such as the destination of a move.
        """

    @rpc.change(rpc.METADATA, own="host", priority=Priority.READ, from_guests=True)
    def metadata_password_set(self, context: RequestContext, host: str, instance_uuid: str, password: str) -> None:
        """Store the password that a guest of ``host`` posted, as `instance_password_set` does."""

    # --- consoles, for the API and the console proxies

    @rpc.change(rpc.API)
    def console_token_create(
        self, context: RequestContext, instance_uuid: str, compute_host: str, token_hash: str, console: Console
    ) -> None:
        """Store the target of the token with this hash (`nova_lite.console.tokens`), as ``compute_host`` reported it.

        Raises `InstanceNotReady` if the instance no longer exists.
        """

    @rpc.read(rpc.API)
    def console_token_get(self, context: RequestContext, token_hash: str) -> ConsoleTarget:
        """Return the target of a token, of any project. Raises `ConsoleTokenNotFound` for a token that is void."""

    @rpc.report(rpc.CONSOLE, replay_safe=True)
    def console_token_redeem(
        self,
        context: RequestContext,
        token_hash: str,
        console_types: list[str],
        page_scheme: str | None = None,
    ) -> ConsoleTarget:
        """Return the target of a token, and make the token void. For the console proxies.

        Raises `ConsoleTokenNotFound` for a console of another type, too. Raises `ConsolePageRefused` for a page whose
        URL has another scheme than the console's. Both leave the token valid.
        """

    @rpc.change(rpc.API)
    def instance_lock(self, context: RequestContext, instance_uuid: str, reason: str | None) -> None: ...

    @rpc.change(rpc.API)
    def instance_unlock(self, context: RequestContext, instance_uuid: str, may_override: bool) -> None:
        """Unlock the instance. ``may_override``: also where the other side, owner or admin, holds the lock.

        Else raises `PolicyNotAuthorized` there.
        """

    @rpc.change(rpc.API)
    def instance_reset_state(self, context: RequestContext, instance_uuid: str, vm_state: str) -> None:
        """Set the vm state. Raises `InstanceInvalidState` during an operation that cannot be interrupted."""

    @rpc.list_(rpc.API)
    def action_list(self, context: RequestContext, instance_uuid: str) -> list[InstanceAction]:
        """Return the actions, newest first and without their events; also of a deleted instance."""

    @rpc.read(rpc.API, rpc.MANAGE)
    def action_get(self, context: RequestContext, instance_uuid: str, request_id: str) -> InstanceAction:
        """Return one action with its events."""

    @rpc.list_(rpc.API)
    def migration_list(
        self, context: RequestContext, filters: MigrationFilters, limit: int | None, marker: str | None
    ) -> list[ServerMigration]:
        """Return the moves of all servers, newest first."""

    @rpc.list_(rpc.API)
    def migrations_in_progress(self, context: RequestContext, instance_uuid: str) -> list[ServerMigration]:
        """Return the live migrations of a server that have not ended."""

    @rpc.read(rpc.API)
    def migration_get(self, context: RequestContext, instance_uuid: str, migration_id: int) -> ServerMigration:
        """Return a migration of this server, of any kind and status. Raises `MigrationNotFound`."""

    @rpc.change(rpc.API)
    def live_migration_abort(
        self, context: RequestContext, instance_uuid: str, migration_id: int, early: bool = False
    ) -> None:
        """Abort a live migration. Raises a 4xx.

        ``early``: also a migration that has not begun to move the guest.
        """

    @rpc.change(rpc.API)
    def live_migration_force_complete(self, context: RequestContext, instance_uuid: str, migration_id: int) -> None:
        """Let a live migration complete soon, whatever the guest notices of it. Raises a 4xx."""

    # --- placement, for the API

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
        name: str | None = None,
    ) -> list[Flavor]:
        """Return flavors. ``is_public`` None: public and private ones. ``name``: a regular expression."""

    @rpc.read(rpc.API)
    def flavor_get(self, context: RequestContext, flavor_id: str) -> Flavor: ...

    @rpc.change(rpc.API)
    def flavor_create(self, context: RequestContext, flavor: Flavor) -> Flavor:
        """Create a flavor. An empty ``flavorid`` becomes a new uuid."""

    @rpc.change(rpc.API)
    def flavor_update(self, context: RequestContext, flavor_id: str, description: str | None) -> Flavor: ...

    @rpc.delete(rpc.API)
    def flavor_delete(self, context: RequestContext, flavor_id: str) -> None: ...

    @rpc.change(rpc.API)
    def flavor_extra_specs_update(
        self, context: RequestContext, flavor_id: str, extra_specs: dict[str, str]
    ) -> dict[str, str]:
        """Add or change these keys. Return all of them."""

    @rpc.delete(rpc.API)
    def flavor_extra_spec_delete(self, context: RequestContext, flavor_id: str, key: str) -> None: ...

    @rpc.list_(rpc.API)
    def flavor_access_list(self, context: RequestContext, flavor_id: str) -> list[str]:
        """Return the ids of the projects that may use a private flavor, as the next two methods do.

        Raises `FlavorAccessNotKept` for a public flavor.
        """

    @rpc.change(rpc.API)
    def flavor_access_add(
        self, context: RequestContext, flavor_id: str, project_id: str, even_public: bool
    ) -> list[str]:
        """Let a project use a flavor. Raises `FlavorAccessExists`, and `FlavorIsPublic` unless ``even_public``."""

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
        """Store a public key. The API generates key pairs and fingerprints; the conductor never gets a private key."""

    @rpc.delete(rpc.API)
    def keypair_delete(self, context: RequestContext, user_id: str, name: str) -> None: ...

    @rpc.report(rpc.API, replay_safe=True)
    def audit_record(self, context: RequestContext, events: list[AuditEvent]) -> None:
        """Store events of the audit log, each once. They are batched, and no request waits for this call."""

    @rpc.list_(rpc.API)
    def audit_list(self, context: RequestContext, query: AuditQuery) -> list[AuditEvent]:
        """Return a page of the audit log of all projects, the newest events first. Raises `MarkerNotFound`."""

    @rpc.report(rpc.API, replay_safe=True)
    def identity_read(self, context: RequestContext, known: int, public_key: str) -> SealedIdentityRecords:
        """Return the records of the identity service that changed after version ``known``, sealed to ``public_key``.

        No request can be authenticated without them, so the method has the priority of reports.
        """

    @rpc.change(rpc.API)
    def identity_change(self, context: RequestContext, known: int | None, sealed: str) -> int:
        """Store records of the identity service, and return the new version. ``sealed``: a list of `IdentityRecord`.

        Raises `IdentityChanged` if ``known`` is not the present version. None: the change depends on no others.
        """

    @rpc.list_(rpc.API)
    def image_list(self, context: RequestContext, query: ImageQuery) -> list[Image]:
        """Return the images of the built-in backend that the context's project may see, as far as the query selects
        them. Raises `MarkerNotFound`, or `InvalidSortKey`.
        """

    @rpc.read(rpc.API, rpc.COMPUTE, priority=Priority.CHANGE)
    def image_get(self, context: RequestContext, image_id: str) -> Image: ...

    @rpc.change(rpc.API)
    def image_create(self, context: RequestContext, image: Image) -> Image:
        """Write the image's row as given. Raises `ImageExists` when the id is taken."""

    @rpc.report(rpc.API, rpc.COMPUTE, rpc.CONDUCTOR)
    def image_update(
        self,
        context: RequestContext,
        image_id: str,
        changes: dict[str, Any],
        expected_status: str | None,
        tags: dict[str, bool] | None = None,
    ) -> Image:
        """Set the fields in ``changes``. Properties are merged; a property of None is deleted. ``tags``: those to add
        (true) and to remove, beside which all others stay.

        Only the owner or an admin may do this. With ``expected_status``, an image in another status raises
        `ImageStatusConflict`.
        """

    @rpc.delete(rpc.API)
    def image_delete(self, context: RequestContext, image_id: str) -> None: ...

    @rpc.list_(rpc.API)
    def image_member_list(self, context: RequestContext, image_id: str) -> list[ImageMember]:
        """Return the members of a shared image; a member gets itself alone. Raises `ImageNotFound` or `Forbidden`."""

    @rpc.change(rpc.API)
    def image_member_add(self, context: RequestContext, image_id: str, member_id: str) -> ImageMember:
        """Share an image with another project. Raises a 403, 404, 409 or 413."""

    @rpc.change(rpc.API)
    def image_member_update(self, context: RequestContext, image_id: str, member_id: str, status: str) -> ImageMember:
        """Accept or reject an image, as its member."""

    @rpc.delete(rpc.API)
    def image_member_delete(self, context: RequestContext, image_id: str, member_id: str) -> None: ...

    @rpc.list_(rpc.API)
    def metadef_list(self, context: RequestContext) -> list[MetadefNamespace]:
        """Return the namespaces of metadata definitions that the context's project may see."""

    @rpc.read(rpc.API)
    def metadef_get(self, context: RequestContext, namespace: str) -> MetadefNamespace: ...

    @rpc.change(rpc.API)
    def metadef_create(self, context: RequestContext, namespace: MetadefNamespace) -> MetadefNamespace: ...

    @rpc.change(rpc.API)
    def metadef_update(self, context: RequestContext, namespace: str, changes: dict[str, Any]) -> MetadefNamespace: ...

    @rpc.change(rpc.API)
    def metadef_parts_change(
        self,
        context: RequestContext,
        namespace: str,
        kind: str,
        changes: dict[str, dict[str, Any] | None],
        new: list[str],
        clear: bool,
    ) -> MetadefNamespace:
        """Change the parts of one kind by name; None removes a part. ``new``: names that must not be taken. ``clear``:
        remove all others. Raises `NotFound`, `Conflict` or `Forbidden`.
        """

    @rpc.delete(rpc.API)
    def metadef_delete(self, context: RequestContext, namespace: str) -> None: ...

    @rpc.list_(rpc.API)
    def network_list(self, context: RequestContext, network_id: str | None = None) -> list[Network]:
        """Return the networks of the built-in backend that the context's project may use. ``network_id``: only this
        one, but older conductors return all.
        """

    @rpc.list_(rpc.API)
    def network_record_list(self, context: RequestContext, query: ListQuery | None = None) -> list[NetworkRecord]:
        """Return all that is stored of these networks, including networks without a subnet.

        ``query``: filters by ``id``, ``name``, ``project_id``, ``cidr``, and ``subnet_id``.
        """

    @rpc.change(rpc.API)
    def network_create(self, context: RequestContext, network: NetworkRecord) -> NetworkRecord:
        """Create a network without a subnet, under the id that the API chose. ``project_id`` None: for all projects."""

    @rpc.change(rpc.API)
    def network_update(self, context: RequestContext, network_id: str, changes: dict[str, Any]) -> NetworkRecord:
        """Set ``name``, ``description``, ``admin_state_up``, ``shared``, names of the subnet, and its settings.

        Settings of the subnet are ``gateway`` (None: none), ``dns``, ``pools``, ``host_routes`` and ``enable_dhcp``.
        ``subnet6`` has such settings of the IPv6 subnet, and its ``name`` and ``description``. An older conductor
        refuses them.
        """

    @rpc.delete(rpc.API)
    def network_delete(self, context: RequestContext, network_id: str) -> None:
        """Delete a network. Raises `NetworkInUse` while it has a port."""

    @rpc.change(rpc.API)
    def subnet_create(self, context: RequestContext, subnet: NetworkRecord) -> NetworkRecord:
        """Give the network ``subnet.id`` its addresses, with ``subnet6`` its IPv6 addresses.

        Raises a 400 for addresses that it cannot have. An older conductor raises it for IPv6.
        """

    @rpc.delete(rpc.API)
    def subnet_delete(self, context: RequestContext, network_id: str) -> None:
        """Delete a subnet. Raises `NetworkInUse` while it has a port. ``network_id``: also the id of an IPv6 subnet."""

    @rpc.change(rpc.API)
    def network_resources_create(self, context: RequestContext, wanted: NetworkResources) -> NetworkResources:
        """Create networks, subnets, ports, routers, security groups and rules in one transaction. Return them."""

    @rpc.list_(rpc.API)
    def network_object_list(
        self, context: RequestContext, kind: str, ids: list[str] | None = None
    ) -> list[NetworkObject]:
        """Return the ``subnetpools``, ``address_scopes``, ``address_groups`` or ``rbac_policies`` of a project.

        ``ids``: only of these, if they are there. The list includes resources that other projects share with it, but
        only own policies. Admins get all.
        """

    @rpc.change(rpc.API)
    def network_object_create(self, context: RequestContext, wanted: NetworkObject) -> NetworkObject:
        """Create such a resource under the id that the API chose."""

    @rpc.change(rpc.API)
    def network_object_update(
        self, context: RequestContext, kind: str, object_id: str, changes: dict[str, Any]
    ) -> NetworkObject:
        """Set fields of a resource of the caller's own.

        ``add`` and ``remove`` change prefixes and addresses by parts.
        """

    @rpc.delete(rpc.API)
    def network_object_delete(self, context: RequestContext, kind: str, object_id: str) -> None:
        """Delete a resource of the caller's own. Raises an error while something uses it."""

    @rpc.change(rpc.API)
    def network_tags_change(
        self, context: RequestContext, kind: str, resource_id: str, add: list[str], remove: list[str] | None
    ) -> list[str]:
        """Remove tags of a resource (None: all), then add tags. Return its tags.

        ``kind``: plural of the network API, such as ``ports``. Raises a 404 for a missing resource, or a missing tag in
        ``remove``.
        """

    @rpc.list_(rpc.API)
    def port_list(
        self, context: RequestContext, filters: dict[str, list[str]], query: ListQuery | None = None
    ) -> list[Port]:
        """Return the project's ports, for an admin all projects'.

        ``filters``: ``id``, ``network_id``, ``device_id``, ``mac_address``, ``name``, ``project_id``, ``address``,
        ``host``, each with the accepted values.
        """

    @rpc.read(rpc.API)
    def port_get(self, context: RequestContext, port_id: str) -> Port:
        """Return a port. Like the next methods, raises `NoSuchPort` for a port of another project."""

    @rpc.change(rpc.API)
    def port_create(self, context: RequestContext, port: Port) -> Port:
        """Create a port under the id that the API chose. Chooses ``address`` and ``mac_address`` unless given."""

    @rpc.change(rpc.API)
    def port_update(self, context: RequestContext, port_id: str, changes: dict[str, Any]) -> Port:
        """Set ``name``, ``description``, ``admin_state_up``, ``security_groups``; addresses while the port is free."""

    @rpc.delete(rpc.API)
    def port_delete(self, context: RequestContext, port_id: str) -> None:
        """Delete a port. Raises `PortInUse` while a server has it."""

    @rpc.list_(rpc.API)
    def router_list(self, context: RequestContext) -> list[Router]:
        """Return the project's routers, for an admin all projects'."""

    @rpc.read(rpc.API)
    def router_get(self, context: RequestContext, router_id: str) -> Router:
        """Return a router. Like the next methods, raises `RouterNotFound` for a router of another project."""

    @rpc.change(rpc.API)
    def router_create(self, context: RequestContext, router: Router) -> Router:
        """Create a router under the id that the API chose."""

    @rpc.change(rpc.API)
    def router_update(self, context: RequestContext, router_id: str, changes: dict[str, Any]) -> Router:
        """Set ``name``, ``description``, ``admin_state_up``, ``pool_id`` (None: no gateway), ``enable_snat``.

        ``routes`` replaces the static routes, ``add_routes`` and ``remove_routes`` change some. An older conductor
        refuses these three.
        """

    @rpc.delete(rpc.API)
    def router_delete(self, context: RequestContext, router_id: str) -> None:
        """Delete a router. Raises `RouterInUse` while it has an interface."""

    @rpc.change(rpc.API)
    def router_interface_add(
        self, context: RequestContext, router_id: str, subnet_id: str | None, port_id: str | None
    ) -> Port:
        """Connect a network, named by its subnet or by a free port. Return the interface's port."""

    @rpc.change(rpc.API)
    def router_interface_remove(
        self, context: RequestContext, router_id: str, subnet_id: str | None, port_id: str | None
    ) -> Port:
        """Disconnect a network, named by its subnet or by the interface's port, and delete that port. Return it."""

    @rpc.read(rpc.API)
    def network_limits_get(self, context: RequestContext, project_id: str) -> ProjectLimits:
        """Return the project's limits and use of networks and related resources, in Neutron's terms."""

    @rpc.list_(rpc.API)
    def network_limits_list(self, context: RequestContext) -> list[ProjectLimits]:
        """Return the limits of the projects that have own ones, without use. Only an admin gets those of others."""

    @rpc.read(rpc.API)
    def network_address_counts_get(self, context: RequestContext, network_ids: list[str]) -> dict[str, int]:
        """Return the number of used IPv4 addresses by network, for an admin."""

    @rpc.change(rpc.API)
    def network_limits_update(
        self, context: RequestContext, project_id: str, limits: dict[str, int | None]
    ) -> ProjectLimits:
        """Set these limits (-1: unlimited; None: the default). Return all, as `network_limits_get` does."""

    @rpc.list_(rpc.API)
    def security_group_list(
        self,
        context: RequestContext,
        all_projects: bool,
        limit: int | None,
        offset: int,
        query: ListQuery | None = None,
    ) -> list[SecurityGroup]:
        """Return security groups with their rules, by name. ``all_projects``: for an admin, also those of others.

        ``query``: instead of ``limit`` and ``offset``; filters by ``id``, ``name``, ``project_id``. The page includes
        the project's default group without a row, for an admin too.
        """

    @rpc.list_(rpc.API)
    def security_group_rule_list(self, context: RequestContext, query: ListQuery) -> list[SecurityGroupRule]:
        """Return rules of the project's groups, for an admin of all groups.

        ``query``: filters by ``id``, ``security_group_id``, ``remote_group_id``, ``direction``, ``ethertype``,
        ``project_id``.
        """

    @rpc.read(rpc.API)
    def security_group_get(self, context: RequestContext, group_id: str) -> SecurityGroup:
        """Return the group with this id, or with this name in the context's project.

        Raises `SecurityGroupNotFound` for a group of another project.
        """

    @rpc.change(rpc.API)
    def security_group_create(self, context: RequestContext, name: str, description: str | None) -> SecurityGroup: ...

    @rpc.change(rpc.API)
    def security_group_update(
        self, context: RequestContext, group_id: str, name: str | None, description: str | None
    ) -> SecurityGroup:
        """Change name and description. None leaves a value unchanged."""

    @rpc.delete(rpc.API)
    def security_group_delete(self, context: RequestContext, group_id: str) -> None:
        """Delete a group. Raises `SecurityGroupInUse` while a server is in it, `SecurityGroupFixed` for the default
        group.
        """

    @rpc.change(rpc.API)
    def security_group_rule_create(self, context: RequestContext, rule: SecurityGroupRule) -> SecurityGroupRule:
        """Add a rule; ``rule.id`` is ignored. Raises `SecurityGroupRuleInvalid`, `SecurityGroupRuleExists`."""

    @rpc.delete(rpc.API)
    def security_group_rule_delete(self, context: RequestContext, rule_id: str) -> None: ...

    @rpc.read(rpc.API)
    def instance_security_groups(self, context: RequestContext, instance_uuid: str) -> list[SecurityGroup]:
        """Return the groups of a server. A server without interfaces has none."""

    @rpc.change(rpc.API)
    def instance_security_group_add(self, context: RequestContext, instance_uuid: str, name: str) -> None:
        """Add a server to the group with this name or id. Its host applies the rules as soon as it is notified."""

    @rpc.change(rpc.API)
    def instance_security_group_remove(self, context: RequestContext, instance_uuid: str, name: str) -> None: ...

    @rpc.list_(rpc.API)
    def floating_ip_pool_list(self, context: RequestContext) -> list[FloatingIpPool]: ...

    @rpc.change(rpc.API)
    def external_network_create(self, context: RequestContext, pool: FloatingIpPool) -> FloatingIpPool:
        """Create an external network without a subnet, or make the network with this id one. Raises a 4xx."""

    @rpc.change(rpc.API)
    def external_network_update(self, context: RequestContext, pool_id: str, changes: dict[str, Any]) -> FloatingIpPool:
        """Set ``name``, ``description`` or ``subnet_name``."""

    @rpc.delete(rpc.API)
    def external_network_delete(self, context: RequestContext, pool_id: str) -> None:
        """Delete an external network, and its floating addresses without a port. Raises `NetworkInUse`."""

    @rpc.change(rpc.API)
    def external_subnet_create(self, context: RequestContext, subnet: NetworkRecord) -> FloatingIpPool:
        """Give the external network ``subnet.id`` its range. Raises a 400, or `Conflict` if it has one."""

    @rpc.delete(rpc.API)
    def external_subnet_delete(self, context: RequestContext, pool_id: str) -> None:
        """Take the range from an external network. Raises `Conflict` while projects have addresses of it."""

    @rpc.list_(rpc.API)
    def floating_ip_list(
        self, context: RequestContext, all_projects: bool = False, query: ListQuery | None = None
    ) -> list[FloatingIp]:
        """Return the project's floating addresses. ``all_projects``: for an admin, also those of others.

        ``query``: filters by ``id``, ``address``, ``pool_id``, ``port_id``, ``project_id``.
        """

    @rpc.read(rpc.API)
    def floating_ip_get(self, context: RequestContext, reference: str) -> FloatingIp:
        """Return the floating address with this id or address. Raises `FloatingIpNotFound` for another project's."""

    @rpc.change(rpc.API)
    def floating_ip_create(
        self,
        context: RequestContext,
        pool: str | None,
        request: FloatingIp | None = None,
    ) -> FloatingIp:
        """Allocate a floating address. ``pool``: name or id of its pool; None: the first pool.

        ``request``: its ``pool_id``, and optionally ``address``, ``description``, ``project_id``, ``port_id`` and
        ``fixed_address``.
        """

    @rpc.change(rpc.API)
    def floating_ip_update(self, context: RequestContext, reference: str, changes: dict[str, Any]) -> FloatingIp:
        """Set ``description``, or the target: ``port_id`` (None: no target), optionally with ``fixed_address``."""

    @rpc.delete(rpc.API)
    def floating_ip_delete(self, context: RequestContext, reference: str) -> None: ...

    @rpc.change(rpc.API)
    def floating_ip_associate(
        self, context: RequestContext, instance_uuid: str, address: str, fixed_address: str | None
    ) -> None:
        """Let the address lead to this interface of the instance. ``fixed_address`` None: to the first interface."""

    @rpc.change(rpc.API)
    def floating_ip_disassociate(self, context: RequestContext, instance_uuid: str, address: str) -> None: ...

    @rpc.read(rpc.API)
    def limits_get(self, context: RequestContext, project_id: str, user_id: str | None = None) -> ProjectLimits:
        """Return the limits and the use of a project, or of one user in it."""

    @rpc.read(rpc.API)
    def quota_defaults_get(self, context: RequestContext) -> ProjectLimits:
        """Return the limits of a project without limits of its own, without any use."""

    @rpc.change(rpc.API)
    def quota_defaults_update(self, context: RequestContext, limits: dict[str, int]) -> ProjectLimits:
        """Set these defaults in place of ``[quota]``. Return all defaults."""

    @rpc.change(rpc.API)
    def quota_update(
        self,
        context: RequestContext,
        project_id: str,
        limits: dict[str, int],
        force: bool,
        user_id: str | None = None,
    ) -> ProjectLimits:
        """Set limits (-1: unlimited) of a project, or of one user in it. Return all limits.

        Unless ``force``, raises `QuotaBelowUse` for a limit below the use, and `QuotaAboveProject` for a user's limit
        above the project's.
        """

    @rpc.delete(rpc.API)
    def quota_delete(self, context: RequestContext, project_id: str, user_id: str | None = None) -> None:
        """Delete the limits of a project and its users, or (``user_id``) of this user."""

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
        """Return the instances that ran in the period, by project and uuid. ``project_id`` None: all projects, for an
        admin.
        """

    # --- volumes of the built-in backend, for the API

    @rpc.list_(rpc.API)
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

    @rpc.read(rpc.API)
    def volume_get(self, context: RequestContext, volume_id: str) -> Volume:
        """Return a volume of the context's project, for an admin of any project.

        Like the next methods, raises `VolumeNotFound` for a volume of another project.
        """

    @rpc.change(rpc.API)
    def volume_create(self, context: RequestContext, volume: Volume, images: dict[str, Image]) -> Volume:
        """Accept a volume; a host then creates its file. Raises a 4xx.

        ``volume``: the request, under the id that the API chose for it; its ``image`` names the image. ``images``:
        descriptions by the API, by id.
        """

    @rpc.change(rpc.API)
    def volume_update(
        self,
        context: RequestContext,
        volume_id: str,
        changes: dict[str, Any],
        merge: bool = False,
    ) -> Volume:
        """Set ``name``, ``description``, ``metadata`` (all of it), ``bootable``, ``volume_type`` (its name or id),
        ``image_metadata`` (all of it) or, for an admin, ``status``.

        ``merge``: metadata are added to the stored ones, and an item of None is removed. Raises a 4xx for too many.
        """

    @rpc.change(rpc.API)
    def volume_upload(self, context: RequestContext, volume_id: str, image: Image) -> Volume:
        """Accept that the data of an unused volume become a new image of the caller's project. Raises a 4xx."""

    @rpc.delete(rpc.API)
    def volume_delete(self, context: RequestContext, volume_id: str, cascade: bool = False) -> None:
        """Accept the deletion of a volume. A host deletes the file, then the conductor deletes the row.

        ``cascade``: delete its snapshots first.
        """

    @rpc.change(rpc.API)
    def volume_extend(self, context: RequestContext, volume_id: str, size: int, attached: bool) -> None:
        """Accept a new ``size`` in GB. ``attached``: also for a volume that a server has."""

    @rpc.list_(rpc.API)
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

    @rpc.read(rpc.API)
    def snapshot_get(self, context: RequestContext, snapshot_id: str) -> VolumeSnapshot: ...

    @rpc.change(rpc.API)
    def snapshot_create(self, context: RequestContext, snapshot: VolumeSnapshot, force: bool = False) -> VolumeSnapshot:
        """Accept a snapshot. ``force``: also of a volume that a server has."""
        ...

    @rpc.change(rpc.API)
    def snapshot_update(
        self,
        context: RequestContext,
        snapshot_id: str,
        changes: dict[str, Any],
        merge: bool = False,
    ) -> VolumeSnapshot:
        """Set ``name``, ``description``, ``metadata`` or, for an admin, ``status``. ``merge``: as `volume_update`."""

    @rpc.delete(rpc.API)
    def snapshot_delete(self, context: RequestContext, snapshot_id: str) -> None: ...

    @rpc.read(rpc.API)
    def volume_usage(self, context: RequestContext, project_id: str) -> VolumeUse: ...

    @rpc.change(rpc.API)
    def attachment_update(
        self, context: RequestContext, instance_uuid: str, volume_id: str, delete_on_termination: bool
    ) -> None:
        """Set whether the volume is deleted with the server.

        Raises `VolumeBDMNotFound` if the server does not have the volume.
        """

    @rpc.list_(rpc.API)
    def volume_transfer_list(self, context: RequestContext, all_projects: bool) -> list[VolumeTransfer]: ...

    @rpc.read(rpc.API)
    def volume_transfer_get(self, context: RequestContext, transfer_id: str) -> VolumeTransfer: ...

    @rpc.change(rpc.API)
    def volume_transfer_create(
        self, context: RequestContext, transfer: VolumeTransfer, salt: str, digest: str
    ) -> VolumeTransfer:
        """Offer a volume. ``digest``: of the key that accepts the offer (`nova_lite.objects.volume`)."""

    @rpc.change(rpc.API)
    def volume_transfer_accept(self, context: RequestContext, transfer_id: str, key: str) -> VolumeTransfer:
        """Take over an offered volume and its snapshots, within the project's quota."""

    @rpc.delete(rpc.API)
    def volume_transfer_delete(self, context: RequestContext, transfer_id: str) -> None: ...

    @rpc.list_(rpc.API)
    def volume_type_list(self, context: RequestContext) -> list[VolumeType]:
        """Return the default type, and the others that the context's project may use."""

    @rpc.read(rpc.API)
    def volume_type_get(self, context: RequestContext, reference: str) -> VolumeType:
        """Return a type by its id or name. Raises `VolumeTypeNotFound`, also for a type of other projects."""

    @rpc.change(rpc.API)
    def volume_type_create(self, context: RequestContext, volume_type: VolumeType) -> VolumeType: ...

    @rpc.change(rpc.API)
    def volume_type_update(self, context: RequestContext, type_id: str, changes: dict[str, Any]) -> VolumeType:
        """Set ``name``, ``description``, ``is_public``, or ``extra_specs``, of which a value of None removes one."""

    @rpc.delete(rpc.API)
    def volume_type_delete(self, context: RequestContext, type_id: str) -> None: ...

    @rpc.change(rpc.API)
    def volume_type_project_add(self, context: RequestContext, type_id: str, project_id: str) -> VolumeType:
        """Let a project use a private type."""

    @rpc.change(rpc.API)
    def volume_type_project_remove(self, context: RequestContext, type_id: str, project_id: str) -> VolumeType: ...

    @rpc.change(rpc.API)
    def volume_attachment_set(
        self, context: RequestContext, volume_id: str, attachment: VolumeAttachment | None, expected: str | None
    ) -> Volume:
        """Set, change or remove (None) the attachment that the volume API makes. ``expected``: the id of the present
        one, None for a free volume. Raises a 400, 404 or 409.
        """

    @rpc.change(rpc.API)
    def volume_reserve(self, context: RequestContext, volume_id: str, reserved: bool) -> None:
        """Reserve a free volume, or end that. Raises `VolumeNotFound` or `InvalidVolume`."""

    @rpc.list_(rpc.API)
    def backup_list(
        self,
        context: RequestContext,
        filters: VolumeFilters,
        limit: int | None,
        marker: str | None,
        sort_keys: list[str],
        sort_dirs: list[str],
        offset: int,
    ) -> list[VolumeBackup]: ...

    @rpc.read(rpc.API)
    def backup_get(self, context: RequestContext, backup_id: str) -> VolumeBackup: ...

    @rpc.change(rpc.API)
    def backup_create(self, context: RequestContext, backup: VolumeBackup, force: bool) -> VolumeBackup:
        """Accept a backup of a volume or snapshot. ``force``: also of a volume that a server has. Raises a 4xx."""

    @rpc.change(rpc.API)
    def backup_update(self, context: RequestContext, backup_id: str, changes: dict[str, Any]) -> VolumeBackup:
        """Set ``name``, ``description``, ``metadata`` (all of it) or, for an admin, ``status``."""

    @rpc.delete(rpc.API)
    def backup_delete(self, context: RequestContext, backup_id: str, force: bool) -> None:
        """Accept the deletion of a backup. ``force``: in any state in which no host works on it."""

    @rpc.change(rpc.API)
    def backup_restore(self, context: RequestContext, backup_id: str, volume_id: str | None, name: str) -> Volume:
        """Accept that a backup is restored into a free volume, or (None) into a new one of this name. Raises a 4xx."""

    @rpc.change(rpc.API)
    def backup_import(self, context: RequestContext, backup: VolumeBackup) -> VolumeBackup:
        """Accept the record of a backup whose data exist."""

    @rpc.list_(rpc.API)
    def volume_qos_list(self, context: RequestContext) -> list[VolumeQosSpecs]: ...

    @rpc.read(rpc.API)
    def volume_qos_get(self, context: RequestContext, qos_id: str) -> VolumeQosSpecs: ...

    @rpc.change(rpc.API)
    def volume_qos_create(self, context: RequestContext, qos: VolumeQosSpecs) -> VolumeQosSpecs: ...

    @rpc.change(rpc.API)
    def volume_qos_update(self, context: RequestContext, qos_id: str, changes: dict[str, Any]) -> VolumeQosSpecs:
        """Set ``consumer`` or ``specs``, of which a value of None removes one."""

    @rpc.delete(rpc.API)
    def volume_qos_delete(self, context: RequestContext, qos_id: str, force: bool) -> None: ...

    @rpc.change(rpc.API)
    def volume_qos_associate(self, context: RequestContext, qos_id: str, type_id: str) -> None:
        """Give the specs to a volume type that has none."""

    @rpc.change(rpc.API)
    def volume_qos_disassociate(self, context: RequestContext, qos_id: str, type_id: str) -> None: ...

    @rpc.change(rpc.API)
    def volume_qos_disassociate_all(self, context: RequestContext, qos_id: str) -> None: ...

    @rpc.read(rpc.API)
    def volume_encryption_get(self, context: RequestContext, volume_id: str) -> VolumeEncryption:
        """Return the encryption of a volume that the context may see. Raises `VolumeNotFound`."""

    @rpc.change(rpc.API)
    def volume_type_encryption_set(
        self, context: RequestContext, type_id: str, encryption: dict[str, Any] | None, is_new: bool
    ) -> VolumeType:
        """Set or remove the encryption of a type that no volume has. ``is_new``: the type must have none."""

    @rpc.list_(rpc.API)
    def volume_default_type_list(self, context: RequestContext, project_id: str | None) -> dict[str, str]:
        """Return ids of default types by project, of all projects or of one."""

    @rpc.change(rpc.API)
    def volume_default_type_set(self, context: RequestContext, project_id: str, type_id: str | None) -> None: ...

    @rpc.change(rpc.API)
    def volume_quota_update(self, context: RequestContext, project_id: str, limits: dict[str, int]) -> VolumeUse:
        """Set limits of a project; those of the project "" are the defaults of all others."""

    @rpc.delete(rpc.API)
    def volume_quota_delete(self, context: RequestContext, project_id: str) -> None: ...

    # --- volumes of Cinder's

    @rpc.change(rpc.API)
    def volume_created(
        self, context: RequestContext, instance_uuid: str, device_uuid: str, volume_id: str | None, error: str | None
    ) -> bool:
        """Record that Cinder creates the volume of a block device, or (``error``) does not.

        Return False if the volume is no longer needed.
        """

    @rpc.change(rpc.API)
    def volume_extended(self, context: RequestContext, instance_uuid: str, volume_id: str) -> None:
        """Record that Cinder has extended the volume, and notify the guest.

        Raises `VolumeBDMNotFound` if the server does not have the volume.
        """

    @rpc.change(rpc.API)
    def accept_volume_snapshot(
        self, context: RequestContext, volume_id: str, action: str, payload: dict[str, Any]
    ) -> ActionCommand:
        """Accept work on the files of a volume of Cinder's, for the server that has it, as `accept_action` does.

        ``action``: ``volume_snapshot_create`` or ``volume_snapshot_delete``. Raises `InvalidVolume` if the volume is in
        no server, or not in files.
        """

    # --- hosts, for the API

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

    # --- aggregates and server groups, for the API

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
    def server_group_list(
        self, context: RequestContext, all_projects: bool, limit: int | None, offset: int
    ) -> list[ServerGroup]:
        """Return the project's server groups. ``all_projects``: for an admin, those of all projects."""

    @rpc.read(rpc.API)
    def server_group_get(self, context: RequestContext, group_id: str) -> ServerGroup: ...

    @rpc.change(rpc.API)
    def server_group_create(self, context: RequestContext, group: ServerGroup) -> ServerGroup:
        """Create a group with ``name``, ``policy`` and ``rules`` for the context's project, against its quota."""

    @rpc.delete(rpc.API)
    def server_group_delete(self, context: RequestContext, group_id: str) -> None: ...

    # --- backups of servers by policies

    @rpc.list_(rpc.API)
    def backup_policy_list(
        self, context: RequestContext, all_projects: bool, limit: int | None, marker: str | None
    ) -> list[BackupPolicy]:
        """Return the project's policies. ``all_projects``: for an admin, those of all projects."""

    @rpc.read(rpc.API)
    def backup_policy_get(self, context: RequestContext, policy_id: str) -> BackupPolicy: ...

    @rpc.read(rpc.API)
    def backup_policy_status_get(self, context: RequestContext, policy_id: str) -> PolicyStatus:
        """Return which servers the policy protects, and whether each has its last due backup."""

    @rpc.change(rpc.API)
    def backup_policy_create(self, context: RequestContext, policy: BackupPolicy) -> BackupPolicy:
        """Create a policy of the context's project and user, against the limit of policies."""

    @rpc.change(rpc.API)
    def backup_policy_update(self, context: RequestContext, policy_id: str, changes: dict[str, Any]) -> BackupPolicy:
        """Change the attributes in ``changes``."""

    @rpc.change(rpc.API)
    def backup_policy_run(self, context: RequestContext, policy_id: str) -> list[ServerBackup]:
        """Plan a backup of each target for now."""

    @rpc.delete(rpc.API)
    def backup_policy_delete(self, context: RequestContext, policy_id: str) -> None: ...

    @rpc.list_(rpc.API)
    def server_backup_list(self, context: RequestContext, query: BackupQuery) -> list[ServerBackup]:
        """Return the backups of the project's servers, newest first."""

    @rpc.read(rpc.API)
    def server_backup_get(self, context: RequestContext, backup_id: str) -> ServerBackup: ...

    @rpc.change(rpc.API)
    def server_backup_hold(self, context: RequestContext, backup_id: str) -> ServerBackup:
        """Return a complete backup, and keep retention from removing it while a server is restored from it.

        Raises `ServerBackupNotComplete`, or `ServerBackupInRepository` for a backup without an image.
        """

    @rpc.change(rpc.API)
    def server_backup_want_image(self, context: RequestContext, backup_id: str) -> ServerBackup:
        """Request an image of a complete backup in a repository. Raises `ServerBackupNotComplete`."""

    @rpc.delete(rpc.API)
    def server_backup_delete(self, context: RequestContext, backup_id: str) -> None:
        """Delete a backup. Its image is removed soon. Raises `ServerBackupRunning`."""

    # --- balancing

    @rpc.change(rpc.MANAGE)
    def balance_hosts(self, context: RequestContext, run: bool) -> BalancePlan:
        """Plan moves that relieve hosts under pressure, with an explanation of each server there.

        ``run``: begin the moves as well. Raises `BalancingIsOff` if hosts do not measure their load.
        """

    # --- hosts that join

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

    @rpc.read(rpc.API)
    def host_image_get(self, context: RequestContext, host: str, image_id: str) -> Image:
        """Return an image that this host makes. Raises `ImageNotFound` for any other."""

    # --- for every daemon

    @rpc.report(rpc.CONDUCTOR, rpc.SCHEDULER, kind=rpc.CAST, own="host", replay_safe=True)
    def report_service(self, context: RequestContext, host: str, binary: str, topic: str, version: str) -> None:
        """Record the heartbeat of a daemon that is not a compute host."""

    # --- for the scheduler

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

    # --- for compute

    @rpc.report(rpc.COMPUTE, own="report.host")
    def register_host(self, context: RequestContext, report: HostReport) -> int:
        """Record the first report of a host after its start, and make its open actions due. Return the host's epoch.

        Creates the rows of services and nodes. Heartbeats carry the epoch. Raises `HostForcedDown` while the host may
        not serve.
        """

    @rpc.report(rpc.COMPUTE, own="host", replay_safe=True)
    def port_filters_get(
        self,
        context: RequestContext,
        host: str,
        instance_uuids: list[str],
        known: dict[str, str] | None = None,
    ) -> PortFilters:
        """Return the current security group rules for these instances, and floating addresses and routers of the
        host's own.

        ``host`` may ask about all instances whose interfaces it has. Instances that do not concern the host are in no
        group. ``known``: digests of the members that the host knows, by id of their large group. Such a group may have
        changes only (`SecurityGroup.base`).
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

    @rpc.report(rpc.COMPUTE, own="host")
    def report_load(self, context: RequestContext, host: str, load: HostLoad | None) -> LoadRequest:
        """Store the load of a host, if it was measured. Return what the conductor needs next."""

    @rpc.report(rpc.COMPUTE, own="host")
    def interfaces_bind(self, context: RequestContext, instance_uuid: str, host: str) -> BuildNetworks:
        """Let the network service connect the instance's interfaces at this host. Return how.

        A repeated call returns the same. Raises `StaleReport` for an instance that does not concern the host.
        """

    @rpc.report(rpc.COMPUTE, own="host", replay_safe=True)
    def interfaces_active(self, context: RequestContext, instance_uuid: str, host: str, refresh: bool) -> bool:
        """Check whether the network service has connected all interfaces of an instance.

        ``refresh``: query the network service; else the last known state counts.
        """

    @rpc.report(rpc.API)
    def interfaces_event(self, context: RequestContext, instance_uuid: str, event: str, port_id: str | None) -> None:
        """Record an event of the network service about a port (Nova's ``network-…`` names).

        ``port_id`` None: any port of the instance.
        """

    @rpc.report(rpc.COMPUTE, own="host")
    def start_build(self, context: RequestContext, instance_uuid: str, host: str, generation: int) -> BuildNetworks:
        """Begin a build whose command carries no interfaces: the instance is spawning, and gets its interfaces.

        Raises `StaleReport` or `InstanceGone` when the build is no longer needed. `NoMoreFixedIps` and other 4xx abort
        it.
        """

    @rpc.report(rpc.COMPUTE, own="host")
    def report_guest_devices(
        self, context: RequestContext, instance_uuid: str, host: str, generation: int, devices: GuestDevices
    ) -> None:
        """Record the places of devices of a guest that starts next, so that its first metadata have them.

        Raises `StaleReport` or `InstanceGone` when the build is no longer needed.
        """

    @rpc.report(rpc.COMPUTE, own="result.host", replay_safe=True)
    def finish_build(self, context: RequestContext, result: BuildResult) -> None:
        """Report the result of a build.

        `StaleReport` or `InstanceGone` after BUILT: the host has to destroy the domain.
        """

    @rpc.report(rpc.COMPUTE, own="report.host")
    def finish_action(self, context: RequestContext, report: ActionReport) -> None:
        """Report a command as done or failed. Repeated reports are harmless."""

    @rpc.report(rpc.COMPUTE, own="host", replay_safe=True)
    def finish_builds(self, context: RequestContext, host: str, results: list[BuildResult]) -> list[bool]:
        """Report several `finish_build` results in one transaction.

        Return False for a build that is no longer needed.
        """

    @rpc.report(rpc.COMPUTE, own="host")
    def finish_actions(self, context: RequestContext, host: str, reports: list[ActionReport]) -> None:
        """Report several `finish_action` results in one transaction."""

    @rpc.report(rpc.COMPUTE, own="host", replay_safe=True)
    def is_command_current(self, context: RequestContext, host: str, action_id: int, sequence: int) -> bool:
        """Check whether the conductor still waits for this command.

        A host asks before it makes a guest from the disks of another host.
        """

    @rpc.report(rpc.COMPUTE, own="host", replay_safe=True)
    def is_command_open(
        self,
        context: RequestContext,
        host: str,
        action_id: int,
        sequence: int | None,
        request_id: str,
    ) -> bool:
        """Check whether the conductor waits for this command, although the host has seen a later action.

        A database that lost its last commits assigns their ids again. ``sequence`` None: any command of the action.
        """

    @rpc.report(rpc.COMPUTE, own="host", replay_safe=True)
    def site_right_get(self, context: RequestContext, host: str, instance_uuid: str) -> bool:
        """Check whether a replicated server may run at this site now. Raises `SiteJournalUnavailable`.

        A host asks before it executes a command that may start the server's guest.
        """

    @rpc.report(rpc.COMPUTE, own="host")
    def live_migration_progress(
        self,
        context: RequestContext,
        host: str,
        action_id: int,
        sequence: int,
        progress: MigrationProgress,
    ) -> MigrationControl:
        """Report the progress of a live migration from ``host``. Return whether to go on."""

    @rpc.report(rpc.COMPUTE, own="host")
    def report_task(self, context: RequestContext, host: str, action_id: int, task_state: str) -> bool:
        """Report the task state that the host has reached in its command.

        Return False if the action is over, and its result no longer needed.
        """

    @rpc.report(rpc.COMPUTE, own="host")
    def finish_volume_work(self, context: RequestContext, host: str, task_id: int, error: str | None) -> None:
        """Report work on a volume's file as done (``error`` None) or failed. Repeated reports are harmless."""

    @rpc.report(rpc.COMPUTE, own="host", replay_safe=True)
    def is_volume_work_open(self, context: RequestContext, host: str, task_id: int, volume_id: str) -> bool:
        """Check whether the conductor waits for this work on a volume.

        A late command of ended work must neither change what a guest has written since, nor make what was deleted.
        """

    @rpc.report(rpc.COMPUTE, own="host", replay_safe=True)
    def is_volume_data_needed(self, context: RequestContext, host: str, verb: VolumeVerb, made_id: str) -> bool:
        """Check whether the volume, snapshot or backup whose data the host has just made still exists.

        Return False if it is deleted or being deleted, perhaps before its data had their name.
        """

    @rpc.report(rpc.COMPUTE, own="host", replay_safe=True)
    def volume_key_get(self, context: RequestContext, host: str, volume_id: str, public_key: str) -> str:
        """Return the key of an encrypted volume (`nova_lite.objects.VolumeKey`), sealed to ``public_key``.

        A server on the host has the volume, or the host works on it. Raises `VolumeKeyUnavailable` otherwise, and
        `MasterKeysUnreadable`.
        """

    @rpc.report(rpc.COMPUTE, own="host")
    def volume_connect(
        self, context: RequestContext, host: str, instance_uuid: str, device_uuid: str, connector: dict[str, Any]
    ) -> VolumeConnection:
        """Let Cinder connect the volume of a block device to a host that the instance is on or moves to.

        ``connector``: the host's properties, for Cinder. A repeated call returns the same. Raises `VolumeNotReady`
        while Cinder creates the volume, and `VolumeServiceUnavailable`. `VolumeNotCreated` and `InvalidVolume` are
        final.
        """

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
        """Return those of these instances whose fencing record the host may remove."""
