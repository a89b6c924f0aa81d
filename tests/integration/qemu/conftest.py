"""Real guests of qemu without libvirt. They run as a user without privileges."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from oslo_config import cfg

from nova_lite import conf as configuration
from nova_lite.image import local
from nova_lite.objects import Network
from nova_lite.virt.libvirt.net import names
from nova_lite.virt.qemu.driver import QemuDriver
from tests.integration import guest_image
from tests.integration.libvirt.conftest import Images
from tests.support.guests import make_network

MakeDriver = Callable[..., QemuDriver]

#: Address of consoles.
ADDRESS = "127.0.0.77"


@pytest.fixture(scope="session")
def directory() -> Iterator[Path]:
    """Directory of images and disks, which the guests' user can enter, unlike pytest's own."""
    if shutil.which("qemu-system-x86_64") is None or os.geteuid() != 0:
        pytest.skip("qemu is not installed, or these tests do not run as root")
    path = Path(tempfile.mkdtemp(prefix="nova-lite-test-", dir="/var/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="session")
def images(directory: Path) -> Images:
    return Images(guest_image.build(directory))


@pytest.fixture(scope="session")
def network() -> Network:
    token = uuid.uuid4()
    return make_network(id=str(token), bridge=f"nlq{token.hex[:8]}", cidr="10.77.0.0/24", gateway=None)


@pytest.fixture
def make_driver(directory: Path) -> Iterator[MakeDriver]:
    """Make drivers of one host, as daemons that are started one after the other. Their guests are removed at the
    end."""
    drivers: list[QemuDriver] = []
    host = f"qemu-{uuid.uuid4().hex[:8]}"

    def make(**options: Any) -> QemuDriver:
        conf = cfg.ConfigOpts()
        configuration.register_opts(conf)
        conf([], default_config_files=[])
        conf.set_override("state_path", str(directory))
        conf.set_override("user", "nobody", "qemu")
        conf.set_override("enabled", True, "serial_console")
        # libvirt, which starts guests at the same time, may find a port free that qemu takes.
        conf.set_override("server_listen", ADDRESS, "vnc")
        conf.set_override("server_proxyclient_address", ADDRESS, "vnc")
        conf.set_override("proxyclient_address", ADDRESS, "serial_console")
        for option, value in options.items():
            group, _, plain = option.rpartition("__")
            conf.set_override(plain, value, group or None)
        driver = QemuDriver(conf, host, lambda image, target: local.copy(image, image.name, target))
        driver.init_host()
        drivers.append(driver)
        return driver

    yield make
    for driver in drivers[:1]:
        for instance_uuid in {info.uuid for info in driver.guests.all()} | driver.guests.leftovers():
            driver.guests.destroy(instance_uuid)
            driver.networks.unplug(instance_uuid)
    for family, table in names.tables_of_host(host):
        subprocess.run(["nft", "delete", "table", family, table], capture_output=True, check=False)


@pytest.fixture
def driver(make_driver: MakeDriver) -> QemuDriver:
    return make_driver()
