"""The machine of a host: its inventory and its traits."""

from __future__ import annotations

import dataclasses
import re

from nova_lite.base import machine_networks
from nova_lite.hardware import guest, traits
from nova_lite.objects import Inventory
from nova_lite.virt import abilities, images
from nova_lite.virt.libvirt.host import inventory, kvm
from nova_lite.virt.qemu.host import Host, Part

_VERSION = re.compile(r"version (\d+)\.(\d+)\.(\d+)")


def traits_of(host: Host) -> list[str]:
    """Return the traits of a host. A microvm has no clock that a kernel could measure without KVM."""
    microvm = {traits.MICROVM} if host.setting.virt_type == kvm.KVM else set()
    always = {*traits.ALWAYS, traits.MULTIATTACH, traits.REALMS, traits.of_bus(guest.VIRTIO)}
    return sorted(always.union(host.conf.custom_traits, microvm))


@dataclasses.dataclass(eq=False)
class HostMachine(Part, abilities.Machine):
    _name: str
    _version: int = 0

    def prepare(self) -> None:
        """Find out the version of qemu."""
        match = _VERSION.search(images.run(kvm.EMULATOR, "--version").decode(errors="replace"))
        if match:
            major, minor, micro = map(int, match.groups())
            self._version = (major * 1000 + minor) * 1000 + micro

    def inventory(self) -> Inventory:
        conf = self._host.conf
        return inventory.build(
            node=self._name,
            host_ip=conf.my_ip,
            tunnel_ip=None,
            networks=machine_networks.used(conf),
            instances_path=self._host.records.instances_path,
            virt_type=self._host.setting.virt_type,
            version=self._version,
            cpu_info={},
            cpu=None,
            running=sum(self._host.is_running(found) for found in self._host.definitions.all()),
            metrics={},
            traits=traits_of(self._host),
            cells=[],
            vcpus=None,
            pci=[],
        )
