"""Command ``keys``: keys that sign messages, and the list of trusted ones."""

from __future__ import annotations

import argparse
import base64
import binascii
import datetime
import os
import pwd

from nova_lite.base import exceptions, files, host_certificates
from nova_lite.base.host_certificates import (
    CLIENT_CERTIFICATE,
    CLIENT_KEY,
    CONSOLES,
    HOST_CERTIFICATES,
    SERVER_CERTIFICATE,
    SERVER_KEY,
    Authority,
)
from nova_lite.cmd.manage.app import App, Commands, at_least
from nova_lite.rpc import keys
from nova_lite.rpc.keys import ROLES, PrivateKey, TrustedKey
from nova_lite.rpc.trusted_list import OVERLAP, changing, read

#: Suffix of a key file that ``rotate --stage`` made and that is not used yet.
STAGED = ".next"


def register(commands: Commands) -> None:
    noun = commands.noun("keys", "Create, trust, rotate, and revoke the keys of daemons (docs/howto/manage-keys.md).")
    create = commands.verb(noun, "create", "Create a daemon's key and trust it.", create_key)
    _daemon(create)
    _owner(create)
    _add_directory(commands.verb(noun, "list", "List the trusted keys.", list_keys))
    trust = commands.verb(noun, "trust", "Trust a key that was created on another machine.", trust_key)
    _daemon(trust)
    trust.add_argument("key", metavar="PUBLIC_KEY", help="public key as shown by keys create and keys list")
    rotate = commands.verb(noun, "rotate", "Replace a daemon's key; both keys stay valid for a while.", rotate_key)
    _daemon(rotate)
    _owner(rotate)
    rotate.add_argument(
        "--overlap", type=at_least(0), default=OVERLAP, metavar="SECONDS", help="how long the old key stays valid"
    )
    rotate.add_argument(
        "--stage",
        action="store_true",
        help="create and trust the new key, but use it only at the next rotate, when all hosts have the list",
    )
    revoke = commands.verb(noun, "revoke", "Revoke a key at once.", revoke_key)
    revoke.add_argument("id", metavar="ID")
    _add_directory(revoke)


