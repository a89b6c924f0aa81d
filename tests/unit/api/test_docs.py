"""docs/api.md names every route, and no other."""

from __future__ import annotations

import re

from nova_lite.api import microversions, router
from nova_lite.api.wsgi import Route
from tests.unit.api.conftest import ROOT

TEXT = (ROOT / "docs/api.md").read_text()


def served() -> set[str]:
    classes = router.extension_classes()
    routes: list[Route] = [route for extension in classes for route in extension.routes]
    actions = {f"POST /{action.resource}/{{id}}/action" for extension in classes for action in extension.actions}
    return {f"{route.method} {route.path}" for route in routes} | actions


def test_every_route_is_documented() -> None:
    documented = set(re.findall(r"^\| `((?:GET|PUT|POST|DELETE) /[^`]*)`", TEXT, re.MULTILINE))
    assert documented == served()


def test_every_served_action_is_documented() -> None:
    for extension in router.extension_classes():
        for action in extension.actions:
            if action.handler != "refuse_action":
                assert f"`{action.name}`" in TEXT


def test_the_announced_maximum() -> None:
    assert f"**{microversions.MINIMUM} to {microversions.MAXIMUM}**" in TEXT
