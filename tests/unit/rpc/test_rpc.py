"""Typed values over a bus that only knows plain ones, between services of different versions."""

from __future__ import annotations

import datetime
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar

import pytest
from oslo_config import cfg

from nova_lite import objects, rpc
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.base.futures import ResponseFuture
from nova_lite.conf.libraries import PREFETCH
from nova_lite.rpc.transport import ContextSerializer
from tests.support.rpc_conf import FLAVOR, make_conf
from tests.support.waiting import wait_for

T = TypeVar("T")
CONTEXT = RequestContext(user_id="u", project_id="p", auth_token="secret", request_id="req-1")


@rpc.service("scheduler", version="2.2")
class NewRPC(Protocol):
    def echo_flavor(
        self, context: RequestContext, flavor: objects.Flavor, when: datetime.datetime | None = None
    ) -> list[Any]: ...

    def refuse(self, context: RequestContext) -> None: ...

    def lose_the_database(self, context: RequestContext) -> None: ...

    @rpc.method(kind=rpc.CAST)
    def tell(
        self, context: RequestContext, host: rpc.Receiver, what: str, how: Annotated[str, rpc.Since("2.1")] = "loud"
    ) -> None: ...

    @rpc.method(since="2.2")
    def ask(self, context: RequestContext, host: rpc.Receiver, timeout: rpc.Timeout = None) -> str: ...

    @rpc.method(kind=rpc.CAST, since="2.2")
    def whisper(self, context: RequestContext, host: rpc.Receiver, what: str) -> None: ...

    @rpc.method(kind=rpc.FANOUT)
    def shout(self, context: RequestContext, what: str) -> None: ...

    @rpc.method(kind=rpc.CAST)
    def order(
        self,
        context: RequestContext,
        host: rpc.Receiver,
        method: rpc.MethodName,
        ticket: int,
        version: rpc.Version = "2.0",
    ) -> None: ...


def told_later(get: Callable[[], T]) -> ResponseFuture[T]:
    """Return a future whose result another thread sets later."""
    later: ResponseFuture[T] = ResponseFuture()
    threading.Timer(0.05, later.set_result, [get]).start()
    return later


class New:
    def __init__(self) -> None:
        self.heard: list[Any] = []

    def echo_flavor(
        self, context: RequestContext, flavor: objects.Flavor, when: datetime.datetime | None = None
    ) -> list[Any]:
        assert isinstance(flavor, objects.Flavor)
        assert when is None or isinstance(when, datetime.datetime)
        return [flavor, when]

    def refuse(self, context: RequestContext) -> None:
        raise exceptions.InstanceNotFound(instance_id="i1")

    def lose_the_database(self, context: RequestContext) -> ResponseFuture[None] | None:
        def gone() -> None:
            raise ConnectionError("gone")

        return told_later(gone)

    def tell(self, context: RequestContext, what: str, how: str = "loud") -> None:
        self.heard.append((what, how))

    def ask(self, context: RequestContext) -> str | ResponseFuture[str]:
        return told_later(lambda: f"{context.user_id} {context.auth_token}")

    def whisper(self, context: RequestContext, what: str) -> None:
        self.heard.append(what)

    def shout(self, context: RequestContext, what: str) -> None:
        self.heard.append(what.upper())

    def _turn(self, context: RequestContext, ticket: int) -> None:
        self.heard.append(ticket)


@rpc.service("scheduler", version="2.0")
class OldRPC(Protocol):
    """The Protocol of an older daemon."""

    def echo_flavor(self, context: RequestContext, flavor: objects.Flavor) -> list[Any]: ...

    @rpc.method(kind=rpc.CAST)
    def tell(self, context: RequestContext, host: rpc.Receiver, what: str) -> None: ...


class Old:
    def __init__(self) -> None:
        self.heard: list[Any] = []

    def echo_flavor(self, context: RequestContext, flavor: objects.Flavor) -> list[Any]:
        return [flavor, None]

    def tell(self, context: RequestContext, what: str) -> None:
        self.heard.append(what)


def translate(error: Exception) -> Exception:
    return exceptions.DatabaseUnavailable() if isinstance(error, ConnectionError) else error


