"""Limits of QoS policies on a host: the text for nft, and what is loaded when."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from nova_lite.objects import PortFilters, QosLimits
from nova_lite.virt.libvirt.net import names, qos
from nova_lite.virt.libvirt.net.qos import FLOATING, PORTS, HostQos
from tests.support.guests import make_vif

PORT, OTHER = "11111111-aaaa-0000-0000-000000000000", "22222222-bbbb-0000-0000-000000000000"
TAP, CHAIN = '"tap11111111-aa"', "tap11111111_aa"
SLOW = QosLimits(egress=(1000, 0))


class Nft:
    """Replaces nft. ``refused``: texts that contain this are refused."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.refused = "nothing"
        self.is_gone = False

    def __call__(self, text: str) -> str:
        if text.startswith("list map"):
            return "nft: no such table" if self.is_gone else ""
        self.texts.append(text)
        return "nft: no limits here" if self.refused in text else ""

    def taken(self) -> list[str]:
        taken, self.texts = self.texts, []
        return taken


@pytest.fixture
def nft(monkeypatch: pytest.MonkeyPatch) -> Nft:
    made = Nft()
    monkeypatch.setattr(qos.nft, "run", made)
    return made


Set = Callable[..., list[str]]


@pytest.fixture
def change(tmp_path: Path, nft: Nft) -> Set:
    """Set the limits of ports and return the texts that nft gets."""
    host = HostQos("h", str(tmp_path))

    def set_(floating: dict[str, QosLimits] | None = None, **ports: QosLimits) -> list[str]:
        found = {{"one": PORT, "two": OTHER}[name]: limits for name, limits in ports.items()}
        host.set(PortFilters(qos=found, floating_qos=floating or {}))
        return nft.taken()

    return set_


def test_table_drops_what_exceeds_the_limits_of_each_direction() -> None:
    limits = QosLimits(egress=(1000, 0), ingress=(2000, 9000), dscp=26)
    (rules,) = qos.port_rules({PORT: limits}).values()
    assert rules == (
        ("limit rate over 125000 bytes/second burst 65536 bytes drop", "ip dscp set 26", "ip6 dscp set 26"),
        ("limit rate over 250000 bytes/second burst 875000 bytes drop",),
    )
    text = qos.whole(PORTS, "t", {TAP: rules})
    assert f"add element bridge t sent {{ {TAP} : jump sent_{CHAIN} }}" in text
    assert f"add element bridge t received {{ {TAP} : jump received_{CHAIN} }}" in text
    assert "iifname vmap @sent" in text
    assert "oifname vmap @received" in text


def test_tap_device_of_a_port_is_that_of_its_interface() -> None:
    vif = make_vif()
    assert qos.port_rules({vif.id: SLOW}).keys() == {f'"{names.tap_name(vif)}"'}


def test_limits_at_the_ends_of_nfts_numbers_are_valid() -> None:
    rules = qos.port_rules({PORT: QosLimits(egress=(2**31 - 1, 0), ingress=(100_000_000, 2**31 - 1))})
    ((sent, received),) = rules.values()
    assert sent == (), "no guest reaches it, and the kernel would overflow"
    assert received == ("limit rate over 12500000000 bytes/second burst 4294967295 bytes drop",)
    assert (12_500_000_000 + 4_294_967_295) * 10**9 < 2**64


@pytest.mark.parametrize(
    "invalid", [{"x y": SLOW}, {PORT: QosLimits(egress=(0, 0))}, {PORT: QosLimits(dscp=64)}, {PORT: QosLimits(dscp=-1)}]
)
def test_invalid_limit_is_left_out(invalid: dict[str, QosLimits]) -> None:
    assert qos.port_rules({**invalid, OTHER: SLOW}).keys() == {'"tap22222222-bb"'}


def test_floating_address_is_limited_without_a_mark() -> None:
    rules = qos.floating_rules({"192.0.2.7": QosLimits(ingress=(8, 0), dscp=26), "not": SLOW})
    assert rules == {"192.0.2.7": ((), ("limit rate over 1000 bytes/second burst 65536 bytes drop",))}
    text = qos.whole(FLOATING, "t", rules)
    assert "ct direction original ct original ip daddr vmap @received" in text
    assert "add element inet t received { 192.0.2.7 : jump received_" in text


def test_changed_limits_alone_are_loaded(change: Set) -> None:
    (first,) = change(one=SLOW)
    assert first == qos.whole(PORTS, "nova_lite_qos_h", qos.port_rules({PORT: SLOW}))
    assert change(one=SLOW) == []
    (added,) = change(one=SLOW, two=SLOW)
    assert ("add table" in added, "tap11111111" in added, "tap22222222" in added) == (False, False, True)
    (replaced,) = change(one=QosLimits(egress=(2000, 0)), two=SLOW)
    gone = f"delete element bridge nova_lite_qos_h sent {{ {TAP} }}\ndelete chain bridge nova_lite_qos_h sent_{CHAIN}\n"
    assert replaced.startswith(gone)
    assert "250000 bytes/second" in replaced
    assert change(two=SLOW) == [gone]
    assert change() == [qos.whole(PORTS, "nova_lite_qos_h", {})]
    assert change() == []


def test_limits_of_floating_addresses_have_a_table_of_their_own(change: Set) -> None:
    (text,) = change({"192.0.2.7": SLOW})
    assert text == qos.whole(FLOATING, "nova_lite_qos_h", qos.floating_rules({"192.0.2.7": SLOW}))


def test_table_that_is_gone_is_loaded_again(change: Set, nft: Nft) -> None:
    whole = change(one=SLOW)
    nft.is_gone = True
    assert change(one=SLOW) == whole


def test_refused_change_replaces_the_table(change: Set, nft: Nft) -> None:
    change(one=SLOW)
    nft.refused = "delete element"
    _, text = change(one=QosLimits(egress=(9, 0)))
    assert text.startswith("add table")
    assert change(one=QosLimits(egress=(9, 0))) == []


def test_kernel_without_limits_is_reported_once(change: Set, nft: Nft, caplog: pytest.LogCaptureFixture) -> None:
    nft.refused = "limit rate"
    assert len(change(one=SLOW)) == len(change(one=SLOW)) == 1, "it is tried again"
    assert [record.getMessage() for record in caplog.records] == [
        "QoS policies do not limit the guests of this host: nft: no limits here"
    ]


def test_conductor_of_an_older_version_leaves_limits(tmp_path: Path, nft: Nft) -> None:
    host = HostQos("h", str(tmp_path))
    host.set(PortFilters(qos={PORT: SLOW}))
    nft.taken()
    host.set(PortFilters())
    assert nft.taken() == []


def test_daemon_starts_with_the_limits_that_it_had(tmp_path: Path, nft: Nft) -> None:
    HostQos("h", str(tmp_path)).prepare()
    assert nft.taken() == []
    HostQos("h", str(tmp_path)).set(PortFilters(qos={PORT: SLOW}, floating_qos={"192.0.2.7": SLOW}))
    loaded = nft.taken()
    assert len(loaded) == 2
    HostQos("h", str(tmp_path)).prepare()
    assert nft.taken() == loaded
    (stored,) = tmp_path.iterdir()
    stored.write_text("{")
    host = HostQos("h", str(tmp_path))
    host.prepare()
    assert nft.taken() == []
    host.set(PortFilters(qos={}))
    assert nft.taken() == [qos.whole(table, "nova_lite_qos_h", {}) for table in (PORTS, FLOATING)]
