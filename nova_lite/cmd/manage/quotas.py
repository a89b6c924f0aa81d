"""Command ``quota``: limits of a project, and of single users in it."""

from __future__ import annotations

import argparse

from nova_lite.cmd.manage import accounts
from nova_lite.cmd.manage.app import App, Commands, at_least
from nova_lite.db.core import quotas
from nova_lite.db.core.engine import UnitOfWork

DEFAULT = "default"
_PROJECT = "id, or name in the default domain"


def register(commands: Commands) -> None:
    noun = commands.noun("quota", "Show and set quotas of a project.")
    show_ = commands.verb(noun, "show", "Show a project's limits and usage.", show)
    show_.add_argument("project", help=_PROJECT)
    show_.add_argument("--user", help="show this user's limits and usage in the project")
    set_ = commands.verb(
        noun,
        "set",
        "Set limits of a project. -1 is unlimited, 'default' goes back to the configured default.",
        set_limits,
    )
    set_.add_argument("project", help=_PROJECT)
    set_.add_argument("--user", help="set limits of this user in the project; 'default' restores the project's")
    for resource in quotas.RESOURCES:
        set_.add_argument("--" + resource.replace("_", "-"), dest=resource, type=_limit, metavar="LIMIT")


def show(app: App, args: argparse.Namespace) -> None:
    _show(app, *_whose(app, args))


def _whose(app: App, args: argparse.Namespace) -> tuple[str, str | None]:
    """Return the ids of project and user. Raises `NotFound`."""
    user_id = None if args.user is None else accounts.user_id(app, args.user)
    return accounts.project_id(app, args.project), user_id


def _show(app: App, project_id: str, user_id: str | None) -> None:
    limits = app.db.read(quotas.get, app.conf, project_id, user_id)
    app.show(("Resource", "Limit", "Used"), ((name, quota.limit, quota.used) for name, quota in limits.quotas.items()))


def set_limits(app: App, args: argparse.Namespace) -> None:
    project_id, user_id = _whose(app, args)
    wanted = {name: getattr(args, name) for name in quotas.RESOURCES if getattr(args, name) is not None}

    def write(uow: UnitOfWork) -> None:
        for resource, limit in wanted.items():
            quotas.set_limit(uow, project_id, resource, None if limit == DEFAULT else limit, user_id)

    app.db.write(write)
    _show(app, project_id, user_id)


def _limit(text: str) -> int | str:
    try:
        return DEFAULT if text == DEFAULT else at_least(quotas.UNLIMITED)(text)
    except argparse.ArgumentTypeError as error:
        instead = f"{quotas.UNLIMITED} is unlimited, and {DEFAULT} is allowed"
        raise argparse.ArgumentTypeError(f"{error}; {instead}") from error
