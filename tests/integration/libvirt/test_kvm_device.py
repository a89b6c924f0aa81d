"""A machine without udev, where only root can open /dev/kvm: libvirt needs many seconds to start each guest."""

from __future__ import annotations

import logging
import os
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nova_lite.objects import Image
from nova_lite.virt.libvirt.driver import LibvirtDriver
from nova_lite.virt.libvirt.host import kvm
from tests.integration.libvirt.conftest import MakeDriver, boot
from tests.support.guests import make_flavor, make_instance, make_spec

LIBRARY = Path(__file__).parents[3] / "devstack" / "lib" / "libvirt.sh"


@pytest.fixture
def closed_device(connection: Any) -> Iterator[str]:
    """Give the device the permissions that it has without udev. They are restored afterwards."""
    device = kvm.DEVICE
    if not os.path.exists(device):
        pytest.skip(f"there is no {device} here")
    if os.path.exists("/run/udev/control"):
        pytest.skip(f"udev manages {device} here")
    user = kvm.qemu_user(connection.getCapabilities())
    if user is None:
        pytest.skip("libvirt runs guests as its own user here")
    was = os.stat(device)
    try:
        os.chown(device, 0, 0)
        os.chmod(device, 0o600)
        assert kvm.is_closed_to(*user)
        yield device
    finally:
        os.chown(device, was.st_uid, was.st_gid)
        os.chmod(device, stat.S_IMODE(was.st_mode))


def seconds_to_boot(driver: LibvirtDriver, blank: Image) -> float:
    spec = make_spec(
        instance=make_instance(flavor=make_flavor(memory_mb=64)), vifs=[], image=blank, images={}, generation=1
    )
    started = time.monotonic()
    boot(driver, spec)
    seconds = time.monotonic() - started
    driver.destroy(spec.instance.uuid)
    return seconds


@pytest.mark.timeout(600)
def test_closed_device_is_logged_and_recovers(
    closed_device: str, make_driver: MakeDriver, blank: Image, caplog: pytest.LogCaptureFixture
) -> None:
    """libvirtd needs no restart to notice the change, in either direction."""
    driver = make_driver("closed")

    slow = seconds_to_boot(driver, blank)
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    if slow < kvm.SLOW_START_SECONDS:
        pytest.skip(f"qemu does not find KVM behind a closed {closed_device} here: a guest starts in {slow:.1f} s")
    assert len([line for line in warnings if f"chgrp kvm {closed_device}; chmod 660 {closed_device}" in line]) == 1

    caplog.clear()
    command = ["bash", "-euo", "pipefail", "-c", f"source {LIBRARY}; open_kvm; open_kvm"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert output.startswith(f"{closed_device} was root:root 600, ")
    assert stat.filemode(os.stat(closed_device).st_mode) == "crw-rw----"
    assert output.count("\n") == 1

    seconds_to_boot(driver, blank)  # libvirt queries qemu once more
    fast = seconds_to_boot(driver, blank)
    logging.getLogger(__name__).info("A guest started in %.2f s, before that in %.2f s", fast, slow)
    assert fast < slow / 4
    assert not [record for record in caplog.records if "chgrp" in record.getMessage()]
