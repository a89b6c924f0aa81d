"""Counters of running guests: of their processes and tap devices, from the kernel, without calls of qemu."""

from __future__ import annotations

import contextlib
import os

from nova_lite.virt import abilities, host_counters
from nova_lite.virt.abilities import GuestStatistics
from nova_lite.virt.qemu import processes
from nova_lite.virt.qemu.guest import Guest, vif_id
from nova_lite.virt.qemu.host import Part
from nova_lite.virt.qemu.networks import NET

_MIB = 1024 * 1024


class AllStatistics(Part, abilities.Statistics):
    def guests(self) -> list[GuestStatistics]:
        pids = processes.pids()
        found = []
        for guest in self._host.definitions.all():
            # A guest that ends meanwhile has no counters.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if guest.uuid in pids:
                    found.append(_statistics(guest, pids[guest.uuid]))
        return found

    def host(self) -> abilities.HostCounters:
        return host_counters.read(self._host.records.instances_path)


def _statistics(guest: Guest, pid: int) -> GuestStatistics:
    with open(f"/proc/{pid}/stat") as file:
        # The name of the program, in parentheses, may have spaces. User and system time are the fields 14 and 15.
        fields = file.read().rpartition(")")[2].split()
    with open(f"/proc/{pid}/statm") as file:
        pages = int(file.read().split()[1])
    return GuestStatistics(
        uuid=guest.uuid,
        project_id=guest.project_id,
        cpu_seconds=(int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"),
        memory_bytes=pages * os.sysconf("SC_PAGE_SIZE"),
        memory_limit_bytes=guest.memory_mb * _MIB,
        # The guest receives what the host sends to a tap device.
        network_received_bytes=_sum(guest, "tx_bytes"),
        network_sent_bytes=_sum(guest, "rx_bytes"),
        network_dropped=_sum(guest, "rx_dropped") + _sum(guest, "tx_dropped"),
    )


def _sum(guest: Guest, counter: str) -> int:
    total = 0
    for vif in guest.vifs:
        with open(f"{NET}/{vif_id(vif)}/statistics/{counter}") as file:
            total += int(file.read())
    return total
