"""Command ``certificates``: certificates with which libvirt hosts and console proxies recognise each other."""

from __future__ import annotations

import argparse
import datetime
import os

from cryptography import x509

from nova_lite.base import exceptions, host_certificates, ip
from nova_lite.base.host_certificates import CONSOLES, HOST_CERTIFICATES, Authority
from nova_lite.cmd.manage.app import App, Commands, at_least
from nova_lite.cmd.manage.keys import ids_of, proxy_directory
from nova_lite.rpc import keys

LIFETIME_DAYS = 365


def register(commands: Commands) -> None:
    text = "Create the certificates of libvirt hosts and console proxies (docs/howto/live-migrate.md)."
    noun = commands.noun("certificates", text)
    text = "Create or renew the certificates of a host. The first one creates the authority as well."
    create = commands.verb(noun, "create", text, create_certificate)
    create.add_argument("host", metavar="HOST", help="[DEFAULT] host of its compute daemon")
    create.add_argument(
        "--address",
        action="append",
        required=True,
        metavar="ADDRESS",
        help="[libvirt] live_migration_inbound_addr, or my_ip; may be repeated",
    )
    _options(create, "HOST", "qemu's user")
    text = "Create or renew the certificate with which the console proxies of a machine reach the hosts' consoles."
    proxy = commands.verb(noun, "proxy", text, create_proxy_certificate)
    proxy.add_argument("name", metavar="NAME", help="name of the machine")
    _options(proxy, "proxy-NAME", "the proxies' user")
    text = "List certificates and how long they are valid: the authority's, or those in a host's directory."
    listing = commands.verb(noun, "list", text, list_certificates)
    listing.add_argument("directory", nargs="*", metavar="DIRECTORY", help="such as /etc/pki/qemu on a host")
    _add_authority(listing)


def _options(parser: argparse.ArgumentParser, default: str, user: str) -> None:
    parser.add_argument(
        "--output", metavar="DIRECTORY", help=f"directory of the files; default: {default} in the authority's"
    )
    parser.add_argument("--days", type=at_least(1), default=LIFETIME_DAYS, metavar="DAYS", help="how long it is valid")
    parser.add_argument("--owner", metavar="USER", help=f"owner of the keys: {user}; for root only")
    _add_authority(parser)


def _add_authority(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--authority",
        metavar="DIRECTORY",
        help=f"directory of the authority; default: {HOST_CERTIFICATES} in keys_directory",
    )


def list_certificates(app: App, args: argparse.Namespace) -> None:
    directories = args.directory or _known_directories(_authority_directory(app, args))
    found = [item for directory in directories for item in host_certificates.find(directory)]
    now = datetime.datetime.now(datetime.UTC)
    app.show(
        ("File", "Names", "Valid Until", "Days Left"),
        [(item.path, ", ".join(item.names), item.end.replace(tzinfo=None), (item.end - now).days) for item in found],
    )


def _known_directories(authority: str) -> list[str]:
    """Return the directories that the authority has filled, its own first."""
    if not os.path.isdir(authority):
        return []
    with os.scandir(authority) as entries:
        return [authority, *sorted(entry.path for entry in entries if entry.is_dir())]


def create_certificate(app: App, args: argparse.Namespace) -> None:
    keys.check_name(keys.COMPUTE, args.host)
    for address in args.address:
        if not ip.is_address(address):
            keys.check_name(keys.COMPUTE, address)
    authority, directory = _authority(app, args)
    output, owner = args.output or os.path.join(directory, args.host), ids_of(args.owner)
    made = authority.issue(args.host, args.address, output, args.days, owner)
    consoles = os.path.join(output, CONSOLES)
    own = authority.issue_console(args.host, args.address, consoles, owner)
    addresses = ", ".join(args.address)
    app.show(
        ("Host", "Addresses", "Valid Until", "Directory"),
        [(args.host, addresses, _end(made), output), (args.host, addresses, _end(own), consoles)],
    )


def create_proxy_certificate(app: App, args: argparse.Namespace) -> None:
    keys.check_name(keys.CONSOLE, args.name)
    authority, directory = _authority(app, args)
    output = args.output or proxy_directory(directory, args.name)
    made = authority.issue_proxy(args.name, output, args.days, ids_of(args.owner))
    app.show(("Proxy", "Valid Until", "Directory"), [(args.name, _end(made), output)])


def _authority(app: App, args: argparse.Namespace) -> tuple[Authority, str]:
    """Return the authority and its directory. It is created if it does not exist."""
    directory = _authority_directory(app, args)
    authority = Authority(directory)
    authority.create()
    return authority, directory


def _authority_directory(app: App, args: argparse.Namespace) -> str:
    if args.authority:
        return str(args.authority)
    if not app.conf.rpc.keys_directory:
        raise exceptions.ConfigurationError(reason="[rpc] keys_directory is not set; or say --authority")
    return os.path.join(app.conf.rpc.keys_directory, HOST_CERTIFICATES)


def _end(certificate: x509.Certificate) -> datetime.datetime:
    return certificate.not_valid_after_utc.replace(tzinfo=None)
