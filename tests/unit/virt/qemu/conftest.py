"""A driver whose qemu is `tests.unit.virt.qemu.fake_qemu`: real processes, locks and sockets, without guests."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nova_lite.base.timing import QemuTiming
from nova_lite.objects import Image
from nova_lite.virt.abilities import SpawnSpec
from nova_lite.virt.libvirt.disks.disks import DirectBoot, Disk, DiskMaker, DiskSet
from nova_lite.virt.libvirt.net import nft
from nova_lite.virt.qemu import networks
from nova_lite.virt.qemu.driver import QemuDriver
from tests.support.compute_host import make_conf
from tests.support.guests import make_spec
from tests.unit.virt.qemu import fake_qemu

TIMING = QemuTiming(reply=5.0, start=20.0, end=5.0, poll=0.02, memory=5.0, press_again=0.1, ask_again=0.1)


class Qemu:
    """The fake qemu of a test: its directory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def commands(self) -> list[tuple[str, dict[str, Any]]]:
        file = self.path / "commands"
        return [tuple(json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []

    def names(self) -> list[str]:
        return [name for name, _ in self.commands() if name != "qmp_capabilities"]

    def arguments(self) -> list[str]:
        return list(json.loads((self.path / "arguments").read_text()))

    def behave(self, name: str, text: str = "") -> None:
        (self.path / name).write_text(text)


@pytest.fixture
def directory() -> Iterator[Path]:
    """Directory with a path that is short enough for sockets."""
    path = Path(tempfile.mkdtemp(prefix="nl-qemu-", dir="/tmp"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def qemu(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Qemu:
    programs, here = directory / "bin", directory / "qemu"
    programs.mkdir()
    here.mkdir()
    program = programs / "qemu-system-x86_64"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {fake_qemu.__file__} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_QEMU", str(here))
    # The processes of another user could not read the programs of this test.
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    return Qemu(here)


@pytest.fixture
def ip(directory: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """List of the arguments of ``ip``. Devices appear in a directory instead of the kernel's."""
    net, calls = directory / "net", []
    net.mkdir()

    def run(*arguments: str) -> None:
        calls.append(" ".join(arguments))
        words = dict(itertools.pairwise(arguments))
        device = net / words.get("name", words.get("dev", ""))
        if "add" in arguments:
            (device / "brif").mkdir(parents=True)
            (device / "statistics").mkdir()
            for number, name in enumerate(("rx_bytes", "tx_bytes", "rx_dropped", "tx_dropped")):
                (device / "statistics" / name).write_text(f"{10**number}\n")
        if "alias" in arguments:
            (device / "ifalias").write_text("nova-lite\n")
        if "master" in arguments:
            (net / words["master"] / "brif" / device.name).touch()
        if "delete" in arguments:
            shutil.rmtree(device)
            for port in net.glob(f"*/brif/{device.name}"):
                port.unlink()

    monkeypatch.setattr(networks, "NET", str(net))
    monkeypatch.setattr("nova_lite.virt.qemu.statistics.NET", str(net))
    monkeypatch.setattr(networks, "_ip", run)
    monkeypatch.setattr(nft, "run", lambda text, namespace=None: "")
    return calls


def make_disks(maker: DiskMaker, directory: str, spec: SpawnSpec) -> DiskSet:
    """Make a root disk without qemu-img. The image's kernel is a file beside it."""
    path = Path(directory, "disk.raw")
    path.write_bytes(bytes(1024))
    boot = None
    if spec.image is not None and spec.image.kernel_id:
        kernel = Path(directory, "kernel")
        kernel.touch()
        boot = DirectBoot(str(kernel), None, "root=/dev/vda")
    return DiskSet([Disk(path=str(path), device="vda", format="raw"), *maker.volumes(spec)], boot)


@pytest.fixture
def make_driver(
    directory: Path, qemu: Qemu, ip: list[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., QemuDriver]]:
    monkeypatch.setattr(DiskMaker, "make", make_disks)
    made: list[QemuDriver] = []

    def make(**options: Any) -> QemuDriver:
        conf = make_conf(directory)
        conf.set_override("virt_type", "qemu", "libvirt")
        conf.set_override("security_groups", False, "network")
        for option, value in options.items():
            group, _, plain = option.rpartition("__")
            conf.set_override(plain, value, group or None)
        driver = QemuDriver(conf, "host-a", lambda image, path: None, TIMING)
        driver.init_host()
        made.append(driver)
        return driver

    yield make
    (qemu.path / "keeps").unlink(missing_ok=True)
    for driver in made[:1]:
        for info in driver.guests.all():
            driver.guests.destroy(info.uuid)


@pytest.fixture
def driver(make_driver: Callable[..., QemuDriver]) -> QemuDriver:
    return make_driver()


def image(**changes: Any) -> Image:
    return Image(**{"id": "image", "name": "i", "disk_format": "raw", "size": 1, "checksum": "", **changes})


def built(driver: QemuDriver, **changes: Any) -> SpawnSpec:
    spec = make_spec(**{"image": image(), **changes})
    driver.networks.plug(spec.instance, spec.vifs)
    driver.guests.spawn(spec)
    return spec
