"""Changes of the identity service's content: users, projects, groups, domains, and their roles.

Everything here is pure. `nova_lite.api.identity.replica` stores changes.
"""

from __future__ import annotations

import itertools
import re
import secrets
import time
import uuid
from collections.abc import Callable, Iterable

from nova_lite.api.identity import passwords
from nova_lite.api.identity.content import Content
from nova_lite.api.identity.records import (
    _RANKS,
    DOMAIN_ID,
    MAX_DEPTH,
    ROLES,
    ApplicationCredential,
    Domain,
    Group,
    IdentityProvider,
    Implication,
    Project,
    Role,
    System,
    Trust,
    User,
    comparable,
)
from nova_lite.base import exceptions

_NAME = re.compile(r"[^\s/\x00-\x1f\x7f](?:[^/\x00-\x1f\x7f]{0,253}[^\s/\x00-\x1f\x7f])?")


#: Characters of names, as in Keystone.
MAX_NAME, MAX_NAMES = 255, {"project": 64, "domain": 64}


def check_name(kind: str, name: str) -> str:
    longest = MAX_NAMES.get(kind, MAX_NAME)
    if not _NAME.fullmatch(name) or len(name) > longest:
        raise exceptions.InvalidInput(
            reason=f"a {kind}'s name has 1 to {longest} printable characters, no slash, and no space at the start or "
            "end."
        )
    return name


def add_project(
    content: Content, name: str, description: str = "", domain_id: str = DOMAIN_ID, parent: Project | None = None
) -> Project:
    """Add a project. ``parent``: the project above it."""
    if content.project_named(check_name("project", name), domain_id) is not None:
        raise exceptions.Conflict(f"Project {name} already exists.")
    project = Project(id=uuid.uuid4().hex, name=name, description=description, domain_id=domain_id)
    if parent is not None:
        if not parent.enabled:
            raise exceptions.Forbidden(f"Project {parent.name} is disabled, so there can be no project below it.")
        if len(content.above(parent.id)) >= MAX_DEPTH:
            raise exceptions.Forbidden(f"There are at most {MAX_DEPTH} projects below each other.")
        project.parent_id = parent.id
    content.projects.append(project)
    return project


def rename(content: Content, kind: str, item: Project | User | Group, name: str) -> None:
    """Rename a record. ``kind``: project, user or group."""
    named = {"project": content.project_named, "user": content.user_named, "group": content.group_named}
    other = named[kind](name, item.domain_id)
    if other is not None and other is not item:
        raise exceptions.Conflict(f"{kind.capitalize()} {name} already exists.")
    item.name = check_name(kind, name)


def remove_project(content: Content, project: Project) -> None:
    content.projects.remove(project)
    _keep_credentials(content, lambda credential: credential.project_id != project.id)
    content.limits = [item for item in content.limits if item.project_id != project.id]
    for group in content.endpoint_groups:
        group.project_ids = [id for id in group.project_ids if id != project.id]
    content.trusts = [trust for trust in content.trusts if trust.project_id != project.id]
    content.credentials = [item for item in content.credentials if item.project_id != project.id]
    _forget_roles(content, project.id)
    for user in content.users:
        if user.default_project_id == project.id:
            user.default_project_id = None


def check_leaf(content: Content, project: Project) -> None:
    """Raise `Forbidden` if there are projects below a project."""
    if content.below(project.id):
        raise exceptions.Forbidden(f"There are projects below project {project.name}. Delete those first.")


def _forget_roles(content: Content, target_id: str) -> None:
    """Delete all roles in a project or domain."""
    for group in content.groups:
        group.roles.pop(target_id, None)
        group.inherited_roles.pop(target_id, None)
    for user in content.users:
        user.roles.pop(target_id, None)
        user.inherited_roles.pop(target_id, None)
        user.project_tokens_valid_from.pop(target_id, None)


def new_password(password: str | None, cost: int = passwords.COST) -> str:
    """Return the hash of a new password. None: a hash with which log-in is impossible."""
    if password == "":
        raise exceptions.InvalidInput(reason="a password cannot be empty.")
    return passwords.hashed(secrets.token_urlsafe(32) if password is None else password, cost)


def add_user(
    content: Content, name: str, password_hash: str, project: Project | None = None, domain_id: str = DOMAIN_ID
) -> User:
    """Add a user. ``password_hash``: of `new_password`."""
    if content.user_named(check_name("user", name), domain_id) is not None:
        raise exceptions.Conflict(f"User {name} already exists.")
    user = User(
        id=uuid.uuid4().hex,
        name=name,
        password=password_hash,
        default_project_id=project.id if project else None,
        password_changed_at=time.time(),
        domain_id=domain_id,
    )
    content.users.append(user)
    return user


