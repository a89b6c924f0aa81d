"""The config drive: a small ISO 9660 volume named ``config-2`` with a guest's metadata, in the form that cloud-init
reads.
"""

from __future__ import annotations

import io
from collections.abc import Callable

import msgspec
import pycdlib
from oslo_config import cfg

from nova_lite.base import exceptions, files
from nova_lite.metadata.documents import EC2_VERSIONS, LATEST, OPENSTACK_VERSIONS, PASSWORD, MetadataDocuments
from nova_lite.metadata.vendordata import VendorData
from nova_lite.objects import VIF
from nova_lite.virt.abilities import SpawnSpec

LABEL = "config-2"


class ConfigDrives:
    """Makes config drives. ``reach_metadata`` returns whether guests with these interfaces reach a metadata service."""

    def __init__(self, conf: cfg.ConfigOpts, reach_metadata: Callable[[list[VIF]], bool]) -> None:
        self._forced: bool | None = conf.force_config_drive
        self._reach_metadata = reach_metadata
        self._vendor = VendorData(conf)

    def is_wanted(self, spec: SpawnSpec) -> bool:
        """Check whether the owner, the image or the operator requests a config drive.

        Unless the operator forbids it, a guest also gets one if it could not receive its key, user data or injected
        files otherwise.
        """
        mandatory = spec.image is not None and spec.image.properties.get("img_config_drive") == "mandatory"
        if spec.instance.config_drive or mandatory or self._forced is not None:
            return spec.instance.config_drive or mandatory or bool(self._forced)
        return bool(spec.injected_files) or not self._reach_metadata(spec.vifs)

    def make(self, path: str, spec: SpawnSpec) -> None:
        """Write the volume to ``path`` with mode 0600, since it may contain a password. Raises `ConfigDriveInvalid`."""
        try:
            write_iso(path, files_of(spec, self._vendor))
        except (pycdlib.pycdlibexception.PyCdlibException, OSError, ValueError) as error:
            raise exceptions.ConfigDriveInvalid(reason=" ".join(str(error).split())) from error


def files_of(spec: SpawnSpec, vendor: VendorData) -> dict[str, bytes]:
    """Return the content of the volume by path: the OpenStack documents of all versions, and the newest EC2
    document."""
    made = MetadataDocuments(spec.instance, spec.vifs, vendor, spec.injected_files, spec.admin_password)
    files = {f"openstack/{path}": data for path, data in made.files.items()}
    for version in (*OPENSTACK_VERSIONS, LATEST):
        dated = OPENSTACK_VERSIONS[-1] if version == LATEST else version
        for name in made.names(dated):
            if name != PASSWORD:
                files[f"openstack/{version}/{name}"] = made.document(dated, name)
    tree = made.ec2(EC2_VERSIONS[-1])
    for version in (EC2_VERSIONS[-1], LATEST):
        files[f"ec2/{version}/meta-data.json"] = msgspec.json.encode(tree["meta-data"])
        if made.user_data is not None:
            files[f"ec2/{version}/user-data"] = made.user_data
    return files


def write_iso(path: str, content: dict[str, bytes]) -> None:
    """Write an ISO 9660 volume with Joliet and Rock Ridge names. Its plain ISO names are only numbers."""
    volume = pycdlib.PyCdlib()
    volume.new(interchange_level=3, vol_ident=LABEL, joliet=3, rock_ridge="1.09")
    plain_names: dict[str, str] = {"": ""}
    for number, (name, data) in enumerate(sorted(content.items())):
        directory, _, base = name.rpartition("/")
        _add_directory(volume, directory, plain_names)
        plain = f"{plain_names[directory]}/F{number:07d}.;1"
        volume.add_fp(io.BytesIO(data), len(data), plain, rr_name=base, joliet_path=f"/{name}")
    with open(path, "wb", opener=files.private_opener) as file:
        volume.write_fp(file)
    volume.close()


def _add_directory(volume: pycdlib.PyCdlib, directory: str, plain_names: dict[str, str]) -> None:
    """Add a directory with its parents. ``plain_names`` maps existing directories to their plain names."""
    if directory in plain_names:
        return
    parent, _, base = directory.rpartition("/")
    _add_directory(volume, parent, plain_names)
    plain = f"{plain_names[parent]}/D{len(plain_names):07d}"
    volume.add_directory(plain, rr_name=base, joliet_path=f"/{directory}")
    plain_names[directory] = plain
