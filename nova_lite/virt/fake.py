"""A hypervisor made of files, for tests and scale trials.

It obeys `nova_lite.virt.driver` as a real one does. Its "domains" are files below
``<instances_path>/fake-<host>/``, so they outlive a kill of the daemon, and the hosts of one machine do not see each
other's::

    domains/<uuid>.json   the domain: it exists while this file does (`Domain`)
    disks/<uuid>/         what belongs to it: disk, console.log
    vifs/<uuid>.json      its interfaces
    images/<id>           an image that was asked into the cache
    control.json          delays and failures, read anew at each step (`Control`); tests write it

The guest is imaginary, but its console says what a real test guest's does.
"""

from __future__ import annotations

import logging
import os
import platform
import shutil
import threading
import time
import uuid
from typing import Any

import msgspec
from oslo_config import cfg

from nova_lite import exception, files, hooks
from nova_lite.objects import (
    VIF,
    CpuDiagnostics,
    Diagnostics,
    DiskDiagnostics,
    Image,
    Instance,
    Inventory,
    NicDiagnostics,
)
from nova_lite.objects.ready import make_ready
from nova_lite.states import PowerState
from nova_lite.virt import driver

LOG = logging.getLogger(__name__)


class Domain(msgspec.Struct, kw_only=True):
    """A domain's file."""

    uuid: str
    generation: int
    power_state: PowerState
    hostname: str
    address: str = ""
    vcpus: int = 0
    memory_mb: int = 0
    disk_gb: int = 0
    config_drive: bool = False


