"""systemd finds no mistake in the units, and their exposure is what the page on security says."""

from __future__ import annotations

import re

import pytest

from tests.integration.systemd.machine import TOP, Machine

UNITS = sorted(path.stem for path in (TOP / "etc/systemd").glob("*.service"))
PAGE = TOP / "docs/explanation/security-model.md"


@pytest.mark.parametrize("unit", UNITS)
def test_systemd_finds_no_mistake_in_the_unit(machine: Machine, unit: str) -> None:
    assert machine.run("systemd-analyze", "verify", f"{unit.replace('@', '@7')}.service") == ""


@pytest.mark.parametrize("unit", UNITS)
def test_exposure_of_the_unit_is_that_of_the_page(machine: Machine, unit: str) -> None:
    """Other versions of systemd weigh the settings differently, so the figure may be lower, but never higher."""
    name = f"{unit.replace('@', '@7')}.service"
    printed = machine.run("systemd-analyze", "security", "--no-pager", name)
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", printed)
    assert found is not None, printed
    rows = re.findall(r"^\| (`nova-lite-.*?`) \| ([0-9.]+) \|", PAGE.read_text(), re.MULTILINE)
    shown = {row_unit: float(figure) for units, figure in rows for row_unit in re.findall(r"`([^`]+)`", units)}
    assert set(shown) == set(UNITS)
    assert float(found[1]) <= shown[unit]
