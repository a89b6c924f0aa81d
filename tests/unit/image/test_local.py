"""Backend ``local``: metadata are rows of the database, data are files that hosts copy."""

from __future__ import annotations

import errno
import hashlib
from pathlib import Path
from typing import Any

import pytest

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.image import store, verified
from nova_lite.image.driver import ImageBackend, load_backend
from nova_lite.objects import Image
from tests.support.api_client import make_conf
from tests.support.control_plane import IMAGE_ID, FakeConductor

DATA = b"bytes of an image" * 1000
CONTEXT = RequestContext(user_id="u", project_id="demo", overwrite=False)


@pytest.fixture
def backend(tmp_path: Path) -> ImageBackend:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "i").write_bytes(DATA)
    conf = make_conf(tmp_path, f"[image]\nstore_path = {tmp_path}/store\n")
    return load_backend(conf, FakeConductor())  # type: ignore[arg-type]


def image(**changes: Any) -> Image:
    values = {"id": "i", "name": "x", "size": len(DATA), "checksum": hashlib.sha256(DATA).hexdigest()}
    return Image(**{**values, **changes})


def test_local_metadata_come_from_the_conductor(backend: ImageBackend) -> None:
    assert [image.id for image in backend.list_images(CONTEXT, None)] == [IMAGE_ID]
    assert backend.get(CONTEXT, IMAGE_ID).properties == {"k": "v"}
    assert backend.change_properties(CONTEXT, IMAGE_ID, {"k": None, "a": "1"}).properties == {"a": "1"}


def test_local_delete_is_done_by_the_conductor(backend: ImageBackend) -> None:
    backend.delete(CONTEXT, IMAGE_ID)
    with pytest.raises(exceptions.ImageNotFound):
        backend.get(CONTEXT, IMAGE_ID)


def test_local_describe_is_empty(backend: ImageBackend) -> None:
    assert backend.describe(CONTEXT, [IMAGE_ID]) == {}
    assert backend.conductor.calls == []  # type: ignore[attr-defined]


@pytest.mark.parametrize("changes", [{}, {"checksum": ""}, {"id": "../store/i"}])
def test_local_fetch_copies_the_data(backend: ImageBackend, tmp_path: Path, changes: dict[str, Any]) -> None:
    backend.fetch(image(**changes), str(tmp_path / "target"))
    assert (tmp_path / "target").read_bytes() == DATA
    assert (tmp_path / "target").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"id": "none"}, exceptions.ImageFileMissing),
        ({"size": 1}, exceptions.ImageCorrupt),
        ({"checksum": "0" * 64}, exceptions.ImageCorrupt),
    ],
)
def test_failed_local_fetch_leaves_no_file(
    backend: ImageBackend, tmp_path: Path, changes: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        backend.fetch(image(**changes), str(tmp_path / "target"))
    assert not (tmp_path / "target").exists()


def test_local_fetch_to_a_full_disk_is_a_download_failure(
    backend: ImageBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(verified, "write", full)
    with pytest.raises(exceptions.ImageDownloadFailed, match="No space left on device"):
        backend.fetch(image(), str(tmp_path / "target"))


@pytest.mark.parametrize("fills_at", [0, 10_000])
def test_local_upload_of_a_host_leaves_the_store_its_free_space(
    backend: ImageBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fills_at: int
) -> None:
    monkeypatch.setattr(store, "SPACE_STEP", 5_000)
    monkeypatch.setattr(store, "CHUNK", 1_000)
    real = store.require_room

    def filling(path: str, size: int, floor: int) -> None:
        assert floor == 1024 * 2**20
        real(path, size, floor if len(DATA) - size < fills_at else 2**60)

    monkeypatch.setattr(store, "require_room", filling)
    with pytest.raises(exceptions.ImageUploadFailed, match=r"\d+ MiB are free, and \d+ MiB have to stay free"):
        backend.upload(image(id=IMAGE_ID), str(tmp_path / "store" / "i"), "h1", lambda done: None)
    assert [path for path in (tmp_path / "store" / store.UPLOADS).rglob("*") if path.is_file()] == []
    assert backend.conductor.images[IMAGE_ID].status == "saving", "the failed action discards it"  # type: ignore[attr-defined]
