"""Imports of images: staged data, and downloads from allowed hosts alone."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import webob

from nova_lite.api.image import imports
from nova_lite.base import exceptions, ip
from nova_lite.image import download, store
from tests.support import exports
from tests.support.api_client import STRANGER
from tests.support.image_api import fault
from tests.support.image_service import ImageService
from tests.support.waiting import wait_for

DATA = b"the data of an image" * 100
BODY = {"name": "i", "disk_format": "raw", "container_format": "bare"}
DIRECT = {"method": {"name": "glance-direct"}}


class Mirror(http.server.BaseHTTPRequestHandler):
    """A web server of images and redirections."""

    places: dict[str, str] = {}

    def do_GET(self) -> None:
        if self.path in self.places:
            self.send_response(302)
            self.send_header("Location", self.places[self.path])
            self.end_headers()
            return
        data = {"/image": DATA, "/large": b"x" * (2 * 1024**2)}.get(self.path)
        self.send_response(404 if data is None else 200)
        if self.path == "/large":  # of unknown size
            self.end_headers()
        else:
            self.send_header("Content-Length", str(len(data or b"")))
            self.end_headers()
        self.wfile.write(data or b"")

    def log_message(self, *arguments: Any) -> None:
        """Write no log."""


@pytest.fixture
def mirror() -> Iterator[str]:
    """Run a mirror, and yield its address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Mirror)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    address = f"127.0.0.1:{server.server_address[1]}"
    Mirror.places = {
        "/moved": "/image",
        "/elsewhere": "http://169.254.169.254/latest/",
        "/loop": "/loop",
    }
    yield address
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def images(tmp_path: Path, mirror: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ImageService]:
    monkeypatch.setattr(imports, "MAX_DOWNLOADS", 2)
    port = mirror.rpartition(":")[2]
    made = ImageService(tmp_path, f"import_hosts = {mirror}, localhost:{port}")
    yield made
    made.manager.close()


def stage(images: ImageService, data: bytes = DATA, **changes: Any) -> str:
    image_id = str(images.made("/images", BODY | changes)["id"])
    response = images("PUT", f"/images/{image_id}/stage", data)
    assert response.status_code == 204, response.text
    return image_id


def load(images: ImageService, url: str, **changes: Any) -> dict[str, Any]:
    """Import from a URL, and return the image at the end."""
    image_id = images.made("/images", BODY | changes)["id"]
    body = {"method": {"name": "web-download", "uri": url}}
    response = images("POST", f"/images/{image_id}/import", body)
    assert response.status_code == 202, response.text
    return ended(images, image_id)


def ended(images: ImageService, image_id: str) -> dict[str, Any]:
    """Return an image at the end of its import."""

    def shown() -> dict[str, Any]:
        found: dict[str, Any] = images("GET", f"/images/{image_id}").json
        return found if found["status"] == "active" or "os_glance_failed_import" in found else {}

    return wait_for("the import ends", shown, 30)


def files_of(images: ImageService) -> list[str]:
    return sorted(path.name for path in images.store.rglob("*") if path.is_file())


def test_staged_data_are_imported(images: ImageService) -> None:
    image_id = stage(images)
    shown = images("GET", f"/images/{image_id}").json
    assert (shown["status"], shown["checksum"], shown["size"]) == ("uploading", None, None)
    assert images("GET", f"/images/{image_id}/file").status_code == 204
    assert images("POST", f"/images/{image_id}/import", DIRECT).status_code == 202
    shown = images("GET", f"/images/{image_id}").json
    assert (shown["status"], shown["size"], shown["virtual_size"]) == ("active", len(DATA), len(DATA))
    assert shown["os_hash_value"] and shown["checksum"]
    assert images("GET", f"/images/{image_id}/file").body == DATA
    assert files_of(images) == [image_id]
    assert images("POST", f"/images/{image_id}/import", DIRECT).status_code == 409
    assert images("PUT", f"/images/{image_id}/stage", DATA).status_code == 409


def test_import_goes_on_where_an_earlier_one_has_died(images: ImageService) -> None:
    image_id = stage(images)
    (images.store / "staging" / image_id).rename(images.store / image_id)
    assert images("POST", f"/images/{image_id}/import", DIRECT).status_code == 202
    assert images("GET", f"/images/{image_id}").json["status"] == "active"


