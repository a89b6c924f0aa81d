"""A create is one trace over API, conductor, scheduler and compute host, which a collector gets."""

from __future__ import annotations

import gzip
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.functional import cloud as clouds
from tests.support.waiting import wait_for


class Collector(http.server.ThreadingHTTPServer):
    """A collector. ``spans``: trace, daemon, name, parent's id, own id."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.spans: list[tuple[str, str, str, str, str]] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def add(self, content: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(content)
        for of_daemon in request.resource_spans:
            named = {item.key: item.value.string_value for item in of_daemon.resource.attributes}
            for scope in of_daemon.scope_spans:
                for span in scope.spans:
                    ids = (span.trace_id.hex(), span.parent_span_id.hex(), span.span_id.hex())
                    self.spans.append((ids[0], named["service.name"], span.name, ids[1], ids[2]))


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.add(gzip.decompress(content) if self.headers.get("Content-Encoding") == "gzip" else content)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_arguments: object) -> None: ...


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.shutdown()
    made.server_close()


def test_create_is_one_trace_over_all_daemons(tmp_path: Path, collector: Collector) -> None:
    extra = f"[otel]\nendpoint = http://127.0.0.1:{collector.server_address[1]}/v1/traces\n"
    with clouds.running(tmp_path, extra_config=extra) as cloud:
        answer = cloud.request(
            "POST", "/servers", {"server": {"name": "named-by-a-user", "imageRef": cloud.image_id, "flavorRef": "1"}}
        )
        cloud.wait_active([answer.json()["server"]["id"]])
        trace = answer.headers["X-OpenStack-Request-Id"].removeprefix("req-").replace("-", "")

        def spans() -> list[tuple[str, str, str, str, str]]:
            return [span for span in collector.spans if span[0] == trace]

        wanted = {
            ("nova-lite-api", "POST /servers"),
            ("nova-lite-api", "conductor.create_instances"),
            ("nova-lite-conductor", "conductor.create_instances"),
            ("nova-lite-conductor", "schedule"),
            ("nova-lite-conductor", "write claim"),
            ("nova-lite-scheduler", "scheduler.select_destinations"),
            ("nova-lite-compute", "compute.build_and_run_instance"),
            ("nova-lite-compute", "build"),
            ("nova-lite-conductor", "conductor.finish_build"),
        }
        wait_for("the trace is whole", lambda: wanted <= {span[1:3] for span in spans()})
        known = {span[4] for span in spans()}
        assert [span[2] for span in spans() if span[3] not in known] == ["POST /servers"], "one root"
        assert not [span for span in collector.spans if "report_state" in span[2] or "named-by-a-user" in span[2]]
