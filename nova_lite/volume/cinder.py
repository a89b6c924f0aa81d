"""Backend ``cinder``: connects volumes of a real Cinder to a host, with connection data from the conductor.

qemu opens RBD images itself, so the host does nothing for them. os-brick connects all other kinds (iSCSI, NVMe over
fabrics, NFS, Fibre Channel) and returns a path. Each connection is recorded before it is made, so that the daemon can
disconnect it after a crash. A volume in a file may have several files on top of each other. The record names the one
that the guest uses, and the files that it has left. Cinder may name one of these for a moment after a snapshot. The
record contains secrets, so only root can read it::

    <state_path>/volumes-connected/<instance>/<volume>.json
"""

from __future__ import annotations

import contextlib
import glob
import json
import logging
import os
import platform
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from oslo_config import cfg

from nova_lite.base import exceptions, files
from nova_lite.objects import BlockDevice, Image, NetworkDisk, Qcow2Disk, VolumeConnection, VolumeSource, VolumeWork
from nova_lite.objects.volume import FILE_CONNECTIONS, is_file_name
from nova_lite.volume.driver import VolumeBackend

LOG = logging.getLogger(__name__)

RBD, QCOW2 = "rbd", "qcow2"
DIRECTORY = "volumes-connected"
#: Directory of mounted shares.
MOUNTS = "mnt"

