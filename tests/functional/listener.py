"""Hears every message that is published in a vhost, through RabbitMQ's firehose tracer."""

from __future__ import annotations

import json
import threading
from collections import Counter
from types import TracebackType
from typing import Any

import kombu

from tests.functional.cloud import rabbitmqctl

#: Messages that come with time, not with requests. Filter queries are batched over changes.
BACKGROUND = {
    "echo",
    "report_state",
    "report_service",
    "register_host",
    "host_states_get",
    "audit_record",
    "report_load",
    "domains_expected",
    "reconcile_domains",
    "port_filters_get",
    "refresh_security_groups",
}


class Listener:
    """``with Listener(vhost) as heard``: ``heard.messages`` grows while the block runs.

    Each is (kind, method): kind is ``call``, ``cast`` or ``fanout`` for requests and ``reply`` for answers, which have
    the method of their call.
    """

    def __init__(self, vhost: str) -> None:
        self.vhost = vhost
        self.messages: list[tuple[str, str]] = []
        #: Methods of requests with their arguments.
        self.arguments: list[tuple[str, dict[str, Any]]] = []
        self._calls: dict[str, str] = {}
        self._stop = threading.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def __enter__(self) -> Listener:
        rabbitmqctl("trace_on", "-p", self.vhost)
        self._thread.start()
        assert self._ready.wait(30), "the tracer's queue could not be bound"
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join(30)
        rabbitmqctl("trace_off", "-p", self.vhost)

    def requested(self) -> Counter[tuple[str, str]]:
        """Return the messages that were sent on behalf of requests."""
        return Counter(message for message in self.messages if message[1] not in BACKGROUND)

    def _listen(self) -> None:
        with kombu.Connection(f"amqp://guest:guest@127.0.0.1:5672/{self.vhost}") as connection:
            exchange = kombu.Exchange("amq.rabbitmq.trace", "topic", durable=True, passive=True, internal=True)
            queue = kombu.Queue(exchange=exchange, routing_key="publish.#", exclusive=True, auto_delete=True)
            with connection.Consumer(queue, callbacks=[self._hear], no_ack=True, accept=None):
                self._ready.set()
                while not self._stop.is_set():
                    try:
                        connection.drain_events(timeout=0.2)
                    except TimeoutError:
                        continue

    def _hear(self, body: Any, message: Any) -> None:
        raw = body if isinstance(body, str | bytes) else json.dumps(body)
        envelope = json.loads(raw)
        content = json.loads(envelope["oslo.message"]) if "oslo.message" in envelope else envelope
        key = message.headers.get("routing_keys", [""])[0]
        exchange = message.headers.get("exchange_name", "")
        if "method" in content:
            kind = "call" if content.get("_msg_id") else "fanout" if "fanout" in exchange + key else "cast"
            if kind == "call":
                self._calls[content["_msg_id"]] = content["method"]
            self.messages.append((kind, content["method"]))
            self.arguments.append((content["method"], content["args"]))
        elif content.get("_msg_id") in self._calls:  # others answer calls from before it listened: heartbeats
            self.messages.append(("reply", self._calls[content["_msg_id"]]))
