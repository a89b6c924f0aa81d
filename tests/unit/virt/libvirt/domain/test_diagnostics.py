"""Diagnostics from libvirt's statistics of a domain."""

from __future__ import annotations

from nova_lite.objects import CpuDiagnostics, DiskDiagnostics, NicDiagnostics
from nova_lite.virt.libvirt.domain.diagnostics import diagnostics

#: Statistics of libvirt 9 for an emulated guest.
STATISTICS = {
    "balloon.maximum": 65536,
    "balloon.rss": 46944,
    "vcpu.current": 2,
    "vcpu.maximum": 3,
    "vcpu.0.state": 1,
    "vcpu.0.time": 120000000,
    "vcpu.1.state": 1,
    "net.count": 1,
    "net.0.name": "tap0",
    "net.0.rx.bytes": 90,
    "net.0.rx.pkts": 1,
    "net.0.tx.errs": 2,
    "block.count": 2,
    "block.0.name": "vda",
    "block.0.rd.reqs": 1,
    "block.0.rd.bytes": 512,
    "block.0.wr.reqs": 3,
    "block.0.wr.bytes": 4,
    "block.1.name": "vdb",
}
XML = """<domain><devices>
<interface><mac address="fa:16:3e:11:22:33"/><target dev="tap0"/></interface><interface/>
</devices></domain>"""


def test_diagnostics_of_libvirts_statistics() -> None:
    found = diagnostics(STATISTICS, XML, "qemu", True)
    assert (found.driver, found.hypervisor, found.hypervisor_os) == ("libvirt", "qemu", "linux")
    assert (found.memory_maximum, found.memory_used, found.config_drive) == (64, 45, True)
    assert found.cpus == [CpuDiagnostics(id=0, time=120000000), CpuDiagnostics(id=1)]
    nic = NicDiagnostics(name="tap0", mac_address="fa:16:3e:11:22:33", rx_octets=90, rx_packets=1, tx_errors=2)
    assert found.nics == [nic]
    first = DiskDiagnostics(name="vda", read_bytes=512, read_requests=1, write_bytes=4, write_requests=3)
    assert found.disks == [first, DiskDiagnostics(name="vdb")]


def test_diagnostics_with_missing_statistics_are_unknown() -> None:
    found = diagnostics({}, "<domain/>", "kvm", False)
    assert (found.cpus, found.nics, found.disks) == ([], [], [])
    assert (found.memory_maximum, found.memory_used) == (None, None)