def test_lost_staged_data_are_staged_again(images: ImageService) -> None:
    image_id = stage(images)
    (images.store / "staging" / image_id).unlink()
    assert "stage them again" in fault(images("POST", f"/images/{image_id}/import", DIRECT), 409)
    assert images("GET", f"/images/{image_id}").json["status"] == "queued"
    assert images("PUT", f"/images/{image_id}/stage", DATA).status_code == 204
    assert images("POST", f"/images/{image_id}/import", DIRECT).status_code == 202


def test_staged_data_of_another_format_are_refused(images: ImageService) -> None:
    image_id = stage(images, disk_format="qcow2")
    assert "declared as qcow2" in fault(images("POST", f"/images/{image_id}/import", DIRECT), 400)
    shown = images("GET", f"/images/{image_id}").json
    assert (shown["status"], shown["os_glance_failed_import"]) == ("queued", "local")
    assert files_of(images) == []


def test_staged_archive_is_imported_with_the_size_of_its_disk(images: ImageService) -> None:
    disk = exports.stream_optimized(bytes(3 * 1024**2))
    archive = exports.ova({"vm.ovf": exports.ovf(["d.vmdk"]), "d.vmdk": disk})
    image_id = stage(images, archive, disk_format="vmdk", container_format="ova")
    assert images("POST", f"/images/{image_id}/import", DIRECT).status_code == 202
    assert images("GET", f"/images/{image_id}").json["virtual_size"] == 3 * 1024**2


def test_staged_data_are_deleted_with_their_image(images: ImageService) -> None:
    image_id = stage(images)
    assert images("DELETE", f"/images/{image_id}").status_code == 204
    assert files_of(images) == []


def test_import_of_an_image_that_is_deleted_meanwhile_leaves_no_file(
    images: ImageService, monkeypatch: pytest.MonkeyPatch
) -> None:
    image_id, remove = stage(images), store.remove
    staged, removed = images.store / "staging" / image_id, []

    def remove_while_an_import_moves_the_data(store_path: str, image_id: str) -> None:
        """Remove a file. The first call is the conductor's, and an import moves the data after the second one."""
        remove(store_path, image_id)
        removed.append(store_path)
        if len(removed) == 2 and staged.exists():
            staged.rename(images.store / image_id)

    monkeypatch.setattr(store, "remove", remove_while_an_import_moves_the_data)
    assert images("DELETE", f"/images/{image_id}").status_code == 204
    assert (files_of(images), len(removed)) == ([], 3)


def test_abandoned_staged_data_are_removed_while_another_daemon_removes_them(images: ImageService) -> None:
    kept, old = stage(images), stage(images)
    directory = images.store / "staging"
    os.utime(directory / old, (1, 1))
    (directory / "gone").symlink_to("nowhere")
    imports.sweep(str(images.store))
    assert files_of(images) == [kept]


