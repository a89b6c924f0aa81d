"""``db``: the schema."""

from __future__ import annotations

import argparse

from nova_lite.cmd.manage.app import App, Commands
from nova_lite.conductor.db import migration


def register(commands: Commands) -> None:
    noun = commands.noun("db", "Bring the database's schema up to date, or look at it.")
    commands.verb(noun, "sync", "Create or upgrade the schema; the daemons may run meanwhile.", sync)
    commands.verb(noun, "version", "Print the schema's version.", show_version)
    commands.verb(noun, "check", "Exit with 1 unless the schema is the one this program needs.", check)


def sync(app: App, args: argparse.Namespace) -> None:
    before = migration.version(app.conf)
    after = migration.sync(app.conf)
    print(f"The schema is {after} already." if before == after else f"The schema is {after} now.")


def show_version(app: App, args: argparse.Namespace) -> None:
    print(migration.version(app.conf) or "none: run nova-lite-manage db sync")


def check(app: App, args: argparse.Namespace) -> None:
    migration.check(app.conf)
    print(f"The schema is {migration.head()}, as it has to be.")
