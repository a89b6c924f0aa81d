"""The image cache of a host with a real guest, whose images stay as long as the guest exists."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from nova_lite.virt.libvirt.driver import LibvirtDriver
from tests.integration.libvirt.conftest import Images, guest_spec

AGE = 3600.0


def make_old(driver: LibvirtDriver, *names: str) -> None:
    then = time.time() - 2 * AGE
    for name in names:
        os.utime(Path(driver._records.base_path, name), (then, then))


def test_images_of_a_guest_stay_until_it_is_gone(driver: LibvirtDriver, images: Images) -> None:
    """The directory belongs to the whole session: images of other tests are recent."""
    spec = guest_spec(images, [])
    mine = (images.ami.id, images.kernel.id, images.ramdisk.id)
    driver.guests.spawn(spec)
    driver.power.off(spec.instance.uuid, 0)
    make_old(driver, *mine)
    assert driver.images.remove_unused(AGE) == []

    record = Path(driver._records.directory(spec.instance.uuid), "instance.json")
    content = json.loads(record.read_text())
    assert content.pop("images"), "the record contains them"
    record.write_text(json.dumps(content))
    assert driver.images.remove_unused(AGE) == [], "images of a guest without such a record stay, too"

    driver.guests.destroy(spec.instance.uuid)
    assert sorted(driver.images.remove_unused(AGE)) == sorted(mine)
    assert not any(Path(driver._records.base_path, name).exists() for name in mine)
    driver.guests.spawn(spec)
    driver.guests.destroy(spec.instance.uuid)
