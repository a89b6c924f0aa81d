"""Groups of users and their members, over the identity API."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from nova_lite.api.http.rest import ServiceRequest, ServiceRoute
from nova_lite.api.http.wsgi import Response
from nova_lite.api.identity import directory, listing, requests, views
from nova_lite.api.identity.authority import Authority
from nova_lite.api.identity.content import Content
from nova_lite.api.identity.records import Group, User
from nova_lite.base import exceptions
from nova_lite.policies import identity as policies

T = TypeVar("T")

_FIELDS = ("id", "name", "description", "domain_id", "links")
_MEMBER = "/v3/groups/{group_id}/users/{user_id}"


class IdentityGroups:
    """Mixin of `IdentityApp`: the handlers of groups."""

    authority: Authority
    routes: tuple[ServiceRoute, ...] = (
        ServiceRoute("GET", "/v3/groups", "index", policies.GROUPS_LIST),
        ServiceRoute("POST", "/v3/groups", "create_group", policies.GROUPS_CREATE),
        ServiceRoute("GET", "/v3/groups/{id}", "show", policies.GROUPS_SHOW),
        ServiceRoute("PATCH", "/v3/groups/{id}", "update_group", policies.GROUPS_UPDATE),
        ServiceRoute("DELETE", "/v3/groups/{id}", "delete_group", policies.GROUPS_DELETE),
        ServiceRoute("GET", "/v3/groups/{id}/users", "list_members", policies.MEMBERS_LIST),
        ServiceRoute("GET", _MEMBER, "check_member", policies.MEMBERS_CHECK),
        ServiceRoute("PUT", _MEMBER, "add_member", policies.MEMBERS_ADD),
        ServiceRoute("DELETE", _MEMBER, "remove_member", policies.MEMBERS_REMOVE),
        ServiceRoute("GET", "/v3/users/{id}/groups", "user_groups", policies.USER_GROUPS, {"user_id": "id"}),
    )

    def create_group(self, req: ServiceRequest) -> Response:
        fields = requests.create_fields(req, "group", name=str, description=str | None, domain_id=str | None)
        more = requests.attributes(req, "group", _FIELDS)

        def create(content: Content) -> Group:
            domain_id = requests.domain_of(content, fields)
            self.authority.check_ours(content, domain_id)
            group = directory.add_group(content, fields["name"], fields["description"] or "", domain_id)
            group.extra = more
            return group

        return Response({"group": views.group(self._change(create), req.base_url)}, 201)

    def update_group(self, req: ServiceRequest, id: str) -> Response:
        fields = requests.update_fields(req, "group", name=str, description=str | None, domain_id=str | None)

        def update(content: Content) -> Group:
            group = requests.require("group", id, content.find(Group, id))
            requests.check_domain(group, fields)
            self.authority.check_ours(content, group.domain_id, group)
            if "name" in fields:
                directory.rename(content, "group", group, fields["name"])
            group.description = fields.get("description", group.description) or ""
            group.extra = requests.attributes(req, "group", _FIELDS, group.extra)
            return group

        return Response({"group": views.group(self._change(update), req.base_url)})

    def delete_group(self, req: ServiceRequest, id: str) -> Response:
        self._change(
            lambda content: directory.remove_group(content, requests.require("group", id, content.find(Group, id)))
        )
        return Response(status=204)

    def list_members(self, req: ServiceRequest, id: str) -> Response:
        content = self.authority.content
        group = requests.require("group", id, content.find(Group, id))
        shown = (views.user(user, req.base_url) for user in content.members_of(group))
        return listing.listed(req, "users", shown, f"/v3/groups/{id}/users")

    def check_member(self, req: ServiceRequest, group_id: str, user_id: str) -> Response:
        group, user = _both(self.authority.content, group_id, user_id)
        if group not in self.authority.content.groups_of(user):
            raise exceptions.NotFound(f"User {user.name} is not in group {group.name}.")
        return Response(status=204)

    def add_member(self, req: ServiceRequest, group_id: str, user_id: str) -> Response:
        self._change(lambda content: directory.join(*self._own(content, group_id, user_id)))
        return Response(status=204)

    def remove_member(self, req: ServiceRequest, group_id: str, user_id: str) -> Response:
        self._change(lambda content: directory.leave(content, *self._own(content, group_id, user_id)))
        return Response(status=204)

    def user_groups(self, req: ServiceRequest, id: str) -> Response:
        content = self.authority.content
        user = requests.require("user", id, content.user(id))
        forever = {"membership_expires_at": None}
        shown = (views.group(group, req.base_url) | forever for group in content.groups_of(user))
        return listing.listed(req, "groups", shown, f"/v3/users/{id}/groups")

    def _own(self, content: Content, group_id: str, user_id: str) -> tuple[Group, User]:
        """Return both if the group's members are ours to change."""
        group, user = _both(content, group_id, user_id)
        self.authority.check_ours(content, group.domain_id, group)
        return group, user

    def _change(self, function: Callable[[Content], T]) -> T:
        return self.authority.replica.change(function)


def _both(content: Content, group_id: str, user_id: str) -> tuple[Group, User]:
    group = requests.require("group", group_id, content.find(Group, group_id))
    return group, requests.require("user", user_id, content.user(user_id))
