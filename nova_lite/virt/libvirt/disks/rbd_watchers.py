"""Programs that have RBD images of volumes open: two guests must not have one.

qemu's lock of an RBD image is passed on to whoever asks for it. So two guests could write by turns. Every program that
writes watches its image, at all hosts. This is the second line of defence: fencing and generations have decided before
that no other guest has the volume. Ceph forgets a lost program after 30 s.

Only the volumes of the built-in service are looked at: the domain names their file of Ceph's configuration.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from nova_lite.base import exceptions
from nova_lite.base.timing import LibvirtTiming
from nova_lite.virt.libvirt.disks.volumes import disks_of
from nova_lite.virt.rbd import PROTOCOL, Rbd


def wait_until_free(instance_uuid: str, xml: str, check: Callable[[], None], timing: LibvirtTiming) -> None:
    """Wait until no program has the RBD images of a domain open. Raises `DiskInUse` after ``timing.disk_lock_wait``.

    ``check`` may end it by raising. Raises `VirtDriverError` if Ceph does not answer.
    """
    deadline = time.monotonic() + timing.disk_lock_wait
    for rbd, image in _images(xml):
        while rbd.watchers(image):
            if time.monotonic() >= deadline:
                raise exceptions.DiskInUse(instance_uuid=instance_uuid, disk=image)
            check()
            time.sleep(timing.disk_lock_poll)


def _images(xml: str) -> Iterator[tuple[Rbd, str]]:
    for disk in disks_of(xml):
        source = disk.find("source")
        config = None if source is None else source.find("config")
        if source is None or config is None or source.get("protocol") != PROTOCOL:
            continue
        auth = source.find("auth")
        yield Rbd(config.get("file", ""), None if auth is None else auth.get("username")), source.get("name", "")
