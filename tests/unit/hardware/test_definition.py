"""Definitions of the hardware table: each has the effect that its page shows."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import libvirt
import msgspec
import pytest

from nova_lite import hardware
from nova_lite.api.compute.servers import image_properties
from nova_lite.base import exceptions
from nova_lite.conductor.operations import checks
from nova_lite.conductor.operations.password import ChangePasswordHandler
from nova_lite.hardware import pci, table, traits
from nova_lite.hardware.definition import Definition, Outcome
from nova_lite.objects import Flavor, HostAggregate, Image
from nova_lite.scheduler.filters.aggregates import AggregateInstanceExtraSpecsFilter
from nova_lite.scheduler.filters.base import HostFilter
from nova_lite.scheduler.filters.compute_capabilities import ComputeCapabilitiesFilter
from nova_lite.scheduler.filters.image_properties import ImagePropertiesFilter
from nova_lite.scheduler.filters.traits import TraitsFilter
from nova_lite.virt.libvirt.disks.disks import DiskMaker
from nova_lite.virt.libvirt.domain import hardware_page
from tests.support import make
from tests.unit.scheduler import builders

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "hardware.md"

#: Extra specs in Nova's documentation of flavors.
NOVA_SPECS = """
    accel:device_profile aggregate_instance_extra_specs:x capabilities:x group_policy hw:boot_menu hw:cpu_cores
    hw:cpu_dedicated_mask hw:cpu_max_cores hw:cpu_max_sockets hw:cpu_max_threads hw:cpu_policy hw:cpu_realtime
    hw:cpu_realtime_mask hw:cpu_sockets hw:cpu_thread_policy hw:cpu_threads hw:emulator_threads_policy
    hw:ephemeral_encryption hw:ephemeral_encryption_format hw:hide_hypervisor_id hw:locked_memory
    hw:maxphysaddr_bits hw:maxphysaddr_mode hw:mem_encryption hw:mem_encryption_model hw:mem_page_size
    hw:numa_cpus.0 hw:numa_mem.0 hw:numa_nodes hw:pci_numa_affinity_policy hw:pmem hw:pmu
    hw:redirected_usb_ports hw:serial_port_count hw:sound_model hw:tpm_model hw:tpm_secret_security
    hw:tpm_version hw:usb_model hw:vif_multiqueue_enabled hw:viommu_model hw:virtio_packed_ring
    hw:watchdog_action hw_rng:allowed hw_rng:rate_bytes hw_rng:rate_period hw_video:ram_max_mb os:secure_boot
    pci_passthrough:alias quota:cpu_period quota:cpu_quota quota:cpu_shares quota:disk_read_bytes_sec
    quota:disk_read_iops_sec quota:disk_total_bytes_sec quota:disk_total_iops_sec quota:disk_write_bytes_sec
    quota:disk_write_iops_sec quota:vif_inbound_average quota:vif_inbound_burst quota:vif_inbound_peak
    quota:vif_outbound_average quota:vif_outbound_burst quota:vif_outbound_peak quota:cpu_limit
    quota:memory_limit quota:disk_io_limit quota:vif_limit resources:VCPU resources1:VCPU resources_A:VCPU
    trait:HW_CPU_X86_VMX trait1:X trait_A:X vmware:x
"""


def example_of(definition: Definition) -> tuple[Flavor, Image]:
    """Return the flavor and image of the definition's example."""
    own = {key: value for key, value in definition.properties.items() if key != "disk_format"}
    flavor = Flavor(flavorid="1", name="f", vcpus=4, memory_mb=512, root_gb=1, extra_specs=dict(definition.specs))
    return flavor, Image(id="i", name="i", properties=own)


@pytest.fixture(scope="module")
def libvirtd() -> Any:
    """libvirt's test driver, which knows the schema of domains."""
    libvirt.registerErrorHandler(lambda *_: None, None)
    return libvirt.open("test:///default")


# --- the table is complete


