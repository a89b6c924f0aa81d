"""Details of a host's inventory."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nova_lite.virt.libvirt.host import inventory

# The command line client's pattern.
UPTIME = re.compile(r"\s*(.+)\sup\s+(.+),\s+(.+)\susers?,\s+load average:\s(.+)")


def test_uptime_has_the_format_that_clients_parse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "UTMP", tmp_path / "utmp")
    parts = UPTIME.fullmatch(inventory.uptime())
    assert parts
    host_time, up, users, load = parts.groups()
    assert re.fullmatch(r"\d\d:\d\d:\d\d", host_time)
    assert re.fullmatch(r"\d+ days, [ \d]\d:\d\d", up)
    assert users == "0"
    assert len(load.split(", ")) == 3


def test_logins_count_only_sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    boot, session = (kind.to_bytes(2, "little").ljust(inventory.UTMP_ENTRY, b"\0") for kind in (2, 7))
    record = tmp_path / "utmp"
    record.write_bytes(boot + session + session)
    monkeypatch.setattr(inventory, "UTMP", record)
    assert inventory.logins() == 2
