"""A hypervisor made of files, for tests and scale trials.

It follows the rules of `nova_lite.virt.abilities` like a real driver. Its domains are files below
``<instances_path>/fake-<host>/``, so they survive a kill of the daemon. Hosts on one machine do not see each other's::

    domains/<uuid>.json   the domain: it exists while this file does (`Domain`)
    disks/<uuid>/         files of the instance: disk, console.log
    vifs/<uuid>.json      its interfaces
    images/<id>           a cached image
    port-filters.json     the filters that the conductor has set last
    load-balancers.json   assigned load balancers, and until when it may have their addresses
    control.json          delays and failures, read at each step (`Control`); written by tests

The guest is imaginary, but its console shows the output of a real test guest.
"""

from __future__ import annotations

import contextlib
import glob
import logging
import os
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from oslo_config import cfg

from nova_lite import hardware
from nova_lite.base import exceptions, files, trees
from nova_lite.objects import VIF, GuestCpu, HostCpu, Image, Qcow2Disk, VolumeSource, is_encrypted, usable
from nova_lite.objects.block_device import root_volume
from nova_lite.objects.ready import prepare_decoders
from nova_lite.operations.states import PowerState
from nova_lite.virt.abilities import SpawnSpec
from nova_lite.virt.driver import ComputeDriver, instances_path

LOG = logging.getLogger(__name__)


class Domain(msgspec.Struct, kw_only=True):
    """Content of a domain's file.

    ``power_state``: tests let a guest crash by `PowerState.CRASHED`. ``halted``: its watchdog has paused it.
    ``generations``: by host, while the domain moves from one to the other, which is one rename. ``volumes``: device
    names by volume id. ``encrypted``: volumes whose keys the domain needs. ``tpm``: it has a TPM. ``encrypted_disk``:
    its root disk is. ``interfaces``: port ids. ``host_cpus``: CPUs of the host for the domain alone. ``pci``: addresses
    of its devices of the host.
    ``checkpoint``: the last backup since which the changes of the disk are known. ``volume_files``: names of the files
    of a volume, by its id, that in use first. ``cpu``: that of the host which has started it; None: it reports none.
    ``shared``: volumes that other domains may have, too. ``read_only``: volumes to which the domain does not write.
    ``shares``: their locations by tag.
    """

    uuid: str
    generation: int
    power_state: PowerState
    hostname: str
    halted: bool = False
    project_id: str = ""
    address: str = ""
    vcpus: int = 0
    memory_mb: int = 0
    disk_gb: int = 0
    config_drive: bool = False
    generations: dict[str, int] = msgspec.field(default_factory=dict)
    rescued: bool = False
    volumes: dict[str, str] = msgspec.field(default_factory=dict)
    encrypted: list[str] = msgspec.field(default_factory=list)
    tpm: bool = False
    encrypted_disk: bool = False
    interfaces: list[str] = msgspec.field(default_factory=list)
    host_cpus: list[int] = msgspec.field(default_factory=list)
    pci: list[str] = msgspec.field(default_factory=list)
    checkpoint: str | None = None
    volume_files: dict[str, list[str]] = msgspec.field(default_factory=dict)
    cpu: GuestCpu | None = None
    shared: list[str] = msgspec.field(default_factory=list)
    read_only: list[str] = msgspec.field(default_factory=list)
    shares: dict[str, str] = msgspec.field(default_factory=dict)


