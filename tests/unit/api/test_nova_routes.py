"""Every route of Nova is served here, or refused in JSON with a reason."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from nova_lite.api.http import inventory, microversions, router
from tests.support.api_client import ADMIN, ROOT, Client, fault, make_client, make_conf

FACTS = ROOT / "tests/unit/api/nova_routes.txt"
MAXIMUM = microversions.MAXIMUM.minor


class Row(NamedTuple):
    """A route of Nova. ``since`` and ``until`` are minor versions."""

    method: str
    path: str
    action: str | None
    since: int
    until: int
    gone: bool


def _rows() -> Iterator[Row]:
    for line in FACTS.read_text().splitlines():
        if line.startswith("#"):
            continue
        words = line.split()
        methods = [word for word in words if word.isupper()]
        path, *rest = words[len(methods) :]
        versions = next((word for word in rest if re.fullmatch(r"2\.\d+-(2\.\d+)?", word)), "2.1-")
        first, _, last = versions.replace("2.", "").partition("-")
        action = next((word for word in rest if word not in (versions, "gone")), None)
        for method in methods:
            yield Row(method, path, action, int(first), min(int(last or MAXIMUM), MAXIMUM), "gone" in rest)


ROWS = list(_rows())


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Client:
    """Return one client for all tests, which look at nothing but responses."""
    return make_client(make_conf(tmp_path_factory.mktemp("api")))


def test_nova_route_list_is_complete() -> None:
    assert len(ROWS) > 220
    assert len({row.path for row in ROWS}) > 130


@pytest.mark.parametrize("row", ROWS, ids=lambda row: " ".join(filter(None, row[:3])))
def test_nova_route_is_served_or_refused_with_a_reason(api: Client, row: Row) -> None:
    path = "" if row.path == "/" else re.sub(r"{\w+}", "x", row.path)
    body = {row.action: None} if row.action else {}
    for minor in {row.since, row.until} if row.since <= MAXIMUM else ():
        response = api(
            row.method,
            path + ("/" if not path else ""),
            body if row.method in ("POST", "PUT") else None,
            version=f"2.{minor}",
            token=ADMIN,
        )
        assert response.content_type == "application/json" or not response.body
        assert "<" not in response.text
        if row.gone:
            fault(response, "computeFault", 410)
            continue
        assert response.status_code not in (405, 406, 410, 500), response.text
        if response.status_code >= 400:
            sentence = next(iter(response.json.values()))["message"]
            assert sentence != "The resource could not be found.", f"not known: {row} at 2.{minor}"
            assert not sentence.startswith("There is no such action")
        if response.status_code == 501:
            assert re.search(r"is not supported by this cloud\. \w.*\.$", sentence), sentence


@pytest.mark.parametrize("path", ["/nosuch", "/servers/x/nosuch", "/other/servers", "/%00", "/<b>"])
@pytest.mark.parametrize("accept", ["text/html", "*/*", "application/json"])
def test_responses_are_never_html(api: Client, path: str, accept: str) -> None:
    response = api("GET", path, headers={"Accept": accept})
    assert (response.status_code, response.content_type) == (404, "application/json")
    assert sorted(response.json) == ["code", "message", "title"]


def test_paths_have_unique_variable_names() -> None:
    """The router uses the first match, which knows only its own verbs."""
    paths = {row.path for made in router.extension_classes() for row in made.routes}
    shapes = [re.sub(r"{\w+}", "{}", path) for path in paths]
    assert sorted(shape for shape in shapes if shapes.count(shape) > 1) == []


def test_route_is_not_both_served_and_refused() -> None:
    served = [row for row in inventory.route_entries() if row.served]
    for refused in (row for row in inventory.route_entries() if not row.served):
        for row in served:
            same = (row.method, row.path, row.action) == (refused.method, refused.path, refused.action)
            apart = (row.until or MAXIMUM) < refused.since or (refused.until or MAXIMUM) < row.since
            assert not same or apart, f"{row.method} {row.path} {row.action}: take it out of unserved.py"
