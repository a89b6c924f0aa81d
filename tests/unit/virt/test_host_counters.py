"""Counters of a Linux host, from files of the kernel."""

from __future__ import annotations

import os
from pathlib import Path

from nova_lite.virt import host_counters


def test_counters_of_a_host_are_read_from_the_kernels_files(tmp_path: Path) -> None:
    proc, net = tmp_path / "proc", tmp_path / "sys" / "class" / "net"
    proc.mkdir()
    ticks = os.sysconf("SC_CLK_TCK")
    (proc / "stat").write_text(f"cpu  {ticks} 0 {ticks} 900 50 0 0 {ticks} 0 0\ncpu0 1 1\ncpu1 1 1\nintr 5\n")
    (proc / "meminfo").write_text("MemTotal:  4096000 kB\nMemFree: 1 kB\nMemAvailable:  1024000 kB\n")
    device = tmp_path.stat().st_dev
    name = f"{os.major(device)} {os.minor(device)}"
    (proc / "diskstats").write_text(f"1 999 x 0\n {name} sda 10 0 100 5 20 0 300 7 0 2500 9\n")
    for card, speed in (("eth0", "1000"), ("eth1", "-1"), ("tap0", "10000")):
        (net / card / "statistics").mkdir(parents=True)
        (net / card / "speed").write_text(speed)
        (net / card / "statistics" / "rx_bytes").write_text("70")
        (net / card / "statistics" / "tx_bytes").write_text("30")
    for card in ("eth0", "eth1"):
        (net / card / "device").mkdir()
    found = host_counters.read(str(tmp_path), proc, tmp_path / "sys")
    assert (found.cpus, found.cpu_seconds) == (2, 3.0)
    assert (found.memory_mb, found.memory_used_mb) == (4000.0, 3000.0)
    assert (found.disk_busy_seconds, found.disk_read_bytes, found.disk_written_bytes) == (2.5, 100 * 512, 300 * 512)
    assert (found.network_mbps, found.network_bytes) == (1000.0, 100)
    assert (found.network_received_bytes, found.network_sent_bytes) == (140, 60), "also of a card without a speed"


def test_counters_of_this_machine_are_read(tmp_path: Path) -> None:
    found = host_counters.read(str(tmp_path))
    assert found.cpus > 0
    assert 0 < found.memory_used_mb < found.memory_mb
