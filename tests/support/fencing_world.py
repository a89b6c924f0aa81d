"""A conductor with a host that fences itself."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from nova_lite.conductor.hosts.evacuation import Evacuator
from nova_lite.conductor.hosts.fencing import HostFencer, LeaseWatch, wait_of
from nova_lite.db.core import models
from nova_lite.db.hosts import hosts, services
from nova_lite.objects import LeaseRequest
from tests.support.clock import Clock
from tests.support.conductor_world import BUILT, World, heartbeat

PAST = datetime.datetime(2000, 1, 1)
HOST, SECONDS = "host1", 50.0
ALWAYS = {"ha:restart": "always", "ha:local-disk": "rebuild"}


class Fencing(World):
    """A world whose host1 fences itself, with a conductor that watches it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.number = 0
        self.clock = Clock()
        self.fencer = HostFencer(self.db, self.conf, watch=LeaseWatch(self.clock))
        self.evacuator = Evacuator(self.engine)
        self.db.write(services.report, self.conf.host, services.CONDUCTOR, "conductor", "")

    def renew(self, *guests: str, **values: Any) -> list[str]:
        self.number += 1
        fields = {"host": HOST, "boot_id": "b", "epoch": 0, "identity": "", "number": self.number, "seconds": SECONDS}
        request = LeaseRequest(**{**fields, "guests": list(guests), **values})
        return self.db.write(hosts.renew_lease, self.conf, request).guests

    def protected(self, **metadata: str) -> str:
        """Return a protected server that host1 has confirmed."""
        uuid, host, _ = self.built(metadata=ALWAYS | metadata)
        assert host == HOST
        assert uuid in self.renew()
        self.renew(uuid)
        return uuid

    def lapse(self) -> None:
        """Let the lease end."""
        self.fencer.sweep()
        self.watch(wait_of(SECONDS) + 1)

    def watch(self, seconds: float, interval: float = 1.0) -> None:
        """Let time pass, with a sweep after each interval and at the end."""
        end = self.clock.time + seconds
        while self.clock.time < end:
            self.clock.time = min(self.clock.time + interval, end)
            self.fencer.sweep()

    def lease(self) -> models.HostLease:
        query = sa.select(models.HostLease).where(models.HostLease.host == HOST)
        return self.db.read(lambda uow: uow.session.scalars(query).one())

    def come_back(self) -> int:
        return self.db.write(hosts.register_host, self.conf, heartbeat(HOST))

    def rebuilt(self, uuid: str) -> str:
        self.lifecycle.build_instances(self.context(), [uuid])
        host, request = self.compute.builds[-1]
        self.reports.start_build(self.context(), uuid, host, request.generation)
        self.report(uuid, host, request.generation, BUILT)
        return host
