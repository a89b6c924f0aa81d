"""Boot and destroy of a real guest with and without an interface, by the libvirt driver and by plain virsh.

As root, on a machine with libvirtd, from a checkout, without a cloud::

    PYTHONPATH=$PWD python benchmarks/guest_interfaces.py --runs 9 --json result.json

The guest has a blank disk. A boot is the time from `plug_vifs` until the guest runs, a destroy the time until its
domain, files and interfaces are gone. Then virsh defines and starts a copy of the domain, and destroys and undefines
it. All four alternate in one run. Rows: ``what``, and the median, least and greatest milliseconds.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from oslo_config import cfg

from nova_lite import conf as configuration
from nova_lite.base import trees
from nova_lite.image import local
from nova_lite.objects import Image, Network
from nova_lite.virt.libvirt.driver import LibvirtDriver
from nova_lite.virt.libvirt.net import dhcp, firewall
from tests.support.guests import make_flavor, make_image, make_instance, make_network, make_spec, make_vif


def make_driver(directory: Path) -> LibvirtDriver:
    conf = cfg.ConfigOpts()
    configuration.register_opts(conf)
    conf([], default_config_files=[])
    conf.set_override("state_path", str(directory))
    host = f"benchmark-{directory.name[-8:]}"
    driver = LibvirtDriver(conf, host, lambda image, target: local.copy(image, image.name, target))
    driver.init_host()
    return driver


class Run:
    def __init__(self, directory: Path, network: Network) -> None:
        self.driver = make_driver(directory)
        self.network = network
        self.times: dict[str, list[float]] = {}
        self._directory = directory
        disk = directory / "blank.img"
        disk.write_bytes(bytes(1024**2))
        self._image: Image = make_image(disk, "raw")
        self._number = 0

    def timed(self, what: str, work: Callable[[], object]) -> None:
        started = time.perf_counter()
        work()
        self.times.setdefault(what, []).append(1000 * (time.perf_counter() - started))

    def guest(self, with_interface: bool, kind: str) -> None:
        spec = self._spec(with_interface)
        instance_uuid = spec.instance.uuid

        def boot() -> None:
            self.driver.networks.plug(spec.instance, spec.vifs)
            self.driver.guests.spawn(spec)

        def destroy() -> None:
            self.driver.guests.destroy(instance_uuid)
            self.driver.networks.unplug(instance_uuid)

        self.timed(f"boot, {kind}", boot)
        xml = subprocess.run(
            ["virsh", "-q", "dumpxml", "--inactive", instance_uuid], capture_output=True, text=True, check=True
        ).stdout
        disk = self.driver._records.directory(instance_uuid)
        copy = self._directory / "copy"
        _copy(disk, copy)
        self.timed(f"destroy, {kind}", destroy)
        _copy(copy, disk)
        self.driver.networks.plug(spec.instance, spec.vifs)
        path = self._directory / "domain.xml"
        path.write_text(xml)
        start = (("define", str(path)), ("start", instance_uuid))
        self.timed(f"virsh define and start, {kind}", lambda: _virsh(*start))
        end = (("destroy", instance_uuid), ("undefine", instance_uuid))
        self.timed(f"virsh destroy and undefine, {kind}", lambda: _virsh(*end))
        self.driver.networks.unplug(instance_uuid)
        trees.discard(disk)
        trees.discard(copy)

    def _spec(self, with_interface: bool) -> Any:
        self._number += 1
        vifs = []
        if with_interface:
            address = self.network.cidr.replace(".0/24", f".{10 + self._number % 200}")
            vif = make_vif(network=self.network, address=address, mac_address=f"fa:16:3e:76:77:{self._number:02x}")
            vifs = [msgspec.structs.replace(vif, id=str(uuid.uuid4()), port_security_enabled=True)]
        instance = make_instance(flavor=make_flavor(memory_mb=64))
        return make_spec(instance=instance, vifs=vifs, image=self._image, images={}, generation=1)


def _copy(source: str | Path, target: str | Path) -> None:
    """Copy files without the attributes in which libvirt stores their owners."""
    shutil.copytree(source, target, copy_function=shutil.copyfile)


def _virsh(*commands: tuple[str, ...]) -> None:
    for command in commands:
        done = subprocess.run(["virsh", "-q", *command], check=False, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"virsh {' '.join(command)}: {done.stderr}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    token = uuid.uuid4()
    prefix = f"10.{200 + token.bytes[0] % 50}.{token.bytes[1]}"
    values = {
        "gateway": f"{prefix}.1",
        "start": f"{prefix}.10",
        "end": f"{prefix}.250",
        "bridge": f"nlt{token.hex[:8]}",
    }
    network = make_network(id=str(token), cidr=f"{prefix}.0/24", **values)
    directory = Path(tempfile.mkdtemp(prefix="nova-lite-benchmark-", dir="/var/tmp"))
    directory.chmod(0o755)
    run = Run(directory, network)
    try:
        for number in range(arguments.runs + 1):
            run.guest(True, "interface")
            run.guest(False, "none")
            if not number:  # it fills caches, and starts the network
                run.times.clear()
    finally:
        for instance_uuid in {info.uuid for info in run.driver.guests.all()} | run.driver.guests.leftovers():
            run.driver.guests.destroy(instance_uuid)
            run.driver.networks.unplug(instance_uuid)
        name = f"nova-lite-{token}"
        for verb in ("net-destroy", "net-undefine"):
            subprocess.run(["virsh", "-q", verb, name], check=False, capture_output=True)
        table = firewall.table_name(network)
        subprocess.run(["nft", "delete", "table", "inet", table], check=False, capture_output=True)
        trees.discard(f"{dhcp.DIRECTORY}/{name}.d")
        trees.discard(directory)
    rows = [
        {"what": what, "median_ms": statistics.median(times), "least_ms": min(times), "greatest_ms": max(times)}
        for what, times in run.times.items()
    ]
    for row in rows:
        print(f"{row['what']:40} {row['median_ms']:8.0f} {row['least_ms']:8.0f} {row['greatest_ms']:8.0f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
