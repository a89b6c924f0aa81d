"""A host that joined gets images from the store of the controller, and sends the images that it makes of servers."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from oslo_config import cfg

from nova_lite.base import exceptions, files
from nova_lite.db.core.engine import Database
from nova_lite.db.image import images
from nova_lite.image.driver import load_backend
from nova_lite.image.local import LocalImages
from nova_lite.image.remote import RemoteStore
from nova_lite.objects import Image
from nova_lite.rpc import keys
from nova_lite.rpcapi.conductor import ConductorRPC
from tests.support import make
from tests.support.api_client import make_conf
from tests.support.join_site import Site
from tests.support.waiting import polls, wait_for

#: More than the server receives before it runs the application.
DATA = b"QFI-not" + bytes(range(256)) * 4096


class Cloud:
    """The controller, with an image that h1 makes, and a complete image in its store."""

    def __init__(self, site: Site, conf: cfg.ConfigOpts, db: Database, conductor: ConductorRPC, path: Path) -> None:
        self.site, self.db, self.conductor, self.path = site, db, conductor, path
        self.store = path / "store"
        self.store.mkdir()
        conf.set_override("store_path", str(self.store), "image")
        conf.set_override("min_free_mb", 0, "image")
        self.conf = conf
        self.image = make.image(size=len(DATA), checksum=hashlib.sha256(DATA).hexdigest())
        (self.store / self.image.id).write_bytes(DATA)
        self.made = db.write(self._fill)

    @staticmethod
    def _fill(uow: Any) -> Image:
        made = images.create(uow, make.image(status="queued", size=0, checksum="", disk_format="raw", owner="p1"))
        make.action(uow, make.instance(uow, host="h1"), action="createImage", host="h1", payload={"image_id": made.id})
        return made

    def host(self, name: str = "h1", role: str = keys.COMPUTE, is_trusted: bool = True) -> LocalImages:
        """Return the backend of a compute host, which has no store of its own."""
        directory = self.path / name
        own = directory / "keys"
        own.mkdir(parents=True)
        key = keys.PrivateKey.generate()
        files.write_atomically(keys.private_path(str(own), keys.COMPUTE, name), key.pem(), mode=0o600)
        if is_trusted:
            listed = keys.read_trusted(str(self.site.directory / keys.TRUSTED))
            keys.write_trusted(str(self.site.directory / keys.TRUSTED), [*listed, key.trusted(role, name, keys.now())])
        (directory / "ca.pem").write_text(self.site.pem)
        conf = make_conf(
            directory,
            f"[image]\nstore_path = {directory}/none\nstore_address = {self.site.address}\n"
            f"min_free_mb = 0\n[rpc]\nkeys_directory = {own}\ntrust_ca_file = {directory}/ca.pem\n",
        )
        conf.set_override("host", name)
        backend = load_backend(conf, self.conductor)
        assert isinstance(backend, LocalImages)
        return backend

    def upload(self, host: LocalImages, progress: Callable[[int], None] = lambda _: None, data: bytes = DATA) -> None:
        source = self.path / "snapshot"
        source.write_bytes(data)
        host.upload(self.made, str(source), host.conf.host, progress)

    def row(self) -> Image | None:
        return self.db.read(images.by_id, self.made.id)

    def stored(self) -> list[str]:
        return sorted(entry.name for entry in self.store.iterdir())


@pytest.fixture
def cloud(site: Site, conf: cfg.ConfigOpts, db: Database, conductor: ConductorRPC, tmp_path: Path) -> Cloud:
    return Cloud(site, conf, db, conductor, tmp_path)


def test_host_without_a_store_gets_an_image(cloud: Cloud, tmp_path: Path) -> None:
    target = tmp_path / "target"
    cloud.host().fetch(cloud.image, str(target))
    assert target.read_bytes() == DATA
    assert target.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"id": "11111111-1111-4111-8111-111111111111"}, exceptions.ImageGone, "no data of image"),
        ({"id": ".import-x"}, exceptions.ImageGone, "no such image"),
        ({"id": "uploads"}, exceptions.ImageGone, "no data of image"),
        ({"size": 3}, exceptions.ImageCorrupt, "bytes where 3 were registered"),
        ({"checksum": "0" * 64}, exceptions.ImageCorrupt, "its checksum is not the registered one"),
    ],
)
def test_image_that_is_not_the_registered_one_leaves_no_file(
    cloud: Cloud, tmp_path: Path, change: dict[str, Any], error: type[Exception], said: str
) -> None:
    (cloud.store / "uploads").mkdir()
    (cloud.store / ".import-x").write_bytes(DATA)
    fields = {"id": cloud.image.id, "size": len(DATA), "checksum": cloud.image.checksum}
    with pytest.raises(error, match=said):
        cloud.host().fetch(make.image(**{**fields, **change}), str(tmp_path / "target"))
    assert not (tmp_path / "target").exists()


def test_image_that_does_not_fit_on_the_host_is_not_fetched(cloud: Cloud, tmp_path: Path) -> None:
    with pytest.raises(exceptions.VirtDriverError, match="MiB have to stay free"):
        cloud.host().fetch(make.image(id=cloud.image.id, size=1 << 60), str(tmp_path / "target"))
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ({"is_trusted": False}, "signs this request with the key of its messages"),
        ({"role": keys.CONSOLE}, "not that of a compute host"),
    ],
)
def test_stranger_gets_no_image_and_sends_none(cloud: Cloud, tmp_path: Path, made: dict[str, Any], said: str) -> None:
    stranger = cloud.host("h1", **made)
    with pytest.raises(exceptions.ImageDownloadFailed, match=said):
        stranger.fetch(cloud.image, str(tmp_path / "target"))
    with pytest.raises(exceptions.ImageUploadFailed, match=said):
        cloud.upload(stranger)
    assert cloud.stored() == [cloud.image.id]


def test_removed_host_gets_no_image(cloud: Cloud, tmp_path: Path) -> None:
    host = cloud.host()
    host.fetch(cloud.image, str(tmp_path / "target"))
    keys.write_trusted(str(cloud.site.directory / keys.TRUSTED), [])
    with pytest.raises(exceptions.ImageDownloadFailed, match="signs this request"):
        for _ in polls(10):  # the list is read again once a second
            host.fetch(cloud.image, str(tmp_path / "target"))


def test_signature_of_another_request_or_time_is_refused(
    cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf, sign = cloud.host().conf, RemoteStore._signature
    with pytest.raises(exceptions.ImageDownloadFailed, match="The clock of h1 differs"):
        RemoteStore(conf, lambda: time.time() - 900).fetch(cloud.image, str(tmp_path / "target"))
    monkeypatch.setattr(
        RemoteStore, "_signature", lambda self, method, path, length: sign(self, method, f"{path}0", length)
    )
    with pytest.raises(exceptions.ImageDownloadFailed, match="signature of this request is wrong"):
        RemoteStore(conf).fetch(cloud.image, str(tmp_path / "target"))


def test_host_sends_the_image_that_it_makes(cloud: Cloud) -> None:
    sent: list[int] = []
    cloud.upload(cloud.host(), sent.append)
    assert sent[-1] == len(DATA)
    assert (cloud.store / cloud.made.id).read_bytes() == DATA
    row = cloud.row()
    assert row is not None
    assert (row.status, row.size, row.checksum) == ("saving", len(DATA), hashlib.sha256(DATA).hexdigest())
    assert cloud.stored() == sorted([cloud.image.id, cloud.made.id])


def test_repeated_upload_replaces_the_first(cloud: Cloud) -> None:
    host = cloud.host()
    cloud.upload(host)
    cloud.upload(host, data=DATA[:-1])
    assert (cloud.store / cloud.made.id).read_bytes() == DATA[:-1]


def test_small_image_is_received_at_once(cloud: Cloud) -> None:
    cloud.upload(cloud.host(), data=b"small")
    assert (cloud.store / cloud.made.id).read_bytes() == b"small"


def test_host_cannot_write_an_image_of_another_host(cloud: Cloud) -> None:
    host = cloud.host("h2")
    with pytest.raises(exceptions.ImageNotFound):
        cloud.upload(host)
    assert cloud.stored() == [cloud.image.id]


def test_image_of_a_forbidden_format_is_refused(cloud: Cloud) -> None:
    qcow2_with_a_backing_file = b"QFI\xfb\0\0\0\3" + (1024).to_bytes(8, "big") + (10).to_bytes(4, "big") + bytes(2000)
    with pytest.raises(exceptions.ImageUploadFailed, match="unacceptable"):
        cloud.upload(cloud.host(), data=qcow2_with_a_backing_file)
    assert cloud.stored() == [cloud.image.id]


def test_full_store_refuses_an_image_for_good(cloud: Cloud) -> None:
    cloud.conf.set_override("min_free_mb", 1 << 40, "image")
    with pytest.raises(exceptions.ImageUploadFailed, match="its disk is full"):
        cloud.upload(cloud.host())
    assert cloud.stored() == [cloud.image.id]


def test_upload_that_is_not_wanted_any_more_leaves_nothing(cloud: Cloud) -> None:
    class Over(Exception):
        pass

    def end(_: int) -> None:
        raise Over

    with pytest.raises(Over):
        cloud.upload(cloud.host(), end, DATA * 8)
    wait_for("only the image is stored", lambda: cloud.stored() == [cloud.image.id], 30)
    wait_for("it is queued again", lambda: (row := cloud.row()) and row.status == "queued", 30)


def test_cloud_that_is_away_is_tried_again_later(cloud: Cloud, tmp_path: Path) -> None:
    host = cloud.host()
    cloud.site.stop()
    with pytest.raises(exceptions.ImageDownloadFailed, match="cannot be reached"):
        host.fetch(cloud.image, str(tmp_path / "target"))
    with pytest.raises(exceptions.ServiceUnavailable, match="cannot be reached"):
        cloud.upload(host)
