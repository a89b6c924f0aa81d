from __future__ import annotations

from pathlib import Path

import pytest

from nova_lite.virt.libvirt.domain import console_log


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "console.log"
    path.write_text("four\nfive\n")
    (tmp_path / "console.log.0").write_text("two\nthree\n")
    (tmp_path / "console.log.1").write_text("one\n")
    return path


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (None, "one\ntwo\nthree\nfour\nfive\n"),
        (1, "five"),
        (3, "three\nfour\nfive"),
        (99, "one\ntwo\nthree\nfour\nfive"),
        (0, ""),
    ],
)
def test_console_tail_includes_rotated_parts(log: Path, length: int | None, expected: str) -> None:
    assert console_log.tail(str(log), length) == expected


def test_console_tail_is_limited(log: Path) -> None:
    assert console_log.tail(str(log), None, max_bytes=12) == "e\nfour\nfive\n"


def test_console_tail_without_a_log_is_empty(tmp_path: Path) -> None:
    assert console_log.tail(str(tmp_path / "console.log"), None) == ""


def test_console_tail_shows_binary_output(tmp_path: Path) -> None:
    path = tmp_path / "console.log"
    path.write_bytes(b"a\xff\xfeb\n")
    assert console_log.tail(str(path), None) == "a\ufffd\ufffdb\n"
