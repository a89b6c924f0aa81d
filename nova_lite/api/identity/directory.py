"""Users file: users, projects, and the roles of users in projects.

The file is YAML, so that an operator can read it::

    projects:
    - {id: 5f1c..., name: demo, description: '', enabled: true}
    users:
    - id: 9ab0...
      name: alice
      password: scrypt$16384$8$1$...
      enabled: true
      default_project_id: 5f1c...
      password_changed_at: 1795254862.25
      roles: {5f1c...: [member]}

There is one domain, ``default``. Password hashes are secret, so the file's mode is at most 0640.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import secrets
import threading
import time
import uuid
from collections.abc import Iterator

import msgspec
import yaml

from nova_lite.api.identity import passwords
from nova_lite.base import exceptions, files, key_files

LOG = logging.getLogger(__name__)

DOMAIN_ID = "default"
DOMAIN_NAME = "Default"

#: Each role implies the roles after it. The role ``service`` is for other services and implies none.
_RANKS = ("admin", "manager", "member", "reader")
ROLES = (*_RANKS, "service")

_MODE = 0o640
#: libyaml's parser, where PyYAML has it. Python's own takes ten times as long.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NAME = re.compile(r"[^\s/\x00-\x1f\x7f](?:[^/\x00-\x1f\x7f]{0,253}[^\s/\x00-\x1f\x7f])?")


class Project(msgspec.Struct, kw_only=True):
    """``tokens_valid_from``: Unix time of the last disabling; earlier tokens for the project are invalid."""

    id: str
    name: str
    description: str = ""
    enabled: bool = True
    tokens_valid_from: float = 0.0


class User(msgspec.Struct, kw_only=True):
    """User, with roles by project id.

    ``password_changed_at``, ``tokens_valid_from``: Unix times of the last password and the last disabling; earlier
    tokens are invalid. ``project_tokens_valid_from``: the time when the user lost the last role, by project id.
    """

    id: str
    name: str
    password: str
    enabled: bool = True
    default_project_id: str | None = None
    password_changed_at: float = 0.0
    tokens_valid_from: float = 0.0
    project_tokens_valid_from: dict[str, float] = msgspec.field(default_factory=dict)
    roles: dict[str, list[str]] = msgspec.field(default_factory=dict)

    def revoked_before(self, project: Project | None) -> float:
        """Return the time from which the user's tokens for the project, or without a project, are valid."""
        times = [self.password_changed_at, self.tokens_valid_from]
        if project is not None:
            times += project.tokens_valid_from, self.project_tokens_valid_from.get(project.id, 0.0)
        return max(times)


