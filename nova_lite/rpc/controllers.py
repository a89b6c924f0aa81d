"""The lists of controllers and front ends of a cloud, and the codes by which an operator confirms a new one.

The lists are in the directory of keys, beside that of the trusted keys, with which they travel
(`nova_lite.rpc.trust`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from nova_lite.base import exceptions, files
from nova_lite.objects import Controller, FrontEnd

#: Port on loopback at which HAProxy passes connections on to a node of the database.
DATABASE_PORT = 3307
#: Port at which a controller reports the state of its node.
CHECK_PORT = 9200

#: File of the list in the directory of keys.
MEMBERS = "controllers.json"
FRONT_ENDS = "front-ends.json"
#: Codes that an operator has confirmed, by host, in the directory of the authority, which only root reads.
CONFIRMED = "confirmed.json"

_MAX_MEMBERS, _MAX_FRONT_ENDS = 9, 64
_CODE = re.compile(r"[A-Z2-7]{4}(-[A-Z2-7]{4}){3}")

T = TypeVar("T")


def members(directory: str) -> list[Controller]:
    """Return the controllers, the oldest first. Raises `ConfigurationError`."""
    return read(Path(directory, MEMBERS), list[Controller]) or []


def write_members(directory: str, wanted: Sequence[Controller]) -> None:
    content = msgspec.json.format(msgspec.json.encode(list(wanted))) + b"\n"
    files.write_atomically(str(Path(directory, MEMBERS)), content, mode=0o644)


def with_member(present: Sequence[Controller], member: Controller) -> list[Controller]:
    """Return the list with a controller. Raises `InvalidInput` for the address of another."""
    for other in present:
        if other.address == member.address and other.host != member.host:
            raise exceptions.InvalidInput(reason=f"{member.address} is the address of controller {other.host}.")
    if member not in present and len(present) >= _MAX_MEMBERS:
        raise exceptions.InvalidInput(reason=f"there are {_MAX_MEMBERS} controllers already.")
    return [*(other for other in present if other.host != member.host), member] if member not in present else [*present]


# --- machines with one role


def front_ends(directory: str) -> list[FrontEnd]:
    """Return the machines with one role. Raises `ConfigurationError`."""
    return read(Path(directory, FRONT_ENDS), list[FrontEnd]) or []


def write_front_ends(directory: str, wanted: Sequence[FrontEnd]) -> None:
    path = Path(directory, FRONT_ENDS)
    if not wanted and not path.exists():
        return
    files.write_atomically(str(path), msgspec.json.format(msgspec.json.encode(list(wanted))) + b"\n", mode=0o644)


def with_front_end(present: Sequence[FrontEnd], made: FrontEnd) -> list[FrontEnd]:
    """Return the list with a machine. Raises `InvalidInput` if it is full."""
    others = [other for other in present if (other.role, other.host) != (made.role, made.host)]
    if len(others) >= _MAX_FRONT_ENDS:
        raise exceptions.InvalidInput(reason=f"there are {_MAX_FRONT_ENDS} machines with one role already.")
    return [*present] if made in present else [*others, made]


# --- confirmation by an operator


def confirm(directory: str, host: str, code: str) -> None:
    """Confirm a machine by its code. ``directory``: of the authority. Raises `InvalidInput` for what is no code.

    ``host``: of a controller; `front_end_name` for a front end.
    """
    if not _CODE.fullmatch(code):
        raise exceptions.InvalidInput(reason=f"{code[:64]!r} is no code such as ABCD-EFGH-IJKL-MNOP.")
    known = confirmed(directory) | {host: code}
    files.write_atomically(str(Path(directory, CONFIRMED)), msgspec.json.encode(known), mode=0o600)


def front_end_name(role: str, host: str) -> str:
    """Return the name under which a front end is confirmed. No host name has a space."""
    return f"{role} {host}"


def confirmed(directory: str) -> dict[str, str]:
    """Return the confirmed codes by host. Raises `ConfigurationError`."""
    return read(Path(directory, CONFIRMED), dict[str, str]) or {}


def forget(directory: str, host: str) -> None:
    known = confirmed(directory)
    if known.pop(host, None) is not None:
        files.write_atomically(str(Path(directory, CONFIRMED)), msgspec.json.encode(known), mode=0o600)


def read(path: Path, kind: type[T]) -> T | None:
    """Return the content of a JSON file, or None if there is none. Raises `ConfigurationError`."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise exceptions.ConfigurationError(reason=f"{path} cannot be read: {error}.") from error
