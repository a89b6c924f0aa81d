"""Report of devstack/tempest.sh on Tempest's results."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.deployment.scripts import load


@pytest.fixture(scope="module")
def script() -> Any:
    return load("tempest")


@pytest.mark.parametrize(
    ("test", "cause", "refused", "need"),
    [
        (
            "a",
            "Details: A (the server action rebuild) is not supported by this cloud.",
            "",
            "later: the action rebuild",
        ),
        ("a", "Resize not available.", "", "two compute hosts"),
        ("a", "Object not found", "404 POST /v2.1/os-security-groups", None),
        ("VolumeMultiAttach.a", "BadRequest", "400 POST /v2.1/servers/ID/os-volume_attachments", None),
        ("a", "AssertionError: 1 != 2", "", None),
        ("a", "Got a server fault", "500 GET /v2.1/servers", None),
    ],
)
def test_needs(script: Any, test: str, cause: str, refused: str, need: str | None) -> None:
    assert script.need_of(script.Result(test, "failed", cause, refused)) == need


def test_the_refused_request_is_the_last(script: Any) -> None:
    class Detail:
        def as_text(self) -> str:
            return (
                "Request (A:b): 404 GET http://h:1/v2.1/servers/x 0.1s\n"
                "Request (A:b): 501 POST http://h:1/v2.1/servers/y/action 0.1s\n"
                "Request (A:_run_cleanups): 204 DELETE http://h:1/v2.1/servers/y 0.1s\n"
            )

    assert script.refused_in({"pythonlogging:''": Detail()}) == "501 POST /v2.1/servers/y/action"


def test_failures_of_one_cause_are_one_row(script: Any) -> None:
    ids = ("11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222")
    found = [script.Result(f"t{id[0]}", "failed", f"no server {id}", f"404 GET /servers/{id}") for id in ids]
    assert script.grouped(found, "failed") == [("other", 2, "no server ID (404 GET /servers/ID)", "`t1`, `t2`")]
    assert script.needs(found) == [("other", 2, 0)]
