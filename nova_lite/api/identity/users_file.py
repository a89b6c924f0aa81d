"""Import of the files in which earlier versions had users, projects and the keys of tokens.

``[identity] users_file`` is YAML. ``[identity] tokens_path`` has a file per key, ``keys/<number>``, and an empty file
per revoked token, ``revoked/<audit id>``, whose modification time is the token's expiry. All are read once, when the
database has no records of the identity service.
"""

from __future__ import annotations

import contextlib
import os

import msgspec
import yaml
from cryptography.fernet import Fernet
from oslo_config import cfg

from nova_lite.api.identity import passwords
from nova_lite.api.identity.content import Content
from nova_lite.api.identity.records import ROLES, Project, Revocation, TokenKey, User
from nova_lite.base import exceptions, key_files


class UsersFile(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Content of the users file."""

    projects: list[Project] = msgspec.field(default_factory=list)
    users: list[User] = msgspec.field(default_factory=list)


def read_all(conf: cfg.ConfigOpts) -> Content | None:
    """Return users, projects, keys and revocations; None if there is no users file.

    Raises `ConfigurationError` if a file cannot be used.
    """
    path, tokens_path = conf.identity.users_file, conf.identity.tokens_path
    if not os.path.exists(path):
        return None
    file = read(path)
    return Content(
        projects=file.projects,
        users=file.users,
        keys=read_keys(tokens_path),
        revocations=_read_revocations(tokens_path),
    )


def read(path: str) -> UsersFile:
    """Read the users file. Raises `ConfigurationError` if it cannot be used."""
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            content = parse(file.read())
    except OSError as error:
        raise _file_error(path, error.strerror or str(error)) from error
    except yaml.YAMLError as error:
        # YAML's own message is not used, since it quotes the file and so its hashes.
        mark = getattr(error, "problem_mark", None)
        raise _file_error(path, f"line {mark.line + 1} is not YAML" if mark else "it is not YAML") from None
    except (msgspec.ValidationError, ValueError) as error:
        raise _file_error(path, " ".join(str(error).split())) from error
    if status.st_mode & 0o027:
        raise _file_error(path, "its group or others have too many permissions; run chmod 0640")
    key_files.check(path, "[identity] users_file", owners=key_files.owners_of(path))
    return content


def parse(data: bytes) -> UsersFile:
    """Parse a users file. Raises ValueError, msgspec's or YAML's error if it is invalid or inconsistent."""
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
                raise ValueError(f"user {user.name} has the role {sorted(unknown)[0]}, not one of {', '.join(ROLES)}")
    return content


def read_keys(tokens_path: str) -> list[TokenKey]:
    """Return the keys of tokens, the oldest first."""
    path = os.path.join(tokens_path, "keys")
    try:
        numbers = sorted(int(name) for name in os.listdir(path) if name.isdecimal())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _key_error(path, error.strerror or str(error)) from error
    return [TokenKey(id=str(number), key=_read_key(path, number)) for number in numbers]


def _read_key(directory: str, number: int) -> str:
    path = os.path.join(directory, str(number))
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                raise _key_error(directory, f"key {number} is accessible to others than its owner; run chmod 0600")
            content = file.read().strip()
        key_files.check(path, "[identity] tokens_path", owners=key_files.owners_of(directory))
        Fernet(content)
    except OSError as error:
        raise _key_error(directory, f"key {number}: {error.strerror}") from error
    except ValueError as error:
        raise _key_error(directory, f"key {number} is not a Fernet key") from error
    return content.decode()


def _read_revocations(tokens_path: str) -> list[Revocation]:
    revocations = []
    with contextlib.suppress(FileNotFoundError), os.scandir(os.path.join(tokens_path, "revoked")) as entries:
        revocations = [Revocation(id=entry.name, expires_at=entry.stat().st_mtime) for entry in entries]
    return revocations


def _file_error(path: str, why: str) -> exceptions.ConfigurationError:
    return exceptions.ConfigurationError(reason=f"[identity] users_file = {path}: {why}.")


def _key_error(path: str, why: str) -> exceptions.ConfigurationError:
    return exceptions.ConfigurationError(reason=f"[identity] tokens_path: {path}: {why}.")
