"""Deletes of an API process: waiting deletes share a message, and each host gets one command."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from nova_lite import operations
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.compute.api import API
from nova_lite.objects import ActionCommand, BatchedDelete
from tests.support.control_plane import FakeCompute, make_instance

DEADLINE = 30
CONTEXT = RequestContext(user_id="u", project_id="demo", overwrite=False)


class Conductor:
    """Accepts deletes, and holds the reply to the first one back until ``released`` is set."""

    def __init__(self) -> None:
        self.messages: list[list[str]] = []
        self.busy, self.released = threading.Event(), threading.Event()

    def accept_action(self, context: RequestContext, uuid: str, kind: str, payload: dict[str, Any]) -> ActionCommand:
        self.messages.append([uuid])
        if len(self.messages) == 1:
            self.busy.set()
            assert self.released.wait(DEADLINE)
        if uuid == "gone":
            raise exceptions.InstanceNotFound(instance_id=uuid)
        return command(context, uuid)

    def delete_instances_batch(self, context: RequestContext, deletes: list[BatchedDelete]) -> list[Any]:
        self.messages.append([item.instance_uuid for item in deletes])
        return [
            None if item.instance_uuid == "gone" else command(RequestContext.from_rpc(item.context), item.instance_uuid)
            for item in deletes
        ]


def command(context: RequestContext, uuid: str) -> ActionCommand:
    return ActionCommand(
        action_id=1,
        action=operations.DELETE.kind,
        method="terminate_instance",
        instance=make_instance(uuid=uuid),
        generation=1,
        host=uuid.partition("-")[0],
        request_id=context.request_id,
    )


@pytest.fixture
def conductor() -> Conductor:
    return Conductor()


@pytest.fixture
def compute() -> FakeCompute:
    return FakeCompute()


@pytest.fixture
def api(conductor: Conductor, compute: FakeCompute) -> API:
    api = API()
    api.connect(conductor, compute, None)  # type: ignore[arg-type]
    return api


def test_deletes_that_wait_share_a_message_and_a_command_for_each_host(
    api: API, conductor: Conductor, compute: FakeCompute
) -> None:
    with ThreadPoolExecutor(5) as pool:
        first = pool.submit(api.delete, CONTEXT, "h1-0", False)
        assert conductor.busy.wait(DEADLINE)
        rest = {uuid: pool.submit(api.delete, CONTEXT, uuid, False) for uuid in ("h1-1", "h1-2", "h2-3", "gone")}
        while api._deletes.pending < len(rest):
            assert not first.done()
        conductor.released.set()
        for uuid, deleted in rest.items():
            error = exceptions.InstanceNotFound if uuid == "gone" else type(None)
            assert isinstance(deleted.exception(DEADLINE), error)
        first.result(DEADLINE)
    alone, together, *again = conductor.messages
    assert (alone, sorted(together), again) == (["h1-0"], ["gone", "h1-1", "h1-2", "h2-3"], [["gone"]])
    sent = [(name, arguments[0]) for name, arguments in compute.calls]
    assert sorted(sent) == [("terminate_instance", "h1"), ("terminate_instance", "h2"), ("terminate_instances", "h1")]


def test_delete_that_comes_alone_is_sent_at_once(api: API, conductor: Conductor, compute: FakeCompute) -> None:
    conductor.released.set()
    api.delete(CONTEXT, "h1-0", False)
    assert conductor.messages == [["h1-0"]]
    assert [name for name, _ in compute.calls] == ["terminate_instance"]
