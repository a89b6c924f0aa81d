"""Resources that there were once."""

from __future__ import annotations

import pytest

from nova_lite.api.compute.gone import ACTIONS, ROUTES
from tests.unit.api.conftest import ROOT, Client, fault


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("version", ["2.1", "2.96"])
def test_gone(api: Client, path: str, version: str) -> None:
    for verb in ROUTES[path].split():
        response = api(verb, path.replace("{", "").replace("}", ""), version=version)
        message = fault(response, "computeFault", 410)
        assert message == "This resource is no longer available. No forwarding address is given."
    assert api.conductor.asked == []


@pytest.mark.parametrize("action", ACTIONS)
def test_actions_that_are_gone(api: Client, action: str) -> None:
    fault(api("POST", "/servers/x/action", {action: None}), "computeFault", 410)


#: `docs/api.md` names them.
UNKNOWN = (
    "GET /servers/{id}/os-volume_attachments/{volume_id}",
    "GET /servers/{id}/migrations/{migration_id}",
    "DELETE /servers/{id}/os-interface/{port_id}",
    "POST /os-assisted-volume-snapshots",
    "GET /os-console-auth-tokens/{token}",
    "GET /os-baremetal-nodes",
    "DELETE /images/{id}",
)


@pytest.mark.parametrize("row", UNKNOWN)
def test_what_is_not_known_at_all(api: Client, row: str) -> None:
    method, _, path = row.partition(" ")
    assert path in (ROOT / "docs/api.md").read_text()
    assert api.json(method, path.replace("{", "").replace("}", ""), status=404)["title"] == "Not Found"
