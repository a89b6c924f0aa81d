"""What a host tells of itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nova_lite.virt.libvirt.host import inventory

# As the command line client takes it apart.
UPTIME = re.compile(r"\s*(.+)\sup\s+(.+),\s+(.+)\susers?,\s+load average:\s(.+)")


def test_uptime_is_what_clients_take_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "UTMP", tmp_path / "utmp")
    parts = UPTIME.fullmatch(inventory.uptime())
    assert parts
    host_time, up, users, load = parts.groups()
    assert re.fullmatch(r"\d\d:\d\d:\d\d", host_time)
    assert re.fullmatch(r"\d+ days, [ \d]\d:\d\d", up)
    assert users == "0"
    assert len(load.split(", ")) == 3


def test_only_sessions_are_logins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    boot, session = (kind.to_bytes(2, "little").ljust(inventory.UTMP_ENTRY, b"\0") for kind in (2, 7))
    record = tmp_path / "utmp"
    record.write_bytes(boot + session + session)
    monkeypatch.setattr(inventory, "UTMP", record)
    assert inventory.logins() == 2
