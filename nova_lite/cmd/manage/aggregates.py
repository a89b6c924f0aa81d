"""Command ``aggregate``: groups of hosts with common metadata."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from nova_lite.cmd.manage.app import App, Commands, key_value
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.hosts import aggregates
from nova_lite.objects import Aggregate


def register(commands: Commands) -> None:
    noun = commands.noun("aggregate", "Group hosts; an aggregate with a zone makes an availability zone.")
    create_ = commands.verb(noun, "create", "Create an aggregate and print its id.", create)
    create_.add_argument("name")
    create_.add_argument("--zone")
    create_.add_argument("--property", type=key_value, action="append", default=[], metavar="KEY=VALUE")
    commands.verb(noun, "list", "List all aggregates.", list_)
    set_ = commands.verb(noun, "set", "Change an aggregate.", set_values)
    set_.add_argument("aggregate", help="id, uuid or name")
    set_.add_argument("--name")
    set_.add_argument("--zone")
    set_.add_argument("--property", type=key_value, action="append", default=[], metavar="KEY=VALUE")
    set_.add_argument("--remove", action="append", default=[], metavar="KEY", help="property to remove")
    for verb, text, run in (
        ("add-host", "Put a host into an aggregate.", add_host),
        ("remove-host", "Take a host out of an aggregate.", remove_host),
    ):
        parser = commands.verb(noun, verb, text, run)
        parser.add_argument("aggregate", help="id, uuid or name")
        parser.add_argument("host")
    delete_ = commands.verb(noun, "delete", "Delete an aggregate that has no hosts.", delete)
    delete_.add_argument("aggregate", help="id, uuid or name")


def create(app: App, args: argparse.Namespace) -> None:
    def write(uow: UnitOfWork) -> Aggregate:
        made = aggregates.create(uow, args.name, args.zone)
        return aggregates.set_metadata(uow, app.conf, str(made.id), dict(args.property))

    print(app.db.write(write).id)


def list_(app: App, args: argparse.Namespace) -> None:
    _show(app, app.db.read(aggregates.list_))


def set_values(app: App, args: argparse.Namespace) -> None:
    names = {"name": args.name, "availability_zone": args.zone}
    changes = {key: value for key, value in names.items() if value is not None}
    metadata = dict(args.property) | dict.fromkeys(args.remove)

    def write(uow: UnitOfWork) -> Aggregate:
        aggregate = aggregates.set_metadata(uow, app.conf, args.aggregate, metadata)
        return aggregates.rename(uow, app.conf, str(aggregate.id), changes)

    _show(app, [app.db.write(write)])


def add_host(app: App, args: argparse.Namespace) -> None:
    _show(app, [app.db.write(aggregates.add_host, app.conf, args.aggregate, args.host)])


def remove_host(app: App, args: argparse.Namespace) -> None:
    _show(app, [app.db.write(aggregates.remove_host, app.conf, args.aggregate, args.host)])


def delete(app: App, args: argparse.Namespace) -> None:
    app.db.write(aggregates.delete, args.aggregate)


def _show(app: App, found: Iterable[Aggregate]) -> None:
    app.show(
        ("ID", "Name", "Zone", "Hosts", "Properties"),
        [(item.id, item.name, item.availability_zone, item.hosts, item.metadata) for item in found],
    )
