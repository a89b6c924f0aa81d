"""Shares: directories of hosts that guests mount by virtiofs. Names and statuses are Nova's."""

from __future__ import annotations

import datetime
import enum
import re
from collections.abc import Iterable

import msgspec

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


class ShareProtocol(enum.StrEnum):
    """File system of a share. A share of another one than DIRECTORY is used only where it is mounted."""

    DIRECTORY = "DIRECTORY"
    NFS = "NFS"
    CEPHFS = "CEPHFS"


class ShareState(enum.StrEnum):
    """State of a share at a server. ATTACHED shows as "active" while the guest runs, and as "inactive" otherwise."""

    ATTACHING = "attaching"
    ATTACHED = "attached"
    DETACHING = "detaching"
    ERROR = "error"


class Share(msgspec.Struct, kw_only=True):
    """Share that an operator gives to the servers of one project."""

    id: str
    name: str
    project_id: str
    protocol: ShareProtocol
    created_at: datetime.datetime | None = None

    @property
    def location(self) -> str:
        """Its directory below that of all shares of a host."""
        return f"{self.protocol.lower()}/{self.name}"


class ShareMapping(msgspec.Struct, kw_only=True):
    """Share of a server. ``tag``: its name in the guest. ``location``: as in `Share`."""

    uuid: str
    share_id: str
    tag: str
    location: str
    state: ShareState

    def status(self, is_guest_on: bool) -> str:
        """Return its status in Nova's API."""
        if self.state != ShareState.ATTACHED:
            return str(self.state)
        return "active" if is_guest_on else "inactive"


def usable(mappings: Iterable[ShareMapping]) -> list[ShareMapping]:
    """Return the shares that the guest has."""
    return [mapping for mapping in mappings if mapping.state != ShareState.ERROR]


def is_share_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def is_location(location: str) -> bool:
    """Check whether this is the location of a share, and leads nowhere else."""
    protocol, _, name = location.partition("/")
    return protocol in map(str.lower, ShareProtocol) and is_share_name(name)
