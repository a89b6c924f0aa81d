"""Moves of servers, in the form of each version."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from nova_lite.objects import ServerMigration
from tests.support.api_client import ADMIN, Client, fault

TIME = datetime.datetime(2026, 11, 21, 8, 20, 32, 425308)


def migration(uuid: str, **values: Any) -> ServerMigration:
    fields: dict[str, Any] = {
        "id": 7,
        "uuid": "u7",
        "instance_uuid": uuid,
        "migration_type": "live-migration",
        "status": "running",
        "source_compute": "a",
        "source_node": "a",
        "dest_compute": "b",
        "dest_node": "b",
        "dest_host": "10.0.0.2",
        "old_flavor_id": 1,
        "new_flavor_id": 2,
        "created_at": TIME,
        "user_id": "u",
        "project_id": "p",
    }
    return ServerMigration(**fields | values)


SHOWN = {"created_at", "dest_compute", "dest_host", "dest_node", "id", "source_compute", "source_node", "status"}
LISTED = SHOWN | {"updated_at", "instance_uuid", "new_instance_type_id", "old_instance_type_id"}
OWNERS = {"user_id", "project_id"}


@pytest.mark.parametrize(
    ("version", "keys"),
    [
        ("2.1", LISTED),
        ("2.23", LISTED | {"migration_type", "links"}),
        ("2.59", LISTED | {"migration_type", "links", "uuid"}),
        ("2.80", LISTED | {"migration_type", "links", "uuid"} | OWNERS),
    ],
)
def test_migrations_are_listed(api: Client, version: str, keys: set[str]) -> None:
    uuid = api.conductor.add().uuid
    api.conductor.script("migration_list", [migration(uuid)])
    (shown,) = api.json("GET", "/os-migrations", version=version, token=ADMIN)["migrations"]
    assert set(shown) == keys
    assert shown["created_at"] == "2026-11-21T08:20:32.425308"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, None),
        ({"migration_type": "resize"}, "Migration 7 for server {uuid} is not live-migration."),
        ({"status": "completed"}, "Live migration 7 for server {uuid} is not in progress."),
    ],
)
def test_migration_of_a_server_is_shown(api: Client, values: dict[str, str], said: str | None) -> None:
    uuid = api.conductor.add().uuid
    stored = migration(uuid, progress={"memory_total_bytes": 5}, **values)
    api.conductor.script("migration_get", stored)
    path = f"/servers/{uuid}/migrations/7"
    if said is None:
        shown = api.json("GET", path, version="2.23", token=ADMIN)["migration"]
        assert (shown["server_uuid"], shown["memory_total_bytes"], shown["disk_total_bytes"]) == (uuid, 5, None)
    else:
        assert fault(api("GET", path, version="2.23", token=ADMIN), "itemNotFound", 404) == said.format(uuid=uuid)


@pytest.mark.parametrize("name", ["8", "x", "9" * 30])
def test_unknown_migration_is_404(api: Client, name: str) -> None:
    uuid = api.conductor.add().uuid
    fault(api("GET", f"/servers/{uuid}/migrations/{name}", version="2.23", token=ADMIN), "itemNotFound", 404)
