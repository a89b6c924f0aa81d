"""Preparation of a live migration at the source."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from nova_lite.base import exceptions
from nova_lite.compute.operations import live_migration
from nova_lite.objects import LiveSource
from nova_lite.virt.driver import LiveMigrating


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
