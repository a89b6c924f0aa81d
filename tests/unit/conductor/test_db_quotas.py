"""Quotas: exactly the limit is granted, to any number of takers at once."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor

import pytest
from oslo_config import cfg

from nova_lite import exception
from nova_lite.conductor.db import claims, hosts, models, quotas
from nova_lite.conductor.db.engine import Database, UnitOfWork
from nova_lite.objects import Selection
from tests.unit.conductor import make

THREADS = 8


def used(db: Database, conf: cfg.ConfigOpts, project: str = "p1") -> dict[str, int]:
    limits = db.read(quotas.limits, conf, project)
    return {name: quota.used for name, quota in limits.quotas.items() if quota.used}


def test_take_and_give_back(db: Database, conf: cfg.ConfigOpts) -> None:
    db.write(quotas.take, conf, "p1", {"cores": 2, "ram": 100, "instances": 0})
    db.write(quotas.take, conf, "p1", {"cores": 1})
    assert used(db, conf) == {"cores": 3, "ram": 100}
    assert used(db, conf, "P1") == {}
    db.write(quotas.give_back, "p1", {"cores": 3, "ram": 40})
    assert used(db, conf) == {"ram": 60}


def test_message_names_every_resource_that_is_short(db: Database, conf: cfg.ConfigOpts) -> None:
    db.write(quotas.take, conf, "p1", {"cores": 7, "instances": 7, "ram": 5120})
    with pytest.raises(exception.QuotaExceeded) as refused:
        db.write(quotas.take, conf, "p1", {"ram": 51200, "cores": 100, "instances": 100})
    assert refused.value.message == (
        "Quota exceeded for cores, instances, ram: Requested 100, 100, 51200, "
        "but already used 7, 7, 5120 of 20, 10, 51200 cores, instances, ram"
    )


def test_all_or_nothing_even_when_the_refusal_is_caught(db: Database, conf: cfg.ConfigOpts) -> None:
    def less_then(uow: UnitOfWork) -> None:
        with pytest.raises(exception.QuotaExceeded):
            quotas.take(uow, conf, "p1", {"cores": 5, "instances": 11})
        quotas.take(uow, conf, "p1", {"cores": 1, "instances": 1})

    db.write(less_then)
    assert used(db, conf) == {"cores": 1, "instances": 1}


def test_own_limits(db: Database, conf: cfg.ConfigOpts) -> None:
    db.write(quotas.set_limit, "p1", "cores", 1)
    db.write(quotas.set_limit, "p1", "cores", 2)
    db.write(quotas.set_limit, "p1", "ram", -1)
    db.write(quotas.take, conf, "p1", {"cores": 2, "ram": 10**6})
    with pytest.raises(exception.QuotaExceeded, match="used 2 of 2 cores"):
        db.write(quotas.take, conf, "p1", {"cores": 1})
    db.write(quotas.set_limit, "p1", "cores", None)
    assert db.read(quotas.limits, conf, "p1").quotas["cores"].limit == 20
    db.write(quotas.set_limit, "p1", "cores", 0)
    with pytest.raises(exception.QuotaExceeded):
        db.write(quotas.take, conf, "p1", {"cores": 1})


@pytest.mark.parametrize(("resource", "limit"), [("cores", -2), ("cores", 2**31), ("disk", 1)])
def test_wrong_limit(db: Database, resource: str, limit: int) -> None:
    with pytest.raises(exception.InvalidInput):
        db.write(quotas.set_limit, "p1", resource, limit)


def test_giving_back_too_much_is_told_and_stops_at_zero(
    db: Database, conf: cfg.ConfigOpts, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        db.write(quotas.give_back, "p1", {"cores": 1})
    assert "cores" in caplog.text
    db.write(quotas.take, conf, "p1", {"cores": 1})
    db.write(quotas.give_back, "p1", {"cores": 5})
    assert used(db, conf) == {}


def test_threads_get_exactly_the_quota(db: Database, conf: cfg.ConfigOpts) -> None:
    """From a project without any row on: the first ones race to insert it."""
    db.write(quotas.set_limit, "p1", "cores", 41)

    def take_some(_: int) -> int:
        granted = 0
        for _ in range(10):
            try:
                db.write(quotas.take, conf, "p1", {"cores": 1, "instances": 0, "ram": 1})
                granted += 1
            except exception.QuotaExceeded:
                continue
        return granted

    with ThreadPoolExecutor(THREADS) as pool:
        assert sum(pool.map(take_some, range(THREADS))) == 41
    assert used(db, conf) == {"cores": 41, "ram": 41}


def test_threads_claim_exactly_the_capacity(db: Database, conf: cfg.ConfigOpts) -> None:
    one_core = make.report(inventories=[make.inventory(vcpus=13)], cpu_allocation_ratio=1.0)
    db.write(hosts.report, conf, one_core)
    uuids = [db.write(make.instance) for _ in range(40)]

    def claim(uow: UnitOfWork, uuid: str) -> bool:
        row = uow.session.query(models.Instance).filter_by(uuid=uuid).with_for_update().one()
        return claims.claim(uow, row, Selection(host="h1", node="n1"))

    with ThreadPoolExecutor(THREADS) as pool:
        granted = sum(pool.map(lambda uuid: db.write(claim, uuid), uuids))
    (state,) = db.read(hosts.states)
    assert (granted, state.vcpus_used, len(state.instances)) == (13, 13, 13)
    assert state.generation == 13
    for uuid in uuids:
        db.write(claims.release, uuid)
    (state,) = db.read(hosts.states)
    assert (state.vcpus_used, state.memory_mb_used, state.disk_gb_used, state.instances) == (0, 0, 0, [])


def limit(db: Database, conf: cfg.ConfigOpts, resource: str, project: str = "p1") -> int:
    return db.read(quotas.limits, conf, project).quotas[resource].limit


def test_defaults_hold_where_a_project_has_no_limit_of_its_own(db: Database, conf: cfg.ConfigOpts) -> None:
    db.write(quotas.set_limits, conf, "p1", {"cores": 3, "floating_ips": 4})
    assert db.write(quotas.set_defaults, conf, {"cores": 7, "ram": 8}).quotas["cores"].limit == 7
    assert (limit(db, conf, "cores"), limit(db, conf, "ram"), limit(db, conf, "floating_ips")) == (3, 8, 4)
    assert limit(db, conf, "cores", "p2") == 7
    db.write(quotas.reset, "p1")
    assert (limit(db, conf, "cores"), limit(db, conf, "instances")) == (7, 10)
    with pytest.raises(exception.QuotaExceeded):
        db.write(quotas.take, conf, "p2", {"cores": 8})


def test_no_limit_below_use_unless_forced(db: Database, conf: cfg.ConfigOpts) -> None:
    db.write(quotas.take, conf, "p1", {"cores": 5})
    with pytest.raises(exception.QuotaBelowUse, match="limit 4 for cores"):
        db.write(quotas.set_limits, conf, "p1", {"ram": 1, "cores": 4})
    assert (limit(db, conf, "cores"), limit(db, conf, "ram")) == (20, 51200)
    db.write(quotas.set_limits, conf, "p1", {"cores": 5, "ram": -1})
    db.write(quotas.set_limits, conf, "p1", {"cores": 4}, force=True)
    assert (limit(db, conf, "cores"), limit(db, conf, "ram")) == (4, -1)
