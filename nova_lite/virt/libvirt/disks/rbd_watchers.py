"""Programs that have RBD images of volumes open: two guests must not have one.

qemu's lock of an RBD image is passed on to whoever asks for it. So two guests could write by turns. Every program that
writes watches its image, at all hosts. This is the second line of defence: fencing and generations have decided before
that no other guest has the volume. Ceph forgets a lost program after 30 s.

Only the volumes of the built-in service are looked at: their disks name a file of Ceph's configuration. Shareable
disks are left out, because other servers have them open, too.
"""

from __future__ import annotations

import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Iterator

from nova_lite.base import exceptions
from nova_lite.base.timing import LibvirtTiming
from nova_lite.virt.rbd import PROTOCOL, Rbd


def wait_until_free(
    instance_uuid: str, disks: Iterable[ET.Element], check: Callable[[], None], timing: LibvirtTiming
) -> None:
    """Wait until no program has the RBD images among these disks open.

    Raises `DiskInUse` after ``timing.disk_lock_wait``, and `VirtDriverError` if Ceph does not answer. ``check`` may end
    it by raising.
    """
    deadline = time.monotonic() + timing.disk_lock_wait
    for rbd, image in _images(disks):
        while rbd.watchers(image):
            if time.monotonic() >= deadline:
                raise exceptions.DiskInUse(instance_uuid=instance_uuid, disk=image)
            check()
            time.sleep(timing.disk_lock_poll)


def _images(disks: Iterable[ET.Element]) -> Iterator[tuple[Rbd, str]]:
    for disk in disks:
        source = disk.find("source")
        config = None if source is None else source.find("config")
        if source is None or config is None or source.get("protocol") != PROTOCOL:
            continue
        if disk.find("shareable") is not None:
            continue
        auth = source.find("auth")
        yield Rbd(config.get("file", ""), None if auth is None else auth.get("username")), source.get("name", "")
