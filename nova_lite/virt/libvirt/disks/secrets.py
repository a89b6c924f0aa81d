"""Secrets of libvirt with the passphrases of encrypted volumes and disks, and of the states of TPMs.

libvirtd hands a passphrase to qemu or swtpm when a guest starts or gets the volume. It has the secret only for that
moment, in memory (``ephemeral``), and tells it to no other program (``private``). The secret's uuid is that of the
volume, of the server with the TPM, or `disk_key_id`, so that the definition of a guest fits every host.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import libvirt

from nova_lite.base import exceptions
from nova_lite.objects import VolumeKey, disk_key_id
from nova_lite.virt.abilities import GetDiskKey
from nova_lite.virt.libvirt.connection import Connection, LibvirtFailure

LOG = logging.getLogger(__name__)

_MARK = "nova_lite"
#: Part of qemu's error for a passphrase that does not fit.
_DOES_NOT_FIT = "Invalid password"
_GONE = (libvirt.VIR_ERR_NO_SECRET,)


class OwnKeys(NamedTuple):
    """Keys of a guest besides those of its volumes: whether it has a TPM, and the roles of its encrypted disks."""

    instance_uuid: str
    tpm: bool = False
    disks: Sequence[str] = ()


class VolumeSecrets:
    """Secrets on one host. ``volume_key``: returns the key of a volume, or raises `VolumeKeyUnavailable`. ``tpm_key``:
    returns the key of a server's TPM, or raises `TPMKeyUnavailable`. ``disk_key``: returns the key of a server's disk,
    or raises `DiskKeyUnavailable`."""

    def __init__(
        self,
        connection: Connection,
        host: str,
        volume_key: Callable[[str], VolumeKey],
        tpm_key: Callable[[str], VolumeKey],
        disk_key: GetDiskKey,
    ) -> None:
        self._connection = connection
        self._host = host
        self._volume_key = volume_key
        self._tpm_key = tpm_key
        self._disk_key = disk_key
        self._mutex = threading.Lock()
        self._incoming: dict[str, list[str]] = {}

    @contextlib.contextmanager
    def loaded(self, volume_ids: Iterable[str], own: OwnKeys | None = None) -> Iterator[None]:
        """Let libvirt know the passphrases of these volumes, and those of a guest, inside the context."""
        wanted = sorted(set(volume_ids))
        with contextlib.ExitStack() as defined:
            for uuid in self._define(wanted, own):
                defined.callback(self._remove, uuid)
            try:
                yield
            except exceptions.VirtDriverError as error:
                if wanted and _DOES_NOT_FIT in error.message:
                    raise exceptions.VirtDriverError(
                        reason=f"the key of encrypted volume {' or '.join(wanted)} does not fit its data"
                    ) from error
                raise

    def load_for_incoming(self, volume_ids: Iterable[str], own: OwnKeys) -> None:
        """Let libvirt know the passphrases until `forget_incoming`, for a guest that another host sends."""
        wanted = sorted(set(volume_ids))
        with self._mutex:
            known = self._incoming[own.instance_uuid] = []
        for uuid in self._define(wanted, own):
            known.append(uuid)

    def forget_incoming(self, instance_uuid: str) -> None:
        with self._mutex:
            known = self._incoming.pop(instance_uuid, [])
        for uuid in known:
            self._remove(uuid)

    def remove_old(self) -> None:
        """Remove what a killed daemon of this host has left."""
        for secret in self._connection.connect_call("listAllSecrets", 0):
            xml = self._connection.call_unless(_GONE, secret.XMLDesc, 0)
            if xml and ET.fromstring(xml).findtext("description") == self._description():  # noqa: S314 libvirt's own
                self._remove(secret.UUIDString())

    def _description(self) -> str:
        return f"{_MARK} {self._host}"

    def _define(self, volume_ids: Iterable[str], own: OwnKeys | None) -> Iterator[str]:
        """Define the secrets one by one. Yield the uuid of each."""
        for volume_id in volume_ids:
            self._define_one(volume_id, self._volume_key(volume_id))
            yield volume_id
        if own is None:
            return
        for role in own.disks:
            uuid = disk_key_id(own.instance_uuid, role)
            self._define_one(uuid, self._disk_key(own.instance_uuid, role))
            yield uuid
        if own.tpm:
            self._define_one(own.instance_uuid, self._tpm_key(own.instance_uuid), is_tpm=True)
            yield own.instance_uuid

    def _define_one(self, uuid: str, key: VolumeKey, is_tpm: bool = False) -> None:
        secret = ET.Element("secret", ephemeral="yes", private="yes")
        ET.SubElement(secret, "uuid").text = uuid
        ET.SubElement(secret, "description").text = self._description()
        if is_tpm:  # libvirt gives swtpm no secret of another usage
            ET.SubElement(ET.SubElement(secret, "usage", type="vtpm"), "name").text = f"{_MARK} {uuid}"
        defined = self._connection.connect_call("secretDefineXML", ET.tostring(secret, encoding="unicode"), 0)
        self._connection.call(defined.setValue, key.passphrase.encode(), 0)

    def _remove(self, uuid: str) -> None:
        """Remove a secret. A failure is reported: libvirtd forgets it when it stops, at the latest."""
        try:
            secret = self._connection.call_unless(_GONE, self._connection.get().secretLookupByUUIDString, uuid)
            if secret is not None:
                self._connection.call_unless(_GONE, secret.undefine)
        except (LibvirtFailure, exceptions.HypervisorUnavailable) as error:
            LOG.warning("libvirt keeps the secret %s: %s", uuid, error.message)
