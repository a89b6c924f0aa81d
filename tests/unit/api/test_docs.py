"""The documents of the API say what is served, and nothing else."""

from __future__ import annotations

from nova_lite.api import microversions, reference, router, wsgi
from tests.unit.api.conftest import ROOT


def test_the_reference_is_up_to_date() -> None:
    """If not: ``nova-lite-manage api reference > docs/api-reference.md``."""
    assert (ROOT / "docs/api-reference.md").read_text() == reference.markdown()


def test_the_reference_names_every_route_and_action() -> None:
    text = reference.markdown()
    for extension in router.extension_classes():
        for route in extension.routes:
            assert f"| `{route.method} {route.path}` |" in text
        for action in extension.actions:
            assert f"| `POST /{action.resource}/{{id}}/action` `{action.name}` |" in text


def test_every_handler_declares_what_it_does() -> None:
    lacking = [
        f"{extension.__name__}.{row.handler}"
        for extension in router.extension_classes()
        for row in (*extension.routes, *extension.actions)
        if wsgi.declaration_of(getattr(extension, row.handler)) is None
    ]
    assert not lacking, "these handlers need @declares(...)"


def test_the_announced_maximum() -> None:
    assert f"**{microversions.MINIMUM} to {microversions.MAXIMUM}**" in (ROOT / "docs/api.md").read_text()
