from __future__ import annotations

import base64
import io
import json
import os
from pathlib import Path

import pycdlib
import pytest

from nova_lite import exception
from nova_lite.objects import Image
from nova_lite.virt import configdrive
from tests.unit.virt.builders import make_instance, make_network, make_spec, make_vif


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def read(path: Path, name: str, names: str = "rr_path") -> bytes:
    volume = pycdlib.PyCdlib()
    volume.open(str(path))
    content = io.BytesIO()
    volume.get_file_from_iso_fp(content, **{names: f"/{name}"})
    volume.close()
    return content.getvalue()


def test_a_guest_reads_who_it_is(tmp_path: Path) -> None:
    instance = make_instance(
        launch_index=2,
        availability_zone="nova",
        metadata={"role": "wéb"},
        key_name="my key",
        key_data="ssh-ed25519 AAAA",
        user_data=b64(b"#!/bin/sh\necho hi\n"),
    )
    spec = make_spec(
        instance=instance,
        vifs=[make_vif(network=make_network(dns=["9.9.9.9"]))],
        admin_password="s3cret",
        injected_files={"/etc/motd": b64(b"hello"), "/etc/a": b64(b"\x00\xff")},
    )
    path = tmp_path / "disk.config"

    configdrive.make(str(path), spec)

    for names in ("rr_path", "joliet_path"):
        meta = json.loads(read(path, "openstack/latest/meta_data.json", names))
        assert meta["uuid"] == instance.uuid
        assert (meta["name"], meta["hostname"], meta["launch_index"]) == ("web one", "web-one", 2)
        assert (meta["availability_zone"], meta["project_id"]) == ("nova", "project")
        assert meta["meta"] == {"role": "wéb"}
        assert meta["public_keys"] == {"my key": "ssh-ed25519 AAAA"}
        assert meta["admin_pass"] == "s3cret"
        files = {entry["path"]: read(path, "openstack" + entry["content_path"]) for entry in meta["files"]}
        assert files == {"/etc/motd": b"hello", "/etc/a": b"\x00\xff"}
    assert read(path, "openstack/latest/user_data") == b"#!/bin/sh\necho hi\n"
    assert json.loads(read(path, "ec2/latest/meta-data.json"))["instance-id"] == instance.uuid
    assert json.loads(read(path, "openstack/latest/vendor_data.json")) == {}


def test_the_volume_has_the_label_that_guests_look_for(tmp_path: Path) -> None:
    path = tmp_path / "disk.config"
    configdrive.make(str(path), make_spec())
    assert path.read_bytes()[32808:32840].rstrip() == b"config-2"


def test_only_its_owner_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "disk.config"
    old = os.umask(0)
    try:
        configdrive.make(str(path), make_spec(admin_password="s3cret"))
    finally:
        os.umask(old)
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_was_not_given_is_left_out() -> None:
    files = configdrive.files_of(make_spec())
    meta = json.loads(files["openstack/latest/meta_data.json"])
    assert not {"admin_pass", "public_keys", "files"} & set(meta)
    assert "openstack/latest/user_data" not in files


@pytest.mark.parametrize(("data", "kind"), [("ssh-ed25519 AAAA", "ssh"), ("-----BEGIN CERTIFICATE-----\nx", "x509")])
def test_a_key_is_told_with_its_type(data: str, kind: str) -> None:
    files = configdrive.files_of(make_spec(instance=make_instance(key_name="mine", key_data=data)))
    meta = json.loads(files["openstack/latest/meta_data.json"])
    assert meta["keys"] == [{"name": "mine", "type": kind, "data": data}]


def test_network_data_holds_all_that_a_static_setup_needs() -> None:
    vif = make_vif(network=make_network(dns=["9.9.9.9"], mtu=1450))
    data = configdrive.network_data([vif])
    (link,), (network,) = data["links"], data["networks"]
    assert (link["ethernet_mac_address"], link["mtu"]) == (vif.mac_address, 1450)
    assert network["link"] == link["id"]
    assert (network["type"], network["ip_address"], network["netmask"]) == ("ipv4", vif.address, "255.255.255.0")
    assert network["routes"] == [{"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "10.76.0.1"}]
    assert data["services"] == [{"type": "dns", "address": "9.9.9.9"}]


def test_a_network_without_gateway_has_no_route() -> None:
    assert configdrive.network_data([make_vif(network=make_network(gateway=None))])["networks"][0]["routes"] == []


@pytest.mark.parametrize("spec", [{"user_data": "not base64!"}, {"injected": "%%%"}])
def test_data_that_is_not_base64_is_refused(tmp_path: Path, spec: dict[str, str]) -> None:
    instance = make_instance(user_data=spec.get("user_data"))
    injected = {"/etc/x": spec["injected"]} if "injected" in spec else {}
    with pytest.raises(exception.ConfigDriveInvalid, match="base64"):
        configdrive.make(str(tmp_path / "disk.config"), make_spec(instance=instance, injected_files=injected))


@pytest.mark.parametrize(
    ("asked", "properties", "forced", "wanted"),
    [
        (False, {}, False, False),
        (True, {}, False, True),
        (False, {"img_config_drive": "mandatory"}, False, True),
        (False, {"img_config_drive": "optional"}, False, False),
        (False, {}, True, True),
    ],
)
def test_who_gets_a_config_drive(asked: bool, properties: dict[str, str], forced: bool, wanted: bool) -> None:
    image = Image(id="i", name="i", properties=properties)
    assert configdrive.is_wanted(make_instance(config_drive=asked), image, forced) is wanted
