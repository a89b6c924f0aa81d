"""Making and deleting projects and users over the identity API: by admins, where it may write the users file."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from typing import Any, TypeVar

from nova_lite import exception
from nova_lite.api.identity import directory, views
from nova_lite.api.identity.authority import Authority
from nova_lite.api.identity.directory import DOMAIN_ID, ROLES, Content, Project, User, role_id
from nova_lite.api.rest import Request, Route
from nova_lite.api.wsgi import Answer
from nova_lite.policies import identity as policies

T = TypeVar("T")


class Changes:
    """Handlers for `IdentityApp`."""

    authority: Authority
    routes: tuple[Route, ...] = (
        Route("POST", "/v3/projects", "create_project", policies.PROJECTS_CREATE),
        Route("DELETE", "/v3/projects/{id}", "delete_project", policies.PROJECTS_DELETE),
        Route("POST", "/v3/users", "create_user", policies.USERS_CREATE),
        Route("DELETE", "/v3/users/{id}", "delete_user", policies.USERS_DELETE),
        Route("PUT", "/v3/projects/{project_id}/users/{user_id}/roles/{role}", "grant", policies.ROLES_GRANT),
        Route("DELETE", "/v3/projects/{project_id}/users/{user_id}/roles/{role}", "revoke_role", policies.ROLES_REVOKE),
    )

    def create_project(self, req: Request) -> Answer:
        wanted = _wanted(req, "project", name=str, description=str | None)
        with self._changing() as content:
            made = directory.add_project(content, wanted["name"], wanted["description"] or "")
        return Answer({"project": views.project(made, req.base_url)}, 201)

    def delete_project(self, req: Request, id: str) -> Answer:
        """What the project has stays: servers are for admins to delete."""
        with self._changing() as content:
            directory.remove_project(content, _project(content, id))
        return Answer(status=204)

    def create_user(self, req: Request) -> Answer:
        wanted = _wanted(req, "user", name=str, password=str, default_project_id=str | None)
        with self._changing() as content:
            project_id = wanted["default_project_id"]
            project = _project(content, project_id) if project_id is not None else None
            made = directory.add_user(content, wanted["name"], wanted["password"], project)
        return Answer({"user": views.user(made, req.base_url)}, 201)

    def delete_user(self, req: Request, id: str) -> Answer:
        with self._changing() as content:
            content.users.remove(_user(content, id))
        return Answer(status=204)

    def grant(self, req: Request, project_id: str, user_id: str, role: str) -> Answer:
        with self._changing() as content:
            directory.grant(_user(content, user_id), _project(content, project_id), _role(role))
        return Answer(status=204)

    def revoke_role(self, req: Request, project_id: str, user_id: str, role: str) -> Answer:
        with self._changing() as content:
            directory.revoke(_user(content, user_id), _project(content, project_id), _role(role))
        return Answer(status=204)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[Content]:
        try:
            with self.authority.directory.changing() as content:
                yield content
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
            raise exception.Forbidden(
                "Projects and users are made with nova-lite-manage here: the identity API may not write its users file."
            ) from error


def _wanted(req: Request, kind: str, **fields: Any) -> dict[str, Any]:
    """The fields of the body's object; those that may be None may be left out. Others are nobody's, as in Keystone."""
    body = req.json_object().get(kind)
    if not isinstance(body, dict):
        raise exception.ValidationError(detail=f"Expecting to find {kind} in the request, as an object.")
    if body.get("domain_id", DOMAIN_ID) != DOMAIN_ID:
        raise exception.NotFound(f"Could not find domain: {str(body['domain_id'])[:64]}.")
    for name, type_ in fields.items():
        if not isinstance(body.get(name), type_):
            raise exception.ValidationError(detail=f"Expecting to find {name} in the {kind}, as a string.")
    return {name: body.get(name) for name in fields}


def _project(content: Content, project_id: str) -> Project:
    return found("project", project_id, content.project(project_id))


def _user(content: Content, user_id: str) -> User:
    return found("user", user_id, content.user(user_id))


def _role(wanted: str) -> str:
    return found("role", wanted, next((name for name in ROLES if role_id(name) == wanted), None))


def found(kind: str, id: str, item: T | None) -> T:
    if item is None:
        raise exception.NotFound(f"Could not find {kind}: {id[:64]}.")
    return item
