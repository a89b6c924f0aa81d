"""Configurations of Proxmox's guests, and its API as its documentation describes it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nova_lite.base import exceptions
from nova_lite.image.sources import proxmox
from nova_lite.image.sources.proxmox import Api, Guest, Interface
from tests.support.file_site import FileSite, serving
from tests.support.http_site import make_certificate

GIB = 1024**3

WINDOWS = """#Description of the guest
agent: enabled=1,fstrim_cloned_disks=1
bios: ovmf
boot: order=scsi0;ide2;net0
cores: 4
cpu: host
efidisk0: local-lvm:vm-100-disk-0,efitype=4m,pre-enrolled-keys=1,size=4M
hostpci0: 0000:01:00,pcie=1
ide2: local:iso/virtio-win.iso,media=cdrom,size=600M
machine: pc-q35-8.1
memory: 8192
name: win11.example.org
net0: virtio=BC:24:11:AA:BB:CC,bridge=vmbr0,firewall=1,tag=5
net1: e1000=BC:24:11:AA:BB:CD,bridge=vmbr1
ostype: win11
scsi0: local-lvm:vm-100-disk-1,discard=on,iothread=1,size=64G,ssd=1
scsi1: local-lvm:vm-100-disk-2,size=512M
scsi10: local-lvm:vm-100-disk-3,size=1T
scsihw: virtio-scsi-single
smbios1: uuid=8f1b0b5e-0000-0000-0000-000000000000
sockets: 1
tpmstate0: local-lvm:vm-100-disk-4,size=4M,version=v2.0
unused0: local-lvm:vm-100-disk-5

