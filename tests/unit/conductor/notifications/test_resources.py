"""Notifications about flavors, key pairs, aggregates, server groups and services, held against Nova's samples."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from nova_lite import objects
from nova_lite.base import exceptions
from nova_lite.base.timing import TIMING
from nova_lite.conductor.manager import ConductorManager
from nova_lite.conductor.notifications.resources import NOTED
from nova_lite.conductor.notifications.service import Notifications
from nova_lite.db.core import models
from nova_lite.db.core.engine import Database
from nova_lite.db.hosts import hosts
from nova_lite.rpcapi.conductor import ConductorRPC
from tests.support import make
from tests.unit.conductor.notifications.nova_facts import CLASSES
from tests.unit.conductor.notifications.sinks import CHANNELS

#: Keys of the payloads in Nova's samples.
KEYS = {
    "AggregatePayload": ("1.1", {"id", "uuid", "name", "hosts", "metadata"}),
    "FlavorPayload": CLASSES["FlavorPayload"],
    "KeypairPayload": CLASSES["KeypairPayload"],
    "ServerGroupPayload": (
        "1.1",
        {"uuid", "name", "project_id", "user_id", "policies", "policy", "rules", "members", "hosts"},
    ),
    "ServiceStatusPayload": (
        "1.1",
        {
            "uuid",
            "host",
            "binary",
            "topic",
            "disabled",
            "disabled_reason",
            "forced_down",
            "availability_zone",
            "last_seen_up",
            "report_count",
            "version",
        },
    ),
}
CONTEXT = make.ADMIN


@pytest.fixture
def db(manager: ConductorManager, conf: cfg.ConfigOpts) -> Database:
    Notifications(manager.db, conf, TIMING.conductor, CHANNELS)
    return manager.db


def sent(db: Database) -> list[tuple[str, dict[str, Any]]]:
    """Return type and data of the events since the last call, after a check of their form."""
    query = sa.select(models.Notification).order_by(models.Notification.id)
    found = db.read(lambda uow: list(uow.session.scalars(query)))
    db.write(lambda uow: uow.change(sa.delete(models.Notification)))
    for row in found:
        version, keys = KEYS[row.payload["nova_object.name"]]
        assert row.payload["nova_object.version"] == version
        assert row.payload["nova_object.namespace"] == "nova"
        assert row.payload["nova_object.data"].keys() == keys
        assert (row.channel, row.priority) == ("versioned", "INFO")
        assert row.context == {
            "request_id": CONTEXT.request_id,
            "user_id": CONTEXT.user_id,
            "project_id": CONTEXT.project_id,
        }
        binary = "nova-compute:h1" if row.event_type.startswith("service.") else f"nova-api:{db.conf.host}"
        assert row.publisher_id == binary
    return [(row.event_type, row.payload["nova_object.data"]) for row in found]


def test_flavor_events(db: Database, conductor: ConductorRPC) -> None:
    conductor.flavor_create(CONTEXT, make.flavor(is_public=False))
    ((event, data),) = sent(db)
    assert (event, data["flavorid"], data["vcpus"], data["projects"]) == ("flavor.create", "1", 1, None)
    conductor.flavor_update(CONTEXT, "1", "new")
    conductor.flavor_extra_specs_update(CONTEXT, "1", {"a": "b"})
    conductor.flavor_access_add(CONTEXT, "1", "p1", False)
    found = sent(db)
    assert [event for event, _ in found] == ["flavor.update"] * 3
    assert [data["description"] for _, data in found] == ["new"] * 3
    assert [data["extra_specs"] for _, data in found] == [{}, {"a": "b"}, {"a": "b"}]
    assert found[2][1]["projects"] == ["p1"]
    conductor.flavor_access_remove(CONTEXT, "1", "p1")
    conductor.flavor_extra_spec_delete(CONTEXT, "1", "a")
    found = sent(db)
    assert (found[0][1]["projects"], found[1][1]["extra_specs"]) == ([], {})
    conductor.flavor_delete(CONTEXT, "1")
    ((event, data),) = sent(db)
    assert (event, data["flavorid"], data["description"]) == ("flavor.delete", "1", "new")


def test_keypair_events(db: Database, conductor: ConductorRPC) -> None:
    keypair = objects.KeyPair(user_id="u1", name="one", public_key="ssh-rsa x", fingerprint="a:b", type="ssh")
    conductor.keypair_create(CONTEXT, keypair)
    conductor.keypair_delete(CONTEXT, "u1", "one")
    found = sent(db)
    assert [event for event, _ in found] == [
        "keypair.create.start",
        "keypair.create.end",
        "keypair.delete.start",
        "keypair.delete.end",
    ]
    assert {(data["name"], data["fingerprint"]) for _, data in found} == {("one", "a:b")}


def test_aggregate_events(db: Database, conductor: ConductorRPC, conf: cfg.ConfigOpts) -> None:
    db.write(hosts.record, conf, make.report())
    made = conductor.aggregate_create(CONTEXT, "one", "z1")
    start, end = sent(db)
    assert start == (
        "aggregate.create.start",
        {"id": None, "uuid": None, "name": "one", "hosts": None, "metadata": {"availability_zone": "z1"}},
    )
    assert (end[0], end[1]["uuid"], end[1]["hosts"]) == ("aggregate.create.end", made.uuid, [])
    conductor.aggregate_add_host(CONTEXT, made.uuid, "h1")
    conductor.aggregate_set_metadata(CONTEXT, made.uuid, {"a": "b"})
    conductor.aggregate_update(CONTEXT, made.uuid, {"name": "two"})
    conductor.aggregate_remove_host(CONTEXT, made.uuid, "h1")
    conductor.aggregate_delete(CONTEXT, made.uuid)
    found = sent(db)
    names = ("add_host", "update_metadata", "update_prop", "remove_host", "delete")
    assert [event for event, _ in found] == [
        f"aggregate.{name}.{phase}" for name in names for phase in ("start", "end")
    ]
    assert [data["hosts"] for _, data in found] == [[], *[["h1"]] * 6, [], [], []]
    assert [data["name"] for _, data in found] == [*["one"] * 5, *["two"] * 5]
    assert ("a" in found[2][1]["metadata"], found[3][1]["metadata"]["a"]) == (False, "b")


def test_server_group_events(db: Database, conductor: ConductorRPC) -> None:
    group = objects.ServerGroup(name="one", policy="anti-affinity", rules={"max_server_per_host": 3})
    made = conductor.server_group_create(CONTEXT, group)
    conductor.server_group_delete(CONTEXT, made.id)
    found = sent(db)
    assert [event for event, _ in found] == ["server_group.create", "server_group.delete"]
    for _, data in found:
        assert (data["uuid"], data["policies"], data["policy"]) == (made.id, ["anti-affinity"], "anti-affinity")
        assert data["rules"] == {"max_server_per_host": "3"}


def test_service_events(db: Database, conductor: ConductorRPC, conf: cfg.ConfigOpts) -> None:
    db.write(hosts.record, conf, make.report())
    (service,) = conductor.service_list(CONTEXT, None, None)
    conductor.service_update(CONTEXT, service.uuid, {"disabled": True, "disabled_reason": "repair"})
    conductor.service_delete(CONTEXT, service.uuid)
    (update, updated), (delete, deleted) = sent(db)
    assert (update, delete) == ("service.update", "service.delete")
    assert updated == deleted
    assert (updated["uuid"], updated["disabled"], updated["disabled_reason"]) == (service.uuid, True, "repair")


def test_refused_change_has_no_event(db: Database, conductor: ConductorRPC) -> None:
    with pytest.raises(exceptions.FlavorNotFound):
        conductor.flavor_delete(CONTEXT, "nobody")
    assert sent(db) == []


def test_conductor_without_channels_collects_nothing(manager: ConductorManager, conductor: ConductorRPC) -> None:
    conductor.flavor_create(CONTEXT, make.flavor())
    assert sent(manager.db) == []


def test_every_noted_method_exists() -> None:
    assert [name for name in NOTED if not hasattr(ConductorRPC, name)] == []
