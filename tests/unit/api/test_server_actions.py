"""Actions of operations are made entirely from the operations' definitions."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from nova_lite.api.compute.server_actions import SERVED_ELSEWHERE, STATUS
from nova_lite.operations import OPERATIONS
from tests.support.api_client import ADMIN, Client

#: Runs in a separate process, which adds a definition before anything else reads the definitions.
CODE = """
import json
from nova_lite import operations
from nova_lite.operations import states
step = operations.HostStep("perform", "melt_instance")
melt = operations.Operation(
    "melt", allowed=(states.ACTIVE,), steps=(step,), action="melt",
    rule="os_compute_api:os-melt:melt", admin=True, summary="Melt a server",
)
operations.OPERATIONS = operations.OPERATIONS.extended(melt)
from nova_lite import policies
from nova_lite.api.http import inventory
found = [entry for entry in inventory.route_entries() if entry.action == "melt"]
rule = next(rule for rule in policies.list_rules() if rule.name == "os_compute_api:os-melt:melt")
print(json.dumps({
    "policies": [entry.declared.policy for entry in found],
    "check": rule.check_str,
    "description": rule.description,
}))
"""


def test_operation_definition_is_all_that_an_action_needs() -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", CODE], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "policies": ["os_compute_api:os-melt:melt"],
        "check": "rule:context_is_admin",
        "description": "Melt a server (melt)",
    }


def test_every_operation_with_an_action_is_accepted(api: Client) -> None:
    live: dict[str, Any] = {"host": None, "block_migration": True, "disk_over_commit": False}
    bodies = {"reboot": {"type": "Hard"}, "changePassword": {"adminPass": "x"}, "os-migrateLive": live}
    bodies["resize"] = {"flavorRef": "2"}
    for row in OPERATIONS.values():
        if row.action is None or row.kind in SERVED_ELSEWHERE:
            continue
        instance = api.conductor.add()
        body = {row.action: bodies.get(row.action)}
        path = f"/servers/{instance.uuid}/action"
        if row.microversion > 1:
            assert api("POST", path, body, version=f"2.{row.microversion - 1}", token=ADMIN).status_code == 404
        response = api("POST", path, body, version=f"2.{row.microversion}", token=ADMIN)
        assert (response.status_code, response.body) == (STATUS.get(row.kind, 202), b"")
        assert api.last_call("accept_action")[:2] == (instance.uuid, row.kind)


@pytest.mark.parametrize("body", [None, {}, {"adminPass": 1}, {"adminPass": "x", "user": "y"}])
def test_change_password_requires_a_password(api: Client, body: Any) -> None:
    instance = api.conductor.add()
    assert api("POST", f"/servers/{instance.uuid}/action", {"changePassword": body}).status_code == 400


def test_reboot_body_becomes_its_payload(api: Client) -> None:
    instance = api.conductor.add()
    assert api("POST", f"/servers/{instance.uuid}/action", {"reboot": {"type": "hard"}}).status_code == 202
    assert api.last_call("accept_action") == (instance.uuid, "reboot", {"reboot_type": "HARD"})


@pytest.mark.parametrize(
    ("version", "body", "payload"),
    [
        ("2.24", {"disk_over_commit": False, "block_migration": False}, {"forced": True, "block": False}),
        ("2.25", {"block_migration": "auto"}, {"forced": True, "block": None}),
        ("2.30", {"block_migration": True}, {"forced": False, "block": True}),
        ("2.30", {"block_migration": "auto", "force": True}, {"forced": True, "block": None}),
        ("2.68", {"block_migration": "auto"}, {"forced": False, "block": None}),
    ],
)
def test_live_migration_body_becomes_its_payload(api: Client, version: str, body: Any, payload: Any) -> None:
    instance = api.conductor.add()
    request_body = {"os-migrateLive": {"host": "there", **body}}
    response = api("POST", f"/servers/{instance.uuid}/action", request_body, version=version, token=ADMIN)
    assert response.status_code == 202
    assert api.last_call("accept_action")[2] == {"host": "there", **payload}


@pytest.mark.parametrize(
    ("version", "body"),
    [
        ("2.24", {"host": None, "block_migration": "auto", "disk_over_commit": False}),
        ("2.24", {"host": None, "block_migration": True}),
        ("2.25", {"host": None, "block_migration": True, "disk_over_commit": False}),
        ("2.29", {"host": None, "block_migration": True, "force": True}),
        ("2.68", {"host": None, "block_migration": True, "force": True}),
        ("2.96", {"block_migration": "auto"}),
        ("2.96", {"host": 1, "block_migration": "auto"}),
    ],
)
def test_malformed_live_migration_is_refused(api: Client, version: str, body: Any) -> None:
    instance = api.conductor.add()
    path = f"/servers/{instance.uuid}/action"
    assert api("POST", path, {"os-migrateLive": body}, version=version, token=ADMIN).status_code == 400


def test_live_migrations_are_for_admins(api: Client) -> None:
    instance = api.conductor.add()
    body = {"os-migrateLive": {"host": None, "block_migration": "auto"}}
    assert api("POST", f"/servers/{instance.uuid}/action", body, version="2.96").status_code == 403
