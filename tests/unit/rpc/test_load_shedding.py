"""Servers with too many messages: dropped and refused calls, and throttled clients."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, Protocol

import pytest
from oslo_messaging._drivers import common

from nova_lite import rpc
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext, get_admin_context
from nova_lite.rpc import contract, load_shedding
from nova_lite.rpc.admission import Priority
from nova_lite.rpc.client import Message
from nova_lite.rpc.load_shedding import Throttled, Workers
from nova_lite.rpc.self_check import SelfCheckingServer
from nova_lite.rpcapi.conductor import ConductorRPC
from tests.support.clock import ShiftedTime
from tests.support.waiting import wait_for

USER = RequestContext(user_id="u", project_id="p")


class Incoming:
    """A message as oslo.messaging's driver delivers it. ``ttl``: the AMQP expiration of a call, in ms."""

    def __init__(
        self, method: str, ttl: str | None = "20000", call: bool = True, msg_id: str = "", **arguments: Any
    ) -> None:
        self.message = _Body(method=method, args=arguments)
        self.message._raw_message = SimpleNamespace(properties={"expiration": ttl} if ttl else {})
        self.ctxt = USER.to_rpc()
        self.reply_q = "replies" if call else None
        self.msg_id = msg_id or uuid.uuid4().hex
        self.failures: list[Any] = []

    def reply(self, reply: Any = None, failure: Any = None) -> None:
        self.failures.append(failure)


class _Body(dict[str, Any]):
    _raw_message: Any


class Pool:
    """Workers whose work waits for an event."""

    def __init__(self, limit: int = 4, threads: int = 1, longest: float = 60.0) -> None:
        self.may_end = threading.Event()
        self.done: list[str] = []
        priority, repeated = contract.contract_of(ConductorRPC).priority, frozenset({"instance_list"})
        self.workers = Workers(limit, longest, threads, priority, threads, repeated=repeated)

    def __call__(self, incoming: list[Incoming]) -> None:
        assert self.may_end.wait(30)
        self.done.append(incoming[0].message["method"])

    def send(self, *messages: Incoming) -> None:
        for message in messages:
            self.workers.submit(self, [message])

    def end(self) -> list[str]:
        self.may_end.set()
        self.workers.shutdown()
        return self.done


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ShiftedTime:
    """Provide the clock of the workers."""
    made = ShiftedTime()
    monkeypatch.setattr(load_shedding, "time", made)
    return made


@pytest.fixture
def pool(clock: ShiftedTime) -> Iterator[Callable[..., Pool]]:
    made: list[Pool] = []

    def make(**options: Any) -> Pool:
        made.append(Pool(**options))
        return made[-1]

    yield make
    for each in made:
        each.end()


def occupied(pool: Pool) -> None:
    """Provide workers whose only thread is busy."""
    pool.send(Incoming("report_state"))
    wait_for("it is begun", lambda: pool.workers.queue.running == 1)


def test_call_after_its_deadline_is_dropped(pool: Callable[..., Pool], clock: ShiftedTime) -> None:
    made = pool()
    occupied(made)
    given_up = Incoming("instance_get", ttl="10000")
    made.send(given_up, Incoming("flavor_get", ttl="60000"), Incoming("report_state", ttl="10000"))
    clock.ahead = 11.0
    assert made.end() == ["report_state", "flavor_get"]
    assert made.workers.expired == 2
    assert given_up.failures == [], "nobody listens any more"


def test_cast_never_expires(pool: Callable[..., Pool], clock: ShiftedTime) -> None:
    made = pool(limit=1, longest=10.0)
    occupied(made)
    made.send(*(Incoming("build_instances", ttl=None, call=False) for _ in range(3)))
    clock.ahead = 11.0
    assert made.end().count("build_instances") == 3


def test_refused_callers_get_an_error_and_deletes_are_done(pool: Callable[..., Pool]) -> None:
    made = pool(limit=3)
    occupied(made)
    lists = [Incoming("instance_list") for _ in range(5)]
    deletes = [Incoming("accept_action", action="delete") for _ in range(3)]
    made.send(*lists, *deletes)
    wait_for("all are told", lambda: all(each.failures for each in lists))
    assert not any(each.failures for each in deletes)
    assert made.workers.refused == {Priority.LIST: 5}
    failure = common.serialize_remote_exception(lists[0].failures[0])
    error = common.deserialize_remote_exception(failure, [exceptions.WIRE_MODULE])
    assert isinstance(error, exceptions.ServiceUnavailable)
    assert load_shedding.is_overloaded(error)
    assert 1 <= error.kwargs["retry_after"] <= 3
    assert made.end() == ["report_state"] + ["accept_action"] * 3