def remove_user(content: Content, user: User) -> None:
    content.users.remove(user)
    for group in content.groups:
        if user.id in group.members:
            group.members.remove(user.id)
    _keep_credentials(content, lambda credential: credential.user_id != user.id)
    content.access_rules = [rule for rule in content.access_rules if rule.user_id != user.id]
    content.trusts = [trust for trust in content.trusts if user.id not in (trust.trustor_id, trust.trustee_id)]
    content.credentials = [item for item in content.credentials if item.user_id != user.id]


def _keep_credentials(content: Content, is_kept: Callable[[ApplicationCredential], bool]) -> None:
    content.application_credentials = [item for item in content.application_credentials if is_kept(item)]


def set_password(user: User, password_hash: str) -> None:
    """Set the password by the hash of `new_password`. The user's tokens become invalid."""
    if user.source:
        raise exceptions.Forbidden(f"User {user.name} has no password here. It is changed where the user comes from.")
    user.password = password_hash
    user.password_changed_at = time.time()


def set_enabled(content: Content, item: User | Project | Domain, enabled: bool) -> None:
    """Enable or disable a user, project or domain. Tokens from before stay invalid, also when it is enabled again.

    A disabled user's application credentials are deleted. A project can be enabled only below enabled ones, and
    disabled only above disabled ones.
    """
    if item.enabled != enabled:
        if isinstance(item, Project):
            _check_neighbours(content, item, enabled)
        item.tokens_valid_from = time.time()
    item.enabled = enabled
    if not enabled and isinstance(item, User):
        _keep_credentials(content, lambda credential: credential.user_id != item.id)


def _check_neighbours(content: Content, project: Project, enabled: bool) -> None:
    parent = content.project(project.parent_id) if project.parent_id is not None else None
    if enabled and parent is not None and not parent.enabled:
        raise exceptions.Forbidden(f"Project {parent.name} above is disabled. Enable it first.")
    if not enabled and any(below.enabled for below in content.below(project.id)):
        raise exceptions.Forbidden(f"There are enabled projects below project {project.name}. Disable those first.")


def grant(holder: User | Group, target: Project | Domain | System, role: str, inherited: bool = False) -> None:
    """Give a role, by its key. ``inherited``: in the projects below ``target`` instead of there."""
    roles = (holder.inherited_roles if inherited else holder.roles).setdefault(target.id, [])
    if role not in roles:
        roles.append(role)


def revoke(
    content: Content,
    holder: User | Group,
    target: Project | Domain | System,
    role: str,
    inherited: bool = False,
) -> None:
    """Take a role from a user or group. Application credentials of the users for the project are deleted."""
    granted = holder.inherited_roles if inherited else holder.roles
    roles = granted.get(target.id, [])
    if role not in roles:
        kind, where = type(holder).__name__, type(target).__name__.lower()
        known = content.role_by_key(role)
        name = role if known is None else known.name
        raise exceptions.NotFound(f"{kind} {holder.name} does not have the role {name} in {where} {target.name}.")
    roles.remove(role)
    if not roles:
        del granted[target.id]
    _lost_roles(content, holder, [target.id], [target.id] if inherited else [])


def _lost_roles(content: Content, holder: User | Group, target_ids: Iterable[str], above: Iterable[str]) -> None:
    """Note that a user, or the members of a group, have less roles in targets, and in the projects below others."""
    lost = {*target_ids, *(project.id for id in above for project in content.below(id))}
    users = [holder] if isinstance(holder, User) else content.members_of(holder)
    for user in users:
        for target_id in lost:
            _lost_role(content, user, target_id)


def _lost_role(content: Content, user: User, target_id: str) -> None:
    """Delete the user's credentials for the project. Tokens for it become invalid if the user has no role left."""
    _keep_credentials(content, lambda item: (item.user_id, item.project_id) != (user.id, target_id))
    if not content.roles_of(user, target_id):
        user.project_tokens_valid_from[target_id] = time.time()


def add_role(content: Content, name: str, description: str | None = None, domain_id: str | None = None) -> Role:
    role = Role(id=uuid.uuid4().hex, name="", description=description, domain_id=domain_id)
    rename_role(content, role, name)
    content.roles.append(role)
    return role


def rename_role(content: Content, role: Role, name: str) -> None:
    """Rename a role. No name may look like that of a built-in role, which rules of policies know in any case."""
    other = content.role_named(check_name("role", name), role.domain_id)
    if (other is not None and other is not role) or comparable(name) in ROLES:
        raise exceptions.Conflict(f"Role {name} already exists.")
    role.name = name


