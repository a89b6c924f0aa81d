"""Resources that Nova has removed."""

from __future__ import annotations

import pytest

from nova_lite_conformance.not_served import GONE_ACTIONS, GONE_ROUTES
from tests.support.api_client import Client, fault


@pytest.mark.parametrize("path", GONE_ROUTES)
@pytest.mark.parametrize("version", ["2.1", "2.96"])
def test_removed_resources_are_410(api: Client, path: str, version: str) -> None:
    for verb in GONE_ROUTES[path].split():
        response = api(verb, path.replace("{", "").replace("}", ""), version=version)
        message = fault(response, "computeFault", 410)
        assert message == "This resource is no longer available. No forwarding address is given."
    assert api.conductor.calls == []


@pytest.mark.parametrize("action", GONE_ACTIONS)
def test_removed_actions_are_410(api: Client, action: str) -> None:
    fault(api("POST", "/servers/x/action", {action: None}), "computeFault", 410)
