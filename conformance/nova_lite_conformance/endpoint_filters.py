"""Endpoints of single projects, over the identity API (``OS-EP-FILTER``).

A project with endpoints or endpoint groups of its own has only those in the catalog of its tokens.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from nova_lite.api.http.bodies import changed, checked
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.identity import directory, requests, views
from nova_lite.api.identity.catalog import INTERFACES
from nova_lite.api.identity.content import Content
from nova_lite.api.identity.records import EndpointGroup, Project
from nova_lite.api.identity.requests import Extensible, OptionalWords
from nova_lite.api.identity.resource import IdentityResource
from nova_lite.api.identity.views import View
from nova_lite.base import exceptions
from nova_lite_conformance import policies

#: Each API process has all of them in memory, and looks at them for each token.
MAX_GROUPS = 100

#: Values of endpoints that a group can select by.
FILTERS = ("interface", "service_id", "region_id")

_FILTER = "/v3/OS-EP-FILTER"
_GROUPS, _GROUP = f"{_FILTER}/endpoint_groups", f"{_FILTER}/endpoint_groups/{{id}}"
_MEMBER = f"{_GROUP}/projects/{{project_id}}"
_PROJECT = f"{_FILTER}/projects/{{project_id}}"


def _name(sent: dict[str, Any], name: str) -> str:
    return directory.check_name("endpoint group", requests.text_field(sent, name))


def _filters(sent: dict[str, Any], name: str) -> dict[str, str]:
    """Return the filters. Without any, the group has all endpoints."""
    given = requests.object_field(sent, name)
    is_known = all(name in FILTERS and isinstance(value, str) for name, value in given.items())
    if not is_known or given.get("interface", INTERFACES[0]) not in INTERFACES:
        raise exceptions.ValidationError(
            detail=f"Filters of an endpoint group are texts for some of {', '.join(FILTERS)}. An interface is one of "
            f"{', '.join(INTERFACES)}."
        )
    return given


_Name: TypeAlias = Annotated[str, checked(_name)]
_Filters: TypeAlias = Annotated[dict[str, str], checked(_filters)]


class NewEndpointGroup(Extensible, kw_only=True):
    name: _Name
    description: OptionalWords = None
    filters: _Filters


class EndpointGroups(IdentityResource):
    """Endpoint groups."""

    @route("GET", _GROUPS, policies.EP_GROUPS_LIST, response="endpoint_groups")
    def index(self, req: ServiceRequest) -> Response:
        shown = [_group_view(group, req.base_url) for group in self.content.endpoint_groups]
        return self.listed(req, shown)

    @route("POST", _GROUPS, policies.EP_GROUPS_CREATE, body=NewEndpointGroup, key="endpoint_group", status=201)
    def create(self, req: ServiceRequest) -> View:
        made = requests.new(req, EndpointGroup, requests.read(req, NewEndpointGroup))

        def create(content: Content) -> None:
            if len(content.endpoint_groups) >= MAX_GROUPS:
                raise exceptions.Forbidden(f"There are at most {MAX_GROUPS} endpoint groups. Delete the unused ones.")
            _check_name(content, made)
            content.endpoint_groups.append(made)

        self.change(create)
        return _group_view(made, req.base_url)

    @route("GET", _GROUP, policies.EP_GROUPS_SHOW, response="endpoint_group")
    def show(self, req: ServiceRequest, id: str) -> View:
        return _group_view(_group(self.content, id), req.base_url)

    @route("PATCH", _GROUP, policies.EP_GROUPS_UPDATE, body=changed(NewEndpointGroup), key="endpoint_group")
    def update(self, req: ServiceRequest, id: str) -> View:
        group = self.updated(req, lambda content: _group(content, id), _check_name)
        return _group_view(group, req.base_url)

    @route("DELETE", _GROUP, policies.EP_GROUPS_DELETE, status=204)
    def delete(self, req: ServiceRequest, id: str) -> None:
        self.change(lambda content: content.endpoint_groups.remove(_group(content, id)))

    @route("GET", f"{_GROUP}/endpoints", policies.EP_OF_GROUP, response="endpoints")
    def endpoints(self, req: ServiceRequest, id: str) -> Response:
        content = self.content
        found = self.catalog.in_group(content, _group(content, id))
        shown = [views.linked(item, req.base_url, "endpoints") for item in found]
        return self.listed(req, shown)

    @route("GET", f"{_GROUP}/projects", policies.EP_PROJECTS_OF_GROUP, response="projects")
    def projects(self, req: ServiceRequest, id: str) -> Response:
        content = self.content
        projects = (content.project(project_id) for project_id in _group(content, id).project_ids)
        return self.listed(req, (views.project(project, req.base_url) for project in projects if project is not None))

    @route("GET", _MEMBER, policies.EP_GROUP_CHECK, response="endpoint_group")
    def check_project(self, req: ServiceRequest, id: str, project_id: str) -> View:
        group, project = _both(self.content, id, project_id)
        if project.id not in group.project_ids:
            raise exceptions.NotFound(f"Project {project.name} does not have the endpoint group {group.name}.")
        return _group_view(group, req.base_url)

    @route("PUT", _MEMBER, policies.EP_GROUP_ADD, status=204)
    def add_project(self, req: ServiceRequest, id: str, project_id: str) -> None:
        def add(content: Content) -> None:
            group, project = _both(content, id, project_id)
            if project.id not in group.project_ids:
                group.project_ids.append(project.id)

        self.change(add)

    @route("DELETE", _MEMBER, policies.EP_GROUP_REMOVE, status=204)
    def remove_project(self, req: ServiceRequest, id: str, project_id: str) -> None:
        def remove(content: Content) -> None:
            group, project = _both(content, id, project_id)
            if project.id not in group.project_ids:
                raise exceptions.NotFound(f"Project {project.name} does not have the endpoint group {group.name}.")
            group.project_ids.remove(project.id)

        self.change(remove)


class ProjectEndpoints(IdentityResource):
    """Endpoints of single projects."""

    @route("GET", f"{_PROJECT}/endpoint_groups", policies.EP_GROUPS_OF_PROJECT, response="endpoint_groups")
    def groups(self, req: ServiceRequest, project_id: str) -> Response:
        content = self.content
        project = requests.project(content, project_id)
        groups = [group for group in content.endpoint_groups if project.id in group.project_ids]
        return self.listed(req, [_group_view(group, req.base_url) for group in groups])

    @route("GET", f"{_PROJECT}/endpoints", policies.EP_OF_PROJECT, response="endpoints")
    def index(self, req: ServiceRequest, project_id: str) -> Response:
        content = self.content
        wanted = self.catalog.filtered(content, requests.project(content, project_id).id) or set()
        found = [item for item in self.catalog.all_endpoints(content) if item["id"] in wanted]
        shown = [views.linked(item, req.base_url, "endpoints") for item in found]
        return self.listed(req, shown)

    @route("GET", f"{_FILTER}/endpoints/{{endpoint_id}}/projects", policies.EP_PROJECTS, response="projects")
    def projects(self, req: ServiceRequest, endpoint_id: str) -> Response:
        content = self.content
        self._endpoint_id(content, endpoint_id)
        having = (project for project in content.projects if endpoint_id in project.endpoint_ids)
        return self.listed(req, (views.project(project, req.base_url) for project in having))

    @route("GET", f"{_PROJECT}/endpoints/{{endpoint_id}}", policies.EP_CHECK, status=204)
    def check(self, req: ServiceRequest, project_id: str, endpoint_id: str) -> None:
        _has(requests.project(self.content, project_id), endpoint_id)

    @route("PUT", f"{_PROJECT}/endpoints/{{endpoint_id}}", policies.EP_ADD, status=204)
    def add(self, req: ServiceRequest, project_id: str, endpoint_id: str) -> None:
        def add(content: Content) -> None:
            project = requests.project(content, project_id)
            self._endpoint_id(content, endpoint_id)
            if endpoint_id not in project.endpoint_ids:
                project.endpoint_ids.append(endpoint_id)

        self.change(add)

    @route("DELETE", f"{_PROJECT}/endpoints/{{endpoint_id}}", policies.EP_REMOVE, status=204)
    def remove(self, req: ServiceRequest, project_id: str, endpoint_id: str) -> None:
        def remove(content: Content) -> None:
            project = requests.project(content, project_id)
            _has(project, endpoint_id)
            project.endpoint_ids.remove(endpoint_id)

        self.change(remove)

    def _endpoint_id(self, content: Content, id: str) -> None:
        """Raise `NotFound` unless the catalog has this endpoint."""
        known = (item["id"] for item in self.catalog.all_endpoints(content))
        requests.require("endpoint", id, id if id in known else None)


def _group(content: Content, id: str) -> EndpointGroup:
    return requests.require("endpoint group", id, content.find(EndpointGroup, id))


def _both(content: Content, id: str, project_id: str) -> tuple[EndpointGroup, Project]:
    return _group(content, id), requests.project(content, project_id)


def _has(project: Project, endpoint_id: str) -> None:
    if endpoint_id not in project.endpoint_ids:
        raise exceptions.NotFound(f"Project {project.name} does not have the endpoint {endpoint_id[:64]}.")


def _check_name(content: Content, changed: EndpointGroup) -> None:
    if any(group.name == changed.name and group.id != changed.id for group in content.endpoint_groups):
        raise exceptions.Conflict(f"Endpoint group {changed.name} already exists.")


def _group_view(group: EndpointGroup, base_url: str) -> dict[str, Any]:
    shown = requests.attribute_values(group.extra) | {
        name: getattr(group, name) for name in ("id", "name", "description", "filters")
    }
    return shown | {"links": {"self": f"{base_url}{_GROUPS}/{group.id}"}}
