"""Encrypted volumes of real guests: guests read and write plain data, and the files have none of it."""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import libvirt
import msgspec
import pytest

from nova_lite.base import exceptions
from nova_lite.objects import EncryptedDisk, VolumeKey, VolumeVerb, VolumeWork
from nova_lite.virt import images as disk_images
from nova_lite.virt.abilities import SpawnSpec
from nova_lite.virt.libvirt.driver import LibvirtDriver
from nova_lite.volume.local import GIB, LocalVolumes
from tests.integration import scripts
from tests.integration.libvirt import hosts
from tests.integration.libvirt.conftest import PATIENCE, Images, MakeHost, guest_spec
from tests.integration.libvirt.guests import WATCHES
from tests.integration.libvirt.moves import arriving, migrate
from tests.integration.libvirt.volumes import device, local_volumes
from tests.support.waiting import wait_for

MARK = b"marked-by-"

#: Writes its mark to a volume. An encrypted volume without data has random ones for a guest, so only letters are shown.
SCRIPT = WATCHES.replace("tr -d '\\000\\n'", "head -c 13 | tr -cd 'a-z-'")


class Keys:
    """Keys by volume, as a conductor has them."""

    def __init__(self) -> None:
        self.known: dict[str, VolumeKey] = {}

    def get(self, volume_id: str) -> VolumeKey:
        if volume_id not in self.known:
            raise exceptions.VolumeKeyUnavailable(volume_id=volume_id, reason="it was destroyed")
        return self.known[volume_id]


@pytest.fixture
def keys() -> Keys:
    return Keys()


@pytest.fixture
def volumes(directory: Path, keys: Keys) -> LocalVolumes:
    made = local_volumes(directory)
    made.volume_key = keys.get
    return made


def make_volume(volumes: LocalVolumes, keys: Keys, passphrase: str = "", **source: Any) -> str:
    volume_id = str(uuid.uuid4())
    keys.known[volume_id] = VolumeKey(passphrase=passphrase or uuid.uuid4().hex)
    work = {"id": 1, "verb": VolumeVerb.CREATE, "volume_id": volume_id, "size": 1, "encrypted": True}
    volumes.create(VolumeWork(**work, **source))
    return volume_id


def watching(images: Images, volume_id: str, name: str) -> SpawnSpec:
    script = SCRIPT.replace("SERIAL", volume_id[:20]).replace("NAME", name)
    return guest_spec(images, [], config_drive=True, user_data=scripts.user_data(script))


def wait_for_line(driver: LibvirtDriver, spec: SpawnSpec, text: str) -> None:
    wait_for(f"{text!r} on the console", lambda: text in driver.consoles.output(spec.instance.uuid, None), PATIENCE)


def require_ciphertext(path: str) -> None:
    """Look for the mark in the file, where a guest writes it and anywhere else."""
    with open(path, "rb") as file:
        while chunk := file.read(16 * 1024**2):
            assert MARK not in chunk, f"{path} has plain data"
            if file.tell() > 64 * 1024**2:
                break