class Control(msgspec.Struct, kw_only=True):
    """Content of ``control.json``. Missing values are taken from ``[fake]``.

    ``delays``: seconds by step, in addition to the three general delays. ``live_migration_delay``: seconds per
    migration. ``hang_at``: steps that hang until the file changes; "*" for all. ``vcpus``, ``memory_mb``, ``disk_gb``:
    of the host. ``metrics``: measured values by name, for the scheduler. ``guest_use``: share of its vCPUs and
    memory that each running guest uses. ``console_ports``: ports of each guest's consoles, by type. ``problems``: of
    the machine, text by key, such as ``disk/smart/a``. ``unplugged``: addresses of PCI devices that the machine lacks.
    ``cpu``: processor of the host, which its guests get; None: it reports none. ``refuses_unplug``: running guests
    release no vCPUs and no memory.
    """

    spawn_delay: float
    destroy_delay: float
    power_delay: float
    fail_at: list[str]
    fail_count: int
    fail_error: str
    vcpus: int
    memory_mb: int
    disk_gb: int
    live_migration_delay: float = 0.0
    hang_at: list[str] = msgspec.field(default_factory=list)
    delays: dict[str, float] = msgspec.field(default_factory=dict)
    metrics: dict[str, float] = msgspec.field(default_factory=dict)
    guest_use: float = 0.0
    problems: dict[str, str] = msgspec.field(default_factory=dict)
    unplugged: list[str] = msgspec.field(default_factory=list)
    cpu: HostCpu | None = None
    refuses_unplug: bool = False
    console_ports: dict[str, int] = msgspec.field(
        default_factory=lambda: {"novnc": 5900, "serial": 10000, "spice": 5910}
    )


prepare_decoders(Domain, Control)

#: Seconds between two checks whether a hanging step may continue.
HANG_POLL = 0.05

#: Options of ``[fake]`` that ``control.json`` may override.
CONFIGURED = ("spawn_delay", "destroy_delay", "power_delay", "fail_at", "fail_count", "fail_error")
CAPACITY = ("vcpus", "memory_mb", "disk_gb")


def state_path(conf: cfg.ConfigOpts, host: str) -> str:
    """Return the directory of the fake hypervisor of ``host``."""
    return os.path.join(instances_path(conf), f"fake-{host}")


