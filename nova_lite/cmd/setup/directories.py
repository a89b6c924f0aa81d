"""Directories that a purge of this machine removes, and what it leaves there.

A purge enters no mount and follows no link. In a directory that other hosts use, too, it removes what is this machine's
by its recorded name. The packages' scripts do the same (devstack/packaging/purge.sh), since they outlive our programs.
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Collection, Iterator
from pathlib import Path

from nova_lite.base import directory_users, trees
from nova_lite.base.context import is_host_name
from nova_lite.base.trees import Left
from nova_lite.cmd.setup import machine
from nova_lite.image import store
from nova_lite.virt.libvirt import records
from nova_lite.virt.libvirt.disks import marks

#: Directories below the state directory that several hosts may share.
SHARED = ("instances", "volumes", "images", "backups")
#: Beginnings of names that our programs give to files and directories there, besides uuids; and whole names.
_PREFIXES = ("_", ".new-", ".health-", ".part-", ".import-", "floating@", "fake-", "before-upgrade-")
_NAMES = (store.UPLOADS, "staging", "snapshots", "luks")
#: Hosts that a line names.
_SHOWN = 5


def own_hosts() -> set[str]:
    """Return the names that the daemons of this machine have in the cloud."""
    common = machine.CONFIGURATION / "nova-lite.conf"
    default = machine.setting(common, "DEFAULT", "host") or socket.gethostname()
    files = [path for path in machine.CONFIGURATION.glob("*.conf") if path != common]
    names = {machine.setting(path, "DEFAULT", "host") or default for path in files} or {default}
    return {name for name in names if is_host_name(name)}


def remove(path: Path) -> list[Left]:
    """Remove a directory of this machine alone."""
    return _remove_link(path) if path.is_symlink() else trees.remove(path)


def remove_state(state: Path, hosts: Collection[str]) -> list[Left]:
    """Remove the state directory, as far as no other hosts than ``hosts`` use it."""
    if _is_protected(state):
        return _remove_protected(state)
    left = [item for name in SHARED for item in _remove_shared(state / name, hosts)]
    for path in state.iterdir() if state.exists() else ():
        if path.name not in SHARED:
            left += trees.remove(path)
    _remove_if_empty(state)
    return left


def protected(state: Path, hosts: Collection[str]) -> list[Left]:
    """Return what `remove_state` would leave, as far as it is known before."""
    found = []
    for path in (state, *(state / name for name in SHARED)):
        if path.is_symlink():
            found.append(_behind(path))
        elif path.is_dir() and trees.is_mount(path):
            found.append(Left(str(path), trees.MOUNTED))
        elif path != state and (others := _others(path, hosts)):
            found.append(_used(path, others))
    return found


def _is_protected(path: Path) -> bool:
    return path.is_symlink() or (path.is_dir() and trees.is_mount(path))


def _remove_protected(path: Path) -> list[Left]:
    return _remove_link(path) if path.is_symlink() else [Left(str(path), trees.MOUNTED)]


def _remove_link(path: Path) -> list[Left]:
    left = _behind(path)
    path.unlink()
    return [left]


def _behind(link: Path) -> Left:
    return Left(str(link.resolve()), f"{link} is a link to it")


def _used(path: Path, others: Collection[str]) -> Left:
    names = sorted(others)
    shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
    return Left(str(path), f"other hosts use it: {shown}")


def _remove_shared(path: Path, hosts: Collection[str]) -> list[Left]:
    if _is_protected(path):
        return _remove_protected(path)
    if not path.is_dir():
        return []
    if others := _others(path, hosts):
        return [*(item for own in list(_own(path, hosts)) for item in trees.remove(own)), _used(path, others)]
    left = []
    for entry in list(path.iterdir()):
        is_ours = records.uuid_of(entry.name) or entry.name.startswith(_PREFIXES) or entry.name in _NAMES
        left += trees.remove(entry) if is_ours else [Left(str(entry), "it is not of this cloud")]
    _remove_if_empty(path)
    return left


def _remove_if_empty(path: Path) -> None:
    with contextlib.suppress(OSError):  # Its content was returned.
        path.rmdir()


def _others(path: Path, hosts: Collection[str]) -> set[str]:
    """Return the other hosts that a directory shows."""
    shown = {user.name for kind in (directory_users.HOSTS, marks.MARKS) for user in path.glob(f"{kind}/*")}
    return (shown | {host for _, host in _records(path) if host}) - set(hosts)


def _own(path: Path, hosts: Collection[str]) -> Iterator[Path]:
    """Yield what is of these hosts in a directory. Disks that are kept for another host stay."""
    for host in hosts:
        for pattern in (
            f"*@{host}.json",
            f"_*/{host}",
            f"{store.UPLOADS}/{host}",
            f"fake-{host}",
            f"{records.UNFINISHED}{host}[-@]*",
            f"{records.INTERFACES}/{records.UNFINISHED}{host}@*",
        ):
            yield from path.glob(pattern)
    for record, host in _records(path):
        if host in hosts and not record.name.endswith(records.KEPT):
            yield record


def _records(path: Path) -> Iterator[tuple[Path, str]]:
    """Yield the directories of instances and the records of interfaces, with the host of each, empty if unknown."""
    for file in (*path.glob(f"*/{records.RECORD}"), *path.glob(f"{records.INTERFACES}/*.json")):
        host = ""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            host = str(json.loads(file.read_bytes())["host"])
        yield (file.parent if file.name == records.RECORD else file), host
