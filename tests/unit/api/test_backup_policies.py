"""``/os-backup-policies`` and ``/os-server-backups``."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
import sqlalchemy as sa

from nova_lite.db.core import models
from tests.support import make
from tests.support.api_client import ADMIN, STRANGER, Client, fault

PATH = "/os-backup-policies"
BACKUPS = "/os-server-backups"
READER = "rita:demo:reader"
POLICY: dict[str, Any] = {
    "name": "nightly",
    "schedule": {"every": "week", "minute": 30, "hour": 2, "weekday": "sunday"},
    "retention": {"daily": 7, "weekly": 4},
    "window": {"not_before": "01:00", "not_after": "05:00"},
    "targets": {"tags": ["db"]},
}


def create(api: Client, status: int = 201, token: str | None = None, **changes: Any) -> Any:
    options = {} if token is None else {"token": token}
    return api.json("POST", PATH, {"backup_policy": POLICY | changes}, status=status, **options)["backup_policy"]


def with_server(api: Client, **values: Any) -> str:
    """Write a server of the caller's project into the conductor's database."""
    return str(api.conductor.db.write(lambda uow: make.instance(uow, project_id="demo", launched_at=uow.now, **values)))


def test_policy_is_created_shown_changed_and_deleted(api: Client) -> None:
    created = create(api)
    assert {name: created[name] for name in POLICY if name != "targets"} == {
        **{name: POLICY[name] for name in POLICY if name not in ("targets", "retention")},
        "retention": {"hourly": 0, "daily": 7, "weekly": 4},
    }
    assert created["targets"] == {"servers": [], "tags": ["db"], "all": False}
    assert created["volumes"] is False, "the engine makes images of root disks"
    assert (created["project_id"], created["user_id"], created["enabled"]) == ("demo", "alice", True)
    next_run = datetime.datetime.fromisoformat(created["next_run_at"])
    assert (next_run.weekday(), next_run.hour, next_run.minute) == (6, 2, 30)
    one = f"{PATH}/{created['id']}"
    assert api.json("GET", one) == {"backup_policy": created}
    assert api.json("GET", PATH)["backup_policies"] == [created]
    changes = {"schedule": {"every": "hour"}, "window": {}, "targets": {"all": True}, "enabled": False}
    changed = api.json("PUT", one, {"backup_policy": changes})["backup_policy"]
    assert (changed["schedule"], changed["enabled"], changed["next_run_at"]) == (
        {"every": "hour", "minute": 0},
        False,
        None,
    )
    assert changed["window"] == {"not_before": None, "not_after": None}
    assert (
        "without attached volumes"
        in api("PUT", one, {"backup_policy": {"volumes": True}}).json["badRequest"]["message"]
    )
    shown = {"backup_policy": {name: changed[name] for name in POLICY}}
    assert api.json("PUT", one, shown)["backup_policy"]["window"] == changed["window"]
    assert (changed["targets"]["all"], changed["targets"]["tags"], changed["name"]) == (True, [], "nightly")
    assert api("DELETE", one).status_code == 204
    fault(api("GET", one), "itemNotFound", 404)
    fault(api("DELETE", one), "itemNotFound", 404)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"schedule": {"every": "month"}}, "'month' is not one of ['hour', 'day', 'week']"),
        ({"schedule": {}}, "every"),
        ({"schedule": {"every": "day", "hour": 24}}, "hour"),
        ({"schedule": {"every": "day", "minute": "5"}}, "minute"),
        ({"schedule": {"every": "day", "weekday": "monday", "hour": 2}, "window": {"not_after": "01:00"}}, "window"),
        ({"schedule": {"every": "day", "weekday": "friday"}, "window": {}}, "weekly"),
        ({"retention": {}}, "keeps no backup"),
        ({"retention": {"daily": 1001}}, "daily"),
        ({"window": {"not_before": "1:00"}}, "not_before"),
        ({"window": {"not_before": "24:00"}}, "not_before"),
        ({"targets": {}}, "no target"),
        ({"targets": {"all": True, "tags": ["a"]}}, "leave out"),
        ({"targets": {"tags": ["a,b"]}}, "tags"),
        ({"targets": {"servers": ["x"]}}, "servers"),
        ({"targets": {"servers": ["9d3a4a5c-7e1c-4a86-8bb2-0c1a3c1b9f01"]}}, "has no server 9d3a4a5c"),
        ({"name": ""}, "name"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_malformed_policy_is_refused(api: Client, changes: dict[str, Any], words: str) -> None:
    response = api("POST", PATH, {"backup_policy": POLICY | changes})
    assert words in fault(response, "badRequest", 400)
    assert api.json("GET", PATH)["backup_policies"] == []


def test_policies_belong_to_their_project(api: Client) -> None:
    created = create(api)
    one = f"{PATH}/{created['id']}"
    for method, path, body in (
        ("GET", one, None),
        ("PUT", one, {"backup_policy": {"name": "x"}}),
        ("DELETE", one, None),
        ("GET", one + "/status", None),
        ("POST", one + "/run", None),
    ):
        fault(api(method, path, body, token=STRANGER), "itemNotFound", 404)
    assert api.json("GET", PATH + "?all_projects=1", token=STRANGER)["backup_policies"] == []
    assert api.json("GET", PATH, token="root:admin:admin")["backup_policies"] == []
    listed = api.json("GET", PATH + "?all_projects=1", token=ADMIN)["backup_policies"]
    assert [policy["id"] for policy in listed] == [created["id"]]


def test_policy_runs_now_and_its_status_names_the_servers(api: Client) -> None:
    created = create(api)
    one, uuid = f"{PATH}/{created['id']}", with_server(api, tag_names=["db"])
    with_server(api)
    (planned,) = api.json("POST", one + "/run", status=202)["server_backups"]
    assert (planned["server_id"], planned["policy_id"], planned["status"]) == (uuid, created["id"], "pending")
    assert (planned["image_id"], planned["size"]) == (None, 0)
    assert api.json("GET", f"{BACKUPS}/{planned['id']}") == {"server_backup": planned}
    assert api.json("GET", f"{BACKUPS}?server_id={uuid}&status=pending")["server_backups"] == [planned]
    assert api.json("GET", f"{BACKUPS}?status=complete")["server_backups"] == []
    status = api.json("GET", one + "/status")["backup_policy_status"]
    assert (status["met"], status["required_since"], status["id"]) == (True, None, created["id"])
    assert [(server["server_id"], server["last_backup"]) for server in status["servers"]] == [(uuid, None)]
    for method, path in (("GET", f"{BACKUPS}/{planned['id']}"), ("DELETE", f"{BACKUPS}/{planned['id']}")):
        fault(api(method, path, token=STRANGER), "itemNotFound", 404)
    assert api("DELETE", f"{BACKUPS}/{planned['id']}").status_code == 204


def test_running_backup_cannot_be_deleted(api: Client) -> None:
    created = create(api)
    with_server(api, tag_names=["db"])
    (planned,) = api.json("POST", f"{PATH}/{created['id']}/run", status=202)["server_backups"]
    api.conductor.db.write(lambda uow: uow.change(sa.update(models.ServerBackup).values(status="running")))
    assert "is being made" in fault(api("DELETE", f"{BACKUPS}/{planned['id']}"), "conflictingRequest", 409)


def test_lists_have_pages(api: Client) -> None:
    ids = [create(api)["id"] for _ in range(3)]
    page = api.json("GET", PATH + "?limit=2")
    assert [policy["id"] for policy in page["backup_policies"]] == ids[:2]
    (link,) = page["backup_policies_links"]
    rest = api.json("GET", link["href"].partition("/v2.1")[2])
    assert [policy["id"] for policy in rest["backup_policies"]] == ids[2:]
    fault(api("GET", PATH + "?marker=none"), "badRequest", 400)
    fault(api("GET", BACKUPS + "?marker=none"), "badRequest", 400)
    fault(api("GET", BACKUPS + "?status=good"), "badRequest", 400)


def test_project_has_at_most_twenty_policies(api: Client) -> None:
    for _ in range(20):
        create(api)
    fault(api("POST", PATH, {"backup_policy": POLICY}), "forbidden", 403)


def test_lock_of_a_backup_is_set_lengthened_and_refused(api: Client) -> None:
    created = create(api, locked_days=0)
    assert created["locked_days"] == 0
    refused = fault(api("PUT", f"{PATH}/{created['id']}", {"backup_policy": {"locked_days": 7}}), "badRequest", 400)
    assert "engine = restic" in refused
    with_server(api, tag_names=["db"])
    (planned,) = api.json("POST", f"{PATH}/{created['id']}/run", status=202)["server_backups"]
    assert planned["locked_until"] is None
    lock = f"{BACKUPS}/{planned['id']}/lock"
    until = f"{datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=9):%Y-%m-%dT%H:%M:%SZ}"
    assert "it is pending" in fault(api("PUT", lock, {"lock": {"until": until}}), "conflictingRequest", 409)
    values = {"status": "complete", "engine": "restic"}
    api.conductor.db.write(lambda uow: uow.change(sa.update(models.ServerBackup).values(**values)))
    assert api.json("PUT", lock, {"lock": {"until": until}})["server_backup"]["locked_until"] == until
    for token in ({}, {"token": ADMIN}):
        message = fault(api("DELETE", f"{BACKUPS}/{planned['id']}", **token), "conflictingRequest", 409)
        assert f"is locked until {until}" in message
    fault(api("PUT", lock, {"lock": {"until": "tomorrow"}}), "badRequest", 400)
    fault(api("PUT", lock, {"lock": {"until": until}}, token=STRANGER), "itemNotFound", 404)
