from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

import pytest

from nova_lite.hardware import RescueDisk
from nova_lite.objects import Image
from nova_lite.virt.libvirt.disks.disks import DirectBoot, Disk, DiskSet
from nova_lite.virt.libvirt.disks.volume_chains import File
from nova_lite.virt.libvirt.domain import consoles, guest_xml
from nova_lite.virt.libvirt.domain.rescue import rescue_xml
from nova_lite.virt.libvirt.host.cpu_model import CpuModel
from nova_lite.virt.libvirt.net import names
from tests.support.guests import make_flavor, make_instance, make_network, make_spec, make_vif

ROOT = Disk(path="/instances/u/disk", device="vda", format="qcow2")
NASTY = "<&>'\"]]>é"


def build(direct: DirectBoot | None = None, virt_type: str = "qemu", tb_cache_mb: int = 32, **spec: Any) -> ET.Element:
    disks = DiskSet(
        disks=[ROOT, Disk(path="/x/disk.config", device="vdb", format="raw", read_only=True)], direct_boot=direct
    )
    return ET.fromstring(guest_xml.guest_xml(make_spec(**spec), NASTY, "/instances/u", disks, virt_type, tb_cache_mb))


def metadata(domain: ET.Element) -> str:
    element = domain.find("./metadata/")
    assert element is not None
    return ET.tostring(element, encoding="unicode")


def test_guest_has_the_instances_size_and_names() -> None:
    instance = make_instance(flavor=make_flavor(vcpus=3, memory_mb=192))
    domain = build(instance=instance)
    assert domain.findtext("name") == f"instance-{instance.uuid}"
    assert domain.findtext("uuid") == instance.uuid
    memory = domain.find("memory")
    assert memory is not None
    assert (memory.text, memory.get("unit")) == ("192", "MiB")
    assert domain.findtext("vcpu") == "3"


@pytest.mark.parametrize("protected", [True, False])
def test_protected_guest_alone_has_a_panic_device(protected: bool) -> None:
    domain = build(instance=make_instance(protected=protected))
    assert [element.attrib for element in domain.iter("panic")] == [{"model": "isa"}] * protected
    assert domain.findtext("on_crash") == "destroy"


def test_devices_that_only_x86_machines_have_are_of_a_guest_that_is_x86() -> None:
    """A guest of another architecture needs other models: s390 has ``panic model="s390"`` and diag288, for example."""
    flavor = make_flavor(extra_specs={"hw:watchdog_action": "pause"})
    domain = build(instance=make_instance(protected=True, flavor=flavor))
    models = {(name, element.get("model")) for name in ("panic", "watchdog") for element in domain.iter(name)}
    assert models == {("panic", "isa"), ("watchdog", "i6300esb")}
    kind = domain.find("./os/type")
    assert kind is not None and kind.get("arch") == "x86_64"


def arm(virt_type: str = "kvm", machine: str = "pc", disk_format: str = "raw", **changes: Any) -> ET.Element:
    image = Image(id="i", name="i", disk_format=disk_format, properties={"hw_emulation_architecture": "aarch64"})
    spec = make_spec(image=image, instance=make_instance(**changes))
    disks = DiskSet(disks=[ROOT], direct_boot=None)
    given = guest_xml.Host(CpuModel("host-model", flags={"vmx": "require"}), machine, spare_ports=2)
    listeners = consoles.Listeners(vnc="::", spice=consoles.SpiceListener("::"))
    return ET.fromstring(guest_xml.guest_xml(spec, "h", "/instances/u", disks, virt_type, 32, listeners, given=given))


@pytest.mark.parametrize("machine", ["pc", "q35"])
def test_guest_of_another_architecture_is_emulated_with_its_own_processor(machine: str) -> None:
    domain = arm(machine=machine)
    kind, cpu = domain.find("os/type"), domain.find("cpu")
    assert kind is not None and cpu is not None
    assert (domain.get("type"), kind.attrib) == ("qemu", {"arch": "aarch64", "machine": "virt"})
    assert (cpu.get("mode"), cpu.findtext("model"), cpu.find("feature")) == ("custom", "cortex-a57", None)
    assert domain.findtext("features/tcg/tb-cache") == "32"


