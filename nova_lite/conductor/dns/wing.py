"""Methods of users, and the transfer of their record sets to the operator's name server."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from oslo_config import cfg

from nova_lite.conductor.wings import ConductorWing
from nova_lite.db.core.engine import Database
from nova_lite.db.dns import recordsets, work, zones
from nova_lite.db.hosts import services
from nova_lite.dns.objects import RecordSet
from nova_lite.dns.transfer import BATCH, NameServer, Unreachable
from nova_lite.rpcapi.compute import ComputeRPC

LOG = logging.getLogger(__name__)

#: Seconds between two transfers.
INTERVAL = 2.0


class Dns(ConductorWing):
    reads = {
        "zone_list": zones.list_,
        "zone_get": zones.get,
        "recordset_list": recordsets.list_,
        "recordset_get": recordsets.get,
        "pointers": recordsets.pointers,
        "limits_get": zones.limits,
    }
    changes = {
        "zone_create": zones.create,
        "zone_update": zones.update,
        "zone_delete": zones.delete,
        "recordset_create": recordsets.create,
        "recordset_update": recordsets.update,
        "recordset_delete": recordsets.delete,
        "set_pointer": recordsets.set_pointer,
        "limits_set": zones.set_limits,
    }

    def __init__(self, db: Database, conf: cfg.ConfigOpts, compute: ComputeRPC) -> None:
        super().__init__(db, conf, compute)
        own = conf.dns
        self._server = NameServer(own.server, own.port, own.key_file) if own.server else None

    def workers(self) -> Iterator[tuple[str, float, Callable[[], object]]]:
        yield "dns", INTERVAL, self.transfer_if_first

    def transfer_if_first(self) -> None:
        if self.db.read(services.is_first, services.CONDUCTOR, self.conf.host):
            self.transfer()

    def transfer(self) -> None:
        """Send what the name server does not have yet. What it refuses is an error, and tried again."""
        self.db.write(work.name_floating_ips, self.conf)
        found = self.db.read(work.pending)
        if self._server is None:
            self.db.write(work.sent, found, [])
            return
        try:
            self._send(self._server, found)
        except Unreachable as error:
            LOG.warning("%d record sets wait for the name server %s: %s", len(found), self.conf.dns.server, error)

    def _send(self, server: NameServer, found: list[RecordSet]) -> None:
        in_zones: dict[str | None, list[RecordSet]] = {}
        of_names: dict[str, str | None] = {}
        for item in found:
            above = item.zone_name or item.name
            if above not in of_names:
                of_names[above] = server.zone_of(above)
            in_zones.setdefault(of_names[above], []).append(item)
        self.db.write(work.sent, [], in_zones.pop(None, []))
        for zone, items in in_zones.items():
            for start in range(0, len(items), BATCH):
                self._update(server, zone or "", items[start : start + BATCH])

    def _update(self, server: NameServer, zone: str, items: list[RecordSet]) -> None:
        """Send record sets together, or one by one if the server refuses them."""
        why = server.update(zone, items)
        if why is None:
            self.db.write(work.sent, items, [])
        elif len(items) > 1:
            for item in items:
                self._update(server, zone, [item])
        else:
            LOG.warning("The name server refuses %s %s in zone %s: %s", items[0].type, items[0].name, zone, why)
            self.db.write(work.sent, [], items)