def test_copies_of_a_waiting_read_take_no_room(pool: Callable[..., Pool]) -> None:
    made = pool(limit=2)
    occupied(made)
    read, other = Incoming("instance_list", msg_id="1"), Incoming("instance_list", msg_id="2")
    copies = [Incoming("instance_list", ttl=ttl, msg_id="1") for ttl in ("18000", "16000", "14000")]
    made.send(read, *copies, other)
    assert made.end() == ["report_state", "instance_list", "instance_list"]
    assert [failure for one in (read, *copies, other) for failure in one.failures] == []


def test_copy_of_a_read_with_a_reply_is_dropped(pool: Callable[..., Pool]) -> None:
    made = pool()
    made.may_end.set()
    made.send(Incoming("instance_list", msg_id="1"))
    wait_for("it is done", lambda: made.workers.queue.finished == 1)
    made.send(Incoming("instance_list", msg_id="1"))
    assert made.end() == ["instance_list"]


def test_id_of_a_read_is_forgotten_when_its_caller_has_given_up(pool: Callable[..., Pool], clock: ShiftedTime) -> None:
    made = pool()
    made.may_end.set()
    made.send(Incoming("instance_list", msg_id="1"))
    wait_for("it is done", lambda: made.workers.queue.finished == 1)
    clock.ahead += 21.0
    made.send(Incoming("instance_list", msg_id="2"), Incoming("instance_list", msg_id="1"))
    assert made.end() == ["instance_list"] * 3


def test_change_with_the_id_of_another_is_left_to_the_replay_cache(pool: Callable[..., Pool]) -> None:
    made = pool()
    made.send(*(Incoming("instance_update", msg_id="1") for _ in range(2)))
    assert made.end() == ["instance_update"] * 2


def test_call_that_waited_too_long_is_refused(pool: Callable[..., Pool], clock: ShiftedTime) -> None:
    made = pool(longest=10.0)
    occupied(made)
    late, own = Incoming("instance_list"), Incoming("finish_build")
    made.send(late, own)
    clock.ahead = 11.0
    assert made.end() == ["report_state", "finish_build"]
    wait_for("it is told", lambda: late.failures)


def test_too_many_casts_slow_the_reader_down(pool: Callable[..., Pool]) -> None:
    """The casts then stay in the broker, although messages are acknowledged at once."""
    made = pool(limit=1)
    occupied(made)
    started = time.monotonic()
    made.send(*(Incoming("build_instances", None, call=False) for _ in range(5)))
    assert time.monotonic() - started > 1


def test_last_user_call_waits_until_messages_are_read(pool: Callable[..., Pool]) -> None:
    made = pool()
    unread, looked = [True], threading.Event()

    def more() -> bool:
        looked.set()
        return unread[0]

    made.workers._unread = more
    made.may_end.set()
    made.send(Incoming("instance_list"))
    assert looked.wait(5)
    assert made.done == []
    unread[0] = False
    wait_for("it is done", lambda: made.done == ["instance_list"])
    unread[0] = True
    made.send(Incoming("instance_list"))
    wait_for("it is done, however much comes", lambda: len(made.done) == 2)


def test_user_calls_with_room_for_others_do_not_wait(pool: Callable[..., Pool]) -> None:
    made = pool(threads=4)
    looked: list[bool] = []

    def more() -> bool:
        looked.append(True)
        return True

    made.workers._unread = more
    made.may_end.set()
    made.send(Incoming("instance_list"))
    wait_for("it is done", lambda: made.done == ["instance_list"])
    assert looked == []


PRIORITIES = {
    Priority.OWN: ["report_state", "finish_build", "finish_action", "report_service", "domain_lost"],
    Priority.READ: ["instance_get", "flavor_get", "instances_at_address"],
    Priority.LIST: ["instance_list", "flavor_list", "usage_list", "service_list"],
    Priority.DELETE: ["keypair_delete", "image_delete"],
    Priority.CHANGE: ["create_instances", "instance_update", "accept_action", "image_get"],
}


