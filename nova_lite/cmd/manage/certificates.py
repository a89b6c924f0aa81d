"""Command ``certificates``: certificates with which libvirt hosts encrypt migrations and recognise each other."""

from __future__ import annotations

import argparse
import os

from nova_lite.base import exceptions, ip
from nova_lite.base.host_certificates import Authority
from nova_lite.cmd.manage.app import App, Commands, at_least
from nova_lite.cmd.manage.keys import ids_of
from nova_lite.rpc import keys

#: Directory of the authority below the directory of keys.
AUTHORITY = "hosts"
LIFETIME_DAYS = 365


def register(commands: Commands) -> None:
    noun = commands.noun("certificates", "Create the certificates of libvirt hosts (docs/howto/live-migrate.md).")
    text = "Create or renew a host's certificate. The first one creates the authority as well."
    create = commands.verb(noun, "create", text, create_certificate)
    create.add_argument("host", metavar="HOST", help="[DEFAULT] host of its compute daemon")
    create.add_argument(
        "--address",
        action="append",
        required=True,
        metavar="ADDRESS",
        help="[libvirt] live_migration_inbound_addr, or my_ip; may be repeated",
    )
    create.add_argument(
        "--output", metavar="DIRECTORY", help="directory of the files; default: HOST in the authority's"
    )
    create.add_argument("--days", type=at_least(1), default=LIFETIME_DAYS, metavar="DAYS", help="how long it is valid")
    create.add_argument("--owner", metavar="USER", help="owner of the keys: qemu's user; for root only")
    create.add_argument(
        "--authority", metavar="DIRECTORY", help=f"directory of the authority; default: {AUTHORITY} in keys_directory"
    )


def create_certificate(app: App, args: argparse.Namespace) -> None:
    keys.check_name(keys.COMPUTE, args.host)
    for address in args.address:
        if not ip.is_address(address):
            keys.check_name(keys.COMPUTE, address)
    directory = args.authority or (app.conf.rpc.keys_directory and os.path.join(app.conf.rpc.keys_directory, AUTHORITY))
    if not directory:
        raise exceptions.ConfigurationError(reason="[rpc] keys_directory is not set; or say --authority")
    authority = Authority(directory)
    authority.create()
    output = args.output or os.path.join(directory, args.host)
    made = authority.issue(args.host, args.address, output, args.days, ids_of(args.owner))
    app.show(
        ("Host", "Addresses", "Valid Until", "Directory"),
        [(args.host, ", ".join(args.address), made.not_valid_after_utc.replace(tzinfo=None), output)],
    )
