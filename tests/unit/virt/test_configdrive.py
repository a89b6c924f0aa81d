from __future__ import annotations

import base64
import io
import json
import os
from pathlib import Path
from typing import Any

import pycdlib
import pytest

from nova_lite.base import exceptions
from nova_lite.metadata.vendordata import VendorData
from nova_lite.objects import Image
from nova_lite.virt import configdrive
from tests.support.config_drives import drives, make_conf
from tests.support.guests import make_instance, make_network, make_spec, make_vif

DRIVES = drives(None)
NO_VENDOR = VendorData(make_conf())


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def read(path: Path, name: str, names: str = "rr_path") -> bytes:
    volume = pycdlib.PyCdlib()
    volume.open(str(path))
    content = io.BytesIO()
    volume.get_file_from_iso_fp(content, **{names: f"/{name}"})
    volume.close()
    return content.getvalue()


def test_config_drive_contains_the_metadata(tmp_path: Path) -> None:
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

    DRIVES.make(str(path), spec)

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


def test_config_drive_has_the_expected_label(tmp_path: Path) -> None:
    path = tmp_path / "disk.config"
    DRIVES.make(str(path), make_spec())
    assert path.read_bytes()[32808:32840].rstrip() == b"config-2"


def test_config_drive_is_readable_only_by_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "disk.config"
    old = os.umask(0)
    try:
        DRIVES.make(str(path), make_spec(admin_password="s3cret"))
    finally:
        os.umask(old)
    assert path.stat().st_mode & 0o777 == 0o600


def test_config_drive_omits_missing_values() -> None:
    files = configdrive.files_of(make_spec(), NO_VENDOR)
    meta = json.loads(files["openstack/latest/meta_data.json"])
    assert not {"admin_pass", "public_keys", "files"} & set(meta)
    assert "openstack/latest/user_data" not in files


@pytest.mark.parametrize(("data", "kind"), [("ssh-ed25519 AAAA", "ssh"), ("-----BEGIN CERTIFICATE-----\nx", "x509")])
def test_config_drive_contains_the_type_of_a_key(data: str, kind: str) -> None:
    files = configdrive.files_of(make_spec(instance=make_instance(key_name="mine", key_data=data)), NO_VENDOR)
    meta = json.loads(files["openstack/latest/meta_data.json"])
    assert meta["keys"] == [{"name": "mine", "type": kind, "data": data}]


@pytest.mark.parametrize("spec", [{"user_data": "not base64!"}, {"injected": "%%%"}])
def test_config_drive_rejects_data_that_is_not_base64(tmp_path: Path, spec: dict[str, str]) -> None:
    instance = make_instance(user_data=spec.get("user_data"))
    injected = {"/etc/x": spec["injected"]} if "injected" in spec else {}
    with pytest.raises(exceptions.ConfigDriveInvalid, match="base64"):
        DRIVES.make(str(tmp_path / "disk.config"), make_spec(instance=instance, injected_files=injected))


@pytest.mark.parametrize(
    ("changes", "forced", "metadata", "expected"),
    [
        ({}, None, True, False),
        ({}, None, False, True),
        ({}, True, True, True),
        ({}, False, False, False),
        ({"requested": True}, False, True, True),
        ({"requested": True}, None, True, True),
        ({"img_config_drive": "mandatory"}, False, True, True),
        ({"img_config_drive": "mandatory"}, None, True, True),
        ({"img_config_drive": "optional"}, False, False, False),
        ({"injected": True}, None, True, True),
        ({"injected": True}, False, True, False),
    ],
)
def test_config_drive_is_made_if_requested_or_necessary(
    changes: dict[str, Any], forced: bool | None, metadata: bool, expected: bool
) -> None:
    """A guest with a key or user data always gets a drive, unless the operator or a metadata service makes it
    unnecessary."""
    vif = make_vif()
    spec = make_spec(
        instance=make_instance(config_drive=changes.pop("requested", False)),
        vifs=[vif],
        injected_files={"/etc/motd": b64(b"hello")} if changes.pop("injected", False) else {},
        image=Image(id="i", name="i", properties=changes),
    )
    assert drives(forced, reach=lambda vifs: metadata and vifs == [vif]).is_wanted(spec) is expected


def test_config_drive_contains_all_dated_versions() -> None:
    files = configdrive.files_of(make_spec(instance=make_instance(user_data=b64(b"x"))), NO_VENDOR)
    of = {
        version: {name.split("/")[2] for name in files if name.startswith(f"openstack/{version}/")}
        for version in ("2012-08-10", "2013-10-17", "2015-10-15", "2025-04-04", "latest")
    }
    assert of["2012-08-10"] == {"meta_data.json", "user_data"}
    assert of["2013-10-17"] == of["2012-08-10"] | {"vendor_data.json"}
    assert of["2015-10-15"] == of["2013-10-17"] | {"network_data.json"}
    assert of["2025-04-04"] == of["latest"] == of["2015-10-15"] | {"vendor_data2.json"}
    assert files["ec2/latest/user-data"] == files["ec2/2009-04-04/user-data"] == b"x"
