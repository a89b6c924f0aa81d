"""Repositories of backups, with the real restic."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from oslo_config import cfg

from nova_lite import conf as nova_conf
from nova_lite.backups import repository
from nova_lite.backups.disk_data import Target
from nova_lite.backups.repository import Repositories, Repository
from nova_lite.base import exceptions
from tests.support.quick_restic import quick_restic  # noqa: F401

pytestmark = pytest.mark.skipif(shutil.which(repository.PROGRAM) is None, reason="no restic")

DATA = os.urandom(300_000)
PASSWORD = "not-in-any-argument"


@pytest.fixture
def repositories(tmp_path: Path) -> Repositories:
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    return Repositories(f"{tmp_path}/repository", str(password), f"{tmp_path}/cache")


@pytest.fixture
def made(repositories: Repositories, quick_restic: None) -> Repository:  # noqa: F811
    return repositories.of_project("p1", may_be_missing=True)


def writing(data: bytes) -> Callable[[Target], None]:
    def write(target: Target) -> None:
        target.write(data)

    return write


def read(repository: Repository, snapshot: str, digest: str) -> bytes:
    with repository.read(snapshot, digest) as source:
        return b"".join(iter(lambda: source.read(65536), b""))


def test_stream_is_read_as_it_was_stored_and_is_stored_once(repositories: Repositories, tmp_path: Path) -> None:
    """The repository of this test is made by restic."""
    made = repositories.of_project("p1", may_be_missing=True)
    first = made.store("one", writing(DATA))
    second = made.store("two", writing(DATA))
    assert read(made, first.snapshot, first.digest) == DATA
    assert (second.digest, first.added > len(DATA), second.added < 10_000) == (first.digest, True, True)
    files = [path for path in (tmp_path / "repository").rglob("*") if path.is_file()]
    assert not any(DATA[:64] in path.read_bytes() for path in files), "it is not encrypted"


@pytest.mark.usefixtures("quick_restic")
def test_projects_have_repositories_of_their_own(repositories: Repositories, tmp_path: Path) -> None:
    for project in ("p1", "../p1"):
        repositories.of_project(project, may_be_missing=True).store("one", writing(DATA[:1000]))
    names = sorted(path.name for path in (tmp_path / "repository").iterdir())
    assert [len(name) for name in names] in ([2, 64], [64, 2])
    assert "p1" in names


def test_stream_whose_writer_fails_is_not_stored(made: Repository) -> None:
    def write(target: Target) -> None:
        target.write(DATA)
        raise exceptions.BackupDataInvalid(reason="they end early")

    with pytest.raises(exceptions.BackupDataInvalid):
        made.store("one", write)
    assert made._snapshots("one") == []


def test_stream_of_a_process_that_is_killed_is_not_stored(made: Repository, tmp_path: Path) -> None:
    made.store("other", writing(b"x"))
    code = """
import os, signal, sys
from nova_lite.backups.repository import Repositories
def write(target):
    target.write(os.urandom(300000))
    os.kill(os.getpid(), signal.SIGKILL)
