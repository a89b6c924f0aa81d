"""Encrypted disks of real guests: the guests see plain data, and the files and libvirt's definitions have none.

`NOVA_LITE_LONG=1` runs rescues and moves, too.
"""

from __future__ import annotations

import uuid
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import libvirt
import msgspec
import pytest

from nova_lite.base import exceptions
from nova_lite.image import luks
from nova_lite.objects import VolumeKey, disk_key_id
from nova_lite.virt.abilities import BackupRequest, SpawnSpec
from nova_lite.virt.libvirt.driver import LibvirtDriver
from tests.integration import scripts
from tests.integration.libvirt import hosts
from tests.integration.libvirt.conftest import LONG, PATIENCE, Images, MakeDriver, MakeHost, guest_spec
from tests.integration.libvirt.moves import arriving, instance_path, lines, migrate, wait_for_count
from tests.support.waiting import wait_for

MARK = b"marked-by-a-guest"
#: Marks the root disk, shows its former mark, and uses the swap area.
SCRIPT = scripts.MARKS + 'swapon /dev/vdb && echo "swap in use"\n' + scripts.COUNTS
ENCRYPTED = ("disk.luks", "disk.swap")


class Keys:
    """Keys by server and role, as a conductor has them."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, str], VolumeKey] = {}

    def get(self, instance_uuid: str, role: str) -> VolumeKey:
        return self.known.setdefault((instance_uuid, role), VolumeKey(passphrase=uuid.uuid4().hex))


@pytest.fixture
def keys() -> Keys:
    return Keys()


def encrypted_spec(images: Images) -> SpawnSpec:
    image = msgspec.structs.replace(images.ami, properties=images.ami.properties | {"hw_ephemeral_encryption": "yes"})
    spec = guest_spec(images, [], image, config_drive=True, user_data=scripts.user_data(SCRIPT))
    return arriving(spec, 1, swap=8, root_gb=0)


def wait_for_start(driver: LibvirtDriver, spec: SpawnSpec, number: int, found: str) -> None:
    wait_for(f"swap of start {number}", lambda: len(lines(driver, spec, "swap in use")) >= number, PATIENCE)
    assert lines(driver, spec, "on disk:")[-1].startswith(f"on disk: {found},")


def require_ciphertext(driver: LibvirtDriver, spec: SpawnSpec, keys: Keys) -> None:
    for name in ENCRYPTED:
        data = Path(instance_path(driver, spec), name).read_bytes()[: 64 * 1024**2]
        assert data.startswith(luks.MAGIC), f"{name} is not encrypted"
        for plain in (MARK, b"SWAPSPACE2", *(key.passphrase.encode() for key in keys.known.values())):
            assert plain not in data, f"{name} has {plain!r}"


def require_no_secret(connection: Any, keys: Keys) -> None:
    left = {secret.UUIDString() for secret in connection.listAllSecrets()}
    assert left.isdisjoint(disk_key_id(*owner) for owner in keys.known)


def test_disks_of_a_guest_are_ciphertext_and_its_own_again_after_a_restart(
    connection: Any, make_driver: MakeDriver, images: Images, keys: Keys
) -> None:
    driver = make_driver("encrypts")
    driver.disk_key = keys.get
    spec = encrypted_spec(images)
    instance_uuid = spec.instance.uuid
    driver.guests.spawn(spec)
    wait_for_start(driver, spec, 1, "nothing")
    assert {role for _, role in keys.known} == {"root", "swap"}
    require_no_secret(connection, keys)
    xml = connection.lookupByUUIDString(instance_uuid).XMLDesc(libvirt.VIR_DOMAIN_XML_SECURE)
    assert xml.count("<encryption format='luks'") == len(ENCRYPTED)
    assert not any(key.passphrase in xml for key in keys.known.values())
    with pytest.raises(exceptions.NotImplementedByDriver, match="an image of an encrypted disk"):
        driver.snapshots.take(instance_uuid, "/nowhere/image", lambda: None)
    with pytest.raises(exceptions.NotImplementedByDriver, match="an image of an encrypted disk"):
        driver.backups.take(instance_uuid, "/nowhere/image", BackupRequest(backup_id="1"), lambda: None, nullcontext)

    driver.power.reboot(instance_uuid, "HARD", 0)
    wait_for_start(driver, spec, 2, MARK.decode())
    require_ciphertext(driver, spec, keys)
    require_no_secret(connection, keys)


@LONG
def test_encrypted_disks_survive_a_suspension_and_a_rescue_and_need_their_key(
    connection: Any, make_driver: MakeDriver, images: Images, keys: Keys
) -> None:
    driver = make_driver("encrypts")
    driver.disk_key = keys.get
    spec = encrypted_spec(images)
    instance_uuid = spec.instance.uuid
    driver.guests.spawn(spec)
    wait_for_count(driver, spec, 5)
    driver.standby.suspend(instance_uuid)
    driver.standby.resume(instance_uuid)
    wait_for_count(driver, spec, 10)

    rescue = msgspec.structs.replace(spec, image=images.ami)
    driver.rescue.start(rescue, 0)
    assert (instance_uuid, "rescue") in keys.known
    assert Path(instance_path(driver, spec), "disk.rescue").read_bytes().startswith(luks.MAGIC)
    wait_for("rescue system", lambda: len(lines(driver, spec, "on disk: nothing")) == 2, PATIENCE)
    driver.rescue.end(instance_uuid)

    wait_for_start(driver, spec, 2, MARK.decode())
    kept = keys.known.pop((instance_uuid, "root"))
    driver.power.off(instance_uuid, 0)
    with pytest.raises(exceptions.InstancePowerOnFailure):
        driver.power.on(instance_uuid)
    keys.known[instance_uuid, "root"] = kept
    require_no_secret(connection, keys)


@LONG
def test_disks_move_cold_and_live_without_being_written_in_plain(
    connection: Any, make_host: MakeHost, images: Images, keys: Keys
) -> None:
    here = make_host("here", hosts.HERE, live_migration_uri=hosts.URI)
    there = make_host("there", hosts.THERE, live_migration_uri=hosts.URI)
    here.disk_key = there.disk_key = keys.get
    spec = encrypted_spec(images)
    instance_uuid = spec.instance.uuid
    here.guests.spawn(spec)
    wait_for_start(here, spec, 1, "nothing")
    wait_for_count(here, spec, 5)

    moved = arriving(spec)
    migrate(here, there, moved)
    there.live_moves.finish(instance_uuid)
    here.guests.destroy(instance_uuid)
    wait_for_count(there, moved, 5)
    there.power.reboot(instance_uuid, "HARD", 0)
    wait_for("mark after the live migration", lambda: lines(there, moved, "swap in use"), PATIENCE)
    assert MARK.decode() in lines(there, moved, "on disk:")[-1]
    require_ciphertext(there, moved, keys)

    back = arriving(spec, 3, root_gb=1, swap=16)
    source = there.moves.offer_disks(instance_uuid, 0)
    here.moves.finish(back, source, power_on=True)
    wait_for_start(here, back, 1, MARK.decode())
    assert lines(here, back, "on disk:")[0].endswith(f"sectors {1024**3 // 512}")
    require_ciphertext(here, back, keys)
    require_no_secret(connection, keys)
