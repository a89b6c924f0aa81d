"""A conductor's world whose hosts have PCI devices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from nova_lite.conductor.lost_devices import EVENT, LostDevices
from nova_lite.db.core import models
from nova_lite.db.hosts import hosts
from nova_lite.db.servers import flavors
from nova_lite.objects import ActionCommand, ActionReport, Flavor, PCIDevice
from tests.support.conductor_world import World, heartbeat

DEVICES = [PCIDevice(address=f"0000:{bus}:00.0", vendor_id="10de", product_id="1eb8") for bus in ("41", "81")]
ALIAS = {"name": "gpu", "vendor_id": "10de", "product_id": "1eb8"}
GPU, TWO, UNKNOWN = "gpu", "two", "unknown"


class Devices(World):
    """A world whose hosts have two devices each."""

    def __init__(self, path: Path, **alias: Any) -> None:
        super().__init__(path)
        self.conf.set_override("alias", [json.dumps(ALIAS | alias)], "pci")
        for host in ("host1", "host2"):
            self.offer(host, DEVICES)
        for name, specs in ((GPU, "gpu:1"), (TWO, "gpu:2"), (UNKNOWN, "fpga:1")):
            size = {"flavorid": name, "name": name, "vcpus": 1, "memory_mb": 64, "root_gb": 1}
            self.db.write(flavors.create, Flavor(**size, extra_specs={"pci_passthrough:alias": specs}))
        self.lost = LostDevices(self.db, self.conf)

    def offer(self, host: str, devices: list[PCIDevice]) -> None:
        report = heartbeat(host)
        report.inventories[0].pci = devices
        self.db.write(hosts.report_state, self.conf, report)

    def used(self) -> dict[str, list[str]]:  # type: ignore[override]
        columns = (models.ComputeNode.host, models.ComputeNode.pci_used)
        return self.db.read(lambda uow: {host: used or [] for host, used in uow.session.execute(sa.select(*columns))})

    def events(self, uuid: str) -> list[tuple[str, str]]:
        query = sa.select(models.InstanceAction).where(models.InstanceAction.instance_uuid == uuid)
        rows = self.db.read(lambda uow: list(uow.session.scalars(query.order_by(models.InstanceAction.id))))
        return [(row.action, event["details"]) for row in rows for event in row.events or () if event["event"] == EVENT]

    def finish(self, command: ActionCommand) -> None:
        """Let the host carry out a command."""
        assert command.host is not None
        report = ActionReport(host=command.host, action_id=command.action_id, sequence=command.sequence, power_state=1)
        self.reports.finish_action(self.context(), report)
