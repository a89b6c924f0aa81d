"""Processors of guests: how a running guest is described, and how libvirt's comparison is used and explained."""

from __future__ import annotations

import re
from typing import Any

import libvirt
import pytest

from nova_lite.base import exceptions
from nova_lite.objects import GuestCpu, HostCpu, LiveSource
from nova_lite.virt.libvirt.connection import LibvirtFailure
from nova_lite.virt.libvirt.host.guest_cpus import GuestCpus, definition, of_definition
from tests.unit.virt.libvirt.processors import CAPABILITIES, DOMAIN_CAPABILITIES, INCOMPATIBLE, Libvirt
from tests.unit.virt.libvirt.scripted import failure

OWN = (
    '<cpu mode="custom" match="exact"><model>Skylake-Server</model><vendor>Intel</vendor>'
    '<feature policy="require" name="hypervisor" /><feature policy="disable" name="hle" /></cpu>'
)
OTHER_VENDOR = failure(
    libvirt.VIR_ERR_CPU_INCOMPATIBLE,
    message="the CPU is incompatible with host CPU: host CPU vendor does not match required CPU vendor AMD",
)
UNSUPPORTED = failure(libvirt.VIR_ERR_NO_SUPPORT)


def cpus(connection: Libvirt, virt_type: str = "kvm", capabilities: str = DOMAIN_CAPABILITIES) -> GuestCpus:
    return GuestCpus(connection, virt_type, capabilities, CAPABILITIES)  # type: ignore[arg-type]


def domain(cpu: str, virt_type: str = "kvm") -> str:
    return f"<domain type='{virt_type}'><os><type machine='pc-q35-7.2'>hvm</type></os>{cpu}</domain>"


def source(**changes: Any) -> LiveSource:
    values = {"virt_type": "kvm", "machine": "pc-q35-7.2", "hypervisor": 7_002_000, "libvirt": 9_000_000, **changes}
    return LiveSource(driver="libvirt", disks={}, guest_cpu=GuestCpu(**values), cpu_xml=OWN)


# --- running guests


@pytest.mark.parametrize(
    ("cpu", "described", "features"),
    [
        ("<cpu mode='host-passthrough' check='none'/>", OWN, "hypervisor sse"),
        (
            "<cpu mode='maximum'><feature policy='disable' name='hypervisor'/></cpu>",
            OWN.replace('<feature policy="require" name="hypervisor" />', "").replace(
                "</cpu>", '<feature policy="disable" name="hypervisor" /></cpu>'
            ),
            "sse",
        ),
        (
            "<cpu mode='custom' check='full'><model>Nehalem</model><topology sockets='1'/>"
            "<feature policy='require' name='vmx'/><feature policy='forbid' name='x'/></cpu>",
            '<cpu mode="custom" match="exact"><model>Nehalem</model><vendor>Intel</vendor>'
            '<feature policy="require" name="vmx" /><feature policy="disable" name="x" /></cpu>',
            "sse vmx",
        ),
    ],
)
def test_running_guest_is_described_with_all_features(cpu: str, described: str, features: str) -> None:
    found, xml = cpus(Libvirt()).guest(domain(cpu))
    assert xml == described
    assert found == GuestCpu(
        virt_type="kvm",
        vendor="Intel",
        features=features,
        machine="pc-q35-7.2",
        hypervisor=7_002_000,
        libvirt=9_000_000,
    )


def test_emulated_guest_of_a_named_model_has_no_vendor() -> None:
    found, _ = cpus(Libvirt(), "qemu").guest(domain("<cpu mode='custom'><model>Nehalem</model></cpu>", "qemu"))
    assert found is not None
    assert found.vendor == ""


@pytest.mark.parametrize("cpu", ["", "<cpu mode='host-model'/>"])
def test_guest_without_a_described_processor_is_unknown(cpu: str) -> None:
    assert cpus(Libvirt()).guest(domain(cpu)) == (None, "")


def test_features_of_equal_guests_are_expanded_once() -> None:
    connection = Libvirt()
    known = cpus(connection)
    for _ in range(3):
        known.guest(domain("<cpu mode='custom'><model>Nehalem</model></cpu>"))
    assert len(connection.named("baselineHypervisorCPU")) == 2, "of the host, and of the guests"


def test_guest_whose_features_are_unknown_is_left_to_libvirts_comparison() -> None:
    connection = Libvirt()
    connection.failures["baselineHypervisorCPU"] = failure(libvirt.VIR_ERR_INTERNAL_ERROR)
    found, xml = cpus(connection).guest(domain("<cpu mode='host-passthrough'/>"))
    assert found is not None
    assert (found.features, xml) == ("", OWN)