@pytest.mark.parametrize(
    ("priority", "method"), [(level, name) for level, names in PRIORITIES.items() for name in names]
)
def test_conductor_method_has_its_priority(priority: Priority, method: str) -> None:
    conductor = contract.contract_of(ConductorRPC)
    assert method in conductor.methods
    assert conductor.priority(method, {}, USER) == priority


@pytest.mark.parametrize(
    ("method", "arguments", "context", "priority"),
    [
        ("accept_action", {"action": "delete"}, USER, Priority.DELETE),
        ("instance_list", {}, get_admin_context(), Priority.OWN),
        ("instances_at_address", {}, get_admin_context(), Priority.READ),  # guests ask it
    ],
)
def test_conductor_method_has_the_priority_of_its_arguments_and_caller(
    method: str, arguments: dict[str, Any], context: RequestContext, priority: Priority
) -> None:
    assert contract.contract_of(ConductorRPC).priority(method, arguments, context) == priority


class Overloaded:
    """A transport to a conductor that refuses all lists."""

    conf: Any = None

    def __init__(self) -> None:
        self.asked: list[str] = []

    def call(self, message: Message) -> None:
        self.asked.append(message.method)
        if message.method == "instance_list":
            raise load_shedding.overloaded_error(200, 2)

    def cast(self, message: Message) -> None:
        self.asked.append(message.method)


def test_throttled_client_refuses_what_the_server_would_refuse() -> None:
    conductor = Overloaded()
    throttled = Throttled(conductor, ConductorRPC)
    for _ in range(300):
        with pytest.raises(exceptions.ServiceUnavailable) as caught:
            throttled.call(Message("conductor", "instance_list", USER))
        assert load_shedding.is_overloaded(caught.value)
        throttled.call(Message("conductor", "instance_get", USER))
        throttled.call(Message("compute", "instance_list_of_a_host", USER))
    assert conductor.asked.count("instance_list") < 100
    assert conductor.asked.count("instance_get") == 300
    assert conductor.asked.count("instance_list_of_a_host") == 300


class Silent:
    conf: Any = None

    def call(self, message: Message) -> None:
        raise exceptions.MessagingUnavailable(what=message.method)

    def cast(self, message: Message) -> None:
        raise exceptions.MessagingUnavailable(what=message.method)


def test_throttled_client_without_replies_does_not_report_overload() -> None:
    throttled = Throttled(Silent(), ConductorRPC)
    said = set()
    for _ in range(300):
        with pytest.raises(exceptions.ServiceUnavailable) as caught:
            throttled.call(Message("conductor", "instance_list", USER))
        said.add(caught.value.message)
    assert len(said) == 2
    assert all("not answer" in each for each in said), said


@rpc.service("compute", version="2.0")
class BusyRPC(Protocol):
    def work(self, context: RequestContext, host: rpc.Receiver) -> str: ...


class Busy:
    def work(self, context: RequestContext) -> str:
        return ""


@pytest.mark.parametrize("progress", [True, False])
def test_busy_server_is_not_deaf(
    transport: rpc.Transport,
    no_answer: Any,
    progress: bool,
) -> None:
    server = SelfCheckingServer(transport, "host", rpc.Endpoint(BusyRPC, Busy()))
    server.start()
    try:
        no_answer()
        line = server._server.workers.queue  # type: ignore[union-attr]
        line._running = line.threads
        for _ in range(4):
            line._finished += progress
            server.check()
        assert server.deaf.is_set() is not progress
        line._running = 0
        for _ in range(2):
            line._finished += 1
            server.check()
        assert server.deaf.is_set(), "it has time, and does not answer"
    finally:
        server.stop()
        server.wait()


def test_workers_use_the_priorities_of_their_endpoint(transport: rpc.Transport) -> None:
    def classify(method: str, arguments: Mapping[str, Any], context: RequestContext) -> Priority:
        return Priority.LIST

    endpoint = rpc.Endpoint(BusyRPC, Busy(), classify=classify)
    made = load_shedding.server_class(endpoint.classify)
    workers = Workers(1, 1.0, 1, made.classify, 1)
    assert workers._priority(Incoming("work")) == Priority.LIST
    assert workers._priority(Incoming("echo")) == Priority.OWN
    workers.shutdown()
