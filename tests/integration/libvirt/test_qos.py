"""Limits of QoS policies on a host: they come with the filters, and are loaded again at the start of the daemon."""

from __future__ import annotations

import subprocess

from nova_lite.objects import PortFilters, QosLimits
from nova_lite.virt.libvirt.driver import LibvirtDriver
from nova_lite.virt.libvirt.net import names
from tests.integration.libvirt.conftest import MakeDriver
from tests.support.guests import make_vif

FLOATING = "192.0.2.7"


def loaded(driver: LibvirtDriver) -> dict[str, str]:
    """Return the tables of limits by family."""
    commands = {family: ["nft", "list", "table", family, names.qos_table(driver.host)] for family in ("bridge", "inet")}
    found = {family: subprocess.run(command, capture_output=True, text=True) for family, command in commands.items()}
    return {family: result.stdout for family, result in found.items() if result.returncode == 0}


def test_limits_are_loaded_with_filters_and_at_the_start(driver: LibvirtDriver, make_driver: MakeDriver) -> None:
    vif, slow = make_vif(), QosLimits(egress=(1000, 0))
    driver.filters.apply(PortFilters(qos={vif.id: slow}, floating_qos={FLOATING: slow}))
    tables = loaded(driver)
    assert names.tap_name(vif) in tables["bridge"]
    assert FLOATING in tables["inet"]
    for family in tables:
        subprocess.run(["nft", "delete", "table", family, names.qos_table(driver.host)], check=True)
    again = make_driver("one")
    assert loaded(again) == tables
    again.filters.apply(PortFilters(qos={}))
    assert loaded(again) == {}
