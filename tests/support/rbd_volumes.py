"""Backend ``rbd`` with a pool in a directory."""

from __future__ import annotations

from pathlib import Path

from nova_lite.base.timing import ClientTiming
from nova_lite.objects import Image
from nova_lite.volume.rbd import RbdVolumes
from tests.support import make
from tests.support.fake_rbd import FakeRbd


def rbd_volumes(directory: Path, ceph: FakeRbd, data: bytes) -> RbdVolumes:
    """Return the backend. The image ``image`` has these ``data``, and other images are files of the ``directory``."""
    conf = make.conf("sqlite://", directory)
    places = {"store_path": directory / "scratch", "backup_path": directory / "b"}
    for name, value in {"rbd_pool": "pool", **places}.items():
        conf.set_override(name, str(value), "volume")
    (directory / "image").write_bytes(data)

    def fetch(image: Image, target: str) -> None:
        Path(target).write_bytes((directory / image.name).read_bytes())

    made = RbdVolumes(conf, fetch, ClientTiming(rbd_watch_wait=0.0))
    made.pool.rbd = ceph
    return made
