"""Command ``frontend``: machines with the APIs, or the console proxies, alone."""

from __future__ import annotations

import argparse
import os

from nova_lite.base import exceptions
from nova_lite.base.context import is_host_name
from nova_lite.base.host_certificates import HOST_CERTIFICATES, Authority
from nova_lite.base.join_requests import FRONT_ENDS
from nova_lite.cmd.manage.app import App, Commands
from nova_lite.cmd.manage.controllers import keys_directory
from nova_lite.cmd.manage.joining import wait_until_removed
from nova_lite.db.hosts import joins
from nova_lite.rpc import controllers


def register(commands: Commands) -> None:
    noun = commands.noun(
        "frontend",
        "List, admit, and remove machines with the APIs, or the console proxies, alone (docs/howto/front-ends.md).",
    )
    commands.verb(noun, "list", "List the machines with one role.", frontend_list)
    admit = commands.verb(
        noun,
        "admit",
        "Confirm a machine by the code that it shows: nova-lite-setup api TOKEN, or console TOKEN.",
        frontend_admit,
    )
    remove = commands.verb(
        noun, "remove", "Remove such a machine: its key and its account at the broker.", frontend_remove
    )
    for command in (admit, remove):
        command.add_argument("role", metavar="ROLE", choices=FRONT_ENDS, help=" or ".join(FRONT_ENDS))
        command.add_argument("host", metavar="HOST")
    admit.add_argument("code", metavar="CODE", help="code that the machine shows, such as ABCD-EFGH-IJKL-MNOP")


def frontend_list(app: App, args: argparse.Namespace) -> None:
    del args
    found = controllers.front_ends(keys_directory(app))
    app.show(("Role", "Host", "Address"), [(machine.role, machine.host, machine.address) for machine in found])


def frontend_admit(app: App, args: argparse.Namespace) -> None:
    """Write the code where root alone writes: an API speaks for every user, so no token alone makes one."""
    if not is_host_name(args.host):
        raise exceptions.InvalidInput(reason=f"{args.host[:300]!r} is not a host name.")
    directory = os.path.join(keys_directory(app), HOST_CERTIFICATES)
    Authority(directory).services_certificate()
    code = args.code.upper()
    controllers.confirm(directory, controllers.front_end_name(args.role, args.host), code)
    app.say(f"Machine {args.host} with code {code} may serve as {args.role}. It continues within seconds.")


def frontend_remove(app: App, args: argparse.Namespace) -> None:
    app.db.write(lambda uow: joins.remove_controller(uow, args.host, args.role))
    wait_until_removed(app, args.host, args.role)
    app.say(f"{args.role} of {args.host} is removed. On the machine: nova-lite-setup remove --purge --yes")
