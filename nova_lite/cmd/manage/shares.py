"""Command ``share``: directories of hosts that servers of a project may mount."""

from __future__ import annotations

import argparse
from operator import attrgetter

from nova_lite.cmd.manage import accounts
from nova_lite.cmd.manage.app import App, Commands
from nova_lite.db.servers import shares
from nova_lite.objects import ShareProtocol


def register(commands: Commands) -> None:
    noun = commands.noun("share", "Create, list and delete shares, which servers mount by virtiofs.")
    create_ = commands.verb(noun, "create", "Create a share and print its id.", create)
    create_.add_argument("name", help="its directory on hosts is PROTOCOL/NAME below [libvirt] shares_path")
    create_.add_argument("--project", required=True, help="id, or name in the default domain")
    create_.add_argument(
        "--protocol",
        choices=[protocol.lower() for protocol in ShareProtocol],
        default=ShareProtocol.DIRECTORY.lower(),
        help="guests start only where such a file system is mounted; directory: any directory will do",
    )
    commands.verb(noun, "list", "List all shares.", list_)
    delete_ = commands.verb(noun, "delete", "Delete a share that no server has. Its files stay.", delete)
    delete_.add_argument("name")


def create(app: App, args: argparse.Namespace) -> None:
    project_id = accounts.project_id(app, args.project)
    print(app.db.write(shares.create, args.name, project_id, ShareProtocol(args.protocol.upper())).id)


def list_(app: App, args: argparse.Namespace) -> None:
    fields = attrgetter("id", "name", "project_id", "location")
    app.show(("ID", "Name", "Project", "Location"), map(fields, app.db.read(shares.list_)))


def delete(app: App, args: argparse.Namespace) -> None:
    app.db.write(shares.delete, args.name)