@pytest.mark.parametrize("key", NOVA_SPECS.split())
def test_extra_spec_of_nova_has_a_definition(key: str) -> None:
    assert table.find_extra_spec(key) is not None


@pytest.mark.parametrize("key", sorted(key for key in image_properties.KNOWN if re.match("(hw|img|os)_", key)))
def test_image_property_of_nova_has_a_definition(key: str) -> None:
    assert table.find_image_property(key) is not None or table.find_image_property(f"{key}.0") is not None


def test_names_are_unique() -> None:
    for kind in ("name", "flavor", "image"):
        names = [name for definition in table.DEFINITIONS if (name := getattr(definition, kind))]
        assert len(names) == len(set(names)), kind


# --- each definition, run


@pytest.mark.parametrize("definition", table.DEFINITIONS, ids=lambda definition: definition.name)
def test_definition_has_the_effect_on_its_page(definition: Definition, libvirtd: Any) -> None:
    assert (
        definition.flavor in definition.specs
        or definition.image in definition.properties
        or "{" in definition.flavor + definition.image
    )
    effect = hardware_page.effect(definition)
    CHECKS[definition.outcome](definition, effect, libvirtd)
    assert hardware_page.entry(definition) in PAGE.read_text()


def check_refused(definition: Definition, effect: str, libvirtd: Any) -> None:
    with pytest.raises(exceptions.HardwareRefused) as refusal:
        checks.check_flavor_fits(example_of(definition)[1], example_of(definition)[0])
    assert refusal.value.code == 400
    assert effect == f"400, “{refusal.value.message}”"
    assert definition.description in refusal.value.message
    for key, value in definition.specs.items():
        with pytest.raises(exceptions.HardwareRefused, match="is not supported here"):
            hardware.check_extra_spec(key, value, with_values=False)
    for value in definition.harmless:
        if definition.values.accepts(value):
            specs = {definition.flavor: value} if definition.flavor else {}
            hardware.resolve(Flavor(flavorid="1", name="f", vcpus=1, memory_mb=1, root_gb=1, extra_specs=specs), None)


def check_honoured(definition: Definition, effect: str, libvirtd: Any) -> None:
    flavor, image = example_of(definition)
    checks.check_flavor_fits(image, flavor)
    for key, value in definition.specs.items():
        hardware.check_extra_spec(key, value, with_values=True)
    if "`" in effect:
        xml = hardware_page.xml(definition.specs, definition.properties).replace('type="kvm"', 'type="test"', 1)
        libvirtd.defineXMLFlags(xml, libvirt.VIR_DOMAIN_DEFINE_VALIDATE).undefine()
    else:
        assert effect == definition.other_effect
        OTHER_CHECKS[definition.name](definition)


def check_not_applicable(definition: Definition, effect: str, libvirtd: Any) -> None:
    checks.check_flavor_fits(example_of(definition)[1], example_of(definition)[0])
    assert effect == "nothing"


CHECKS: dict[Outcome, Callable[[Definition, str, Any], None]] = {
    Outcome.REFUSED: check_refused,
    Outcome.HONOURED: check_honoured,
    Outcome.NOT_APPLICABLE: check_not_applicable,
}


# --- definitions whose effect is not in the domain of a new server


def check_filter(subject: HostFilter, **host: Any) -> Callable[[Definition], None]:
    """Check that the filter rejects an ordinary host for the example and accepts this one."""

    def check(definition: Definition) -> None:
        flavor, image = example_of(definition)
        request = builders.spec(flavor=flavor, image=image)
        assert subject.applies(request)
        assert not subject.host_passes(builders.host(cpu_arch="x86_64"), request)
        assert subject.host_passes(builders.host(**host), request)

    return check


def check_max_threads(definition: Definition) -> None:
    flavor, _ = example_of(definition)
    with pytest.raises(exceptions.HardwareRefused, match="2 CPU threads are requested"):
        hardware.resolve(flavor, Image(id="i", name="i", properties={"hw_cpu_threads": "2"}))


def check_rescue(definition: Definition) -> None:
    assert hardware.check_rescue(example_of(definition)[1]).stable
    assert not hardware.check_rescue(Image(id="i", name="i")).stable