def test_abandoned_staged_data_are_removed_when_others_arrive(
    images: ImageService, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = stage(images)
    os.utime(images.store / "staging" / old, (1, 1))
    kept = stage(images)
    assert files_of(images) == sorted([old, kept]), "the last time was just now"
    later = time.monotonic() + imports.SWEEP_SECONDS
    monkeypatch.setattr(imports, "time", SimpleNamespace(monotonic=lambda: later, time=time.time))
    last = stage(images)
    assert files_of(images) == sorted([kept, last])


# --- pieces


def piece(images: ImageService, image_id: str, first: int, end: int, total: int = len(DATA)) -> webob.Response:
    """Stage the bytes from ``first`` to before ``end``."""
    headers = {"Content_Range": f"bytes {first}-{end - 1}/{total}"}
    return images("PUT", f"/images/{image_id}/stage", DATA[first:end], **headers)


def test_data_are_staged_in_pieces_and_imported_when_all_are_there(images: ImageService) -> None:
    image_id = images.made("/images", BODY)["id"]
    for first in (0, 700, 1400):
        refused = images("POST", f"/images/{image_id}/import", DIRECT)
        assert refused.status_code == 409
        assert piece(images, image_id, first, min(first + 700, len(DATA))).status_code == 204
    assert piece(images, image_id, 1400, len(DATA)).headers["Content-Range"] == f"bytes */{len(DATA)}", "all is there"
    assert images("POST", f"/images/{image_id}/import", DIRECT).status_code == 202
    shown = images("GET", f"/images/{image_id}").json
    assert (shown["status"], shown["size"]) == ("active", len(DATA))
    assert (shown["os_hash_value"], shown["checksum"]) == (
        hashlib.sha256(DATA).hexdigest(),
        hashlib.md5(DATA).hexdigest(),
    )
    assert images("GET", f"/images/{image_id}/file").body == DATA
    assert files_of(images) == [image_id]


def test_piece_that_begins_elsewhere_is_told_where_to_go_on(images: ImageService) -> None:
    image_id = images.made("/images", BODY)["id"]
    response = piece(images, image_id, 700, 900)
    assert (response.status_code, response.headers["Content-Range"]) == (416, "bytes */0"), "nothing has arrived"
    assert piece(images, image_id, 0, 700).status_code == 204
    for first in (0, 600, 800):
        response = piece(images, image_id, first, 1000)
        assert response.status_code == 416
        assert response.headers["Content-Range"] == "bytes */700"


def test_piece_that_breaks_leaves_the_earlier_ones(images: ImageService, monkeypatch: pytest.MonkeyPatch) -> None:
    image_id = images.made("/images", BODY)["id"]
    assert piece(images, image_id, 0, 700).status_code == 204
    with monkeypatch.context() as broken:
        broken.setattr(store, "sums", lambda path: (_ for _ in ()).throw(OSError("the disk fails")))
        assert piece(images, image_id, 700, len(DATA)).status_code == 503
    with open(images.store / "staging" / image_id, "ab") as file:
        file.write(b"what a daemon wrote before it was killed")
    assert piece(images, image_id, 700, len(DATA)).status_code == 204
    assert images("POST", f"/images/{image_id}/import", DIRECT).status_code == 202
    assert images("GET", f"/images/{image_id}/file").body == DATA


def test_piece_whose_earlier_ones_are_gone_is_refused(images: ImageService) -> None:
    image_id = images.made("/images", BODY)["id"]
    assert piece(images, image_id, 0, 700).status_code == 204
    os.truncate(images.store / "staging" / image_id, 600)
    assert "begin again" in fault(piece(images, image_id, 700, 900), 409)


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("bytes 0-9/*", 400),
        ("bytes 9-0/20", 400),
        ("bytes 0-9/9", 400),
        ("bytes 0-8/20", 400),
        ("bytes -1-8/20", 400),
        ("bytes \u0660-9/20", 400),
        ("bytes 0-9/1048577", 413),
        ("bytes 0-9/999999999999999", 413),
    ],
)
def test_wrong_range_of_a_piece_is_refused(images: ImageService, header: str, status: int) -> None:
    image_id = images.made("/images", BODY)["id"]
    response = images("PUT", f"/images/{image_id}/stage", DATA[:10], Content_Range=header)
    assert response.status_code == status
    assert files_of(images) == []
    assert images("GET", f"/images/{image_id}").json["status"] == "queued"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"method": "glance-direct"}, 400),
        ({"method": {"name": "copy-image"}}, 400),
        ({**DIRECT, "stores": ["elsewhere"]}, 400),
        (DIRECT, 409),
        ({"method": {"name": "web-download"}}, 400),
        ({"method": {"name": "web-download", "uri": "http://does-not.exist/no"}}, 400),
    ],
)
def test_impossible_import_is_refused(images: ImageService, body: dict[str, Any], status: int) -> None:
    image_id = images.made("/images", BODY)["id"]
    assert images("POST", f"/images/{image_id}/import", body).status_code == status
    assert images("GET", f"/images/{image_id}").json["status"] == "queued"
    assert images("POST", f"/images/{image_id}/import", body, token=STRANGER).status_code == 404
    assert images("PUT", f"/images/{image_id}/stage", DATA, token=STRANGER).status_code == 404


def test_image_is_loaded_from_an_allowed_host(images: ImageService, mirror: str) -> None:
    for path in ("image", "moved"):
        shown = load(images, f"http://{mirror}/{path}")
        assert (shown["status"], shown["size"]) == ("active", len(DATA))
        assert images("GET", f"/images/{shown['id']}/file").body == DATA
    assert images("GET", "/info/import").json["import-methods"]["value"] == ["glance-direct", "web-download"]


@pytest.mark.parametrize("path", ["missing", "elsewhere", "loop", "large"])
def test_failed_download_leaves_a_queued_image(images: ImageService, mirror: str, path: str) -> None:
    shown = load(images, f"http://{mirror}/{path}")
    assert (shown["status"], shown["size"]) == ("queued", None)
    assert files_of(images) == []