Repositories(*sys.argv[1:]).of_project("p1").store("one", write)
"""
    place = (f"{tmp_path}/repository", f"{tmp_path}/password", f"{tmp_path}/cache")
    killed = subprocess.run([sys.executable, "-c", code, *place], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert made._snapshots("one") == []


def test_digest_that_is_not_the_recorded_one_is_noticed(made: Repository) -> None:
    stored = made.store("one", writing(DATA))
    other = made.store("two", writing(DATA + b"x"))
    with pytest.raises(exceptions.BackupDataInvalid):
        read(made, other.snapshot, stored.digest)


def test_copy_of_a_repository_is_used_as_the_page_says(made: Repository, tmp_path: Path) -> None:
    """``restic copy`` gives snapshots new ids."""
    stored = made.store("one", writing(DATA))
    password = f"{tmp_path}/password"
    from_there = ("--from-repo", f"{tmp_path}/repository/p1", "--from-password-file", password)
    for words in (("init", "--copy-chunker-params"), ("copy",)):
        there = ("--repo", f"{tmp_path}/elsewhere/p1", "--password-file", password)
        subprocess.run([repository.PROGRAM, *there, *words, *from_there], check=True, capture_output=True)
    copied = Repositories(f"{tmp_path}/elsewhere", password, f"{tmp_path}/cache").of_project("p1")
    assert stored.snapshot not in {item.id for item in copied._snapshots()}
    assert read(copied, stored.snapshot, stored.digest) == DATA
    assert stored.snapshot in copied.present(["one"])
    with pytest.raises(exceptions.BackupRepositoryError):
        read(copied, "0" * 64, stored.digest)


def test_damaged_repository_is_noticed(made: Repository, tmp_path: Path) -> None:
    stored = made.store("one", writing(DATA))
    for path in (tmp_path / "repository" / "p1" / "data").rglob("*"):
        if path.is_file():
            path.chmod(0o600)
            data = bytearray(path.read_bytes())
            data[len(data) // 3] ^= 1
            path.write_bytes(data)
    with pytest.raises((exceptions.BackupRepositoryError, exceptions.BackupDataInvalid)):
        read(made, stored.snapshot, stored.digest)


def test_removed_stream_is_gone_and_prune_frees_its_room(made: Repository, tmp_path: Path) -> None:
    def size() -> int:
        return sum(path.stat().st_size for path in (tmp_path / "repository").rglob("*") if path.is_file())

    stored = made.store("one", writing(DATA))
    before = size()
    made.forget("one")
    made.prune()
    assert size() < before - len(DATA) / 2
    with pytest.raises(exceptions.BackupRepositoryError):
        read(made, stored.snapshot, stored.digest)
    made.forget("one")


def test_missing_repository_has_nothing_to_remove(made: Repository, tmp_path: Path) -> None:
    made.forget("one")
    made.prune()
    assert not (tmp_path / "repository").exists()


def test_repository_whose_share_is_not_mounted_is_an_error_and_is_not_made_anew(
    repositories: Repositories, made: Repository, tmp_path: Path
) -> None:
    first = made.store("one", writing(DATA))
    known = repositories.of_project("p1")
    (tmp_path / "repository").rename(tmp_path / "share")
    (tmp_path / "repository").mkdir()
    for act in (
        lambda: known.store("two", writing(DATA)),
        lambda: known.present(["one"]),
        lambda: known.forget("one"),
        known.prune,
        known.require,
        lambda: read(known, first.snapshot, first.digest),
    ):
        with pytest.raises(exceptions.BackupRepositoryError):
            act()
    assert list((tmp_path / "repository").iterdir()) == []
    (tmp_path / "repository").rmdir()
    (tmp_path / "share").rename(tmp_path / "repository")
    second = known.store("two", writing(DATA))
    assert known.present(["one", "two", "three"]) == {first.snapshot, second.snapshot}
    assert known.present(["two"]) == {second.snapshot}


def test_other_password_is_refused(made: Repository, tmp_path: Path) -> None:
    made.store("one", writing(b"x"))
    (tmp_path / "password").write_text("another")
    with pytest.raises(exceptions.BackupRepositoryError, match="wrong password"):
        made.store("two", writing(b"x"))


def test_unwritable_place_is_reported(tmp_path: Path, repositories: Repositories) -> None:
    (tmp_path / "repository").write_text("a file")
    with pytest.raises(exceptions.BackupRepositoryError):
        repositories.of_project("p1", may_be_missing=True).store("one", writing(b"x"))


def test_password_is_in_no_argument_and_no_error(
    made: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    start = subprocess.Popen

    def recorded(command: tuple[str, ...], **values: object) -> object:
        seen.extend(command)
        return start(command, **values)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "Popen", recorded)
    made.store("one", writing(b"x"))
    assert repository.PROGRAM in seen
    assert not any(PASSWORD in word for word in seen)


@pytest.fixture
def conf(tmp_path: Path) -> cfg.ConfigOpts:
    conf = cfg.ConfigOpts()
    nova_conf.register_opts(conf)
    conf([], default_config_files=[])
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    password.chmod(0o640)
    for name, value in {"engine": "restic", "repository": str(tmp_path), "password_file": str(password)}.items():
        conf.set_override(name, value, "server_backups")
    return conf


def test_backups_are_images_unless_configured(conf: cfg.ConfigOpts) -> None:
    assert repository.load(conf) is not None
    conf.clear_override("engine", "server_backups")
    assert repository.load(conf) is not None, "its backups can still be restored"
    conf.clear_override("repository", "server_backups")
    assert repository.load(conf) is None


@pytest.mark.parametrize("option", ["password_file", "credentials_file"])
@pytest.mark.parametrize("fault", ["readable", "empty", "missing", "no repository"])
def test_unsafe_or_incomplete_configuration_is_refused(
    conf: cfg.ConfigOpts, tmp_path: Path, fault: str, option: str
) -> None:
    password = tmp_path / option
    password.write_text(PASSWORD)
    password.chmod(0o640)
    conf.set_override(option, str(password), "server_backups")
    repository.load(conf)
    if fault == "readable":
        password.chmod(0o644)
    elif fault == "empty":
        password.write_text("")
    elif fault == "missing":
        password.unlink()
    else:
        conf.set_override("repository", "", "server_backups")
    with pytest.raises(exceptions.ConfigurationError):
        repository.load(conf)