def check_rng_model(definition: Definition) -> None:
    assert "<rng" in hardware_page.xml({}, {})
    assert "<rng" in hardware_page.xml({}, definition.properties)


def check_config_drive(definition: Definition) -> None:
    assert example_of(definition)[1].needs_config_drive


def check_command_line(definition: Definition) -> None:
    maker = DiskMaker.__new__(DiskMaker)
    maker._boot_file = lambda others, image_id: f"/{image_id}"  # type: ignore[method-assign]
    image = Image(id="i", name="i", properties={**definition.properties, "kernel_id": "k", "hw_disk_bus": "scsi"})
    direct = maker.direct_boot(image, {})
    assert direct is not None
    assert direct.command_line == "root=/dev/sda console=ttyS0 quiet"
    image.properties["hw_emulation_architecture"] = "aarch64"
    on_arm = maker.direct_boot(image, {})
    assert on_arm is not None
    assert on_arm.command_line == "root=/dev/sda console=ttyAMA0 quiet"


def check_admin_user(definition: Definition) -> None:
    properties = {**definition.properties, "hw_qemu_guest_agent": "yes"}
    instance: Any = SimpleNamespace(image={"properties": properties})
    accepted = ChangePasswordHandler().accept(None, None, instance, {"admin_password": "x"})  # type: ignore[arg-type]
    assert accepted is not None
    assert accepted["user"] == "debian"


def check_pci_policy(definition: Definition) -> None:
    flavor, image = example_of(definition)
    flavor = msgspec.structs.replace(flavor, extra_specs={**flavor.extra_specs, pci.ALIAS: "gpu:1"})
    conf = make.conf("sqlite://")
    conf.set_override("alias", ['{"name": "gpu", "vendor_id": "10de", "product_id": "1eb8"}'], "pci")
    assert [request.numa_policy for request in pci.requests(conf, flavor, image)] == ["required"]


aggregate = {"id": 1, "name": "a", "metadata": {"ssd": "true"}}

OTHER_CHECKS: dict[str, Callable[[Definition], None]] = {
    "cpu_max_threads": check_max_threads,
    "rescue_bus": check_rescue,
    "rescue_device": check_rescue,
    "rng_model": check_rng_model,
    "config_drive": check_config_drive,
    "command_line": check_command_line,
    "admin_user": check_admin_user,
    "traits": check_filter(TraitsFilter(), capabilities={traits.CAPABILITY: ["HW_CPU_X86_AVX2"]}),
    "capabilities": check_filter(ComputeCapabilitiesFilter(), cpu_arch="aarch64"),
    "aggregate_instance_extra_specs": check_filter(
        AggregateInstanceExtraSpecsFilter(), aggregates=[HostAggregate(**aggregate)]
    ),
    "pci_numa_affinity_policy": check_pci_policy,
    "tpm_secret_security": check_filter(
        TraitsFilter(),
        capabilities={traits.CAPABILITY: ["COMPUTE_SECURITY_TPM_2_0", "COMPUTE_SECURITY_TPM_TIS", traits.TPM_KEYS]},
    ),
    "ephemeral_encryption_format": check_filter(
        TraitsFilter(), capabilities={traits.CAPABILITY: list(traits.DISK_ENCRYPTION)}
    ),
    "hw_architecture": check_filter(ImagePropertiesFilter(), cpu_arch="aarch64"),
    "hw_vm_mode": check_filter(ImagePropertiesFilter(), supported_vm_modes=["xen"]),
    "img_hv_type": check_filter(ImagePropertiesFilter(), supported_hv_types=["vmware"]),
    "img_hv_requested_version": check_filter(ImagePropertiesFilter(), hypervisor_version=1000),
}


def test_page_is_up_to_date() -> None:
    _, mark, generated = PAGE.read_text().partition(hardware_page.MARK)
    assert mark + generated == hardware_page.page(), f"run nova-lite-manage api hardware for {PAGE}"
