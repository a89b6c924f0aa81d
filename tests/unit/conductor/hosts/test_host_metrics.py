"""Metrics of compute hosts in the conductor, and the list of their pages for Prometheus."""

from __future__ import annotations

import sqlalchemy as sa

from nova_lite.base import metrics
from nova_lite.conductor.manager import ConductorManager
from nova_lite.db.core.engine import Database
from nova_lite.db.core.models import Service
from nova_lite.db.hosts import hosts, services
from tests.support import make


def report(manager: ConductorManager, host: str, address: str) -> None:
    manager.db.write(hosts.record, manager.conf, make.report(host, inventories=[make.inventory(host, host_ip=address)]))


def set_state(db: Database, host: str, **values: object) -> None:
    db.write(lambda uow: uow.session.execute(sa.update(Service).where(Service.host == host).values(**values)))


def down(manager: ConductorManager) -> set[str]:
    return {labels[0] for name, (labels, _) in manager.states() if name == metrics.HOST_DOWN}


def test_hosts_that_are_down_are_named_unless_an_operator_means_it(manager: ConductorManager, db: Database) -> None:
    for host in ("h1", "h2", "h3", "h4"):
        report(manager, host, "192.0.2.1")
    assert down(manager) == set()
    for host in ("h2", "h3", "h4"):
        set_state(db, host, up=False)
    set_state(db, "h3", disabled=True)
    set_state(db, "h4", forced_down=True)
    db.write(services.report, "c1", "nova-lite-scheduler", "scheduler", "1")
    assert down(manager) == {"h2"}


def test_targets_are_the_addresses_of_all_hosts(manager: ConductorManager) -> None:
    report(manager, "h1", "192.0.2.1")
    report(manager, "h2", "2001:db8::2")
    report(manager, "h3", "elsewhere.example.org/x")
    manager.conf.set_override("compute_port", 1234, "metrics")
    assert manager.scrape_targets() == [
        {"targets": ["192.0.2.1:1234"], "labels": {"daemon": "compute", "machine": "h1"}},
        {"targets": ["[2001:db8::2]:1234"], "labels": {"daemon": "compute", "machine": "h2"}},
    ]
