"""Seams of traces: nothing while they are off; parents, names and ids of spans while they are on."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import types
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from oslo_config import cfg

from nova_lite import conf as configuration
from nova_lite.base import exceptions, tracing
from nova_lite.base.context import RequestContext
from nova_lite.base.futures import ResponseFuture
from nova_lite.rpc.client import Message

UUID = "11111111-2222-4333-8444-555555555555"
REQUEST = f"req-{UUID}"
TRACE = uuid.UUID(UUID).int
OTHER = f"req-{uuid.UUID(int=TRACE + 1)}"
CLIENT = f"00-{'a' * 32}-{'b' * 16}-01"


def context(request_id: str = REQUEST, traceparent: str | None = None) -> RequestContext:
    made = RequestContext(request_id=request_id, overwrite=False)
    made.traceparent = traceparent
    return made


class Spans:
    """Spans that have ended, by name."""

    def __init__(self, ratio: float = 1.0) -> None:
        self.exporter = InMemorySpanExporter()
        tracing.export(SimpleSpanProcessor(self.exporter), {"service.name": "test"}, ratio)

    def __call__(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self.exporter.get_finished_spans()}

    def parents(self) -> dict[str, str | None]:
        found = self()
        names = {span.context.span_id: name for name, span in found.items()}
        return {name: names.get(span.parent.span_id, "?") if span.parent else None for name, span in found.items()}


@pytest.fixture
def spans() -> Iterator[Spans]:
    yield Spans()
    tracing.stop()


class Wire:
    """A sender that keeps the messages."""

    def __init__(self) -> None:
        self.sent: list[Message] = []

    def call(self, message: Message) -> Any:
        self.sent.append(message)

    cast = call


# --- off


def test_seams_without_traces_return_what_they_are_given() -> None:
    def function() -> None: ...

    wire, database = Wire(), types.SimpleNamespace(write=function, read=function)
    assert tracing.sender(wire) is wire
    assert tracing.handler("x", function) is function
    assert tracing.work("x", context(), UUID, function) is function
    assert tracing.carried(function) is function
    assert tracing.app(function, "id", lambda environ: "") is function
    tracing.transactions(database)
    tracing.batches(database, "write", "x")
    assert database.write is database.read is function
    assert "traceparent" not in context().to_rpc()


def test_daemons_without_traces_load_nothing_of_opentelemetry() -> None:
    daemons = "nova_lite.cmd.conductor, nova_lite.cmd.api, nova_lite.cmd.compute"
    code = f"import {daemons}, json, sys; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert not [name for name in json.loads(done.stdout) if name.startswith("opentelemetry")]


def test_endpoint_without_the_extra_is_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    conf = cfg.ConfigOpts()
    configuration.register_opts(conf)
    conf([], default_config_files=[])
    tracing.start(conf, "nova-lite-api")
    assert not tracing.is_on()
    conf.set_override("endpoint", "http://127.0.0.1:1/v1/traces", "otel")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(exceptions.ConfigurationError, match="needs the package's extra otel"):
        tracing.start(conf, "nova-lite-api")


# --- on


def test_request_message_handler_and_transaction_are_one_trace(spans: Spans) -> None:
    """The client's own trace is a link: the id of the trace is the request's."""
    wire = Wire()
    database = types.SimpleNamespace(write=lambda function: function(), read=None)
    tracing.transactions(database)

    def create_instance() -> None: ...

    handle = tracing.handler("create", lambda ctxt: database.write(create_instance))

    def application(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        tracing.sender(wire).call(Message("conductor", "create", context()))
        start_response("202 Accepted", [])
        return []

    traced = tracing.app(application, "id", lambda environ: "/servers/{id}")
    traced({"id": REQUEST, "REQUEST_METHOD": "POST", "HTTP_TRACEPARENT": CLIENT}, lambda *_: None)
    handle(RequestContext.from_rpc(json.loads(json.dumps(wire.sent[0].context.to_rpc()))))
    assert spans.parents() == {
        "POST /servers/{id}": None,
        "conductor.create": "POST /servers/{id}",
        "create": "conductor.create",
        "write create_instance": "create",
    }
    finished = spans.exporter.get_finished_spans()
    assert {span.context.trace_id for span in finished} == {TRACE}
    root = spans()["POST /servers/{id}"]
    assert [f"{link.context.trace_id:032x}" for link in root.links] == ["a" * 32]
    assert root.attributes is not None and root.attributes["http.response.status_code"] == 202


def test_work_of_no_request_has_no_span(spans: Spans) -> None:
    wire = Wire()
    tracing.sender(wire).cast(Message("conductor", "report_state", context()))
    tracing.handler("conductor.report_state", lambda ctxt: None)(wire.sent[0].context)
    database = types.SimpleNamespace(write=lambda function: function(), read=None)
    tracing.transactions(database)
    database.write(lambda: None)
    assert spans() == {} and wire.sent[0].context.traceparent is None


def test_step_that_is_repeated_from_the_database_is_in_the_trace_of_its_request(spans: Spans) -> None:
    wire = Wire()
    tracing.work("schedule", context(), UUID, lambda: tracing.sender(wire).cast(Message("c", "build", context())))()
    assert {span.context.trace_id for span in spans.exporter.get_finished_spans()} == {TRACE}
    assert spans.parents() == {"schedule": None, "c.build": "schedule"}


def test_command_of_another_request_in_a_batch_has_its_own_trace_and_a_link(spans: Spans) -> None:
    parent = f"00-{TRACE:032x}-{'b' * 16}-01"
    tracing.work("delete", context(OTHER, parent), UUID, lambda: None)()
    span = spans()["delete"]
    assert span.context.trace_id == TRACE + 1
    assert [link.context.trace_id for link in span.links] == [TRACE]


def test_batch_is_in_the_trace_of_its_first_request(spans: Spans) -> None:
    parents = [f"00-{TRACE + number:032x}-{'b' * 16}-01" for number in range(2)]
    requests = [types.SimpleNamespace(context=context(*pair)) for pair in zip((REQUEST, OTHER), parents, strict=True)]
    wire = Wire()

    def place(found: list[Any]) -> None:
        for request in found:
            tracing.sender(wire).cast(Message("compute", f"build-{request.context.request_id}", request.context))

    scheduling = types.SimpleNamespace(place=place)
    tracing.batches(scheduling, "place", "schedule")
    scheduling.place(requests)
    found = spans()
    assert found["schedule"].context.trace_id == TRACE
    assert [link.context.trace_id for link in found["schedule"].links] == [TRACE + 1]
    assert found[f"compute.build-{REQUEST}"].context.trace_id == TRACE
    assert found[f"compute.build-{OTHER}"].context.trace_id == TRACE + 1


def test_later_response_and_background_work_stay_in_the_trace(spans: Spans) -> None:
    future: ResponseFuture[str] = ResponseFuture()
    incoming = context(traceparent=f"00-{TRACE:032x}-{'b' * 16}-01")
    carried = []

    def handle(ctxt: RequestContext) -> Any:
        carried.append(tracing.carried(lambda: tracing.work("step", context(), UUID, lambda: None)()))
        return future

    result: Any = tracing.handler("conductor.finish", handle)(incoming)
    thread = threading.Thread(target=carried[0])
    thread.start()
    thread.join()
    future.set_result(lambda: "done")
    assert result.result() == "done"
    assert spans.parents() == {
        "conductor.finish": "?",
        "step": "conductor.finish",
        "conductor.finish reply": "conductor.finish",
    }


def test_failure_is_named_by_its_class_alone(spans: Spans) -> None:
    def fail(ctxt: RequestContext) -> None:
        raise exceptions.InstanceNotFound(instance_id="a name of a user")

    with pytest.raises(exceptions.InstanceNotFound):
        tracing.handler("x", fail)(context(traceparent=CLIENT))
    span = spans()["x"]
    assert span.status.description == "InstanceNotFound" and not span.events
    assert "a name of a user" not in span.to_json()


def test_sampler_decides_by_the_request_alone() -> None:
    try:
        spans = Spans(0.25)
        for number in range(0, 1024, 4):
            tracing.work("x", context(f"req-{uuid.UUID(int=number << 118 | 4 << 76 | 2 << 62)}"), "", lambda: None)()
        assert len(spans.exporter.get_finished_spans()) == 64
    finally:
        tracing.stop()


@pytest.mark.parametrize("wrong", ["", "x", 1, f"00-{'0' * 32}-{'b' * 16}-01", f"00-{'a' * 32}-{'b' * 16}-zz", None])
def test_wrong_parent_of_a_message_is_ignored(wrong: object) -> None:
    assert RequestContext.from_rpc({"request_id": REQUEST, "traceparent": wrong}).traceparent is None
    assert RequestContext.from_rpc({"traceparent": CLIENT}).traceparent == CLIENT
