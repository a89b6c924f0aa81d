"""Changes of projects, users and roles over the identity API, by admins.

They need write access to the users file. `nova-lite-manage user` and `nova-lite-manage project` do the same.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

from nova_lite.api.http.rest import ServiceRequest, ServiceRoute
from nova_lite.api.http.wsgi import Response
from nova_lite.api.identity import directory, requests, views
from nova_lite.api.identity.authority import Authority
from nova_lite.api.identity.directory import ROLES, Project, User, UsersFile, role_id
from nova_lite.base import exceptions
from nova_lite.policies import identity as policies


class IdentityManagement:
    """Mixin of `IdentityApp`: the handlers that change the users file."""

    authority: Authority
    routes: tuple[ServiceRoute, ...] = (
        ServiceRoute("POST", "/v3/projects", "create_project", policies.PROJECTS_CREATE),
        ServiceRoute("PATCH", "/v3/projects/{id}", "update_project", policies.PROJECTS_UPDATE),
        ServiceRoute("DELETE", "/v3/projects/{id}", "delete_project", policies.PROJECTS_DELETE),
        ServiceRoute("POST", "/v3/users", "create_user", policies.USERS_CREATE),
        ServiceRoute("PATCH", "/v3/users/{id}", "update_user", policies.USERS_UPDATE),
        ServiceRoute("POST", "/v3/users/{id}/password", "change_password", policies.CHANGE_PASSWORD, {"user_id": "id"}),
        ServiceRoute("DELETE", "/v3/users/{id}", "delete_user", policies.USERS_DELETE),
        ServiceRoute("PUT", "/v3/projects/{project_id}/users/{user_id}/roles/{role}", "grant", policies.ROLES_GRANT),
        ServiceRoute(
            "DELETE", "/v3/projects/{project_id}/users/{user_id}/roles/{role}", "revoke_role", policies.ROLES_REVOKE
        ),
    )

    def create_project(self, req: ServiceRequest) -> Response:
        fields = requests.create_fields(req, "project", name=str, description=str | None)
        with self._users_file() as content:
            project = directory.add_project(content, fields["name"], fields["description"] or "")
        return Response({"project": views.project(project, req.base_url)}, 201)

    def update_project(self, req: ServiceRequest, id: str) -> Response:
        fields = requests.update_fields(req, "project", name=str, description=str | None, enabled=bool)
        with self._users_file() as content:
            project = _project(content, id)
            if "name" in fields:
                directory.rename(content, "project", project, fields["name"])
            project.description = fields.get("description", project.description) or ""
            directory.set_enabled(project, fields.get("enabled", project.enabled))
        return Response({"project": views.project(project, req.base_url)})

    def delete_project(self, req: ServiceRequest, id: str) -> Response:
        """Delete the project, but not its servers and other resources. An admin deletes those."""
        with self._users_file() as content:
            directory.remove_project(content, _project(content, id))
        return Response(status=204)

    def create_user(self, req: ServiceRequest) -> Response:
        fields = requests.create_fields(req, "user", name=str, password=str | None, default_project_id=str | None)
        with self._users_file() as content:
            project_id = fields["default_project_id"]
            project = _project(content, project_id) if project_id is not None else None
            user = directory.add_user(content, fields["name"], fields["password"], project)
        return Response({"user": views.user(user, req.base_url)}, 201)

    def update_user(self, req: ServiceRequest, id: str) -> Response:
        fields = requests.update_fields(
            req, "user", name=str, password=str, enabled=bool, default_project_id=str | None
        )
        with self._users_file() as content:
            user = _user(content, id)
            if "name" in fields:
                directory.rename(content, "user", user, fields["name"])
            if fields.get("default_project_id") is not None:
                _project(content, fields["default_project_id"])
            user.default_project_id = fields.get("default_project_id", user.default_project_id)
            directory.set_enabled(user, fields.get("enabled", user.enabled))
            if "password" in fields:
                directory.set_password(user, fields["password"])
        return Response({"user": views.user(user, req.base_url)})

    def change_password(self, req: ServiceRequest, id: str) -> Response:
        """Change a user's own password. The request contains the old one."""
        fields = requests.create_fields(req, "user", password=str, original_password=str)
        self.authority.by_password(fields["original_password"], req.remote_addr or "", user_id=id)
        with self._users_file() as content:
            directory.set_password(_user(content, id), fields["password"])
        return Response(status=204)

    def delete_user(self, req: ServiceRequest, id: str) -> Response:
        with self._users_file() as content:
            content.users.remove(_user(content, id))
        return Response(status=204)

    def grant(self, req: ServiceRequest, project_id: str, user_id: str, role: str) -> Response:
        with self._users_file() as content:
            directory.grant(_user(content, user_id), _project(content, project_id), _role(role))
        return Response(status=204)

    def revoke_role(self, req: ServiceRequest, project_id: str, user_id: str, role: str) -> Response:
        with self._users_file() as content:
            directory.revoke(_user(content, user_id), _project(content, project_id), _role(role))
        return Response(status=204)

    @contextlib.contextmanager
    def _users_file(self) -> Iterator[UsersFile]:
        """Open the users file for a change. Raises `Forbidden` if this process may not write it."""
        try:
            with self.authority.directory.changing() as content:
                yield content
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
            raise exceptions.Forbidden(
                "The identity API has no write access to its users file. Use nova-lite-manage to change projects and "
                "users."
            ) from error


def _project(content: UsersFile, project_id: str) -> Project:
    return requests.require("project", project_id, content.project(project_id))


def _user(content: UsersFile, user_id: str) -> User:
    return requests.require("user", user_id, content.user(user_id))


def _role(id: str) -> str:
    return requests.require("role", id, next((name for name in ROLES if role_id(name) == id), None))
