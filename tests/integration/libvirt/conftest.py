"""Real guests on this machine's libvirtd, without broker and database. Skipped without a libvirtd."""

from __future__ import annotations

import base64
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import libvirt
import pytest
from oslo_config import cfg

from nova_lite import conf as configuration
from nova_lite.base.timing import TIMING, LibvirtTiming
from nova_lite.image import local
from nova_lite.objects import VIF, Image, Network
from nova_lite.virt.abilities import SpawnSpec
from nova_lite.virt.driver import ComputeDriver
from nova_lite.virt.libvirt.driver import LibvirtDriver
from nova_lite.virt.libvirt.net import dhcp, migration_peers, names, nft, realms, reservations
from tests.integration import guest_image
from tests.integration.ceph import Ceph, secret_xml
from tests.integration.libvirt import hosts
from tests.integration.libvirt.metadata import Service
from tests.support.guests import make_flavor, make_image, make_instance, make_network, make_spec, make_vif
from tests.support.host_networks import remove_network
from tests.support.waiting import wait_for

GUEST_LINE = re.compile(r"^nova-lite-guest: instance=(\S+) hostname=(\S+) ip=(\S+)\r?$", re.MULTILINE)
PATIENCE = 300.0
#: Ids of the networks of `tests.support.in_process_cloud`.
LEFT_OVER = "a0000000-0000-4000-8000-"


@pytest.fixture(scope="session")
def connection() -> Any:
    try:
        opened = libvirt.open("qemu:///system")
    except libvirt.libvirtError as error:
        pytest.skip(f"no libvirtd here: {error}")
    remove_left_over_networks(opened)
    return opened


def remove_left_over_networks(connection: Any) -> None:
    """Remove the networks of clouds in one process that were killed: they have a fixed id, and no guest uses them."""
    for bridge in os.listdir(realms.NET):
        network_id = realms.network_on(bridge) or ""
        own = names.tunnel_name(), names.gateway_name(network_id)
        if network_id.startswith(LEFT_OVER) and all(name.startswith(own) for name in realms.members(bridge)):
            remove_network(connection, f"nova-lite-{network_id}")


