"""The documents of the API list exactly the served routes."""

from __future__ import annotations

from nova_lite import operations
from nova_lite.api.http import microversions, operations_page, reference, router
from tests.support.api_client import ROOT


def test_reference_page_is_up_to_date() -> None:
    """A failure means: run ``tools/pages``."""
    assert (ROOT / "docs/reference/api.md").read_text() == reference.markdown()


def test_reference_page_names_every_route_and_action() -> None:
    text = reference.markdown()
    for extension in router.extension_classes():
        for route in extension.routes:
            action = f" `{route.action}`" if route.action else ""
            assert f"| `{route.method} {route.path}`{action} |" in text


def test_documented_maximum_version_is_the_announced_one() -> None:
    assert (
        f"**{microversions.MINIMUM} to {microversions.MAXIMUM}**"
        in (ROOT / "docs/reference/api-behaviour.md").read_text()
    )


def test_operations_page_is_up_to_date() -> None:
    """A failure means: run ``tools/pages``."""
    head, mark, made = (ROOT / "docs/reference/operations.md").read_text().partition(operations_page.MARK)
    assert mark + made == operations_page.page()
    assert head.strip()


def test_operations_page_has_every_operation_and_step() -> None:
    sections = operations_page.page().split("\n## ")
    for row in operations.OPERATIONS.values():
        for item in (row, *(variant for _, _, variant in row.variants)):
            found = [text for text in sections if text.split(" ")[0].split("\n")[0] == row.kind]
            assert any(all(f"{step.name} |" in text for step in item.all_steps()) for text in found)
