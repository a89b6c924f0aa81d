"""The fake driver: guests on a `nova_lite.virt.fake_hypervisor`."""

from __future__ import annotations

import os
import platform
import socket
import threading
import time
from collections.abc import Collection, Mapping

import msgspec
from oslo_config import cfg

from nova_lite.base import exceptions, failpoints, files
from nova_lite.daemon import sockets
from nova_lite.hardware import traits
from nova_lite.objects import (
    HOST_CPU,
    VIF,
    CpuDiagnostics,
    Diagnostics,
    DiskDiagnostics,
    GuestReport,
    HostProblem,
    Image,
    Instance,
    Inventory,
    NicDiagnostics,
    NUMACell,
    PortFilters,
    ShareMapping,
)
from nova_lite.objects.pci import TYPE_PF, TYPE_VF, PCIDevice
from nova_lite.operations.states import PowerState
from nova_lite.virt import abilities, device_specs, driver, fake_disks, topology, vgpus
from nova_lite.virt.abilities import (
    ConsoleAddress,
    DomainInfo,
    FetchImage,
    GuestStatistics,
    HostCounters,
    SpawnSpec,
)
from nova_lite.virt.device_specs import FoundDevice
from nova_lite.virt.fake_hypervisor import Ability, Control, Domain, FakeHypervisor, domain_of, images_of
from nova_lite.virt.vgpus import GPU

_MIB = 1024 * 1024

#: Counters of a guest that does nothing.
_IDLE = dict.fromkeys(
    (
        "disk_read_bytes",
        "disk_written_bytes",
        "disk_reads",
        "disk_writes",
        "network_received_bytes",
        "network_sent_bytes",
        "network_dropped",
    ),
    0,
)

#: NUMA cells of its machine, and the number of CPUs above which it reports no cells: no real machine has as many, and
#: each cell would be in every copy of the host's state.
CELLS = 2
BEYOND_MACHINES = 4096

#: Number of virtual functions of its network card.
VIRTUAL_FUNCTIONS = 4


class FakeMachine(Ability, abilities.Machine):
    def __init__(self, hypervisor: FakeHypervisor) -> None:
        super().__init__(hypervisor)
        self._specs = device_specs.parse(hypervisor.conf)
        self._mdev_types = vgpus.parse(hypervisor.conf)

    def inventory(self) -> Inventory:
        control = self._fake.step("inventory")
        cells = _machine(control)
        shared, _ = topology.cpus(self._fake.conf, cells)
        return Inventory(
            node=self._fake.host,
            vcpus=len(shared) if cells else control.vcpus,
            numa=topology.available_cells(self._fake.conf, cells),
            pci=[
                *device_specs.offered(self._specs, _devices(control)),
                *vgpus.places(self._mdev_types, _gpus(control)),
            ],
            memory_mb=control.memory_mb,
            disk_gb=control.disk_gb,
            hypervisor_type="fake",
            hypervisor_version=1000000,
            host_ip=self._fake.conf.my_ip,
            tunnel_ip=str(self._fake.conf.vxlan.local_ip or self._fake.conf.my_ip),
            cpu_arch=platform.machine(),
            cpu_info={"model": "fake", "vendor": "fake", "features": []},
            supported_hv_types=["fake", "qemu", "kvm"],
            capabilities={traits.CAPABILITY: self._traits()}
            | ({"metrics": control.metrics} if control.metrics else {})
            | ({} if control.cpu is None else {HOST_CPU: msgspec.to_builtins(control.cpu)}),
            disk_available_least=control.disk_gb,
            uptime="up, for as long as a fake is",
            running_vms=sum(info.power_state == PowerState.RUNNING for info in self._fake.domains()),
        )

    def _traits(self) -> list[str]:
        """Return all traits: fake guests have no hardware, so every requested trait is available.

        Architectures are those of a real host with these options.
        """
        emulated = [traits.ARCHITECTURES[name] for name in self._fake.conf.libvirt.emulated_architectures]
        own = {traits.MULTIATTACH, traits.VIRTIOFS, traits.POINTS, traits.CLONES, traits.REALMS}
        found = {*traits.ALWAYS, *own, *traits.DERIVED}
        return sorted(found.union(emulated, self._fake.conf.custom_traits))


