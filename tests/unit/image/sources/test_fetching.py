"""Downloads over broken connections, and lists of checksums."""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from nova_lite.base import exceptions
from nova_lite.image import store
from nova_lite.image.sources import fetching
from nova_lite.image.sources.fetching import Checksum, Download, partial
from tests.support.file_site import FileSite, serving
from tests.support.http_site import make_certificate

DATA = random.Random(1).randbytes(700_000)
SUM = Checksum("sha256", hashlib.sha256(DATA).hexdigest())


@pytest.fixture
def site() -> Iterator[FileSite]:
    with serving(FileSite()) as made:
        made.files["/image"] = DATA
        yield made


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    with partial(str(tmp_path), SUM) as made:
        yield Path(made)


def download(site: FileSite, path: Path, wanted: Checksum = SUM, wait: float = 0.0) -> list[tuple[int, int]]:
    shown: list[tuple[int, int]] = []
    Download(f"{site.url}/image", str(path), wanted, lambda done, total: shown.append((done, total)), wait).run()
    return shown


@pytest.mark.parametrize("algorithm", ["md5", "sha256", "sha512"])
def test_whole_download_has_the_bytes_and_shows_progress(site: FileSite, path: Path, algorithm: str) -> None:
    shown = download(site, path, Checksum(algorithm, hashlib.new(algorithm, DATA).hexdigest()))
    assert path.read_bytes() == DATA
    assert shown[-1] == (len(DATA), len(DATA))
    assert shown == sorted(shown)


def test_broken_download_continues_where_it_broke(site: FileSite, path: Path) -> None:
    site.faults = [100_000, 200_000, 503, 1]
    download(site, path)
    assert path.read_bytes() == DATA
    ranges = [range_ for _, range_ in site.requests]
    assert ranges == [None, "bytes=100000-", "bytes=300000-", "bytes=300000-", "bytes=300001-"]


def test_later_process_continues_a_download(site: FileSite, path: Path) -> None:
    site.faults = [100_000, *[0] * 5]
    with pytest.raises(OSError, match=r"cannot be fetched: IncompleteRead.*\. The next try continues"):
        download(site, path)
    assert path.stat().st_size == 100_000
    download(site, path)
    assert path.read_bytes() == DATA
    assert site.requests[-1] == ("/image", "bytes=100000-")


def test_complete_file_needs_no_request(site: FileSite, path: Path) -> None:
    path.write_bytes(DATA)
    download(site, path)
    assert site.requests == []


@pytest.mark.parametrize("case", ["refused", "other", "beyond"])
def test_server_that_does_not_continue_sends_all_again(site: FileSite, path: Path, case: str) -> None:
    site.has_ranges, site.shift = case != "refused", 7 if case == "other" else 0
    path.write_bytes(DATA + b"more" if case == "beyond" else DATA[:1000])
    download(site, path)
    assert path.read_bytes() == DATA
    assert [range_ is None for _, range_ in site.requests] == ([False] if case == "refused" else [False, True])


def test_other_bytes_are_refused_and_not_kept(site: FileSite, path: Path) -> None:
    site.files["/image"] = DATA[:-1] + b"x"
    with pytest.raises(exceptions.ImageUnacceptable, match="does not have the checksum sha256:"):
        download(site, path)
    assert not path.exists()


@pytest.mark.parametrize("status", [404, 403])
def test_refusal_ends_a_download_and_keeps_its_bytes(site: FileSite, path: Path, status: int) -> None:
    path.write_bytes(DATA[:1000])
    site.faults = [status]
    with pytest.raises(OSError, match=f"/image responds with status {status}"):
        download(site, path)
    assert path.read_bytes() == DATA[:1000]
    assert len(site.requests) == 1


def test_server_that_always_breaks_is_left(site: FileSite, path: Path) -> None:
    site.has_ranges = False
    site.faults = [1000] * 20
    with pytest.raises(OSError, match="cannot be fetched"):
        download(site, path)
    assert len(site.requests) == 6


def test_redirection_is_followed_and_continued(site: FileSite, path: Path) -> None:
    site.files["/elsewhere"] = site.files.pop("/image")
    site.redirects["/image"] = "/elsewhere"
    site.faults = [0, 5000]
    download(site, path)
    assert path.read_bytes() == DATA
    assert site.requests[-1] == ("/elsewhere", "bytes=5000-")


def test_full_disk_ends_a_download(site: FileSite, path: Path) -> None:
    def show(done: int, total: int) -> None:
        raise OSError(28, "no room", "store")

    with pytest.raises(OSError, match="no room"):
        Download(f"{site.url}/image", str(path), SUM, show, 0.0).run()
    assert len(site.requests) == 1