class Bus:
    """Host "new" at version 2.2 and host "old" at 2.0, over one transport or the other."""

    def __init__(self, conf: cfg.ConfigOpts, kind: str) -> None:
        self.new, self.old = New(), Old()
        endpoints = {
            "new": rpc.Endpoint(NewRPC, self.new, commands={"turn": self.new._turn}, translate=translate),
            "old": rpc.Endpoint(OldRPC, self.old),
        }
        self.servers: list[rpc.RpcServer] = []
        self.transport: Any
        if kind == "in process":
            self.transport = rpc.InProcess(conf)
            for name, endpoint in endpoints.items():
                self.transport.serve(endpoint, name)
        else:
            self.transport = rpc.Transport(conf)
            self.servers = [rpc.RpcServer(self.transport, name, endpoint) for name, endpoint in endpoints.items()]
        for server in self.servers:
            server.start()
        self.client = rpc.proxy(NewRPC, self.transport)

    def close(self) -> None:
        for server in self.servers:
            server.stop()
            server.wait()
        if self.servers:
            self.transport.cleanup()


@pytest.fixture
def conf(tmp_path: Path) -> Iterator[cfg.ConfigOpts]:
    yield make_conf(tmp_path)
    cfg.CONF.reset()


@pytest.fixture(params=["in process", "oslo.messaging"])
def bus(request: pytest.FixtureRequest, conf: cfg.ConfigOpts) -> Iterator[Bus]:
    made = Bus(conf, request.param)
    yield made
    made.close()


def heard(host: New | Old, count: int) -> list[Any]:
    """Wait until the host has received ``count`` messages, and return them."""
    wait_for(f"{count} messages", lambda: len(host.heard) >= count, 10)
    assert len(host.heard) == count
    return host.heard


# --- types


def test_arguments_and_results_are_typed_on_both_sides(bus: Bus) -> None:
    bus.client.tell(CONTEXT, "new", "hello")
    assert heard(bus.new, 1) == [("hello", "loud")]
    bus.client.order(CONTEXT, "new", "turn", ticket=7)
    assert heard(bus.new, 2)[1] == 7
    assert bus.client.ask(CONTEXT, "new", timeout=5) == "u None", "a token never travels, and an answer may come later"


def test_values_are_plain_on_the_wire() -> None:
    when = datetime.datetime(2026, 1, 2, 3, 4, 5, 6)
    endpoint: Any = rpc.Endpoint(NewRPC, New(), partial=True)
    wire = json.loads(json.dumps({"flavor": rpc.to_plain(FLAVOR), "when": rpc.to_plain(when)}))
    answer = json.loads(json.dumps(endpoint.echo_flavor(CONTEXT, **wire)))
    assert answer == [rpc.to_plain(FLAVOR), "2026-01-02T03:04:05.000006"]


def test_context_is_sent_without_its_token() -> None:
    wire = ContextSerializer().serialize_context(CONTEXT)
    assert "secret" not in json.dumps(wire)
    back = ContextSerializer().deserialize_context(wire)
    assert (back.user_id, back.project_id, back.request_id) == ("u", "p", "req-1")


# --- errors


def test_our_errors_cross_the_bus_as_themselves(conf: cfg.ConfigOpts) -> None:
    bus = Bus(conf, "in process")
    with pytest.raises(exceptions.InstanceNotFound) as caught:
        bus.client.refuse(CONTEXT)
    assert (type(caught.value), caught.value.code) == (exceptions.InstanceNotFound, 404)
    assert str(caught.value) == caught.value.message == "Instance i1 could not be found."
    with pytest.raises(exceptions.DatabaseUnavailable) as away:
        bus.client.lose_the_database(CONTEXT)
    assert "Traceback" not in str(away.value), "no log of a caller has the server's"


def test_call_without_a_server_is_unavailable(bus: Bus) -> None:
    client = rpc.proxy(NewRPC, bus.transport)
    with pytest.raises(exceptions.MessagingUnavailable):
        client.ask(CONTEXT, "nowhere", timeout=0.5)


@pytest.mark.parametrize(
    "error", [value for value in vars(exceptions).values() if isinstance(value, type) and issubclass(value, Exception)]
)
def test_error_has_a_status_and_a_format(error: type[exceptions.NovaLiteException]) -> None:
    assert 400 <= error.code < 600
    assert error("a sentence").message == "a sentence"
    assert error.__doc__ or error.msg_fmt


# --- versions


def test_message_that_an_old_server_knows_is_sent(bus: Bus) -> None:
    bus.client.tell(CONTEXT, "old", "hello")
    bus.client.tell(CONTEXT, "old", "again", how="loud")
    assert heard(bus.old, 2) == ["hello", "again"]


def test_call_that_a_server_is_too_old_for_raises(bus: Bus) -> None:
    with pytest.raises(exceptions.ServiceTooOld) as caught:
        bus.client.ask(CONTEXT, "old", timeout=5)
    assert caught.value.code == 503
    assert "scheduler service on host old is too old for ask" in caught.value.message
    assert "2.2 is needed; upgrade it" in caught.value.message


