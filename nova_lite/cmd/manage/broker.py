"""Command ``broker``: permissions that a daemon's RabbitMQ account needs."""

from __future__ import annotations

import argparse
import warnings

from oslo_config import cfg

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
    found = broker.permissions(args.role, args.host, _notification_names(app.conf))
    app.show(
        ("Exchange", "Configure", "Write", "Read"),
        [("", found.configure, found.write, found.read), (broker.EXCHANGE, None, found.topic_write, found.topic_read)],
    )


def _notification_names(conf: cfg.ConfigOpts) -> broker.NotificationNames:
    """Return the names of the options. Options of oslo.messaging exist once a notifier is made."""
    with warnings.catch_warnings(action="ignore"):
        import oslo_messaging as messaging  # slow to load
    messaging.Notifier(messaging.get_notification_transport(conf), publisher_id="", driver="noop")
    return broker.NotificationNames(
        exchange=conf.notifications.exchange,
        versioned_topics=tuple(conf.notifications.versioned_notifications_topics),
        topics=tuple(conf.oslo_messaging_notifications.topics),
    )
