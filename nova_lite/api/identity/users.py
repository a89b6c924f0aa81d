"""Changes of users over the identity API, by admins. `nova-lite-manage user` does the same."""

from __future__ import annotations

import time
from typing import Any

from nova_lite.api.http.bodies import changed
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.identity import directory, requests, views
from nova_lite.api.identity.content import Content
from nova_lite.api.identity.records import User
from nova_lite.api.identity.requests import Extensible, Flag, Open, Password, String, Text, UserOptions
from nova_lite.api.identity.resource import IdentityResource
from nova_lite.api.identity.views import View
from nova_lite.base import exceptions
from nova_lite.policies import identity as policies


class NewUser(Extensible, kw_only=True):
    shown = (*Extensible.shown, "original_password", "password_expires_at", "federated")
    name: String
    password: Password = None
    default_project_id: Text = None
    enabled: Flag = True
    email: Text = None
    description: Text = None
    domain_id: Text = None
    options: UserOptions = {}


class NewPassword(Open):
    password: String
    original_password: String


class Users(IdentityResource):
    """Users."""

    @route("GET", "/v3/users", policies.USERS_LIST, response="users")
    def index(self, req: ServiceRequest) -> Response:
        self.authority.read_directory("users", req.GET.get("domain_id"), req.GET.get("name"))
        return self.listed(req, (views.user(user, req.base_url) for user in self.content.users))

    @route("GET", "/v3/users/{id}", policies.USERS_SHOW, target={"user_id": "id"}, response="user")
    def show(self, req: ServiceRequest, id: str) -> View:
        return views.user(requests.user(self.content, id), req.base_url)

    @route("POST", "/v3/users", policies.USERS_CREATE, body=NewUser, key="user", status=201)
    def create(self, req: ServiceRequest) -> View:
        body, more = requests.read(req, NewUser), requests.attributes(req)
        password = directory.new_password(body.password, self.authority.hash_cost)

        def create(content: Content) -> User:
            project_id = body.default_project_id
            project = requests.project(content, project_id) if project_id is not None else None
            domain_id = requests.domain_id(content, body.domain_id)
            self.authority.check_ours(content, domain_id)
            user = directory.add_user(content, body.name, password, project, domain_id)
            user.enabled, user.email, user.description, user.extra = body.enabled, body.email, body.description, more
            _set_options(user, body.options)
            return user

        return views.user(self.change(create), req.base_url)

    @route("PATCH", "/v3/users/{id}", policies.USERS_UPDATE, body=changed(NewUser), key="user")
    def update(self, req: ServiceRequest, id: str) -> View:
        fields = requests.changes(req)
        password = (
            directory.new_password(fields["password"], self.authority.hash_cost) if "password" in fields else None
        )

        def update(content: Content) -> User:
            user = requests.user(content, id)
            requests.check_domain(user, fields)
            if {"name", "password", "email"} & set(fields):
                self.authority.check_ours(content, user.domain_id, user)
            if "name" in fields:
                directory.rename(content, "user", user, fields["name"])
            if fields.get("default_project_id") is not None:
                requests.project(content, fields["default_project_id"])
            user.default_project_id = fields.get("default_project_id", user.default_project_id)
            user.email, user.description = fields.get("email", user.email), fields.get("description", user.description)
            user.extra = requests.attributes(req, user.extra)
            directory.set_enabled(content, user, fields.get("enabled", user.enabled))
            _set_options(user, fields.get("options", {}))
            if password is not None:
                directory.set_password(user, password)
            return user

        return views.user(self.change(update), req.base_url)

    @route(
        "POST",
        "/v3/users/{id}/password",
        policies.CHANGE_PASSWORD,
        target={"user_id": "id"},
        body=NewPassword,
        key="user",
        status=204,
    )
    def change_password(self, req: ServiceRequest, id: str) -> None:
        """Change a user's own password. The request contains the old one."""
        body = requests.read(req, NewPassword)
        found = self.content.user(id)
        if found is not None and found.options.get("lock_password"):
            raise exceptions.Forbidden("The password of this user is locked. Only an admin can change it.")
        self.authority.by_password(body.original_password, req.remote_addr or "", user_id=id)
        content = self.content
        self.authority.check_ours(content, "", requests.user(content, id))
        password = directory.new_password(body.password, self.authority.hash_cost)
        self.change(lambda content: directory.set_password(requests.user(content, id), password))

    @route("DELETE", "/v3/users/{id}", policies.USERS_DELETE, status=204)
    def delete(self, req: ServiceRequest, id: str) -> None:
        self.change(lambda content: directory.remove_user(content, requests.user(content, id)))


def _set_options(user: User, options: dict[str, Any]) -> None:
    """Set options of a user. None resets an option.

    Rules of log-in that begin, or change, end the user's tokens: these were made without the rules.
    """
    before = user.mfa_methods
    given = {name: options.get(name, user.options.get(name)) for name in (requests.MFA, *requests.OPTIONS)}
    user.options = {name: value for name, value in given.items() if value is not None}
    if requests.MFA in options:
        user.mfa_enabled = bool(options[requests.MFA])
    if "multi_factor_auth_rules" in options:
        user.mfa_rules = options["multi_factor_auth_rules"] or []
    if user.mfa_methods and user.mfa_methods != before:
        user.tokens_valid_from = time.time()
