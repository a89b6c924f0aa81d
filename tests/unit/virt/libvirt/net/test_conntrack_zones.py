"""Zones of bridges. tests/integration/network has them with real packets."""

from __future__ import annotations

import pytest

from nova_lite.virt.libvirt.net import conntrack_zones
from nova_lite.virt.libvirt.net.conntrack_zones import MAX_ZONE, ConntrackZones


def test_bridge_keeps_its_zone_and_no_two_have_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = {"old": 7, "wraps": 7 + MAX_ZONE, "last": MAX_ZONE}
    monkeypatch.setattr(conntrack_zones, "_bridge", lambda name: (f'"{name}"', numbers[name], "02:00:00:00:00:01"))
    zones = ConntrackZones()
    assert 'map { "old" : 7, "wraps" : 8 }' in zones.ruleset("t", ["old", "wraps"])
    assert 'map { "last" : 65535, "wraps" : 8 }' in zones.ruleset("t", ["wraps", "last"])
    assert zones.ruleset("t", []) == ""


def test_zone_after_the_last_one_is_the_first() -> None:
    assert conntrack_zones._free_zone(MAX_ZONE, {MAX_ZONE}) == 1


def test_missing_bridge_and_invalid_name_have_no_zone() -> None:
    assert ConntrackZones().ruleset("t", ["nlmissing", "../../lo", 'br" accept']) == ""
