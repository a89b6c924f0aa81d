"""The machine of a host: the type of its guests, its traits and NUMA cells, and its inventory."""

from __future__ import annotations

import logging
import os

import msgspec

from nova_lite.base import cpu_sets, exceptions, machine_networks
from nova_lite.hardware import Hardware, traits
from nova_lite.objects import Inventory, NUMACell
from nova_lite.virt import abilities, topology
from nova_lite.virt.libvirt.connection import Connection, LibvirtFailure
from nova_lite.virt.libvirt.context import HostContext
from nova_lite.virt.libvirt.domain import guest_xml
from nova_lite.virt.libvirt.domain.domains import Domains
from nova_lite.virt.libvirt.host import cpu_model, cpu_monitor, host_topology, host_traits, inventory, kvm

LOG = logging.getLogger(__name__)


class HostMachine(abilities.Machine):
    """The machine. ``reports``: a connection that does not wait for other calls. ``tunnel_ip``: an address of the host.

    `prepare` sets ``virt_type`` and the ``properties`` that the host's guests have in common.
    """

    def __init__(self, context: HostContext, reports: Connection, tunnel_ip: str | None) -> None:
        self._conf = context.conf
        self._context = context
        self._reports = reports
        self._tunnel_ip = tunnel_ip
        reported = Domains(reports, context.host, context.timing)
        self._running = inventory.RunningCount(reported.all, context.timing)
        self._monitor = cpu_monitor.CpuMonitor(reports) if cpu_monitor.NAME in self._conf.compute_monitors else None
        self._capabilities: str | None = None
        self._probes: kvm.ProbeWatch | None = None
        self._traits: list[str] = []
        self._cells: list[NUMACell] = []
        options = self._conf.libvirt
        self.virt_type: str = options.virt_type
        self.properties = guest_xml.Host(machine=options.hw_machine_type, spare_ports=options.num_pcie_ports)

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
                    "getDomainCapabilities", None, host_traits.ARCHITECTURE, machine, self.virt_type, 0
                )
                for machine in host_traits.MACHINES
            ]
        except LibvirtFailure as error:
            reason = f"libvirt cannot run {self.virt_type} guests on host {self._context.host}: "
            raise exceptions.ConfigurationError(reason=reason + error.kwargs["reason"]) from error
        model = cpu_model.choose(self._conf, self.virt_type, capabilities[0])
        found = host_traits.domain_traits(capabilities) | set(self._conf.custom_traits)
        found |= self._tpm_traits(capabilities)
        found |= host_traits.cpu_traits(self._context.connection, self.virt_type, model, capabilities[0])
        self._traits = sorted(found)
        machine = self._conf.libvirt.hw_machine_type
        self.properties = msgspec.structs.replace(
            self.properties, cpu=model, machine=machine, secure_boot=traits.SECURE_BOOT in found
        )

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
        shared = cpu_sets.parse(self.properties.shared_cpus[""]) if topology.restricts_cpus(self._conf) else None
        return inventory.build(
            node=self._context.host,
            host_ip=self._conf.my_ip,
            tunnel_ip=self._tunnel_ip,
            networks=machine_networks.used(self._conf),
            instances_path=self._context.records.instances_path,
            virt_type=self.virt_type,
            version=self._reports.connect_call("getVersion"),
            cpu_info=inventory.parse_cpu(self.capabilities()),
            running=self._running.get(),
            metrics={} if self._monitor is None else self._monitor.metrics(),
            traits=self._traits,
            cells=self._cells,
            vcpus=None if shared is None else len(shared),
        )

    def _watch_probes(self) -> None:
        """Detect repeated queries of libvirt to qemu, whatever call causes them."""
        if self._probes is None:
            self._probes = kvm.ProbeWatch(kvm.qemu_user(self.capabilities()))
        self._probes.look()
