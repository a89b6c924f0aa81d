"""HTTP server of each daemon: ``/metrics``, ``/healthz`` (its main loop runs), ``/readyz`` (it can do its work).

A daemon may add pages of its own.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import logging
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from nova_lite.base import exceptions, metrics
from nova_lite.base.timing import TIMING, HealthTiming

LOG = logging.getLogger(__name__)

#: Connections at the same time, so that slow clients hold few threads.
MAX_CLIENTS = 50

#: Raises an error with the reason when something that the daemon needs is not available.
Check = Callable[[], object]


class _Part:
    """A part of /readyz. Its check runs in its own thread, so that a check that hangs does not delay the others."""

    def __init__(self, name: str, check: Check, timing: HealthTiming) -> None:
        self.name = name
        self._check = check
        self._timing = timing
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._result: tuple[float, str | None] | None = None

    def problem(self) -> str | None:
        """Return why the part is not ready, or None if it is."""
        timing = self._timing
        with self._lock:
            if self._result is not None and time.monotonic() - self._result[0] < timing.result_lifetime:
                return self._result[1]
            if self._thread is None or not self._thread.is_alive():
                self._result = None
                self._thread = threading.Thread(target=self._run, name=f"ready-{self.name}", daemon=True)
                self._thread.start()
            thread = self._thread
        thread.join(timing.check_timeout)
        return f"no answer within {timing.check_timeout:.0f} s" if self._result is None else self._result[1]

    def _run(self) -> None:
        reason = None
        try:
            self._check()
        except exceptions.NovaLiteException as error:
            reason = " ".join(error.message.split())
        except Exception as error:
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        self._result = (time.monotonic(), reason)


class Health:
    """Health of a daemon: whether its main loop runs, and whether everything is available that it needs."""

    def __init__(self, timing: HealthTiming = TIMING.health) -> None:
        self._timing = timing
        self._parts: dict[str, _Part] = {}
        self._pages: dict[str, Callable[[], object]] = {}
        self._last_turn = time.monotonic()
        self._server: http.server.ThreadingHTTPServer | None = None

    def add(self, name: str, check: Check) -> None:
        self._parts.setdefault(name, _Part(name, check, self._timing))

    def add_page(self, path: str, read: Callable[[], object]) -> None:
        """Serve at ``path`` what ``read`` returns, as JSON."""
        self._pages[path] = read

    def page(self, path: str) -> tuple[int, object] | None:
        """Return status and content of a page, or None if there is none."""
        read = self._pages.get(path)
        if read is None:
            return None
        try:
            return 200, read()
        except exceptions.NovaLiteException as error:
            return 503, {"error": " ".join(error.message.split())}

    def mark_alive(self) -> None:
        """Record a turn of the daemon's main loop."""
        self._last_turn = time.monotonic()

    def liveness_problem(self) -> str | None:
        """Return why the daemon counts as dead, or None if it lives."""
        still = time.monotonic() - self._last_turn
        return None if still < self._timing.max_loop_pause else f"the daemon has stood still for {still:.0f} s"

    def readiness_problems(self) -> dict[str, str | None]:
        """Return for each part why it is not ready, or None if it is."""
        parts = list(self._parts.values())
        problems: dict[str, str | None] = {}
        threads = [
            threading.Thread(target=lambda part=part: problems.update({part.name: part.problem()}), daemon=True)
            for part in parts
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return {
            "started": None if parts else "it has not started yet",
            **{part.name: problems[part.name] for part in parts},
        }

    def serve(self, address: str, port: int) -> None:
        """Serve until `close`. If the port cannot be used, that is logged and the daemon works without it."""
        if self._server is not None:
            return
        problem = None
        try:
            self._server = _Server((address, port), _handler(self), self._timing.max_connection)
        except OSError as error:
            problem = error
        if self._server is None:
            LOG.error("Metrics are not served: port %d of %s cannot be used: %s", port, address, problem)
            return
        metrics.add_gauges(self, self._gauges)
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()
        LOG.info("Metrics and health are served at http://%s:%d", address, self._server.server_address[1])

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.server_address[1])

    def close(self) -> None:
        metrics.remove_gauges(self)
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    def _gauges(self) -> list[tuple[str, metrics.Sample]]:
        return [
            metrics.sample(metrics.READY, float(why is None), name) for name, why in self.readiness_problems().items()
        ]


class _Server(http.server.ThreadingHTTPServer):
    """Server with one thread per connection, for `MAX_CLIENTS` at most. ``longest``: seconds that one may last."""

    daemon_threads = True

    def __init__(
        self, address: tuple[str, int], handler: type[http.server.BaseHTTPRequestHandler], longest: float
    ) -> None:
        super().__init__(address, handler)
        self._longest = longest
        self._open: dict[Any, float] = {}

    def service_actions(self) -> None:
        """End connections that take too long. Called twice a second."""
        now = time.monotonic()
        for request, since in list(self._open.items()):
            if now - since > self._longest:
                with contextlib.suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        if len(self._open) >= MAX_CLIENTS:
            return False
        self._open[request] = time.monotonic()
        return True

    def shutdown_request(self, request: Any) -> None:
        self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that hangs up."""


def _handler(health: Health) -> type[http.server.BaseHTTPRequestHandler]:
    class HealthHandler(http.server.BaseHTTPRequestHandler):
        timeout = 10.0
        server_version = "nova-lite"
        sys_version = ""

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                body, content_type = metrics.render()
                self._send(200, body, content_type)
            elif path == "/healthz":
                problem = health.liveness_problem()
                self._send_problems({"alive": problem})
            elif path == "/readyz":
                self._send_problems(health.readiness_problems())
            elif (page := health.page(path)) is not None:
                self._send(page[0], json.dumps(page[1]).encode() + b"\n", "application/json")
            else:
                self._send(404, b"There are /metrics, /healthz and /readyz.\n", "text/plain")

        def _send_problems(self, problems: dict[str, str | None]) -> None:
            body = {name: problem or "ok" for name, problem in problems.items()}
            self._send(503 if any(problems.values()) else 200, json.dumps(body).encode() + b"\n", "application/json")

        def _send(self, status: int, body: bytes, content_type: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            """Log nothing, as each scrape would add a line."""

    return HealthHandler
