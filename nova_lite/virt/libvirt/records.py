"""The driver's own files: a directory per instance, and a record of its interfaces.

::

    <instances_path>/<uuid>/instance.json    its owner; disks, config drive and console log are in the same directory
    <instances_path>/<uuid>@<host>/          the same, if another host with the same path has (or had) the first name
    <instances_path>/…@aside/                either of them, while the instance is resized on its own host
    <instances_path>/…@kept/                 either of them: the instance has left this host, but may need its disks
    <instances_path>/_interfaces/<uuid>.json what `Networks.plug` has created, so that `unplug` removes it
    <instances_path>/_base/                  image cache

Several compute daemons, of one machine or of several, may share ``instances_path``. Each sees only what has its host
name. A record is written before the objects that it describes are created, so that nothing exists without a record.

A host takes the disks of a server that was evacuated by renaming their directory. A rename succeeds once. Paths that
the other host uses lead nowhere afterwards, so it cannot remove or open these disks any more (docs/adr/0037).
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import uuid
from collections.abc import Collection, Iterator, Sequence
from typing import Protocol, TypeVar

import msgspec

from nova_lite.base import exceptions, files, trees
from nova_lite.objects import VIF
from nova_lite.objects.ready import prepare_decoders

LOG = logging.getLogger(__name__)

#: qemu's user must be able to access the files, but not to list the directory.
DIRECTORY_MODE = 0o711

INTERFACES = "_interfaces"
BASE = "_base"

RECORD = "instance.json"
#: Prefix of a directory that is being created.
UNFINISHED = ".new-"

#: Suffix of a directory that is set aside.
ASIDE = "@aside"

#: Suffix of a directory that is kept for another host.
KEPT = "@kept"


@contextlib.contextmanager
def file_errors() -> Iterator[None]:
    """Raise errors of the file system (full disk, missing permission) as a driver's error."""
    try:
        yield
    except OSError as error:
        raise exceptions.VirtDriverError(reason=str(error)) from error


class TakenFrom(msgspec.Struct, frozen=True):
    """Origin of taken disks: host and generation of their record, and the name of their directory."""

    host: str
    generation: int
    name: str


class InstanceRecord(msgspec.Struct, frozen=True):
    """Record of an instance. ``images``: ids of images that its disks are based on, or that it boots.

    ``taken``: the disks are taken, and the conductor has not confirmed yet that the instance runs here with them.
    ``pooled``: the disks are in a pool of Ceph, under the key of this generation.
    """

    uuid: str
    host: str
    generation: int
    images: list[str] = []
    taken: TakenFrom | None = None
    pooled: bool = False


class InterfaceRecord(msgspec.Struct, frozen=True):
    uuid: str
    host: str
    vifs: list[VIF]


prepare_decoders(InstanceRecord, InterfaceRecord)

R = TypeVar("R", InstanceRecord, InterfaceRecord)


class PoolRemover(Protocol):
    """Removal of disks in a pool of Ceph, by the key of a server and a generation (`key_of`)."""

    def remove(self, key: str) -> None:
        """Remove the disks of this key."""

    def remove_until(self, key: str) -> None:
        """Remove the server's disks of this generation, and of earlier ones."""

    def give_back(self, key: str, old: str) -> None:
        """Give disks the earlier key ``old`` again. If that has disks, these are clones of them, and are removed."""


