"""Repositories of backups in an S3 server, with the real restic."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from nova_lite.backups import repository
from nova_lite.backups.repository import Repositories, Repository
from nova_lite.base import exceptions
from tests.support.s3_server import SECRET, S3Server

pytestmark = pytest.mark.skipif(shutil.which(repository.PROGRAM) is None, reason="no restic")

DATA = os.urandom(300_000)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[S3Server]:
    started = S3Server(tmp_path / "served", tmp_path)
    yield started
    started.stop()


@pytest.fixture
def repositories(server: S3Server, tmp_path: Path) -> Repositories:
    password = tmp_path / "password"
    password.write_text("hidden")
    place, credentials = f"{server.url}/backups", str(server.credentials)
    return Repositories(place, str(password), str(tmp_path / "cache"), credentials_file=credentials)


def read(found: Repository, stored: repository.Stored) -> bytes:
    with found.read(stored.snapshot, stored.digest) as source:
        return b"".join(iter(lambda: source.read(65536), b""))


def test_stream_in_a_new_bucket_is_read_as_it_was_stored_and_is_forgotten(
    repositories: Repositories, tmp_path: Path
) -> None:
    made = repositories.of_project("p1", may_be_missing=True)
    stored = made.store("one", lambda target: target.write(DATA))
    assert read(made, stored) == DATA
    assert made.present(["one"]) == {stored.snapshot}
    place = tmp_path / "served" / "backups" / "p1"
    before = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
    made.forget("one")
    made.prune()
    assert made.present(["one"]) == set()
    assert sum(path.stat().st_size for path in place.rglob("*") if path.is_file()) < before - len(DATA)


@pytest.mark.parametrize("may_be_missing", [True, False])
def test_repository_of_a_server_that_does_not_answer_is_not_called_missing(
    repositories: Repositories, server: S3Server, may_be_missing: bool
) -> None:
    found = repositories.of_project("p1", may_be_missing=may_be_missing)
    server.stop()
    with pytest.raises(exceptions.BackupRepositoryError, match="connection refused"):
        found.present(["one"])


@pytest.mark.parametrize("may_be_missing", [True, False])
def test_repository_of_a_server_that_refuses_the_key_is_not_called_missing(
    repositories: Repositories, server: S3Server, may_be_missing: bool
) -> None:
    server.write_credentials("another")
    with pytest.raises(exceptions.BackupRepositoryError, match="signature") as caught:
        repositories.of_project("p1", may_be_missing=may_be_missing).store("one", lambda target: target.write(b"x"))
    assert SECRET not in caught.value.message


def test_repository_with_recorded_streams_that_is_not_there_is_an_error(repositories: Repositories) -> None:
    with pytest.raises(exceptions.BackupRepositoryError, match="not at its place"):
        repositories.of_project("p1").present(["one"])
