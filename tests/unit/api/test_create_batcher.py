"""Creates that wait at the same time are one message; each asker gets what is its own."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from nova_lite.api.compute import create_batcher
from nova_lite.base import batching, exceptions
from nova_lite.base.context import RequestContext
from nova_lite.objects import CreateRequest, CreateResult, Creation

DEADLINE = 30


def request(name: str = "vm", **values: Any) -> CreateRequest:
    return CreateRequest(name=name, flavor_id="1", **values)


def context(project: str = "demo") -> RequestContext:
    return RequestContext(user_id="u", project_id=project, overwrite=False)


class Conductor:
    """Accepts all but those named "refused", and answers the first that is called "first" when it is ``let``."""

    def __init__(self) -> None:
        self.came: list[str] = []
        self.together: list[list[str]] = []
        self.first_came, self.let = threading.Event(), threading.Event()

    def create_instances(self, context: RequestContext, request: CreateRequest) -> CreateResult:
        self.came.append(request.name)
        if request.name == "first":
            self.first_came.set()
            assert self.let.wait(DEADLINE)
        if request.name == "refused":
            raise exceptions.FlavorUnavailable(flavor_id="1")
        return CreateResult(reservation_id=f"{context.project_id}/{request.name}", instances=[])

    def create_instances_together(self, context: RequestContext, creates: list[Creation]) -> list[CreateResult | None]:
        self.together.append([each.request.name for each in creates])
        return [
            None
            if each.request.name == "refused"
            else CreateResult(reservation_id=f"{each.context['project_id']}/{each.request.name}", instances=[])
            for each in creates
        ]


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "PATIENCE_TO_WRITE", DEADLINE)


def post(conductor: Conductor, *others: tuple[str, CreateRequest]) -> list[Any]:
    """What the askers of these get, by project and request, who come while a first one is under way."""
    client: Any = create_batcher.batched(conductor)  # type: ignore[arg-type]
    with ThreadPoolExecutor(20) as pool:
        try:
            first = pool.submit(client.create_instances, context(), request("first"))
            assert conductor.first_came.wait(DEADLINE)
            futures = [pool.submit(client.create_instances, context(project), each) for project, each in others]
            for _ in range(DEADLINE * 100):
                if len(client._creates._waiting) + sum(each.done() for each in futures) == len(others):
                    break
                threading.Event().wait(0.01)
        finally:
            conductor.let.set()
        assert first.result(DEADLINE).reservation_id == "demo/first"
        return [each.exception(DEADLINE) or each.result().reservation_id for each in futures]


def test_those_that_wait_travel_together() -> None:
    conductor = Conductor()
    assert post(conductor, ("p1", request("one")), ("p2", request("two"))) == ["p1/one", "p2/two"]
    assert conductor.came == ["first"]
    assert [sorted(each) for each in conductor.together] == [["one", "two"]]


def test_who_is_refused_asks_alone_and_is_told_why() -> None:
    conductor = Conductor()
    error, accepted = post(conductor, ("p1", request("refused")), ("p2", request("two")))
    assert isinstance(error, exceptions.FlavorUnavailable)
    assert accepted == "p2/two"
    assert conductor.came == ["first", "refused"]


@pytest.mark.parametrize(
    "large",
    [{"max_count": 2}, {"injected_files": {"/a": "Yg=="}}, {"user_data": "a" * 5000}],
    ids=["several servers", "files", "user data"],
)
def test_what_is_large_goes_by_itself_and_at_once(large: dict[str, Any]) -> None:
    conductor = Conductor()
    assert post(conductor, ("p1", request("one", **large))) == ["p1/one"]
    assert (conductor.came, conductor.together) == (["first", "one"], [])
