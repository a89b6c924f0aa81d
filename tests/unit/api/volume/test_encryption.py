"""Encrypted volumes in the volume API."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nova_lite.base import master_keys
from tests.support.api_client import ADMIN, STRANGER, fault
from tests.support.volume_api import NOBODY, Volumes

ENCRYPTION = {"provider": "luks", "cipher": "aes-xts-plain64", "key_size": 256, "control_location": "front-end"}
UUID = re.compile(r"[0-9a-f-]{36}")


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Volumes]:
    made = Volumes(tmp_path)
    path = str(tmp_path / "volume-keys")
    master_keys.provide(path)
    made.services.conf.set_override("encryption_key_file", path, "volume")
    new_type(made, "secret", ENCRYPTION)
    yield made
    made.manager.close()


def new_type(api: Volumes, name: str, encryption: dict[str, Any] | None = None) -> str:
    made = api("POST", "/types", {"volume_type": {"name": name}}, token=ADMIN).json["volume_type"]["id"]
    if encryption is not None:
        response = api("POST", f"/types/{made}/encryption", {"encryption": encryption}, token=ADMIN)
        assert response.status_code == 200, response.text
    return str(made)


def test_volume_shows_its_encryption_and_no_key(api: Volumes) -> None:
    volume_id = api.make(volume_type="secret")
    one = f"/volumes/{volume_id}"
    assert api("GET", one).json["volume"]["encrypted"] is True
    assert [shown["encrypted"] for shown in api("GET", "/volumes/detail").json["volumes"]] == [True]
    shown = api("GET", f"{one}/encryption").json
    assert UUID.fullmatch(shown["encryption_key_id"])
    assert shown == {**ENCRYPTION, "encryption_key_id": shown["encryption_key_id"]}
    assert api("GET", f"{one}/encryption/cipher").json == {"cipher": "aes-xts-plain64"}
    assert api("GET", f"{one}/encryption/passphrase").status_code == 404
    for version, has_key in (("3.63", False), ("3.64", True)):
        volume = api("GET", one, version=version).json["volume"]
        assert volume.get("encryption_key_id") == (shown["encryption_key_id"] if has_key else None)


def test_plain_volume_has_no_encryption(api: Volumes) -> None:
    one = f"/volumes/{api.make()}"
    assert api("GET", one, version="3.68").json["volume"]["encrypted"] is False
    assert "encryption_key_id" not in api("GET", one, version="3.68").json["volume"]
    assert api("GET", f"{one}/encryption").json == {"encryption_key_id": None}
    assert api("GET", f"{one}/encryption/encryption_key_id").json == {"encryption_key_id": None}
    assert api("GET", f"{one}/encryption/cipher").status_code == 404


def test_encryption_of_another_project_is_not_found(api: Volumes) -> None:
    one = f"/volumes/{api.make(volume_type='secret')}"
    for path in (f"{one}/encryption", f"{one}/encryption/encryption_key_id", f"/volumes/{NOBODY}/encryption"):
        assert api("GET", path, token=STRANGER).status_code == 404


def test_backup_shows_the_key_of_its_own_and_its_record_has_no_secret(api: Volumes) -> None:
    volume_id = api.make(volume_type="secret")
    made = api("POST", "/backups", {"backup": {"volume_id": volume_id}}).json["backup"]["id"]
    api.done()
    shown = api("GET", f"/backups/{made}", version="3.64").json["backup"]
    key_of_volume = api("GET", f"/volumes/{volume_id}/encryption").json["encryption_key_id"]
    assert UUID.fullmatch(shown["encryption_key_id"])
    assert shown["encryption_key_id"] != key_of_volume
    assert "encryption_key_id" not in api("GET", f"/backups/{made}").json["backup"]


def test_encryption_of_a_type_with_volumes_is_unchanged(api: Volumes) -> None:
    api.make(volume_type="secret")
    (kind,) = (kind for kind in api("GET", "/types", token=ADMIN).json["volume_types"] if kind["name"] == "secret")
    path = f"/types/{kind['id']}/encryption"
    one = f"{path}/{api('GET', path, token=ADMIN).json['encryption_id']}"
    for response in (
        api("PUT", one, {"encryption": {"key_size": 128}}, token=ADMIN),
        api("DELETE", one, token=ADMIN),
        api("DELETE", f"/types/{kind['id']}", token=ADMIN),
    ):
        assert "is in use" in fault(response, "badRequest", 400)
    assert kind["is_public"] is True


def test_transfer_of_an_encrypted_volume_is_refused_as_by_cinder(api: Volumes) -> None:
    volume_id = api.make(volume_type="secret")
    response = api("POST", "/os-volume-transfer", {"transfer": {"volume_id": volume_id}})
    assert fault(response, "badRequest", 400) == ("Invalid volume: transferring encrypted volume is not supported")


def test_image_of_an_encrypted_volume_is_refused(api: Volumes) -> None:
    volume_id = api.make(volume_type="secret")
    body = {"os-volume_upload_image": {"image_name": "plain"}}
    assert "images are plain" in fault(api("POST", f"/volumes/{volume_id}/action", body), "badRequest", 400)