class FakeGuests(Ability, abilities.Guests):
    def all(self) -> list[DomainInfo]:
        self._fake.step("list_domains")
        return [_info(domain) for domain in self._fake.domains()]

    def get(self, instance_uuid: str) -> DomainInfo:
        self._fake.step("get_info")
        return _info(self._fake.read(instance_uuid))

    def devices(self, instance_uuid: str) -> GuestReport | None:
        domain = self._fake.read(instance_uuid)
        return None if domain.cpu is None else GuestReport(cpu=domain.cpu)

    def spawn(self, spec: SpawnSpec) -> None:
        instance_uuid = spec.instance.uuid
        if os.path.exists(self._fake.file("domains", instance_uuid)):
            raise exceptions.VirtDriverError(reason=f"a domain of instance {instance_uuid} exists already")
        try:
            self._spawn(spec)
            if spec.plugged is not None:
                spec.plugged()
        except BaseException:
            self._fake.remove(instance_uuid)
            raise

    def _spawn(self, spec: SpawnSpec) -> None:
        instance = spec.instance
        self._fake.step("image")
        for image in images_of(spec):
            self._fake.fetch(image)
        disks = files.private_directory(os.path.join(self._fake.path, "disks", instance.uuid))
        failpoints.check_disk()
        with open(os.path.join(disks, "disk"), "w", encoding="utf-8") as disk:
            disk.write(f"generation {spec.generation}\n" if spec.clone_of is None else self._fake.layer(instance.uuid))
        time.sleep(self._fake.step("spawn_before_domain").spawn_delay)
        domain = domain_of(spec)
        spec.fence()
        self._fake.boot(domain)
        self._fake.step("spawn_after_domain")

    def destroy(self, instance_uuid: str) -> None:
        control = self._fake.step("destroy")
        if os.path.exists(self._fake.file("domains", instance_uuid)):
            time.sleep(control.destroy_delay)
        self._fake.remove(instance_uuid)

    def leftovers(self) -> set[str]:
        disks = {name for kind in ("disks", "aside") for name in os.listdir(os.path.join(self._fake.path, kind))}
        return (disks | self._fake.uuids("vifs")) - self._fake.uuids("domains")


class FakePower(Ability, abilities.Power):
    def on(self, instance_uuid: str) -> None:
        domain = self._fake.read(instance_uuid)
        if domain.power_state != PowerState.RUNNING:
            time.sleep(self._fake.step("power_on", exceptions.InstancePowerOnFailure, instance_uuid).power_delay)
            self._fake.end_rescue(domain)
            self._fake.boot(domain)

    def off(self, instance_uuid: str, timeout: int) -> None:
        domain = self._fake.read(instance_uuid)
        if domain.power_state != PowerState.SHUTDOWN:
            time.sleep(self._fake.step("power_off").power_delay)
            domain.power_state = PowerState.SHUTDOWN
            self._fake.write(domain)

    def reboot(self, instance_uuid: str, reboot_type: str, timeout: int) -> None:
        domain = self._fake.read(instance_uuid)
        time.sleep(self._fake.step("reboot").power_delay)
        if reboot_type == "HARD":
            domain.power_state = PowerState.SHUTDOWN
            self._fake.end_rescue(domain)
        self._fake.boot(domain)


class FakeStandby(Ability, abilities.Standby):
    def pause(self, instance_uuid: str) -> None:
        self._fake.turn("pause", instance_uuid, PowerState.PAUSED)

    def unpause(self, instance_uuid: str) -> None:
        self._fake.turn("unpause", instance_uuid, PowerState.RUNNING)

    def suspend(self, instance_uuid: str) -> None:
        self._fake.turn("suspend", instance_uuid, PowerState.SHUTDOWN)

    def resume(self, instance_uuid: str) -> None:
        self._fake.turn("resume", instance_uuid, PowerState.RUNNING)


