from __future__ import annotations

import json
from pathlib import Path

import pytest

from nova_lite.virt.libvirt.net import dhcp

MAC = "fa:16:3e:00:76:01"


def test_the_release_is_what_the_guest_would_have_sent() -> None:
    packet = dhcp.release_packet(MAC, "10.76.0.10", "10.76.0.1", "01:fa:16:3e:00:76:01")
    assert len(packet) == 300
    assert packet[:3] == b"\x01\x01\x06"
    assert packet[12:16] == bytes([10, 76, 0, 10])
    assert packet[28:34] == bytes.fromhex(MAC.replace(":", ""))
    assert packet[236:240] == b"\x63\x82\x53\x63"
    options = packet[240:]
    assert options.startswith(
        b"\x35\x01\x07\x36\x04" + bytes([10, 76, 0, 1]) + b"\x3d\x07\x01" + packet[28:34] + b"\xff"
    )


def test_without_a_client_id_the_release_names_none() -> None:
    assert dhcp.release_packet(MAC, "10.76.0.10", "10.76.0.1", None)[249:250] == b"\xff"


def test_leases_are_found_by_address(tmp_path: Path) -> None:
    path = tmp_path / "br.status"
    lease = {"ip-address": "10.76.0.10", "mac-address": MAC, "expiry-time": 1}
    path.write_text(json.dumps([lease, {**lease, "ip-address": "10.76.0.11"}]))
    assert dhcp.find_leases(str(path), "10.76.0.10") == [lease]


@pytest.mark.parametrize("content", [None, "", "[", "[{}]"])
def test_a_list_caught_in_the_middle_has_no_leases(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "br.status"
    if content is not None:
        path.write_text(content)
    assert dhcp.find_leases(str(path), "10.76.0.10") == []


def test_only_wanted_leases_are_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[str, ...]] = []
    monkeypatch.setattr(dhcp, "_send_release", lambda *arguments: sent.append(arguments))
    other = "fa:16:3e:00:76:02"
    leases = [{"ip-address": "10.76.0.10", "mac-address": mac} for mac in (MAC.upper(), other)]
    (tmp_path / "br.status").write_text(json.dumps(leases))
    dhcp.release("br", "10.76.0.10", lambda mac: mac != other, str(tmp_path))
    assert sent == [("br", MAC, "10.76.0.10", None)]


def test_a_missing_bridge_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "nosuch.status").write_text(json.dumps([{"ip-address": "10.76.0.10", "mac-address": MAC}]))
    dhcp.release("nosuch", "10.76.0.10", lambda mac: True, str(tmp_path))
