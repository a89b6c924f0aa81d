"""A libvirtd that hangs: the host notices it without waiting, and notices its return."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nova_lite.base.timing import LibvirtTiming
from nova_lite.compute.heartbeat import Heartbeat
from nova_lite.compute.jobs import Jobs
from nova_lite.daemon.service import Periodic
from tests.integration.libvirt.conftest import MakeDriver
from tests.integration.libvirt.private import PrivateLibvirtd, private_libvirtd
from tests.support.waiting import wait_for


@pytest.fixture
def libvirtd(tmp_path: Path) -> Iterator[PrivateLibvirtd]:
    with private_libvirtd(tmp_path) as running:
        yield running


@pytest.mark.parametrize("keepalive", [1, 60], ids=["its connection is given up", "its connection lasts"])
def test_hung_libvirtd_is_noticed_and_its_return_too(
    libvirtd: PrivateLibvirtd, make_driver: MakeDriver, keepalive: int
) -> None:
    uri, pid = libvirtd.uri, libvirtd.process.pid
    timing = LibvirtTiming(keepalive_interval=keepalive, keepalive_count=2)
    options = {"libvirt__connection_uri": uri, "libvirt__virt_type": "qemu", "network__metadata_service": False}
    driver = make_driver("hung", timing, report_interval=1, compute__hypervisor_timeout=4, **options)
    heartbeat = Heartbeat(driver.conf, "hung", driver, Jobs())
    heartbeat.refresh()
    asking = Periodic("Inventory", 1, heartbeat.refresh)
    asking.start()
    try:
        os.kill(pid, signal.SIGSTOP)
        wait_for("silence", lambda: not heartbeat.is_hypervisor_up(), 15)
        started = time.monotonic()
        assert not heartbeat.report().hypervisor_up
        assert time.monotonic() - started < 1, "a heartbeat does not wait for the hypervisor"
        os.kill(pid, signal.SIGCONT)
        wait_for("answer", heartbeat.is_hypervisor_up, 30)
        assert heartbeat.report().hypervisor_up
    finally:
        os.kill(pid, signal.SIGCONT)
        asking.stop()
