"""A libvirtd that hangs: the host notices it without waiting, and notices its return."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nova_lite.base.timing import LibvirtTiming
from nova_lite.compute.heartbeat import Heartbeat
from nova_lite.compute.jobs import Jobs
from nova_lite.daemon.service import Periodic
from tests.integration.libvirt.conftest import MakeDriver, wait_for

#: Configuration without access to the machine's own libvirtd. Only its socket reaches it.
PRIVATE = """
for directory in /run/libvirt /var/lib/libvirt /etc/libvirt; do mount -t tmpfs none $directory || exit 1; done
exec libvirtd --config "$1/libvirtd.conf" --pid-file "$1/pid" > "$1/log" 2>&1
"""


@pytest.fixture
def libvirtd(tmp_path: Path) -> Iterator[tuple[str, int]]:
    """Run a libvirtd for this test: URI and process id."""
    if shutil.which("libvirtd") is None or os.geteuid() != 0:
        pytest.skip("libvirtd is not installed, or not ours to start")
    (tmp_path / "libvirtd.conf").write_text(f'unix_sock_dir = "{tmp_path}"\nauth_unix_rw = "none"\n')
    process = subprocess.Popen(["unshare", "--mount", "sh", "-c", PRIVATE, "sh", str(tmp_path)])
    try:
        socket = tmp_path / "libvirt-sock"
        wait_for("socket", lambda: socket.exists() or process.poll() is not None)
        assert process.poll() is None, (tmp_path / "log").read_text()
        yield f"qemu:///system?socket={socket}", process.pid
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        process.wait(30)


@pytest.mark.parametrize("keepalive", [1, 60], ids=["its connection is given up", "its connection lasts"])
def test_hung_libvirtd_is_noticed_and_its_return_too(
    libvirtd: tuple[str, int], make_driver: MakeDriver, keepalive: int
) -> None:
    uri, pid = libvirtd
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
