"""Many slow starts at a libvirtd with its default limits: every guest runs, and no host is blamed."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import libvirt
import pytest

from nova_lite.base.context import get_admin_context
from nova_lite.base.timing import LibvirtTiming
from nova_lite.compute.manager import ComputeManager
from nova_lite.image.local import LocalImages
from nova_lite.objects import BuildOutcome, BuildRequest, Image
from nova_lite.operations.states import PowerState
from nova_lite.virt.libvirt.host import kvm
from tests.integration.libvirt.conftest import PATIENCE, MakeDriver
from tests.integration.libvirt.private import REAL_EMULATOR, PrivateLibvirtd, private_libvirtd
from tests.support.compute_host import FakeConductor
from tests.support.guests import make_flavor, make_instance
from tests.support.waiting import wait_for, wait_for_none

GUESTS = 8
#: Seconds that each guest's emulator needs before it begins: longer than libvirtd and client wait for each other.
SLOW = 9
KEEPALIVE_SECONDS, KEEPALIVE_COUNT = 1, 3

LIMITS = f"""
max_client_requests = 5
keepalive_interval = {KEEPALIVE_SECONDS}
keepalive_count = {KEEPALIVE_COUNT}
"""
#: libvirt's questions about qemu's capabilities are answered at once.
EMULATOR = f"""#!/bin/sh
case " $* " in
*" none,"*|*" -version "*|*" -help "*) ;;
*) sleep {SLOW} ;;
esac
exec {REAL_EMULATOR} "$@"
"""


@pytest.fixture
def libvirtd(directory: Path) -> Iterator[PrivateLibvirtd]:
    path = directory / f"busy-{uuid.uuid4().hex[:8]}"
    path.mkdir(mode=0o755)
    with private_libvirtd(path, LIMITS, EMULATOR) as running:
        yield running


def test_slow_starts_of_many_guests_all_succeed_at_their_host(
    libvirtd: PrivateLibvirtd,
    make_driver: MakeDriver,
    blank: Image,
    caplog: pytest.LogCaptureFixture,
) -> None:
    timing = LibvirtTiming(keepalive_interval=KEEPALIVE_SECONDS, keepalive_count=KEEPALIVE_COUNT)
    options: dict[str, Any] = {
        "libvirt__virt_type": "qemu",
        "network__metadata_service": False,
        "force_config_drive": False,
    }
    options |= {"report_interval": 1, "compute__hypervisor_timeout": SLOW // 2}
    driver = make_driver("busy", timing, libvirt__connection_uri=libvirtd.uri, **options)
    conductor = FakeConductor()
    images = LocalImages(driver.conf, conductor)  # type: ignore[arg-type]
    manager = ComputeManager(driver.conf, driver.host, driver, conductor, images)  # type: ignore[arg-type]
    conductor.vifs = []
    manager.connect()
    requests = [
        BuildRequest(
            generation=1,
            action_id=number,
            request_id=f"req-{number}",
            instance=make_instance(flavor=make_flavor(memory_mb=64, root_gb=0)),
            image=blank,
        )
        for number in range(1, GUESTS + 1)
    ]
    try:
        manager.build_and_run_instances(get_admin_context(), requests)
        was_up = []

        def building() -> dict[str, int]:
            manager.heartbeat.refresh()
            was_up.append(manager.heartbeat.is_hypervisor_up())
            return manager.jobs.building()

        wait_for_none("all builds end", building, 300, 0.2)
        results = conductor.of("finish_build")
        failures = [f"{result.outcome}: {result.message}" for result in results if result.outcome != BuildOutcome.BUILT]
        assert failures == []
        assert len(results) == GUESTS
        assert [info.power_state for info in driver.guests.all()] == [PowerState.RUNNING] * GUESTS
        assert all(was_up), "the inventory does not wait for guests that start"
        assert all(result.blames_host for result in results), "nothing was repeated"
        assert "connection broke" not in caplog.text
    finally:
        manager.jobs.wait_idle(60)
        wait_for("idle hypervisor", lambda: driver.guests.all() is not None, PATIENCE)


def test_queries_of_libvirt_to_qemu_are_seen(directory: Path) -> None:
    """The watch of repeated queries recognizes the processes of the real libvirt."""
    path = directory / f"probed-{uuid.uuid4().hex[:8]}"
    path.mkdir(mode=0o755)
    emulator = f'#!/bin/sh\nsleep 1\nexec {REAL_EMULATOR} "$@"\n'
    with private_libvirtd(path, emulator=emulator) as running:
        others = kvm.probes()
        query = threading.Thread(target=lambda: libvirt.open(running.uri).getCapabilities())
        query.start()
        found = wait_for("query of libvirt to qemu", lambda: kvm.probes() - others, 60)
        query.join(120)
        assert not query.is_alive()
        assert all(name.startswith("qmp-") for name in found)
