"""Endpoints of single projects, over the identity API (``OS-EP-FILTER``).

A project with endpoints or endpoint groups of its own has only those in the catalog of its tokens.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, TypeVar

from nova_lite.api.http.rest import ServiceRequest, ServiceRoute
from nova_lite.api.http.wsgi import Response
from nova_lite.api.identity import directory, listing, requests, views
from nova_lite.api.identity.authority import Authority
from nova_lite.api.identity.catalog import INTERFACES, Catalog
from nova_lite.api.identity.content import Content
from nova_lite.api.identity.records import EndpointGroup, Project
from nova_lite.base import exceptions
from nova_lite.policies import identity as policies

T = TypeVar("T")

#: Each API process has all of them in memory, and looks at them for each token.
MAX_GROUPS = 100

#: Values of endpoints that a group can select by.
FILTERS = ("interface", "service_id", "region_id")

_FILTER = "/v3/OS-EP-FILTER"
_GROUPS, _GROUP = f"{_FILTER}/endpoint_groups", f"{_FILTER}/endpoint_groups/{{id}}"
_MEMBER = f"{_GROUP}/projects/{{project_id}}"
_PROJECT = f"{_FILTER}/projects/{{project_id}}"
_FIELDS = ("id", "name", "description", "filters", "links")


class IdentityEndpointFilters:
    """Mixin of `IdentityApp`: the handlers of endpoints of projects."""

    authority: Authority
    service_catalog: Catalog
    routes: tuple[ServiceRoute, ...] = (
        ServiceRoute("GET", _GROUPS, "list_endpoint_groups", policies.EP_GROUPS_LIST),
        ServiceRoute("POST", _GROUPS, "create_endpoint_group", policies.EP_GROUPS_CREATE),
        ServiceRoute("GET", _GROUP, "show_endpoint_group", policies.EP_GROUPS_SHOW),
        ServiceRoute("PATCH", _GROUP, "update_endpoint_group", policies.EP_GROUPS_UPDATE),
        ServiceRoute("DELETE", _GROUP, "delete_endpoint_group", policies.EP_GROUPS_DELETE),
        ServiceRoute("GET", f"{_GROUP}/endpoints", "endpoints_of_group", policies.EP_OF_GROUP),
        ServiceRoute("GET", f"{_GROUP}/projects", "projects_of_group", policies.EP_PROJECTS_OF_GROUP),
        ServiceRoute("GET", _MEMBER, "check_endpoint_group", policies.EP_GROUP_CHECK),
        ServiceRoute("PUT", _MEMBER, "add_endpoint_group", policies.EP_GROUP_ADD),
        ServiceRoute("DELETE", _MEMBER, "remove_endpoint_group", policies.EP_GROUP_REMOVE),
        ServiceRoute("GET", f"{_PROJECT}/endpoint_groups", "groups_of_project", policies.EP_GROUPS_OF_PROJECT),
        ServiceRoute("GET", f"{_PROJECT}/endpoints", "endpoints_of_project", policies.EP_OF_PROJECT),
        ServiceRoute("GET", f"{_PROJECT}/endpoints/{{endpoint_id}}", "check_endpoint", policies.EP_CHECK),
        ServiceRoute("PUT", f"{_PROJECT}/endpoints/{{endpoint_id}}", "add_endpoint", policies.EP_ADD),
        ServiceRoute("DELETE", f"{_PROJECT}/endpoints/{{endpoint_id}}", "remove_endpoint", policies.EP_REMOVE),
        ServiceRoute(
            "GET", f"{_FILTER}/endpoints/{{endpoint_id}}/projects", "projects_of_endpoint", policies.EP_PROJECTS
        ),
    )

    # --- groups

    def list_endpoint_groups(self, req: ServiceRequest) -> Response:
        shown = [_group_view(group, req.base_url) for group in self.authority.content.endpoint_groups]
        return listing.listed(req, "endpoint_groups", shown, _GROUPS)

    def create_endpoint_group(self, req: ServiceRequest) -> Response:
        made = EndpointGroup(id=uuid.uuid4().hex, name="")
        body = requests.body_object(req, "endpoint_group")

        def create(content: Content) -> None:
            if len(content.endpoint_groups) >= MAX_GROUPS:
                raise exceptions.Forbidden(f"There are at most {MAX_GROUPS} endpoint groups. Delete the unused ones.")
            _set(req, content, made, {"name": None, "filters": None} | body)
            content.endpoint_groups.append(made)

        self._change(create)
        return Response({"endpoint_group": _group_view(made, req.base_url)}, 201)

    def show_endpoint_group(self, req: ServiceRequest, id: str) -> Response:
        return Response({"endpoint_group": _group_view(_group(self.authority.content, id), req.base_url)})

    def update_endpoint_group(self, req: ServiceRequest, id: str) -> Response:
        body = requests.body_object(req, "endpoint_group")

        def update(content: Content) -> EndpointGroup:
            group = _group(content, id)
            _set(req, content, group, body)
            return group

        return Response({"endpoint_group": _group_view(self._change(update), req.base_url)})

    def delete_endpoint_group(self, req: ServiceRequest, id: str) -> Response:
        self._change(lambda content: content.endpoint_groups.remove(_group(content, id)))
        return Response(status=204)

    def endpoints_of_group(self, req: ServiceRequest, id: str) -> Response:
        content = self.authority.content
        found = self.service_catalog.in_group(content, _group(content, id))
        shown = [views.linked(item, req.base_url, "endpoints") for item in found]
        return listing.listed(req, "endpoints", shown, f"{_GROUPS}/{id}/endpoints")

    def projects_of_group(self, req: ServiceRequest, id: str) -> Response:
        content = self.authority.content
        projects = (content.project(project_id) for project_id in _group(content, id).project_ids)
        return _projects(req, [project for project in projects if project is not None])

    def check_endpoint_group(self, req: ServiceRequest, id: str, project_id: str) -> Response:
        group, project = _both(self.authority.content, id, project_id)
        if project.id not in group.project_ids:
            raise exceptions.NotFound(f"Project {project.name} does not have the endpoint group {group.name}.")
        return Response({"endpoint_group": _group_view(group, req.base_url)})

    def add_endpoint_group(self, req: ServiceRequest, id: str, project_id: str) -> Response:
        def add(content: Content) -> None:
            group, project = _both(content, id, project_id)
            if project.id not in group.project_ids:
                group.project_ids.append(project.id)

        self._change(add)
        return Response(status=204)

    def remove_endpoint_group(self, req: ServiceRequest, id: str, project_id: str) -> Response:
        def remove(content: Content) -> None:
            group, project = _both(content, id, project_id)
            if project.id not in group.project_ids:
                raise exceptions.NotFound(f"Project {project.name} does not have the endpoint group {group.name}.")
            group.project_ids.remove(project.id)

        self._change(remove)
        return Response(status=204)

    # --- projects

    def groups_of_project(self, req: ServiceRequest, project_id: str) -> Response:
        content = self.authority.content
        project = _project(content, project_id)
        groups = [group for group in content.endpoint_groups if project.id in group.project_ids]
        return listing.listed(req, "endpoint_groups", [_group_view(group, req.base_url) for group in groups], _GROUPS)

    def endpoints_of_project(self, req: ServiceRequest, project_id: str) -> Response:
        content = self.authority.content
        wanted = self.service_catalog.filtered(content, _project(content, project_id).id) or set()
        found = [item for item in self.service_catalog.all_endpoints(content) if item["id"] in wanted]
        shown = [views.linked(item, req.base_url, "endpoints") for item in found]
        return listing.listed(req, "endpoints", shown, _PROJECT.format(project_id=project_id) + "/endpoints")

    def projects_of_endpoint(self, req: ServiceRequest, endpoint_id: str) -> Response:
        content = self.authority.content
        self._endpoint_id(content, endpoint_id)
        return _projects(req, [project for project in content.projects if endpoint_id in project.endpoint_ids])

    def check_endpoint(self, req: ServiceRequest, project_id: str, endpoint_id: str) -> Response:
        _has(_project(self.authority.content, project_id), endpoint_id)
        return Response(status=204)

    def add_endpoint(self, req: ServiceRequest, project_id: str, endpoint_id: str) -> Response:
        def add(content: Content) -> None:
            project = _project(content, project_id)
            self._endpoint_id(content, endpoint_id)
            if endpoint_id not in project.endpoint_ids:
                project.endpoint_ids.append(endpoint_id)

        self._change(add)
        return Response(status=204)

    def remove_endpoint(self, req: ServiceRequest, project_id: str, endpoint_id: str) -> Response:
        def remove(content: Content) -> None:
            project = _project(content, project_id)
            _has(project, endpoint_id)
            project.endpoint_ids.remove(endpoint_id)

        self._change(remove)
        return Response(status=204)

    def _endpoint_id(self, content: Content, id: str) -> None:
        """Raise `NotFound` unless the catalog has this endpoint."""
        known = (item["id"] for item in self.service_catalog.all_endpoints(content))
        requests.require("endpoint", id, id if id in known else None)

    def _change(self, function: Callable[[Content], T]) -> T:
        return self.authority.replica.change(function)


def _group(content: Content, id: str) -> EndpointGroup:
    return requests.require("endpoint group", id, content.find(EndpointGroup, id))


def _project(content: Content, id: str) -> Project:
    return requests.require("project", id, content.project(id))


def _both(content: Content, id: str, project_id: str) -> tuple[EndpointGroup, Project]:
    return _group(content, id), _project(content, project_id)


def _has(project: Project, endpoint_id: str) -> None:
    if endpoint_id not in project.endpoint_ids:
        raise exceptions.NotFound(f"Project {project.name} does not have the endpoint {endpoint_id[:64]}.")


def _set(req: ServiceRequest, content: Content, changed: EndpointGroup, body: dict[str, Any]) -> None:
    if "name" in body:
        changed.name = directory.check_name("endpoint group", requests.text_field(body, "name"))
        if any(group.name == changed.name and group.id != changed.id for group in content.endpoint_groups):
            raise exceptions.Conflict(f"Endpoint group {changed.name} already exists.")
    if "description" in body:
        changed.description = None if body["description"] is None else requests.text_field(body, "description")
    if "filters" in body:
        changed.filters = _filters(requests.object_field(body, "filters"))
    changed.extra = requests.attributes(req, "endpoint_group", _FIELDS, changed.extra)


def _filters(given: dict[str, Any]) -> dict[str, str]:
    """Return the filters. Without any, the group has all endpoints."""
    is_known = all(name in FILTERS and isinstance(value, str) for name, value in given.items())
    if not is_known or given.get("interface", INTERFACES[0]) not in INTERFACES:
        raise exceptions.ValidationError(
            detail=f"Filters of an endpoint group are texts for some of {', '.join(FILTERS)}. An interface is one of "
            f"{', '.join(INTERFACES)}."
        )
    return given


def _projects(req: ServiceRequest, projects: list[Project]) -> Response:
    shown = [views.project(project, req.base_url) for project in projects]
    return listing.listed(req, "projects", shown, req.path_info)


def _group_view(group: EndpointGroup, base_url: str) -> dict[str, Any]:
    shown = requests.attribute_values(group.extra) | {
        name: getattr(group, name) for name in ("id", "name", "description", "filters")
    }
    return shown | {"links": {"self": f"{base_url}{_GROUPS}/{group.id}"}}
