"""Backend ``cinder``: RBD images, which qemu opens, and volumes that os-brick connects."""

from __future__ import annotations

import json
import logging
import sys
import types
import uuid
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from nova_lite.base import exceptions
from nova_lite.objects import BlockDevice, Image, NetworkDisk, Qcow2Disk, VolumeConnection
from nova_lite.objects.block_device import DeviceSource
from nova_lite.virt.libvirt.disks import disks, volumes
from nova_lite.virt.libvirt.domain import guest_xml
from nova_lite.volume.cinder import CinderVolumes, rbd_disk
from tests.support import make

VOLUME, SERVER, SECRET = str(uuid.uuid4()), str(uuid.uuid4()), str(uuid.uuid4())
RBD: dict[str, Any] = {
    "driver_volume_type": "rbd",
    "name": f"volumes/volume-{VOLUME}",
    "hosts": ["10.0.0.1", "10.0.0.2"],
    "ports": ["6789", "6789"],
    "auth_enabled": True,
    "auth_username": "cinder",
    "secret_uuid": SECRET,
    "keyring": "a key",
}
ISCSI = {"driver_volume_type": "iscsi", "target_iqn": "iqn.2026-11", "auth_password": "a password"}
DEVICE = BlockDevice(
    uuid=SERVER,
    source_type=DeviceSource.VOLUME,
    destination_type="volume",
    volume_id=VOLUME,
    device_name="/dev/vdb",
)


def fetch(image: Image, target: str) -> None:
    raise AssertionError


def backend(path: Path) -> CinderVolumes:
    return CinderVolumes(make.conf("sqlite://", path), fetch)


def connection(info: dict[str, Any]) -> VolumeConnection:
    return VolumeConnection(volume_id=VOLUME, size=1, info=info)


