"""Records of users and groups that a directory or an identity provider has. All changes of them are pure.

A record is made when a user logs in, or when an admin lists the domain. It has an id that is computed from the id at
the source. So roles, application credentials and trusts are those of all other users, and are kept in our database.
"""

from __future__ import annotations

import hashlib
import time
from typing import NamedTuple

from nova_lite.api.identity import directory
from nova_lite.api.identity.content import Content
from nova_lite.api.identity.records import Group, User
from nova_lite.base import exceptions


class ExternalUser(NamedTuple):
    """User as a source describes them. ``groups``: ids of our groups. ``until``: see `User.external_until`.

    ``roles``: keys of roles by the id of a project.
    """

    id: str
    source: str
    key: str
    name: str
    domain_id: str
    email: str | None = None
    groups: tuple[str, ...] = ()
    until: float = 0.0
    roles: tuple[tuple[str, tuple[str, ...]], ...] = ()


class ExternalGroup(NamedTuple):
    """Group as a source describes it."""

    id: str
    source: str
    name: str
    domain_id: str


def id_of(kind: str, *parts: bytes) -> str:
    """Return the id of a user or group: always the same for the same id at the source."""
    digest = hashlib.sha256(kind.encode())
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:32]


def is_current(content: Content, given: ExternalUser | ExternalGroup) -> bool:
    """Check whether the record of a user or group is as the source describes it."""
    if isinstance(given, ExternalGroup):
        group = content.find(Group, given.id)
        return group is not None and (group.name, group.source) == (given.name, given.source)
    user = content.user(given.id)
    return user is not None and not user.absent and _described(user) == given


def _described(user: User) -> ExternalUser:
    return ExternalUser(
        user.id,
        user.source,
        user.external_key,
        user.name,
        user.domain_id,
        user.email,
        tuple(user.external_groups),
        user.external_until,
        tuple((project_id, tuple(keys)) for project_id, keys in user.external_roles.items()),
    )


def put_user(content: Content, given: ExternalUser) -> User:
    """Make or update the record of a user. Raises `Conflict` if another user of the domain has the name.

    If that is a user whom the same directory had before, the record is deleted: the name is that of another person now.
    """
    directory.check_name("user", given.name)
    other = content.user_named(given.name, given.domain_id)
    if other is not None and other.id != given.id:
        if other.source != given.source or other.provider_id is not None:
            raise exceptions.Conflict(f"User {given.name} already exists.")
        directory.remove_user(content, other)
    user = content.user(given.id)
    if user is None:
        user = User(id=given.id, name=given.name, password="", domain_id=given.domain_id)
        content.users.append(user)
    user.name, user.email, user.source, user.external_key = given.name, given.email, given.source, given.key
    user.external_groups, user.external_until, user.absent = list(given.groups), given.until, False
    user.external_roles = {project_id: list(keys) for project_id, keys in given.roles}
    return user


def put_group(content: Content, given: ExternalGroup) -> Group:
    """Make or update the record of a group. Raises `Conflict` if another group of the domain has the name."""
    directory.check_name("group", given.name)
    other = content.group_named(given.name, given.domain_id)
    if other is not None and other.id != given.id:
        if other.source != given.source:
            raise exceptions.Conflict(f"Group {given.name} already exists.")
        directory.remove_group(content, other)
    group = content.find(Group, given.id)
    if group is None:
        group = Group(id=given.id, name=given.name, domain_id=given.domain_id)
        content.groups.append(group)
    group.name, group.source = given.name, given.source
    return group


def set_absent(content: Content, user_id: str) -> None:
    """Record that the source does not have the user any more. Tokens end permanently. All else stays."""
    user = content.user(user_id)
    if user is not None and user.source and not user.absent:
        user.absent, user.tokens_valid_from = True, time.time()