class FakeRescue(Ability, abilities.Rescue):
    def start(self, spec: SpawnSpec, timeout: int) -> None:
        domain = self._fake.read(spec.instance.uuid)
        time.sleep(self._fake.step("rescue").power_delay)
        for image in images_of(spec):
            self._fake.fetch(image)
        failpoints.check_disk()
        files.write_atomically(self._fake.rescue_disk(domain.uuid), b"rescue\n", durable=False)
        domain.rescued = True
        self._fake.boot(domain)

    def end(self, instance_uuid: str) -> None:
        domain = self._fake.read(instance_uuid)
        time.sleep(self._fake.step("unrescue").power_delay)
        domain.power_state = PowerState.SHUTDOWN
        self._fake.end_rescue(domain)
        self._fake.boot(domain)


class FakeDefinitions(Ability, abilities.Definitions):
    def recreate(self, spec: SpawnSpec) -> None:
        self._fake.step("recreate")
        if not os.path.exists(os.path.join(self._fake.disks(spec.instance.uuid), "disk")):
            raise exceptions.DomainNotFound(instance_uuid=spec.instance.uuid)
        spec.fence()
        self._fake.write(domain_of(spec))

    def renew(self, spec: SpawnSpec) -> None:
        """Do nothing: a fake domain has no hardware that could be outdated."""


class FakeHotplug(Ability, abilities.Hotplug):
    def resize(self, spec: SpawnSpec) -> None:
        domain, flavor = self._fake.read(spec.instance.uuid), spec.instance.flavor
        control = self._fake.step("hotplug")
        shrinks = flavor.vcpus < domain.vcpus or flavor.memory_mb < domain.memory_mb
        if shrinks and control.refuses_unplug and domain.power_state == PowerState.RUNNING:
            raise exceptions.GuestSizeRefused(instance_uuid=domain.uuid, reason="it is configured to refuse")
        domain.vcpus, domain.memory_mb = flavor.vcpus, flavor.memory_mb
        self._fake.write(domain)
        self._fake.step("hotplug_after")


class FakeNetworks(Ability, abilities.Networks):
    def __init__(self, hypervisor: FakeHypervisor) -> None:
        super().__init__(hypervisor)
        self._metadata: dict[str, socket.socket] = {}

    def plug(self, instance: Instance, vifs: list[VIF]) -> None:
        self._fake.step("plug_vifs")
        files.write_atomically(self._fake.file("vifs", instance.uuid), msgspec.json.encode(vifs), durable=False)

    def unplug(self, instance_uuid: str) -> None:
        self._fake.step("unplug_vifs")
        files.remove(self._fake.file("vifs", instance_uuid))

    def metadata_sockets(self) -> Mapping[str, socket.socket]:
        """Return sockets at ports of 127.0.0.1: tests are guests, if their networks have loopback addresses."""
        if not self._fake.conf.network.metadata_service:
            return {}
        plugged = {vif.network.id for uuid in self._fake.uuids("vifs") for vif in self._fake.vifs(uuid)}
        for network_id in self._metadata.keys() - plugged:
            self._metadata.pop(network_id).close()
        for network_id in plugged - self._metadata.keys():
            self._metadata[network_id] = sockets.listen("127.0.0.1", 0)
        return self._metadata