class Brick:
    """Simulated os-brick, with the real signatures of the functions in use."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.fails: Exception | None = None

    def get_connector_properties(
        self, root_helper: str, my_ip: str, multipath: bool, enforce_multipath: bool, host: str | None = None
    ) -> dict[str, Any]:
        return {"host": host, "ip": my_ip, "initiator": "iqn.host", "multipath": multipath}

    def factory(
        self, protocol: str, root_helper: str, *, use_multipath: bool = False, conn: Any = None, **options: Any
    ) -> Brick:
        self.calls.append(("factory", protocol))
        self.mounts = options.get("nfs_mount_point_base")
        return self

    def connect_volume(self, properties: dict[str, Any]) -> dict[str, Any]:
        if "export" in properties:
            return {"path": f"{self.mounts}/share/{properties['name']}"}
        self.calls.append(("connect", properties["target_iqn"]))
        if self.fails:
            raise self.fails
        return {"type": "block", "path": b"/dev/disk/by-path/one"}

    def disconnect_volume(self, properties: dict[str, Any], device_info: Any) -> None:
        self.calls.append(("disconnect", properties["target_iqn"], device_info))
        if self.fails:
            raise self.fails

    def extend_volume(self, properties: dict[str, Any]) -> int:
        self.calls.append(("extend", properties["target_iqn"]))
        return 5


@pytest.fixture
def brick(monkeypatch: pytest.MonkeyPatch) -> Brick:
    made = Brick()
    connector: Any = types.ModuleType("os_brick.initiator.connector")
    connector.InitiatorConnector = made
    connector.get_connector_properties = made.get_connector_properties
    initiator: Any = types.ModuleType("os_brick.initiator")
    initiator.connector = connector
    privileged: Any = types.ModuleType("os_brick.privileged")
    privileged.default = types.SimpleNamespace(set_client_mode=lambda mode: made.calls.append(("client mode", mode)))
    whole: Any = types.ModuleType("os_brick")
    whole.setup = lambda conf: made.calls.append(("setup",))
    whole.privileged, whole.initiator = privileged, initiator
    for module in (whole, privileged, initiator, connector):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return made


@pytest.fixture
def no_brick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "os_brick", None)


# --- RBD


def test_rbd_image_needs_no_connection(tmp_path: Path, no_brick: None) -> None:
    where = backend(tmp_path).connect(SERVER, connection(RBD))
    assert where == NetworkDisk(
        protocol="rbd",
        name=f"volumes/volume-{VOLUME}",
        hosts=(("10.0.0.1", "6789"), ("10.0.0.2", "6789")),
        user="cinder",
        secret=SECRET,
    )
    assert not (tmp_path / "volumes-connected").exists(), "nothing of it is kept"


def test_rbd_image_in_the_domain() -> None:
    element = guest_xml.disk_element(disks.volume_disk(DEVICE, rbd_disk(RBD)))
    assert ET.tostring(element, encoding="unicode") == (
        '<disk type="network" device="disk"><driver name="qemu" type="raw" discard="unmap" cache="none" />'
        f'<source protocol="rbd" name="volumes/volume-{VOLUME}"><host name="10.0.0.1" port="6789" />'
        '<host name="10.0.0.2" port="6789" /><auth username="cinder">'
        f'<secret type="ceph" uuid="{SECRET}" /></auth></source>'
        f'<target dev="vdb" bus="virtio" /><serial>{VOLUME}</serial><backingStore /></disk>'
    )
    domain = f"<domain><devices>{ET.tostring(element, encoding='unicode')}</devices></domain>"
    assert volumes.local_targets(domain) == ([], True), "a live migration does not bring it"
    assert volumes.all_direct(domain)


def test_rbd_image_without_authentication() -> None:
    where = rbd_disk({**RBD, "auth_enabled": False})
    assert (where.user, where.secret) == (None, None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"secret_uuid": None}, "rbd_secret_uuid"),
        ({"name": ""}, "lack the RBD image"),
        ({"ports": []}, "lack the RBD image"),
    ],
)
def test_invalid_rbd_connection_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(exceptions.VirtDriverError, match=message):
        rbd_disk({**RBD, **changes})


def test_host_without_os_brick_has_a_basic_connector(tmp_path: Path, no_brick: None) -> None:
    volumes = backend(tmp_path)
    found = volumes.connector()
    assert (found["host"], found["multipath"]) == (volumes.conf.host, False)
    with pytest.raises(exceptions.VirtDriverError, match="os-brick is not installed"):
        volumes.connect(SERVER, connection(ISCSI))


# --- files

FILE = f"volume-{VOLUME}"
NEW_FILE = f"{FILE}.{SECRET}"
NFS: dict[str, Any] = {"driver_volume_type": "nfs", "export": "10.0.0.1:/v", "name": FILE, "format": "raw"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "raw"),
        ({"format": None}, "raw"),
        ({"format": "qcow2"}, "qcow2"),
        ({"name": NEW_FILE}, "qcow2"),
    ],
)
def test_volume_in_a_file_has_cinders_format(
    tmp_path: Path, brick: Brick, changes: dict[str, Any], expected: str
) -> None:
    """Cinder names the format of the first file only: that of a snapshot's file is always qcow2."""
    info = {**NFS, **changes}
    path = str(tmp_path / "mnt" / "share" / info["name"])
    found = backend(tmp_path).connect(SERVER, connection(info))
    assert found == (path if expected == "raw" else Qcow2Disk(path=path))
    element = guest_xml.disk_element(disks.volume_disk(DEVICE, found))
    driver, source = element.find("driver"), element.find("source")
    assert driver is not None and source is not None
    assert (driver.get("type"), source.get("file"), volumes.volume_of(element)) == (expected, path, VOLUME)


@pytest.mark.parametrize("changes", [{"name": "../x"}, {"name": ""}, {"name": "a:b"}, {"format": "vmdk"}])
def test_unknown_file_of_a_volume_is_refused(tmp_path: Path, brick: Brick, changes: dict[str, Any]) -> None:
    with pytest.raises(exceptions.VirtDriverError, match="name no file"):
        backend(tmp_path).connect(SERVER, connection({**NFS, **changes}))


def test_connection_names_the_file_that_the_guest_has_moved_to(tmp_path: Path, brick: Brick) -> None:
    """Cinder names the old file until it has noticed the report. The guest's data are in the new one."""
    host = backend(tmp_path)
    host.connect(SERVER, connection(NFS))
    for _ in range(2):
        host.switched(SERVER, VOLUME, NEW_FILE)
    for known in (NFS, {**NFS, "name": NEW_FILE}):
        found = backend(tmp_path).connect(SERVER, connection(known))
        assert found == Qcow2Disk(path=str(tmp_path / "mnt" / "share" / NEW_FILE))
    later = {**NFS, "name": f"{FILE}.{SERVER}"}
    assert host.connect(SERVER, connection(later)) == Qcow2Disk(path=str(tmp_path / "mnt" / "share" / later["name"]))