@pytest.mark.parametrize(
    "send",
    [
        lambda client: client.whisper(CONTEXT, "old", "psst"),
        lambda client: client.tell(CONTEXT, "old", "hello", how="low"),
        lambda client: client.order(CONTEXT, "old", "turn", 7, version="2.2"),
    ],
)
def test_cast_that_a_server_is_too_old_for_raises(bus: Bus, send: Any) -> None:
    with pytest.raises(exceptions.ServiceTooOld, match="on host old is too old for"):
        send(bus.client)
    bus.client.tell(CONTEXT, "old", "still there")
    assert heard(bus.old, 1) == ["still there"]


def test_version_of_a_server_is_probed_once(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    call = bus.transport.call
    monkeypatch.setattr(bus.transport, "call", lambda message: calls.append(message.method) or call(message))
    for _ in range(3):
        bus.client.whisper(CONTEXT, "new", "psst")
    assert heard(bus.new, 3) == ["psst"] * 3
    assert calls == ["echo"]


def test_pinned_client_sends_nothing_newer(tmp_path: Path) -> None:
    bus = Bus(make_conf(tmp_path, "[upgrade_levels]\nscheduler = 2.1\n"), "in process")
    bus.client.tell(CONTEXT, "new", "hello", how="low")
    assert bus.new.heard == [("hello", "low")]
    for refused in (bus.client.ask, lambda *where: bus.client.whisper(*where, "psst")):
        with pytest.raises(exceptions.ServiceTooOld, match=r"it speaks 2\.1, 2\.2 is needed"):
            refused(CONTEXT, "new")
    assert len(bus.new.heard) == 1


def test_pin_that_is_no_version_is_refused(tmp_path: Path) -> None:
    conf = make_conf(tmp_path, "[upgrade_levels]\ncompute = newest\n")
    with pytest.raises(ValueError, match="newest"):
        _ = conf.upgrade_levels.compute


@pytest.mark.parametrize("protocol", [(NewRPC, New), (OldRPC, Old)])
def test_additions_of_a_newer_sender_are_ignored(protocol: Any) -> None:
    """The receiver ignores unknown arguments and fields of a version that it speaks."""
    endpoint: Any = rpc.Endpoint(protocol[0], protocol[1](), partial=True)
    flavor = rpc.to_plain(FLAVOR) | {"from_the_future": True}
    (echoed, _) = endpoint.echo_flavor(CONTEXT, flavor=flavor, from_the_future={"much": ["more"]})
    assert echoed == rpc.to_plain(FLAVOR)


def test_reply_with_additional_fields_is_read(conf: cfg.ConfigOpts) -> None:
    @rpc.service("scheduler", version="2.0")
    class PlainRPC(Protocol):
        def get(self, context: RequestContext) -> dict[str, Any]: ...

    @rpc.service("scheduler", version="2.0")
    class TypedRPC(Protocol):
        def get(self, context: RequestContext) -> objects.Flavor: ...

    def get(context: RequestContext) -> dict[str, Any]:
        return {**rpc.to_plain(FLAVOR), "from_the_future": 1}

    transport = rpc.InProcess(conf)
    transport.serve(rpc.Endpoint(PlainRPC, {"get": get}))
    assert rpc.proxy(TypedRPC, transport).get(CONTEXT) == FLAVOR


# --- the transport of tests


def test_held_casts_can_be_lost_doubled_and_reordered(conf: cfg.ConfigOpts) -> None:
    bus = Bus(conf, "in process")
    bus.transport.hold_casts = True
    for what in ("a", "b", "c"):
        bus.client.tell(CONTEXT, "new", what)
    assert bus.new.heard == []
    first, _, third = bus.transport.casts
    bus.transport.casts[:] = [third, first, first]
    bus.transport.deliver()
    assert [what for what, _ in bus.new.heard] == ["c", "a", "a"]


def test_fanout_reaches_all_servers_that_know_it(conf: cfg.ConfigOpts) -> None:
    bus = Bus(conf, "in process")
    other = New()
    bus.transport.serve(rpc.Endpoint(NewRPC, other, partial=True), "other")
    bus.client.shout(CONTEXT, "hey")
    assert (bus.new.heard, other.heard, bus.old.heard) == (["HEY"], ["HEY"], [])


def test_prefetch_of_a_daemon_is_limited(tmp_path: Path) -> None:
    """The library's default is without limit."""
    transport = rpc.Transport(make_conf(tmp_path, "[DEFAULT]\ntransport_url = rabbit://nobody@127.0.0.1:1/\n"))
    try:
        assert transport.take()._driver.prefetch_size == PREFETCH
    finally:
        transport.cleanup()
