"""Log-in: turns a password or a token into a user in a project with roles."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import NamedTuple

from oslo_config import cfg

from nova_lite.api.http import wsgi
from nova_lite.api.identity import credential_box, domain_directory, one_time_codes, passwords, users_file
from nova_lite.api.identity.conductor_store import ConductorStore
from nova_lite.api.identity.content import Content
from nova_lite.api.identity.domain_directory import DomainDirectory
from nova_lite.api.identity.oidc import OidcTokens
from nova_lite.api.identity.records import (
    DOMAIN_NAME,
    SYSTEM,
    ApplicationCredential,
    Credential,
    Domain,
    Group,
    Project,
    Role,
    System,
    Trust,
    User,
)
from nova_lite.api.identity.replica import Replica
from nova_lite.api.identity.throttle import PasswordThrottle
from nova_lite.api.identity.tokens import Token, Tokens, new_token
from nova_lite.base import exceptions
from nova_lite.compute.api import API
from nova_lite.rpcapi.conductor import ConductorRPC

LOG = logging.getLogger(__name__)

_MAX_REMEMBERED = 1000

#: Key of a request's environment: the application credential that limits the caller's token, or None.
CREDENTIAL = "nova_lite.application_credential"
#: The same for the trust that the caller's token is of.
TRUST = "nova_lite.trust"


class DomainName(NamedTuple):
    """Domain in a request, by id or name. If both are None, the default domain."""

    id: str | None = None
    name: str | None = None

    def find(self, content: Content) -> Domain | None:
        if self.id is not None:
            return content.domain(self.id)
        return content.domain_named(DOMAIN_NAME if self.name is None else self.name)


class Identity(NamedTuple):
    """Authenticated user. Without a ``project``, ``domain`` or ``system`` the user is unscoped and has no roles.
    ``credential`` or ``trust`` limits them.
    """

    user: User
    project: Project | None
    roles: list[Role]
    credential: ApplicationCredential | None = None
    trust: Trust | None = None
    domain: Domain | None = None
    system: System | None = None

    @property
    def role_names(self) -> list[str]:
        return [role.name for role in self.roles]


class Scope(NamedTuple):
    """Requested project, by id or name, or trust, or domain, or the system. Without any, the user's default project.

    ``project_domain``: the domain of a project that is requested by name.
    """

    project_id: str | None = None
    project_name: str | None = None
    trust_id: str | None = None
    domain: DomainName | None = None
    project_domain: DomainName | None = None
    system: bool = False


UNSCOPED = Scope("", "")


class FirstContent:
    """Reads the files of earlier versions, and logs why they cannot be read, once for each cause."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf
        self._logged = ""

    def __call__(self) -> Content | None:
        try:
            content = users_file.read_all(self._conf)
            cause = "" if content is not None else "There are no users yet: run nova-lite-manage user init"
        except exceptions.ConfigurationError as error:
            content, cause = None, f"Users cannot be taken from the file of an earlier version: {error.message}"
        if cause and cause != self._logged:
            LOG.error("%s", cause)
        self._logged = cause
        return content