#: End of the name of a file that Cinder has made for a snapshot. It has the format qcow2 in any case. Of the others
#: Cinder names the format.
_SNAPSHOT_FILE = re.compile(r".\.[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


class CinderVolumes(VolumeBackend):
    """Volumes of a real Cinder."""

    remote = True

    def __init__(self, conf: cfg.ConfigOpts, fetch_image: Callable[[Image, str], None]) -> None:
        super().__init__(conf, fetch_image)
        self._directory = os.path.join(os.path.abspath(conf.state_path), DIRECTORY)
        self._mounts = os.path.join(os.path.abspath(conf.state_path), MOUNTS)
        self._remove_unfinished()
        self._brick = _load_brick(conf)
        self._mutex = threading.Lock()

    def connector(self) -> dict[str, Any]:
        if self._brick is not None:
            properties: dict[str, Any] = self._brick.get_connector_properties(
                "", self.conf.my_ip, multipath=False, enforce_multipath=False, host=self.conf.host
            )
            return properties
        return {
            "host": self.conf.host,
            "ip": self.conf.my_ip,
            "os_type": "linux",
            "platform": platform.machine(),
            "multipath": False,
            "do_local_attach": False,
        }

    def connect(self, instance_uuid: str, connection: VolumeConnection) -> VolumeSource:
        info = connection.info
        if info.get("driver_volume_type") == RBD:
            return rbd_disk(info)
        path = self._record_path(instance_uuid, connection.volume_id)
        with self._mutex, _as_driver_error("connected", connection.volume_id):
            known = _read(path) or {}
            left = known.get("left", [])
            if info.get("name") in left:
                info = known["info"]
            file_format = _file_format(info) if is_file(info) else ""
            self._write(_with_directory(path), info, None, left)
            device = self._connector_of(info).connect_volume(info)
            self._write(path, info, _plain(device), left)
            found = _text(device["path"])
            return Qcow2Disk(path=found) if file_format == QCOW2 else found

    def is_in_file(self, instance_uuid: str, volume_id: str) -> bool:
        record = _read(self._record_path(instance_uuid, volume_id))
        return record is not None and is_file(record["info"])

    def switched(self, instance_uuid: str, volume_id: str, new_file: str) -> None:
        path = self._record_path(instance_uuid, volume_id)
        with self._mutex:
            record = _read(path)
            if record is None or record["info"]["name"] == new_file:
                return
            info = record["info"]
            left = [*record.get("left", []), info["name"]]
            self._write(path, {**info, "name": new_file, "format": QCOW2}, record["device"], left)

    def disconnect(self, instance_uuid: str, volume_id: str | None = None) -> None:
        directory = os.path.join(self._directory, str(uuid.UUID(instance_uuid)))
        if not os.path.isdir(directory):
            return
        names = sorted(os.listdir(directory)) if volume_id is None else [f"{uuid.UUID(volume_id)}.json"]
        for path in (os.path.join(directory, name) for name in names if name.endswith(".json")):
            self._disconnect(path)
        with contextlib.suppress(OSError):
            os.rmdir(directory)

    def _disconnect(self, path: str) -> None:
        record = _read(path)
        if record is None:
            return
        with self._mutex, _as_driver_error("disconnected", os.path.basename(path).removesuffix(".json")):
            if not self._is_shared(path):
                self._connector_of(record["info"]).disconnect_volume(record["info"], record["device"])
            files.remove(path)

    def _is_shared(self, path: str) -> bool:
        """Check whether another instance here has the volume, whose device would go with this one's."""
        names = glob.glob(os.path.join(glob.escape(self._directory), "*", os.path.basename(path)))
        return any(name != path for name in names)

    def extend(self, volume_id: str, size: int) -> None:
        """Read the new size of a connected volume. An RBD image needs nothing."""
        name = f"{uuid.UUID(volume_id)}.json"
        for directory, _, names in os.walk(self._directory):
            record = _read(os.path.join(directory, name)) if name in names else None
            if record is not None:
                with self._mutex, _as_driver_error("extended", volume_id):
                    self._connector_of(record["info"]).extend_volume(record["info"])

    def _connector_of(self, info: Mapping[str, Any]) -> Any:
        kind = str(info.get("driver_volume_type"))
        if self._brick is None:
            raise exceptions.VirtDriverError(
                reason=f"this host cannot connect {kind} volumes: os-brick is not installed (nova_lite[os-brick])"
            )
        options = {f"{kind}_mount_point_base": self._mounts} if is_file(info) else {}
        return self._brick.InitiatorConnector.factory(kind.upper(), "", use_multipath=False, conn=info, **options)

    def _write(
        self, path: str, info: Mapping[str, Any], device: Mapping[str, Any] | None, left: Sequence[str] = ()
    ) -> None:
        """Write the record of a connection. ``left``: names of files that the guest has used before."""
        content = json.dumps({"info": info, "device": device, **({"left": left} if left else {})}).encode()
        files.write_atomically(path, content, writer=self.conf.host)

    def _remove_unfinished(self) -> None:
        """Remove what a killed daemon of this host left half written."""
        for directory, _, _ in os.walk(self._directory):
            files.remove_unfinished(directory, self.conf.host)

    def _record_path(self, instance_uuid: str, volume_id: str) -> str:
        return os.path.join(self._directory, str(uuid.UUID(instance_uuid)), f"{uuid.UUID(volume_id)}.json")

    # --- work that Cinder does itself

    def path(self, volume_id: str) -> VolumeSource:
        raise exceptions.NotImplementedByDriver(operation="finding a volume's file")

    def require(self, volume_id: str) -> VolumeSource:
        return self.path(volume_id)

    def create(self, work: VolumeWork) -> None:
        raise exceptions.NotImplementedByDriver(operation="making volumes")

    def delete(self, volume_id: str) -> None:
        raise exceptions.NotImplementedByDriver(operation="deleting volumes")

    def create_snapshot(self, volume_id: str, snapshot_id: str) -> None:
        raise exceptions.NotImplementedByDriver(operation="making snapshots")

    def delete_snapshot(self, snapshot_id: str) -> None:
        raise exceptions.NotImplementedByDriver(operation="deleting snapshots")

    def prepare(self, devices: Sequence[BlockDevice], images: Mapping[str, Image]) -> None:
        """Do nothing, since `connect` comes later."""

    def sweep(self) -> None:
        """Do nothing, since connections are removed with their instances."""


def is_file(info: Mapping[str, Any]) -> bool:
    """Check whether these connection data are of a volume in files."""
    return info.get("driver_volume_type") in FILE_CONNECTIONS


def _file_format(info: Mapping[str, Any]) -> str:
    """Return the format of a volume's file. Raises `VirtDriverError` for a name or format that Cinder does not use."""
    name, kind = info.get("name"), info.get("format") or "raw"
    if not is_file_name(name) or kind not in ("raw", QCOW2):
        raise exceptions.VirtDriverError(reason="Cinder's connection data name no file, or one of an unknown format")
    return QCOW2 if _SNAPSHOT_FILE.search(str(name)) else str(kind)


def rbd_disk(info: Mapping[str, Any]) -> NetworkDisk:
    """Convert connection data of an RBD image. Raises `VirtDriverError` if qemu could not open it."""
    name, hosts, ports = str(info.get("name") or ""), info.get("hosts") or [], info.get("ports") or []
    if "/" not in name or len(hosts) != len(ports):
        raise exceptions.VirtDriverError(reason="Cinder's connection data lack the RBD image or its hosts")
    user = secret = None
    if info.get("auth_enabled"):
        user, secret = info.get("auth_username"), info.get("secret_uuid")
        if not user or not secret:
            raise exceptions.VirtDriverError(
                reason="Cinder's rbd_user and rbd_secret_uuid must name the user and the hypervisor's secret"
            )
    return NetworkDisk(
        protocol=RBD,
        name=name,
        hosts=tuple((str(host), str(port)) for host, port in zip(hosts, ports, strict=True)),
        user=user,
        secret=secret,
    )


def _load_brick(conf: cfg.ConfigOpts) -> Any:
    """Return os-brick's connectors, or None if it is not installed. As root, this daemon needs no privilege helper."""
    try:
        import os_brick
        from os_brick import privileged
        from os_brick.initiator import connector
    except ImportError:
        return None
    os_brick.setup(conf)
    privileged.default.set_client_mode(False)
    return connector


def _with_directory(path: str) -> str:
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    return path


def _read(path: str) -> dict[str, Any] | None:
    """Return the record of a connection, or None if there is none. Raises `VirtDriverError` for a damaged one.

    Its volume may be connected, and nothing else knows how to disconnect it.
    """
    try:
        with open(path, encoding="utf-8") as file:
            record: dict[str, Any] = json.load(file)
        if not isinstance(record["info"], dict):
            raise TypeError("it has no connection data")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise exceptions.VirtDriverError(
            reason=f"{path} is damaged ({error}). Disconnect the volume from this host by hand, and remove the file"
        ) from error
    return record


def _plain(device: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _text(value) if isinstance(value, bytes) else value for key, value in device.items()}


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


@contextlib.contextmanager
def _as_driver_error(action: str, volume_id: str) -> Iterator[None]:
    """Convert os-brick's many errors to `VirtDriverError`, without their texts, which may contain secrets."""
    try:
        yield
    except exceptions.NovaLiteException:
        raise
    except Exception as error:
        LOG.error("Volume %s could not be %s: %s", volume_id, action, type(error).__name__)
        raise exceptions.VirtDriverError(
            reason=f"volume {volume_id} could not be {action}: {type(error).__name__}"
        ) from None
