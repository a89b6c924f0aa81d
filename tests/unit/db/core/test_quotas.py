"""Quotas: exactly the limit is granted, to any number of takers at once."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor

import pytest
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.db.core import models, quotas
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.hosts import hosts
from nova_lite.db.servers import claims
from nova_lite.objects import Selection
from tests.support import make

THREADS = 8


def used(db: Database, conf: cfg.ConfigOpts, project: str = "p1") -> dict[str, int]:
    limits = db.read(quotas.get, conf, project)
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
    with pytest.raises(exceptions.QuotaExceeded) as refused:
        db.write(quotas.take, conf, "p1", {"ram": 51200, "cores": 100, "instances": 100})
    assert refused.value.message == (
        "Quota exceeded for cores, instances, ram: Requested 100, 100, 51200, "
        "but already used 7, 7, 5120 of 20, 10, 51200 cores, instances, ram"
    )


def test_all_or_nothing_even_when_the_refusal_is_caught(db: Database, conf: cfg.ConfigOpts) -> None:
    def less_then(uow: UnitOfWork) -> None:
        with pytest.raises(exceptions.QuotaExceeded):
            quotas.take(uow, conf, "p1", {"cores": 5, "instances": 11})
        quotas.take(uow, conf, "p1", {"cores": 1, "instances": 1})

    db.write(less_then)
    assert used(db, conf) == {"cores": 1, "instances": 1}


def test_own_limits(db: Database, conf: cfg.ConfigOpts) -> None:
    db.write(quotas.set_limit, "p1", "cores", 1)
    db.write(quotas.set_limit, "p1", "cores", 2)
    db.write(quotas.set_limit, "p1", "ram", -1)
    db.write(quotas.take, conf, "p1", {"cores": 2, "ram": 10**6})
    with pytest.raises(exceptions.QuotaExceeded, match="used 2 of 2 cores"):
        db.write(quotas.take, conf, "p1", {"cores": 1})
    db.write(quotas.set_limit, "p1", "cores", None)
    assert db.read(quotas.get, conf, "p1").quotas["cores"].limit == 20
    db.write(quotas.set_limit, "p1", "cores", 0)
    with pytest.raises(exceptions.QuotaExceeded):
        db.write(quotas.take, conf, "p1", {"cores": 1})


@pytest.mark.parametrize(("resource", "limit"), [("cores", -2), ("cores", 2**31), ("disk", 1)])
def test_wrong_limit(db: Database, resource: str, limit: int) -> None:
    with pytest.raises(exceptions.InvalidInput):
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
    """The project has no row yet: the first threads race to insert it."""
    db.write(quotas.set_limit, "p1", "cores", 41)

    def take_some(_: int) -> int:
        granted = 0
        for _ in range(10):
            try:
                db.write(quotas.take, conf, "p1", {"cores": 1, "instances": 0, "ram": 1})
                granted += 1
            except exceptions.QuotaExceeded:
                continue
        return granted

    with ThreadPoolExecutor(THREADS) as pool:
        assert sum(pool.map(take_some, range(THREADS))) == 41
    assert used(db, conf) == {"cores": 41, "ram": 41}


def test_threads_claim_exactly_the_capacity(db: Database, conf: cfg.ConfigOpts) -> None:
    one_core = make.report(inventories=[make.inventory(vcpus=13)], cpu_allocation_ratio=1.0)
    db.write(hosts.record, conf, one_core)
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
    return db.read(quotas.get, conf, project).quotas[resource].limit


def test_defaults_hold_where_a_project_has_no_limit_of_its_own(db: Database, conf: cfg.ConfigOpts) -> None:
    db.write(quotas.set_limits, conf, "p1", {"cores": 3, "floating_ips": 4})
    assert db.write(quotas.set_defaults, conf, {"cores": 7, "ram": 8}).quotas["cores"].limit == 7
    assert (limit(db, conf, "cores"), limit(db, conf, "ram"), limit(db, conf, "floating_ips")) == (3, 8, 4)
    assert limit(db, conf, "cores", "p2") == 7
    db.write(quotas.reset, "p1")
    assert (limit(db, conf, "cores"), limit(db, conf, "instances")) == (7, 10)
    with pytest.raises(exceptions.QuotaExceeded):
        db.write(quotas.take, conf, "p2", {"cores": 8})


def test_no_limit_below_use_unless_forced(db: Database, conf: cfg.ConfigOpts) -> None:
    db.write(quotas.take, conf, "p1", {"cores": 5})
    with pytest.raises(exceptions.QuotaBelowUse, match="limit 4 for cores"):
        db.write(quotas.set_limits, conf, "p1", {"ram": 1, "cores": 4})
    assert (limit(db, conf, "cores"), limit(db, conf, "ram")) == (20, 51200)
    db.write(quotas.set_limits, conf, "p1", {"cores": 5, "ram": -1})
    db.write(quotas.set_limits, conf, "p1", {"cores": 4}, force=True)
    assert (limit(db, conf, "cores"), limit(db, conf, "ram")) == (4, -1)


# --- single users


def make_servers(uow: UnitOfWork, conf: cfg.ConfigOpts, user: str, count: int = 1, project: str = "p1") -> None:
    """Take quota and write the rows, as a create does."""
    quotas.take(uow, conf, project, {"instances": count, "cores": count, "ram": 64 * count}, user)
    for _ in range(count):
        make.instance(uow, project_id=project, user_id=user)


def of_user(db: Database, conf: cfg.ConfigOpts, user: str) -> dict[str, tuple[int, int]]:
    """Limit and use of what is counted of instances."""
    found = db.read(quotas.get, conf, "p1", user).quotas
    return {name: (found[name].limit, found[name].used) for name in ("instances", "cores", "ram")}


def test_a_users_limit_is_for_this_user_in_this_project(db: Database, conf: cfg.ConfigOpts) -> None:
    db.write(quotas.set_limits, conf, "p1", {"cores": 2, "ram": 128}, False, "u1")
    db.write(make_servers, conf, "u1", 2)
    with pytest.raises(exceptions.QuotaExceeded) as refused:
        db.write(make_servers, conf, "u1")
    assert refused.value.message == (
        "Quota exceeded for cores, ram: Requested 1, 64, but already used 2, 128 of 2, 128 cores, ram"
    )
    db.write(make_servers, conf, "u2", 3)
    db.write(make_servers, conf, "u1", 3, "p2")
    assert of_user(db, conf, "u1") == {"instances": (10, 2), "cores": (2, 2), "ram": (128, 128)}
    assert of_user(db, conf, "u2") == {"instances": (10, 3), "cores": (20, 3), "ram": (51200, 192)}
    assert used(db, conf) == {"instances": 5, "cores": 5, "ram": 320}


def test_quota_refused_request_takes_nothing(db: Database, conf: cfg.ConfigOpts) -> None:
    db.write(quotas.set_limit, "p1", "cores", 0, "u1")

    def refused_and_caught(uow: UnitOfWork) -> None:
        with pytest.raises(exceptions.QuotaExceeded):
            make_servers(uow, conf, "u1")

    db.write(refused_and_caught)
    assert used(db, conf) == {}


def test_the_projects_limit_holds_for_a_user_who_may_have_more(db: Database, conf: cfg.ConfigOpts) -> None:
    db.write(quotas.set_limits, conf, "p1", {"cores": -1, "instances": 50}, True, "u1")
    db.write(quotas.set_limit, "p1", "cores", 3)
    with pytest.raises(exceptions.QuotaExceeded, match="of 3 cores"):
        db.write(make_servers, conf, "u1", 4)


def test_limits_that_a_user_cannot_have(db: Database, conf: cfg.ConfigOpts) -> None:
    db.write(make_servers, conf, "u1", 2)
    with pytest.raises(exceptions.QuotaBelowUse, match=r"limit 1 for cores .* already used 2"):
        db.write(quotas.set_limits, conf, "p1", {"cores": 1}, False, "u1")
    for limit in (21, -1):
        with pytest.raises(exceptions.QuotaAboveProject, match=f"limit {limit} for cores .* 20"):
            db.write(quotas.set_limits, conf, "p1", {"cores": limit}, False, "u1")
    assert of_user(db, conf, "u1")["cores"] == (20, 2)
    db.write(quotas.set_limits, conf, "p1", {"cores": 1}, True, "u1")
    assert of_user(db, conf, "u1")["cores"] == (1, 2)
    db.write(quotas.set_limit, "p1", "cores", -1)
    db.write(quotas.set_limits, conf, "p1", {"cores": -1, "floating_ips": 7}, False, "u1")
    assert of_user(db, conf, "u1")["cores"] == (-1, 2)


def test_users_are_reset_alone_and_with_their_project(db: Database, conf: cfg.ConfigOpts) -> None:
    db.write(quotas.set_limit, "p1", "cores", 9)
    for project, user in (("p1", "u1"), ("p1", "u2"), ("p1", "U1"), ("p2", "u1")):
        db.write(quotas.set_limit, project, "cores", 5, user)

    def limits() -> list[int]:
        cases = (("p1", "u1"), ("p1", "u2"), ("p1", "U1"), ("p2", "u1"))
        return [db.read(quotas.get, conf, project, user).quotas["cores"].limit for project, user in cases]

    db.write(quotas.reset, "p1", "u1")
    assert limits() == [9, 5, 5, 5]
    db.write(quotas.set_limit, "p1", "cores", None, "u2")
    assert limits() == [9, 9, 5, 5]
    db.write(quotas.reset, "p1")
    assert limits() == [20, 20, 20, 5]


def test_threads_get_exactly_the_users_quota(db: Database, conf: cfg.ConfigOpts) -> None:
    db.write(quotas.set_limit, "p1", "instances", -1)
    db.write(quotas.set_limit, "p1", "cores", -1)
    db.write(quotas.set_limit, "p1", "cores", 7, "u1")

    def make_some(user: str) -> int:
        granted = 0
        for _ in range(3):
            try:
                db.write(make_servers, conf, user)
                granted += 1
            except exceptions.QuotaExceeded:
                continue
        return granted

    with ThreadPoolExecutor(THREADS) as pool:
        assert sum(pool.map(make_some, ["u1"] * THREADS)) == 7
    assert of_user(db, conf, "u1")["cores"] == (7, 7)
    assert used(db, conf)["cores"] == 7
