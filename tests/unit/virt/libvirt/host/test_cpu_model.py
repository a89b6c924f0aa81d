"""CPU models of guests, and the traits of a host."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

import libvirt
import pytest
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.hardware import traits
from nova_lite.objects import HostCpu
from nova_lite.virt.libvirt.connection import LibvirtFailure
from nova_lite.virt.libvirt.host import cpu_model, host_traits
from nova_lite.virt.libvirt.host.cpu_model import CpuModel
from nova_lite.virt.libvirt.host.guest_cpus import GuestCpus

CAPABILITIES = """
<domainCapabilities>
  <os><enum name='firmware'>{firmware}</enum>
    <loader supported='yes'><enum name='secure'>{secure}<value>no</value></enum></loader></os>
  <cpu>
    <mode name='host-passthrough' supported='no'/>
    <mode name='maximum' supported='yes'/>
    <mode name='host-model' supported='yes'>
      <model fallback='forbid'>EPYC</model><vendor>AMD</vendor>
      <feature policy='require' name='vaes'/><feature policy='disable' name='sha-ni'/>
    </mode>
    <mode name='custom' supported='yes'>
      <model usable='yes'>Nehalem</model><model usable='no'>Skylake-Server</model>
    </mode>
  </cpu>
  <devices>
    <disk><enum name='bus'><value>fdc</value><value>scsi</value></enum></disk>
    <video><enum name='modelType'><value>qxl</value><value>ramfb</value></enum></video>
  </devices>
</domainCapabilities>
"""
HOST_CAPABILITIES = """
<capabilities><guest><arch name='x86_64'>
  <machine canonical='pc-q35-7.2'>q35</machine><machine>pc-q35-7.2</machine>
  <domain type='kvm'><machine>microvm</machine></domain></arch></guest>
  <guest><arch name='i686'><machine>isapc</machine></arch></guest></capabilities>
"""
PLAIN = CAPABILITIES.format(firmware="", secure="")
SECURE = CAPABILITIES.format(firmware="<value>efi</value>", secure="<value>yes</value>")


def choose(conf: cfg.ConfigOpts, virt_type: str = "qemu", **options: Any) -> CpuModel:
    for name, value in options.items():
        conf.set_override(name, value, "libvirt")
    return cpu_model.choose(conf, virt_type, PLAIN)


def text(model: CpuModel, **more: str) -> str:
    element = model.element()
    model.add_features(element, more)
    return ET.tostring(element, encoding="unicode")


def test_cpu_model_without_an_option_is_the_hosts(conf: cfg.ConfigOpts) -> None:
    assert text(choose(conf)) == '<cpu mode="maximum" />'
    assert text(choose(conf, "kvm")) == '<cpu mode="host-model" />'


def test_cpu_model_is_the_first_that_runs_here(conf: cfg.ConfigOpts) -> None:
    model = choose(
        conf,
        cpu_mode="custom",
        cpu_models=["Skylake-Server", "Nehalem"],
        cpu_model_extra_flags=["VMX", "-pcid", "+ssbd"],
    )
    assert text(model, hypervisor="disable") == (
        '<cpu mode="custom" match="exact"><model>Nehalem</model><feature policy="require" name="vmx" />'
        '<feature policy="disable" name="pcid" /><feature policy="require" name="ssbd" />'
        '<feature policy="disable" name="hypervisor" /></cpu>'
    )


def test_cpu_mode_none_is_qemus_default(conf: cfg.ConfigOpts) -> None:
    assert text(choose(conf, cpu_mode="none")) == "<cpu />"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cpu_mode": "host-passthrough"}, "cpu_mode = host-passthrough: not with qemu on this host"),
        ({"cpu_mode": "custom"}, "needs cpu_models"),
        ({"cpu_mode": "custom", "cpu_models": ["Skylake-Server", "x"]}, "runs none of Skylake-Server, x"),
        ({"cpu_models": ["Nehalem"]}, "go with cpu_mode = custom"),
        ({"cpu_mode": "none", "cpu_model_extra_flags": ["vmx"]}, "do not go with cpu_mode = none"),
    ],
)
def test_invalid_cpu_options_are_reported_in_one_line(
    conf: cfg.ConfigOpts, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(exceptions.ConfigurationError, match=message):
        choose(conf, **options)


# --- traits


def test_traits_of_devices_and_firmware() -> None:
    own = {"COMPUTE_STORAGE_BUS_SCSI", "COMPUTE_GRAPHICS_MODEL_QXL", "COMPUTE_VOLUME_MULTI_ATTACH", traits.REALMS}
    own |= {"COMPUTE_EPHEMERAL_ENCRYPTION", "COMPUTE_EPHEMERAL_ENCRYPTION_LUKS"}
    assert host_traits.domain_traits([PLAIN]) == own | set(traits.ALWAYS)
    assert host_traits.domain_traits([PLAIN, SECURE]) == own | {traits.UEFI, traits.SECURE_BOOT, *traits.ALWAYS}


TPM = """<domainCapabilities><devices><tpm supported="yes">
<enum name="model"><value>tpm-tis</value>{crb}</enum>
<enum name="backendModel"><value>passthrough</value>{emulator}</enum>
<enum name="backendVersion"><value>1.2</value><value>2.0</value></enum>
</tpm></devices></domainCapabilities>"""


def test_traits_of_tpms_are_those_that_libvirt_emulates() -> None:
    emulator, crb = "<value>emulator</value>", "<value>tpm-crb</value>"
    assert host_traits.tpm_traits([PLAIN, TPM.format(crb=crb, emulator="")]) == set()
    pc, q35 = TPM.format(crb="", emulator=emulator), TPM.format(crb=crb, emulator=emulator)
    both = {traits.TPM_KEYS, *traits.TPM_VERSIONS.values()}
    assert host_traits.tpm_traits([pc]) == both | {"COMPUTE_SECURITY_TPM_TIS"}
    assert host_traits.tpm_traits([pc, q35]) == both | set(traits.TPM_MODELS.values())


SCREENS = """<domainCapabilities><devices>
<graphics supported="yes"><enum name="type"><value>vnc</value>{server}</enum></graphics>
<video supported="yes"><enum name="modelType"><value>vga</value>{card}</enum></video>
</devices></domainCapabilities>"""


@pytest.mark.parametrize(
    ("server", "card", "expected"),
    [
        ("<value>spice</value>", "<value>qxl</value>", True),
        ("<value>spice</value>", "", False),
        ("", "<value>qxl</value>", False),
    ],
)
def test_host_has_spice_with_the_server_and_its_card(server: str, card: str, expected: bool) -> None:
    assert host_traits.has_spice([SCREENS.format(server=server, card=card)]) is expected


class FakeConnection:
    """Connection that records the models and expands them."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self.models: list[str] = []

    def connect_call(self, name: str, *arguments: Any) -> Any:
        if name in ("getLibVersion", "getVersion"):
            return 9000000
        if self.failure is not None:
            raise self.failure
        assert name == "baselineHypervisorCPU"
        self.models.extend(arguments[4])
        features = "<feature policy='require' name='avx2'/><feature policy='disable' name='svm'/><feature name='mmx'/>"
        return f"<cpu>{features}</cpu>"


