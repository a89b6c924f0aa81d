"""Settings of flavor and image together: precedence, contradictions, topologies."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova_lite import hardware
from nova_lite.base import exceptions
from nova_lite.hardware import traits
from nova_lite.hardware.guest import Hardware, Tpm
from nova_lite.hardware.topology import Topology
from nova_lite.objects import Flavor, Image


def make(
    specs: dict[str, str], properties: dict[str, str], vcpus: int = 4, strict: bool = True, **image: Any
) -> Hardware:
    flavor = Flavor(flavorid="1", name="f", vcpus=vcpus, memory_mb=512, root_gb=1, extra_specs=specs)
    return hardware.resolve(flavor, Image(id="i", name="i", properties=properties, **image), strict)


def test_guest_without_settings_is_plain() -> None:
    assert make({}, {}) == make({"mine": "1", "my:own": "2"}, {"os_version": "12", "my_property": "x"})
    assert make({}, {}).topology == Topology(4, 1, 1)


@pytest.mark.parametrize(
    ("specs", "properties", "message"),
    [
        ({"hw:pmu": "yes"}, {"hw_pmu": "no"}, "contradict each other: hw:pmu is yes, hw_pmu is no"),
        ({"hw:cpu_max_sockets": "2"}, {"hw_cpu_max_sockets": "3"}, "more than its flavor allows"),
        ({"hw:serial_port_count": "1"}, {"hw_serial_port_count": "2"}, "more than its flavor allows"),
        ({"hw:cpu_max_cores": "2"}, {"hw_cpu_cores": "4"}, "4 CPU cores are requested, and at most 2 allowed"),
        (
            {"hw:cpu_max_sockets": "1", "hw:cpu_max_cores": "1", "hw:cpu_max_threads": "2"},
            {},
            "cannot have 4 vCPUs with at most 1 sockets x 1 cores x 2 threads",
        ),
        ({"hw:nosuch": "1"}, {}, "Extra spec 'hw:nosuch' is unknown"),
        ({}, {"hw_nosuch": "1"}, "Image property 'hw_nosuch' is unknown"),
        ({}, {"hw_disk_bus": "xen"}, "'hw_disk_bus' cannot be 'xen': it takes virtio, scsi"),
        ({"os:secure_boot": "required"}, {}, "hw_firmware_type=uefi"),
        (
            {},
            {"os_secure_boot": "required", "hw_firmware_type": "uefi", "hw_machine_type": "pc"},
            "needs a q35 machine",
        ),
        ({"hw:maxphysaddr_mode": "emulate"}, {}, "need each other"),
        ({"hw:maxphysaddr_bits": "40"}, {}, "need each other"),
        ({}, {"hw_disk_bus": "ide", "hw_machine_type": "q35"}, "no IDE bus"),
        ({}, {"hw_video_ram": "16"}, "its flavor allows 0"),
        ({"hw_video:ram_max_mb": "8"}, {"hw_video_ram": "16"}, "its flavor allows 8"),
        ({"hw_video:ram_max_mb": "9999"}, {"hw_video_ram": "2049"}, "it takes a number from 1 to 2048"),
        ({"hw_video:ram_max_mb": "9"}, {"hw_video_ram": "3", "hw_video_model": "bochs"}, "has 4 to 256 MiB"),
        ({"hw_video:ram_max_mb": "999"}, {"hw_video_ram": "257", "hw_video_model": "bochs"}, "has 4 to 256 MiB"),
        ({}, {"hw_sound_model": "pcspk"}, "it takes sb16, es1370, ac97"),
        ({}, {"os_require_quiesce": "yes"}, "needs a guest agent"),
        ({"hw:vif_multiqueue_enabled": "yes"}, {"hw_vif_model": "e1000"}, "Only virtio interfaces"),
        (
            {"quota:disk_total_iops_sec": "1", "quota:disk_read_iops_sec": "1"},
            {},
            "excludes limits of reads",
        ),
        ({"quota:disk_read_bytes_sec_max": "1"}, {}, "needs quota:disk_read_bytes_sec"),
        ({"quota:disk_size_iops_sec": "1"}, {}, "needs a limit of requests"),
        ({"quota:vif_outbound_burst": "1"}, {}, "need quota:vif_outbound_average"),
        ({"trait:X": "required"}, {"trait:X": "forbidden"}, "both required and forbidden"),
        ({"trait:COMPUTE_FIRMWARE_UEFI": "forbidden"}, {"hw_firmware_type": "uefi"}, "hardware needs it"),
        ({}, {"hw_pointer_model": "usbtablet", "hw_input_bus": "virtio"}, "needs hw_input_bus=usb"),
        ({}, {"hw_numa_cpus.0": "0-1"}, "need hw:numa_nodes"),
        ({"hw:tpm_model": "tpm-tis"}, {}, "needs a version: hw:tpm_version is missing"),
        ({"hw:tpm_version": "1.2"}, {"hw_tpm_model": "tpm-crb"}, "TPM model CRB is only valid with TPM version 2.0"),
        ({"hw:tpm_version": "1.2"}, {"hw_tpm_version": "2.0"}, "hw:tpm_version is 1.2, hw_tpm_version is 2.0"),
        ({"hw:ephemeral_encryption": "yes"}, {"hw_ephemeral_encryption": "no"}, "contradict each other"),
        ({"hw:ephemeral_encryption_format": "plain"}, {}, "it takes luks"),
        ({"hw:tpm_version": "2.0", "hw:tpm_secret_security": "user"}, {}, "it takes deployment, because the cloud"),
        ({"hw:tpm_version": "2.0", "trait:COMPUTE_SECURITY_TPM_2_0": "forbidden"}, {}, "hardware needs it"),
    ],
)
def test_impossible_settings_are_refused(specs: dict[str, str], properties: dict[str, str], message: str) -> None:
    with pytest.raises(exceptions.HardwareRefused, match=message) as refusal:
        make(specs, properties)
    assert refusal.value.code == 400
    assert make(specs, properties, strict=False).topology.sockets >= 1


def test_guest_with_a_tpm_needs_hosts_with_its_version_and_model() -> None:
    made = make({"hw:tpm_secret_security": "deployment"}, {"hw_tpm_version": "2.0"})
    assert made.tpm == Tpm("2.0", "tpm-tis")
    both = {"COMPUTE_SECURITY_TPM_SECRET_SECURITY_DEPLOYMENT"}
    assert set(made.traits) == both | {"COMPUTE_SECURITY_TPM_2_0", "COMPUTE_SECURITY_TPM_TIS"}
    other = make({"hw:tpm_version": "1.2"}, {})
    assert set(other.traits) == both | {"COMPUTE_SECURITY_TPM_1_2", "COMPUTE_SECURITY_TPM_TIS"}
    assert "COMPUTE_SECURITY_TPM_CRB" in make({"hw:tpm_version": "2.0"}, {"hw_tpm_model": "tpm-crb"}).traits
    assert make({"hw:tpm_secret_security": "deployment"}, {}).tpm is None


def test_guest_with_encrypted_disks_needs_hosts_that_encrypt() -> None:
    made = make({}, {"hw_ephemeral_encryption": "yes", "hw_ephemeral_encryption_format": "luks"})
    assert made.encrypted_disks
    assert set(made.traits) == {"COMPUTE_EPHEMERAL_ENCRYPTION", "COMPUTE_EPHEMERAL_ENCRYPTION_LUKS"}
    for plain in (make({}, {"hw_ephemeral_encryption_format": "luks"}), make({"hw:ephemeral_encryption": "no"}, {})):
        assert (plain.encrypted_disks, plain.traits) == (False, {})


def test_disks_are_encrypted_whatever_other_settings_are_refused() -> None:
    for specs, properties in (
        ({"hw:ephemeral_encryption": "1"}, {"hw_x": "y"}),
        ({}, {"hw_ephemeral_encryption": "t"}),
    ):
        assert hardware.encrypts_disks(specs, properties)
    assert not hardware.encrypts_disks({"hw:ephemeral_encryption": "no"}, {})


def test_precedence_of_flavor_and_image() -> None:
    assert make({"hw:watchdog_action": "reset"}, {"hw_watchdog_action": "pause"}).watchdog == "pause"
    assert make({"hw:watchdog_action": "reset"}, {"hw_watchdog_action": "disabled"}).watchdog is None
    assert make({"hw:boot_menu": "yes"}, {"hw_boot_menu": "no"}).boot_menu is False
    assert make({"hw:hide_hypervisor_id": "no"}, {"img_hide_hypervisor_id": "yes"}).hidden is True
    assert make({"hw:serial_port_count": "3"}, {"hw_serial_port_count": "2"}).serial_ports == 2
    assert make({"hw:serial_port_count": "0"}, {}).serial_ports == 1
    assert make({"hw:pmu": "true"}, {"hw_pmu": "yes"}).pmu is True
    assert make({"hw:max_cpu_sockets": "1"}, {}).topology.sockets == 1


@pytest.mark.parametrize(
    ("specs", "properties", "topology"),
    [
        ({"hw:cpu_sockets": "2"}, {}, (2, 2, 1)),
        ({"hw:cpu_cores": "2", "hw:cpu_threads": "2"}, {}, (1, 2, 2)),
        ({"hw:cpu_sockets": "2"}, {"hw_cpu_sockets": "1"}, (1, 4, 1)),
        ({"hw:cpu_sockets": "3"}, {}, (4, 1, 1)),
        ({"hw:cpu_max_sockets": "2"}, {}, (2, 2, 1)),
        ({"hw:cpu_max_sockets": "4"}, {"hw_cpu_max_sockets": "1"}, (1, 4, 1)),
        ({"hw:cpu_max_sockets": "1", "hw:cpu_max_cores": "2"}, {"hw_cpu_threads": "2"}, (1, 2, 2)),
    ],
)
def test_topology_is_resolved(
    specs: dict[str, str], properties: dict[str, str], topology: tuple[int, int, int]
) -> None:
    assert make(specs, properties).topology == topology


@given(
    vcpus=st.integers(1, 64),
    wishes=st.tuples(*[st.none() | st.integers(1, 8)] * 3),
    limits=st.tuples(*[st.none() | st.integers(1, 16)] * 3),
)
def test_topology_has_all_vcpus_and_is_within_its_limits(
    vcpus: int, wishes: tuple[int | None, ...], limits: tuple[int | None, ...]
) -> None:
    parts = ("sockets", "cores", "threads")
    specs = {f"hw:cpu_{part}": str(wish) for part, wish in zip(parts, wishes, strict=True) if wish}
    specs |= {f"hw:cpu_max_{part}": str(limit) for part, limit in zip(parts, limits, strict=True) if limit}
    try:
        topology = make(specs, {}, vcpus).topology
    except exceptions.HardwareRefused:
        return
    assert topology.sockets * topology.cores * topology.threads == vcpus
    assert all(limit is None or number <= limit for number, limit in zip(topology, limits, strict=True))
    if all(wishes) and vcpus == wishes[0] * wishes[1] * wishes[2]:  # type: ignore[operator]
        assert topology == wishes


def test_refused_settings_of_an_older_server_are_left_out() -> None:
    guest = make({"hw:viommu_model": "intel", "hw:pmu": "yes"}, {"hw_disk_bus": "xen"}, strict=False)
    assert (guest.pmu, guest.disk_bus) == (True, "virtio")


def test_hardware_requires_traits_of_the_host() -> None:
    assert make({}, {"hw_firmware_type": "uefi", "os_secure_boot": "required"}).traits == {
        traits.UEFI: "required",
        traits.SECURE_BOOT: "required",
    }
    assert make({}, {"hw_firmware_type": "uefi", "os_secure_boot": "optional"}).traits == {traits.UEFI: "required"}
    assert make({}, {"hw_video_model": "qxl"}).traits == {"COMPUTE_GRAPHICS_MODEL_QXL": "required"}
    assert traits.missing({"A": "required", "B": "forbidden", "C": "required"}, ["B", "C"]) == ["A", "not B"]


def test_root_device_name_depends_on_its_bus() -> None:
    def image(disk_format: str = "qcow2", **properties: str) -> Image:
        return Image(id="i", name="i", disk_format=disk_format, properties=properties)

    assert hardware.root_device(None) == "/dev/vda"
    assert hardware.root_device(image(hw_disk_bus="scsi")) == "/dev/sda"
    assert hardware.root_device(image("iso")) == "/dev/hda"
    assert hardware.root_device(image("iso", hw_machine_type="q35")) == "/dev/sda"
    assert hardware.root_device(image(hw_disk_bus="nonsense")) == "/dev/vda"


def test_rescue_disk_depends_on_its_image() -> None:
    def image(**properties: str) -> Image:
        return Image(id="i", name="i", properties=properties)

    assert hardware.check_rescue(image(hw_disk_bus="sata")) == hardware.RescueDisk(False, "sata", False)
    assert hardware.check_rescue(image(hw_rescue_device="cdrom")) == hardware.RescueDisk(True, None, True)
    assert hardware.check_rescue(None) == hardware.RescueDisk(False, "virtio", False)
    with pytest.raises(exceptions.HardwareRefused, match="cannot be on the bus virtio"):
        hardware.check_rescue(image(hw_rescue_device="cdrom", hw_rescue_bus="virtio"))
    with pytest.raises(exceptions.HardwareRefused, match="hw_rescue_device"):
        hardware.check_rescue(image(hw_rescue_device="floppy"))