@pytest.fixture(scope="session")
def directory(connection: Any) -> Iterator[Path]:
    """Directory of images and disks. qemu's user can enter it, unlike pytest's own directories."""
    path = Path(tempfile.mkdtemp(prefix="nova-lite-test-", dir="/var/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="session")
def guest(directory: Path) -> Path:
    return guest_image.build(directory)


class Images:
    def __init__(self, guest: Path) -> None:
        self.disk = make_image(guest / "disk.qcow2", "qcow2")
        self.kernel = make_image(guest / "vmlinuz", "aki")
        self.ramdisk = make_image(guest / "initrd.img", "ari")
        properties = {
            "kernel_id": self.kernel.id,
            "ramdisk_id": self.ramdisk.id,
            "os_command_line": (guest / "cmdline").read_text().strip(),
        }
        self.ami = make_image(guest / "root.img", "ami", properties=properties)
        self.others = {self.kernel.id: self.kernel, self.ramdisk.id: self.ramdisk}


@pytest.fixture(scope="session")
def images(guest: Path) -> Images:
    return Images(guest)


@pytest.fixture(scope="session")
def blank(directory: Path) -> Image:
    """Provide an empty disk. Its guest starts at once, and ignores the power button."""
    path = directory / "blank.img"
    path.write_bytes(bytes(1024**2))
    return make_image(path, "raw")


@pytest.fixture(scope="session")
def network(connection: Any) -> Iterator[Network]:
    """Provide a network for this test only. It is removed at the end."""
    token = uuid.uuid4()
    prefix = f"10.{200 + token.bytes[0] % 50}.{token.bytes[1]}"
    yield make_network(
        id=str(token),
        cidr=f"{prefix}.0/24",
        gateway=f"{prefix}.1",
        start=f"{prefix}.10",
        end=f"{prefix}.250",
        bridge=f"nlt{token.hex[:8]}",
    )
    remove_network(connection, f"nova-lite-{token}")


MakeDriver = Callable[..., LibvirtDriver]

IS_LONG = os.environ.get("NOVA_LITE_LONG") == "1"
#: Mark of tests and of their values that only a long command runs.
LONG = pytest.mark.skipif(not IS_LONG, reason="NOVA_LITE_LONG is not set to 1")


def forms(sample: str) -> pytest.MarkDecorator:
    """Run a test with both forms of root disks if ``NOVA_LITE_LONG=1``, and else with this one alone."""
    return pytest.mark.parametrize("form", ["qcow2", "raw"] if IS_LONG else [sample])


@pytest.fixture
def form() -> str:
    """Form of new root disks: ``[libvirt] images_type``."""
    return "default"


@pytest.fixture
def make_driver(directory: Path, form: str) -> Iterator[MakeDriver]:
    """Make drivers of hosts by name, which share the disk directory and libvirtd. Their remains are removed at the
    end.

    Further arguments are options, as in ``network__metadata_service``.
    """
    drivers: list[LibvirtDriver] = []
    run = uuid.uuid4().hex[:8]

    def make(name: str, timing: LibvirtTiming = TIMING.libvirt, **options: Any) -> LibvirtDriver:
        conf = cfg.ConfigOpts()
        configuration.register_opts(conf)
        conf([], default_config_files=[])
        conf.set_override("state_path", str(directory))
        conf.set_override("images_type", form, "libvirt")
        for option, value in options.items():
            group, _, plain = option.rpartition("__")
            conf.set_override(plain, value, group or None)
        driver = LibvirtDriver(
            conf, f"{name}-{run}", lambda image, target: local.copy(image, image.name, target), timing
        )
        driver.init_host()
        drivers.append(driver)
        return driver

    yield make
    for driver in drivers:
        for instance_uuid in {info.uuid for info in driver.guests.all()} | driver.guests.leftovers():
            driver.guests.destroy(instance_uuid)
            driver.networks.unplug(instance_uuid)
        nft.run(f"delete table inet {names.links_table(driver.host)}\n")


MakeHost = Callable[..., LibvirtDriver]


@pytest.fixture(scope="session")
def second_host(connection: Any) -> Iterator[None]:
    """Run the libvirtd of `hosts.THERE`. It is removed at the end."""
    started = hosts.second_host("start")
    if started.returncode:
        pytest.fail(f"the second libvirt host does not start: {started.stderr}")
    assert hosts.second_host("start").returncode == 0, "started twice"
    yield
    assert hosts.second_host("stop").returncode == 0
    assert not os.path.exists(f"/run/nova-lite-hosts/.{hosts.NUMBER}")
    assert not os.path.exists(f"/sys/class/net/nl-host{hosts.NUMBER}")
    assert hosts.second_host("status").returncode != 0


@pytest.fixture
def make_host(directory: Path, second_host: None, form: str) -> Iterator[MakeHost]:
    """Make compute hosts by name and address. Their remains are removed at the end."""
    drivers: list[LibvirtDriver] = []
    run = uuid.uuid4().hex[:8]

    def make(name: str, address: str, **options: Any) -> LibvirtDriver:
        path = directory / f"{options.pop('path', name)}-{run}"
        drivers.append(hosts.make_driver(path, f"{name}-{run}", address, **{"images_type": form, **options}))
        return drivers[-1]

    yield make
    for driver in drivers:
        for instance_uuid in {info.uuid for info in driver.guests.all()} | driver.guests.leftovers():
            driver.guests.destroy(instance_uuid)
            driver.moves.discard(instance_uuid)
    for driver in drivers:
        shutil.rmtree(driver.conf.state_path, ignore_errors=True)
        nft.apply(migration_peers.without(nft.table("nova_lite_migrations_", driver.host)))
        nft.run(f"delete table inet {names.links_table(driver.host)}\n")


@pytest.fixture
def ceph(directory: Path, second_host: None) -> Iterator[Ceph]:
    """Run a Ceph that both hosts reach."""
    made = Ceph(directory, hosts.HERE)
    made.start()
    yield made
    made.stop()


@pytest.fixture
def secret(connection: Any, ceph: Ceph) -> Iterator[str]:
    """Define the secret of Ceph's user at both hosts. Yield its uuid."""
    made = str(uuid.uuid4())
    secrets = []
    for opened in (connection, libvirt.open(hosts.URI % hosts.THERE)):
        secrets.append(opened.secretDefineXML(secret_xml(made, ephemeral=True)))
        secrets[-1].setValue(base64.b64decode(ceph.key))
    yield made
    for each in secrets:
        each.undefine()


@pytest.fixture
def driver(make_driver: MakeDriver) -> LibvirtDriver:
    return make_driver("one")


@pytest.fixture
def new_vif(network: Network) -> Callable[[], VIF]:
    numbers = iter(range(1, 200))

    def new() -> VIF:
        number = next(numbers)
        address = network.start.rpartition(".")[0] + f".{10 + number}"  # type: ignore[union-attr]
        return make_vif(network=network, address=address, mac_address=f"fa:16:3e:{network.id[:2]}:76:{number:02x}")

    return new


@pytest.fixture
def service(connection: Any, tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path)
    yield made
    made.stop()


def define(connection: Any, xml: str) -> None:
    """Define the domain, and let qemu make its devices: a paused start."""
    domain = connection.defineXMLFlags(xml, libvirt.VIR_DOMAIN_DEFINE_VALIDATE)
    try:
        domain.createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED | libvirt.VIR_DOMAIN_START_AUTODESTROY)
        domain.destroy()
    finally:
        domain.undefineFlags(libvirt.VIR_DOMAIN_UNDEFINE_NVRAM)


def guest_spec(images: Images, vifs: list[VIF], image: Image | None = None, **changes: Any) -> SpawnSpec:
    flavor = make_flavor(memory_mb=changes.pop("memory_mb", 128))
    generation = changes.pop("generation", 1)
    instance = make_instance(flavor=flavor, **changes)
    root = image or images.ami
    known = images.others | {root.id: root}
    return make_spec(instance=instance, vifs=vifs, image=root, images=known, generation=generation)


def boot(driver: ComputeDriver, spec: SpawnSpec) -> None:
    driver.networks.plug(spec.instance, spec.vifs)
    driver.guests.spawn(spec)


def whole_lines(driver: ComputeDriver, instance_uuid: str) -> str:
    """Return the console without its last line, which may be incomplete."""
    text = driver.consoles.output(instance_uuid, None)
    return text[: text.rfind("\n") + 1]


def guest_lines(driver: ComputeDriver, instance_uuid: str, count: int = 1) -> list[tuple[str, ...]]:
    """Return uuid, host name and address that the guest printed, as soon as it has printed them ``count`` times."""

    def printed_lines() -> list[tuple[str, ...]]:
        lines = GUEST_LINE.findall(whole_lines(driver, instance_uuid))
        return lines if len(lines) >= count else []

    lines: list[tuple[str, ...]] = wait_for("guest line", printed_lines, PATIENCE)
    assert len(lines) == count
    return lines


def traces(connection: Any, driver: LibvirtDriver, spec: SpawnSpec) -> list[str]:
    """Return everything that is left of an instance on this machine."""
    instance_uuid = spec.instance.uuid
    found = [
        f"domain {domain.name()}" for domain in connection.listAllDomains() if domain.UUIDString() == instance_uuid
    ]
    root = Path(driver.conf.state_path)
    found += [str(path) for path in root.rglob(f"*{instance_uuid}*")]
    if instance_uuid in driver.guests.leftovers():
        found.append("a leftover")
    for vif in spec.vifs:
        tap = f"tap{vif.id[:11]}"
        found += [f"tap {tap}"] if os.path.exists(f"/sys/class/net/{tap}") else []
        reservation = Path(reservations.path_of(vif))
        found += [str(reservation)] if reservation.exists() else []
        leases = dhcp.path_of(names.network_name(vif.network), "leases")
        found += [str(lease) for lease in dhcp.find_leases(leases, vif.address)]
        found += [binding.portDev() for binding in connection.listAllNWFilterBindings() if binding.portDev() == tap]
    return found


def assert_nothing_left(connection: Any, driver: LibvirtDriver, spec: SpawnSpec) -> None:
    """Wait until nothing is left. Leases are released by a message, so they may take a moment."""
    wait_for("clean host", lambda: not traces(connection, driver, spec), timeout=5)