class FakeInterfaces(Ability, abilities.Interfaces):
    def attach(self, instance_uuid: str, vif: VIF) -> None:
        domain = self._fake.read(instance_uuid)
        self._fake.step("attach_interface")
        if vif.id not in domain.interfaces:
            domain.interfaces.append(vif.id)
            domain.pci += [] if vif.device is None else [vif.device.address]
            self._fake.write(domain)
        self._fake.step("attach_interface_after")

    def detach(self, instance_uuid: str, vif: VIF) -> None:
        domain = self._fake.read(instance_uuid)
        self._fake.step("detach_interface")
        domain.interfaces = [port_id for port_id in domain.interfaces if port_id != vif.id]
        domain.pci = [address for address in domain.pci if vif.device is None or address != vif.device.address]
        self._fake.write(domain)
        rest = [other for other in self._fake.vifs(instance_uuid) if other.id != vif.id]
        files.write_atomically(self._fake.file("vifs", instance_uuid), msgspec.json.encode(rest), durable=False)
        self._fake.step("detach_interface_after")


class FakeFilters(Ability, abilities.Filters):
    def __init__(self, hypervisor: FakeHypervisor) -> None:
        super().__init__(hypervisor)
        self._filtered: set[str] = set()

    def instances(self) -> list[str]:
        return sorted(self._fake.uuids("vifs"))

    def are_missing(self) -> bool:
        return not self._fake.uuids("vifs") <= self._filtered

    def apply(self, filters: PortFilters) -> None:
        self._fake.step("set_port_filters")
        files.write_atomically(self._filters_path, msgspec.json.encode(filters), durable=False, writer=self._fake.host)
        self._filtered = set(filters.instances)

    def withdraw_addresses(self, instance_uuids: Collection[str]) -> None:
        """Do nothing: a fake host answers for no address."""

    def keep_addresses(self, instance_uuids: Collection[str], seconds: int | None) -> None:
        """Do nothing, either."""

    def applied(self) -> PortFilters:
        """Return the filters that were set last."""
        try:
            with open(self._filters_path, "rb") as file:
                return msgspec.json.decode(file.read(), type=PortFilters)
        except FileNotFoundError:
            return PortFilters()

    @property
    def _filters_path(self) -> str:
        return os.path.join(self._fake.path, "port-filters.json")


class FakeConsoles(Ability, abilities.Consoles):
    def output(self, instance_uuid: str, length: int | None) -> str:
        self._fake.step("console")
        self._fake.read(instance_uuid)
        try:
            with open(self._fake.console(instance_uuid), encoding="utf-8") as file:
                return driver.last_lines(file.read(), length)
        except FileNotFoundError:
            return ""

    def vnc(self, instance_uuid: str) -> ConsoleAddress:
        """Return the configured port. The fake has no VNC server."""
        self._fake.read(instance_uuid)
        address: str = self._fake.conf.vnc.server_proxyclient_address
        return ConsoleAddress(address, self._fake.step("get_vnc_console").console_ports["novnc"])

    def serial(self, instance_uuid: str) -> ConsoleAddress:
        self._fake.read(instance_uuid)
        address: str = self._fake.conf.serial_console.proxyclient_address
        return ConsoleAddress(address, self._fake.step("get_serial_console").console_ports["serial"])

    def spice(self, instance_uuid: str) -> ConsoleAddress:
        """Return the configured port for both ports, with and without TLS."""
        self._fake.read(instance_uuid)
        address: str = self._fake.conf.spice.server_proxyclient_address
        port = self._fake.step("get_spice_console").console_ports["spice"]
        return ConsoleAddress(address, port, tls_port=port + 1)


class FakePasswords(Ability, abilities.Passwords):
    def set(self, instance_uuid: str, user: str, password: str) -> None:
        self._fake.read(instance_uuid)
        self._fake.step("set_admin_password")
        self._fake.say(instance_uuid, f"fake agent has set a password of {len(password)} characters for {user}")


class FakeCrashDumps(Ability, abilities.CrashDumps):
    def trigger(self, instance_uuid: str) -> None:
        domain = self._fake.read(instance_uuid)
        self._fake.step("trigger_crash_dump")
        if domain.power_state == PowerState.SHUTDOWN:
            raise exceptions.VirtDriverError(reason="the domain does not run")
        self._fake.say(instance_uuid, "fake guest has written a crash dump")


