"""Domains with encrypted memory. libvirt's schema knows SEV; SEV-SNP and TDX are compared with its documentation."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import libvirt
import pytest

from nova_lite.virt.libvirt.domain import hardware_page

UEFI = {"hw_firmware_type": "uefi"}


def domain(model: str, **properties: str) -> str:
    specs = {"hw:mem_encryption": "yes", "hw:mem_encryption_model": model}
    return hardware_page.xml(specs, UEFI | properties)


@pytest.mark.parametrize(
    ("model", "kind", "policy", "is_stateless"),
    [
        ("amd-sev", "sev", "0x0033", False),
        ("amd-sev-es", "sev", "0x0037", False),
        ("amd-sev-snp", "sev-snp", "0x00030000", True),
        ("intel-tdx", "tdx", "0x10000000", True),
    ],
)
def test_domain_has_the_launch_security_of_its_model(model: str, kind: str, policy: str, is_stateless: bool) -> None:
    made = ET.fromstring(domain(model))
    assert [(item.get("type"), item.findtext("policy")) for item in made.findall("launchSecurity")] == [(kind, policy)]
    assert "q35" in str(made.find("os/type").get("machine"))  # type: ignore[union-attr]
    assert (made.find("os/nvram") is None) == is_stateless
    assert (made.find("os/loader[@stateless='yes']") is not None) == is_stateless
    assert (made.find("memoryBacking/locked") is None) == is_stateless


def test_each_virtio_device_goes_through_the_iommu() -> None:
    more = {"hw_qemu_guest_agent": "yes", "hw_disk_bus": "scsi", "hw_input_bus": "virtio", "hw_pointer_model": ""}
    del more["hw_pointer_model"]
    for buses in ({}, more):
        devices = ET.fromstring(domain("amd-sev", **buses)).find("devices")
        assert devices is not None
        plain = []
        for device in devices:
            texts = ET.tostring(device, encoding="unicode")
            is_virtio = "virtio" in texts and device.tag not in ("video", "channel")
            if is_virtio and device.find("driver[@iommu='on']") is None:
                plain.append(texts)
        assert plain == []
    assert devices.find("controller[@type='virtio-serial']") is not None


@pytest.mark.parametrize("model", ["amd-sev", "amd-sev-es"])
def test_libvirt_accepts_the_domain_by_its_schema(model: str) -> None:
    more = {"hw_qemu_guest_agent": "yes", "hw_input_bus": "virtio"}
    connection = libvirt.open("test:///default")
    xml = domain(model, **more).replace('type="kvm"', 'type="test"', 1)
    connection.defineXMLFlags(xml, libvirt.VIR_DOMAIN_DEFINE_VALIDATE).undefine()


def test_guest_with_plain_memory_is_unchanged() -> None:
    made = hardware_page.xml({"hw:mem_encryption": "no"}, UEFI)
    assert "launchSecurity" not in made
    assert "iommu" not in made
    assert "memoryBacking" not in made
