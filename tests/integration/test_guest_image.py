"""Kernels of the test guest, from unpacked packages of different releases."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess

import pytest

BUILD = pathlib.Path(__file__).parents[2] / "devstack/guest/build.sh"
MODULE = "kernel/drivers/net/virtio_net.ko"


def build(kernel: pathlib.Path, made: pathlib.Path) -> subprocess.CompletedProcess[str]:
    if shutil.which("mformat") is None or shutil.which("busybox") is None:
        pytest.skip("what builds the guest is not installed")
    (kernel / "boot").mkdir(parents=True)
    (kernel / "boot/vmlinuz-6.12").write_bytes(b"kernel")
    environment = {**os.environ, "KERNEL_ROOT": str(kernel)}
    return subprocess.run([BUILD, str(made)], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("place", ["lib/modules", "usr/lib/modules"])
def test_guest_has_the_drivers_of_an_unpacked_kernel(tmp_path: pathlib.Path, place: str) -> None:
    """Debian 13 and Ubuntu 26.04 have the modules below /usr alone."""
    module = tmp_path / "kernel" / place / "6.12" / MODULE
    module.parent.mkdir(parents=True)
    module.write_bytes(b"the driver")
    done = build(tmp_path / "kernel", tmp_path / "made")
    assert done.returncode == 0, done.stderr
    content = (tmp_path / "made/initrd.img").read_bytes()
    assert b"lib/virtio_net.ko" in content and b"the driver" in content


def test_guest_without_drivers_is_not_built(tmp_path: pathlib.Path) -> None:
    done = build(tmp_path / "kernel", tmp_path / "made")
    assert done.returncode != 0 and f"no modules of 6.12 in {tmp_path}/kernel" in done.stderr
    assert not (tmp_path / "made").exists()
