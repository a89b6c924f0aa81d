"""Hosts that use a directory are recorded in it."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from nova_lite.base import directory_users
from tests.support.mounts import NO_MOUNTS


def test_hosts_are_recorded_in_a_directory_that_exists(tmp_path: Path) -> None:
    for host in ("h2", "h1", "h1"):
        directory_users.register(str(tmp_path), host)
    assert sorted(os.listdir(tmp_path / "_hosts")) == ["h1", "h2"]
    directory_users.register(str(tmp_path / "missing"), "h1")
    assert not (tmp_path / "missing").exists()


@NO_MOUNTS
def test_record_of_a_host_belongs_to_whom_the_directory_does(tmp_path: Path) -> None:
    os.chown(tmp_path, 60721, 60722)
    tmp_path.chmod(0o770)
    directory_users.register(str(tmp_path), "h1")
    found = (tmp_path / "_hosts").stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (60721, 60722, 0o770)


def test_directory_that_cannot_be_written_is_named_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    (tmp_path / "_hosts").write_text("")
    directory_users.register(str(tmp_path), "h1")
    assert f"{tmp_path} does not show that this host uses it: Not a directory" in caplog.text
