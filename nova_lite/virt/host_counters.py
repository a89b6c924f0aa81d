"""Counters of a Linux host: CPUs, memory, the disk of the servers, and network cards."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from nova_lite.virt.abilities import HostCounters

_PROC, _SYS = Path("/proc"), Path("/sys")

#: Columns of the first line of /proc/stat in which CPUs are busy: user, nice, system, irq, softirq, steal. Guests are
#: part of user and nice.
_BUSY = (0, 1, 2, 5, 6, 7)
_SECTOR = 512


def read(instances_path: str, proc: Path = _PROC, sys: Path = _SYS) -> HostCounters:
    """Return the counters. A disk without counters is left out."""
    cpus, cpu_seconds = _cpu((proc / "stat").read_text())
    memory = _memory((proc / "meminfo").read_text())
    disk = _disk((proc / "diskstats").read_text(), os.stat(instances_path).st_dev)
    cards = list(_cards(sys / "class" / "net"))
    return HostCounters(
        cpus=cpus,
        cpu_seconds=cpu_seconds,
        memory_mb=memory["MemTotal"] / 1024,
        memory_used_mb=(memory["MemTotal"] - memory["MemAvailable"]) / 1024,
        has_disk=disk is not None,
        disk_busy_seconds=0.0 if disk is None else disk[0],
        disk_read_bytes=0 if disk is None else disk[1],
        disk_written_bytes=0 if disk is None else disk[2],
        network_mbps=float(sum(speed for speed, _, _ in cards)),
        network_bytes=sum(received + sent for speed, received, sent in cards if speed),
        network_received_bytes=sum(received for _, received, _ in cards),
        network_sent_bytes=sum(sent for _, _, sent in cards),
    )


def _cpu(text: str) -> tuple[int, float]:
    """Return the number of CPUs, and the seconds that they were busy."""
    lines = [line.split() for line in text.splitlines() if line.startswith("cpu")]
    ticks = [int(value) for value in lines[0][1:]]
    return len(lines) - 1, sum(ticks[column] for column in _BUSY) / os.sysconf("SC_CLK_TCK")


def _memory(text: str) -> Mapping[str, int]:
    """Return the sizes in KiB by name."""
    pairs = (line.partition(":") for line in text.splitlines())
    return {name: int(value.split()[0]) for name, _, value in pairs if value.strip()}


def _disk(text: str, device: int) -> tuple[float, int, int] | None:
    """Return the seconds that a device was busy, and the bytes that it read and wrote; None without counters."""
    wanted = str(os.major(device)), str(os.minor(device))
    for line in text.splitlines():
        columns = line.split()
        if tuple(columns[:2]) == wanted and len(columns) > 12:
            return int(columns[12]) / 1000, int(columns[5]) * _SECTOR, int(columns[9]) * _SECTOR
    return None


def _cards(directory: Path) -> Iterator[tuple[int, int, int]]:
    """Yield speed in Mbit/s, 0 if it is unknown, and bytes received and sent, of each physical card."""
    for card in sorted(directory.iterdir()) if directory.is_dir() else ():
        if not (card / "device").exists():
            continue
        try:
            received, sent = (int((card / "statistics" / name).read_text()) for name in ("rx_bytes", "tx_bytes"))
        except OSError:  # The card was removed just now.
            continue
        yield _speed(card), received, sent


def _speed(card: Path) -> int:
    try:
        return max(0, int((card / "speed").read_text()))
    except (OSError, ValueError):  # The kernel does not know the speed of a card without a link.
        return 0