class FakeHypervisor:
    """The files of one host, and its delays and failures. ``driver``: opens encrypted volumes, and fetches images."""

    def __init__(self, driver: ComputeDriver) -> None:
        self.driver = driver
        self.conf = driver.conf
        self.host = driver.host
        self.path = state_path(driver.conf, driver.host)
        self._mutex = threading.Lock()
        self._played = 0
        self._played_for: bytes = b""

    def boot(self, domain: Domain) -> None:
        for volume_id in domain.encrypted:
            self.driver.volume_key(volume_id)
        if domain.tpm:
            self.driver.tpm_key(domain.uuid)
        if domain.encrypted_disk:
            self.driver.disk_key(domain.uuid, "root")
        system = "rescue system" if domain.rescued else "guest"
        line = f"nova-lite-guest: instance={domain.uuid} hostname={domain.hostname} ip={domain.address}\n"
        with open(self.console(domain.uuid), "a", encoding="utf-8") as console:
            console.write(f"fake firmware\nfake {system} is booting\n{line}")
        domain.power_state = PowerState.RUNNING
        domain.cpu = _guest_cpu(self._control()[0].cpu)
        self.write(domain)

    def fetch(self, image: Image) -> None:
        """Fetch the image into ``images``, once per host, like a real hypervisor."""
        path = os.path.join(self.path, "images", os.path.basename(image.id))
        if os.path.exists(path):
            return
        part = os.path.join(os.path.dirname(path), f"{files.TEMPORARY}{uuid.uuid4()}")
        try:
            self.driver.fetch_image(image, part)
            os.rename(part, path)
        finally:
            files.remove(part)

    def remove(self, instance_uuid: str) -> None:
        """Remove the domain first, as a real hypervisor does. Files without a domain are leftovers."""
        files.remove(self.file("domains", instance_uuid))
        trees.discard(os.path.dirname(self.console(instance_uuid)))

    def turn(self, step: str, instance_uuid: str, power_state: PowerState) -> None:
        domain = self.read(instance_uuid)
        time.sleep(self.step(step).power_delay)
        domain.power_state = power_state
        self.write(domain)

    def end_rescue(self, domain: Domain) -> None:
        domain.rescued = False
        self.write(domain)
        files.remove(self.rescue_disk(domain.uuid))

    def say(self, instance_uuid: str, line: str) -> None:
        with open(self.console(instance_uuid), "a", encoding="utf-8") as console:
            console.write(line + "\n")

    def everywhere(self) -> Iterator[Domain]:
        """Yield the domains of all fake hosts of this machine."""
        for path in glob.glob(os.path.join(os.path.dirname(self.path), "fake-*", "domains", "*.json")):
            with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
                yield msgspec.json.decode(file.read(), type=Domain)

    # --- files

    def file(self, kind: str, instance_uuid: str) -> str:
        return os.path.join(self.path, kind, os.path.basename(instance_uuid) + ".json")

    def console(self, instance_uuid: str) -> str:
        return os.path.join(self.path, "disks", os.path.basename(instance_uuid), "console.log")

    def disks(self, instance_uuid: str) -> str:
        return os.path.dirname(self.console(instance_uuid))

    def aside(self, instance_uuid: str) -> str:
        return os.path.join(self.path, "aside", os.path.basename(instance_uuid))

    def layer_path(self, clone_uuid: str) -> str:
        return os.path.join(self.path, "layers", os.path.basename(clone_uuid))

    def layer(self, clone_uuid: str) -> str:
        """Return the text of the disk of which this server is a clone."""
        try:
            with open(self.layer_path(clone_uuid), encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError as error:
            raise exceptions.VirtDriverError(reason=f"there is no layer for {clone_uuid}") from error

    def rescue_disk(self, instance_uuid: str) -> str:
        return os.path.join(self.path, "disks", os.path.basename(instance_uuid), "disk.rescue")

    def vifs(self, instance_uuid: str) -> list[VIF]:
        try:
            with open(self.file("vifs", instance_uuid), "rb") as file:
                return msgspec.json.decode(file.read(), type=list[VIF])
        except FileNotFoundError:
            return []

    def uuids(self, kind: str) -> set[str]:
        return {name[: -len(".json")] for name in os.listdir(os.path.join(self.path, kind)) if name.endswith(".json")}

    def domains(self) -> list[Domain]:
        domains = []
        for instance_uuid in sorted(self.uuids("domains")):
            try:
                domains.append(self.read(instance_uuid))
            except exceptions.DomainNotFound:
                continue  # Removed meanwhile.
        return domains

    def read(self, instance_uuid: str) -> Domain:
        try:
            with open(self.file("domains", instance_uuid), "rb") as file:
                domain = msgspec.json.decode(file.read(), type=Domain)
        except FileNotFoundError as error:
            raise exceptions.DomainNotFound(instance_uuid=instance_uuid) from error
        domain.generation = domain.generations.get(self.host, domain.generation)
        return domain

    def write(self, domain: Domain) -> None:
        files.write_atomically(self.file("domains", domain.uuid), msgspec.json.encode(domain), durable=False)

    # --- delays and failures

    def step(self, name: str, error: type[Exception] | None = None, instance_uuid: str = "") -> Control:
        """Apply the delays and failures of a step. Return the current `Control`."""
        control, source = self._control()
        while {name, "*"} & set(control.hang_at):
            time.sleep(HANG_POLL)
            control, source = self._control()
        time.sleep(control.delays.get(name, 0.0))
        if name in control.fail_at and self._may_fail(control.fail_count, source):
            LOG.info("Failing at %s, as configured", name)
            if error is exceptions.InstancePowerOnFailure and control.fail_error == "virt":
                raise exceptions.InstancePowerOnFailure(
                    instance_uuid=instance_uuid, reason=f"configured to fail at {name}"
                )
            raise self._error(control.fail_error, f"configured to fail at {name}")
        return control

    def _may_fail(self, fail_count: int, source: bytes) -> bool:
        """Count the failures that were played. A changed control file starts a new count."""
        with self._mutex:
            if source != self._played_for:
                self._played, self._played_for = 0, source
            if 0 <= fail_count <= self._played:
                return False
            self._played += 1
            return True

    def _error(self, kind: str, reason: str) -> Exception:
        if kind == "abort":
            return exceptions.ImageGone(image_id="fake", reason=reason)
        if kind == "image":
            return exceptions.ImageFileMissing(image_id="fake", reason=reason)
        if kind == "hypervisor":
            return exceptions.HypervisorUnavailable(host=self.host, reason=reason)
        if kind == "unexpected":
            return RuntimeError(reason)
        return exceptions.VirtDriverError(reason=reason)

    def _control(self) -> tuple[Control, bytes]:
        """Return ``[fake]`` overridden by ``control.json``, and the bytes of that file."""
        values: dict[str, Any] = {name: getattr(self.conf.fake, name) for name in (*CONFIGURED, *CAPACITY)}
        try:
            with open(os.path.join(self.path, "control.json"), "rb") as file:
                source = file.read()
        except FileNotFoundError:
            return msgspec.convert(values, Control), b""
        return msgspec.convert(values | msgspec.json.decode(source), Control), source


class Ability:
    """An ability of the fake driver."""

    def __init__(self, hypervisor: FakeHypervisor) -> None:
        self._fake = hypervisor


def write_control(conf: cfg.ConfigOpts, host: str, **values: Any) -> None:
    """Set the behaviour of the fake hypervisor of ``host``, in whatever process it runs (see `Control`)."""
    path = files.private_directory(state_path(conf, host))
    files.write_atomically(os.path.join(path, "control.json"), msgspec.json.encode(values), durable=False)


def images_of(spec: SpawnSpec) -> list[Image]:
    others = [image for image in spec.images.values() if spec.image is None or image.id != spec.image.id]
    if spec.image is None or root_volume(spec.instance.block_devices) is not None:
        return others
    return [spec.image, *others]


def domain_of(spec: SpawnSpec) -> Domain:
    """Return the new domain, off."""
    instance, flavor = spec.instance, spec.instance.flavor
    return Domain(
        uuid=instance.uuid,
        generation=spec.generation,
        power_state=PowerState.SHUTDOWN,
        hostname=instance.hostname,
        project_id=instance.project_id,
        address=spec.vifs[0].address if spec.vifs else "",
        vcpus=flavor.vcpus,
        memory_mb=flavor.memory_mb,
        disk_gb=flavor.disk_gb,
        config_drive=instance.config_drive,
        volumes={device.volume_id: device.device_name or "" for device in instance.block_devices if device.volume_id},
        tpm=hardware.resolve(spec.instance.flavor, spec.image, strict=False).tpm is not None,
        encrypted_disk=hardware.encrypts_disks(flavor.extra_specs, {} if spec.image is None else spec.image.properties),
        encrypted=[volume_id for volume_id, source in spec.volumes.items() if is_encrypted(source)],
        volume_files=files_of(spec.volumes),
        shared=[str(device.volume_id) for device in instance.block_devices if device.multiattach],
        read_only=[str(device.volume_id) for device in instance.block_devices if device.read_only],
        shares={mapping.tag: mapping.location for mapping in usable(instance.shares)},
        interfaces=[vif.id for vif in spec.vifs],
        host_cpus=[] if instance.numa is None else instance.numa.host_cpus,
        pci=[device.address for device in instance.pci or ()],
    )


def _guest_cpu(cpu: HostCpu | None) -> GuestCpu | None:
    """Return the processor of a guest that starts on a host with this one."""
    if cpu is None:
        return None
    machine = cpu.machines.partition(" ")[0]
    return GuestCpu(virt_type=cpu.virt_type, vendor=cpu.vendor, features=cpu.features, machine=machine)


def files_of(sources: Mapping[str, VolumeSource]) -> dict[str, list[str]]:
    """Return the names of the files in use, by the ids of volumes in plain files."""
    paths = {key: item.path if isinstance(item, Qcow2Disk) else item for key, item in sources.items()}
    return {key: [os.path.basename(path)] for key, path in paths.items() if isinstance(path, str)}
