"""A machine without udev, where only root can open /dev/kvm: libvirt needs many seconds to start each guest.

`NOVA_LITE_LONG=1` closes this machine's device for two minutes, otherwise only what opens it is tried.
"""

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
from tests.integration.libvirt.conftest import LONG, MakeDriver, boot
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
    driver.guests.destroy(spec.instance.uuid)
    return seconds


@LONG
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


#: Puts a node of another file system at /dev/kvm, in mounts of its own, and calls the function of devstack.
SHARED = f"""
mount -t tmpfs none "$1"
mknod "$1/kvm" c 10 232
chmod 600 "$1/kvm"
mount --bind "$1/kvm" /dev/kvm
source {LIBRARY}
open_kvm
stat --format '%U:%G %a' /dev/kvm
"""


def test_device_of_another_machine_is_left_alone(tmp_path: Path) -> None:
    """A change in a container would change the device of its host, and libvirt there would query qemu for minutes."""
    if not os.path.exists(kvm.DEVICE) or os.geteuid() != 0:
        pytest.skip(f"there is no {kvm.DEVICE} here, or it is not ours")
    if os.path.exists("/run/udev/control"):
        pytest.skip("udev sees to the device here")
    before = os.stat(kvm.DEVICE)
    command = ["unshare", "--mount", "bash", "-euo", "pipefail", "-c", SHARED, "bash", str(tmp_path)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert output[-1] == "root:root 600"
    assert output[0].startswith("/dev/kvm is root:root 600")
    assert "it is another machine's" in output[0]
    after = os.stat(kvm.DEVICE)
    assert (after.st_gid, after.st_mode) == (before.st_gid, before.st_mode)


#: Gives a container a /dev of its own, with a node that is closed to qemu's user, and calls the function of devstack.
OWN = f"""
mount -t tmpfs none /dev
mknod -m 600 /dev/kvm c 10 232
mknod -m 666 /dev/null c 1 3
source {LIBRARY}
open_kvm
stat --format '%U:%G %a' /dev/kvm
"""


def test_device_that_a_container_has_made_is_opened() -> None:
    if os.geteuid() != 0 or os.path.exists("/run/udev/control"):
        pytest.skip("this needs root, and a machine without udev")
    command = ["unshare", "--mount", "bash", "-euo", "pipefail", "-c", OWN]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert output[-1] == "root:kvm 660"


def test_device_of_this_machine_is_its_own() -> None:
    if not os.path.exists(kvm.DEVICE):
        pytest.skip(f"there is no {kvm.DEVICE} here")
    mounted = subprocess.run(["findmnt", "-no", "FSTYPE", "-T", kvm.DEVICE], capture_output=True, text=True, check=True)
    command = ["bash", "-c", f"source {LIBRARY}; own_kvm"]
    is_own = subprocess.run(command, check=False).returncode == 0
    assert is_own is (mounted.stdout.strip() in ("devtmpfs", "tmpfs"))
