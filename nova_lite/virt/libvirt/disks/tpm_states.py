"""States of guests' TPMs, which libvirt keeps in a directory of its own, by the guest's uuid.

The state of a running guest moves with its memory. A guest that moves while it is off has its state as a further file
among its disks: the source copies it there, and the destination hands it to libvirt. The file is encrypted, and the
destination gets its key from the conductor. This host never reads it.
"""

from __future__ import annotations

import os
import pwd
import stat
import uuid
from collections.abc import Collection

from oslo_config import cfg

from nova_lite.base import exceptions, files, trees
from nova_lite.hardware.guest import TPM_2

#: libvirt's directory. swtpm's user owns the directories in those of guests.
ROOT = "/var/lib/libvirt/swtpm"
#: Directory of swtpm's own authority. Its package gives it to the user that swtpm runs as: tss, or swtpm on Ubuntu.
AUTHORITY = "/var/lib/swtpm-localca"
#: Directory and file of libvirt's state, by the version of the TPM.
_PLACES = {"1.2": ("tpm1.2", "tpm-00.permall"), TPM_2: ("tpm2", "tpm2-00.permall")}
#: File among the disks, by the version of the TPM.
_NAMES = {version: f"tpm-{version}.state" for version in _PLACES}
NAMES = tuple(_NAMES.values())

#: Largest state that is accepted. Real ones have some KiB.
_MOST = 4 * 1024**2


class TPMStates:
    """States on one host. ``root``: libvirt's directory. ``authority``: swtpm's."""

    def __init__(self, conf: cfg.ConfigOpts, root: str = ROOT, authority: str = AUTHORITY) -> None:
        self._conf = conf.libvirt
        self._authority = authority
        self.root = root

    def check(self) -> None:
        """Raise `ConfigurationError` if swtpm's user is unknown, as a rule because swtpm-tools is missing."""
        if self._conf.swtpm_enabled:
            self._owner()

    def has(self, instance_uuid: str) -> bool:
        return os.path.lexists(self._path(instance_uuid))

    def remove(self, instance_uuid: str) -> None:
        trees.discard(self._path(instance_uuid))

    def save(self, instance_uuid: str, directory: str, prefix: str = "") -> None:
        """Copy the state of a guest into the directory of its disks.

        The state of a running guest is as after a power cut.
        """
        for version, (part, name) in _PLACES.items():
            target = os.path.join(directory, prefix + _NAMES[version])
            state = _read(os.path.join(self._path(instance_uuid), part, name))
            if state is None:
                files.remove(target)
            else:
                files.write_atomically(target, state)

    def restore(
        self, instance_uuid: str, directory: str, versions: Collection[str] = tuple(_PLACES), prefix: str = ""
    ) -> None:
        """Hand the state in the directory of a guest's disks to libvirt, in place of whatever it has.

        A state of another version than these is not used. The next `save` replaces the file in the directory.
        """
        self.remove(instance_uuid)
        for version in versions:
            state = _read(os.path.join(directory, prefix + _NAMES[version]))
            if state is not None:
                self._write(instance_uuid, *_PLACES[version], state)

    def _write(self, instance_uuid: str, part: str, name: str, state: bytes) -> None:
        owner = self._owner()
        os.makedirs(self.root, mode=0o711, exist_ok=True)
        above = self._path(instance_uuid)
        os.mkdir(above, 0o711)
        os.mkdir(os.path.join(above, part), 0o700)
        files.write_atomically(os.path.join(above, part, name), state, owner=owner)
        os.chown(os.path.join(above, part), *owner)

    def _path(self, instance_uuid: str) -> str:
        return os.path.join(self.root, str(uuid.UUID(instance_uuid)))

    def _owner(self) -> tuple[int, int]:
        """Return the user and group that swtpm runs as."""
        try:
            found = os.stat(self._authority)
            return found.st_uid, pwd.getpwuid(found.st_uid).pw_gid
        except (OSError, KeyError) as error:
            raise exceptions.ConfigurationError(
                reason=f"[libvirt] swtpm_enabled is set, but no user owns {self._authority}: {error}. "
                "Install swtpm and swtpm-tools."
            ) from error


def _read(path: str) -> bytes | None:
    """Return the content of a plain file, or None if there is none. swtpm's user may have made it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > _MOST:
            raise exceptions.VirtDriverError(reason=f"{path} is not the state of a TPM")
        return file.read()
