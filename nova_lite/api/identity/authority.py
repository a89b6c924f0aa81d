"""Log-in: turns a password or a token into a user in a project with roles."""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
from typing import NamedTuple

from oslo_config import cfg

from nova_lite.api.identity import passwords
from nova_lite.api.identity.directory import Directory, Project, User, UsersFile, implied
from nova_lite.api.identity.throttle import PasswordThrottle
from nova_lite.api.identity.tokens import Token, Tokens, new_token
from nova_lite.base import exceptions

LOG = logging.getLogger(__name__)

_MAX_REMEMBERED = 1000


class Identity(NamedTuple):
    """Authenticated user. Without a ``project`` the user is unscoped and has no roles."""

    user: User
    project: Project | None
    roles: list[str]


class Scope(NamedTuple):
    """Requested project, by id or name. If both are None, the user's default project."""

    project_id: str | None = None
    project_name: str | None = None


UNSCOPED = Scope("", "")


class Authority:
    """Authenticates users. Every failure raises `Unauthorized` with the same message, to hide which users exist."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self.conf = conf
        self.directory = Directory(conf.identity.users_file)
        self.tokens = Tokens(conf.identity.tokens_path, conf.identity.token_expiration)
        self._secret = os.urandom(32)
        self._valid_digests: dict[bytes, None] = {}
        self._throttle = PasswordThrottle()

    def check(self) -> None:
        """Raise `ConfigurationError` if the users file or the keys cannot be read."""
        self.directory.load()
        self.tokens.keys.fernet()

    @property
    def content(self) -> UsersFile:
        return self.directory.content

    def by_password(
        self,
        password: str,
        address: str,
        *,
        name: str | None = None,
        user_id: str | None = None,
        domain_ok: bool = True,
    ) -> User:
        """Return the user with this password. Raises `TooManyFailures` if ``address`` guesses."""
        content = self.content
        user = content.user(user_id) if user_id is not None else content.user_named(name or "")
        label = user.name if user is not None else (user_id or name or "")
        self._throttle.check(label, address)
        matches = passwords.matches(password, user.password if user is not None and domain_ok else None)
        if user is None or not matches or not user.enabled:
            self._throttle.failed(label, address)
            LOG.warning("Failed log-in as %r from %s", label[:64], address)
            raise exceptions.Unauthorized()
        self._throttle.succeeded(label, address)
        return user

    def by_basic(self, name: str, password: str, address: str) -> Identity:
        """Authenticate a request that carries a password.

        Remembers valid passwords, so that each request does not repeat the expensive check. A changed hash makes them
        invalid.
        """
        user = self.content.user_named(name)
        stored = user.password if user is not None else ""
        digest = hmac.digest(self._secret, "\0".join((name, password, stored)).encode(errors="replace"), hashlib.sha256)
        if digest not in self._valid_digests:
            self.by_password(password, address, name=name)
            if len(self._valid_digests) >= _MAX_REMEMBERED:
                self._valid_digests.clear()
            self._valid_digests[digest] = None
        if user is None or not user.enabled:
            raise exceptions.Unauthorized()
        return self.scoped(user, Scope())

    def by_token(self, text: str) -> tuple[Token, Identity]:
        """Return the token and its user. The user's current projects and roles count, not the ones at log-in."""
        token = self.tokens.open(text)
        user = self.content.user(token.user_id) if token is not None else None
        if token is None or user is None or not user.enabled:
            raise exceptions.Unauthorized()
        project = self.content.project(token.project_id) if token.project_id is not None else None
        if token.issued_at < user.revoked_before(project):
            raise exceptions.Unauthorized()
        if token.project_id is None:
            return token, Identity(user, None, [])
        return token, self.scoped(user, Scope(project_id=token.project_id))

    def scoped(self, user: User, scope: Scope) -> Identity:
        """Return the user in the requested project, or in the default project, or unscoped if there is none.

        Raises `Unauthorized` if the user has no role in a requested project.
        """
        if scope == UNSCOPED:
            return Identity(user, None, [])
        if scope == Scope():
            project = self.content.project(user.default_project_id) if user.default_project_id else None
            if project is None or not project.enabled or not user.roles.get(project.id):
                return Identity(user, None, [])
        elif scope.project_id is not None:
            project = self.content.project(scope.project_id)
        else:
            project = self.content.project_named(scope.project_name or "")
        if project is None or not project.enabled or not user.roles.get(project.id):
            raise exceptions.Unauthorized()
        return Identity(user, project, implied(user.roles[project.id]))

    def issue(self, identity: Identity, parent: Token | None = None) -> tuple[str, Token]:
        project_id = identity.project.id if identity.project is not None else None
        token = new_token(identity.user.id, project_id, self.conf.identity.token_expiration, parent)
        return self.tokens.seal(token), token