class FakeDiagnostics(Ability, abilities.GuestDiagnostics):
    def read(self, instance_uuid: str) -> Diagnostics:
        """Return the counters of the domain as it was created, with zeros for all activity."""
        self._fake.step("diagnostics")
        domain = self._fake.read(instance_uuid)
        nothing = {"rx_octets": 0, "rx_packets": 0, "tx_octets": 0, "tx_packets": 0}
        vifs = self._fake.vifs(instance_uuid)
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


class FakeStatistics(Ability, abilities.Statistics):
    def __init__(self, hypervisor: FakeHypervisor) -> None:
        super().__init__(hypervisor)
        self._mutex = threading.Lock()
        #: CPU time of each guest that ran here, and when it was added to last.
        self._cpu_seconds: dict[str, float] = {}
        self._spent_at = time.monotonic()

    def guests(self) -> list[GuestStatistics]:
        """Return counters with zeros for all activity, except CPU time and memory by ``guest_use``."""
        control = self._fake.step("statistics")
        running = [domain for domain in self._fake.domains() if domain.power_state == PowerState.RUNNING]
        spent = self._spent(running, control.guest_use)
        return [
            GuestStatistics(
                uuid=domain.uuid,
                project_id=domain.project_id,
                cpu_seconds=spent[domain.uuid],
                memory_bytes=int(domain.memory_mb * _MIB * control.guest_use),
                memory_limit_bytes=domain.memory_mb * _MIB,
                **_IDLE,
            )
            for domain in running
        ]

    def _spent(self, running: list[Domain], guest_use: float) -> dict[str, float]:
        """Add the CPU time since the last reading, and return the sums by domain."""
        with self._mutex:
            now = time.monotonic()
            elapsed, self._spent_at = now - self._spent_at, now
            for domain in running:
                since = elapsed if domain.uuid in self._cpu_seconds else 0.0
                before = self._cpu_seconds.get(domain.uuid, 0.0)
                self._cpu_seconds[domain.uuid] = before + since * domain.vcpus * guest_use
            return {domain.uuid: self._cpu_seconds[domain.uuid] for domain in running}

    def host(self) -> HostCounters:
        """Return counters of a host on which nothing but its guests runs."""
        control = self._fake.step("statistics")
        running = [domain for domain in self._fake.domains() if domain.power_state == PowerState.RUNNING]
        self._spent(running, control.guest_use)
        with self._mutex:
            spent = sum(self._cpu_seconds.values())
        return HostCounters(
            cpus=control.vcpus,
            cpu_seconds=spent,
            memory_mb=control.memory_mb,
            memory_used_mb=sum(domain.memory_mb for domain in running) * control.guest_use,
        )


class FakeShares(Ability, abilities.Shares):
    def attach(self, instance_uuid: str, mapping: ShareMapping) -> None:
        domain = self._fake.read(instance_uuid)
        self._fake.step("attach_share")
        domain.shares[mapping.tag] = mapping.location
        self._fake.write(domain)

    def detach(self, instance_uuid: str, mapping: ShareMapping) -> None:
        domain = self._fake.read(instance_uuid)
        self._fake.step("detach_share")
        domain.shares.pop(mapping.tag, None)
        self._fake.write(domain)


class FakeHealth(Ability, abilities.Health):
    def check(self) -> list[HostProblem]:
        problems = self._fake.step("check_health").problems
        return [HostProblem(key=key, kind=key.partition("/")[0], text=text) for key, text in problems.items()]


class FakeImages(Ability, abilities.Images):
    def cache(self, image: Image) -> None:
        self._fake.step("cache_image")
        self._fake.fetch(image)