def test_guest_of_another_architecture_has_its_own_devices() -> None:
    domain = arm(protected=True)
    assert [feature.tag for feature in domain.iterfind("features/")] == ["acpi", "tcg"]
    assert domain.find("clock/timer") is None
    assert domain.find("devices/panic") is None, "it has no ISA bus"
    assert [model.get("type") for model in domain.iterfind("devices/video/model")] == ["virtio"]
    inputs = [(device.get("type"), device.get("bus")) for device in domain.iterfind("devices/input")]
    assert inputs == [("tablet", "usb"), ("keyboard", "usb")]
    assert len(domain.findall("devices/controller[@model='pcie-root-port']")) > 2
    assert domain.findtext("os/nvram") == "/instances/u/nvram.fd"


def test_drive_of_another_architecture_is_on_a_scsi_bus() -> None:
    domain = arm(disk_format="iso")
    target = domain.find("devices/disk[@device='cdrom']/target")
    assert target is not None
    assert target.attrib == {"dev": "sda", "bus": "scsi"}
    assert domain.find("devices/controller[@type='scsi'][@model='virtio-scsi']") is not None


CONFIG = Disk(path="/x/disk.config", device="vdb", format="raw", read_only=True)
VOLUMES = [Disk(path=f"/x/{name}", device=name, format="raw", serial=name) for name in ("vdc", "vdd")]


def iso(*disks: Disk, disk_format: str = "iso") -> str:
    """Return the domain of a server with disks after its root disk."""
    spec = make_spec(image=Image(id="i", name="i", disk_format=disk_format))
    whole = DiskSet(disks=[ROOT, *disks], direct_boot=None)
    return guest_xml.guest_xml(spec, "h", "/instances/u", whole, "qemu", 32)


def boots(xml: str) -> list[dict[str, str]]:
    """Return what the firmware boots, of the domain and of each disk."""
    return [boot.attrib for boot in ET.fromstring(xml).iterfind(".//boot")]


def test_server_of_an_iso_image_boots_from_the_drive_and_then_from_its_first_volume() -> None:
    domain = ET.fromstring(iso(CONFIG, *VOLUMES))
    first, second = (domain.find(f"devices/disk/boot[@order='{order}']/../target") for order in (1, 2))
    assert first is not None and second is not None
    assert (first.get("dev"), second.get("dev")) == ("hda", "vdc")
    assert domain.find("os/boot") is None, "libvirt refuses both"
    assert boots(iso(CONFIG)) == [{"dev": "cdrom"}]
    assert boots(iso(*VOLUMES, disk_format="qcow2")) == [{"dev": "hd"}]


@pytest.mark.parametrize("stable", [False, True])
def test_rescue_of_a_server_with_an_iso_image_boots_the_rescue_disk_alone(stable: bool) -> None:
    rescue = DiskSet(disks=[Disk(path="/r", device="vda", format="qcow2")], direct_boot=None)
    found = boots(rescue_xml(iso(CONFIG, *VOLUMES), rescue, RescueDisk(stable, "virtio", False)))
    assert found == [{"order": "1"} if stable else {"dev": "hd"}]


def test_metadata_survives_special_characters() -> None:
    domain = build(generation=7, instance=make_instance(project_id=NASTY))
    assert guest_xml.parse_owner(metadata(domain)) == guest_xml.Owner(host=NASTY, generation=7, project_id=NASTY)
    assert domain.findtext(f"./metadata/{{{guest_xml.NAMESPACE}}}instance/{{{guest_xml.NAMESPACE}}}project") == NASTY


@pytest.mark.parametrize(
    "text", ["", "<a", "<a/>", "<i><host>h</host></i>", "<i><host>h</host><generation>x</generation></i>"]
)
def test_metadata_of_another_form_has_no_owner(text: str) -> None:
    assert guest_xml.parse_owner(text) is None


