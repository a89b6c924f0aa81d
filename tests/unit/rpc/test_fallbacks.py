"""Clients whose service is older than they are: declared fallbacks replace the newer calls."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated, Protocol

import pytest

from nova_lite import rpc
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from tests.support.rpc_conf import make_conf

CONTEXT = RequestContext(user_id="u", project_id="p1", request_id="req-1")


@rpc.service("scheduler", version="2.0")
class OldRPC(Protocol):
    def get(self, context: RequestContext, name: str) -> str: ...


class Old:
    def get(self, context: RequestContext, name: str) -> str:
        if name == "missing":
            raise exceptions.InstanceNotFound(instance_id=name)
        if name == "away":
            raise exceptions.MessagingUnavailable(what="get")
        return name.upper()


@rpc.service("scheduler", version="2.1")
class NewRPC(Protocol):
    def get(
        self, context: RequestContext, name: str, size: Annotated[int, rpc.Since("2.1", optional=True)] = 0
    ) -> str: ...

    @rpc.method(since="2.1", fallback=rpc.one_by_one("names", lambda client, context, name: client.get(context, name)))
    def get_all(self, context: RequestContext, names: list[str]) -> list[str]: ...

    @rpc.method(since="2.1", fallback=rpc.one_by_one("names", lambda client, context, name: client.get(context, name)))
    def touch_all(self, context: RequestContext, names: list[str]) -> None: ...

    @rpc.method(since="2.1", fallback=rpc.result(True))
    def is_open(self, context: RequestContext) -> bool: ...

    @rpc.method(since="2.1")
    def ask(self, context: RequestContext) -> bool: ...


@pytest.fixture
def client(tmp_path: Path) -> NewRPC:
    """Return a client at version 1.1 of a server at version 1.0."""
    transport = rpc.InProcess(make_conf(tmp_path))
    transport.serve(rpc.Endpoint(OldRPC, Old()))
    return rpc.proxy(NewRPC, transport)


def test_batch_for_an_older_server_is_sent_one_by_one(client: NewRPC) -> None:
    assert client.get_all(CONTEXT, ["a", "b"]) == ["A", "B"]
    assert client.get_all(CONTEXT, names=[]) == []


def test_batch_without_a_result_returns_none(client: NewRPC) -> None:
    assert client.touch_all(CONTEXT, ["a"]) is None  # type: ignore[func-returns-value]


def test_batch_raises_an_error_of_an_item_after_all_were_sent(client: NewRPC) -> None:
    with pytest.raises(exceptions.InstanceNotFound):
        client.get_all(CONTEXT, ["missing", "b"])


def test_batch_raises_the_error_that_callers_retry_first(client: NewRPC) -> None:
    with pytest.raises(exceptions.MessagingUnavailable):
        client.get_all(CONTEXT, ["missing", "away"])


def test_result_replaces_a_call_of_an_older_server(client: NewRPC) -> None:
    assert client.is_open(CONTEXT) is True


def test_optional_argument_is_not_sent_to_an_older_server(client: NewRPC) -> None:
    assert client.get(CONTEXT, "a", size=3) == "A"


def test_method_without_a_fallback_raises(client: NewRPC) -> None:
    with pytest.raises(exceptions.ServiceTooOld):
        client.ask(CONTEXT)


def test_fallback_is_logged_once(client: NewRPC, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(3):
        client.is_open(CONTEXT)
    assert [record.message for record in caplog.records if "older server" in record.message] == [
        "Falling back for an older server: The scheduler service is too old for is_open: it speaks 2.0, "
        "2.1 is needed; upgrade it."
    ]
