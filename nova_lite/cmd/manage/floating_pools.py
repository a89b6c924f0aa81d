"""Command ``floating-pool``: pools of floating addresses for the built-in networks."""

from __future__ import annotations

import argparse
from operator import attrgetter

from nova_lite.cmd.manage.app import App, Commands
from nova_lite.db.network import floating_ips


def register(commands: Commands) -> None:
    noun = commands.noun("floating-pool", "Create, list and delete pools of floating addresses.")
    create_ = commands.verb(noun, "create", "Create a pool and print its id.", create)
    create_.add_argument("name")
    create_.add_argument(
        "cidr", metavar="CIDR", help="every address of it may be allocated; each becomes a /32 on a host"
    )
    commands.verb(noun, "list", "List all pools.", list_)
    delete_ = commands.verb(noun, "delete", "Delete a pool without allocated addresses.", delete)
    delete_.add_argument("name")


def create(app: App, args: argparse.Namespace) -> None:
    print(app.db.write(floating_ips.create_pool, args.name, args.cidr).id)


def list_(app: App, args: argparse.Namespace) -> None:
    app.show(("ID", "Name", "CIDR"), map(attrgetter("id", "name", "cidr"), app.db.read(floating_ips.pools)))


def delete(app: App, args: argparse.Namespace) -> None:
    app.db.write(floating_ips.delete_pool, args.name)
