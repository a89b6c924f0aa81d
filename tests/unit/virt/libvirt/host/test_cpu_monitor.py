"""CPU metrics of a host: their values, and how rarely they change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import libvirt
import pytest
from oslo_config import cfg

from nova_lite.virt.libvirt.connection import LibvirtFailure
from nova_lite.virt.libvirt.driver import LibvirtDriver
from nova_lite.virt.libvirt.host import cpu_monitor

NAMES = {"cpu.frequency", "cpu.percent"} | {
    f"cpu.{kind}.{what}" for kind in ("user", "kernel", "idle", "iowait") for what in ("time", "percent")
}


class Host:
    """Connection of a host. ``now``: seconds; ``times``: of its processors."""

    def __init__(self) -> None:
        self.now = 0.0
        self.times = {"user": 100, "kernel": 100, "idle": 700, "iowait": 100}
        self.mhz = 2000
        self.error: Exception | None = None
        self.readings = 0

    def connect_call(self, name: str, *args: Any) -> Any:
        if self.error is not None:
            raise self.error
        self.readings += name == "getCPUStats"
        return dict(self.times) if name == "getCPUStats" else ["x86_64", 4096, 2, self.mhz, 1, 1, 2, 1]

    def run(self, seconds: float = cpu_monitor.INTERVAL, **spent: int) -> None:
        self.now += seconds
        for kind, amount in spent.items():
            self.times[kind] += amount


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
def cpus(host: Host) -> cpu_monitor.CpuMonitor:
    return cpu_monitor.CpuMonitor(host, clock=lambda: host.now)  # type: ignore[arg-type]


def test_percentages_apply_to_the_time_since_the_last_reading(host: Host, cpus: cpu_monitor.CpuMonitor) -> None:
    first = cpus.metrics()
    assert first.keys() == NAMES
    assert (first["cpu.frequency"], first["cpu.idle.time"]) == (2000, 700)
    assert (first["cpu.idle.percent"], first["cpu.percent"]) == (0.7, 0.3)
    host.run(user=60, kernel=20, iowait=10, idle=10)
    found = cpus.metrics()
    assert {name: found[name] for name in NAMES if name.endswith(".percent")} == {
        "cpu.user.percent": 0.6,
        "cpu.kernel.percent": 0.2,
        "cpu.iowait.percent": 0.1,
        "cpu.idle.percent": 0.1,
        "cpu.percent": 0.9,
    }
    assert found["cpu.user.time"] == 160


def test_cpu_load_is_read_once_a_minute(host: Host, cpus: cpu_monitor.CpuMonitor) -> None:
    before = cpus.metrics()
    host.run(cpu_monitor.INTERVAL - 1, user=1000)
    assert cpus.metrics() == before
    assert host.readings == 1
    host.run(1)
    assert cpus.metrics() != before


def test_small_change_is_not_reported(host: Host, cpus: cpu_monitor.CpuMonitor) -> None:
    before = cpus.metrics()
    for _ in range(5):
        host.run(user=100 + 40, kernel=100, idle=700 - 40, iowait=100)
        assert cpus.metrics() == before
    host.run(user=160, kernel=100, idle=640, iowait=100)
    assert cpus.metrics()["cpu.user.percent"] == 0.16
    host.mhz = 2200
    host.run(user=160, kernel=100, idle=640, iowait=100)
    assert cpus.metrics()["cpu.frequency"] == 2200


def test_failed_reading_keeps_the_last_metrics(host: Host, cpus: cpu_monitor.CpuMonitor) -> None:
    failure = libvirt.libvirtError("x")
    failure.err = (libvirt.VIR_ERR_NO_SUPPORT, 0, "not supported", 2, "", "", "", 0, 0)
    host.error = LibvirtFailure(failure)
    assert cpus.metrics() == {}
    host.error = None
    host.run()
    before = cpus.metrics()
    assert before
    host.error = LibvirtFailure(failure)
    host.run()
    assert cpus.metrics() == before


def test_inventory_contains_metrics_if_configured(conf: cfg.ConfigOpts, host: Host, tmp_path: Path) -> None:
    conf.set_override("state_path", str(tmp_path))
    (tmp_path / "instances").mkdir()

    def capabilities() -> dict[str, Any]:
        made = LibvirtDriver(conf, "one", lambda image, target: None)
        made._connection.connect_call = made._reports.connect_call = answer  # type: ignore[method-assign]
        made._domains.all = list  # type: ignore[method-assign,assignment]
        return made.machine.inventory().capabilities

    def answer(name: str, *args: Any) -> Any:
        fixed: dict[str, Any] = {"getCapabilities": "<capabilities><host/></capabilities>", "getVersion": 9000000}
        return fixed[name] if name in fixed else host.connect_call(name, *args)

    assert "metrics" not in capabilities()
    assert host.readings == 0
    conf.set_override("compute_monitors", ["cpu.virt_driver"])
    assert capabilities()["metrics"].keys() == NAMES


def test_unknown_monitor_is_a_configuration_error(conf: cfg.ConfigOpts) -> None:
    with pytest.raises(ValueError, match="numa_mem_bw"):
        conf.set_override("compute_monitors", ["numa_mem_bw.virt_driver"])
