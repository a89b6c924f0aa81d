"""Floating addresses of a host, and the rules that translate them."""

from __future__ import annotations

from pathlib import Path

import pytest

from nova_lite.base import exceptions
from nova_lite.virt.libvirt.net import floating_ips
from nova_lite.virt.libvirt.net.floating_ips import FloatingAddresses
from tests.support.guests import make_vif

A, B = "192.0.2.1", "192.0.2.2"


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    ran: list[str] = []
    monkeypatch.setattr(floating_ips.images, "run", lambda *command: ran.append(" ".join(command[2:])))
    return ran


def test_machine_has_exactly_the_addresses_of_its_guests(tmp_path: Path, ran: list[str]) -> None:
    addresses = FloatingAddresses(str(tmp_path), "h", "lo")
    addresses.assign(set())
    assert ran == []
    addresses.assign({A})
    addresses.assign({A})
    assert ran == [f"replace {A}/32 dev lo"]
    addresses.assign({A, B})
    assert ran[1:] == [f"replace {B}/32 dev lo"]
    addresses.assign({B})
    assert ran[-1] == f"del {A}/32 dev lo"


def test_addresses_are_exact_after_a_restart(tmp_path: Path, ran: list[str]) -> None:
    """The machine may have booted meanwhile, and has no address then."""
    FloatingAddresses(str(tmp_path), "h", "lo").assign({A, B})
    ran.clear()
    FloatingAddresses(str(tmp_path), "h", "lo").assign({B})
    assert ran == [f"replace {A}/32 dev lo", f"del {A}/32 dev lo", f"replace {B}/32 dev lo"]


def test_interrupted_change_is_completed_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*command: str) -> None:
        raise exceptions.VirtDriverError(reason="killed")

    with monkeypatch.context() as patch:
        patch.setattr(floating_ips.images, "run", fails)
        with pytest.raises(exceptions.VirtDriverError):
            FloatingAddresses(str(tmp_path), "h", "lo").assign({A})
    ran: list[str] = []
    monkeypatch.setattr(floating_ips.images, "run", lambda *command: ran.append(" ".join(command[2:])))
    FloatingAddresses(str(tmp_path), "h", "lo").assign(set())
    assert ran[-1] == f"del {A}/32 dev lo"


def test_rules_translate_floating_addresses() -> None:
    vif = make_vif()
    assert floating_ips.ruleset("t", {}) == ""
    text = floating_ips.ruleset("t", {A: vif})
    assert f"dnat ip to ip daddr map {{ {A} : {vif.address} }}" in text
    assert f'oifname != "nltest0" ip saddr {vif.address} snat ip to {A}' in text


def test_announcement_is_a_complete_frame() -> None:
    frame = floating_ips.gratuitous_arp(bytes.fromhex("0a0000000001"), A)
    mac, packed = "0a0000000001", "c0000201"
    assert frame.hex() == f"ffffffffffff{mac}08060001080006040001{mac}{packed}000000000000{packed}"