def test_host_without_a_model_describes_and_checks_nothing() -> None:
    known = cpus(Libvirt(), capabilities="<domainCapabilities><cpu/></domainCapabilities>")
    assert known.host is None
    assert known.guest(domain("<cpu mode='maximum'/>")) == (None, "")
    known.check(source(libvirt=99_000_000))


ARM = domain("<cpu mode='custom'><model>cortex-a57</model></cpu>", "qemu").replace(
    "<type machine='pc-q35-7.2'>", "<type arch='aarch64' machine='virt-7.2'>"
)


def test_guest_of_another_architecture_is_described_by_its_machine() -> None:
    connection = Libvirt()
    described = cpus(connection).guest(ARM)
    assert described == (GuestCpu(virt_type="", machine="virt-7.2", hypervisor=7_002_000, libvirt=9_000_000), "")
    assert len(connection.named("baselineHypervisorCPU")) == 1, "libvirt expands the host's processor alone"


@pytest.mark.parametrize("emulates", [True, False])
def test_guest_of_another_architecture_continues_where_its_machine_is_emulated(emulates: bool) -> None:
    connection: Any = Libvirt()
    architectures = ("x86_64", "aarch64") if emulates else ("x86_64",)
    capabilities = CAPABILITIES.replace(
        "</capabilities>",
        "<guest><arch name='aarch64'><machine canonical='virt-7.2'>virt</machine></arch></guest></capabilities>",
    )
    host = GuestCpus(connection, "kvm", DOMAIN_CAPABILITIES, capabilities, architectures)
    guest, xml = cpus(Libvirt()).guest(ARM)
    moved = LiveSource(driver="libvirt", disks={}, guest_cpu=guest, cpu_xml=xml)
    if emulates:
        host.check(moved)
    else:
        with pytest.raises(exceptions.MigrationPreCheckError, match=r"it has no machine type virt-7\.2"):
            host.check(moved)
    assert connection.named("compareHypervisorCPU") == []


# --- comparison


def test_guest_that_fits_is_compared_by_libvirt_and_accepted() -> None:
    connection = Libvirt()
    cpus(connection).check(source())
    assert [arguments[4] for arguments in connection.named("compareHypervisorCPU")] == [OWN]
    cpus(connection).check(LiveSource(driver="libvirt", disks={}))  # of an older version


@pytest.mark.parametrize(
    ("error", "changes", "reason"),
    [
        (INCOMPATIBLE, {}, "its processor lacks avx512f, sse4.1"),
        (OTHER_VENDOR, {}, "host CPU vendor does not match required CPU vendor AMD"),
        (INCOMPATIBLE, {"machine": "pc-q35-9.0"}, "no machine type pc-q35-9.0; its processor lacks avx512f, sse4.1"),
        (None, {"hypervisor": 8_000_000}, "its hypervisor 7.2 is older than 8.0"),
        (None, {"libvirt": 9_001_000}, "its libvirt 9.0 is older than 9.1"),
        (None, {"virt_type": "qemu"}, "its guests are of type kvm"),
    ],
)
def test_guest_that_does_not_fit_is_refused_with_the_reason(
    error: libvirt.libvirtError | None, changes: dict[str, Any], reason: str
) -> None:
    connection = Libvirt()
    known = cpus(connection)
    connection.failures = {} if error is None else {"compareHypervisorCPU": error}
    with pytest.raises(exceptions.MigrationPreCheckError, match=re.escape(reason)):
        known.check(source(**changes))


def test_failure_of_the_comparison_itself_is_no_verdict() -> None:
    connection = Libvirt()
    connection.failures["compareHypervisorCPU"] = failure(libvirt.VIR_ERR_INTERNAL_ERROR)
    with pytest.raises(LibvirtFailure):
        cpus(connection).check(source())


def test_old_libvirt_compares_with_the_machine_unless_guests_are_emulated() -> None:
    connection = Libvirt()
    connection.failures = {"compareHypervisorCPU": UNSUPPORTED, "compareCPU": INCOMPATIBLE}
    with pytest.raises(exceptions.MigrationPreCheckError, match="lacks avx512f"):
        cpus(connection).check(source())
    cpus(connection, "qemu").check(source(virt_type="qemu"))
    assert len(connection.named("compareCPU")) == 1


# --- definitions


def test_definition_of_a_processor_is_read_as_it_is_written() -> None:
    text = "Skylake-Server +hypervisor -hle"
    cpu = of_definition(text, "Intel")
    assert definition(cpu) == text
    assert cpus(Libvirt()).host == HostCpu(
        virt_type="kvm",
        vendor="Intel",
        definition=text,
        features="hypervisor sse",
        machines="pc-q35-7.2",
        libvirt=9_000_000,
    )
