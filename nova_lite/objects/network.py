"""Networks of the built-in ``local`` backend."""

from __future__ import annotations

import msgspec


class Network(msgspec.Struct, kw_only=True):
    """A network that instances get addresses from. ``project_id`` None: shared by all projects.

    ``bridge`` names the host's bridge, which the virt driver makes if it can; ``start``/``end`` bound the pool.
    """

    id: str
    name: str
    cidr: str
    gateway: str | None = None
    dns: list[str] = msgspec.field(default_factory=list)
    bridge: str = ""
    mtu: int = 1500
    start: str | None = None
    end: str | None = None
    project_id: str | None = None
    is_default: bool = False