class UsersFile(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Content of the users file."""

    projects: list[Project] = msgspec.field(default_factory=list)
    users: list[User] = msgspec.field(default_factory=list)

    def user(self, user_id: str) -> User | None:
        return next((user for user in self.users if user.id == user_id), None)

    def user_named(self, name: str) -> User | None:
        return next((user for user in self.users if user.name == name), None)

    def project(self, project_id: str) -> Project | None:
        return next((project for project in self.projects if project.id == project_id), None)

    def project_named(self, name: str) -> Project | None:
        return next((project for project in self.projects if project.name == name), None)

    def projects_of(self, user: User) -> list[Project]:
        return [project for project in self.projects if project.enabled and user.roles.get(project.id)]


def role_id(name: str) -> str:
    return uuid.uuid5(uuid.NAMESPACE_URL, f"nova-lite:role:{name}").hex


def implied(roles: list[str]) -> list[str]:
    """Return the given roles and the roles that they imply."""
    highest = min((_RANKS.index(role) for role in roles if role in _RANKS), default=len(_RANKS))
    return [*_RANKS[highest:], *sorted(set(roles) - set(_RANKS))]


class Directory:
    """Cache of the users file, which reads it again after each change."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._last_state: tuple[int, ...] | None = None
        self._content = UsersFile()

    def load(self) -> UsersFile:
        """Read the file. Raises `ConfigurationError` if it is not usable."""
        self._content, self._last_state = self._read()
        return self._content

    @property
    def content(self) -> UsersFile:
        """Current content. While an edited file has an error, the content before the edit."""
        with self._lock:
            try:
                if self._state() != self._last_state:
                    self.load()
            except (OSError, exceptions.ConfigurationError) as error:
                if self._last_state is None:
                    raise
                LOG.error("The edited users file has an error, its previous content stays in use: %s", error)
                self._last_state = self._state_or_empty()
            return self._content

    def _state(self) -> tuple[int, ...]:
        status = os.stat(self.path)
        return status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode

    def _state_or_empty(self) -> tuple[int, ...]:
        try:
            return self._state()
        except OSError:
            return ()

    def _read(self) -> tuple[UsersFile, tuple[int, ...]]:
        try:
            with open(self.path, "rb") as file:
                status = os.fstat(file.fileno())
                content = parse(file.read())
        except OSError as error:
            raise self._error(error.strerror or str(error)) from error
        except yaml.YAMLError as error:
            # YAML's own message is not used, since it quotes the file and so its hashes.
            mark = getattr(error, "problem_mark", None)
            raise self._error(f"line {mark.line + 1} is not YAML" if mark else "it is not YAML") from None
        except (msgspec.ValidationError, ValueError) as error:
            raise self._error(" ".join(str(error).split())) from error
        if status.st_mode & 0o027:
            raise self._error("its group or others have too many permissions; run chmod 0640")
        key_files.check(self.path, "[identity] users_file", owners=key_files.owners_of(self.path))
        return content, (status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode)

    def _error(self, why: str) -> exceptions.ConfigurationError:
        return exceptions.ConfigurationError(reason=f"[identity] users_file = {self.path}: {why}.")

    @contextlib.contextmanager
    def changing(self) -> Iterator[UsersFile]:
        """Open the content for changes. Writes it if the block ends without an error. Locks out other writers."""
        directory = os.path.dirname(os.path.abspath(self.path))
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            # Read again, since a change that is refused or cannot be written must not be in memory.
            content = self._read()[0] if os.path.exists(self.path) else UsersFile()
            yield content
            data = yaml.safe_dump(msgspec.to_builtins(content), sort_keys=False).encode()
            parse(data)
            _write(os.path.abspath(self.path), data)
        finally:
            os.close(descriptor)


def parse(data: bytes) -> UsersFile:
    """Parse a users file. Raises ValueError, msgspec's or YAML's error if it is invalid or inconsistent."""
    content = msgspec.convert(yaml.load(data, _LOADER) or {}, UsersFile)  # noqa: S506 - both loaders are safe
    for kind, items in (("user", content.users), ("project", content.projects)):
        for field in ("id", "name"):
            values = [getattr(item, field) for item in items]
            for value in values:
                if values.count(value) > 1:
                    raise ValueError(f"two {kind}s have the {field} {value}")
    for user in content.users:
        if not passwords.is_hash(user.password):
            raise ValueError(f"the password of user {user.name} is not a hash (nova-lite-manage user set-password)")
        for roles in user.roles.values():
            if unknown := set(roles) - set(ROLES):
                raise ValueError(f"user {user.name} has the role {sorted(unknown)[0]}, not one of {', '.join(ROLES)}")
    return content


def _write(path: str, data: bytes) -> None:
    """Replace the file, with its owner and group. A first file gets the group of its directory."""
    before = os.stat(path) if os.path.exists(path) else None
    owner = (before.st_uid, before.st_gid) if before else (0, os.stat(os.path.dirname(path)).st_gid)
    files.write_atomically(path, data, mode=_MODE, owner=owner)


# --- changes of the content of `Directory.changing`


def check_name(kind: str, name: str) -> str:
    if not _NAME.fullmatch(name):
        raise exceptions.InvalidInput(
            reason=f"a {kind}'s name has 1 to 255 printable characters, no slash, and no space at the start or end."
        )
    return name


def add_project(content: UsersFile, name: str, description: str = "") -> Project:
    if content.project_named(check_name("project", name)) is not None:
        raise exceptions.Conflict(f"Project {name} already exists.")
    project = Project(id=uuid.uuid4().hex, name=name, description=description)
    content.projects.append(project)
    return project


def rename(content: UsersFile, kind: str, item: Project | User, name: str) -> None:
    """Rename a project or user. ``kind``: project or user."""
    other = content.project_named(name) if kind == "project" else content.user_named(name)
    if other is not None and other is not item:
        raise exceptions.Conflict(f"{kind.capitalize()} {name} already exists.")
    item.name = check_name(kind, name)


def remove_project(content: UsersFile, project: Project) -> None:
    content.projects.remove(project)
    for user in content.users:
        user.roles.pop(project.id, None)
        user.project_tokens_valid_from.pop(project.id, None)
        if user.default_project_id == project.id:
            user.default_project_id = None


def add_user(content: UsersFile, name: str, password: str | None, project: Project | None = None) -> User:
    """Add a user. Without a password, log-in as the user is impossible."""
    if content.user_named(check_name("user", name)) is not None:
        raise exceptions.Conflict(f"User {name} already exists.")
    user = User(id=uuid.uuid4().hex, name=name, password="", default_project_id=project.id if project else None)
    if password is None:
        set_no_password(user)
    else:
        set_password(user, password)
    content.users.append(user)
    return user


def set_no_password(user: User) -> None:
    """Make log-in as the user impossible, until a password is set."""
    set_password(user, secrets.token_urlsafe(32))


def set_password(user: User, password: str) -> None:
    """Set the password, which makes the user's tokens invalid."""
    if not password:
        raise exceptions.InvalidInput(reason="a password cannot be empty.")
    user.password = passwords.hashed(password)
    user.password_changed_at = time.time()


def set_enabled(item: User | Project, enabled: bool) -> None:
    """Enable or disable a user or project. Tokens from before stay invalid, also when it is enabled again."""
    if item.enabled != enabled:
        item.tokens_valid_from = time.time()
    item.enabled = enabled


def grant(user: User, project: Project, role: str) -> None:
    roles = user.roles.setdefault(project.id, [])
    if role not in roles:
        roles.append(role)


def revoke(user: User, project: Project, role: str) -> None:
    roles = user.roles.get(project.id, [])
    if role not in roles:
        raise exceptions.NotFound(f"User {user.name} does not have the role {role} in project {project.name}.")
    roles.remove(role)
    if not roles:
        del user.roles[project.id]
        user.project_tokens_valid_from[project.id] = time.time()
