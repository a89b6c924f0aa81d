from __future__ import annotations

import os
from pathlib import Path

import pytest

from nova_lite.base import ofd_locks


def opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT)


def test_lock_is_seen_by_other_open_files_until_it_is_closed(tmp_path: Path) -> None:
    one, other = opened(tmp_path / "file"), opened(tmp_path / "file")
    assert not ofd_locks.is_locked(other)
    ofd_locks.lock(one)
    assert ofd_locks.is_locked(other, 101, 1)
    assert not ofd_locks.is_locked(one)
    with pytest.raises(OSError):
        ofd_locks.lock(other)
    os.close(one)
    assert not ofd_locks.is_locked(other)
    os.close(other)
