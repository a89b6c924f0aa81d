"""Clients whose service is older than they are: declared fallbacks replace the newer calls."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated, Any, Protocol

import pytest

from nova_lite import objects, rpc
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.compute.rpcapi import ComputeRPC
from nova_lite.conductor.rpcapi import ConductorRPC
from nova_lite.objects import ActionReport, BuildOutcome, BuildResult, InstanceQuery
from nova_lite.scheduler.rpcapi import SchedulerRPC
from tests.support.control_plane import make_instance
from tests.support.rpc_conf import FLAVOR, make_conf

CONTEXT = RequestContext(user_id="u", project_id="p1", request_id="req-1")


@rpc.service("scheduler", version="1.0")
class OldRPC(Protocol):
    def get(self, context: RequestContext, name: str) -> str: ...


class Old:
    def get(self, context: RequestContext, name: str) -> str:
        if name == "missing":
            raise exceptions.InstanceNotFound(instance_id=name)
        if name == "away":
            raise exceptions.MessagingUnavailable(what="get")
        return name.upper()


@rpc.service("scheduler", version="1.1")
class NewRPC(Protocol):
    def get(
        self, context: RequestContext, name: str, size: Annotated[int, rpc.Since("1.1", optional=True)] = 0
    ) -> str: ...

    @rpc.method(since="1.1", fallback=rpc.one_by_one("names", lambda client, context, name: client.get(context, name)))
    def get_all(self, context: RequestContext, names: list[str]) -> list[str]: ...

    @rpc.method(since="1.1", fallback=rpc.one_by_one("names", lambda client, context, name: client.get(context, name)))
    def touch_all(self, context: RequestContext, names: list[str]) -> None: ...

    @rpc.method(since="1.1", fallback=rpc.result(True))
    def is_open(self, context: RequestContext) -> bool: ...

    @rpc.method(since="1.1")
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
        "Falling back for an older server: The scheduler service is too old for is_open: it speaks 1.0, "
        "1.1 is needed; upgrade it."
    ]


class Daemon:
    """A service whose clients are pinned to ``version``. ``calls``: the methods that were called, with arguments."""

    def __init__(self, tmp_path: Path, protocol: Any, version: str) -> None:
        topic = rpc.contract_of(protocol).topic
        self.transport = rpc.InProcess(make_conf(tmp_path, f"[upgrade_levels]\n{topic} = {version}\n"))
        self.transport.serve(rpc.Endpoint(protocol, self, partial=True), "host1")
        self.client: Any = rpc.proxy(protocol, self.transport)
        self.calls: list[tuple[Any, ...]] = []


class Conductor(Daemon):
    def instance_get(self, context: RequestContext, instance_uuid: str) -> objects.Instance:
        self.calls.append((instance_uuid, context.project_id, context.is_admin))
        if instance_uuid == "gone":
            raise exceptions.InstanceNotFound(instance_id=instance_uuid)
        return make_instance(uuid=instance_uuid)

    def instance_list(
        self,
        context: RequestContext,
        filters: objects.InstanceFilters,
        limit: int | None,
        marker: str | None,
        sort_keys: list[str],
        sort_dirs: list[str],
    ) -> list[objects.Instance]:
        return [make_instance(uuid=f"on-{filters.host}", host=filters.host, node="node")]

    def finish_build(self, context: RequestContext, result: BuildResult) -> None:
        self.calls.append((result.instance_uuid,))
        if result.instance_uuid == "stale":
            raise exceptions.StaleReport(instance_id="stale", generation=1, host="h1")

    def finish_action(
        self,
        context: RequestContext,
        host: str,
        action_id: int,
        power_state: int | None,
        error: str | None,
        details: str,
        sequence: int = 0,
        answer: dict[str, Any] | None = None,
        request_id: str | None = None,
    ) -> None:
        self.calls.append((host, action_id, sequence, request_id))


def test_older_conductor_creates_nothing_in_a_batch(tmp_path: Path) -> None:
    conductor = Conductor(tmp_path, ConductorRPC, "1.17")
    request = objects.BatchedCreate(context={}, request=objects.CreateRequest(name="vm", flavor_id="1"))
    assert conductor.client.create_instances_batch(CONTEXT, [request, request]) == [None, None]


def test_older_conductor_reads_each_instance_in_its_own_project(tmp_path: Path) -> None:
    conductor = Conductor(tmp_path, ConductorRPC, "1.6")
    queries = [
        InstanceQuery(uuid="a", project_id="p2"),
        InstanceQuery(uuid="gone", project_id="p2"),
        InstanceQuery(uuid="b", project_id="p3", is_admin=True),
    ]
    assert [instance.uuid for instance in conductor.client.instances_get(CONTEXT, queries)] == ["a", "b"]
    assert conductor.calls == [("a", "p2", False), ("gone", "p2", False), ("b", "p3", True)]
    assert (CONTEXT.project_id, CONTEXT.is_admin) == ("p1", False)


def test_older_conductor_lists_the_instances_of_each_host(tmp_path: Path) -> None:
    conductor = Conductor(tmp_path, ConductorRPC, "1.25")
    found = conductor.client.hosted_instance_list(CONTEXT, ["h1", "h2"])
    assert [(item.uuid, item.host, item.node, item.name) for item in found] == [
        ("on-h1", "h1", "node", "instance-on-h1"),
        ("on-h2", "h2", "node", "instance-on-h2"),
    ]


def test_older_conductor_takes_build_results_one_by_one(tmp_path: Path) -> None:
    conductor = Conductor(tmp_path, ConductorRPC, "1.13")
    results = [
        BuildResult(instance_uuid=uuid, generation=1, host="h1", outcome=BuildOutcome.BUILT)
        for uuid in ("a", "stale", "b")
    ]
    assert conductor.client.finish_builds(CONTEXT, "h1", results) == [True, False, True]
    assert conductor.calls == [("a",), ("stale",), ("b",)]


@pytest.mark.parametrize(("version", "request_id"), [("1.13", "req-2"), ("1.3", None)])
def test_older_conductor_takes_action_reports_one_by_one(tmp_path: Path, version: str, request_id: str | None) -> None:
    conductor = Conductor(tmp_path, ConductorRPC, version)
    report = ActionReport(action_id=7, power_state=1, error=None, details="", sequence=2, request_id="req-2")
    conductor.client.finish_actions(CONTEXT, "h1", [report])
    assert conductor.calls == [("h1", 7, 2, request_id)]


def test_older_conductor_is_not_asked_about_late_commands(tmp_path: Path) -> None:
    conductor = Conductor(tmp_path, ConductorRPC, "1.0")
    assert conductor.client.is_command_open(CONTEXT, "h1", 7, 2, "req-2") is False
    assert conductor.client.report_task(CONTEXT, "h1", 7, "spawning") is True
    assert conductor.calls == []


class Scheduler(Daemon):
    def select_destinations(self, context: RequestContext, spec: objects.RequestSpec) -> list[objects.Destination]:
        (uuid,) = spec.instance_uuids
        if uuid == "large":
            raise exceptions.NoValidHost("No host has room.", details="host1")
        place = objects.Selection(host="host1", node="host1")
        return [objects.Destination(instance_uuid=uuid, selected=place)]


def test_older_scheduler_is_asked_for_one_request_after_the_other(tmp_path: Path) -> None:
    scheduler = Scheduler(tmp_path, SchedulerRPC, "1.0")
    specs = [
        objects.RequestSpec(instance_uuids=[uuid], project_id="p1", user_id="u", flavor=FLAVOR)
        for uuid in ("a", "large")
    ]
    placed, refused = scheduler.client.select_destinations_batch(CONTEXT, specs)
    assert [destination.instance_uuid for destination in placed.destinations] == ["a"]
    assert (refused.destinations, refused.reason, refused.details) == ([], "No host has room.", "host1")


class Compute(Daemon):
    def validate_console_port(self, context: RequestContext, instance_uuid: str, port: int, console_type: str) -> bool:
        return (instance_uuid, port, console_type) == ("a", 10000, "serial")

    def build_and_run_instance(self, context: RequestContext, request: objects.BuildRequest) -> None:
        self.calls.append((request.instance.uuid,))


def build_request(uuid: str) -> objects.BuildRequest:
    return objects.BuildRequest(instance=make_instance(uuid=uuid), generation=1, action_id=1, request_id="req-1")


def builds(*uuids: str) -> list[objects.BuildRequest]:
    return [build_request(uuid) for uuid in uuids]


def test_older_host_gets_one_build_after_the_other(tmp_path: Path) -> None:
    compute = Compute(tmp_path, ComputeRPC, "1.15")
    compute.client.build_and_run_instances(CONTEXT, "host1", builds("a", "b"))
    assert compute.calls == [("a",), ("b",)]


@pytest.mark.parametrize(("port", "is_current"), [(10000, True), (10001, False)])
def test_older_host_has_consoles_without_tls(tmp_path: Path, port: int, is_current: bool) -> None:
    compute = Compute(tmp_path, ComputeRPC, "1.16")
    found = compute.client.find_console_port(CONTEXT, "host1", "a", port, "serial")
    assert found == objects.ConsolePort(is_current=is_current, tls=False)


def test_older_host_without_a_queue_is_an_error(tmp_path: Path) -> None:
    compute = Compute(tmp_path, ComputeRPC, "1.15")
    with pytest.raises(exceptions.MessagingUnavailable):
        compute.client.build_and_run_instances(CONTEXT, "host2", builds("a", "b"))


def test_older_host_that_loses_its_queue_leaves_the_rest_to_the_reconciler(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute = Compute(tmp_path, ComputeRPC, "1.15")
    cast = compute.transport.cast

    def lose_queue(message: rpc.Message) -> None:
        if compute.calls:
            raise exceptions.MessagingUnavailable(what=message.method)
        cast(message)

    monkeypatch.setattr(compute.transport, "cast", lose_queue)
    compute.client.build_and_run_instances(CONTEXT, "host1", builds("a", "b", "c"))
    assert compute.calls == [("a",)]
    assert "2 builds could not be sent to host1" in caplog.text