def remove_role(content: Content, role: Role) -> None:
    """Delete a role, wherever any user has it. A trust or application credential without another role is deleted."""
    content.roles.remove(role)
    holders: list[User | Group] = [*content.users, *content.groups]
    for holder in holders:
        lost, above = (
            [id for id, keys in granted.items() if role.key in keys]
            for granted in (holder.roles, holder.inherited_roles)
        )
        for id in lost:
            _take(holder.roles, id, role.key)
        for id in above:
            _take(holder.inherited_roles, id, role.key)
        if lost or above:
            _lost_roles(content, holder, lost, above)
    limited: list[Trust | ApplicationCredential] = [*content.trusts, *content.application_credentials]
    for item in limited:
        item.roles = [key for key in item.roles if key != role.key]
    content.trusts = [item for item in content.trusts if item.roles]
    _keep_credentials(content, lambda item: bool(item.roles))
    content.implications = [item for item in content.implications if role.key not in (item.prior, item.implied)]


def _take(granted: dict[str, list[str]], target_id: str, key: str) -> None:
    granted[target_id].remove(key)
    if not granted[target_id]:
        del granted[target_id]


def imply(content: Content, prior: Role, implied: Role) -> None:
    """Let a role imply another one."""
    if implied.key in content.implied_by(prior.key):
        return
    if implied.key == "admin":
        raise exceptions.Forbidden("No role can imply the role admin. Grant it itself.")
    if implied.domain_id is not None and prior.domain_id is None:
        raise exceptions.Forbidden("A role of a domain can be implied by roles of domains only.")
    if prior.key in content.with_implied([implied.key]):
        raise exceptions.Forbidden(f"Role {implied.name} implies role {prior.name} already, so it cannot be implied.")
    content.implications.append(Implication(id=f"{prior.key}-{implied.key}", prior=prior.key, implied=implied.key))


def stop_implying(content: Content, prior: Role, implied: Role) -> None:
    if (prior.key, implied.key) in itertools.pairwise(_RANKS):
        raise exceptions.Forbidden(f"Role {prior.name} always implies role {implied.name}.")
    found = content.find(Implication, f"{prior.key}-{implied.key}")
    if found is None:
        raise exceptions.NotFound(f"Role {prior.name} does not imply role {implied.name}.")
    content.implications.remove(found)


def add_group(content: Content, name: str, description: str = "", domain_id: str = DOMAIN_ID) -> Group:
    if content.group_named(check_name("group", name), domain_id) is not None:
        raise exceptions.Conflict(f"Group {name} already exists.")
    group = Group(id=uuid.uuid4().hex, name=name, description=description, domain_id=domain_id)
    content.groups.append(group)
    return group


def remove_group(content: Content, group: Group) -> None:
    content.groups.remove(group)
    _lost_roles(content, group, group.roles, group.inherited_roles)


def join(group: Group, user: User) -> None:
    if user.id not in group.members:
        group.members.append(user.id)


def leave(content: Content, group: Group, user: User) -> None:
    if user.id not in group.members:
        raise exceptions.NotFound(f"User {user.name} is not in group {group.name}.")
    group.members.remove(user.id)
    _lost_roles(content, user, group.roles, group.inherited_roles)


def add_domain(content: Content, name: str, description: str = "") -> Domain:
    if content.domain_named(check_name("domain", name)) is not None:
        raise exceptions.Conflict(f"Domain {name} already exists.")
    domain = Domain(id=uuid.uuid4().hex, name=name, description=description)
    content.domains.append(domain)
    return domain


def rename_domain(content: Content, domain: Domain, name: str) -> None:
    other = content.domain_named(check_name("domain", name))
    if other is not None and other is not domain:
        raise exceptions.Conflict(f"Domain {name} already exists.")
    domain.name = name


def remove_domain(content: Content, domain: Domain) -> None:
    """Delete a disabled domain with its users, groups, projects and identity providers."""
    if domain.enabled:
        raise exceptions.Forbidden("Cannot delete a domain that is enabled, please disable it first.")
    for group in [item for item in content.groups if item.domain_id == domain.id]:
        remove_group(content, group)
    for user in [item for item in content.users if item.domain_id == domain.id]:
        remove_user(content, user)
    for project in [item for item in content.projects if item.domain_id == domain.id]:
        remove_project(content, project)
    for role in [item for item in content.roles if item.domain_id == domain.id]:
        remove_role(content, role)
    for provider in [item for item in content.identity_providers if item.domain_id == domain.id]:
        remove_provider(content, provider)
    _forget_roles(content, domain.id)
    content.limits = [item for item in content.limits if item.domain_id != domain.id]
    content.domain_configs = [item for item in content.domain_configs if item.id != domain.id]
    content.domains.remove(domain)


def remove_provider(content: Content, provider: IdentityProvider) -> None:
    """Delete an identity provider with its protocols and users."""
    content.identity_providers.remove(provider)
    content.federation_protocols = [
        item for item in content.federation_protocols if item.id.partition("/")[0] != provider.id
    ]
    for user in [item for item in content.users if item.provider_id == provider.id]:
        remove_user(content, user)
