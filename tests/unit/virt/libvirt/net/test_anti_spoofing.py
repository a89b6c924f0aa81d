"""Rules against forged frames, one guest at a time. tests/integration/network tries them with real frames."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from nova_lite.base import exceptions
from nova_lite.objects import VIF, ipv6
from nova_lite.virt.libvirt.net import anti_spoofing, dual_stack
from nova_lite.virt.libvirt.net.anti_spoofing import AntiSpoofing
from tests.support.guests import make_network, make_vif


def make_port(name: str, **values: Any) -> VIF:
    return msgspec.structs.replace(make_vif(port_security_enabled=True), id=f"{name}-0000-0000", **values)


class Nft:
    """Replaces nft. ``refuses``: number of texts that it does not load."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.refuses = 0

    def __call__(self, text: str) -> None:
        self.texts.append(text)
        if self.refuses:
            self.refuses -= 1
            raise exceptions.VirtDriverError(reason="nft: no")

    def run(self, text: str) -> str:
        self.texts.append(text)
        return "nft: no" if self.refuses else ""


def test_guard_has_the_addresses_of_its_interface_only() -> None:
    network = make_network(cidr6="fd00:76::/64")
    more = ipv6.further_addresses(network, ipv6.address_on(network, make_vif().mac_address))
    vif = make_port("a", network=network, more=more)
    ((tap, guard),) = anti_spoofing.guards([vif], [network.id]).items()
    assert (tap, guard.is_served) == ("tapa-0000-0000", True)
    assert guard.sent is not None and guard.received is not None
    assert guard.sent[0] == f"ether saddr != {vif.mac_address} drop"
    assert (guard.sent[-1], guard.received[-1]) == ("drop", "drop")
    assert guard.received[2].startswith(f"ip daddr {{ {vif.address}, ")
    own = f"ip6 daddr {{ {more[0].address}, {dual_stack.addresses(vif)[1]}, ff00::/8 }}"
    assert guard.received[4:6] == (f"{own} @th,0,8 >= 0 accept", f"{own} frag frag-off != 0 accept")
    plain = anti_spoofing.guards([make_port("a")], [])["tapa-0000-0000"]
    assert not plain.is_served
    assert plain.sent is not None and plain.received is not None
    assert not any(rule.startswith("ip6 ") for rule in plain.sent + plain.received)


def test_port_of_neutron_is_guarded_by_its_agent() -> None:
    assert anti_spoofing.guards([make_port("a", vif_type="ovs")], []) == {}


@pytest.mark.parametrize("values", [{"address": "x"}, {"mac_address": "x"}, {"network": make_network(cidr="x")}])
def test_invalid_interface_is_closed(values: dict[str, Any]) -> None:
    guard = anti_spoofing.guards([make_port("a", **values)], [])["tapa-0000-0000"]
    assert (guard.sent, guard.received) == (None, None)
    text = anti_spoofing.whole("t", {"tapa-0000-0000": guard})
    assert 'add element bridge t sent { "tapa-0000-0000" : drop }' in text
    assert 'add element bridge t received { "tapa-0000-0000" : drop }' in text


def test_change_names_the_changed_guest_only() -> None:
    guard, nft = AntiSpoofing("host-a"), Nft()
    guard.plug("1", [make_port("a")], [], nft)
    guard.plug("2", [make_port("b")], [], nft)
    assert "tapa" not in nft.texts[-1] and "tapb" in nft.texts[-1]
    guard.plug("2", [make_port("b")], [], nft)
    assert nft.texts[-1] == ""
    guard.unplug("1", nft)
    assert "tapb" not in nft.texts[-1]
    assert 'delete element bridge nova_lite_spoofing_host_a sent { "tapa-0000-0000" }' in nft.texts[-1]
    guard.unplug("2", nft)
    assert nft.texts[-1] == "".join(f"{verb} table bridge nova_lite_spoofing_host_a\n" for verb in ("add", "delete"))


