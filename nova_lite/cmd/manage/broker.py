"""Command ``broker``: permissions that a daemon's RabbitMQ account needs."""

from __future__ import annotations

import argparse

from nova_lite.cmd.manage.app import App, Commands
from nova_lite.rpc import broker
from nova_lite.rpc.keys import ROLES


def register(commands: Commands) -> None:
    noun = commands.noun("broker", "Show permissions of accounts at the message broker.")
    permissions = commands.verb(
        noun, "permissions", "Show the permissions of a daemon's account, as rabbitmqctl takes them.", show_permissions
    )
    permissions.add_argument("role", choices=ROLES)
    permissions.add_argument("host", metavar="HOST", help="[DEFAULT] host of the daemon")


def show_permissions(app: App, args: argparse.Namespace) -> None:
    found = broker.permissions(args.role, args.host)
    app.show(
        ("Exchange", "Configure", "Write", "Read"),
        [("", found.configure, found.write, found.read), (broker.EXCHANGE, None, found.topic_write, found.topic_read)],
    )