class Records:
    """The files of the host ``host``. ``pool``: set if disks can be in a pool."""

    pool: PoolRemover

    def __init__(self, instances_path: str, host: str) -> None:
        self.instances_path = os.path.abspath(instances_path)
        self._host = host

    def prepare(self) -> None:
        """Create the directories, and remove what a crash of this host's daemon left incomplete."""
        for path in (self.instances_path, self.base_path, os.path.join(self.instances_path, INTERFACES)):
            os.makedirs(path, exist_ok=True)
            os.chmod(path, DIRECTORY_MODE)
        prefix = self._unfinished("")
        for name in os.listdir(self.instances_path):
            if name.startswith(prefix) and _is_uuid(name.removeprefix(prefix)):
                for left in trees.remove(os.path.join(self.instances_path, name)):
                    LOG.warning("An incomplete directory of an instance stays: %s", left)
        for path in (self.instances_path, os.path.join(self.instances_path, INTERFACES)):
            files.remove_unfinished(path, self._host)
        for path in self._own_directories():
            files.remove_unfinished(path)

    def _own_directories(self) -> list[str]:
        """Return the paths of this host's instance directories, including those set aside."""
        paths = [os.path.join(self.instances_path, name) for name in os.listdir(self.instances_path) if uuid_of(name)]
        return [path for path in paths if self._read(os.path.join(path, RECORD), InstanceRecord) is not None]

    @property
    def base_path(self) -> str:
        return os.path.join(self.instances_path, BASE)

    # --- instance directories

    def create(
        self,
        instance_uuid: str,
        generation: int,
        image_ids: Sequence[str] = (),
        beside: bool = False,
        pooled: bool = False,
        taken: TakenFrom | None = None,
    ) -> str:
        """Create the instance's directory and its record atomically, also in case of a power cut. Return its path.

        Raises OSError if another host's directory exists already, unless ``beside`` allows a second one. ``pooled``:
        the disks are in the pool, perhaps ``taken`` from another host.
        """
        record = InstanceRecord(instance_uuid, self._host, generation, list(image_ids), taken, pooled)
        unfinished = os.path.join(self.instances_path, self._unfinished(instance_uuid))
        trees.discard(unfinished)
        os.mkdir(unfinished)
        os.chmod(unfinished, DIRECTORY_MODE)
        files.write_atomically(os.path.join(unfinished, RECORD), msgspec.json.encode(record))
        path = self._plain(instance_uuid)
        if beside and os.path.lexists(path):
            path = self._beside(instance_uuid)
        try:
            os.rename(unfinished, path)
        except OSError:
            trees.discard(unfinished)
            raise
        files.sync_directory(self.instances_path)
        return path

    def directory(self, instance_uuid: str) -> str:
        """Return the path of the instance's directory, existing or not. Raises ValueError for an invalid uuid."""
        beside = self._beside(instance_uuid)
        return beside if os.path.isdir(beside) else self._plain(instance_uuid)

    def _plain(self, instance_uuid: str) -> str:
        return os.path.join(self.instances_path, str(uuid.UUID(instance_uuid)))

    def _beside(self, instance_uuid: str) -> str:
        return f"{self._plain(instance_uuid)}@{self._host}"

    def generation(self, instance_uuid: str) -> int | None:
        """Return the generation of the instance's directory, if this host has one."""
        record = self._read(os.path.join(self.directory(instance_uuid), RECORD), InstanceRecord)
        return None if record is None else record.generation

    def images_in(self, directory: str) -> list[str]:
        """Return the ids of images that the disks in a directory of this host are based on."""
        record = self._read(os.path.join(directory, RECORD), InstanceRecord)
        return [] if record is None else record.images

    def owns(self, instance_uuid: str) -> bool:
        """Check whether this host has a directory of the instance."""
        return self._read(os.path.join(self.directory(instance_uuid), RECORD), InstanceRecord) is not None

    def remove(self, instance_uuid: str) -> None:
        """Remove the instance's directory if it is this host's. The record is removed last.

        Disks that are taken, and not this host's permanently, return to their host instead: no others exist.
        """
        path = self.directory(instance_uuid)
        if not self._is_permanent(path):
            return
        self._remove_pooled(path)
        for name in os.listdir(path):
            if name != RECORD:
                trees.discard(os.path.join(path, name))
        trees.discard(path)

    def _remove_pooled(self, path: str) -> None:
        if (key := pooled_in(path)) is not None:
            self.pool.remove(key)

    # --- disks that another host has left

    def find_left(self, instance_uuid: str, places: Collection[tuple[str, int]]) -> tuple[str, InstanceRecord] | None:
        """Return the directory whose record has one of these hosts and generations, and the record.

        Raises OSError if there are several: one of them is a copy, and it is unknown which one.
        """
        found = []
        for name in sorted(os.listdir(self.instances_path)):
            if uuid_of(name) == instance_uuid:
                path = os.path.join(self.instances_path, name)
                record = _any_record(path)
                if record is None or record.uuid != instance_uuid:
                    continue
                if (record.host, record.generation) in places:
                    found.append((path, record))
        if len(found) > 1:
            names = ", ".join(os.path.basename(path) for path, _ in found)
            raise OSError(f"Several directories have the disks of instance {instance_uuid}: {names}")
        return found[0] if found else None

    def take(self, path: str, record: InstanceRecord, generation: int, image_ids: Sequence[str]) -> str:
        """Make a directory that `find_left` returned this host's, at this generation. Return its new path.

        Raises OSError if another host was faster. A crash after the rename leaves the old record in it.
        """
        target = self._beside(record.uuid)
        os.rename(path, target)
        name = os.path.basename(path if path != target else self._plain(record.uuid))
        images = sorted({*record.images, *image_ids})
        taken = TakenFrom(record.host, record.generation, name)
        self._write_record(target, InstanceRecord(record.uuid, self._host, generation, images, taken))
        files.sync_directory(self.instances_path)
        return target

    def _give_back(self, path: str, record: InstanceRecord, taken: TakenFrom) -> None:
        LOG.warning("Instance %s: its disks are given back to host %s", record.uuid, taken.host)
        if record.pooled:
            self.pool.give_back(key_of(record.uuid, record.generation), key_of(record.uuid, taken.generation))
            trees.discard(path)
            return
        self._write_record(path, InstanceRecord(record.uuid, taken.host, taken.generation, record.images))
        target = os.path.join(self.instances_path, os.path.basename(taken.name))
        if not os.path.lexists(target):
            os.rename(path, target)
            files.sync_directory(self.instances_path)

    def own(self, instance_uuid: str) -> None:
        """Make taken disks this host's permanently. Do nothing if they are already, or if there are none."""
        path = self.directory(instance_uuid)
        record = self._read(os.path.join(path, RECORD), InstanceRecord)
        if record is not None and record.taken is not None:
            self._write_record(path, msgspec.structs.replace(record, taken=None))
            if record.pooled:
                self.pool.remove_until(key_of(record.uuid, record.taken.generation))

    def has_taken(self) -> set[str]:
        """Return the instances whose disks are taken, and not this host's permanently."""
        taken = set()
        for path in self._own_directories():
            record = self._read(os.path.join(path, RECORD), InstanceRecord)
            if record is not None and record.taken is not None:
                taken.add(record.uuid)
        return taken

    def keep(self, instance_uuid: str) -> None:
        """Keep the instance's directory for another host: `remove` does not find it any more."""
        path = self.directory(instance_uuid)
        if self._is_permanent(path):
            os.rename(path, self._kept(instance_uuid))
            files.sync_directory(self.instances_path)

    def _is_permanent(self, path: str) -> bool:
        """Check whether a directory is this host's permanently. One whose disks are taken returns to its host."""
        record = self._read(os.path.join(path, RECORD), InstanceRecord)
        if record is not None and record.taken is not None:
            self._give_back(path, record, record.taken)
            return False
        return record is not None

    def _kept(self, instance_uuid: str) -> str:
        return self._beside(instance_uuid) + KEPT

    def _is_kept(self, instance_uuid: str) -> bool:
        return self._read(os.path.join(self._kept(instance_uuid), RECORD), InstanceRecord) is not None

    def discard_kept(self, instance_uuid: str) -> None:
        """Remove the directory that is kept for another host, if any: the instance has other disks, or is deleted."""
        if self._is_kept(instance_uuid):
            self._remove_pooled(self._kept(instance_uuid))
            trees.discard(self._kept(instance_uuid))

    @staticmethod
    def _write_record(path: str, record: InstanceRecord) -> None:
        files.write_atomically(os.path.join(path, RECORD), msgspec.json.encode(record))

    # --- set aside

    def set_aside(self, instance_uuid: str) -> str:
        """Rename the directory, so that another one of the instance can be created. Return the new path."""
        if (aside := self.aside(instance_uuid)) is not None:
            return aside
        path = self.directory(instance_uuid) + ASIDE
        os.rename(self.directory(instance_uuid), path)
        return path

    def restore_set_aside(self, instance_uuid: str) -> None:
        """Rename the directory that was set aside back, if any. Raises OSError if another one exists."""
        if (aside := self.aside(instance_uuid)) is not None:
            os.rename(aside, aside.removesuffix(ASIDE))

    def discard_set_aside(self, instance_uuid: str) -> None:
        if (aside := self.aside(instance_uuid)) is not None:
            self._remove_pooled(aside)
            trees.discard(aside)

    def aside(self, instance_uuid: str) -> str | None:
        """Return the path of the directory that this host has set aside, if any."""
        for path in (self._plain(instance_uuid) + ASIDE, self._beside(instance_uuid) + ASIDE):
            if self._read(os.path.join(path, RECORD), InstanceRecord) is not None:
                return path
        return None

    # --- interfaces

    def write_interfaces(self, instance_uuid: str, vifs: list[VIF]) -> None:
        record = InterfaceRecord(uuid=instance_uuid, host=self._host, vifs=vifs)
        files.write_atomically(self._interfaces_path(instance_uuid), msgspec.json.encode(record), writer=self._host)

    def read_interfaces(self, instance_uuid: str) -> list[VIF]:
        """Return the recorded interfaces. Empty if there are none, or if they are another host's."""
        record = self._read(self._interfaces_path(instance_uuid), InterfaceRecord)
        return [] if record is None else record.vifs

    def unreadable_interfaces(self) -> list[str]:
        """Return the instances of this host whose record of interfaces exists, but cannot be read."""
        found = []
        for name in os.listdir(os.path.join(self.instances_path, INTERFACES)):
            instance_uuid = uuid_of(name.removesuffix(".json"))
            if instance_uuid is None or not self.owns(instance_uuid):
                continue
            try:
                with open(os.path.join(self.instances_path, INTERFACES, name), "rb") as file:
                    msgspec.json.decode(file.read(), type=InterfaceRecord)
            except (OSError, ValueError):
                found.append(instance_uuid)
        return found

    def remove_interfaces(self, instance_uuid: str) -> None:
        path = self._interfaces_path(instance_uuid)
        if self._read(path, InterfaceRecord) is not None:
            files.remove(path)

    def _interfaces_path(self, instance_uuid: str) -> str:
        """Return the path of this host's record: a second one beside that of another host."""
        plain = os.path.join(self.instances_path, INTERFACES, f"{uuid.UUID(instance_uuid)}.json")
        beside = os.path.join(self.instances_path, INTERFACES, f"{uuid.UUID(instance_uuid)}@{self._host}.json")
        if os.path.exists(beside):
            return beside
        record = _decoded(plain, InterfaceRecord)
        return plain if record is None or record.host == self._host else beside

    # --- directories and interfaces

    def uuids(self) -> set[str]:
        """Return the uuids of instances that have anything here that belongs to this host."""
        named = {uuid_of(name) for name in os.listdir(self.instances_path)}
        found = {
            instance_uuid
            for instance_uuid in named
            if instance_uuid is not None
            and (self.owns(instance_uuid) or self.aside(instance_uuid) is not None or self._is_kept(instance_uuid))
        }
        for name in os.listdir(os.path.join(self.instances_path, INTERFACES)):
            record = self._read(os.path.join(self.instances_path, INTERFACES, name), InterfaceRecord)
            if record is not None:
                found.add(record.uuid)
        return found

    def _read(self, path: str, kind: type[R]) -> R | None:
        """Read a record. Return None if this host has none. An unreadable record counts as another host's."""
        record = _decoded(path, kind)
        return record if record is not None and record.host == self._host else None

    def _unfinished(self, instance_uuid: str) -> str:
        return f"{UNFINISHED}{self._host}-{instance_uuid}"


