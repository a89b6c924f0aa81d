"""The fault filter passes successful responses on, and turns errors into faults."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from nova_lite.api.middleware.fault_wrap import FaultWrap
from nova_lite.base import exceptions

PLAIN = [("Content-Type", "text/plain; charset=UTF-8")]


class Body:
    """Response body with a ``close`` method."""

    def __init__(self) -> None:
        self.closed = False

    def __iter__(self) -> Iterator[bytes]:
        yield b"whole"

    def close(self) -> None:
        self.closed = True


def called(app: Any) -> tuple[str, dict[str, str], Any]:
    """Return status, headers, and body."""
    started: list[Any] = []
    response = FaultWrap(app)({"REQUEST_METHOD": "GET"}, lambda *arguments: started.append(arguments))
    ((status, headers, *_),) = started
    return status, dict(headers), response


def test_successful_response_is_passed_on_unchanged() -> None:
    body = Body()

    def app(environ: Any, start_response: Any) -> Body:
        start_response("200 OK", PLAIN)
        return body

    status, headers, response = called(app)
    assert (status, headers) == ("200 OK", dict(PLAIN))
    assert response is body  # the server closes it


def test_written_data_precedes_returned_data() -> None:
    def app(environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", PLAIN)(b"one ")
        return [b"two"]

    assert b"".join(called(app)[2]) == b"one two"


def test_application_may_start_its_response_with_its_first_bytes() -> None:
    def app(environ: Any, start_response: Any) -> Iterator[bytes]:
        start_response("200 OK", PLAIN)
        yield b"late"

    status, _, response = called(app)
    assert (status, b"".join(response)) == ("200 OK", b"late")


@pytest.mark.parametrize("begun", [True, False])
def test_error_after_start_of_response_becomes_a_fault(begun: bool) -> None:
    def app(environ: Any, start_response: Any) -> Any:
        if begun:
            start_response("200 OK", PLAIN)
        raise exceptions.Conflict("It is locked.")

    status, headers, response = called(app)
    assert (status, headers["Content-Type"]) == ("409 Conflict", "application/json")
    assert json.loads(b"".join(response))["conflictingRequest"]["message"] == "It is locked."


@pytest.mark.parametrize(
    ("kind", "message"), [("text/plain; charset=UTF-8", "Request is too large."), ("application/json; x=y", "ours")]
)
def test_plain_text_413_becomes_a_json_fault(kind: str, message: str) -> None:
    bodies: list[Body] = []

    class Ours(Body):
        def __iter__(self) -> Iterator[bytes]:
            yield json.dumps({"overLimit": {"message": "ours"}}).encode()

    def app(environ: Any, start_response: Any) -> Body:
        start_response("413 Request Entity Too Large", [("content-type", kind)])
        bodies.append(Ours())
        return bodies[0]

    status, _, response = called(app)
    assert status.startswith("413 ")
    assert json.loads(b"".join(response))["overLimit"]["message"] == message
    assert bodies[0].closed is (message != "ours")


@pytest.mark.parametrize(
    ("status", "headers", "seconds"),
    [
        ("503 Service Unavailable", PLAIN, "2"),
        ("429 Too Many Requests", PLAIN, "60"),
        ("503 Service Unavailable", [*PLAIN, ("retry-after", "9")], None),
        ("200 OK", PLAIN, None),
    ],
)
def test_response_that_asks_to_wait_says_how_long(
    status: str, headers: list[tuple[str, str]], seconds: str | None
) -> None:
    def app(environ: Any, start_response: Any) -> list[bytes]:
        start_response(status, headers)
        return [b"wait"]

    assert called(app)[1].get("Retry-After") == seconds


def test_application_without_response_becomes_a_500_fault(caplog: pytest.LogCaptureFixture) -> None:
    assert called(lambda environ, start_response: [])[0].startswith("500 ")
