"""Counters of all running guests, by one call of libvirt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import cachetools
import libvirt

from nova_lite.virt import abilities, host_counters
from nova_lite.virt.abilities import GuestStatistics
from nova_lite.virt.libvirt.connection import Connection
from nova_lite.virt.libvirt.domain import guest_xml
from nova_lite.virt.libvirt.domain.domains import Domains

STATISTICS = (
    libvirt.VIR_DOMAIN_STATS_CPU_TOTAL
    | libvirt.VIR_DOMAIN_STATS_BALLOON
    | libvirt.VIR_DOMAIN_STATS_BLOCK
    | libvirt.VIR_DOMAIN_STATS_INTERFACE
)
DIRTY_RATE = libvirt.VIR_DOMAIN_STATS_DIRTYRATE
#: A guest on which another call is in progress delays no other: NOWAIT leaves out what would have to wait.
FLAGS = libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_ACTIVE | libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT

#: Seconds over which libvirt samples the changes of a guest's memory, and the errors of a guest that cannot be sampled:
#: it does not run, is being sampled, or is gone.
_SAMPLE = 1
_NOT_SAMPLED = (
    libvirt.VIR_ERR_OPERATION_INVALID,
    libvirt.VIR_ERR_OPERATION_FAILED,
    libvirt.VIR_ERR_OPERATION_TIMEOUT,
    libvirt.VIR_ERR_OPERATION_UNSUPPORTED,
    libvirt.VIR_ERR_CONFIG_UNSUPPORTED,
    libvirt.VIR_ERR_NO_DOMAIN,
    libvirt.VIR_ERR_INTERNAL_ERROR,
)

#: Seconds for which a domain of another program is not looked at again, and the number of such domains.
_FOREIGN_SECONDS, _FOREIGN = 60.0, 100_000

_KIB = 1024
_NANOSECONDS = 1e9


class AllStatistics(abilities.Statistics):
    """Reads the counters of all our guests. The owner of a domain is read once, and not with each reading."""

    def __init__(self, connection: Connection, domains: Domains, instances_path: str) -> None:
        self._connection = connection
        self._domains = domains
        self._instances_path = instances_path
        self._owners: dict[str, guest_xml.Owner] = {}
        self._foreign: cachetools.TTLCache[str, bool] = cachetools.TTLCache(_FOREIGN, _FOREIGN_SECONDS)

    def host(self) -> abilities.HostCounters:
        return host_counters.read(self._instances_path)

    def guests(self) -> list[GuestStatistics]:
        owners: dict[str, guest_xml.Owner] = {}
        found = []
        for domain, values in self._connection.connect_call("getAllDomainStats", STATISTICS, FLAGS):
            uuid = domain.UUIDString()
            owner = self._owner(uuid, domain)
            if owner is not None:
                owners[uuid] = owner
                found.append(statistics(uuid, owner.project_id, values))
        self._owners = owners
        return found

    def dirty_rates(self, start: bool) -> dict[str, float]:
        """Return the MB of memory that guests changed in a second, by their last sampling.

        ``start``: begin a new sampling of each guest. libvirt reads a few hundred pages of each GiB for it.
        """
        found = {}
        for domain, values in self._connection.connect_call("getAllDomainStats", DIRTY_RATE, FLAGS):
            uuid = domain.UUIDString()
            if self._owner(uuid, domain) is None:
                continue
            if values.get("dirtyrate.calc_status") == libvirt.VIR_DOMAIN_DIRTYRATE_MEASURED:
                found[uuid] = float(values["dirtyrate.megabytes_per_second"])
            if start:
                self._connection.call_unless(_NOT_SAMPLED, domain.startDirtyRateCalc, _SAMPLE, 0)
        return found

    def _owner(self, uuid: str, domain: Any) -> guest_xml.Owner | None:
        if uuid in self._foreign:
            return None
        owner = self._owners.get(uuid) or self._domains.owner(domain)
        if owner is None:
            self._foreign[uuid] = True
        return owner


def statistics(uuid: str, project_id: str, values: Mapping[str, Any]) -> GuestStatistics:
    """Build the counters of a guest. ``values``: by libvirt's names. Sizes of memory are in KiB there."""
    cpu, resident, current = values.get("cpu.time"), values.get("balloon.rss"), values.get("balloon.current")
    return GuestStatistics(
        uuid=uuid,
        project_id=project_id,
        cpu_seconds=None if cpu is None else cpu / _NANOSECONDS,
        memory_bytes=None if resident is None else resident * _KIB,
        memory_limit_bytes=None if current is None else current * _KIB,
        disk_read_bytes=_sum(values, "block", "rd.bytes"),
        disk_written_bytes=_sum(values, "block", "wr.bytes"),
        disk_reads=_sum(values, "block", "rd.reqs"),
        disk_writes=_sum(values, "block", "wr.reqs"),
        network_received_bytes=_sum(values, "net", "rx.bytes"),
        network_sent_bytes=_sum(values, "net", "tx.bytes"),
        network_dropped=_sum(values, "net", "rx.drop", "tx.drop"),
    )


def _sum(values: Mapping[str, Any], kind: str, *names: str) -> int | None:
    """Return the sum over all devices; None if it is unknown for any of them."""
    keys = [f"{kind}.{number}.{name}" for number in range(values.get(f"{kind}.count", 0)) for name in names]
    return sum(values[key] for key in keys) if keys and all(key in values for key in keys) else None
