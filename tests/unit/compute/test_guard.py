"""The guard of a host that fences itself: what it kills, when, and what it spares."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nova_lite.compute import guard
from nova_lite.compute.guard import Guard, QemuGuests, Watchdog

#: Tests that run at the same time in other processes have other guests.
ONE, TWO, OTHER = sorted(str(uuid.uuid4()) for _ in range(3))

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start processes with arguments like those of guests. They end with the test."""
    processes: list[subprocess.Popen[bytes]] = []

    def begin(*arguments: str) -> subprocess.Popen[bytes]:
        script = "import time; print(flush=True); time.sleep(600)"
        process = subprocess.Popen([sys.executable, "-c", script, *arguments], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        processes.append(process)
        return process

    yield begin
    for process in processes:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def is_alive(process: subprocess.Popen[bytes]) -> bool:
    return process.poll() is None


def ended(process: subprocess.Popen[bytes]) -> int:
    return process.wait(20)


def hold(
    protecting: Guard, ends_in: float, daemon: int = 0, handled: bool = False, guests: tuple[str, ...] = (ONE, TWO)
) -> None:
    protecting.handle(
        {
            "verb": "hold",
            "ends_at": guard.now() + ends_in,
            "guests": list(guests),
            "daemon": [daemon, guard.start_of(daemon) if daemon else 0],
            "handled": handled,
        }
    )


def test_guests_are_killed_when_the_lease_ends_and_others_are_not(tmp_path: Path, start: Start) -> None:
    one, two, other = start("-uuid", ONE), start("-name", "x", "-uuid", TWO), start("-uuid", OTHER)
    named = start(ONE)
    protecting = Guard(str(tmp_path), QemuGuests())
    hold(protecting, 600)
    protecting.tick()
    assert is_alive(one)
    assert is_alive(two)
    hold(protecting, -1)
    protecting.tick()
    assert (ended(one), ended(two)) == (-9, -9)
    assert is_alive(other)
    assert is_alive(named)
    assert protecting.stopped() == [ONE, TWO]


def test_list_of_stopped_guests_is_written_before_they_are_killed(tmp_path: Path) -> None:
    class Witness:
        seen: list[str] = []

        def running(self, uuids: list[str]) -> list[str]:
            return list(uuids)

        def kill(self, uuids: list[str]) -> None:
            self.seen = guard.read_stopped(str(tmp_path))

    witness = Witness()
    protecting = Guard(str(tmp_path), witness)
    hold(protecting, -1, guests=(ONE,))
    protecting.tick()
    assert witness.seen == [ONE]


DAMAGED = [b"", b'["a', b"what", b"\xff\xfe", b'{"a": 1}', b"7", b'["a", 1]']


@pytest.mark.parametrize("content", DAMAGED)
def test_damaged_list_of_stopped_guests_counts_as_none_with_one_warning(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / guard.STOPPED).write_bytes(content)
    protecting = Guard(str(tmp_path), QemuGuests())
    assert (protecting.stopped(), guard.read_stopped(str(tmp_path))) == ([], [])
    assert [record.message.partition(",")[0] for record in caplog.records] == [f"{tmp_path}/stopped.json is damaged"]
    protecting._write_stopped({ONE})
    assert guard.read_stopped(str(tmp_path)) == [ONE]


def test_list_of_stopped_guests_survives_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is on the disk before it gets its name, and the name after that."""
    steps: list[str] = []
    sync, replace = os.fsync, os.replace

    def note_sync(descriptor: int) -> None:
        steps.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        sync(descriptor)

    def note_replace(source: str, target: str) -> None:
        steps.append("rename")
        replace(source, target)

    monkeypatch.setattr(guard.os, "fsync", note_sync)
    monkeypatch.setattr(guard.os, "replace", note_replace)
    protecting = Guard(str(tmp_path), QemuGuests(), write_seconds=20)
    protecting._write_stopped({ONE})
    assert steps == ["stopped.json.new-guard", "rename", tmp_path.name]


@pytest.mark.parametrize("disk", ["full", "hung"])
def test_guests_are_killed_although_the_disk_is(
    disk: str, tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    freed, write = threading.Event(), guard._write

    def no_write(path: str, content: object) -> None:
        if disk == "hung":
            freed.wait(60)
        elif not freed.is_set():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(path, content)

    monkeypatch.setattr(guard, "_write", no_write)
    one = start("-uuid", ONE)
    protecting = Guard(str(tmp_path), QemuGuests(), write_seconds=0.01)
    hold(protecting, -1, guests=(ONE,))
    protecting.tick()
    assert (ended(one), protecting.stopped(), guard.read_stopped(str(tmp_path))) == (-9, [ONE], [])
    freed.set()
    protecting._write_seconds = 20
    protecting.tick()
    assert guard.read_stopped(str(tmp_path)) == [ONE]


def test_daemon_that_hangs_is_killed_although_no_guest_runs(tmp_path: Path, start: Start) -> None:
    daemon = start()
    protecting = Guard(str(tmp_path), QemuGuests())
    hold(protecting, -1, daemon.pid)
    protecting.tick()
    assert ended(daemon) == -9


def test_daemon_that_has_stopped_its_guests_is_spared_until_one_appears(tmp_path: Path, start: Start) -> None:
    daemon, one = start(), start("-uuid", ONE)
    protecting = Guard(str(tmp_path), QemuGuests())
    hold(protecting, 600, daemon.pid)
    reply = protecting.handle({"verb": "stop"})
    assert ended(one) == -9
    assert reply["stopped"] == [ONE]
    assert protecting.handle({"verb": "stop"})["running"] == []
    protecting._ends_at = guard.now() - 1
    protecting.tick()
    assert is_alive(daemon)
    late = start("-uuid", TWO)
    protecting.tick()
    assert (ended(daemon), ended(late)) == (-9, -9)


def test_daemon_without_protected_guests_is_spared_when_the_lease_ends(tmp_path: Path, start: Start) -> None:
    daemon = start()
    protecting = Guard(str(tmp_path), QemuGuests())
    hold(protecting, -1, daemon.pid, guests=())
    protecting.tick()
    assert is_alive(daemon)
    hold(protecting, -1, daemon.pid, guests=(ONE,))
    protecting.tick()
    assert ended(daemon) == -9


def test_process_that_has_taken_the_number_of_the_daemon_is_spared(tmp_path: Path, start: Start) -> None:
    another = start()
    protecting = Guard(str(tmp_path), QemuGuests())
    message = {"verb": "hold", "ends_at": guard.now() - 1, "guests": [ONE], "handled": False}
    protecting.handle(message | {"daemon": [another.pid, guard.start_of(another.pid) - 1]})
    protecting.tick()
    assert is_alive(another)


def test_guests_that_run_again_are_forgotten(tmp_path: Path) -> None:
    protecting = Guard(str(tmp_path), QemuGuests())
    protecting._write_stopped({ONE, TWO})
    assert protecting.handle({"verb": "forget", "guests": [TWO, OTHER]})["stopped"] == [ONE]


class Resisting:
    """Guests that the kernel cannot end."""

    def running(self, uuids: list[str]) -> list[str]:
        return list(uuids)

    def kill(self, uuids: list[str]) -> None:
        """Fail to end them."""


def test_watchdog_is_fed_unless_guests_resist(tmp_path: Path) -> None:
    device = tmp_path / "watchdog"
    device.touch()
    protecting = Guard(str(tmp_path), Resisting(), Watchdog(str(device)))
    hold(protecting, 600)
    protecting.tick()
    assert device.read_bytes() == b"\0"
    hold(protecting, -guard.GRACE / 2)
    protecting.tick()
    assert device.read_bytes() == b"\0\0"
    hold(protecting, -2 * guard.GRACE)
    protecting.tick()
    assert device.read_bytes() == b"\0\0"
    protecting.handle({"verb": "leave"})
    protecting.tick()
    assert device.read_bytes() == b"\0\0V"


def test_guard_reads_no_other_module_of_the_project() -> None:
    script = "import sys; import nova_lite.compute.guard; print([n for n in sys.modules if n.startswith('nova_lite')])"
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert eval(out) == ["nova_lite", "nova_lite.compute", "nova_lite.compute.guard"]


def test_clock_of_leases_counts_while_the_machine_sleeps() -> None:
    assert guard.now() >= os.times().elapsed - 1 or guard.now() > 0
