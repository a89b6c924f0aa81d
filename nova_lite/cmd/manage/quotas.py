"""Command ``quota``: limits of a project, and of single users in it."""

from __future__ import annotations

import argparse

from nova_lite.cmd.manage.app import App, Commands, at_least
from nova_lite.db import quotas
from nova_lite.db.engine import UnitOfWork

DEFAULT = "default"


def register(commands: Commands) -> None:
    noun = commands.noun("quota", "Show and set quotas of a project.")
    show_ = commands.verb(noun, "show", "Show a project's limits and usage.", show)
    show_.add_argument("project")
    show_.add_argument("--user", help="show this user's limits and usage in the project")
    set_ = commands.verb(
        noun,
        "set",
        "Set limits of a project. -1 is unlimited, 'default' goes back to the configured default.",
        set_limits,
    )
    set_.add_argument("project")
    set_.add_argument("--user", help="set limits of this user in the project; 'default' restores the project's")
    for resource in quotas.RESOURCES:
        set_.add_argument("--" + resource.replace("_", "-"), dest=resource, type=_limit, metavar="LIMIT")


def show(app: App, args: argparse.Namespace) -> None:
    limits = app.db.read(quotas.get, app.conf, args.project, args.user)
    app.show(("Resource", "Limit", "Used"), ((name, quota.limit, quota.used) for name, quota in limits.quotas.items()))


def set_limits(app: App, args: argparse.Namespace) -> None:
    wanted = {name: getattr(args, name) for name in quotas.RESOURCES if getattr(args, name) is not None}

    def write(uow: UnitOfWork) -> None:
        for resource, limit in wanted.items():
            quotas.set_limit(uow, args.project, resource, None if limit == DEFAULT else limit, args.user)

    app.db.write(write)
    show(app, args)


def _limit(text: str) -> int | str:
    try:
        return DEFAULT if text == DEFAULT else at_least(quotas.UNLIMITED)(text)
    except argparse.ArgumentTypeError as error:
        instead = f"{quotas.UNLIMITED} is unlimited, and {DEFAULT} is allowed"
        raise argparse.ArgumentTypeError(f"{error}; {instead}") from error
