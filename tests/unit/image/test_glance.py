"""Backend ``glance``, over HTTP."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.image import glance as glance_module
from nova_lite.image.driver import ImageCall, load_backend
from nova_lite.image.glance import GlanceImages, image_of
from nova_lite.image.snapshots import EMPTY
from nova_lite.objects import Image
from tests.support.api_client import make_client, make_conf
from tests.support.control_plane import NOW
from tests.unit.image.conftest import ADMIN, ALICE, DATA, ID, KERNEL_ID, Glance, glance_options

DESCRIBED = {
    "id": ID,
    "name": "debian",
    "status": "active",
    "visibility": "public",
    "size": 7,
    "min_disk": 1,
    "min_ram": 2,
    "checksum": "md5",
    "os_hash_algo": "sha512",
    "os_hash_value": "long",
    "disk_format": "qcow2",
    "container_format": "bare",
    "owner": "p",
    "protected": False,
    "os_hidden": False,
    "tags": ["t"],
    "virtual_size": 9,
    "created_at": "2026-11-21T08:00:00Z",
    "updated_at": "2026-11-21T08:00:00Z",
    "self": f"/v2/images/{ID}",
    "file": f"/v2/images/{ID}/file",
    "schema": "/v2/schemas/image",
    "kernel_id": None,
    "hw_disk_bus": "virtio",
}


# --- metadata


def test_image_is_converted_from_glance() -> None:
    image = image_of(DESCRIBED)
    assert (image.hash_algorithm, image.checksum, image.size, image.min_disk) == ("sha512", "long", 7, 1)
    assert image.properties == {"hw_disk_bus": "virtio"}
    assert image.created_at is not None
    assert (image.created_at.hour, image.created_at.tzinfo) == (8, None)


@pytest.mark.parametrize("algorithm", [None, "whirlpool9", "shake_128"])
def test_md5_is_used_if_the_better_algorithm_is_unknown(algorithm: str | None) -> None:
    image = image_of(DESCRIBED | {"os_hash_algo": algorithm})
    assert (image.hash_algorithm, image.checksum) == ("md5", "md5")


def test_image_without_data_is_converted() -> None:
    nothing = dict.fromkeys(("size", "checksum", "os_hash_algo", "os_hash_value", "disk_format", "name"))
    image = image_of(DESCRIBED | nothing | {"status": "queued"})
    assert (image.size, image.checksum, image.disk_format, image.name, image.status) == (0, "", "", "", "queued")


@pytest.mark.parametrize("body", [{}, {"id": ID, "status": "active"}, DESCRIBED | {"created_at": "yesterday"}])
def test_invalid_description_is_a_failure_of_glance(body: dict[str, Any]) -> None:
    with pytest.raises(exceptions.ImageServiceUnavailable):
        image_of(body)


def test_api_requests_use_the_token_of_the_user(backend: GlanceImages, glance: Glance) -> None:
    added = glance.add(properties={"os_distro": "debian"})
    assert backend.get(ALICE, ID) == added
    assert [*backend.list_images(ALICE, None)] == [added]
    assert {token for _, _, token in glance.requests} == {"alice:demo"}


def test_withdrawn_image_stays_if_glance_is_down(
    backend: GlanceImages, glance: Glance, caplog: pytest.LogCaptureFixture
) -> None:
    """Its user gets the refusal, and not that Glance is down."""
    glance.stop()
    backend.withdraw(ALICE, ID)
    assert f"Image {ID}, which its user was refused, is left at Glance: " in caplog.text


def test_list_begins_after_the_marker(backend: GlanceImages, glance: Glance) -> None:
    ids = [glance.add(f"{number}" * 8 + ID[8:], name="x").id for number in range(3)]
    whole = [image.id for image in backend.list_images(ALICE, None)]
    assert sorted(whole) == ids
    assert [image.id for image in backend.list_images(ALICE, None, whole[0])] == whole[1:]
    with pytest.raises(exceptions.MarkerNotFound):
        list(backend.list_images(ALICE, None, "9" * 8 + ID[8:]))


def test_list_reads_all_pages(backend: GlanceImages, glance: Glance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glance_module, "PAGE", 1)
    for number in range(3):
        glance.add(f"{number}" * 8 + ID[8:], name="same" if number else "other")
    assert len([*backend.list_images(ALICE, None)]) == 3
    assert [image.name for image in backend.list_images(ALICE, "same")] == ["same", "same"]


@pytest.mark.parametrize("image_id", [KERNEL_ID, "nonsense", "..", "../../v2/images", ID + "/file"])
def test_unknown_image_is_not_found(backend: GlanceImages, glance: Glance, image_id: str) -> None:
    with pytest.raises(exceptions.ImageNotFound):
        backend.get(ALICE, image_id)
    assert {path for _, path, _ in glance.requests} <= {f"/v2/images/{KERNEL_ID}"}


def test_properties_are_changed(backend: GlanceImages, glance: Glance) -> None:
    glance.add(properties={"a": "1", "b": "2"})
    changed = backend.change_properties(ALICE, ID, {"a": "3", "b": None, "c/d~e": "4"})
    assert changed.properties == {"a": "3", "c/d~e": "4"}
    assert glance.requests == [("PATCH", f"/v2/images/{ID}", "alice:demo")]
    assert backend.change_properties(ALICE, ID, {}) == changed


@pytest.mark.parametrize(
    ("context", "changes", "error"),
    [
        (ALICE, {"name": "x"}, exceptions.ValidationError),
        (ALICE, {"status": None}, exceptions.ValidationError),
        (ALICE, {"nope": None}, exceptions.Conflict),
        (RequestContext(auth_token="mallory:other", overwrite=False), {"a": "1"}, exceptions.Forbidden),
        (RequestContext(overwrite=False), {"a": "1"}, exceptions.Forbidden),
    ],
)
def test_fields_of_glance_cannot_be_changed(
    backend: GlanceImages, glance: Glance, context: RequestContext, changes: Any, error: type[Exception]
) -> None:
    image = glance.add()
    with pytest.raises(error):
        backend.change_properties(context, ID, changes)
    assert glance.conductor.images[ID] == image


def test_image_is_deleted_with_the_token_of_the_user(backend: GlanceImages, glance: Glance) -> None:
    glance.add()
    mallory = RequestContext(auth_token="mallory:other", overwrite=False)
    with pytest.raises(exceptions.Forbidden):
        backend.delete(mallory, ID)
    backend.delete(ALICE, ID)
    with pytest.raises(exceptions.ImageNotFound):
        backend.delete(ALICE, ID)
    assert glance.requests == [
        ("DELETE", f"/v2/images/{ID}", user) for user in ("mallory:other", "alice:demo", "alice:demo")
    ]


def test_description_includes_the_kernel(backend: GlanceImages, glance: Glance) -> None:
    kernel, image = glance.add(KERNEL_ID), glance.add(properties={"kernel_id": KERNEL_ID})
    assert backend.describe(ALICE, [ID]) == {ID: image, KERNEL_ID: kernel}


def test_missing_ramdisk_is_named(backend: GlanceImages, glance: Glance) -> None:
    glance.add(properties={"ramdisk_id": KERNEL_ID})
    with pytest.raises(exceptions.InvalidInput, match=f"names a ramdisk {KERNEL_ID} that does not exist"):
        backend.describe(ALICE, [ID])
    with pytest.raises(exceptions.ImageUnavailable):
        backend.describe(ALICE, [KERNEL_ID])


# --- through the compute API


def test_create_passes_the_image_without_the_token(conf: cfg.ConfigOpts, glance: Glance) -> None:
    image = glance.add()
    api = make_client(conf)
    api.json("POST", "/servers", {"server": {"name": "vm", "flavorRef": "1", "imageRef": ID}}, 202)
    (request,) = api.last_call("create_instances")
    assert request.images == {ID: image}
    assert all("auth_token" not in context.to_rpc() for context in api.conductor.contexts)


def test_create_without_the_image_or_without_glance_is_refused(conf: cfg.ConfigOpts, glance: Glance) -> None:
    api = make_client(conf)
    body = {"server": {"name": "vm", "flavorRef": "1", "imageRef": ID}}
    assert api.json("POST", "/servers", body, 400)["badRequest"]["message"] == "Can not find requested image"
    assert api("GET", f"/images/{ID}").status_code == 404
    glance.stop()
    away = "The image service did not answer. Please try again."
    assert api.json("POST", "/servers", body, 503)["serviceUnavailable"]["message"] == away
    assert api.json("GET", "/images", status=503)["serviceUnavailable"]["message"] == away


def test_image_proxies_show_the_images_of_glance(conf: cfg.ConfigOpts, glance: Glance) -> None:
    glance.add(properties={"a": "1"}, owner="demo")
    api = make_client(conf)
    assert [image["id"] for image in api.json("GET", "/images/detail")["images"]] == [ID]
    assert api.json("PUT", f"/images/{ID}/metadata", {"metadata": {"b": "2"}})["metadata"] == {"b": "2"}
    assert api.json("GET", f"/images/{ID}")["image"]["metadata"] == {"b": "2"}
    assert api("DELETE", f"/images/{ID}/metadata/b").status_code == 204
    assert api.json("POST", f"/images/{ID}/metadata", {"metadata": {"name": "x"}}, 400)
    assert glance.conductor.images[ID].properties == {}


# --- bytes


def test_download_uses_the_service_user(backend: GlanceImages, glance: Glance, tmp_path: Path) -> None:
    image = glance.add()
    backend.fetch(image, str(tmp_path / "target"))
    assert (tmp_path / "target").read_bytes() == DATA
    assert (tmp_path / "target").stat().st_mode & 0o777 == 0o600
    assert glance.requests == [("GET", f"/v2/images/{ID}/file", "admin:service")]


@pytest.mark.parametrize("algorithm", ["sha512", "md5"])
def test_download_checks_other_hash_algorithms(
    backend: GlanceImages, glance: Glance, tmp_path: Path, algorithm: str
) -> None:
    glance.add()
    checksum = hashlib.new(algorithm, DATA).hexdigest()
    image = Image(id=ID, name="x", size=len(DATA), checksum=checksum, hash_algorithm=algorithm, created_at=NOW)
    backend.fetch(image, str(tmp_path / "target"))
    image.checksum = checksum[::-1]
    with pytest.raises(exceptions.ImageDownloadFailed, match="checksum is not the registered one"):
        backend.fetch(image, str(tmp_path / "target"))
    assert not (tmp_path / "target").exists()


def busy(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    start_response("503 Busy", [("Content-Length", "0")])
    return []


def short(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    start_response("200 OK", [("Content-Length", str(len(DATA) - 1))])
    return [DATA[:-1]]


def interrupted(environ: dict[str, Any], start_response: Any) -> Any:
    start_response("200 OK", [("Content-Length", str(len(DATA)))])

    def pieces() -> Iterator[bytes]:
        yield DATA[:1000]
        raise ConnectionError("this server has enough")

    return pieces()


def changed(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    start_response("200 OK", [("Content-Length", str(len(DATA)))])
    return [DATA[:-1] + b"x"]


def endless(environ: dict[str, Any], start_response: Any) -> Any:
    start_response("200 OK", [])
    return (DATA for _ in range(1000))


def expired(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    start_response("401 Unauthorized", [("Content-Length", "0")])
    return []


FAILURES = {
    busy: "Glance does not respond",
    short: f"{len(DATA) - 1} bytes where {len(DATA)} were registered",
    interrupted: "the connection broke",
    changed: "its checksum is not the registered one",
    endless: f"more than the {len(DATA)} bytes registered",
    expired: "Glance returned 401",
}


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: failure.__name__)
def test_failed_download_is_repeated(
    backend: GlanceImages, glance: Glance, tmp_path: Path, failure: Callable[..., Any]
) -> None:
    image = glance.add()
    glance.failures = [failure, failure]
    backend.fetch(image, str(tmp_path / "target"))
    assert (tmp_path / "target").read_bytes() == DATA


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: failure.__name__)
def test_download_fails_after_the_last_retry_and_leaves_no_file(
    backend: GlanceImages, glance: Glance, tmp_path: Path, failure: Callable[..., Any]
) -> None:
    image = glance.add()
    glance.failures = [failure] * 9
    with pytest.raises(exceptions.ImageDownloadFailed, match=FAILURES[failure]):
        backend.fetch(image, str(tmp_path / "target"))
    assert len(glance.failures) <= 6
    assert [path.name for path in tmp_path.iterdir() if path.name == "target"] == []


def test_download_fails_if_glance_is_down(backend: GlanceImages, glance: Glance, tmp_path: Path) -> None:
    image = glance.add()
    glance.stop()
    with pytest.raises(exceptions.ImageDownloadFailed, match="does not respond"):
        backend.fetch(image, str(tmp_path / "target"))


def test_download_of_a_deleted_image_is_not_repeated(backend: GlanceImages, glance: Glance, tmp_path: Path) -> None:
    with pytest.raises(exceptions.ImageFileMissing, match="Glance does not have its data"):
        backend.fetch(Image(id=ID, name="x", created_at=NOW), str(tmp_path / "target"))
    assert len(glance.requests) == 1
    assert not (tmp_path / "target").exists()


def test_download_to_an_unwritable_disk_is_a_driver_error(
    backend: GlanceImages, glance: Glance, tmp_path: Path
) -> None:
    with pytest.raises(exceptions.VirtDriverError, match="cannot be written: No such file"):
        backend.fetch(glance.add(), str(tmp_path / "nowhere" / "target"))
    assert len(glance.requests) == 1


# --- configuration


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[image]\nbackend = glance\n", r"\[glance\] auth_type and its options"),
        ("[image]\nbackend = glance\n[glance]\nauth_type = nonsense\n", "nonsense"),
        ("[image]\nbackend = nonsense\n", r"\[image\] backend: unknown nonsense"),
    ],
)
def test_configuration_error_is_explained(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(exceptions.ConfigurationError, match=sentence):
        load_backend(make_conf(tmp_path, text), None)  # type: ignore[arg-type]


def test_endpoint_may_include_the_version(tmp_path: Path, glance: Glance) -> None:
    image = glance.add()
    text = glance_options(glance.url) + f"endpoint_override = {glance.url}/v2/\n"
    backend = load_backend(make_conf(tmp_path, text), None)  # type: ignore[arg-type]
    assert backend.get(ADMIN, ID) == image


def test_slow_glance_times_out(tmp_path: Path, glance: Glance, caplog: Any) -> None:
    has_ended = threading.Event()

    def slow(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        has_ended.wait(30)
        return busy(environ, start_response)

    glance.failures = [slow] * 3
    text = (
        glance_options(glance.url).replace("timeout = 5", "timeout = 0.2").replace("num_retries = 2", "num_retries = 0")
    )
    backend = load_backend(make_conf(tmp_path, text), None)  # type: ignore[arg-type]
    with caplog.at_level(logging.ERROR), pytest.raises(exceptions.ImageDownloadFailed):
        backend.fetch(glance.add(), str(tmp_path / "target"))
    has_ended.set()
    assert "timed out" in caplog.text


def test_image_without_data_is_activated(backend: GlanceImages) -> None:
    """A snapshot of a server that boots from a volume has no data. A repetition is harmless."""
    queued = Image(
        id=ID, name="volumes", status="queued", disk_format=EMPTY, visibility="private", properties={"bdm_v2": "True"}
    )
    made = backend.register(ALICE, queued)
    assert made is not None
    for _ in range(2):
        image = backend.activate(ImageCall(image_id=made.id))
        assert image is not None
        assert (image.status, image.size, image.properties["bdm_v2"]) == ("active", 0, "True")
    backend.withdraw(ALICE, made.id)
    with pytest.raises(exceptions.ImageNotFound):
        backend.activate(ImageCall(image_id=made.id))


def test_image_is_registered_once_in_the_name_of_its_owner(backend: GlanceImages, glance: Glance) -> None:
    image = Image(id=ID, name="b", owner="p1", visibility="private", properties={"backup_type": "policy-1"})
    registered = backend.register_for_owner(image)
    assert registered is not None
    assert (registered.id, registered.owner, registered.status) == (ID, "p1", "queued")
    assert registered.properties["backup_type"] == "policy-1"
    assert backend.register_for_owner(image) == registered
    assert {token for _, _, token in glance.requests} == {"admin:service"}
