"""The volume driver that guests of tests use, and their devices."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from oslo_config import cfg

from nova_lite import conf as configuration
from nova_lite.image import local
from nova_lite.objects import BlockDevice
from nova_lite.objects.block_device import DeviceSource
from nova_lite.volume.local import LocalVolumes


def local_volumes(directory: Path) -> LocalVolumes:
    """Return a driver whose volumes are below ``directory``."""
    conf = cfg.ConfigOpts()
    configuration.register_opts(conf)
    conf([], default_config_files=[])
    conf.set_override("store_path", str(directory / "volumes"), "volume")
    return LocalVolumes(conf, lambda image, target: local.copy(image, image.name, target))


def device(volume_id: str, name: str, **more: Any) -> BlockDevice:
    return BlockDevice(
        uuid=str(uuid.uuid4()),
        source_type=DeviceSource.VOLUME,
        destination_type="volume",
        volume_id=volume_id,
        device_name=name,
        **more,
    )
