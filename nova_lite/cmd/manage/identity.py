"""Commands ``user`` and ``project``: accounts of a cloud without Keystone."""

from __future__ import annotations

import argparse
import getpass
import sys

from nova_lite.api.identity import directory, tokens, users_file
from nova_lite.api.identity.content import Content
from nova_lite.api.identity.records import ROLES, SYSTEM, Project, User
from nova_lite.api.identity.replica import Replica
from nova_lite.base import exceptions
from nova_lite.cmd.manage.app import App, Commands
from nova_lite.db.identity.identity_records import DatabaseStore

ADMIN = "admin"
_PASSWORD = "The password is read from the terminal, or from the first line of standard input."  # noqa: S105


def register(commands: Commands) -> None:
    _register_users(commands)
    _register_projects(commands)


def _register_users(commands: Commands) -> None:
    noun = commands.noun("user", "Create, list, and delete users of a cloud without Keystone, and grant roles.")
    commands.verb(
        noun,
        "init",
        "Create the tokens' key, and the user admin in the project admin, if they are missing. " + _PASSWORD,
        init,
    )
    create_ = commands.verb(noun, "create", "Create a user and print the user's id. " + _PASSWORD, create_user)
    create_.add_argument("name")
    create_.add_argument("--project", help="default project, in which the user gets the roles")
    create_.add_argument("--role", action="append", choices=ROLES, help="may be repeated; default: member")
    commands.verb(noun, "list", "List users with their roles by project.", list_users)
    commands.verb(noun, "delete", "Delete a user; the user's servers stay.", delete_user).add_argument("name")
    text = "Set a user's password, which ends the user's tokens. " + _PASSWORD
    commands.verb(noun, "set-password", text, set_password).add_argument("name")
    for name, text_, run in (
        ("grant", "Give a user a role in a project. Of admin, manager, member, reader each includes the next.", grant),
        ("revoke", "Take a role in a project from a user, at once.", revoke),
    ):
        verb = commands.verb(noun, name, text_, run)
        verb.add_argument("name")
        verb.add_argument("--project", required=True)
        verb.add_argument("--role", required=True, choices=ROLES)
    for name, enabled, text_ in (
        ("enable", True, "Enable a user. Tokens from before stay invalid."),
        ("disable", False, "Disable a user, which permanently ends the user's tokens."),
    ):
        verb = commands.verb(noun, name, text_, set_enabled)
        verb.add_argument("name")
        verb.set_defaults(enabled=enabled)
    rotate_ = commands.verb(
        noun,
        "rotate-keys",
        "Add a key, which makes tokens ten seconds later, and forget the oldest. Not more often than tokens live.",
        rotate_keys,
    )
    rotate_.add_argument("--end-tokens", action="store_true", help="forget all older keys: every token ends at once")


def _register_projects(commands: Commands) -> None:
    noun = commands.noun("project", "Create, list, and delete projects of a cloud without Keystone.")
    create_ = commands.verb(noun, "create", "Create a project and print its id.", create_project)
    create_.add_argument("name")
    create_.add_argument("--description", default="")
    commands.verb(noun, "list", "List projects.", list_projects)
    text = "Delete a project with its roles; delete its servers and images before."
    commands.verb(noun, "delete", text, delete_project).add_argument("name")


def init(app: App, args: argparse.Namespace) -> None:
    replica = _replica(app)
    content = replica.content
    password = None if content.user_named(ADMIN) is not None else _new_password(app)
    with replica.changing() as content:
        if not content.keys:
            tokens.add_key(content, app.conf.identity.max_active_keys)
        if password is not None:
            project = content.project_named(ADMIN) or directory.add_project(content, ADMIN)
            user = directory.add_user(content, ADMIN, password, project)
            directory.grant(user, project, ADMIN)
            directory.grant(user, SYSTEM, ADMIN)


def create_user(app: App, args: argparse.Namespace) -> None:
    if args.role and not args.project:
        raise exceptions.InvalidInput(reason="--role needs a --project.")
    password = _new_password(app)
    with _replica(app).changing() as content:
        project = _project(content, args.project) if args.project else None
        user = directory.add_user(content, args.name, password, project)
        if project is not None:
            for role in args.role or ["member"]:
                directory.grant(user, project, role)
    print(user.id)


def list_users(app: App, args: argparse.Namespace) -> None:
    content = _replica(app).content
    names = {project.id: project.name for project in content.projects}
    app.show(
        ("ID", "Name", "Enabled", "Roles"),
        (
            (
                user.id,
                user.name,
                user.enabled,
                {names.get(id, id): "+".join(_names(content, keys)) for id, keys in user.roles.items()},
            )
            for user in content.users
        ),
    )


def _names(content: Content, keys: list[str]) -> list[str]:
    """Return the names of roles."""
    return [role.name for key in keys if (role := content.role_by_key(key)) is not None]


def delete_user(app: App, args: argparse.Namespace) -> None:
    with _replica(app).changing() as content:
        directory.remove_user(content, _user(content, args.name))


def set_password(app: App, args: argparse.Namespace) -> None:
    password = _new_password(app)
    with _replica(app).changing() as content:
        directory.set_password(_user(content, args.name), password)


def grant(app: App, args: argparse.Namespace) -> None:
    with _replica(app).changing() as content:
        directory.grant(_user(content, args.name), _project(content, args.project), args.role)


def revoke(app: App, args: argparse.Namespace) -> None:
    with _replica(app).changing() as content:
        directory.revoke(content, _user(content, args.name), _project(content, args.project), args.role)


def set_enabled(app: App, args: argparse.Namespace) -> None:
    with _replica(app).changing() as content:
        directory.set_enabled(content, _user(content, args.name), args.enabled)


def rotate_keys(app: App, args: argparse.Namespace) -> None:
    with _replica(app).changing() as content:
        tokens.add_key(content, 1 if args.end_tokens else app.conf.identity.max_active_keys)


def create_project(app: App, args: argparse.Namespace) -> None:
    with _replica(app).changing() as content:
        project = directory.add_project(content, args.name, args.description)
    print(project.id)


def list_projects(app: App, args: argparse.Namespace) -> None:
    projects = _replica(app).content.projects
    rows = ((project.id, project.name, project.enabled, project.description) for project in projects)
    app.show(("ID", "Name", "Enabled", "Description"), rows)


def delete_project(app: App, args: argparse.Namespace) -> None:
    with _replica(app).changing() as content:
        project = _project(content, args.name)
        directory.check_leaf(content, project)
        directory.remove_project(content, project)


def _replica(app: App) -> Replica:
    """Return the records. Files of an earlier version that cannot be read are an error."""
    return Replica(DatabaseStore(app.db), lambda: users_file.read_all(app.conf))


def _user(content: Content, name: str) -> User:
    user = content.user(name) or content.user_named(name)
    if user is None:
        raise exceptions.NotFound(f"There is no user {name}.")
    return user


def _project(content: Content, name: str) -> Project:
    project = content.project(name) or content.project_named(name)
    if project is None:
        raise exceptions.NotFound(f"There is no project {name}.")
    return project


def _new_password(app: App) -> str:
    """Read a password, and return its hash."""
    return directory.new_password(_read_password(), app.conf.identity.password_hash_cost)


def _read_password() -> str:
    """Read a password from the terminal or standard input. Every user on the machine can read a command line."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    password = getpass.getpass("Password: ")
    if getpass.getpass("Again: ") != password:
        raise exceptions.InvalidInput(reason="the two passwords are not the same.")
    return password
