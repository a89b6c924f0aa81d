"""The image properties that the page on Windows guests names, and what they give to a guest."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from nova_lite import hardware
from nova_lite.hardware import table
from nova_lite.hardware.definition import Outcome
from nova_lite.objects import Flavor, Image
from nova_lite.virt.libvirt.domain import hardware_page

PAGE = (Path(__file__).parents[3] / "docs" / "howto" / "windows-guests.md").read_text()
RECIPE = dict(re.findall(r"--property (\w+)=([\w.-]+)", PAGE))


@pytest.fixture
def domain() -> ET.Element:
    return ET.fromstring(hardware_page.xml({}, RECIPE))


def test_recipe_has_properties_that_are_honoured_and_explained() -> None:
    assert len(RECIPE) > 10
    for name, value in RECIPE.items():
        definition = table.find_image_property(name)
        assert definition is not None and definition.outcome is Outcome.HONOURED, name
        assert definition.values.accepts(value), name
        assert f"`{name}`" in PAGE, f"the page does not explain {name}"


def test_recipe_requires_hosts_with_tpm_and_secure_boot() -> None:
    flavor = Flavor(flavorid="1", name="f", vcpus=4, memory_mb=4096, root_gb=40)
    found = hardware.resolve(flavor, Image(id="i", name="i", properties=RECIPE)).traits
    assert set(found.values()) == {"required"}
    assert {
        "COMPUTE_SECURITY_TPM_2_0",
        "COMPUTE_SECURITY_TPM_CRB",
        "COMPUTE_SECURITY_UEFI_SECURE_BOOT",
        "COMPUTE_FIRMWARE_UEFI",
    } <= set(found)


def test_guest_of_the_recipe_sees_hyper_v_and_has_a_windows_clock(domain: ET.Element) -> None:
    hyperv = domain.find("features/hyperv")
    assert hyperv is not None
    assert {element.tag for element in hyperv} == {
        "relaxed", "vapic", "spinlocks", "vpindex", "runtime", "synic", "reset", "frequencies", "tlbflush", "ipi",
    }  # fmt: skip
    assert {element.get("state") for element in hyperv} == {"on"}
    assert [element.get("retries") for element in hyperv if element.get("retries")] == ["8191"]
    clock = domain.find("clock")
    assert clock is not None and clock.get("offset") == "localtime"
    timers = {timer.get("name"): timer.get("present") for timer in clock}
    assert (timers["hypervclock"], timers["hpet"]) == ("yes", "no")


def test_guest_of_the_recipe_boots_signed_systems_with_a_tpm(domain: ET.Element) -> None:
    enabled = {feature.get("name"): feature.get("enabled") for feature in domain.iterfind("os/firmware/feature")}
    assert enabled == {"enrolled-keys": "yes", "secure-boot": "yes"}
    assert domain.find("features/smm[@state='on']") is not None
    assert domain.find("os/type[@machine='q35']") is not None
    tpm = domain.find("devices/tpm")
    assert tpm is not None and tpm.get("model") == "tpm-crb"
    backend = tpm.find("backend")
    assert backend is not None
    assert (backend.get("type"), backend.get("version"), backend.get("persistent_state")) == ("emulator", "2.0", "yes")
    encryption = backend.find("encryption")
    assert encryption is not None and encryption.get("secret") == domain.findtext("uuid")


def test_guest_of_the_recipe_has_virtio_devices_and_one_socket(domain: ET.Element) -> None:
    assert domain.find("devices/disk/target[@bus='scsi']") is not None
    assert domain.find("devices/controller[@type='scsi'][@model='virtio-scsi']") is not None
    assert domain.find("devices/interface/model[@type='virtio']") is not None
    assert domain.find("devices/video/model[@type='virtio']") is not None
    assert domain.find("devices/input[@type='tablet'][@bus='usb']") is not None
    assert domain.find("devices/channel/target[@name='org.qemu.guest_agent.0']") is not None
    topology = domain.find("cpu/topology")
    assert topology is not None and topology.attrib == {"sockets": "1", "cores": "4", "threads": "1"}
