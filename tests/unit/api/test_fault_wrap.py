"""What is answered well is not touched; what is not becomes a fault."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from nova_lite.api.middleware.fault_wrap import FaultWrap
from nova_lite.base import exceptions

PLAIN = [("Content-Type", "text/plain; charset=UTF-8")]


class Body:
    """One that has to be closed."""

    def __init__(self) -> None:
        self.closed = False

    def __iter__(self) -> Iterator[bytes]:
        yield b"whole"

    def close(self) -> None:
        self.closed = True


def called(app: Any) -> tuple[str, dict[str, str], Any]:
    """Status, headers, and what is to be read."""
    told: list[Any] = []
    answer = FaultWrap(app)({"REQUEST_METHOD": "GET"}, lambda *arguments: told.append(arguments))
    ((status, headers, *_),) = told
    return status, dict(headers), answer


def test_successful_response_is_passed_on_unchanged() -> None:
    body = Body()

    def app(environ: Any, start_response: Any) -> Body:
        start_response("200 OK", PLAIN)
        return body

    status, headers, answer = called(app)
    assert (status, headers) == ("200 OK", dict(PLAIN))
    assert answer is body  # the server closes it


def test_written_data_precedes_returned_data() -> None:
    def app(environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", PLAIN)(b"one ")
        return [b"two"]

    assert b"".join(called(app)[2]) == b"one two"


def test_application_may_start_its_response_with_its_first_bytes() -> None:
    def app(environ: Any, start_response: Any) -> Iterator[bytes]:
        start_response("200 OK", PLAIN)
        yield b"late"

    status, _, answer = called(app)
    assert (status, b"".join(answer)) == ("200 OK", b"late")


@pytest.mark.parametrize("begun", [True, False])
def test_error_after_start_of_response_becomes_a_fault(begun: bool) -> None:
    def app(environ: Any, start_response: Any) -> Any:
        if begun:
            start_response("200 OK", PLAIN)
        raise exceptions.Conflict("It is locked.")

    status, headers, answer = called(app)
    assert (status, headers["Content-Type"]) == ("409 Conflict", "application/json")
    assert json.loads(b"".join(answer))["conflictingRequest"]["message"] == "It is locked."


@pytest.mark.parametrize(
    ("kind", "told"), [("text/plain; charset=UTF-8", "Request is too large."), ("application/json; x=y", "ours")]
)
def test_plain_text_413_becomes_a_json_fault(kind: str, told: str) -> None:
    bodies: list[Body] = []

    class Ours(Body):
        def __iter__(self) -> Iterator[bytes]:
            yield json.dumps({"overLimit": {"message": "ours"}}).encode()

    def app(environ: Any, start_response: Any) -> Body:
        start_response("413 Request Entity Too Large", [("content-type", kind)])
        bodies.append(Ours())
        return bodies[0]

    status, _, answer = called(app)
    assert status.startswith("413 ")
    assert json.loads(b"".join(answer))["overLimit"]["message"] == told
    assert bodies[0].closed is (told != "ours")


def test_application_without_response_becomes_a_500_fault(caplog: pytest.LogCaptureFixture) -> None:
    assert called(lambda environ, start_response: [])[0].startswith("500 ")
