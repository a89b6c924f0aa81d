"""Projects, their tags, and projects below others, over the identity API.

A domain is shown as a project with ``is_domain``, too, as in Keystone. `nova-lite-manage project` makes projects
directly in the default domain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any, TypeAlias

from nova_lite.api.http import validation
from nova_lite.api.http.bodies import changed, checked
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.identity import directory, domains, listing, requests, views
from nova_lite.api.identity.content import Content
from nova_lite.api.identity.records import DOMAIN_ID, Domain, Project
from nova_lite.api.identity.requests import Description, Extensible, Flag, NoOptions, Open, String, Text
from nova_lite.api.identity.resource import IdentityResource
from nova_lite.api.identity.views import View
from nova_lite.base import exceptions
from nova_lite.policies import identity as policies

#: Tags of one project.
MAX_TAGS = 80
MAX_TAG = 255

_PROJECT = {"project_id": "id"}
_TAGS = "/v3/projects/{id}/tags"
#: Filters of lists by tags.
_BY_TAGS: dict[str, Callable[[set[str], set[str]], bool]] = {
    "tags": lambda wanted, tags: wanted <= tags,
    "tags-any": lambda wanted, tags: bool(wanted & tags),
    "not-tags": lambda wanted, tags: not wanted <= tags,
    "not-tags-any": lambda wanted, tags: not wanted & tags,
}


def _tags(sent: dict[str, Any], name: str) -> list[str]:
    if name not in sent:
        raise exceptions.ValidationError(detail="Expecting to find tags in the request, as a list.")
    tags = [] if sent[name] is None else sent[name]
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags) or len(set(tags)) < len(tags):
        raise exceptions.ValidationError(detail="tags must be a list of different strings.")
    return _checked_tags(tags)


def _checked_tags(tags: Iterable[str]) -> list[str]:
    checked = list(tags)
    if len(checked) > MAX_TAGS:
        raise exceptions.ValidationError(detail=f"A project has at most {MAX_TAGS} tags.")
    if any(not 0 < len(tag) <= MAX_TAG or "/" in tag or "," in tag or not validation.is_shown(tag) for tag in checked):
        raise exceptions.ValidationError(
            detail=f"A tag has 1 to {MAX_TAG} printable characters without slash and comma."
        )
    return checked


Tags: TypeAlias = Annotated[list[str], checked(_tags, maxItems=MAX_TAGS, uniqueItems=True)]


class NewTags(Open):
    tags: Tags


class NewProject(Extensible, kw_only=True):
    shown = (*Extensible.shown, "parents", "subtree")
    name: String
    description: Description = ""
    enabled: Flag = True
    domain_id: Text = None
    parent_id: Text = None
    is_domain: Flag = False
    tags: Tags = []
    options: NoOptions = {}


class Projects(IdentityResource):
    """Projects."""

    @route("GET", "/v3/projects", policies.PROJECTS_LIST, response="projects")
    def index(self, req: ServiceRequest) -> Response:
        """List the projects, or with the filter ``is_domain`` the domains."""
        content, url = self.content, req.base_url
        if listing.is_true(req.GET.get("is_domain", "false")):
            shown = [views.domain_as_project(domain, url) for domain in content.all_domains()]
        else:
            shown = [views.project(project, url) for project in content.projects]
        return self.listed(req, _tagged(req, shown))

    @route("POST", "/v3/projects", policies.PROJECTS_CREATE, body=NewProject, key="project", status=201)
    def create(self, req: ServiceRequest) -> View:
        body, more = requests.read(req, NewProject), requests.attributes(req)
        if body.is_domain:
            return self._create_domain(req, body, more)

        def create(content: Content) -> Project:
            parent, domain_id = _place(content, body)
            project = directory.add_project(content, body.name, body.description, domain_id, parent)
            project.enabled, project.tags, project.extra = body.enabled, body.tags, more
            return project

        return views.project(self.change(create), req.base_url)

    def _create_domain(self, req: ServiceRequest, body: NewProject, more: str) -> View:
        if body.tags:
            raise exceptions.ValidationError(detail=requests.NO_TAGS)
        if body.domain_id is not None or body.parent_id is not None:
            raise exceptions.ValidationError(detail="A project that is a domain is in no domain and no other project.")
        domain = self.change(lambda content: domains.add(content, body.name, body.description, body.enabled, more))
        return views.domain_as_project(domain, req.base_url)

    @route("GET", "/v3/projects/{id}", policies.PROJECTS_SHOW, target=_PROJECT, response="project")
    def show(self, req: ServiceRequest, id: str) -> View:
        """Show a project or domain. The query may ask for what is above or below."""
        content = self.content
        project = content.project(id)
        if project is None:
            domain = requests.require("project", id, content.domain(id))
            return views.domain_as_project(domain, req.base_url)
        shown = views.project(project, req.base_url)
        for name in ("parents", "subtree"):
            by = {form for form in ("list", "ids") if f"{name}_as_{form}" in req.GET}
            if len(by) > 1:
                raise exceptions.ValidationError(detail=f"Specify {name}_as_list or {name}_as_ids, but not both.")
            if "list" in by:
                found = content.below(id) if name == "subtree" else _parents(content, project)
                visible = (item for item in found if self._may_see(req, item))
                shown[name] = [{"project": views.project(item, req.base_url)} for item in visible]
            elif by:
                shown[name] = _ids_below(content, id) if name == "subtree" else _nested(content.above(id))
        return shown

    def _may_see(self, req: ServiceRequest, project: Project) -> bool:
        """Check whether the caller may see a project above or below that of the request."""
        content = self.content
        user = content.user(str(req.context.user_id))
        has_role = user is not None and bool(content.roles_of(user, project.id))
        return has_role or req.allows(policies.PROJECTS_SHOW, {"project_id": project.id})

    @route("PATCH", "/v3/projects/{id}", policies.PROJECTS_UPDATE, body=changed(NewProject), key="project")
    def update(self, req: ServiceRequest, id: str) -> View:
        fields = requests.changes(req)

        def update(content: Content) -> dict[str, Any]:
            item = _changeable(content, id)
            is_domain = isinstance(item, Domain)
            if fields.get("is_domain", is_domain) != is_domain:
                raise exceptions.ValidationError(detail="Cannot change is_domain of a project.")
            if isinstance(item, Domain):
                if fields.get("tags"):
                    raise exceptions.ValidationError(detail=requests.NO_TAGS)
                if "name" in fields:
                    directory.rename_domain(content, item, fields["name"])
            else:
                requests.check_domain(item, fields)
                if fields.get("parent_id", item.parent_id) not in (item.parent_id, item.parent_id or item.domain_id):
                    raise exceptions.Forbidden("Cannot move a project below another one.")
                if "name" in fields:
                    directory.rename(content, "project", item, fields["name"])
                item.tags = fields.get("tags", item.tags)
            item.description = fields.get("description", item.description)
            item.extra = requests.attributes(req, item.extra)
            directory.set_enabled(content, item, fields.get("enabled", item.enabled))
            return views.any_project(item, req.base_url)

        return self.change(update)

    @route("DELETE", "/v3/projects/{id}", policies.PROJECTS_DELETE, status=204)
    def delete(self, req: ServiceRequest, id: str) -> None:
        """Delete the project, but not its servers and other resources. An admin deletes those."""

        def delete(content: Content) -> None:
            item = _changeable(content, id)
            if isinstance(item, Domain):
                directory.remove_domain(content, item)
            else:
                directory.check_leaf(content, item)
                directory.remove_project(content, item)

        self.change(delete)


class ProjectTags(IdentityResource):
    """Tags of projects."""

    @route("GET", _TAGS, policies.TAGS_LIST, target=_PROJECT, response="tags")
    def index(self, req: ServiceRequest, id: str) -> Response:
        return _shown_tags(req, id, requests.project(self.content, id).tags)

    @route("PUT", _TAGS, policies.TAGS_UPDATE, body=NewTags, response="tags")
    def replace(self, req: ServiceRequest, id: str) -> Response:
        tags = requests.read(req, NewTags).tags
        self._change_tags(id, lambda project: tags)
        return _shown_tags(req, id, tags)

    @route("DELETE", _TAGS, policies.TAGS_DELETE, status=204)
    def clear(self, req: ServiceRequest, id: str) -> None:
        self._change_tags(id, lambda project: [])

    @route("GET", f"{_TAGS}/{{tag}}", policies.TAG_SHOW, target=_PROJECT, status=204)
    def show(self, req: ServiceRequest, id: str, tag: str) -> None:
        requests.require("tag", tag, tag if tag in requests.project(self.content, id).tags else None)

    @route("PUT", f"{_TAGS}/{{tag}}", policies.TAG_CREATE, status=201)
    def add(self, req: ServiceRequest, id: str, tag: str) -> Response:
        self._change_tags(id, lambda project: _checked_tags(dict.fromkeys([*project.tags, tag])))
        location = f"{req.base_url}{_TAGS.format(id=id)}/{tag}"
        return Response(status=201, headers={"Location": location} if location.isascii() else {})

    @route("DELETE", f"{_TAGS}/{{tag}}", policies.TAG_DELETE, status=204)
    def delete(self, req: ServiceRequest, id: str, tag: str) -> None:
        def without(project: Project) -> list[str]:
            requests.require("tag", tag, tag if tag in project.tags else None)
            return [other for other in project.tags if other != tag]

        self._change_tags(id, without)

    def _change_tags(self, id: str, function: Callable[[Project], list[str]]) -> None:
        def change(content: Content) -> None:
            project = requests.project(content, id)
            project.tags = function(project)

        self.change(change)


def _changeable(content: Content, id: str) -> Project | Domain:
    if id == DOMAIN_ID:
        raise exceptions.Forbidden("The default domain cannot be changed.")
    project = content.project(id)
    return project if project is not None else requests.require("project", id, content.find(Domain, id))


def _place(content: Content, body: NewProject) -> tuple[Project | None, str]:
    """Return the project above a new one, or None, and the id of its domain."""
    parent_id, domain_id = body.parent_id, body.domain_id
    if parent_id is None:
        return None, requests.domain_id(content, domain_id)
    parent = content.project(parent_id)
    found = (
        parent.domain_id if parent is not None else requests.require("project", parent_id, content.domain(parent_id)).id
    )
    if domain_id not in (None, found):
        raise exceptions.ValidationError(detail="A project is in the domain of the project above it.")
    return parent, found


def _parents(content: Content, project: Project) -> list[Project]:
    """Return the projects above a project, the nearest first."""
    return [parent for id in content.above(project.id) if (parent := content.project(id)) is not None]


def _nested(ids: list[str]) -> dict[str, Any] | None:
    """Return ids, the nearest first, as objects in each other."""
    return {ids[0]: _nested(ids[1:])} if ids else None


def _ids_below(content: Content, id: str) -> dict[str, Any] | None:
    """Return the ids of the projects below a project as objects in each other."""
    below = [project for project in content.below(id) if project.parent_id is not None]
    objects: dict[str, dict[str, Any]] = {}
    for project in below:
        objects.setdefault(str(project.parent_id), {})[project.id] = None
    for project in reversed(below):  # the lowest first
        objects[str(project.parent_id)][project.id] = objects.get(project.id)
    return objects.get(id)


# --- tags


def _tagged(req: ServiceRequest, shown: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the projects that match the filters by tags in the query."""
    for name, matches in _BY_TAGS.items():
        if name in req.GET:
            wanted = set(req.GET[name].split(","))
            shown = [item for item in shown if matches(wanted, set(item["tags"]))]
    return shown


def _shown_tags(req: ServiceRequest, id: str, tags: list[str]) -> Response:
    return Response({"tags": tags, "links": listing.links(req.base_url + _TAGS.format(id=id))})
