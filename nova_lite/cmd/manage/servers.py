"""Command ``server``: servers as they were, servers from elsewhere, and those whose guest is newer than their row after
a restore.
"""

from __future__ import annotations

import argparse

from nova_lite import operations
from nova_lite.base import exceptions
from nova_lite.cmd.manage import importing, past
from nova_lite.cmd.manage.app import App, Commands
from nova_lite.db.servers import newer_domains

_ADOPT, _REBUILD, _DELETE = "adopt", "rebuild", "delete"

_CHOICES = """\
nova-lite-manage server newer SERVER --adopt     the row gets the guest's host and generation: commands reach the guest
nova-lite-manage server newer SERVER --rebuild   the same, then a new guest from the row's image, at the same host
nova-lite-manage server newer SERVER --delete    the same, then guest and server are deleted
Flavor, image, name and metadata of the row are older than the guest. A hard reboot gives the guest the row's flavor."""


def register(commands: Commands) -> None:
    noun = commands.noun(
        "server", "Show servers as they were, import servers from elsewhere, and take servers back after a restore."
    )
    past.add_options(
        commands.verb(noun, "show", "Show a server's row as it was at a time. Nothing is changed.", past.show),
        commands.verb(
            noun,
            "replay",
            "Repeat the decision that placed a server, with the servers that hosts had then. Nothing is changed. Exit "
            "with 1 if the decision would be another one.",
            past.replay,
        ),
    )
    importing.add_options(
        commands.verb(
            noun,
            "import",
            "Read a guest of Proxmox from its API or a backup, make images of the backup's disks, and print the "
            "commands that make the server. Importing the same again changes nothing.",
            importing.import_server,
        )
    )
    newer_ = commands.verb(
        noun,
        "newer",
        "Show servers whose guest is newer than their row, or take one back. Exit 1 if the list has one.",
        newer,
    )
    newer_.add_argument("server", metavar="SERVER", nargs="?", help="default: list all")
    what = newer_.add_mutually_exclusive_group()
    for name, text in (
        (_ADOPT, "keep the guest: commands reach it from now on"),
        (_REBUILD, "adopt the guest, and rebuild it from the image of the row. Its local disks are lost"),
        (_DELETE, "adopt the guest, and delete the server. Its local disks are lost"),
    ):
        what.add_argument(f"--{name}", dest="what", action="store_const", const=name, help=text)
    newer_.add_argument(
        "--other-hosts-are-off",
        action="store_true",
        help="your word that no guest runs on a host whose daemon is silent. If one does, the server may run twice",
    )


def newer(app: App, args: argparse.Namespace) -> int:
    if (args.server is None) != (args.what is None):
        raise exceptions.ConfigurationError(
            reason="server newer needs both a server and what to do with it, or neither."
        )
    if args.server is None:
        return _show(app)
    found = app.db.write(newer_domains.adopt, args.server, args.other_hosts_are_off)
    app.say(
        f"Server {found.uuid} is at host {found.host} with generation {found.generation}: commands reach its guest."
    )
    if args.what == _REBUILD:
        app.servers.accept(
            app.context, found.uuid, operations.REBUILD.kind, app.db.read(newer_domains.rebuild_of, found.uuid)
        )
        app.say(f"Server {found.uuid} is being rebuilt.")
    elif args.what == _DELETE:
        app.servers.accept(app.context, found.uuid, operations.DELETE.kind, {})
        app.say(f"Server {found.uuid} is being deleted.")
    return 0


def _show(app: App) -> int:
    found = app.db.read(newer_domains.all_newer)
    app.show(
        (
            "Server",
            "Name",
            "Row Host",
            "Row Generation",
            "Row Status",
            "Guest Host",
            "Guest Generation",
            "Power",
            "Disks",
        ),
        [
            (
                item.uuid,
                item.name,
                item.row_host,
                item.row_generation,
                item.vm_state,
                item.host,
                item.generation,
                item.power_state.name.lower(),
                "root on a volume" if item.has_root_volume else f"at {item.host}",
            )
            for item in found
        ],
    )
    if found and app.output != "json":
        app.say(_CHOICES)
    return 1 if found else 0
