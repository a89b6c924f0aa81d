"""Disks of real guests: in one directory that all hosts see, or as volumes in a Ceph.

`Directory` and `Pool` prepare a cloud of `tests.faults.real_failover` for either.
"""

from __future__ import annotations

import abc
import os
import shutil
import uuid
from pathlib import Path
from typing import Any

from nova_lite import objects
from nova_lite.db.core.engine import Database
from nova_lite.db.hosts import host_storage
from nova_lite.db.image import images
from nova_lite.virt.rbd import Rbd
from nova_lite.volume import rbd
from tests.functional import cloud
from tests.integration.ceph import POOL, USER, Ceph, secret_xml

VOLUMES = """
[volume]
backend = rbd
rbd_pool = {pool}
rbd_user = {user}
rbd_ceph_conf = {config}
rbd_secret_uuid = {secret}
"""


class Disks(abc.ABC):
    """Disks of a cloud's guests. ``config``: what daemons have to know of them. ``request``: what a server asks for."""

    config = ""
    request: dict[str, Any] = {}

    @abc.abstractmethod
    def directory(self, host: str) -> Path:
        """Return the directory that a host has as ``[compute] instances_path``."""

    def start(self) -> None:  # noqa: B027 optional
        """Make the storage."""

    def stop(self) -> None:  # noqa: B027 optional
        """End the storage."""

    def prepare(self, etc: Path) -> None:  # noqa: B027 optional
        """Add to the configuration of a host's libvirt what its guests need."""

    @abc.abstractmethod
    def add_image(self, running: cloud.Cloud, db: Database, guest: Path) -> None:
        """Add the image of the guest, whose files are in a directory."""

    @abc.abstractmethod
    def is_ready(self, running: cloud.Cloud, db: Database) -> bool:
        """Check whether guests may move."""

    @abc.abstractmethod
    def console(self, guest: str) -> str:
        """Return the console of a guest, from its first boot."""

    @abc.abstractmethod
    def left(self, guests: list[str]) -> list[str]:
        """Return the disks that deleted guests have left."""


class Directory(Disks):
    """A directory that all hosts see."""

    def __init__(self, path: Path) -> None:
        self._path = path / "disks"
        self._path.mkdir()

    def directory(self, host: str) -> Path:
        return self._path

    def add_image(self, running: cloud.Cloud, db: Database, guest: Path) -> None:
        """Add an image with its kernel and ramdisk."""
        kernel, ramdisk = str(uuid.uuid4()), str(uuid.uuid4())
        files = {kernel: ("vmlinuz", "aki"), ramdisk: ("initrd.img", "ari"), str(uuid.uuid4()): ("root.img", "ami")}
        words = {"kernel_id": kernel, "ramdisk_id": ramdisk, "os_command_line": (guest / "cmdline").read_text().strip()}
        for number, (name, kind) in files.items():
            running.image_id = _add(running, db, guest / name, kind, words if kind == "ami" else {}, number)

    def is_ready(self, running: cloud.Cloud, db: Database) -> bool:
        """Check whether the hosts know that they share the disks."""
        others = len(running.computes) - 1
        return all(len(db.read(host_storage.sharing, host)) == others for host in running.computes)

    def console(self, guest: str) -> str:
        for path in self._path.glob(f"{guest}*/console.log"):
            return path.read_text(errors="replace")
        return ""

    def left(self, guests: list[str]) -> list[str]:
        return [str(path) for guest in guests for path in self._path.glob(f"{guest}*")]


class Pool(Disks):
    """A Ceph of one node. Guests boot from volumes, and their hosts share nothing else."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ceph = Ceph(path)
        self._secret = str(uuid.uuid4())
        self._rbd = Rbd(str(self._ceph.config), USER)
        #: Texts of the consoles by guest and by directory, in the order in which they began.
        self._consoles: dict[str, dict[Path, str]] = {}
        self.config = VOLUMES.format(pool=POOL, user=USER, config=self._ceph.config, secret=self._secret)

    def directory(self, host: str) -> Path:
        found = self._path / f"disks-{host}"
        found.mkdir(exist_ok=True)
        return found

    def start(self) -> None:
        self._ceph.start()

    def stop(self) -> None:
        self._ceph.stop()

    def prepare(self, etc: Path) -> None:
        """Give the key of Ceph's user to libvirt."""
        secrets = etc / "secrets"
        secrets.mkdir(mode=0o700, exist_ok=True)
        xml = secret_xml(self._secret, ephemeral=False)
        for ending, text in (("xml", xml), ("base64", self._ceph.key)):
            with os.fdopen(os.open(secrets / f"{self._secret}.{ending}", os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
                file.write(text)

    def add_image(self, running: cloud.Cloud, db: Database, guest: Path) -> None:
        """Add the image of a whole disk, which root volumes are made of."""
        running.image_id = _add(running, db, guest / "disk.qcow2", "qcow2", {}, str(uuid.uuid4()))
        root = {"boot_index": 0, "uuid": running.image_id, "source_type": "image", "destination_type": "volume"}
        root |= {"volume_size": 1, "delete_on_termination": True}
        self.request = {"imageRef": "", "block_device_mapping_v2": [root]}

    def is_ready(self, running: cloud.Cloud, db: Database) -> bool:
        return True

    def console(self, guest: str) -> str:
        """Return the output of all hosts' consoles. A host that returns removes its file."""
        texts = self._consoles.setdefault(guest, {})
        for path in self._path.glob(f"disks-*/{guest}*/console.log"):
            text = path.read_text(errors="replace")
            if len(text) >= len(texts.get(path.parent, "")):
                texts[path.parent] = text
        return "\n".join(texts.values())

    def left(self, guests: list[str]) -> list[str]:
        files = [str(path) for guest in guests for path in self._path.glob(f"disks-*/{guest}*")]
        return files + [name for name in self._rbd.images(POOL) if name.startswith(rbd.VOLUME)]


#: Kinds by the names that ``failover.sh --disks`` takes.
KINDS: dict[str, type[Directory] | type[Pool]] = {"directory": Directory, "rbd": Pool}


def _add(running: cloud.Cloud, db: Database, file: Path, kind: str, properties: dict[str, str], image_id: str) -> str:
    """Add an image. Return its id."""
    shutil.copyfile(file, running.path / "shared/images" / image_id)
    is_part = kind in ("aki", "ari", "ami")
    image = objects.Image(
        id=image_id,
        name=file.name,
        disk_format=kind,
        container_format=kind if is_part else "bare",
        size=file.stat().st_size,
        properties=properties,
    )
    db.write(images.create, image)
    return image_id
