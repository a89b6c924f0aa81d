"""Uploads through the HTTP server: data arrive piece by piece, and hold no thread."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nova_lite.api.http.limits import ClientLimits
from nova_lite.api.image import uploads
from nova_lite.base import exceptions
from nova_lite.image import store
from nova_lite.objects import Image
from tests.support.api_client import MEMBER, STRANGER
from tests.support.http_site import GET, HttpSite, Reply, read_reply, serving, statuses, until_closed
from tests.support.image_api import Images, left_behind
from tests.support.waiting import wait_for

DATA = bytes(range(256)) * 2000


@pytest.fixture
def images(tmp_path: Path) -> Images:
    return Images(tmp_path)


@pytest.fixture
def site(images: Images) -> Iterator[HttpSite]:
    with serving(images.app, threads=2) as made:
        yield made


def head(image_id: str, *headers: str, token: str = MEMBER) -> bytes:
    lines = [f"PUT /v2/images/{image_id}/file HTTP/1.1", "Host: cloud", f"X-Auth-Token: {token}", *headers]
    return "\r\n".join([*lines, "Content-Type: application/octet-stream"]).encode() + b"\r\n\r\n"


def upload(site: HttpSite, image_id: str, data: bytes) -> Reply:
    with site.connect() as sock:
        sock.sendall(head(image_id, f"Content-Length: {len(data)}"))
        with contextlib.suppress(ConnectionError):
            sock.sendall(data)
        return read_reply(sock)[0]


def status_of(images: Images, image_id: str) -> str:
    return images.conductor.images[image_id].status


def test_large_upload_is_stored(images: Images, site: HttpSite) -> None:
    made = images.create()
    reply = upload(site, made["id"], DATA)
    assert (reply.status, "x-openstack-request-id" in reply.headers) == (204, True)
    assert (images.store / made["id"]).read_bytes() == DATA
    assert (status_of(images, made["id"]), images.conductor.images[made["id"]].size) == ("active", len(DATA))
    assert left_behind(images) == [made["id"]]


def test_chunked_upload_is_stored(images: Images, site: HttpSite) -> None:
    made = images.create()
    with site.connect() as sock:
        sock.sendall(head(made["id"], "Transfer-Encoding: chunked"))
        for start in range(0, len(DATA), 50_000):
            piece = DATA[start : start + 50_000]
            sock.sendall(b"%x\r\n%b\r\n" % (len(piece), piece))
        sock.sendall(b"0\r\n\r\n")
        assert read_reply(sock)[0].status == 204
    assert (images.store / made["id"]).read_bytes() == DATA
    changes = [changes for _, changes, *_ in images.conductor.of("image_update")]
    assert changes[0]["size"] == images.conf.image.max_upload_mb * 2**20, "not what has arrived so far"


@pytest.mark.parametrize(("quota", "status"), [(2**20, 204), (200_000, 413)])
def test_chunked_upload_reserves_its_quota_in_growing_steps(
    images: Images, site: HttpSite, monkeypatch: pytest.MonkeyPatch, quota: int, status: int
) -> None:
    """Data arrive in a transfer thread, and the reservations are made where requests are served."""
    monkeypatch.setattr(uploads, "FIRST_RESERVATION", 100_000)
    made, sizes, update = images.create(), [], images.conductor.own_answer("image_update")

    def reserve(context: Any, image_id: str, changes: dict[str, Any], *more: Any) -> Image:
        sizes.extend([changes["size"]] if changes.get("size") else [])
        if changes.get("size", 0) > quota:
            raise exceptions.ImageQuotaExceeded(allowed=0, unit="MiB", used=0)
        image: Image = update(context, image_id, changes, *more)
        return image

    images.conductor.script("image_update", reserve)
    with site.connect() as sock:
        sock.sendall(head(made["id"], "Transfer-Encoding: chunked"))
        with contextlib.suppress(ConnectionError):
            for start in range(0, 350_000, 10_000):
                sock.sendall(b"%x\r\n%b\r\n" % (10_000, DATA[start : start + 10_000]))
            sock.sendall(b"0\r\n\r\n")
        assert read_reply(sock)[0].status == status
    reserved = sizes[:-1] if status == 204 else sizes
    assert reserved == [100_000 * 2**index for index in range(len(reserved))]
    assert (len(reserved) > 1, reserved[-1] > (350_000 if status == 204 else 200_000)) == (True, True)
    assert sizes[-1] == (350_000 if status == 204 else reserved[-1])
    wait_for(
        "the upload is over", lambda: status_of(images, made["id"]) == ("active" if status == 204 else "queued"), 30
    )
    assert left_behind(images) == ([made["id"]] if status == 204 else [])


def test_unfinished_uploads_hold_no_thread(images: Images, site: HttpSite) -> None:
    made = [images.create()["id"] for _ in range(20)]
    with contextlib.ExitStack() as slow:
        for image_id in made:
            sock = slow.enter_context(site.connect())
            sock.sendall(head(image_id, f"Content-Length: {len(DATA)}") + DATA[:300_000])
        wait_for("all are saved", lambda: {status_of(images, image_id) for image_id in made} == {"saving"}, 30)
        with site.connect() as sock:
            sock.sendall(GET)
            assert read_reply(sock)[0].status == 300
    wait_for("all are queued again", lambda: {status_of(images, image_id) for image_id in made} == {"queued"}, 30)
    wait_for("nothing is left", lambda: left_behind(images) == [], 30)


def test_slow_upload_ends_at_its_deadline(images: Images) -> None:
    made = images.create()
    with serving(images.app, limits=ClientLimits(upload=0.5)) as site, site.connect() as sock:
        sock.sendall(head(made["id"], f"Content-Length: {len(DATA)}") + DATA[:300_000])
        received = until_closed(sock)
    assert statuses(received) == [400]
    assert b"The upload ended early." in received
    assert status_of(images, made["id"]) == "queued"
    assert left_behind(images) == []


@pytest.mark.parametrize("announced", [True, False])
def test_upload_above_the_limit_is_refused_before_it_is_stored(images: Images, site: HttpSite, announced: bool) -> None:
    made = images.create()
    with site.connect() as sock:
        size = 2**20 + 1
        if announced:
            sock.sendall(head(made["id"], f"Content-Length: {size}", "Expect: 100-continue"))
        else:
            with contextlib.suppress(ConnectionError):
                sock.sendall(head(made["id"], "Transfer-Encoding: chunked") + b"%x\r\n%b\r\n" % (size, b"x" * size))
        received = until_closed(sock)
    assert statuses(received) == [413]
    wait_for("it is queued again", lambda: status_of(images, made["id"]) == "queued", 30)
    assert left_behind(images) == []


def test_client_continues_only_after_its_upload_is_accepted(images: Images, site: HttpSite) -> None:
    made = images.create()
    for token, code in ((STRANGER, 403), (MEMBER, 100)):
        with site.connect() as sock:
            sock.sendall(head(made["id"], f"Content-Length: {len(DATA)}", "Expect: 100-continue", token=token))
            assert sock.recv(12) == f"HTTP/1.1 {code}".encode()


def test_upload_of_another_format_is_refused(images: Images, site: HttpSite) -> None:
    made = images.create(disk_format="qcow2")
    assert upload(site, made["id"], DATA).status == 400
    assert status_of(images, made["id"]) == "queued"
    assert left_behind(images) == []


def test_upload_to_a_full_disk_is_a_503(images: Images, site: HttpSite, monkeypatch: pytest.MonkeyPatch) -> None:
    made = images.create()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(store.IncompleteFile, "write", full)
    assert upload(site, made["id"], DATA).status == 503
    assert status_of(images, made["id"]) == "queued"
    assert left_behind(images) == []


def test_download_is_streamed(images: Images, site: HttpSite) -> None:
    made = images.create()
    assert upload(site, made["id"], DATA).status == 204
    with site.connect() as sock:
        sock.sendall(head(made["id"]).replace(b"PUT", b"GET"))
        reply, more = read_reply(sock)
    assert (reply.status, reply.body, more) == (200, DATA, b"")