[before-update]
cores: 2
name: old
scsi0: local-lvm:vm-100-disk-9,size=1G
"""


def guest(text: str) -> Guest:
    return proxmox.guest_of(proxmox.parse(text), "proxmox-100")


def test_windows_guest_keeps_its_hardware() -> None:
    found = guest(WINDOWS)
    assert (found.name, found.vcpus, found.memory_mb) == ("win11.example.org", 4, 8192)
    assert list(found.disks.items()) == [("scsi0", 64 * GIB), ("scsi1", 512 * 1024**2), ("scsi10", 1024 * GIB)]
    assert found.properties == {
        "hw_cpu_max_sockets": "1",
        "hw_machine_type": "q35",
        "hw_firmware_type": "uefi",
        "os_secure_boot": "required",
        "os_type": "windows",
        "hw_tpm_version": "2.0",
        "hw_qemu_guest_agent": "yes",
        "hw_disk_bus": "scsi",
        "hw_scsi_model": "virtio-scsi",
        "hw_vif_model": "virtio",
    }
    assert found.interfaces == [
        Interface("net0", "virtio", "bc:24:11:aa:bb:cc"),
        Interface("net1", "e1000", "bc:24:11:aa:bb:cd"),
    ]
    assert found.notes == [
        "hostpci0 is not taken over",
        "the variables of the firmware are new: the guest starts by the default path of its disk",
        "the TPM is new: have the recovery keys of encrypted disks ready",
        "net0 was in VLAN 5: choose the network for it",
        "all interfaces have the model virtio",
    ]


def test_small_guest_has_proxmox_defaults() -> None:
    found = guest("virtio0: local:100/vm-100-disk-0.qcow2,size=2G\n")
    assert found == Guest(
        name="proxmox-100", vcpus=1, memory_mb=512, disks={"virtio0": 2 * GIB}, interfaces=[],
        properties={"hw_disk_bus": "virtio"}, notes=[],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("scsi0: a:b", {"hw_disk_bus": "scsi", "hw_scsi_model": "lsilogic"}),
        ("scsi0: a:b\nscsihw: megasas", {"hw_disk_bus": "scsi", "hw_scsi_model": "lsisas1078"}),
        ("scsi0: a:b\nscsihw: pvscsi", {"hw_disk_bus": "sata"}),
        ("ide0: a:b", {"hw_disk_bus": "ide"}),
        ("ide0: a:b\nmachine: q35", {"hw_disk_bus": "sata", "hw_machine_type": "q35"}),
        ("sata0: a:b\nostype: l26", {"hw_disk_bus": "sata", "os_type": "linux"}),
        ("sata0: a:b\nagent: 1", {"hw_disk_bus": "sata", "hw_qemu_guest_agent": "yes"}),
        ("sata0: a:b\nagent: 0", {"hw_disk_bus": "sata"}),
        ("ide0: a:b\nbios: ovmf\nefidisk0: pre-enrolled-keys=1", {"hw_disk_bus": "ide", "hw_firmware_type": "uefi"}),
        ("sata0: a:b\ntpmstate0: a:c,version=v1.2", {"hw_disk_bus": "sata", "hw_tpm_version": "1.2"}),
        ("sata0: a:b\nnet0: vmxnet3=00:11:22:33:44:55", {"hw_disk_bus": "sata", "hw_vif_model": "vmxnet3"}),
        ("sata0: a:b\nsockets: 2\ncores: 2", {"hw_disk_bus": "sata", "hw_cpu_max_sockets": "2"}),
    ],
)  # fmt: skip
def test_hardware_of_a_guest_becomes_properties(text: str, properties: dict[str, str]) -> None:
    assert guest(text).properties == properties


@pytest.mark.parametrize(
    ("boot", "first"),
    [
        ("", "ide0"),
        ("boot: order=net0;scsi1;scsi0", "scsi1"),
        ("boot: c\nbootdisk: scsi0", "scsi0"),
        ("boot: order=ide2", "ide0"),
    ],
)
def test_guest_boots_from_the_disk_that_it_names_first(boot: str, first: str) -> None:
    text = f"scsi1: a:b\nscsi0: a:c\nide0: file=a:d,size=1G\nide2: none,media=cdrom\n{boot}"
    found = guest(text)
    assert next(iter(found.disks)) == first
    assert len(found.disks) == 3
    assert any("on a bus of the kind" in note for note in found.notes)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("name: x; rm -rf /", "proxmox-100"),
        ("name: -rf", "proxmox-100"),
        ("name: $(reboot)", "proxmox-100"),
        ("name: " + "a" * 64, "proxmox-100"),
    ],
)
def test_name_that_is_no_host_name_is_replaced(text: str, found: str) -> None:
    assert guest(f"{text}\nsata0: a:b").name == found


def test_interface_without_an_address_is_left_out() -> None:
    found = guest("sata0: a:b\nnet0: virtio=$(reboot),tag=$(reboot)\nnet1: bridge=vmbr0")
    assert found.interfaces == []
    assert found.notes == ["net0 is not taken over", "net1 is not taken over"]


@pytest.mark.parametrize("text", ["", "name: web", "scsi0: none,media=cdrom", "[x]\nscsi0: a:b"])
def test_guest_without_a_disk_is_refused(text: str) -> None:
    with pytest.raises(exceptions.InvalidInput, match="has no disk"):
        guest(text)


@pytest.mark.parametrize("line", ["cores: -1", "cores: 0", "sockets: x", "memory: 1e9", "memory: 9999999999"])
def test_number_that_is_none_is_refused(line: str) -> None:
    with pytest.raises(exceptions.InvalidInput, match="is not a number"):
        guest(f"sata0: a:b\n{line}")


def test_memory_in_the_new_form_is_read() -> None:
    assert guest("sata0: a:b\nmemory: current=2048").memory_mb == 2048


# --- the API

TOKEN = "root@pam!import=12345678-0000-0000-0000-000000000000"
RESOURCES = [
    {"id": "lxc/100", "type": "lxc", "vmid": 100, "node": "pve2", "status": "running"},
    {"id": "qemu/100", "type": "qemu", "vmid": 100, "node": "pve1", "status": "running", "name": "web"},
]
BACKUP = "local:backup/vzdump-qemu-100-2024_01_{}-00_00_00.vma.zst"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileSite]:
    with serving(FileSite(make_certificate(tmp_path))) as made:
        node = "/nodes/pve1"
        content = "content?content=backup&vmid=100"
        put(made, "/cluster/resources?type=vm", RESOURCES)
        put(made, f"{node}/qemu/100/config", {"name": "web", "cores": 2, "scsi0": "a:b,size=8G", "digest": "x"})
        put(made, f"{node}/storage?content=backup", [{"storage": "local", "type": "dir"}, {"storage": "pbs"}])
        put(made, f"{node}/storage/local/{content}", [
            {"volid": BACKUP.format("01"), "ctime": 1}, {"volid": BACKUP.format("03"), "ctime": 3},
            {"volid": "$(reboot)", "ctime": 4},
        ])  # fmt: skip
        put(made, f"{node}/storage/pbs/{content}", [{"volid": "pbs:backup/vm/100/2024-01-02T00:00:00Z", "ctime": 2}])
        yield made


def put(site: FileSite, path: str, data: Any) -> None:
    site.files[f"/api2/json{path}"] = json.dumps({"data": data}).encode()


def api(site: FileSite, tmp_path: Path) -> Api:
    return Api(site.url, TOKEN, str(tmp_path / "cert.pem"))


def test_api_has_configuration_state_and_backups(site: FileSite, tmp_path: Path) -> None:
    record = api(site, tmp_path).read(100)
    assert record.config == {"name": "web", "cores": "2", "scsi0": "a:b,size=8G", "digest": "x"}
    assert record.is_running
    assert record.backups == [BACKUP.format("03"), "pbs:backup/vm/100/2024-01-02T00:00:00Z", BACKUP.format("01")]
    assert {headers["Authorization"] for headers in site.headers} == {f"PVEAPIToken={TOKEN}"}


def test_guest_that_the_token_does_not_see_is_reported(site: FileSite, tmp_path: Path) -> None:
    with pytest.raises(exceptions.InvalidInput, match="no virtual machine 101"):
        api(site, tmp_path).read(101)


def test_refusal_of_the_api_is_reported(site: FileSite, tmp_path: Path) -> None:
    site.faults = [401]
    with pytest.raises(OSError, match="does not answer /cluster/resources: status 401"):
        api(site, tmp_path).read(100)


def test_token_is_not_sent_to_another_address(site: FileSite, tmp_path: Path) -> None:
    site.redirects["/api2/json/cluster/resources?type=vm"] = "/elsewhere"
    with pytest.raises(OSError, match="status 302"):
        api(site, tmp_path).read(100)
    assert len(site.requests) == 1


def test_unknown_authority_is_not_believed(site: FileSite) -> None:
    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        Api(site.url, TOKEN, None).read(100)
    assert site.requests == []


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"{}", b'{"data": {}}', b'{"data": [1]}', b" " * 9 * 1024**2])
def test_response_of_something_else_is_refused(site: FileSite, tmp_path: Path, body: bytes) -> None:
    site.files["/api2/json/cluster/resources?type=vm"] = body
    with pytest.raises(exceptions.InvalidInput, match="is none of Proxmox"):
        api(site, tmp_path).read(100)


@pytest.mark.parametrize("url", ["http://pve:8006", "pve:8006", "https://", "https://root@pve:8006"])
def test_address_without_tls_or_with_a_user_is_refused(url: str) -> None:
    with pytest.raises(exceptions.InvalidInput, match="https://HOST:8006"):
        Api(url, TOKEN, None)


@pytest.mark.parametrize("token", ["", "root@pam", "root@pam!import", f"{TOKEN}\r\nX: y"])
def test_token_of_another_form_is_refused(token: str) -> None:
    with pytest.raises(exceptions.InvalidInput, match="USER@REALM!NAME=SECRET") as caught:
        Api("https://pve:8006", token, None)
    assert "1234" not in str(caught.value)
