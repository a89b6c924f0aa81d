"""The machine of a host: the type of its guests, its traits and NUMA cells, and its inventory."""

from __future__ import annotations

import logging
import os
import xml.etree.ElementTree as ET
from collections.abc import Callable

import msgspec

from nova_lite.base import cpu_sets, exceptions, machine_networks
from nova_lite.hardware import Hardware, guest, traits
from nova_lite.objects import HostCpu, Inventory, NUMACell, PCIDevice
from nova_lite.virt import abilities, topology
from nova_lite.virt.libvirt.connection import Connection, LibvirtFailure
from nova_lite.virt.libvirt.context import HostContext
from nova_lite.virt.libvirt.domain import guest_xml
from nova_lite.virt.libvirt.domain.domains import Domains
from nova_lite.virt.libvirt.host import cpu_model, cpu_monitor, host_topology, host_traits, inventory, kvm, pci_devices
from nova_lite.virt.libvirt.host.cpu_model import CpuModel
from nova_lite.virt.libvirt.host.guest_cpus import ARCHITECTURE, GuestCpus
from nova_lite.virt.libvirt.host.mediated_devices import MediatedDevices
from nova_lite.virt.libvirt.host.pool_room import PoolRoom

LOG = logging.getLogger(__name__)


class HostMachine(abilities.Machine):
    """The machine. ``reports``: a connection that does not wait for other calls. ``tunnel_ip``: an address of the host.
    ``get_baseline``: returns the baseline of the host's aggregates. ``pool_room``: of the pool that has the disks.

    `prepare` sets ``virt_type``, the ``properties`` that the host's guests have in common, and their processors
    ``cpus``.
    """

    def __init__(
        self,
        context: HostContext,
        reports: Connection,
        tunnel_ip: str | None,
        get_baseline: Callable[[], str] = lambda: "",
        pool_room: PoolRoom | None = None,
    ) -> None:
        self._pool_room = pool_room
        self._get_baseline = get_baseline
        self._baseline: str | None = None
        self._conf = context.conf
        self._context = context
        self._reports = reports
        self._tunnel_ip = tunnel_ip
        reported = Domains(reports, context.host, context.timing)
        self._running = inventory.RunningCount(reported.all, context.timing)
        self._monitor = cpu_monitor.CpuMonitor(reports) if cpu_monitor.NAME in self._conf.compute_monitors else None
        self._capabilities: str | None = None
        self._probes: kvm.ProbeWatch | None = None
        self.cpus: GuestCpus
        self._largest_cpu: HostCpu | None = None
        self._traits: list[str] = []
        self._fixed_traits: set[str] = set()
        self._cells: list[NUMACell] = []
        self._contexts: list[PCIDevice] = []
        self._offer = pci_devices.Offer(self._conf, reports)
        self.vgpus = MediatedDevices(self._conf, context.connection, reports)
        options = self._conf.libvirt
        self.virt_type: str = options.virt_type
        self.properties = guest_xml.Host(
            machine=options.hw_machine_type, spare_ports=options.num_pcie_ports, shares_path=options.shares_path
        )

    def prepare(self) -> None:
        """Find out which hardware guests can have here."""
        if self._conf.libvirt.virt_type == "auto":
            answer = os.path.join(self._conf.state_path, "kvm-probe.json")
            timeout = self._context.timing.kvm_probe
            self.virt_type = kvm.choose_virt_type(answer, timeout, host=self._context.host)
        self._find_traits()
        self._find_topology()
        LOG.info("Guests on host %s are of type %s", self._context.host, self.virt_type)

    def _find_traits(self) -> None:
        """Find out the traits of this host: CPU, firmware and devices that guests can have."""
        try:
            capabilities = [
                self._context.connection.connect_call(
                    "getDomainCapabilities", None, ARCHITECTURE, machine, self.virt_type, 0
                )
                for machine in host_traits.MACHINES
            ]
        except LibvirtFailure as error:
            reason = f"libvirt cannot run {self.virt_type} guests on host {self._context.host}: "
            raise exceptions.ConfigurationError(reason=reason + error.kwargs["reason"]) from error
        if self._conf.spice.enabled and not host_traits.has_spice(capabilities):
            raise exceptions.ConfigurationError(
                reason=f"[spice] enabled is set, but qemu has no SPICE on host {self._context.host}: install "
                "qemu-system-modules-spice."
            )
        model = cpu_model.choose(self._conf, self.virt_type, capabilities[0])
        architectures = {ARCHITECTURE, *self._conf.libvirt.emulated_architectures}
        self.cpus = GuestCpus(
            self._context.connection, self.virt_type, capabilities[0], self.capabilities(), architectures
        )
        self._largest_cpu = self.cpus.host
        self._fixed_traits = host_traits.domain_traits(capabilities) | set(self._conf.custom_traits)
        self._fixed_traits |= self._tpm_traits(capabilities) | self._share_traits(capabilities) | self._emulated()
        self._fixed_traits |= host_traits.mem_encryption_traits(capabilities)
        if self._pool_room is not None:  # disks in Ceph are not encrypted
            self._fixed_traits -= set(traits.DISK_ENCRYPTION)
        self._contexts = host_traits.mem_encryption_contexts(capabilities[-1])
        if self._conf.libvirt.images_type in ("default", "qcow2"):
            self._fixed_traits |= {traits.POINTS, traits.CLONES}
        self._fixed_traits |= host_traits.core_traits(host_topology.parse(self.capabilities()))
        machine, secure_boot = self._conf.libvirt.hw_machine_type, traits.SECURE_BOOT in self._fixed_traits
        self.properties = msgspec.structs.replace(self.properties, machine=machine, secure_boot=secure_boot)
        self._use(model)

    def _use(self, model: CpuModel) -> None:
        """Give new guests this CPU model."""
        self._traits = sorted(self._fixed_traits | host_traits.cpu_traits(self.cpus, model))
        self.properties = msgspec.structs.replace(self.properties, cpu=model)

    def follow_baseline(self) -> None:
        """Give new guests the baseline of the host's aggregates, if ``cpu_mode = baseline``.

        Raises `VirtDriverError` if this host cannot run it. Without a baseline, guests get the host's model.
        """
        if self._conf.libvirt.cpu_mode != cpu_model.BASELINE:
            return
        definition = self._get_baseline()
        if definition == self._baseline:
            return
        model = cpu_model.of_baseline(definition) if definition else CpuModel(cpu_model.HOST_MODEL)
        if not definition:
            LOG.warning("No aggregate of host %s has a CPU baseline: guests get the host's model", self._context.host)
        elif lacking := self.cpus.lacking(ET.tostring(model.whole(), encoding="unicode")):
            raise exceptions.VirtDriverError(
                reason=f"host {self._context.host} cannot run the CPU baseline {definition}: {'; '.join(lacking)}"
            )
        self._use(model)
        self._baseline = definition
        LOG.info("New guests on host %s get the CPU %s", self._context.host, definition or model.mode)

    def _tpm_traits(self, capabilities: list[str]) -> set[str]:
        """Return the traits of TPMs. Raises `ConfigurationError` if they are enabled, and this host has none."""
        if not self._conf.libvirt.swtpm_enabled:
            return set()
        if found := host_traits.tpm_traits(capabilities):
            return found
        raise exceptions.ConfigurationError(
            reason=f"[libvirt] swtpm_enabled is set, but libvirt emulates no TPM on host {self._context.host}: install "
            "swtpm and swtpm-tools."
        )

    def _emulated(self) -> set[str]:
        """Return the traits of emulated architectures. Raises `ConfigurationError` if this host cannot emulate one."""
        connection, names = self._context.connection, self._conf.libvirt.emulated_architectures
        for name in names:
            try:
                described = connection.connect_call("getDomainCapabilities", None, name, guest.VIRT, kvm.QEMU, 0)
                reason = "" if host_traits.has_uefi(ET.fromstring(described)) else "it has no firmware"  # noqa: S314
            except LibvirtFailure as error:
                reason = error.kwargs["reason"]
            if reason:
                raise exceptions.ConfigurationError(
                    reason=f"[libvirt] emulated_architectures = {name}: libvirt cannot emulate it on host "
                    f"{self._context.host} ({reason}): install qemu-system-arm and qemu-efi-aarch64."
                )
        return {traits.ARCHITECTURES[name] for name in names}

    def _share_traits(self, capabilities: list[str]) -> set[str]:
        """Return the trait of shares. Raises `ConfigurationError` if they are enabled, and virtiofs is missing."""
        if self._conf.libvirt.shares_path is None:
            return set()
        if host_traits.has_virtiofs(capabilities):
            return {traits.VIRTIOFS}
        raise exceptions.ConfigurationError(
            reason=f"[libvirt] shares_path is set, but host {self._context.host} has no virtiofsd: install "
            "qemu-system-common on Debian 12, and virtiofsd elsewhere."
        )

    def _find_topology(self) -> None:
        """Find out the NUMA cells, and the parts of them that are available. Pages are counted at the start."""
        machine = host_topology.parse(self.capabilities())
        self._cells = topology.available_cells(self._conf, machine)
        shared = topology.shared_cpus(self._conf, machine)
        self.properties = msgspec.structs.replace(self.properties, shared_cpus=shared)

    def capabilities(self) -> str:
        """Return libvirt's description of this host. Queried once, because libvirt may start qemu for it."""
        if self._capabilities is None:
            self._capabilities = self._context.connection.connect_call("getCapabilities")
        return self._capabilities

    def check_traits(self, requested: Hardware) -> None:
        """Raise `VirtDriverError` for missing traits.

        The scheduler may have had outdated traits. An operator may have chosen the host without the scheduler.
        """
        if missing := traits.missing(requested.traits, self._traits):
            raise exceptions.VirtDriverError(
                reason=f"host {self._context.host} lacks requested traits: {', '.join(missing)}"
            )

    def inventory(self) -> Inventory:
        self._watch_probes()
        version = self._reports.connect_call("getVersion")
        if self._largest_cpu is not None:
            self.cpus.hypervisor = version
        shared = cpu_sets.parse(self.properties.shared_cpus[""]) if topology.restricts_cpus(self._conf) else None
        return inventory.build(
            node=self._context.host,
            host_ip=self._conf.my_ip,
            tunnel_ip=self._tunnel_ip,
            networks=machine_networks.used(self._conf),
            instances_path=self._context.records.instances_path,
            virt_type=self.virt_type,
            version=version,
            cpu_info=inventory.parse_cpu(self.capabilities()),
            cpu=self._largest_cpu,
            running=self._running.get(),
            metrics={} if self._monitor is None else self._monitor.metrics(),
            traits=self._traits,
            cells=self._cells,
            vcpus=None if shared is None else len(shared),
            pci=[*self._offer.devices(), *self.vgpus.places(), *self._contexts],
            pool=None if self._pool_room is None else self._pool_room.get(),
        )

    def _watch_probes(self) -> None:
        """Detect repeated queries of libvirt to qemu, whatever call causes them."""
        if self._probes is None:
            self._probes = kvm.ProbeWatch(kvm.qemu_user(self.capabilities()))
        self._probes.look()
