"""Each daemon's own small HTTP server: ``/metrics``, ``/healthz`` (it lives), ``/readyz`` (it can do its work)."""

from __future__ import annotations

import http.server
import json
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from nova_lite.base import exceptions, metrics

LOG = logging.getLogger(__name__)

#: Seconds that a part has for saying that it is there.
PATIENCE = 3.0
#: Seconds for which what was found is told again, however often it is asked for.
KEPT = 1.0
#: Seconds without a turn of the daemon's loop, which turns each second, after which it does not live.
STANDS_STILL = 30.0

#: Raises, with a reason, when the part is not there.
Check = Callable[[], object]


class _Part:
    """One thing to look at, in a thread of its own: one that hangs holds up no other, and is not asked twice."""

    def __init__(self, name: str, check: Check) -> None:
        self.name = name
        self._check = check
        self._lock = threading.Lock()
        self._asking: threading.Thread | None = None
        self._answer: tuple[float, str | None] | None = None

    def reason(self) -> str | None:
        """What is against it; None if nothing is."""
        with self._lock:
            if self._answer is not None and time.monotonic() - self._answer[0] < KEPT:
                return self._answer[1]
            if self._asking is None or not self._asking.is_alive():
                self._answer = None
                self._asking = threading.Thread(target=self._ask, name=f"ready-{self.name}", daemon=True)
                self._asking.start()
            asking = self._asking
        asking.join(PATIENCE)
        return f"no answer within {PATIENCE:.0f} s" if self._answer is None else self._answer[1]

    def _ask(self) -> None:
        reason = None
        try:
            self._check()
        except exceptions.NovaLiteException as error:
            reason = " ".join(error.message.split())
        except Exception as error:
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        self._answer = (time.monotonic(), reason)


class Health:
    """``turned`` has to be called by the daemon's loop. ``checks``: what the daemon needs for its work, by name."""

    def __init__(self) -> None:
        self._parts: dict[str, _Part] = {}
        self._turned = time.monotonic()
        self._server: http.server.ThreadingHTTPServer | None = None

    def add(self, name: str, check: Check) -> None:
        self._parts.setdefault(name, _Part(name, check))

    def turned(self) -> None:
        self._turned = time.monotonic()

    def lives(self) -> str | None:
        """What is against it; None if nothing is."""
        still = time.monotonic() - self._turned
        return None if still < STANDS_STILL else f"the daemon has stood still for {still:.0f} s"

    def ready(self) -> dict[str, str | None]:
        """By part, what is against it."""
        parts = list(self._parts.values())
        found: dict[str, str | None] = {}
        threads = [
            threading.Thread(target=lambda part=part: found.update({part.name: part.reason()}), daemon=True)
            for part in parts
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return {
            "started": None if parts else "it has not started yet",
            **{part.name: found[part.name] for part in parts},
        }

    def serve(self, address: str, port: int) -> None:
        """From now on, until `close`. A port that cannot be had is told, and the daemon works without."""
        if self._server is not None:
            return
        trouble = None
        try:
            self._server = _Server((address, port), _handler(self))
        except OSError as error:
            trouble = error
        if self._server is None:
            LOG.error("Metrics are not served: port %d of %s cannot be had: %s", port, address, trouble)
            return
        metrics.add_gauges(self, self._states)
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

    def _states(self) -> list[tuple[str, metrics.Sample]]:
        return [metrics.sample(metrics.READY, float(why is None), name) for name, why in self.ready().items()]


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is not worth a line."""


def _handler(health: Health) -> type[http.server.BaseHTTPRequestHandler]:
    class HealthHandler(http.server.BaseHTTPRequestHandler):
        timeout = 10.0
        server_version = "nova-lite"
        sys_version = ""

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                body, content_type = metrics.render()
                self._answer(200, body, content_type)
            elif path == "/healthz":
                why = health.lives()
                self._say(why is None, {"alive": why})
            elif path == "/readyz":
                reasons = health.ready()
                self._say(not any(reasons.values()), reasons)
            else:
                self._answer(404, b"There are /metrics, /healthz and /readyz.\n", "text/plain")

        def _say(self, fine: bool, reasons: dict[str, str | None]) -> None:
            body = {name: why or "ok" for name, why in reasons.items()}
            self._answer(200 if fine else 503, json.dumps(body).encode() + b"\n", "application/json")

        def _answer(self, status: int, body: bytes, content_type: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            """Each scrape would be a line."""

    return HealthHandler
