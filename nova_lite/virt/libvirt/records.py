"""The driver's own files: a directory per instance, and a record of its interfaces.

::

    <instances_path>/<uuid>/instance.json    its owner; disks, config drive and console log are in the same directory
    <instances_path>/<uuid>@<host>/          the same, if another host with the same path has (or had) the first name
    <instances_path>/…@aside/                either of them, while the instance is resized on its own host
    <instances_path>/_interfaces/<uuid>.json what `plug_vifs` has created, so that `unplug_vifs` can remove it
    <instances_path>/_base/                  image cache

Several compute daemons on one machine may share ``instances_path``. Each sees only what has its host name. A record is
written before the objects that it describes are created, so that nothing exists without a record.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import uuid
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from nova_lite.base import files
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


class InstanceRecord(msgspec.Struct, frozen=True):
    """Record of an instance. ``images``: ids of images that its disks are based on, or that it boots."""

    uuid: str
    host: str
    generation: int
    images: list[str] = []


class InterfaceRecord(msgspec.Struct, frozen=True):
    uuid: str
    host: str
    vifs: list[VIF]


prepare_decoders(InstanceRecord, InterfaceRecord)

R = TypeVar("R", InstanceRecord, InterfaceRecord)


class Records:
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
                shutil.rmtree(os.path.join(self.instances_path, name), ignore_errors=True)
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

    def create(self, instance_uuid: str, generation: int, image_ids: Sequence[str] = (), beside: bool = False) -> str:
        """Create the instance's directory and its record atomically, also in case of a power cut. Return its path.

        Raises OSError if another host's directory exists already, unless ``beside`` allows a second one.
        """
        record = InstanceRecord(instance_uuid, self._host, generation, list(image_ids))
        unfinished = os.path.join(self.instances_path, self._unfinished(instance_uuid))
        shutil.rmtree(unfinished, ignore_errors=True)
        os.mkdir(unfinished)
        os.chmod(unfinished, DIRECTORY_MODE)
        files.write_atomically(os.path.join(unfinished, RECORD), msgspec.json.encode(record))
        path = self._plain(instance_uuid)
        if beside and os.path.lexists(path):
            path = self._beside(instance_uuid)
        try:
            os.rename(unfinished, path)
        except OSError:
            shutil.rmtree(unfinished)
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
        """Remove the instance's directory if it is this host's. The record is removed last."""
        if not self.owns(instance_uuid):
            return
        path = self.directory(instance_uuid)
        for name in os.listdir(path):
            if name != RECORD:
                _remove_tree(os.path.join(path, name))
        _remove_tree(path)

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
            shutil.rmtree(aside)

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
            except (OSError, msgspec.MsgspecError):
                found.append(instance_uuid)
        return found

    def remove_interfaces(self, instance_uuid: str) -> None:
        path = self._interfaces_path(instance_uuid)
        if self._read(path, InterfaceRecord) is not None:
            files.remove(path)

    def _interfaces_path(self, instance_uuid: str) -> str:
        return os.path.join(self.instances_path, INTERFACES, f"{uuid.UUID(instance_uuid)}.json")

    # --- directories and interfaces

    def uuids(self) -> set[str]:
        """Return the uuids of instances that have anything here that belongs to this host."""
        named = {uuid_of(name) for name in os.listdir(self.instances_path)}
        found = {
            instance_uuid
            for instance_uuid in named
            if instance_uuid is not None and (self.owns(instance_uuid) or self.aside(instance_uuid) is not None)
        }
        for name in os.listdir(os.path.join(self.instances_path, INTERFACES)):
            record = self._read(os.path.join(self.instances_path, INTERFACES, name), InterfaceRecord)
            if record is not None:
                found.add(record.uuid)
        return found

    def _read(self, path: str, kind: type[R]) -> R | None:
        """Read a record. Return None if this host has none. An unreadable record counts as another host's."""
        try:
            with open(path, "rb") as file:
                record = msgspec.json.decode(file.read(), type=kind)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            LOG.warning("%s cannot be read: %s", path, error)
            return None
        return record if record.host == self._host else None

    def _unfinished(self, instance_uuid: str) -> str:
        return f"{UNFINISHED}{self._host}-{instance_uuid}"


def uuid_of(name: str) -> str | None:
    """Return the uuid of the instance whose directory has this name, or None."""
    plain = name.partition("@")[0]
    return plain if _is_uuid(plain) and "/" not in name else None


def _is_uuid(name: str) -> bool:
    with contextlib.suppress(ValueError):
        return str(uuid.UUID(name)) == name
    return False


def _remove_tree(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        files.remove(path)
