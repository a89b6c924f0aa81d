"""Creates of an API process: creates that arrive while a message is sent share the next one, and a wake-up."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.base.timing import ApiTiming
from nova_lite.compute.api import API
from nova_lite.objects import BatchedCreate, CreateRequest, CreateResult
from tests.support.control_plane import make_instance
from tests.support.waiting import wait_for

DEADLINE = 30


def request(name: str = "vm", **values: Any) -> CreateRequest:
    return CreateRequest(name=name, flavor_id="1", **values)


def context(project: str = "demo") -> RequestContext:
    return RequestContext(user_id="u", project_id=project, overwrite=False)


class Conductor:
    """Accepts all creates but those named "refused". Holds the one named "first" back until ``released``.

    ``wake_ups``: the sender's project and the servers of each `build_instances`.
    """

    def __init__(self) -> None:
        self.wake_ups: list[tuple[str | None, list[str]]] = []
        self.singles: list[str] = []
        self.batches: list[list[str]] = []
        self.first_arrived, self.released = threading.Event(), threading.Event()

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: pytest.fail(f"{name} is not expected")

    def create_instances(self, context: RequestContext, request: CreateRequest) -> CreateResult:
        self.singles.append(request.name)
        if request.name == "first":
            self.first_arrived.set()
            assert self.released.wait(DEADLINE)
        if request.name == "refused":
            raise exceptions.FlavorUnavailable(flavor_id="1")
        return accepted(context.project_id, request)

    def build_instances(self, context: RequestContext, instance_uuids: list[str]) -> None:
        self.wake_ups.append((context.project_id, instance_uuids))

    def create_instances_batch(
        self, context: RequestContext, creates: list[BatchedCreate]
    ) -> list[CreateResult | None]:
        self.batches.append([create.request.name for create in creates])
        return [
            None if create.request.name == "refused" else accepted(create.context["project_id"], create.request)
            for create in creates
        ]


def accepted(project: str | None, request: CreateRequest) -> CreateResult:
    servers = [make_instance(uuid=f"{request.name}-{number}") for number in range(request.max_count)]
    return CreateResult(reservation_id=f"{project}/{request.name}", instances=servers)


#: A batch of creates waits for the end of the previous one.
NO_OVERLAP = ApiTiming(create_batches=ApiTiming.create_batches._replace(overlap_after=DEADLINE))


def post(conductor: Conductor, *creates: tuple[str, CreateRequest], batch_creates: bool = True) -> list[Any]:
    """Send creates, by project, while a first one is running. Returns a reservation id or an error for each."""
    api = API(NO_OVERLAP)
    api.connect(conductor, None, None, batch_creates=batch_creates)  # type: ignore[arg-type]
    with ThreadPoolExecutor(20) as pool:
        try:
            first = pool.submit(api.create, context(), request("first"))
            assert conductor.first_arrived.wait(DEADLINE)
            futures = [pool.submit(api.create, context(project), create) for project, create in creates]

            def all_are_there() -> bool:
                return api._creates.pending + sum(future.done() for future in futures) >= len(creates)

            wait_for("all creates are pending or refused", all_are_there, DEADLINE)
        finally:
            conductor.released.set()
        assert first.result(DEADLINE).reservation_id == "demo/first"
        return [future.exception(DEADLINE) or future.result().reservation_id for future in futures]


def test_waiting_creates_are_one_message() -> None:
    conductor = Conductor()
    assert post(conductor, ("p1", request("one")), ("p2", request("two"))) == ["p1/one", "p2/two"]
    assert conductor.singles == ["first"]
    assert [sorted(batch) for batch in conductor.batches] == [["one", "two"]]
    assert [sorted(uuids) for _, uuids in conductor.wake_ups] == [["first-0"], ["one-0", "two-0"]]


def test_refused_create_of_a_batch_is_sent_alone_and_gets_its_error() -> None:
    conductor = Conductor()
    error, accepted = post(conductor, ("p1", request("refused")), ("p2", request("two")))
    assert isinstance(error, exceptions.FlavorUnavailable)
    assert accepted == "p2/two"
    assert conductor.singles == ["first", "refused"]
    assert conductor.wake_ups == [("demo", ["first-0"]), ("p2", ["two-0"])]


@pytest.mark.parametrize(
    "large",
    [{"max_count": 2}, {"injected_files": {"/a": "Yg=="}}, {"user_data": "a" * 5000}],
    ids=["several servers", "files", "user data"],
)
def test_large_create_is_sent_alone_and_immediately(large: dict[str, Any]) -> None:
    conductor = Conductor()
    assert post(conductor, ("p1", request("one", **large))) == ["p1/one"]
    assert (conductor.singles, conductor.batches) == (["first", "one"], [])
    assert len(dict(conductor.wake_ups)["p1"]) == large.get("max_count", 1), "one wake-up for all servers of a request"


def test_creates_without_batching_are_sent_immediately() -> None:
    conductor = Conductor()
    creates = ("p1", request("one")), ("p2", request("two"))
    assert post(conductor, *creates, batch_creates=False) == ["p1/one", "p2/two"]
    assert (sorted(conductor.singles), conductor.batches) == (["first", "one", "two"], [])
