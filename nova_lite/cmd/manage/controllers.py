"""Command ``controller``: further controllers of the cloud."""

from __future__ import annotations

import argparse
import os

from nova_lite.base import exceptions
from nova_lite.base.context import is_host_name
from nova_lite.base.host_certificates import HOST_CERTIFICATES, Authority
from nova_lite.cmd.manage.app import App, Commands
from nova_lite.cmd.manage.joining import controller_remove
from nova_lite.rpc import controllers


def register(commands: Commands) -> None:
    noun = commands.noun("controller", "List, admit, and remove controllers (docs/howto/high-availability.md).")
    commands.verb(noun, "list", "List the controllers of a cloud that has several.", controller_list)
    admit = commands.verb(
        noun,
        "admit",
        "Confirm a machine that becomes a controller by the code that it shows: nova-lite-setup controller TOKEN.",
        controller_admit,
    )
    admit.add_argument("host", metavar="HOST")
    admit.add_argument("code", metavar="CODE", help="code that the machine shows, such as ABCD-EFGH-IJKL-MNOP")
    remove = commands.verb(
        noun,
        "remove",
        "Remove a controller that joined and that does not run any more: its keys and its accounts at the broker.",
        controller_remove,
    )
    remove.add_argument("host", metavar="HOST")


def controller_list(app: App, args: argparse.Namespace) -> None:
    del args
    found = controllers.members(keys_directory(app))
    app.show(("Host", "Address"), [(member.host, member.address) for member in found])


def controller_admit(app: App, args: argparse.Namespace) -> None:
    """Write the code where root alone writes, so that neither an API nor a conductor can admit a controller."""
    if not is_host_name(args.host):
        raise exceptions.InvalidInput(reason=f"{args.host[:300]!r} is not a host name.")
    directory = os.path.join(keys_directory(app), HOST_CERTIFICATES)
    Authority(directory).services_certificate()
    if not controllers.members(keys_directory(app)):
        raise exceptions.ConfigurationError(
            reason="this cloud has one controller: set it up with --virtual-address first "
            "(docs/howto/high-availability.md)."
        )
    controllers.confirm(directory, args.host, args.code.upper())
    app.say(f"Machine {args.host} with code {args.code.upper()} may become a controller. It continues within seconds.")


def keys_directory(app: App) -> str:
    directory: str | None = app.conf.rpc.keys_directory
    if not directory:
        raise exceptions.ConfigurationError(reason="[rpc] keys_directory is not set.")
    return directory