def test_switch_needs_a_connected_volume_in_a_file(tmp_path: Path, brick: Brick) -> None:
    host = backend(tmp_path)
    assert not host.is_in_file(SERVER, VOLUME)
    host.connect(SERVER, connection(ISCSI))
    assert not host.is_in_file(SERVER, VOLUME)
    host.connect(SERVER, connection(NFS))
    assert host.is_in_file(SERVER, VOLUME)
    host.switched(SERVER, SECRET, NEW_FILE)
    assert not host.is_in_file(SERVER, SECRET)


# --- the rest


def test_os_brick_connects_and_disconnects(tmp_path: Path, brick: Brick) -> None:
    host = backend(tmp_path)
    assert brick.calls == [("setup",), ("client mode", False)]
    assert host.connector()["initiator"] == "iqn.host"
    assert host.connect(SERVER, connection(ISCSI)) == "/dev/disk/by-path/one"
    [record] = (tmp_path / "volumes-connected").rglob("*.json")
    assert record.stat().st_mode & 0o777 == 0o600
    assert record.parent.stat().st_mode & 0o777 == 0o700

    host.extend(VOLUME, 5)
    host.disconnect(SERVER, str(uuid.uuid4()))
    assert record.exists()
    host.disconnect(SERVER)
    host.disconnect(SERVER)
    device = {"type": "block", "path": "/dev/disk/by-path/one"}
    ends = [("connect", "iqn.2026-11"), ("extend", "iqn.2026-11"), ("disconnect", "iqn.2026-11", device)]
    assert [call for call in brick.calls if call[0] in ("connect", "extend", "disconnect")] == ends
    assert not record.parent.exists()


def test_interrupted_connection_is_disconnected_after_a_crash(tmp_path: Path, brick: Brick) -> None:
    brick.fails = SystemExit()  # type: ignore[assignment]
    with pytest.raises(SystemExit):
        backend(tmp_path).connect(SERVER, connection(ISCSI))
    brick.fails = None
    backend(tmp_path).disconnect(SERVER)
    assert brick.calls[-1] == ("disconnect", "iqn.2026-11", None)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"info": 1}', b'{"info": "\xff"}'])
def test_damaged_record_of_a_connection_is_an_error_with_what_to_do(
    tmp_path: Path, brick: Brick, content: bytes
) -> None:
    """No other file has what a disconnection needs."""
    host = backend(tmp_path)
    host.connect(SERVER, connection(ISCSI))
    [record] = (tmp_path / "volumes-connected").rglob("*.json")
    record.write_bytes(content)
    calls = (
        lambda: host.connect(SERVER, connection(ISCSI)),
        lambda: host.disconnect(SERVER),
        lambda: host.extend(VOLUME, 5),
        lambda: host.is_in_file(SERVER, VOLUME),
    )
    for call in calls:
        with pytest.raises(exceptions.VirtDriverError, match="Disconnect the volume from this host by hand"):
            call()
    assert record.read_bytes() == content


def test_failed_disconnect_keeps_its_record_and_shows_no_secret(
    tmp_path: Path, brick: Brick, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    host = backend(tmp_path)
    host.connect(SERVER, connection(ISCSI))
    brick.fails = RuntimeError(f"login failed: {json.dumps(ISCSI)}")
    with pytest.raises(exceptions.VirtDriverError, match="could not be disconnected: RuntimeError") as caught:
        host.disconnect(SERVER)
    assert "a password" not in caught.value.message + caplog.text
    brick.fails = None
    host.disconnect(SERVER)
    assert not list((tmp_path / "volumes-connected").rglob("*.json"))


def test_block_device_in_the_domain() -> None:
    element = guest_xml.disk_element(disks.volume_disk(DEVICE, "/dev/disk/by-path/one"))
    source = element.find("source")
    assert (element.get("type"), source is not None and source.attrib) == ("block", {"dev": "/dev/disk/by-path/one"})


def test_device_that_another_server_uses_stays_connected(tmp_path: Path, brick: Brick) -> None:
    """A host has one device of a volume, whatever the number of its servers with the volume."""
    host, other = backend(tmp_path), str(uuid.uuid4())
    for server in (SERVER, other):
        host.connect(server, connection(ISCSI))
    host.disconnect(SERVER, VOLUME)
    assert "disconnect" not in [call[0] for call in brick.calls]
    assert len(list((tmp_path / "volumes-connected").rglob("*.json"))) == 1
    host.disconnect(other)
    assert brick.calls[-1][0] == "disconnect"
    assert not list((tmp_path / "volumes-connected").rglob("*.json"))
