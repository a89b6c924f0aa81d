"""The documents of the API say what is served, and nothing else."""

from __future__ import annotations

from nova_lite.api import microversions, reference, router
from tests.unit.api.conftest import ROOT


def test_the_reference_is_up_to_date() -> None:
    """If not: ``nova-lite-manage api reference > docs/api-reference.md``."""
    assert (ROOT / "docs/api-reference.md").read_text() == reference.markdown()


def test_the_reference_names_every_route_and_action() -> None:
    text = reference.markdown()
    for extension in router.extension_classes():
        for route in extension.routes:
            action = f" `{route.action}`" if route.action else ""
            assert f"| `{route.method} {route.path}`{action} |" in text


def test_the_announced_maximum() -> None:
    assert f"**{microversions.MINIMUM} to {microversions.MAXIMUM}**" in (ROOT / "docs/api.md").read_text()