def _decoded(path: str, kind: type[R]) -> R | None:
    """Read a record of any host. Return None if there is none, or none that can be read."""
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=kind)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        LOG.warning("%s cannot be read: %s", path, error)
        return None


def _any_record(path: str) -> InstanceRecord | None:
    """Return the record of a directory, of any host. A link is no directory: it could lead anywhere."""
    return None if os.path.islink(path) else _decoded(os.path.join(path, RECORD), InstanceRecord)


def pooled_in(directory: str) -> str | None:
    """Return the key of an instance's disks if they are in the pool. None: they are files in its directory."""
    record = _any_record(directory)
    return key_of(record.uuid, record.generation) if record is not None and record.pooled else None


def key_of(instance_uuid: str, generation: int) -> str:
    """Return what the names of an instance's disks in the pool begin with, for one generation."""
    return f"{uuid.UUID(instance_uuid)}-{generation:d}"


def parts_of(key: str) -> tuple[str, int]:
    """Return the uuid and the generation in a key. Raises `VirtDriverError` for anything else."""
    instance_uuid, _, generation = key.rpartition("-")
    if not _is_uuid(instance_uuid) or not re.fullmatch("[0-9]{1,18}", generation):
        raise exceptions.VirtDriverError(reason=f"{key!r} is not the name of disks in a pool")
    return instance_uuid, int(generation)


def uuid_of(name: str) -> str | None:
    """Return the uuid of the instance whose directory has this name, or None."""
    plain = name.partition("@")[0]
    return plain if _is_uuid(plain) and "/" not in name else None


def _is_uuid(name: str) -> bool:
    with contextlib.suppress(ValueError):
        return str(uuid.UUID(name)) == name
    return False