class Control(msgspec.Struct, kw_only=True):
    """``control.json``; what it leaves out is taken from ``[fake]``.

    ``delays``: seconds by step, besides the three general ones. ``vcpus``, ``memory_mb``, ``disk_gb``: the host's.
    ``metrics``: what it measures, by name, for the scheduler.
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
    delays: dict[str, float] = msgspec.field(default_factory=dict)
    metrics: dict[str, float] = msgspec.field(default_factory=dict)


make_ready(Domain, Control)

#: What ``[fake]`` says; ``control.json`` may say otherwise.
CONFIGURED = ("spawn_delay", "destroy_delay", "power_delay", "fail_at", "fail_count", "fail_error")
CAPACITY = ("vcpus", "memory_mb", "disk_gb")


def state_path(conf: cfg.ConfigOpts, host: str) -> str:
    """Where the fake hypervisor of ``host`` keeps everything."""
    return os.path.join(driver.instances_path(conf), f"fake-{host}")


class FakeDriver(driver.ComputeDriver):
    """Slow or failing where ``[fake]`` or ``control.json`` says so."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, fetch_image: driver.FetchImage) -> None:
        super().__init__(conf, host, fetch_image)
        self.path = state_path(conf, host)
        self._mutex = threading.Lock()
        self._played = 0
        self._played_for: bytes = b""

    def init_host(self) -> None:
        self._step("init_host")
        for name in ("domains", "disks", "vifs", "images"):
            files.private_directory(os.path.join(self.path, name))

    def get_inventory(self) -> Inventory:
        control = self._step("inventory")
        return Inventory(
            node=self.host,
            vcpus=control.vcpus,
            memory_mb=control.memory_mb,
            disk_gb=control.disk_gb,
            hypervisor_type="fake",
            hypervisor_version=1000000,
            host_ip=self.conf.my_ip,
            cpu_arch=platform.machine(),
            cpu_info={"model": "fake", "vendor": "fake", "features": []},
            supported_hv_types=["fake", "qemu", "kvm"],
            capabilities={"metrics": control.metrics} if control.metrics else {},
            disk_available_least=control.disk_gb,
            uptime="up, for as long as a fake is",
            running_vms=sum(info.power_state == PowerState.RUNNING for info in self._domains()),
        )

    def list_domains(self) -> list[driver.DomainInfo]:
        self._step("list_domains")
        return [_info(domain) for domain in self._domains()]

    def get_info(self, instance_uuid: str) -> driver.DomainInfo:
        self._step("get_info")
        return _info(self._read(instance_uuid))

    def plug_vifs(self, instance: Instance, vifs: list[VIF]) -> None:
        self._step("plug_vifs")
        files.write_atomically(self._file("vifs", instance.uuid), msgspec.json.encode(vifs), durable=False)

    def unplug_vifs(self, instance_uuid: str) -> None:
        self._step("unplug_vifs")
        files.remove(self._file("vifs", instance_uuid))

    def spawn(self, spec: driver.SpawnSpec) -> None:
        instance_uuid = spec.instance.uuid
        if os.path.exists(self._file("domains", instance_uuid)):
            raise exception.VirtDriverError(reason=f"a domain of instance {instance_uuid} exists already")
        try:
            self._spawn(spec)
        except BaseException:
            self._destroy(instance_uuid)
            raise

    def destroy(self, instance_uuid: str) -> None:
        control = self._step("destroy")
        if os.path.exists(self._file("domains", instance_uuid)):
            time.sleep(control.destroy_delay)
        self._destroy(instance_uuid)

    def power_on(self, instance_uuid: str) -> None:
        domain = self._read(instance_uuid)
        if domain.power_state != PowerState.RUNNING:
            time.sleep(self._step("power_on", exception.InstancePowerOnFailure, instance_uuid).power_delay)
            self._boot(domain)

    def power_off(self, instance_uuid: str, timeout: int) -> None:
        domain = self._read(instance_uuid)
        if domain.power_state != PowerState.SHUTDOWN:
            time.sleep(self._step("power_off").power_delay)
            domain.power_state = PowerState.SHUTDOWN
            self._write(domain)

    def reboot(self, instance_uuid: str, reboot_type: str, timeout: int) -> None:
        domain = self._read(instance_uuid)
        time.sleep(self._step("reboot").power_delay)
        if reboot_type == "HARD":
            domain.power_state = PowerState.SHUTDOWN
            self._write(domain)
        self._boot(domain)

    def pause(self, instance_uuid: str) -> None:
        self._turn("pause", instance_uuid, PowerState.PAUSED)

    def unpause(self, instance_uuid: str) -> None:
        self._turn("unpause", instance_uuid, PowerState.RUNNING)

    def suspend(self, instance_uuid: str) -> None:
        self._turn("suspend", instance_uuid, PowerState.SHUTDOWN)

    def resume(self, instance_uuid: str) -> None:
        self._turn("resume", instance_uuid, PowerState.RUNNING)

    def _turn(self, step: str, instance_uuid: str, power_state: PowerState) -> None:
        domain = self._read(instance_uuid)
        time.sleep(self._step(step).power_delay)
        domain.power_state = power_state
        self._write(domain)

    def leftovers(self) -> set[str]:
        disks = set(os.listdir(os.path.join(self.path, "disks")))
        return (disks | self._uuids("vifs")) - self._uuids("domains")

    def get_console_output(self, instance_uuid: str, length: int | None) -> str:
        self._step("console")
        self._read(instance_uuid)
        try:
            with open(self._console(instance_uuid), encoding="utf-8") as file:
                return driver.last_lines(file.read(), length)
        except FileNotFoundError:
            return ""

    def get_instance_diagnostics(self, instance_uuid: str) -> Diagnostics:
        """Of the domain as it was made; what a guest that is not there did is nothing."""
        self._step("diagnostics")
        domain = self._read(instance_uuid)
        nothing = {"rx_octets": 0, "rx_packets": 0, "tx_octets": 0, "tx_packets": 0}
        vifs = self._vifs(instance_uuid)
        return Diagnostics(
            driver="fake",
            hypervisor="fake",
            config_drive=domain.config_drive,
            cpus=[CpuDiagnostics(id=number, time=0) for number in range(domain.vcpus)],
            nics=[NicDiagnostics(name=vif.id, mac_address=vif.mac_address, **nothing) for vif in vifs],
            disks=[DiskDiagnostics(name="vda", read_bytes=0, read_requests=0, write_bytes=0, write_requests=0)],
            memory_maximum=domain.memory_mb,
            memory_used=0,
        )

    def cache_image(self, image: Image) -> None:
        self._step("cache_image")
        self._fetch(image)

    def _fetch(self, image: Image) -> None:
        """Have the image in ``images``; like a real hypervisor, once per host."""
        path = os.path.join(self.path, "images", os.path.basename(image.id))
        if os.path.exists(path):
            return
        part = f"{path}.{uuid.uuid4()}"
        try:
            self.fetch_image(image, part)
            os.rename(part, path)
        finally:
            files.remove(part)

    # --- making and unmaking

    def _spawn(self, spec: driver.SpawnSpec) -> None:
        instance, flavor = spec.instance, spec.instance.flavor
        self._step("image")
        for image in _images(spec):
            self._fetch(image)
        disks = files.private_directory(os.path.join(self.path, "disks", instance.uuid))
        hooks.check_disk()
        with open(os.path.join(disks, "disk"), "w", encoding="utf-8") as disk:
            disk.write(f"generation {spec.generation}\n")
        time.sleep(self._step("spawn_before_domain").spawn_delay)
        domain = Domain(
            uuid=instance.uuid,
            generation=spec.generation,
            power_state=PowerState.SHUTDOWN,
            hostname=instance.hostname,
            address=spec.vifs[0].address if spec.vifs else "",
            vcpus=flavor.vcpus,
            memory_mb=flavor.memory_mb,
            disk_gb=flavor.disk_gb,
            config_drive=instance.config_drive,
        )
        spec.fence()
        self._boot(domain)
        self._step("spawn_after_domain")

    def _boot(self, domain: Domain) -> None:
        line = f"nova-lite-guest: instance={domain.uuid} hostname={domain.hostname} ip={domain.address}\n"
        with open(self._console(domain.uuid), "a", encoding="utf-8") as console:
            console.write(f"fake firmware\nfake guest is booting\n{line}")
        domain.power_state = PowerState.RUNNING
        self._write(domain)

    def _destroy(self, instance_uuid: str) -> None:
        """The domain goes first, as with a real hypervisor: what is left without it are leftovers."""
        files.remove(self._file("domains", instance_uuid))
        shutil.rmtree(os.path.dirname(self._console(instance_uuid)), ignore_errors=True)

    # --- files

    def _file(self, kind: str, instance_uuid: str) -> str:
        return os.path.join(self.path, kind, os.path.basename(instance_uuid) + ".json")

    def _console(self, instance_uuid: str) -> str:
        return os.path.join(self.path, "disks", os.path.basename(instance_uuid), "console.log")

    def _vifs(self, instance_uuid: str) -> list[VIF]:
        try:
            with open(self._file("vifs", instance_uuid), "rb") as file:
                return msgspec.json.decode(file.read(), type=list[VIF])
        except FileNotFoundError:
            return []

    def _uuids(self, kind: str) -> set[str]:
        return {name[: -len(".json")] for name in os.listdir(os.path.join(self.path, kind)) if name.endswith(".json")}

    def _domains(self) -> list[Domain]:
        domains = []
        for instance_uuid in sorted(self._uuids("domains")):
            try:
                domains.append(self._read(instance_uuid))
            except exception.DomainNotFound:
                continue  # it went while we looked
        return domains

    def _read(self, instance_uuid: str) -> Domain:
        try:
            with open(self._file("domains", instance_uuid), "rb") as file:
                return msgspec.json.decode(file.read(), type=Domain)
        except FileNotFoundError as error:
            raise exception.DomainNotFound(instance_uuid=instance_uuid) from error

    def _write(self, domain: Domain) -> None:
        files.write_atomically(self._file("domains", domain.uuid), msgspec.json.encode(domain), durable=False)

    # --- slowness and failures

    def _step(self, name: str, error: type[Exception] | None = None, instance_uuid: str = "") -> Control:
        """Wait and fail at a step as told; returns what `Control` says."""
        control, source = self._control()
        time.sleep(control.delays.get(name, 0.0))
        if name in control.fail_at and self._may_fail(control.fail_count, source):
            LOG.info("Failing at %s, as told", name)
            if error is exception.InstancePowerOnFailure and control.fail_error == "virt":
                raise exception.InstancePowerOnFailure(instance_uuid=instance_uuid, reason=f"told to fail at {name}")
            raise self._error(control.fail_error, f"told to fail at {name}")
        return control

    def _may_fail(self, fail_count: int, source: bytes) -> bool:
        """Counts the failures played; a changed control file starts a new count."""
        with self._mutex:
            if source != self._played_for:
                self._played, self._played_for = 0, source
            if 0 <= fail_count <= self._played:
                return False
            self._played += 1
            return True

    def _error(self, kind: str, reason: str) -> Exception:
        if kind == "abort":
            return exception.ImageCorrupt(image_id="fake", reason=reason)
        if kind == "hypervisor":
            return exception.HypervisorUnavailable(host=self.host, reason=reason)
        if kind == "unexpected":
            return RuntimeError(reason)
        return exception.VirtDriverError(reason=reason)

    def _control(self) -> tuple[Control, bytes]:
        """``[fake]`` overlaid with ``control.json``, and the bytes of that file."""
        values: dict[str, Any] = {name: getattr(self.conf.fake, name) for name in (*CONFIGURED, *CAPACITY)}
        try:
            with open(os.path.join(self.path, "control.json"), "rb") as file:
                source = file.read()
        except FileNotFoundError:
            return msgspec.convert(values, Control), b""
        return msgspec.convert(values | msgspec.json.decode(source), Control), source


def write_control(conf: cfg.ConfigOpts, host: str, **values: Any) -> None:
    """Tell the fake hypervisor of ``host``, in whatever process it is, how to behave from now on (see `Control`)."""
    path = files.private_directory(state_path(conf, host))
    files.write_atomically(os.path.join(path, "control.json"), msgspec.json.encode(values), durable=False)


def _images(spec: driver.SpawnSpec) -> list[Image]:
    root = [] if spec.image is None else [spec.image]
    return root + [image for image in spec.images.values() if spec.image is None or image.id != spec.image.id]


def _info(domain: Domain) -> driver.DomainInfo:
    return driver.DomainInfo(uuid=domain.uuid, generation=domain.generation, power_state=domain.power_state)
