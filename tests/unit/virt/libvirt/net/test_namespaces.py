"""Network namespaces, with recorded commands. The integration tests make real ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from nova_lite.base import exceptions
from nova_lite.virt.libvirt.net import namespaces

MANAGER = "systemd-run --quiet --wait --collect "


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(namespaces, "DIRECTORY", str(tmp_path))
    return tmp_path


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Commands that were run."""
    ran: list[str] = []
    monkeypatch.setattr(namespaces, "run", lambda *command, text="": ran.append(f"{' '.join(command)}{text}"))
    return ran


def test_file_that_a_crash_has_left_is_no_namespace(directory: Path) -> None:
    assert not namespaces.exists("nl-a")
    (directory / "nl-a").touch()
    assert not namespaces.exists("nl-a")
    (directory / "nl-b").symlink_to("/proc/self/ns/net")
    assert namespaces.exists("nl-b")


def test_namespaces_are_found_by_the_beginnings_of_their_names(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("nl-b", "other", "nl-a"):
        (directory / name).touch()
    assert namespaces.found("nl-") == ["nl-a", "nl-b"]
    monkeypatch.setattr(namespaces, "DIRECTORY", str(directory / "missing"))
    assert namespaces.found("nl-") == []


@pytest.mark.parametrize(("managed", "prefix"), [(False, ""), (True, MANAGER)])
def test_manager_of_the_machine_makes_and_removes_namespaces(
    directory: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch, managed: bool, prefix: str
) -> None:
    monkeypatch.setattr(namespaces, "has_manager", lambda: managed)
    namespaces.add("nl-a")
    assert ran == [f"{prefix}ip netns add nl-a"]
    (directory / "nl-a").touch()
    namespaces.add("nl-a")
    assert ran[1:] == [f"{prefix}ip netns delete nl-a", f"{prefix}ip netns add nl-a"], "a file that a crash has left"
    namespaces.remove("nl-a")
    assert ran[3:] == [f"{prefix}ip netns delete nl-a"]


def refuse(path: str) -> str:
    raise PermissionError(13, "Permission denied", path)


@pytest.mark.parametrize(
    ("link", "is_managed"), [(lambda path: "net:[1]", True), (lambda path: path, False), (refuse, True)]
)
def test_manager_of_another_network_namespace_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, link: Callable[[str], str], is_managed: bool
) -> None:
    monkeypatch.setattr(namespaces.os, "readlink", link)
    monkeypatch.setattr(namespaces, "SYSTEMD", str(tmp_path / "missing"))
    assert not namespaces.has_manager()
    monkeypatch.setattr(namespaces, "SYSTEMD", str(tmp_path))
    assert namespaces.has_manager() is is_managed


def test_commands_of_ip_are_one_run(directory: Path, ran: list[str]) -> None:
    namespaces.ip_batch([])
    assert ran == []
    namespaces.ip_batch(["link show", "route show"])
    namespaces.ip_batch(["link show"], "nl-a")
    assert ran == [
        "ip -batch -link show\nroute show\n",
        f"nsenter --net={directory}/nl-a -- ip -batch -link show\n",
    ]


def test_program_that_fails_is_one_error() -> None:
    assert namespaces.run("cat", text="a\n") == "a\n"
    with pytest.raises(exceptions.VirtDriverError, match=r"exit 3: no such device$"):
        namespaces.run("sh", "-c", "printf 'no such\n device\n' >&2; exit 3")
    with pytest.raises(exceptions.VirtDriverError, match="no-such-program cannot be run: No such file"):
        namespaces.run("no-such-program")


def test_namespace_that_is_gone_has_no_sockets(directory: Path) -> None:
    with pytest.raises(exceptions.VirtDriverError, match="namespace nl-a cannot be entered: No such file"):
        namespaces.make_socket("nl-a")
