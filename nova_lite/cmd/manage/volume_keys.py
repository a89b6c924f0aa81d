"""Command ``volume-key``: master keys of encrypted volumes."""

from __future__ import annotations

import argparse
import os
import pwd

from nova_lite.base import exceptions, key_files, master_keys
from nova_lite.base.master_keys import MasterKeys
from nova_lite.cmd.manage.app import App, Commands
from nova_lite.db.volume import volume_keys

#: Keys that are wrapped again in one transaction.
BATCH = 100


def register(commands: Commands) -> None:
    noun = commands.noun(
        "volume-key", "Create, replace and remove the master keys of encrypted volumes (docs/howto/volumes.md)."
    )
    create_ = commands.verb(noun, "create", "Create the file with a first master key.", create)
    create_.add_argument("--file", metavar="FILE", help=f"default: {master_keys.OPTION}")
    create_.add_argument("--owner", metavar="USER", help="owner of the file; for root only")
    commands.verb(noun, "list", "List the master keys, the newest first, and how many keys each wraps.", show)
    commands.verb(noun, "add", "Add a master key that is not used yet, to distribute the file before.", add)
    rotate_ = commands.verb(
        noun,
        "rotate",
        "Wrap the keys of all volumes and backups with a new master key. The daemons may run. May be repeated.",
        rotate,
    )
    rotate_.add_argument("--to", metavar="ID", help="master key to use; default: a new one")
    remove_ = commands.verb(noun, "remove", "Remove a master key that wraps nothing any more.", remove)
    remove_.add_argument("id", metavar="ID")


def create(app: App, args: argparse.Namespace) -> None:
    path = args.file or _path(app)
    account = None if args.owner is None else _account(args.owner)
    if not master_keys.provide(path, account):
        raise exceptions.InvalidInput(reason=f"{path} is there already; volume-key rotate replaces its key")


def _account(name: str) -> tuple[int, int]:
    try:
        found = pwd.getpwnam(name)
    except KeyError as error:
        raise exceptions.InvalidInput(reason=f"there is no user {name}") from error
    return found.pw_uid, found.pw_gid


def show(app: App, args: argparse.Namespace) -> None:
    known = _read(_path(app)).ids
    used = app.db.read(volume_keys.by_master_key)
    states = {key_id: "missing" for key_id in used if key_id not in known}
    states = dict.fromkeys(known, "old") | {known[0]: "newest"} | states
    app.show(("ID", "State", "Keys"), [(key_id, state, used.get(key_id, 0)) for key_id, state in states.items()])


def add(app: App, args: argparse.Namespace) -> None:
    """Write the new key behind the others, so that conductors read with it and do not write."""
    path = _path(app)
    known = _read(path)
    made = master_keys.new()
    _write(path, known.followed_by(made))
    app.show(("ID",), [(made.ids[0],)])


def rotate(app: App, args: argparse.Namespace) -> None:
    """Write the file first: from then on conductors make no key with the old one."""
    path = _path(app)
    known = _read(path)
    if args.to is None:
        known = master_keys.new().followed_by(known)
    else:
        _require(known, args.to)
        known = known.beginning_with(args.to)
    _write(path, known)
    count = 0
    while done := app.db.write(volume_keys.rewrap, known, BATCH):
        count += done
    app.show(("ID", "Rewrapped"), [(known.ids[0], count)])


def remove(app: App, args: argparse.Namespace) -> None:
    path = _path(app)
    known = _read(path)
    _require(known, args.id)
    used = app.db.read(volume_keys.by_master_key).get(args.id, 0)
    if used or args.id == known.ids[0]:
        why = f"wraps {used} keys" if used else "is the newest"
        raise exceptions.InvalidInput(reason=f"master key {args.id} {why}: run volume-key rotate first")
    _write(path, known.without(args.id))


def _path(app: App) -> str:
    path: str = app.conf.volume.encryption_key_file
    if not path:
        raise exceptions.ConfigurationError(reason=f"{master_keys.OPTION} is not set.")
    return path


def _read(path: str) -> MasterKeys:
    return master_keys.read(path, key_files.owners_of(path))


def _write(path: str, keys: MasterKeys) -> None:
    status = os.stat(path)
    keys.write(path, (status.st_uid, status.st_gid))


def _require(keys: MasterKeys, key_id: str) -> None:
    if key_id not in keys.ids:
        raise exceptions.InvalidInput(reason=f"there is no master key {key_id[:64]} in the file")