@pytest.mark.parametrize(("virt_type", "cap", "expected"), [("qemu", 32, "32"), ("qemu", 0, None), ("kvm", 32, None)])
def test_code_cache_is_limited_only_under_emulation(virt_type: str, cap: int, expected: str | None) -> None:
    domain = build(virt_type=virt_type, tb_cache_mb=cap)
    assert domain.get("type") == virt_type
    assert domain.findtext("./features/tcg/tb-cache") == expected


def test_disk_image_boots_from_its_disk() -> None:
    domain = build()
    assert domain.find("./os/boot[@dev='hd']") is not None
    assert domain.find("./os/kernel") is None


def test_ami_image_boots_its_kernel() -> None:
    domain = build(direct=DirectBoot(kernel="/k", ramdisk="/r", command_line=f"root=/dev/vda {NASTY}"))
    assert domain.findtext("./os/kernel") == "/k"
    assert domain.findtext("./os/initrd") == "/r"
    assert domain.findtext("./os/cmdline") == f"root=/dev/vda {NASTY}"
    assert domain.find("./os/boot") is None


def test_disks_are_virtio_and_the_config_drive_is_read_only() -> None:
    root, config = build().findall("./devices/disk")
    assert [disk.find("target").attrib for disk in (root, config)] == [  # type: ignore[union-attr]
        {"dev": "vda", "bus": "virtio"},
        {"dev": "vdb", "bus": "virtio"},
    ]
    assert root.find("readonly") is None
    assert config.find("readonly") is not None


def test_files_below_each_disk_are_named_to_the_last_one() -> None:
    below = (File("/b/one", "qcow2"), File("/b/two", "raw"))
    root = guest_xml.disk_element(Disk(path="/i/disk", device="vda", format="qcow2", below=below))
    stores = list(root.iter("backingStore"))
    assert [(item.get("type"), item.findtext("source"), len(item)) for item in stores] == [
        ("file", "", 3), ("file", "", 3), (None, None, 0)
    ]  # fmt: skip
    assert [item.get("file") for item in root.iterfind(".//backingStore/source")] == ["/b/one", "/b/two"]
    assert [item.get("type") for item in root.iterfind(".//backingStore/format")] == ["qcow2", "raw"]
    raw = guest_xml.disk_element(Disk(path="/i/disk.swap", device="vdb", format="raw"))
    (last,) = raw.iter("backingStore")
    assert len(last) == 0


@pytest.mark.parametrize(("machine", "spare", "ports"), [("q35", 12, 16), ("q35", 0, 0), ("pc", 12, 0)])
def test_machine_with_pci_express_has_ports_for_its_devices_and_spare_ones(
    machine: str, spare: int, ports: int
) -> None:
    """The guest has an interface, a disk, a balloon and a generator of random numbers."""
    disks = DiskSet(disks=[Disk(path="/i/disk", device="vda", format="qcow2")], direct_boot=None)
    given = guest_xml.Host(machine=machine, spare_ports=spare)
    text = guest_xml.guest_xml(make_spec(vifs=[make_vif()]), "h", "/i", disks, "kvm", 0, given=given)
    domain = ET.fromstring(text)
    assert len(domain.findall("devices/controller[@model='pcie-root-port']")) == ports


def test_interface_has_no_filter_of_libvirt() -> None:
    vif = make_vif(network=make_network(mtu=1400))
    (interface,) = build(vifs=[vif]).findall("./devices/interface")
    assert interface.find(f"mac[@address='{vif.mac_address}']") is not None
    assert interface.find("source[@bridge='nltest0']") is not None
    assert interface.find("mtu[@size='1400']") is not None
    assert interface.find(f"target[@dev='tap{vif.id[:11]}']") is not None, "nft finds it by this name"
    assert interface.find("filterref") is None


def test_interface_names_fit_the_kernel() -> None:
    vif = make_vif(network=make_network(bridge=""))
    assert len(names.tap_name(vif)) <= 15
    assert len(names.bridge_name(vif.network)) <= 15


def test_console_log_is_in_the_instances_directory() -> None:
    assert build().find("./devices/serial[@type='pty']/log[@file='/instances/u/console.log']") is not None