def test_table_that_somebody_changed_is_loaded_as_a_whole() -> None:
    guard, nft = AntiSpoofing("host-a"), Nft()
    guard.plug("1", [make_port("a")], [], nft)
    nft.refuses = 1
    guard.plug("2", [make_port("b")], [], nft)
    assert "tapa" in nft.texts[-1] and "tapb" in nft.texts[-1]


def test_guest_that_cannot_be_guarded_is_refused_and_holds_up_no_other() -> None:
    guard, nft = AntiSpoofing("host-a"), Nft()
    guard.plug("1", [make_port("a")], [], nft)
    nft.refuses = 2
    with pytest.raises(exceptions.VirtDriverError, match="nft: no"):
        guard.plug("2", [make_port("b")], [], nft)
    guard.plug("3", [make_port("c")], [], nft)
    assert "tapb" not in nft.texts[-1] and "tapc" in nft.texts[-1]


def test_host_that_cannot_guard_its_guests_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    nft = Nft()
    nft.refuses = 1
    monkeypatch.setattr(anti_spoofing.nft, "run", nft.run)
    AntiSpoofing("host-a").prepare({"1": []}, set())
    assert nft.texts == [], "a host without such guests needs no nft"
    with pytest.raises(exceptions.ConfigurationError, match="forging addresses: nft: no"):
        AntiSpoofing("host-a").prepare({"1": [make_port("a")]}, set())
    nft.refuses = 0
    guard = AntiSpoofing("host-a")
    guard.prepare({"1": [make_port("a")]}, set())
    guard.unplug("1", nft)
    assert nft.texts[-1].endswith("delete table bridge nova_lite_spoofing_host_a\n")


def test_table_that_somebody_removed_is_loaded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    nft = Nft()
    monkeypatch.setattr(anti_spoofing.nft, "run", nft.run)
    monkeypatch.setattr(anti_spoofing.nft, "apply", nft)
    guard = AntiSpoofing("host-a")
    guard.restore()
    assert nft.texts == [], "there are no guests"
    guard.plug("1", [make_port("a")], [], nft)
    guard.restore()
    assert nft.texts[-1] == "list map bridge nova_lite_spoofing_host_a sent\n"
    nft.refuses = 1
    monkeypatch.setattr(anti_spoofing.nft, "apply", nft.texts.append)
    guard.restore()
    assert "tapa" in nft.texts[-1]


def test_interface_of_unknown_addresses_is_closed_until_it_is_plugged(monkeypatch: pytest.MonkeyPatch) -> None:
    nft = Nft()
    monkeypatch.setattr(anti_spoofing.nft, "run", nft.run)
    guard = AntiSpoofing("host-a")
    guard.prepare({"1": []}, set(), {"1": ["tapa-0000-0000"]})
    assert 'sent { "tapa-0000-0000" : drop }' in nft.texts[-1]
    guard.plug("1", [make_port("a")], [], nft)
    assert 'sent { "tapa-0000-0000" : goto sent_' in nft.texts[-1]


def test_interface_of_a_record_without_settings_is_guarded() -> None:
    """An older version wrote no port security into its records: such a guest forges nothing."""
    old = msgspec.json.decode(
        b'{"id": "aaaaaaaa-0000-0000", "mac_address": "fa:16:3e:00:00:01", "address": "10.0.0.2", '
        b'"network": {"id": "n", "name": "n", "cidr": "10.0.0.0/24"}}',
        type=VIF,
    )
    for vif in (old, msgspec.structs.replace(old, port_security_enabled=True)):
        sent, _ = anti_spoofing.rules(vif)
        assert sent[-1] == "drop" and f"ip saddr != {vif.address}" not in sent[0]
    sent, received = anti_spoofing.rules(msgspec.structs.replace(old, unguarded=True))
    assert (sent[-1], received) == ("accept", ("accept",))
