"""Parts that most abilities need: the host's options, its connection to libvirt, its domains and its records."""

from __future__ import annotations

import dataclasses

from oslo_config import cfg

from nova_lite.base.timing import LibvirtTiming
from nova_lite.virt.libvirt.connection import Connection
from nova_lite.virt.libvirt.domain.domains import Domains
from nova_lite.virt.libvirt.records import Records


@dataclasses.dataclass(frozen=True)
class HostContext:
    """A host with libvirt. ``host``: its name."""

    conf: cfg.ConfigOpts
    host: str
    timing: LibvirtTiming
    connection: Connection
    domains: Domains
    records: Records


@dataclasses.dataclass(eq=False)
class HostPart:
    """A part of the driver that uses its host's context."""

    _context: HostContext

    def __post_init__(self) -> None:
        self._conf, self._host = self._context.conf, self._context.host
        self._connection, self._domains = self._context.connection, self._context.domains
        self._records = self._context.records
