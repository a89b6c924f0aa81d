"""Shared replay cache: a message that is captured and sent to a second conductor is refused."""

from __future__ import annotations

import datetime
import time
import uuid

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from nova_lite import rpc
from nova_lite.base import exceptions
from nova_lite.conductor.replay_cache import SharedReplayCache
from nova_lite.db.core import replay_cache
from nova_lite.db.core.engine import Database, UnitOfWork, utcnow
from nova_lite.db.core.models import SeenMessage
from nova_lite.rpc import keys
from nova_lite.rpcapi.conductor import ConductorRPC
from tests.support.statements import counting

API = keys.DaemonIdentity(rpc.API, "controller")
CONTRACT = rpc.contract_of(ConductorRPC)
METHODS = sorted(CONTRACT.methods)
HOST = keys.DaemonIdentity(rpc.COMPUTE, "host")
#: Methods whose repeated message does no harm, and why. Methods named ``x_get`` or ``x_list`` are not listed.
HARMLESS = {
    "build_instances": "has the conductor look for rows that wait to be built",
    "console_token_redeem": "a token is gone once it was taken",
    "domains_expected": "reads",
    "fencing_records_settled": "reads",
    "finish_build": "the generation that it was for: test_reports_again.py",
    "finish_builds": "the generations that they were for: test_reports_again.py",
    "host_join": "returns what became of the same request: test_joins.py",
    "identity_read": "reads",
    "join_finish": "does not fit work that is done: test_joins.py",
    "instance_security_groups": "reads",
    "instances_at_address": "reads",
    "interfaces_active": "writes down what the network service says now: test_reports_again.py",
    "metadata_instances": "reads",
    "migrations_in_progress": "reads",
    "audit_record": "stores each event once: test_audit_events.py",
    "is_command_open": "reads",
    "is_command_current": "reads",
    "is_volume_work_open": "reads",
    "is_volume_data_needed": "reads",
    "renew_lease": "a request with its number: test_leases.py",
    "report_service": "a heartbeat; its time is the database's",
    "report_state": "a heartbeat with its number: test_reports_again.py",
    "trust_publish": "the list has its number: test_joins.py",
    "volume_usage": "reads",
    "wing_read": "reads",
}


def taken(db: Database) -> set[str]:
    return set(db.read(lambda uow: uow.session.scalars(sa.select(SeenMessage.id)).all()))


@pytest.mark.parametrize("method", METHODS)
def test_message_that_changes_something_is_accepted_by_one_conductor_only(
    db: Database, conf: cfg.ConfigOpts, method: str
) -> None:
    sender = HOST if CONTRACT.methods[method].access.roles == {rpc.COMPUTE} else API
    first, second = SharedReplayCache(db, conf), SharedReplayCache(Database(conf), conf)
    message_id = uuid.uuid4().hex
    assert first(sender, method, message_id)
    repeatable = method.endswith(("_get", "_list")) or method in HARMLESS
    assert second(sender, method, message_id) is repeatable
    assert (message_id in taken(db)) is not repeatable
    assert CONTRACT.is_replay_safe(method) is repeatable


def test_frequent_reports_of_hosts_are_not_stored(db: Database, conf: cfg.ConfigOpts) -> None:
    once = SharedReplayCache(db, conf)
    for number, method in enumerate(("report_state", "finish_build", "finish_builds")):
        assert once(HOST, method, f"{number}" * 32)
    assert taken(db) == set()
    assert once(HOST, "image_update", "9" * 32)
    assert taken(db) == {"9" * 32}


def age(db: Database) -> None:
    """Make all ids that are taken 61 seconds older."""
    before = datetime.timedelta(seconds=61)
    db.write(lambda uow: uow.change(sa.update(SeenMessage).values(taken_at=uow.now - before)))


def test_expired_message_ids_are_deleted(db: Database) -> None:
    start = db.read(lambda uow: uow.now)
    db.write(replay_cache.message_taken, "1" * 32)
    assert db.write(replay_cache.expire, start) == 0
    age(db)
    db.write(replay_cache.message_taken, "2" * 32)
    assert db.write(replay_cache.expire, start) == 1
    assert taken(db) == {"2" * 32}


def test_message_ids_are_kept_for_their_lifetime_when_the_clock_of_the_database_jumps(
    db: Database, conf: cfg.ConfigOpts, monkeypatch: pytest.MonkeyPatch
) -> None:
    once, uptime = SharedReplayCache(db, conf), time.monotonic()
    shift = datetime.timedelta()
    monkeypatch.setattr(time, "monotonic", lambda: uptime)
    monkeypatch.setattr(UnitOfWork, "now", property(lambda uow: uow.session.scalar(sa.select(utcnow())) + shift))

    def later(seconds: float) -> None:
        nonlocal uptime
        uptime += seconds
        once(HOST, "image_update", uuid.uuid4().hex)

    lifetime = conf.rpc.signature_lifetime + 3 * conf.rpc.clock_skew
    once(HOST, "image_update", "1" * 32)
    later(61)
    shift = datetime.timedelta(days=7)
    later(61)
    assert "1" * 32 in taken(db)
    shift = datetime.timedelta()
    later(61)
    assert "1" * 32 in taken(db)
    for _ in range(int(lifetime / 61) + 3):
        later(61)
    assert "1" * 32 not in taken(db)


def test_replay_cache_deletes_expired_ids_from_time_to_time(
    db: Database, conf: cfg.ConfigOpts, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = SharedReplayCache(db, conf)
    assert once(API, "flavor_create", "1" * 32)
    age(db)
    monkeypatch.setattr(once, "_last_expiry", once._last_expiry - 61)
    monkeypatch.setattr(once, "_seconds", -1.0)
    assert once(API, "flavor_create", "2" * 32)
    assert "1" * 32 not in taken(db)


def test_message_is_refused_without_the_database(
    db: Database, conf: cfg.ConfigOpts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*arguments: object) -> None:
        raise sa.exc.OperationalError("INSERT", {}, Exception("gone"))

    once = SharedReplayCache(db, conf)
    monkeypatch.setattr(db, "write", fails)
    with pytest.raises(exceptions.DatabaseUnavailable):
        once(API, "flavor_create", "1" * 32)


def test_batch_of_message_ids_is_one_transaction(db: Database, conf: cfg.ConfigOpts) -> None:
    once = SharedReplayCache(db, conf)
    assert once(API, "flavor_create", "2" * 32)
    with counting() as counted:
        assert once._accept(["2" * 32, "3" * 32, "1" * 32]) == [False, True, True]
    assert (counted.transactions, len(counted.statements)) == (1, 3), counted.statements
    assert taken(db) == {number * 32 for number in "123"}
