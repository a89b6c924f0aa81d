"""Command ``flavor``: sizes of servers."""

from __future__ import annotations

import argparse
from operator import attrgetter

from nova_lite import hardware
from nova_lite.cmd.manage.app import App, Commands, at_least, key_value
from nova_lite.db.servers import flavors
from nova_lite.objects import Flavor


def register(commands: Commands) -> None:
    noun = commands.noun("flavor", "Create, list and delete flavors.")
    create_ = commands.verb(noun, "create", "Create a flavor and print its id.", create)
    create_.add_argument("name")
    create_.add_argument("--id", default="", help="default: a new uuid")
    create_.add_argument("--vcpus", type=at_least(1), default=1)
    create_.add_argument("--ram", type=at_least(1), required=True, metavar="MB")
    create_.add_argument("--disk", type=at_least(0), default=0, metavar="GB", help="0: as large as the image")
    create_.add_argument("--ephemeral", type=at_least(0), default=0, metavar="GB")
    create_.add_argument("--swap", type=at_least(0), default=0, metavar="MB")
    create_.add_argument("--private", action="store_true", help="visible to admins and to projects with access only")
    create_.add_argument("--description")
    create_.add_argument("--property", type=key_value, action="append", default=[], metavar="KEY=VALUE")
    commands.verb(noun, "list", "List all flavors.", list_)
    delete_ = commands.verb(noun, "delete", "Delete a flavor; existing servers keep it.", delete)
    delete_.add_argument("id")


def create(app: App, args: argparse.Namespace) -> None:
    for key, value in args.property:
        hardware.check_extra_spec(key, value, with_values=True)
    flavor = Flavor(
        flavorid=args.id,
        name=args.name,
        vcpus=args.vcpus,
        memory_mb=args.ram,
        root_gb=args.disk,
        ephemeral_gb=args.ephemeral,
        swap=args.swap,
        is_public=not args.private,
        description=args.description,
        extra_specs=dict(args.property),
    )
    print(app.db.write(flavors.create, flavor).flavorid)


def list_(app: App, args: argparse.Namespace) -> None:
    app.show(
        ("ID", "Name", "RAM", "Disk", "Ephemeral", "Swap", "VCPUs", "Public", "Properties"),
        map(
            attrgetter(
                "flavorid", "name", "memory_mb", "root_gb", "ephemeral_gb", "swap", "vcpus", "is_public", "extra_specs"
            ),
            app.db.read(flavors.list_, app.context),
        ),
    )


def delete(app: App, args: argparse.Namespace) -> None:
    app.db.write(flavors.delete, app.context, args.id)
