from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from nova_lite.base import exceptions
from nova_lite.virt import images
from nova_lite.virt.libvirt.net import dhcp

MAC = "fa:16:3e:00:76:01"
OTHER = "fa:16:3e:00:76:02"
ADDRESS = "10.76.0.10"


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Programs that were run."""
    programs: list[tuple[str, ...]] = []
    monkeypatch.setattr(images, "run", lambda *command: programs.append(command))
    return programs


def write_leases(directory: Path, *leases: dict[str, str]) -> None:
    (directory / "br.status").write_text(json.dumps([{"ip-address": ADDRESS, **lease} for lease in leases]))


def test_release_names_bridge_address_and_client(tmp_path: Path, commands: list[tuple[str, ...]]) -> None:
    write_leases(tmp_path, {"mac-address": MAC, "client-id": f"01:{MAC}"})
    dhcp.release("br", ADDRESS, lambda mac_address: True, str(tmp_path))
    assert commands == [("dhcp_release", "br", ADDRESS, MAC, f"01:{MAC}")]


def test_release_without_client_id_passes_an_asterisk(tmp_path: Path, commands: list[tuple[str, ...]]) -> None:
    write_leases(tmp_path, {"mac-address": MAC})
    dhcp.release("br", ADDRESS, lambda mac_address: True, str(tmp_path))
    assert commands == [("dhcp_release", "br", ADDRESS, MAC, "*")]


def test_release_leaves_leases_that_are_not_obsolete(tmp_path: Path, commands: list[tuple[str, ...]]) -> None:
    write_leases(tmp_path, {"mac-address": MAC.upper()}, {"mac-address": OTHER})
    dhcp.release("br", ADDRESS, lambda mac_address: mac_address != OTHER, str(tmp_path))
    assert [command[3] for command in commands] == [MAC]


def test_failed_release_is_only_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*command: str) -> None:
        raise exceptions.VirtDriverError(reason="dhcp_release cannot be run: No such file or directory")

    monkeypatch.setattr(images, "run", fail)
    write_leases(tmp_path, {"mac-address": MAC})
    with caplog.at_level(logging.WARNING):
        dhcp.release("br", ADDRESS, lambda mac_address: True, str(tmp_path))
    assert "The DHCP lease of 10.76.0.10 on br stays until it expires" in caplog.text


def test_leases_are_found_by_address(tmp_path: Path) -> None:
    path = tmp_path / "br.status"
    lease = {"ip-address": ADDRESS, "mac-address": MAC, "expiry-time": 1}
    path.write_text(json.dumps([lease, {**lease, "ip-address": "10.76.0.11"}]))
    assert dhcp.find_leases(str(path), ADDRESS) == [lease]


@pytest.mark.parametrize("content", [None, "", "[", "[{}]"])
def test_incomplete_list_has_no_leases(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "br.status"
    if content is not None:
        path.write_text(content)
    assert dhcp.find_leases(str(path), ADDRESS) == []
