"""Security groups, and the packet filters of hosts."""

from __future__ import annotations

from typing import Annotated, Protocol

from nova_lite import rpc
from nova_lite.base.context import RequestContext
from nova_lite.objects import (
    ListQuery,
    PortFilters,
    SecurityGroup,
    SecurityGroupRule,
)


class SecurityGroupsRPC(Protocol):
    """Security groups, and the packet filters of hosts."""

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
    def security_group_create(
        self,
        context: RequestContext,
        name: str,
        description: str | None,
        stateful: Annotated[bool, rpc.Since("2.1")] = True,
    ) -> SecurityGroup: ...

    @rpc.change(rpc.API)
    def security_group_update(
        self,
        context: RequestContext,
        group_id: str,
        name: str | None,
        description: str | None,
        stateful: Annotated[bool | None, rpc.Since("2.1")] = None,
    ) -> SecurityGroup:
        """Change name and description, and of an unused group ``stateful``. None leaves a value unchanged."""

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

    @rpc.report(rpc.COMPUTE, own="host", replay_safe=True)
    def port_filters_get(
        self,
        context: RequestContext,
        host: str,
        instance_uuids: list[str],
        known: dict[str, str] | None = None,
        known_members: Annotated[dict[str, dict[str, str]] | None, rpc.Since("2.1", optional=True)] = None,
    ) -> PortFilters:
        """Return the current security group rules for these instances, and floating addresses and routers of the
        host's own.

        ``host`` may ask about all instances whose interfaces it has. Instances that do not concern the host are in no
        group. ``known_members``: digests of the large lists of members that the host knows, by group (`NAMES`: names
        of guests) and network. Such a list may have changes only (`NetworkMembers.base`). None: a host of an older
        version. It gets members without their networks (`SecurityGroup.members`), always all of them, and no names.
        ``known``: from such hosts, ignored.
        """