class Authority:
    """Authenticates users. Every failure raises `Unauthorized` with the same message, to hide which users exist."""

    def __init__(self, conf: cfg.ConfigOpts, replica: Replica) -> None:
        self.conf = conf
        self.replica = replica
        self.hash_cost: int = conf.identity.password_hash_cost
        self.tokens = Tokens(replica, conf.identity.token_expiration)
        self._secret = os.urandom(32)
        self._valid_digests: dict[bytes, None] = {}
        self._throttle, self._code_throttle = PasswordThrottle(), PasswordThrottle()
        self.directory = DomainDirectory(conf, replica) if conf.ldap.urls else None
        self.oidc = OidcTokens(conf) if conf.oidc.issuers else None

    @property
    def content(self) -> Content:
        return self.replica.content

    def has_project(self, project_id: str) -> bool:
        """Check whether a project exists. Another process may have made it just now."""
        if self.replica.content.project(project_id) is not None:
            return True
        return self.replica.refresh().project(project_id) is not None

    def by_password(
        self,
        password: str,
        address: str,
        *,
        name: str | None = None,
        user_id: str | None = None,
        domain: DomainName = DomainName(),  # noqa: B008 - it is constant
    ) -> User:
        """Return the user with this password. Raises `TooManyFailures` if ``address`` guesses."""
        content = self.content
        found = domain.find(content)
        named = content.user_named(name or "", found.id) if found is not None else None
        user = content.user(user_id) if user_id is not None else named
        is_elsewhere = user.source == domain_directory.SOURCE if user is not None else user_id is None
        if self.directory is not None and is_elsewhere:
            domain_id = user.domain_id if user is not None else found.id if found is not None else None
            if domain_id is not None and self.directory.serves(content, domain_id):
                known = user if user_id is not None else None
                return self._by_directory(self.directory, domain_id, name or "", known, password, address)
        label = user.name if user is not None else (user_id or name or "")
        is_usable = user is not None and content.is_usable(user)
        self._check_secret(label, address, password, user.password if user is not None else None, is_usable)
        assert user is not None
        self._strengthen(user, "password", password)
        return user

    def _by_directory(
        self, server: DomainDirectory, domain_id: str, name: str, known: User | None, password: str, address: str
    ) -> User:
        """Return the user with a password of the directory. ``known``: the record, if the request has an id."""
        label = server.label(known.name if known is not None else name)
        self._throttle.check(label, address)
        user = server.log_in(domain_id, name, known, password)
        if user is None or not self.content.is_usable(user):
            raise self._failed(label, address)
        self._throttle.succeeded(label, address)
        return user

    def read_directory(self, kind: str, domain_id: str | None, name: str | None) -> None:
        """Bring our records of the directory's ``users`` or ``groups`` up to date, if it has those of the domain.

        ``name``: only the one with this name.
        """
        if self.directory is None or domain_id is None or not self.directory.serves(self.content, domain_id):
            return
        read = self.directory.read_users if kind == "users" else self.directory.read_groups
        read(domain_id, name)

    def check_ours(self, content: Content, domain_id: str, item: User | Group | None = None) -> None:
        """Raise `Forbidden` for changes of a user or group that a directory or an identity provider has.

        ``item``: None for a new one in the domain.
        """
        is_theirs = item.source if item is not None else self.directory and self.directory.serves(content, domain_id)
        if is_theirs:
            raise exceptions.Forbidden(
                "The users and groups of this domain come from elsewhere and cannot be changed here. Their roles, and "
                "whether a user is enabled, can be."
            )

    def _recheck(self, identity: Identity) -> None:
        """Raise `Unauthorized` if a directory does not have the user, or the trustor, of a log-in any more."""
        trustor = self.content.user(identity.trust.trustor_id) if identity.trust is not None else None
        for user in (identity.user, trustor):
            if user is not None and user.source == domain_directory.SOURCE:
                if self.directory is None or not self.directory.serves(self.content, user.domain_id):
                    raise exceptions.Unauthorized()
                self.directory.recheck(user)

    def by_credential(
        self, credential: ApplicationCredential | None, label: str, secret: str, address: str
    ) -> Identity:
        """Return the user of an application credential, limited by it.

        ``label``: what the client named it by. Raises `TooManyFailures` if ``address`` guesses.
        """
        identity = None
        with contextlib.suppress(exceptions.Unauthorized):
            identity = self.limited(credential) if credential is not None else None
        stored = credential.secret if credential is not None else None
        self._check_secret(label, address, secret, stored, identity is not None)
        assert identity is not None and credential is not None
        self._strengthen(credential, "secret", secret)
        return identity

    def check_methods(self, user: User, methods: list[str]) -> None:
        """Raise `Unauthorized` if the user's rules of log-in demand more than these methods."""
        rules = user.mfa_methods
        if rules and not any(set(rule) <= set(methods) for rule in rules):
            raise exceptions.Unauthorized()

    def check_code(self, user: User, given: str) -> None:
        """Raise `Unauthorized` unless a one-time code is right, and is used for the first time.

        Wrong codes of a user delay all addresses: a code is short, and only who knows the password gets so far.
        """
        self._code_throttle.check(user.name, user.id)
        content, now = self.content, time.time()
        for item in content.credentials:
            if item.user_id == user.id and item.type == "totp":
                step = one_time_codes.step_of(
                    one_time_codes.key_of(credential_box.open_(content, item.sealed)), given, now
                )
                if step is not None and self._use_step(item.id, step):
                    self._code_throttle.succeeded(user.name, user.id)
                    return
        self._code_throttle.failed(user.name, user.id)
        LOG.warning("Failed log-in of %r: the one-time code is wrong or was used before", user.name[:64])
        raise exceptions.Unauthorized()

    def _use_step(self, credential_id: str, step: int) -> bool:
        """Store that a code was used, for all API daemons. Returns False if it was used before."""

        def use(content: Content) -> bool:
            found = content.find(Credential, credential_id)
            if found is None or step <= found.last_step:
                return False
            found.last_step = step
            return True

        return self.replica.change(use)

    def _check_secret(self, label: str, address: str, secret: str, stored: str | None, is_usable: bool) -> None:
        """Raise `Unauthorized` unless the secret is right and ``is_usable``. It takes as long for every cause."""
        self._throttle.check(label, address)
        matches = passwords.matches(secret, stored, self.hash_cost)
        if not matches or not is_usable:
            raise self._failed(label, address)
        self._throttle.succeeded(label, address)

    def _strengthen(self, record: User | ApplicationCredential, field: str, secret: str) -> None:
        """Replace a hash that costs less than new ones do. Tokens stay valid. If it fails, the hash stays."""
        stored = getattr(record, field)
        if not passwords.is_weaker(stored, self.hash_cost):
            return
        new = passwords.hashed(secret, self.hash_cost)

        def replace(content: Content) -> None:
            found = content.find(type(record), record.id)
            if found is not None and getattr(found, field) == stored:
                setattr(found, field, new)

        try:
            self.replica.change(replace)
        except exceptions.NovaLiteException as error:
            LOG.warning("The hash of a password of %s could not be replaced: %s", record.name[:64], error.message)

    def _failed(self, label: str, address: str) -> exceptions.Unauthorized:
        self._throttle.failed(label, address)
        LOG.warning("Failed log-in as %r from %s", label[:64], address)
        return exceptions.Unauthorized()

    def limited(self, credential: ApplicationCredential) -> Identity:
        """Return the credential's user in its project, with the credential's roles that the user still has.

        Raises `Unauthorized` if that is nothing.
        """
        user = self.content.user(credential.user_id)
        is_over = credential.expires_at is not None and credential.expires_at <= time.time()
        if user is None or not self.content.is_usable(user) or is_over:
            raise exceptions.Unauthorized()
        identity = self.scoped(user, Scope(project_id=credential.project_id))
        return self._reduced(identity, credential.roles)._replace(credential=credential)

    def _reduced(self, identity: Identity, keys: list[str]) -> Identity:
        """Return the identity with those of its roles that these give. Raises `Unauthorized` if that is none."""
        given = {role.id for role in self.content.effective(keys)}
        roles = [role for role in identity.roles if role.id in given]
        if not roles:
            raise exceptions.Unauthorized()
        return identity._replace(roles=roles)

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
        if user is None or not self.content.is_usable(user):
            raise exceptions.Unauthorized()
        self.check_methods(user, ["password"])
        return self.scoped(user, Scope())

    def by_token(self, text: str) -> tuple[Token, Identity]:
        """Return the token and its user. The user's current projects and roles count, not the ones at log-in."""
        token, content = self.tokens.open(text), self.content
        user = content.user(token.user_id) if token is not None else None
        if token is None or user is None or not content.is_usable(user):
            raise exceptions.Unauthorized()
        target = content.project(token.project_id) if token.project_id is not None else None
        domain = content.domain(token.domain_id) if token.domain_id is not None else None
        system = SYSTEM if token.system else None
        if token.ec2_digest is not None and not self._has_credential(user, token.ec2_digest):
            raise exceptions.Unauthorized()
        if token.issued_at < content.revoked_before(user, domain or target or system):
            raise exceptions.Unauthorized()
        if system is not None:
            return token, self.scoped(user, Scope(system=True))
        if token.domain_id is not None:
            return token, self.scoped(user, Scope(domain=DomainName(id=token.domain_id)))
        if token.trust_id is not None:
            trust = self.content.find(Trust, token.trust_id)
            identity = self.trusted(user, trust)
            trustor = self.content.user(trust.trustor_id) if trust is not None else None
            if trustor is None or token.issued_at < content.revoked_before(trustor, identity.project):
                raise exceptions.Unauthorized()
            return token, identity
        if token.credential_id is not None:
            credential = self.content.find(ApplicationCredential, token.credential_id)
            if credential is None:
                raise exceptions.Unauthorized()
            return token, self.limited(credential)
        if token.project_id is None:
            return token, Identity(user, None, [])
        return token, self.scoped(user, Scope(project_id=token.project_id))

    def _has_credential(self, user: User, digest: str) -> bool:
        return any(item.user_id == user.id and item.digest == digest for item in self.content.credentials)

    def trusted(self, trustee: User, trust: Trust | None) -> Identity:
        """Return the user of a trust in its project, with the trust's roles that the trustor still has.

        Raises `Unauthorized` if the trust is not the trustee's, or gives nothing any more.
        """
        trustor = self.content.user(trust.trustor_id) if trust is not None else None
        if trust is None or trustor is None or not self.content.is_usable(trustor) or trust.trustee_id != trustee.id:
            raise exceptions.Unauthorized()
        if trust.expires_at is not None and trust.expires_at <= time.time():
            raise exceptions.Unauthorized()
        identity = self.scoped(trustor, Scope(project_id=trust.project_id))
        user = trustor if trust.impersonation else trustee
        return self._reduced(identity, trust.roles)._replace(user=user, trust=trust)

    def use(self, trust: Trust) -> None:
        """Count a token of a trust. Raises `Unauthorized` if it has no uses left."""
        if trust.remaining_uses is None:
            return

        def count(content: Content) -> None:
            found = content.find(Trust, trust.id)
            if found is None or not found.remaining_uses:
                raise exceptions.Unauthorized()
            found.remaining_uses -= 1

        self.replica.change(count)

    def scoped(self, user: User, scope: Scope) -> Identity:
        """Return the user in the requested project, or in the default project, or unscoped if there is none.

        Raises `Unauthorized` if the user has no role in a requested project.
        """
        if scope.trust_id is not None:
            return self.trusted(user, self.content.find(Trust, scope.trust_id))
        if scope == UNSCOPED:
            return Identity(user, None, [])
        content = self.content
        if scope.system:
            return Identity(user, None, self._roles(user, SYSTEM), system=SYSTEM)
        if scope.domain is not None:
            domain = scope.domain.find(content)
            if domain is None or not domain.enabled:
                raise exceptions.Unauthorized()
            return Identity(user, None, self._roles(user, domain), domain=domain)
        if scope == Scope():
            project = content.project(user.default_project_id) if user.default_project_id else None
            if project is None or not content.is_usable(project):
                return Identity(user, None, [])
            roles = content.effective(content.roles_of(user, project.id))
            return Identity(user, project if roles else None, roles)
        if scope.project_id is not None:
            project = content.project(scope.project_id)
        else:
            domain = (scope.project_domain or DomainName()).find(content)
            project = content.project_named(scope.project_name or "", domain.id) if domain is not None else None
        if project is None or not content.is_usable(project):
            raise exceptions.Unauthorized()
        return Identity(user, project, self._roles(user, project))

    def _roles(self, user: User, target: Project | Domain | System) -> list[Role]:
        """Return the user's roles for a token. Raises `Unauthorized` if there is none."""
        roles = self.content.effective(self.content.roles_of(user, target.id))
        if not roles:
            raise exceptions.Unauthorized()
        return roles

    def issue(
        self,
        identity: Identity,
        parent: Token | None = None,
        methods: list[str] | None = None,
        signed_by: Credential | None = None,
    ) -> tuple[str, Token]:
        """Return a new token.

        ``methods``: of the log-in, if it is neither a password nor a credential. ``signed_by``: the EC2 credential of
        the log-in, with which the token ends.
        """
        self._recheck(identity)
        project_id = identity.project.id if identity.project is not None else None
        token = new_token(identity.user.id, project_id, self.conf.identity.token_expiration, parent)
        if parent is None and identity.credential is not None:
            token.credential_id, token.methods = identity.credential.id, ["application_credential"]
            token.expires_at = min(token.expires_at, identity.credential.expires_at or token.expires_at)
        if parent is None and methods is not None:
            token.methods = methods
        if signed_by is not None:
            token.ec2_digest = signed_by.digest
        token.domain_id = identity.domain.id if identity.domain is not None else None
        token.system = identity.system is not None
        if identity.trust is not None:
            self.use(identity.trust)
            token.user_id, token.trust_id = identity.trust.trustee_id, identity.trust.id
            token.expires_at = min(token.expires_at, identity.trust.expires_at or token.expires_at)
        return self.tokens.seal(token), token


_authorities: weakref.WeakKeyDictionary[API, Authority] = weakref.WeakKeyDictionary()
_authorities_lock = threading.Lock()


def of(services: wsgi.ApiServices) -> Authority:
    """Return the authority that all applications of a daemon share, so that they have one copy of the records."""
    with _authorities_lock:
        if services.compute not in _authorities:
            replica = Replica(ConductorStore(_conductor_of(services.compute)), FirstContent(services.conf))
            _authorities[services.compute] = Authority(services.conf, replica)
        return _authorities[services.compute]


def _conductor_of(compute: API) -> Callable[[], ConductorRPC]:
    """Return a function for the client of the conductor, which a daemon gets after its applications."""
    reference = weakref.ref(compute)

    def conductor() -> ConductorRPC:
        found = reference()
        if found is None:
            raise exceptions.ServiceUnavailable("This API daemon is stopping.")
        return found.conductor

    return conductor