def cpus(connection: FakeConnection, virt_type: str = "qemu") -> GuestCpus:
    return GuestCpus(connection, virt_type, PLAIN, HOST_CAPABILITIES)  # type: ignore[arg-type]


def test_traits_of_the_guests_cpu() -> None:
    connection = FakeConnection()
    model = CpuModel("maximum", flags={"vmx": "require", "mmx": "disable"})
    assert host_traits.cpu_traits(cpus(connection), model) == {"HW_CPU_X86_AVX2", "HW_CPU_X86_VMX"}
    custom = CpuModel("custom", "Nehalem")
    host_traits.cpu_traits(cpus(connection), custom)
    assert connection.models[-1] == '<cpu mode="custom" match="exact"><model>Nehalem</model></cpu>'
    shown = host_traits.cpu_traits(cpus(connection, "kvm"), CpuModel("host-passthrough"))
    assert "COMPUTE_ADDRESS_SPACE_PASSTHROUGH" in shown


def test_hosts_model_is_described_to_libvirt_as_that_of_a_guest() -> None:
    """libvirt counts the disabled features of a host's description as present."""
    connection = FakeConnection()
    host = cpus(connection).host
    assert connection.models == [
        '<cpu mode="custom" match="exact"><model>EPYC</model><vendor>AMD</vendor>'
        '<feature policy="require" name="vaes" /><feature policy="disable" name="sha-ni" /></cpu>'
    ]
    assert host == HostCpu(
        virt_type="qemu",
        vendor="AMD",
        definition="EPYC +vaes -sha-ni",
        features="avx2 mmx",
        machines="microvm pc-q35-7.2",
        libvirt=9000000,
    )


def test_traits_unknown_to_libvirt_are_left_out() -> None:
    connection = FakeConnection(LibvirtFailure(libvirt.libvirtError("no")))
    assert host_traits.cpu_traits(cpus(connection), CpuModel("maximum")) == set()
    assert host_traits.cpu_traits(cpus(connection), CpuModel("custom", "Nehalem")) == set()


#: Domain capabilities as libvirt's documentation has them: of 9.0 and of 11.0, on EPYC 7003, and on a Xeon with TDX.
SEV = """<domainCapabilities><features><sev supported='yes'><cbitpos>51</cbitpos><reducedPhysBits>1</reducedPhysBits>
<maxGuests>410</maxGuests><maxESGuests>{es}</maxESGuests></sev>{more}</features></domainCapabilities>"""
LAUNCH = """<launchSecurity supported='yes'><enum name='sectype'>{types}</enum></launchSecurity>"""
SNP = LAUNCH.format(types="<value>sev</value><value>sev-snp</value>")
TDX = LAUNCH.format(types="<value>tdx</value>")
WITHOUT = "<domainCapabilities><features><sev supported='no'/>{more}</features></domainCapabilities>"


@pytest.mark.parametrize(
    ("capabilities", "found", "contexts"),
    [
        (PLAIN, set(), {}),
        (WITHOUT.format(more=""), set(), {}),
        (SEV.format(es=0, more=""), {"AMD_SEV"}, {"sev": 256}),
        (SEV.format(es=99, more=""), {"AMD_SEV", "AMD_SEV_ES"}, {"sev": 256, "sev-es": 99}),
        (SEV.format(es=99, more=SNP), {"AMD_SEV", "AMD_SEV_ES", "AMD_SEV_SNP"}, {"sev": 256, "sev-es": 99}),
        (WITHOUT.format(more=TDX), {"INTEL_TDX"}, {}),
    ],
)
def test_encryption_of_memory_is_known_from_the_domain_capabilities(
    capabilities: str, found: set[str], contexts: dict[str, int]
) -> None:
    assert host_traits.mem_encryption_traits([PLAIN, capabilities]) == {f"HW_CPU_X86_{name}" for name in found}
    pools = [device.parent for device in host_traits.mem_encryption_contexts(capabilities)]
    assert {pool: pools.count(pool) for pool in pools} == contexts