def _add_directory(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--directory", metavar="DIRECTORY", help="default: [rpc] keys_directory")


def _daemon(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("role", choices=ROLES)
    parser.add_argument("host", metavar="HOST", help="[DEFAULT] host of the daemon")
    _add_directory(parser)


def _owner(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--owner", metavar="USER", help="owner of the file; for root only")


def create_key(app: App, args: argparse.Namespace) -> None:
    directory = _directory(app, args)
    path = _path(directory, args)
    with changing(directory) as trusted:
        if os.path.exists(path):
            raise exceptions.InvalidInput(reason=f"{path} is there already; keys rotate replaces it")
        entry = _new_key(path, args.role, args.host, args.owner)
        trusted.append(entry)
    _show(app, [entry])


def provide_key(directory: str, role: str, host: str, owner: str) -> bool:
    """Create a daemon's key unless it exists, and trust it unless it is trusted. Returns whether that was necessary.

    An interrupted call may have left a key that is not trusted.
    """
    path = keys.private_path(directory, role, host)
    with changing(directory) as trusted:
        if not os.path.exists(path):
            trusted.append(_new_key(path, role, host, owner))
            return True
        entry = PrivateKey.read(path).trusted(role, host, keys.now())
        if any(item.id == entry.id for item in trusted):
            return False
        trusted.append(entry)
        return True


def _new_key(path: str, role: str, host: str, owner: str | None) -> TrustedKey:
    key = PrivateKey.generate()
    _write_private(path, key, owner)
    return key.trusted(role, host, keys.now())


def list_keys(app: App, args: argparse.Namespace) -> None:
    _show(app, read(_directory(app, args)))


def trust_key(app: App, args: argparse.Namespace) -> None:
    keys.check_name(args.role, args.host)
    try:
        public = base64.b64decode(args.key, validate=True)
    except binascii.Error:
        public = b""
    if len(public) != 32:
        raise exceptions.InvalidInput(reason="a public key is 32 bytes in base64")
    entry = TrustedKey(id=keys.key_id(public), role=args.role, host=args.host, key=args.key, not_before=keys.now())
    with changing(_directory(app, args)) as trusted:
        if any(item.id == entry.id for item in trusted):
            raise exceptions.InvalidInput(reason=f"key {entry.id} is trusted already")
        trusted.append(entry)
    _show(app, [entry])


def rotate_key(app: App, args: argparse.Namespace) -> None:
    directory = _directory(app, args)
    path = _path(directory, args)
    current = PrivateKey.read(path)
    now = keys.now()
    with changing(directory) as trusted:
        staged = os.path.exists(path + STAGED)
        if args.stage and staged:
            raise exceptions.InvalidInput(reason=f"{path}{STAGED} is there already; keys rotate puts it to use")
        new = PrivateKey.read(path + STAGED) if staged else PrivateKey.generate()
        if all(item.id != new.id for item in trusted):
            trusted.append(new.trusted(args.role, args.host, now))
        if args.stage:
            _write_private(path + STAGED, new, args.owner or _owner_of(path))
        else:
            until = now + datetime.timedelta(seconds=args.overlap)
            for item in trusted:
                if item.id == current.id:
                    item.not_after = until
            trusted[:] = [item for item in trusted if item.is_valid(now.timestamp()) or item.role != args.role]
    if not args.stage:  # only now that it is trusted
        with files.locked_directory(directory):
            _write_private(path, new, args.owner or _owner_of(path))
            files.remove(path + STAGED)
        _renew_certificates(app, os.path.join(directory, HOST_CERTIFICATES), args)
    _show(app, [item for item in read(directory) if (item.role, item.host) == (args.role, args.host)])


def proxy_directory(authority: str, name: str) -> str:
    """Return the directory of a proxy's certificate in the directory of the authority."""
    return os.path.join(authority, f"proxy-{name}")


def _renew_certificates(app: App, authority: str, args: argparse.Namespace) -> None:
    """Renew the certificates of a daemon that has any in the directory of the authority, for the same time as before.

    Names, addresses and the owner of the keys stay.
    """
    if args.role == keys.COMPUTE:
        directory, certificate, key = os.path.join(authority, args.host), SERVER_CERTIFICATE, SERVER_KEY
    elif args.role == keys.CONSOLE:
        directory, certificate, key = proxy_directory(authority, args.host), CLIENT_CERTIFICATE, CLIENT_KEY
    else:
        return
    if not os.path.exists(os.path.join(directory, certificate)):
        return
    old = host_certificates.read(os.path.join(directory, certificate))
    status = os.stat(os.path.join(directory, key))
    owner = (status.st_uid, status.st_gid) if os.geteuid() == 0 else None
    days = max(1, (old.end - old.start).days)
    issuer = Authority(authority)
    if args.role == keys.COMPUTE:
        addresses = old.names[1:]
        issuer.issue(args.host, addresses, directory, days, owner)
        issuer.issue_console(args.host, addresses, os.path.join(directory, CONSOLES), owner)
    else:
        issuer.issue_proxy(args.host, directory, days, owner)
    app.say(f"The certificates of {args.host} in {directory} are renewed: copy them to where the host has them.")


def revoke_key(app: App, args: argparse.Namespace) -> None:
    with changing(_directory(app, args)) as trusted:
        gone = [item for item in trusted if item.id == args.id]
        if not gone:
            raise exceptions.InvalidInput(reason=f"no key {args.id} is trusted")
        trusted[:] = [item for item in trusted if item.id != args.id]
    app.say(f"Key {args.id} of {gone[0].peer} is trusted no more by who has this list.")


def _directory(app: App, args: argparse.Namespace) -> str:
    directory: str | None = args.directory or app.conf.rpc.keys_directory
    if not directory:
        raise exceptions.ConfigurationError(reason="[rpc] keys_directory is not set; or say --directory")
    return directory


def _path(directory: str, args: argparse.Namespace) -> str:
    keys.check_name(args.role, args.host)
    return keys.private_path(directory, args.role, args.host)


def _write_private(path: str, key: PrivateKey, owner: str | None) -> None:
    files.write_atomically(path, key.pem(), mode=0o600, owner=ids_of(owner))


def ids_of(owner: str | None) -> tuple[int, int] | None:
    """Return the ids of a user and its group. Raises `InvalidInput` for a user that does not exist."""
    if owner is None:
        return None
    try:
        found = pwd.getpwnam(owner)
    except KeyError:
        raise exceptions.InvalidInput(reason=f"there is no user {owner}") from None
    return found.pw_uid, found.pw_gid


def _owner_of(path: str) -> str:
    return pwd.getpwuid(os.stat(path).st_uid).pw_name


def _show(app: App, found: list[TrustedKey]) -> None:
    app.show(
        ("ID", "Role", "Host", "Valid From", "Valid Until", "Public Key"),
        [(item.id, item.role, item.host, item.not_before, item.not_after, item.key) for item in found],
    )