def test_proxy_of_the_environment_is_used(site: FileSite, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", site.url)
    site.files["http://mirror.invalid/image"] = DATA
    Download("http://mirror.invalid/image", str(path), SUM, lambda done, total: None, 0.0).run()
    assert path.read_bytes() == DATA


def test_server_with_an_unknown_certificate_is_not_believed(path: Path, tmp_path: Path) -> None:
    with (
        serving(FileSite(make_certificate(tmp_path))) as secure,
        pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"),
    ):
        download(secure, path)


def test_address_with_a_password_is_shown_without_it(path: Path) -> None:
    url = "http://user:secret@127.0.0.1:1/image"
    with pytest.raises(OSError, match=r"^http://127.0.0.1:1/image cannot be fetched: .*refused"):
        Download(url, str(path), SUM, lambda done, total: None, 0.0).run()


# --- the file of an incomplete download


def test_incomplete_download_belongs_to_one_process(tmp_path: Path) -> None:
    with partial(str(tmp_path), SUM) as path:
        with pytest.raises(exceptions.Conflict), partial(str(tmp_path), SUM):
            pass
        os.rename(path, tmp_path / "image")
    with partial(str(tmp_path), SUM) as path:
        assert os.path.getsize(path) == 0


def test_download_that_ended_meanwhile_is_not_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process has given the file the name of an image, between its opening and its lock here."""
    name = f"{store.TEMPORARY}{SUM.value[:32]}"
    monkeypatch.setattr(fetching.fcntl, "flock", lambda *_: os.rename(tmp_path / name, tmp_path / "image"))
    with pytest.raises(exceptions.Conflict), partial(str(tmp_path), SUM):
        pass
    assert os.listdir(tmp_path) == ["image"]


def test_abandoned_download_is_swept(tmp_path: Path) -> None:
    with partial(str(tmp_path), SUM) as path:
        store.sweep(str(tmp_path))
        assert os.path.exists(path)
    os.utime(path, (1, 1))
    store.sweep(str(tmp_path))
    assert os.listdir(tmp_path) == []


# --- checksums

MD5, SHA256, SHA512 = (hashlib.new(name, b"").hexdigest() for name in ("md5", "sha256", "sha512"))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"{SHA512}  debian.qcow2\n{MD5}  other\n", {"debian.qcow2": SHA512, "other": MD5}),
        (f"{SHA256} *noble.img\n", {"noble.img": SHA256}),
        (f"# Rocky.qcow2: 1 bytes\nSHA256 (Rocky.qcow2) = {SHA256}\n", {"Rocky.qcow2": SHA256}),
        (f"-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\nSHA256 (F) = {SHA256}\n", {"F": SHA256}),
        (f"{SHA256}  ./leap/image.qcow2\n", {"image.qcow2": SHA256}),
        (f"{SHA512}\n", {"": SHA512}),
        (f"{SHA256[:-1]}  short\n{SHA256} a b\n<html>\n", {}),
    ],
)
def test_list_of_checksums(text: str, found: dict[str, str]) -> None:
    assert fetching.listed(text) == found


@pytest.fixture
def secure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileSite]:
    tls = make_certificate(tmp_path)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", tls[0])
    with serving(FileSite(tls)) as made:
        yield made


def test_published_checksum_is_that_of_the_file_or_the_only_one(secure: FileSite) -> None:
    secure.files = {"/many": f"{MD5}  a\n{SHA256}  b\n".encode(), "/one": f"{SHA512}\n".encode()}
    assert fetching.published(f"{secure.url}/many", "b") == Checksum("sha256", SHA256)
    assert fetching.published(f"{secure.url}/one", "b") == Checksum("sha512", SHA512)
    with pytest.raises(exceptions.InvalidInput, match="no checksum of c"):
        fetching.published(f"{secure.url}/many", "c")


def test_checksum_over_a_plain_connection_is_refused(secure: FileSite, site: FileSite) -> None:
    site.files["/sums"] = f"{SHA256}  b\n".encode()
    secure.redirects["/sums"] = f"{site.url}/sums"
    for url in (f"{site.url}/sums", f"{secure.url}/sums"):
        with pytest.raises(exceptions.InvalidInput, match="not published by HTTPS"):
            fetching.published(url, "b")


def test_bad_list_of_checksums_is_refused(secure: FileSite) -> None:
    secure.files = {"/long": bytes(2 * 1024**2), "/cut": bytes(100)}
    secure.faults = [10]
    with pytest.raises(OSError, match=r"/cut cannot be read: IncompleteRead"):
        fetching.published(f"{secure.url}/cut", "b")
    with pytest.raises(exceptions.InvalidInput, match="more than 1048576 bytes"):
        fetching.published(f"{secure.url}/long", "b")
    with pytest.raises(OSError, match=r"/none cannot be read: status 404"):
        fetching.published(f"{secure.url}/none", "b")
    with pytest.raises(OSError, match=r"cannot be read: .*refused"):
        fetching.published("https://127.0.0.1:1/sums", "b")


@pytest.mark.parametrize("text", ["", "abc", "g" * 64, "a" * 63])
def test_sum_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no MD5"):
        fetching.checksum(text)