def test_images_are_loaded_by_few_threads_at_a_time(
    images: ImageService, mirror: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    opened = download.opened

    @contextlib.contextmanager
    def wait(*arguments: Any) -> Iterator[Any]:
        assert go_on.wait(30)
        with opened(*arguments) as found:
            yield found

    monkeypatch.setattr(download, "opened", wait)
    body = {"method": {"name": "web-download", "uri": f"http://{mirror}/image"}}
    ids = [str(images.made("/images", BODY)["id"]) for _ in range(3)]
    codes = [images("POST", f"/images/{image_id}/import", body).status_code for image_id in ids]
    assert codes == [202, 202, 503]
    go_on.set()
    assert [ended(images, image_id)["status"] for image_id in ids[:2]] == ["active", "active"]
    assert images("GET", f"/images/{ids[2]}").json["status"] == "queued"
    # A thread ends a moment after its image is active.
    wait_for("a free thread", lambda: images("POST", f"/images/{ids[2]}/import", body).status_code != 503, 30)
    assert ended(images, ids[2])["status"] == "active"


def test_name_with_an_address_of_this_machine_is_not_loaded(images: ImageService, mirror: str) -> None:
    shown = load(images, f"http://localhost:{mirror.rpartition(':')[2]}/image")
    assert shown["status"] == "queued"


def test_download_of_another_format_is_refused(images: ImageService, mirror: str) -> None:
    assert load(images, f"http://{mirror}/image", disk_format="qcow2")["status"] == "queued"
    assert files_of(images) == []


@pytest.mark.parametrize(
    "url",
    [
        None,
        "",
        "x" * 3000,
        "mirror/image",
        "ftp://mirror/image",
        "file:///etc/passwd",
        "http:///image",
        "http://user@mirror/image",
        "http://mirror:99/image",
        "http://mirror.evil/image",
        "http://evil/@mirror",
        "http://mirror:port/image",
        "http://mirror/\r\nHost: x",
        "http://mirror /",
        "http://[::1/",
        "https://other/",
    ],
)
def test_url_of_another_host_is_refused(url: object) -> None:
    with pytest.raises(exceptions.ValidationError):
        download.target_of(url, ["mirror", "other:8443"])


def test_allowed_urls() -> None:
    allowed = ["Mirror", "other:8443", "[2001:db8::1]"]
    found = download.target_of("https://MIRROR/a/b?c=d#e", allowed)
    assert (found.scheme, found.host, found.port, found.path) == ("https", "mirror", 443, "/a/b?c=d")
    assert download.target_of("http://mirror", allowed).path == "/"
    assert download.target_of("https://other:8443/", allowed).port == 8443
    assert download.target_of("http://[2001:db8::1]/", allowed).is_listed_address


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("192.0.2.1", True),
        ("10.1.2.3", True),
        ("2001:db8::1", True),
        ("127.0.0.1", False),
        ("169.254.169.254", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("::1", False),
        ("fe80::1%eth0", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:169.254.169.254", False),
        ("::", False),
        ("nonsense", False),
    ],
)
def test_addresses_of_this_machine_are_known(address: str, expected: bool) -> None:
    assert download._is_elsewhere(address) is expected


def test_own_addresses_are_not_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    own = ip.own_networks()
    assert own and not any(download._is_elsewhere(str(network.network_address), own) for network in own)
    monkeypatch.setattr(ip, "own_networks", lambda: [ip.parse_network("203.0.113.9")])
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(2, 1, 6, "", ("203.0.113.9", 80))])
    with pytest.raises(OSError, match="an address of this machine"):
        download._connect(download.target_of("http://mirror/", ["mirror"]), time.monotonic() + 1)


def test_host_that_sends_its_response_byte_by_byte_is_given_up_at_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"

        def respond() -> None:
            accepted = listening.accept()[0]
            with accepted, contextlib.suppress(OSError):
                accepted.sendall(b"HTTP/1.0 200 OK\r\nX-Slow: ")
                for _ in range(100):
                    accepted.sendall(b"x")
                    time.sleep(0.05)
                accepted.sendall(b"\r\n\r\ndata")

        thread = threading.Thread(target=respond)
        thread.start()
        try:
            deadline = time.monotonic() + 0.3
            with pytest.raises(TimeoutError), download.opened(f"http://{address}/image", [address], deadline):
                pass
        finally:
            thread.join()
