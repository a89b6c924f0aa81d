"""Counters of a running guest, from libvirt's statistics."""

from __future__ import annotations

import dataclasses
import os
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from typing import Any

import libvirt

from nova_lite.base import exceptions
from nova_lite.objects import CpuDiagnostics, Diagnostics, DiskDiagnostics, NicDiagnostics
from nova_lite.virt import abilities
from nova_lite.virt.libvirt.context import HostPart
from nova_lite.virt.libvirt.disks.disks import CONFIG_DRIVE
from nova_lite.virt.libvirt.host.machine import HostMachine

#: Statistics that `diagnostics` reads.
STATISTICS = (
    libvirt.VIR_DOMAIN_STATS_VCPU
    | libvirt.VIR_DOMAIN_STATS_BALLOON
    | libvirt.VIR_DOMAIN_STATS_BLOCK
    | libvirt.VIR_DOMAIN_STATS_INTERFACE
)

_KIB_PER_MIB = 1024

Statistics = Mapping[str, Any]


@dataclasses.dataclass(eq=False)
class GuestCounters(HostPart, abilities.GuestDiagnostics):
    """The counters of one guest."""

    _machine: HostMachine

    def read(self, instance_uuid: str) -> Diagnostics:
        domain, _ = self._domains.get(instance_uuid)
        statistics = self._connection.connect_call("domainListGetStats", [domain], STATISTICS, 0)
        if not statistics:
            raise exceptions.DomainNotFound(instance_uuid=instance_uuid)
        xml = self._connection.call(domain.XMLDesc, 0)
        config_drive = os.path.exists(os.path.join(self._records.directory(instance_uuid), CONFIG_DRIVE))
        return diagnostics(statistics[0][1], xml, self._machine.virt_type, config_drive)


def diagnostics(statistics: Statistics, xml: str, virt_type: str, config_drive: bool) -> Diagnostics:
    """Build the diagnostics.

    ``statistics``: by libvirt's names, sizes in KiB; ``xml``: description of the same domain.
    """
    maximum, used = statistics.get("balloon.maximum"), statistics.get("balloon.rss")
    addresses = _mac_addresses(xml)
    return Diagnostics(
        driver="libvirt",
        hypervisor=virt_type,
        hypervisor_os="linux",
        config_drive=config_drive,
        cpus=[
            CpuDiagnostics(id=number, time=statistics.get(f"vcpu.{number}.time"))
            for number in range(statistics.get("vcpu.maximum", 0))
            if f"vcpu.{number}.state" in statistics
        ],
        nics=[_nic(item, addresses) for item in _items(statistics, "net")],
        disks=[_disk(item) for item in _items(statistics, "block")],
        memory_maximum=None if maximum is None else maximum // _KIB_PER_MIB,
        memory_used=None if used is None else used // _KIB_PER_MIB,
    )


def _items(statistics: Statistics, kind: str) -> Iterator[dict[str, Any]]:
    """Yield the statistics of each device of ``kind``, without its number in their names."""
    for number in range(statistics.get(f"{kind}.count", 0)):
        prefix = f"{kind}.{number}."
        yield {name[len(prefix) :]: value for name, value in statistics.items() if name.startswith(prefix)}


def _nic(item: Mapping[str, Any], addresses: Mapping[str, str]) -> NicDiagnostics:
    """Build the counters of a NIC. libvirt counts from the guest's point of view: ``rx`` is what the guest receives."""
    return NicDiagnostics(
        name=item["name"],
        mac_address=addresses.get(item["name"]),
        rx_octets=item.get("rx.bytes"),
        rx_packets=item.get("rx.pkts"),
        rx_errors=item.get("rx.errs"),
        rx_drop=item.get("rx.drop"),
        tx_octets=item.get("tx.bytes"),
        tx_packets=item.get("tx.pkts"),
        tx_errors=item.get("tx.errs"),
        tx_drop=item.get("tx.drop"),
    )


def _disk(item: Mapping[str, Any]) -> DiskDiagnostics:
    return DiskDiagnostics(
        name=item["name"],
        read_bytes=item.get("rd.bytes"),
        read_requests=item.get("rd.reqs"),
        write_bytes=item.get("wr.bytes"),
        write_requests=item.get("wr.reqs"),
        errors_count=item.get("errors"),
    )


def _mac_addresses(xml: str) -> dict[str, str]:
    """Return the MAC addresses by the name of the host's tap device."""
    found = {}
    for interface in ET.fromstring(xml).iterfind("./devices/interface"):  # noqa: S314 libvirt's own description
        mac, target = interface.find("mac"), interface.find("target")
        if mac is not None and target is not None:
            found[target.get("dev", "")] = mac.get("address", "")
    return found
