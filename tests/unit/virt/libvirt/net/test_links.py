"""Numbers of links: each realm and floating address of a machine has its own."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from nova_lite.base import exceptions
from nova_lite.virt.libvirt.net import links
from nova_lite.virt.libvirt.net.links import Links


def number(known: Links, key: str) -> int:
    with known.lock():
        return known.number(key)


def forget(known: Links, key: str) -> None:
    with known.lock():
        known.forget(key)


def test_number_of_a_realm_is_the_same_after_a_restart_and_for_another_daemon(tmp_path: Path) -> None:
    known = Links(str(tmp_path / "new"))
    assert [number(known, key) for key in ("a", "b", "a")] == [2, 3, 2]
    assert number(Links(str(tmp_path / "new")), "b") == 3


def test_number_of_a_removed_realm_comes_back(tmp_path: Path) -> None:
    known = Links(str(tmp_path))
    for key in ("a", "b", "c"):
        number(known, key)
    forget(known, "b")
    forget(known, "unknown")
    assert (number(known, "d"), number(known, "b")) == (3, 5)


@pytest.mark.parametrize("is_same", [True, False])
def test_thread_and_another_daemon_wait_for_the_lock(tmp_path: Path, is_same: bool) -> None:
    known = Links(str(tmp_path))
    other = known if is_same else Links(str(tmp_path))
    entered, order = threading.Event(), []

    def enter() -> None:
        with other.lock():
            order.append("other")
            entered.set()

    thread = threading.Thread(target=enter)
    with known.lock():
        thread.start()
        assert not entered.wait(0.1)
        order.append("first")
    thread.join(10)
    assert order == ["first", "other"]


def test_numbers_are_never_doubled_by_two_daemons_and_their_threads(tmp_path: Path) -> None:
    daemons = Links(str(tmp_path)), Links(str(tmp_path))
    found: dict[str, int] = {}

    def take(daemon: int, thread: int) -> None:
        for i in range(3):
            key = f"{daemon}-{thread}-{i}"
            found[key] = number(daemons[daemon], key)

    threads = [threading.Thread(target=take, args=(daemon, thread)) for daemon in (0, 1) for thread in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(found.values()) == list(range(2, 14))


def test_failure_with_the_lock_frees_it(tmp_path: Path) -> None:
    known = Links(str(tmp_path))
    with pytest.raises(ZeroDivisionError), known.lock():
        raise ZeroDivisionError
    assert number(known, "a") == 2


def test_range_that_is_full_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "_LAST", 4)
    known = Links(str(tmp_path))
    assert [number(known, key) for key in ("a", "b")] == [2, 3]
    with pytest.raises(exceptions.VirtDriverError, match="all addresses of links to routers are taken"):
        number(known, "c")
    assert number(known, "b") == 3
    forget(known, "a")
    assert number(known, "c") == 2


@pytest.mark.parametrize("content", [b"", b"{", b"7", b'{"a": "x"}', b'{"\xff": 2}'])
def test_damaged_file_is_one_error_and_stays(tmp_path: Path, content: bytes) -> None:
    """Numbers that are given out again would join two realms."""
    path = tmp_path / "nova-lite-links.json"
    path.write_bytes(content)
    with pytest.raises(exceptions.VirtDriverError, match=r"nova-lite-links\.json cannot be read") as caught:
        number(Links(str(tmp_path)), "a")
    assert "\n" not in caught.value.message
    assert path.read_bytes() == content


def test_addresses_follow_from_numbers_and_none_is_reserved() -> None:
    assert (links.address(2), links.address6(2)) == ("169.254.192.2", "fd6e:6f76:616c::2")
    assert links.address(links._LAST - 1) == "169.254.254.254"
    assert str(links.HOST) == "169.254.192.1"