class FakeDriver(driver.ComputeDriver):
    """Fake driver. ``[fake]`` or ``control.json`` make it slow or failing."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, fetch_image: FetchImage) -> None:
        super().__init__(conf, host, fetch_image)
        self.hypervisor = fake = FakeHypervisor(self)
        self.guests, self.power, self.machine = FakeGuests(fake), FakePower(fake), FakeMachine(fake)
        self.standby, self.rescue, self.definitions = FakeStandby(fake), FakeRescue(fake), FakeDefinitions(fake)
        self.hotplug = FakeHotplug(fake)
        self.networks, self.interfaces = FakeNetworks(fake), FakeInterfaces(fake)
        self.filters = FakeFilters(fake)
        self.consoles, self.passwords, self.crash_dumps = FakeConsoles(fake), FakePasswords(fake), FakeCrashDumps(fake)
        self.diagnostics, self.statistics = FakeDiagnostics(fake), FakeStatistics(fake)
        self.health, self.images = FakeHealth(fake), FakeImages(fake)
        self.shares, self.points = FakeShares(fake), fake_disks.FakePoints(fake)
        self.clones = fake_disks.FakeClones(fake)
        self.moves = fake_disks.FakeMoves(fake, self.power)
        self.live_moves = fake_disks.FakeLiveMoves(fake)
        self.snapshots, self.backups = fake_disks.FakeSnapshots(fake), fake_disks.FakeBackups(fake)
        self.volumes, self.volume_copies = fake_disks.FakeVolumes(fake), fake_disks.FakeVolumeCopies(fake)
        self.volume_files, self.disk_checks = fake_disks.FakeVolumeFiles(fake), fake_disks.FakeDiskChecks(fake)

    def init_host(self) -> None:
        topology.available_cells(self.conf, _machine(self.hypervisor.step("init_host")))
        for name in ("domains", "disks", "vifs", "images", "aside", "layers"):
            files.remove_unfinished(files.private_directory(os.path.join(self.hypervisor.path, name)))
        for name in ("disks", "aside"):
            for entry in os.scandir(os.path.join(self.hypervisor.path, name)):
                files.remove_unfinished(entry.path)
        files.remove_unfinished(self.hypervisor.path, self.host)

    def guard_arguments(self) -> list[str]:
        return ["--fake", self.hypervisor.path]


def _devices(control: Control) -> list[FoundDevice]:
    """Return the PCI devices of the machine: an accelerator in each cell, and a card with virtual functions."""
    card = "0000:c1:00.0"
    devices = [
        *(
            PCIDevice(address=f"0000:{bus}:00.0", vendor_id="10de", product_id="1eb8", numa_cell=cell)
            for cell, bus in enumerate(("41", "81"))
        ),
        PCIDevice(address=card, vendor_id="8086", product_id="1592", dev_type=TYPE_PF, numa_cell=1),
        *(
            PCIDevice(
                address=f"0000:c1:01.{function}",
                vendor_id="8086",
                product_id="1889",
                dev_type=TYPE_VF,
                numa_cell=1,
                parent=card,
            )
            for function in range(VIRTUAL_FUNCTIONS)
        ),
    ]
    names = {card: "ens1"}
    return [
        FoundDevice(device, tuple(names[item] for item in (device.address, device.parent) if item in names))
        for device in devices
        if device.address not in control.unplugged
    ]


def _gpus(control: Control) -> list[GPU]:
    """Return the GPUs of the machine: its second accelerator, which can have vGPUs of two sizes."""
    address = "0000:81:00.0"
    gpus = [GPU(address=address, available={"nvidia-35": 4, "nvidia-36": 2}, numa_cell=1)]
    return [] if address in control.unplugged else gpus


def _machine(control: Control) -> list[NUMACell]:
    if control.vcpus >= BEYOND_MACHINES:
        return []
    return topology.equal_cells(CELLS if control.vcpus >= CELLS else 1, control.vcpus, control.memory_mb)


def _info(domain: Domain) -> DomainInfo:
    crashed = domain.power_state == PowerState.CRASHED
    power_state = PowerState.SHUTDOWN if crashed else domain.power_state
    halted = domain.halted and power_state == PowerState.PAUSED
    return DomainInfo(
        uuid=domain.uuid, generation=domain.generation, power_state=power_state, crashed=crashed, halted=halted
    )
