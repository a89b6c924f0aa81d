"""Groups of users and their members, over the identity API."""

from __future__ import annotations

from nova_lite.api.http.bodies import changed
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.identity import directory, requests, views
from nova_lite.api.identity.content import Content
from nova_lite.api.identity.records import Group, User
from nova_lite.api.identity.requests import Description, Extensible, String, Text
from nova_lite.api.identity.resource import IdentityResource
from nova_lite.api.identity.views import View
from nova_lite.base import exceptions
from nova_lite.policies import identity as policies

_MEMBER = "/v3/groups/{group_id}/users/{user_id}"


class NewGroup(Extensible, kw_only=True):
    name: String
    description: Description = ""
    domain_id: Text = None


class Groups(IdentityResource):
    """Groups of users and their members."""

    @route("GET", "/v3/groups", policies.GROUPS_LIST, response="groups")
    def index(self, req: ServiceRequest) -> Response:
        self.authority.read_directory("groups", req.GET.get("domain_id"), req.GET.get("name"))
        return self.listed(req, (views.group(group, req.base_url) for group in self.content.groups))

    @route("GET", "/v3/groups/{id}", policies.GROUPS_SHOW, response="group")
    def show(self, req: ServiceRequest, id: str) -> View:
        return views.group(requests.group(self.content, id), req.base_url)

    @route("POST", "/v3/groups", policies.GROUPS_CREATE, body=NewGroup, key="group", status=201)
    def create(self, req: ServiceRequest) -> View:
        body, more = requests.read(req, NewGroup), requests.attributes(req)

        def create(content: Content) -> Group:
            domain_id = requests.domain_id(content, body.domain_id)
            self.authority.check_ours(content, domain_id)
            group = directory.add_group(content, body.name, body.description, domain_id)
            group.extra = more
            return group

        return views.group(self.change(create), req.base_url)

    @route("PATCH", "/v3/groups/{id}", policies.GROUPS_UPDATE, body=changed(NewGroup), key="group")
    def update(self, req: ServiceRequest, id: str) -> View:
        fields = requests.changes(req)

        def update(content: Content) -> Group:
            group = requests.group(content, id)
            requests.check_domain(group, fields)
            self.authority.check_ours(content, group.domain_id, group)
            if "name" in fields:
                directory.rename(content, "group", group, fields["name"])
            group.description = fields.get("description", group.description)
            group.extra = requests.attributes(req, group.extra)
            return group

        return views.group(self.change(update), req.base_url)

    @route("DELETE", "/v3/groups/{id}", policies.GROUPS_DELETE, status=204)
    def delete(self, req: ServiceRequest, id: str) -> None:
        self.change(lambda content: directory.remove_group(content, requests.group(content, id)))

    @route("GET", "/v3/groups/{id}/users", policies.MEMBERS_LIST, response="users")
    def members(self, req: ServiceRequest, id: str) -> Response:
        content = self.content
        group = requests.group(content, id)
        shown = (views.user(user, req.base_url) for user in content.members_of(group))
        return self.listed(req, shown)

    @route("GET", _MEMBER, policies.MEMBERS_CHECK, status=204)
    def check_member(self, req: ServiceRequest, group_id: str, user_id: str) -> None:
        group, user = _both(self.content, group_id, user_id)
        if group not in self.content.groups_of(user):
            raise exceptions.NotFound(f"User {user.name} is not in group {group.name}.")

    @route("PUT", _MEMBER, policies.MEMBERS_ADD, status=204)
    def add_member(self, req: ServiceRequest, group_id: str, user_id: str) -> None:
        self.change(lambda content: directory.join(*self._own(content, group_id, user_id)))

    @route("DELETE", _MEMBER, policies.MEMBERS_REMOVE, status=204)
    def remove_member(self, req: ServiceRequest, group_id: str, user_id: str) -> None:
        self.change(lambda content: directory.leave(content, *self._own(content, group_id, user_id)))

    @route("GET", "/v3/users/{id}/groups", policies.USER_GROUPS, target={"user_id": "id"}, response="groups")
    def user_groups(self, req: ServiceRequest, id: str) -> Response:
        content = self.content
        user = requests.user(content, id)
        forever = {"membership_expires_at": None}
        shown = (views.group(group, req.base_url) | forever for group in content.groups_of(user))
        return self.listed(req, shown)

    def _own(self, content: Content, group_id: str, user_id: str) -> tuple[Group, User]:
        """Return both if the group's members are ours to change."""
        group, user = _both(content, group_id, user_id)
        self.authority.check_ours(content, group.domain_id, group)
        return group, user


def _both(content: Content, group_id: str, user_id: str) -> tuple[Group, User]:
    group = requests.group(content, group_id)
    return group, requests.user(content, user_id)
