"""Making and deleting projects and users over the identity API: by admins, where it may write the users file."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from typing import Any, TypeVar

from nova_lite.api.http.rest import Request, Route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.identity import directory, views
from nova_lite.api.identity.authority import Authority
from nova_lite.api.identity.directory import DOMAIN_ID, ROLES, Project, User, UsersFile, role_id
from nova_lite.base import exceptions
from nova_lite.policies import identity as policies

T = TypeVar("T")


class Changes:
    """Handlers for `IdentityApp`."""

    authority: Authority
    routes: tuple[Route, ...] = (
        Route("POST", "/v3/projects", "create_project", policies.PROJECTS_CREATE),
        Route("PATCH", "/v3/projects/{id}", "update_project", policies.PROJECTS_UPDATE),
        Route("DELETE", "/v3/projects/{id}", "delete_project", policies.PROJECTS_DELETE),
        Route("POST", "/v3/users", "create_user", policies.USERS_CREATE),
        Route("PATCH", "/v3/users/{id}", "update_user", policies.USERS_UPDATE),
        Route("POST", "/v3/users/{id}/password", "change_password", policies.CHANGE_PASSWORD, {"user_id": "id"}),
        Route("DELETE", "/v3/users/{id}", "delete_user", policies.USERS_DELETE),
        Route("PUT", "/v3/projects/{project_id}/users/{user_id}/roles/{role}", "grant", policies.ROLES_GRANT),
        Route("DELETE", "/v3/projects/{project_id}/users/{user_id}/roles/{role}", "revoke_role", policies.ROLES_REVOKE),
    )

    def create_project(self, req: Request) -> Response:
        wanted = _wanted(req, "project", name=str, description=str | None)
        with self._changing() as content:
            made = directory.add_project(content, wanted["name"], wanted["description"] or "")
        return Response({"project": views.project(made, req.base_url)}, 201)

    def update_project(self, req: Request, id: str) -> Response:
        wanted = _said(req, "project", name=str, description=str | None, enabled=bool)
        with self._changing() as content:
            project = _project(content, id)
            if "name" in wanted:
                directory.rename(content, "project", project, wanted["name"])
            project.description = wanted.get("description", project.description) or ""
            project.enabled = wanted.get("enabled", project.enabled)
        return Response({"project": views.project(project, req.base_url)})

    def delete_project(self, req: Request, id: str) -> Response:
        """What the project has stays: servers are for admins to delete."""
        with self._changing() as content:
            directory.remove_project(content, _project(content, id))
        return Response(status=204)

    def create_user(self, req: Request) -> Response:
        wanted = _wanted(req, "user", name=str, password=str | None, default_project_id=str | None)
        with self._changing() as content:
            project_id = wanted["default_project_id"]
            project = _project(content, project_id) if project_id is not None else None
            made = directory.add_user(content, wanted["name"], wanted["password"], project)
        return Response({"user": views.user(made, req.base_url)}, 201)

    def update_user(self, req: Request, id: str) -> Response:
        wanted = _said(req, "user", name=str, password=str, enabled=bool, default_project_id=str | None)
        with self._changing() as content:
            user = _user(content, id)
            if "name" in wanted:
                directory.rename(content, "user", user, wanted["name"])
            if wanted.get("default_project_id") is not None:
                _project(content, wanted["default_project_id"])
            user.default_project_id = wanted.get("default_project_id", user.default_project_id)
            user.enabled = wanted.get("enabled", user.enabled)
            if "password" in wanted:
                directory.set_password(user, wanted["password"])
        return Response({"user": views.user(user, req.base_url)})

    def change_password(self, req: Request, id: str) -> Response:
        """One's own, by who knows the old one."""
        wanted = _wanted(req, "user", password=str, original_password=str)
        self.authority.by_password(wanted["original_password"], req.remote_addr or "", user_id=id)
        with self._changing() as content:
            directory.set_password(_user(content, id), wanted["password"])
        return Response(status=204)

    def delete_user(self, req: Request, id: str) -> Response:
        with self._changing() as content:
            content.users.remove(_user(content, id))
        return Response(status=204)

    def grant(self, req: Request, project_id: str, user_id: str, role: str) -> Response:
        with self._changing() as content:
            directory.grant(_user(content, user_id), _project(content, project_id), _role(role))
        return Response(status=204)

    def revoke_role(self, req: Request, project_id: str, user_id: str, role: str) -> Response:
        with self._changing() as content:
            directory.revoke(_user(content, user_id), _project(content, project_id), _role(role))
        return Response(status=204)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[UsersFile]:
        try:
            with self.authority.directory.changing() as content:
                yield content
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
            raise exceptions.Forbidden(
                "Projects and users are made with nova-lite-manage here: the identity API may not write its users file."
            ) from error


def _wanted(req: Request, kind: str, **fields: Any) -> dict[str, Any]:
    """The fields of the body's object; those that may be None may be left out. Others are nobody's, as in Keystone."""
    body = _body(req, kind)
    return {name: _checked(kind, name, body.get(name), type_) for name, type_ in fields.items()}


def _said(req: Request, kind: str, **fields: Any) -> dict[str, Any]:
    """Those of the fields that are in the body's object."""
    body = _body(req, kind)
    return {name: _checked(kind, name, body[name], type_) for name, type_ in fields.items() if name in body}


def _body(req: Request, kind: str) -> dict[str, Any]:
    body = req.json_object().get(kind)
    if not isinstance(body, dict):
        raise exceptions.ValidationError(detail=f"Expecting to find {kind} in the request, as an object.")
    if body.get("domain_id", DOMAIN_ID) != DOMAIN_ID:
        raise exceptions.NotFound(f"Could not find domain: {str(body['domain_id'])[:64]}.")
    return body


def _checked(kind: str, name: str, value: Any, type_: Any) -> Any:
    if not isinstance(value, type_):
        form = "boolean" if type_ is bool else "string"
        raise exceptions.ValidationError(detail=f"Expecting to find {name} in the {kind}, as a {form}.")
    return value


def _project(content: UsersFile, project_id: str) -> Project:
    return found("project", project_id, content.project(project_id))


def _user(content: UsersFile, user_id: str) -> User:
    return found("user", user_id, content.user(user_id))


def _role(wanted: str) -> str:
    return found("role", wanted, next((name for name in ROLES if role_id(name) == wanted), None))


def found(kind: str, id: str, item: T | None) -> T:
    if item is None:
        raise exceptions.NotFound(f"Could not find {kind}: {id[:64]}.")
    return item
