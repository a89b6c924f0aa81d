"""The users file: who there is, in which projects, with which roles.

YAML, so that an operator can read it::

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

There is one domain, ``default``. Password hashes are a secret: the file is 0640 and no more.
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
from nova_lite.base import exceptions, files

LOG = logging.getLogger(__name__)

DOMAIN_ID = "default"
DOMAIN_NAME = "Default"

#: Each role has what the ones after it may do; ``service`` is for other services, and has none of them.
_RANKS = ("admin", "manager", "member", "reader")
ROLES = (*_RANKS, "service")

_MODE = 0o640
_NAME = re.compile(r"[^\s/\x00-\x1f\x7f](?:[^/\x00-\x1f\x7f]{0,253}[^\s/\x00-\x1f\x7f])?")


class Project(msgspec.Struct, kw_only=True):
    id: str
    name: str
    description: str = ""
    enabled: bool = True


class User(msgspec.Struct, kw_only=True):
    """``roles``: by project id. ``password_changed_at``: tokens made before it (Unix time) are no good any more."""

    id: str
    name: str
    password: str
    enabled: bool = True
    default_project_id: str | None = None
    password_changed_at: float = 0.0
    roles: dict[str, list[str]] = msgspec.field(default_factory=dict)


class UsersFile(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What the file holds."""

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
    """The given roles, and those that come with them."""
    highest = min((_RANKS.index(role) for role in roles if role in _RANKS), default=len(_RANKS))
    return [*_RANKS[highest:], *sorted(set(roles) - set(_RANKS))]


class Directory:
    """The users file, read again whenever it was replaced or edited."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._seen: tuple[int, ...] | None = None
        self._content = UsersFile()

    def load(self) -> UsersFile:
        """The file as it is now; raises `ConfigurationError` when it cannot be used."""
        self._content, self._seen = self._read()
        return self._content

    @property
    def content(self) -> UsersFile:
        """What the file says. While an edited file is wrong, what it said before counts."""
        with self._lock:
            try:
                if self._state() != self._seen:
                    self.load()
            except (OSError, exceptions.ConfigurationError) as error:
                if self._seen is None:
                    raise
                LOG.error("The users file is not used as it is now: %s", error)
                self._seen = self._state_or_none()
            return self._content

    def _state(self) -> tuple[int, ...]:
        found = os.stat(self.path)
        return found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode

    def _state_or_none(self) -> tuple[int, ...]:
        try:
            return self._state()
        except OSError:
            return ()

    def _read(self) -> tuple[UsersFile, tuple[int, ...]]:
        try:
            with open(self.path, "rb") as file:
                found = os.fstat(file.fileno())
                content = parse(file.read())
        except OSError as error:
            raise self._wrong(error.strerror or str(error)) from error
        except yaml.YAMLError as error:
            # Not its own text, which quotes the file.
            mark = getattr(error, "problem_mark", None)
            raise self._wrong(f"line {mark.line + 1} is not YAML" if mark else "it is not YAML") from None
        except (msgspec.ValidationError, ValueError) as error:
            raise self._wrong(" ".join(str(error).split())) from error
        if found.st_mode & 0o027:
            raise self._wrong("others than its owner may write it, or others than its group may read it; chmod 0640 it")
        return content, (found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode)

    def _wrong(self, why: str) -> exceptions.ConfigurationError:
        return exceptions.ConfigurationError(reason=f"[identity] users_file = {self.path}: {why}.")

    @contextlib.contextmanager
    def changing(self) -> Iterator[UsersFile]:
        """The content, to be changed; written when the block ends without an error. One writer at a time."""
        directory = os.path.dirname(os.path.abspath(self.path))
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            # Not what is in memory: a change that is refused, or cannot be written, is nobody's.
            content = self._read()[0] if os.path.exists(self.path) else UsersFile()
            yield content
            data = yaml.safe_dump(msgspec.to_builtins(content), sort_keys=False).encode()
            parse(data)
            _write(os.path.abspath(self.path), data)
        finally:
            os.close(descriptor)


def parse(data: bytes) -> UsersFile:
    """Raises ValueError, msgspec's or YAML's error when it is not a users file, or contradicts itself."""
    content = msgspec.convert(yaml.safe_load(data) or {}, UsersFile)
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
                raise ValueError(f"user {user.name} has the role {sorted(unknown)[0]}; there are {', '.join(ROLES)}")
    return content


def _write(path: str, data: bytes) -> None:
    """A new file keeps the old one's owner; the first one gets the group of its directory."""
    before = os.stat(path) if os.path.exists(path) else None
    owner = (before.st_uid, before.st_gid) if before else (0, os.stat(os.path.dirname(path)).st_gid)
    files.write_atomically(path, data, mode=_MODE, owner=owner)


# --- changes, for `Directory.changing`


def check_name(kind: str, name: str) -> str:
    if not _NAME.fullmatch(name):
        raise exceptions.InvalidInput(
            reason=f"a {kind}'s name has 1 to 255 printable characters, no slash, and no space at its ends."
        )
    return name


def add_project(content: UsersFile, name: str, description: str = "") -> Project:
    if content.project_named(check_name("project", name)) is not None:
        raise exceptions.Conflict(f"Project {name} already exists.")
    project = Project(id=uuid.uuid4().hex, name=name, description=description)
    content.projects.append(project)
    return project


def rename(content: UsersFile, kind: str, item: Project | User, name: str) -> None:
    """``kind``: project or user."""
    other = content.project_named(name) if kind == "project" else content.user_named(name)
    if other is not None and other is not item:
        raise exceptions.Conflict(f"{kind.capitalize()} {name} already exists.")
    item.name = check_name(kind, name)


def remove_project(content: UsersFile, project: Project) -> None:
    content.projects.remove(project)
    for user in content.users:
        user.roles.pop(project.id, None)
        if user.default_project_id == project.id:
            user.default_project_id = None


def add_user(content: UsersFile, name: str, password: str | None, project: Project | None = None) -> User:
    """``password`` None: nobody can log in as the user yet."""
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
    """Nobody logs in as the user, until there is a password."""
    set_password(user, secrets.token_urlsafe(32))


def set_password(user: User, password: str) -> None:
    """The user's tokens end with the old password."""
    if not password:
        raise exceptions.InvalidInput(reason="a password cannot be empty.")
    user.password = passwords.hashed(password)
    user.password_changed_at = time.time()


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
