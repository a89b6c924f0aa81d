"""Servers and their groups, consoles and guest metadata."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from nova_lite import operations, rpc
from nova_lite.base.context import RequestContext
from nova_lite.objects import (
    ActionCommand,
    BatchedCreate,
    BatchedDelete,
    Console,
    ConsoleTarget,
    CreateRequest,
    CreateResult,
    HostedInstance,
    Instance,
    InstanceAction,
    InstanceFilters,
    InstanceQuery,
    MigrationFilters,
    ServerGroup,
    ServerMigration,
)
from nova_lite.rpc.admission import Priority


def _action_priority(arguments: Mapping[str, Any]) -> Priority:
    """Return the priority of `ConductorRPC.accept_action`: a deleted server frees room for other requests."""
    return Priority.DELETE if arguments.get("action") == operations.DELETE.kind else Priority.CHANGE


class ServersRPC(Protocol):
    """Servers and their groups, consoles and guest metadata."""

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
    def instances_at_address(
        self, context: RequestContext, address: str, network_id: str | None = None
    ) -> list[Instance]:
        """Return the instances with an interface of this address on this network or segment.

        None: on any network of any project. For the metadata service.
        """

    @rpc.change(rpc.API, priority=Priority.READ, from_guests=True)
    def instance_password_set(self, context: RequestContext, instance_uuid: str, password: str) -> None:
        """Store the password that the guest posted. Raises `PasswordAlreadySet` if there is one."""

    @rpc.read(rpc.METADATA, own="host", from_guests=True)
    def metadata_instances(
        self,
        context: RequestContext,
        host: str,
        address: str | None,
        instance_uuid: str | None,
        network_id: str | None = None,
    ) -> list[Instance]:
        """Return the instances at ``host`` with an interface of this address, or with this uuid.

        ``network_id``: only the interface on this network or segment counts; None: those on any network.
        An instance is at its host, and at each host where it has a claim, such as the destination of a move.
        """

    @rpc.change(rpc.METADATA, own="host", priority=Priority.READ, from_guests=True)
    def metadata_password_set(self, context: RequestContext, host: str, instance_uuid: str, password: str) -> None:
        """Store the password that a guest of ``host`` posted, as `instance_password_set` does."""

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
