"""An action that only has an operation accepted comes from the operation's row, and from nowhere else."""

from __future__ import annotations

import json
import subprocess
import sys

from nova_lite.operations import OPERATIONS
from tests.unit.api.conftest import ADMIN, Client

#: In a process of its own: a row is added before anything is made of the rows.
CODE = """
import json
from nova_lite import operations, states
step = operations.OnHost("perform", "trigger_crash_dump")
operations.OPERATIONS["dump"] = operations.Operation(
    "dump", allowed=(states.ACTIVE,), steps=(step,), action="trigger_crash_dump",
    rule="os_compute_api:os-crash:trigger", admin=True, summary="Crash a server",
)
from nova_lite import policies
from nova_lite.api import inventory
found = [entry for entry in inventory.entries() if entry.action == "trigger_crash_dump"]
rule = next(rule for rule in policies.list_rules() if rule.name == "os_compute_api:os-crash:trigger")
print(json.dumps({
    "policies": [entry.declared.policy for entry in found],
    "check": rule.check_str,
    "description": rule.description,
    "aliases": [alias for row in inventory.router.extension_classes() for alias in row.includes if alias == "os-crash"],
}))
"""


def test_a_row_is_all_that_an_action_needs() -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", CODE], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "policies": ["os_compute_api:os-crash:trigger"],
        "check": "rule:context_is_admin",
        "description": "Crash a server (trigger_crash_dump)",
        "aliases": ["os-crash"],
    }


def test_every_row_with_an_action_is_accepted_and_sent_on(api: Client) -> None:
    bodies = {"reboot": {"type": "Hard"}}
    for row in OPERATIONS.values():
        if row.action is None:
            continue
        instance = api.conductor.add()
        response = api("POST", f"/servers/{instance.uuid}/action", {row.action: bodies.get(row.action)}, token=ADMIN)
        assert (response.status_code, response.body) == (202, b"")
        assert api.asked("accept_action")[:2] == (instance.uuid, row.kind)


def test_the_body_of_a_reboot_is_its_payload(api: Client) -> None:
    instance = api.conductor.add()
    assert api("POST", f"/servers/{instance.uuid}/action", {"reboot": {"type": "hard"}}).status_code == 202
    assert api.asked("accept_action") == (instance.uuid, "reboot", {"reboot_type": "HARD"})
