"""Preparation of a live migration at the source, and its end at the destination."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from nova_lite.base import exceptions
from nova_lite.compute.operations import live_migration
from nova_lite.objects import LiveSource
from nova_lite.operations import states
from nova_lite.virt.driver import LiveMigrating
from tests.support.guests import make_instance


def check(disks: dict[str, int], block: bool | None) -> dict[str, Any]:
    driver = mock.Mock(spec=LiveMigrating)
    driver.check_can_live_migrate_source.return_value = LiveSource(driver="fake", disks=disks)
    host: Any = SimpleNamespace(driver=driver, require_domain=lambda command: None)
    command: Any = SimpleNamespace(instance=SimpleNamespace(uuid="uuid"), payload={"block": block})
    return live_migration.check_can_live_migrate_source(host, command)


@pytest.mark.parametrize(
    ("disks", "block"), [({}, False), ({}, None), ({}, True), ({"disk": 1}, None), ({"disk": 1}, True)]
)
def test_source_offers_its_disks(disks: dict[str, int], block: bool | None) -> None:
    assert check(disks, block)["live"]["disks"] == disks


def test_local_disks_need_a_block_migration() -> None:
    with pytest.raises(exceptions.MigrationPreCheckError, match="block_migration is needed"):
        check({"disk": 1}, False)


@pytest.mark.parametrize("vm_state", [states.ACTIVE, states.PAUSED])
def test_destination_lets_the_source_in_no_longer(monkeypatch: pytest.MonkeyPatch, vm_state: str) -> None:
    driver = mock.Mock(spec=LiveMigrating)
    host: Any = SimpleNamespace(driver=driver, fencing=mock.Mock())
    command: Any = SimpleNamespace(
        instance=make_instance(uuid="uuid", vm_state=vm_state), generation=2, payload={"answers": {}}
    )
    monkeypatch.setattr(live_migration, "moves", mock.Mock(numa_at=lambda command, role: None))
    monkeypatch.setattr(live_migration, "interfaces", mock.Mock())
    live_migration.post_live_migration_at_destination(host, command)
    driver.finish_live_migration.assert_called_once_with("uuid")
    assert driver.take_over_paused.called == (vm_state == states.PAUSED)
