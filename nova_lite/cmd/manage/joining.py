"""Commands ``host token`` and ``host remove``: hosts that join with a token."""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

from nova_lite.base import exceptions, host_certificates
from nova_lite.base.host_certificates import HOST_CERTIFICATES, Authority
from nova_lite.base.join_requests import COMPUTE_HOST, CONTROLLER, JoinToken
from nova_lite.cmd.manage.app import App, Commands, at_least
from nova_lite.conf import join
from nova_lite.db.hosts import joins, services

#: Seconds for which a token is valid, and the longest time that an operator may choose.
LIFETIME, MAX_LIFETIME = 3600, 7 * 86400


def register(commands: Commands, noun: Any) -> None:
    """Add the commands to the noun ``host``."""
    token = commands.verb(
        noun,
        "token",
        "Print a token with which one new machine becomes a compute host: nova-lite-setup compute TOKEN.",
        host_token,
    )
    token.add_argument(
        "--expires",
        type=at_least(60),
        default=LIFETIME,
        metavar="SECONDS",
        help=f"how long the token can be used, at most {MAX_LIFETIME}; default: {LIFETIME}",
    )
    others = token.add_mutually_exclusive_group()
    others.add_argument("--list", action="store_true", help="list the tokens of the last 30 days instead")
    others.add_argument("--revoke", metavar="ID", help="revoke a token that was not used instead")
    remove = commands.verb(
        noun,
        "remove",
        "Remove a host without servers that joined with a token: its key, broker account, and service.",
        host_remove,
    )
    remove.add_argument("host", metavar="HOST")


def host_token(app: App, args: argparse.Namespace) -> None:
    if args.list:
        _list(app)
    elif args.revoke:
        app.db.write(lambda uow: joins.revoke_token(uow, args.revoke))
        app.say(f"Token {args.revoke} cannot be used any more.")
    else:
        _create(app, args.expires)


def _create(app: App, lifetime: int) -> None:
    if lifetime > MAX_LIFETIME:
        raise exceptions.InvalidInput(reason=f"--expires: at most {MAX_LIFETIME} seconds (7 days)")
    token = JoinToken.generate(join.join_address(app.conf), _pin(app))
    app.db.write(lambda uow: joins.create_token(uow, token.public_key, lifetime))
    if app.output == "json":
        app.show(("ID", "Token", "Lifetime"), [(token.id, token.text(), lifetime)])
    else:
        print(token.text())


def _pin(app: App) -> bytes:
    """Return the SHA-256 of the certificate by which hosts recognise this cloud."""
    directory = app.conf.rpc.keys_directory
    if not directory:
        raise exceptions.ConfigurationError(reason="[rpc] keys_directory is not set: hosts join clouds with keys only.")
    authority = Authority(os.path.join(directory, HOST_CERTIFICATES))
    return host_certificates.fingerprint(authority.services_certificate())


def _list(app: App) -> None:
    app.show(
        ("ID", "Created At", "Expires At", "Used At", "Used By", "Revoked At"),
        [
            (token.id, token.created_at, token.expires_at, token.used_at, token.host, token.revoked_at)
            for token in app.db.read(joins.list_tokens)
        ],
    )


def host_remove(app: App, args: argparse.Namespace) -> None:
    """Revoke the key and the account first, so that the host cannot report itself again. Then delete the service.

    A repeated call continues where the last one stopped.
    """
    app.db.write(lambda uow: joins.remove(uow, args.host))
    wait_until_removed(app, args.host, COMPUTE_HOST)
    time.sleep(app.timing.last_report)
    for service in app.db.read(lambda uow: services.list_(uow, args.host, services.COMPUTE)):
        app.servers.conductor.service_delete(app.context, service.uuid)
    app.say(f"Host {args.host} is removed. On the machine: nova-lite-setup remove --purge --yes")


def controller_remove(app: App, args: argparse.Namespace) -> None:
    """Revoke the keys and the accounts. A compute host on the same machine stays."""
    app.db.write(lambda uow: joins.remove_controller(uow, args.host))
    wait_until_removed(app, args.host, CONTROLLER)
    app.say(f"Controller {args.host} is removed. On the machine: nova-lite-setup remove --purge --yes")


def wait_until_removed(app: App, host: str, kind: str) -> None:
    deadline = time.monotonic() + app.timing.removal_wait
    while (problem := app.db.read(lambda uow: joins.removal(uow, host, kind))) is not None:
        if problem or time.monotonic() > deadline:
            raise exceptions.ConfigurationError(
                reason=f"Host {host} is not removed yet: {problem or 'nova-lite-registrar does not run.'} "
                "Correct this, and run the same command again."
            )
        time.sleep(app.timing.removal_poll)