def test_mark_of_a_guest_is_read_by_another_and_not_found_in_the_file(
    connection: Any, driver: LibvirtDriver, images: Images, volumes: LocalVolumes, keys: Keys, tmp_path: Path
) -> None:
    """The guest's volume is also copied and extended in use. The key is in libvirt for a moment only."""
    driver.volume_key = keys.get
    volume_id = make_volume(volumes, keys)
    path = volumes.require(volume_id)
    source = EncryptedDisk(path=path)
    one, two = watching(images, volume_id, "one"), watching(images, volume_id, "two")
    driver.guests.spawn(one)
    wait_for_line(driver, one, "nova-lite-guest: instance=")

    key = keys.known.pop(volume_id)
    for wrong, reason in ((None, "it was destroyed"), (VolumeKey(passphrase="no"), "does not fit its data")):
        keys.known |= {} if wrong is None else {volume_id: wrong}
        with pytest.raises(exceptions.NovaLiteException, match=reason) as caught:
            driver.volumes.attach(one.instance.uuid, device(volume_id, "/dev/vdc"), source)
        assert "\n" not in caught.value.message
        definition = connection.lookupByUUIDString(one.instance.uuid).XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
        assert volume_id not in definition

    keys.known[volume_id] = key
    driver.volumes.attach(one.instance.uuid, device(volume_id, "/dev/vdc"), source)
    wait_for_line(driver, one, f"sectors {GIB // 512}")
    wait_for_line(driver, one, "volume marked")
    assert volume_id not in {secret.UUIDString() for secret in connection.listAllSecrets()}
    xml = connection.lookupByUUIDString(one.instance.uuid).XMLDesc(libvirt.VIR_DOMAIN_XML_SECURE)
    assert f'<secret type="passphrase" uuid="{volume_id}"/>'.replace('"', "'") in xml
    assert key.passphrase not in xml

    def copy(parts: Mapping[str, str]) -> None:
        copies = {known: (volumes.require(known), part) for known, part in parts.items()}
        driver.volume_copies.copy(one.instance.uuid, copies, lambda: None)

    snapshot = str(uuid.uuid4())
    volumes.create_snapshots_in_use({volume_id: snapshot}, copy, contextlib.nullcontext)
    volumes.extend(volume_id, 2)
    driver.volumes.extend(one.instance.uuid, volume_id, 2 * GIB)
    wait_for_line(driver, one, f"volume has {2 * GIB // 512} sectors")
    driver.volumes.detach(one.instance.uuid, volume_id, 60)
    wait_for_line(driver, one, "volume released")
    driver.guests.destroy(one.instance.uuid)

    copied = make_volume(volumes, keys, key.passphrase, source_snapshot=snapshot)
    for known in (volume_id, copied):
        require_ciphertext(volumes.require(known))
    driver.guests.spawn(two)
    wait_for_line(driver, two, "nova-lite-guest: instance=")
    driver.power.off(two.instance.uuid, 0)
    driver.volumes.attach(two.instance.uuid, device(volume_id, "/dev/vdc"), source)
    driver.power.on(two.instance.uuid)
    wait_for_line(driver, two, f"volume: marked-by-one, sectors {2 * GIB // 512}")
    driver.guests.destroy(two.instance.uuid)
    assert marks(volumes.require(copied), key, tmp_path).startswith(b"marked-by-one")


def marks(path: str, key: VolumeKey, directory: Path) -> bytes:
    """Read the sector that guests mark, with the key of the volume."""
    secret, target = directory / "passphrase", directory / "sector"
    secret.write_text(key.passphrase)
    command = ("qemu-img", "dd", "--object", f"secret,id=k,file={secret}", "--image-opts", "bs=512", "skip=1024")
    disk_images.run(*command, "count=1025", f"if=driver=luks,key-secret=k,file.filename={path}", f"of={target}")
    return target.read_bytes()


def test_guest_boots_from_an_encrypted_volume_and_moves_with_it(
    make_host: MakeHost, images: Images, volumes: LocalVolumes, keys: Keys
) -> None:
    options = {"live_migration_uri": hosts.URI}
    here, there = make_host("here", hosts.HERE, **options), make_host("there", hosts.THERE, **options)
    here.volume_key = there.volume_key = keys.get
    volume_id = make_volume(volumes, keys, image=images.disk)
    plain = guest_spec(
        images, [], images.disk, config_drive=True, user_data=scripts.user_data(scripts.MARKS), memory_mb=128
    )
    root = device(volume_id, "/dev/vda", boot_index=0)
    instance = msgspec.structs.replace(plain.instance, block_devices=[root])
    path = volumes.require(volume_id)
    spec = msgspec.structs.replace(plain, instance=instance, volumes={volume_id: EncryptedDisk(path=path)})
    here.guests.spawn(spec)
    wait_for_line(here, spec, "mark written")
    migrate(here, there, arriving(spec, 2))
    there.live_moves.finish(spec.instance.uuid)
    here.guests.destroy(spec.instance.uuid)
    there.power.reboot(spec.instance.uuid, "HARD", 0)
    wait_for_line(there, spec, "on disk: marked-by-a-guest")
    there.guests.destroy(spec.instance.uuid)
    require_ciphertext(path)
    assert re.search(r"/luks/[0-9a-f-]{36}$", path)
