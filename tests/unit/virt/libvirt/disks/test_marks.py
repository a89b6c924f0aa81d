"""Marks of hosts in a directory of disks."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from nova_lite.base import ofd_locks
from nova_lite.virt.libvirt.disks.marks import LIFETIME, MARKS, Marks
from tests.support.clock import Clock


def test_hosts_of_one_directory_see_each_other(tmp_path: Path) -> None:
    one, other = Marks(str(tmp_path), "one"), Marks(str(tmp_path), "other")
    first = one.look()
    assert (len(first.marks), first.seen, first.live) == (2, {}, [])
    view = other.look()
    assert (view.seen, view.live) == ({"one": first.marks}, ["one"])
    assert one.look().seen == {"other": view.marks}


def test_mark_is_replaced_after_its_lifetime_and_the_last_one_stays_valid(tmp_path: Path) -> None:
    clock = Clock()
    marks = Marks(str(tmp_path), "one", clock)
    before = marks.look().marks
    assert marks.look().marks == before
    clock.time = LIFETIME
    after = marks.look().marks
    assert (after[0] in before, after[1]) == (False, before[0])
    assert Marks(str(tmp_path), "other").read("one") == after


def test_restarted_daemon_keeps_its_last_mark(tmp_path: Path) -> None:
    marks = Marks(str(tmp_path), "one")
    before = marks.look().marks
    marks._close()
    assert Marks(str(tmp_path), "one").look().marks[1] == before[0]


def test_copy_of_a_directory_has_no_live_hosts(tmp_path: Path) -> None:
    one = Marks(str(tmp_path / "a"), "one")
    (tmp_path / "a").mkdir()
    one.look()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    view = Marks(str(tmp_path / "b"), "other").look()
    assert (list(view.seen), view.live) == (["one"], [])


def test_second_daemon_of_a_name_has_no_marks(tmp_path: Path) -> None:
    one = Marks(str(tmp_path), "one")
    one.look()
    assert Marks(str(tmp_path), "one").look().marks == []


def test_directory_that_is_mounted_anew_gets_new_marks(tmp_path: Path) -> None:
    marks = Marks(str(tmp_path), "one")
    marks.look()
    os.rename(tmp_path / MARKS, tmp_path / "old")
    marks.look()
    assert Marks(str(tmp_path), "other").look().live == ["one"]


@pytest.mark.parametrize("kind", ["link", "pipe", "long", "text"])
def test_file_that_is_no_mark_is_ignored(tmp_path: Path, kind: str) -> None:
    marks = Marks(str(tmp_path), "one")
    content = ("\n".join(marks.look().marks) + "\n").encode()
    path = tmp_path / MARKS / "other"
    if kind == "link":
        (tmp_path / "elsewhere").write_bytes(content)
        path.symlink_to(tmp_path / "elsewhere")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.write_bytes(content + b"more" if kind == "long" else b"x" * len(content))
    (tmp_path / MARKS / ".hidden").write_bytes(content)
    assert marks.look().seen == {}


def test_file_system_without_locks_shares_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError("No locks available")

    monkeypatch.setattr(ofd_locks, "lock", refuse)
    assert Marks(str(tmp_path), "one").look().marks == []
