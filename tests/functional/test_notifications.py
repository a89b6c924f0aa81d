"""Notifications of a real cloud: on the bus, for a listener of oslo.messaging, and by a webhook."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import oslo_messaging as messaging
import pytest
from oslo_config import cfg

from tests.functional import cloud
from tests.functional.server_requests import ask
from tests.support.waiting import wait_for

SECRET = "a secret of thirty-two characters and more"

CONFIG = """
[oslo_messaging_notifications]
driver = messagingv2
[notifications]
notification_format = both
webhooks = {url}
webhook_secret_file = {secret_file}
"""

LIFE = [
    "instance.create.start",
    "instance.create.end",
    "instance.pause.start",
    "instance.pause.end",
    "instance.delete.start",
    "instance.delete.end",
]


class Receiver(ThreadingHTTPServer):
    """A webhook. ``before_reply`` is called with each message id."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.before_reply: Callable[[str], None] = lambda message_id: None
        self.got: list[dict[str, Any]] = []

    def of_server(self, server_id: str) -> list[tuple[str, str]]:
        """Return type and id of each notification about a server, in the order of their arrival."""
        found = [item for item in self.got if item["payload"]["nova_object.data"]["uuid"] == server_id]
        return [(item["event_type"], item["message_id"]) for item in found]


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        signed = self.headers["X-Nova-Lite-Timestamp"].encode() + b"." + body
        expected = "sha256=" + hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()
        if not hmac.compare_digest(expected, self.headers["X-Nova-Lite-Signature"]):
            self.send_error(401)
            return
        item = json.loads(body)
        self.server.got.append(item)
        self.server.before_reply(item["message_id"])
        with contextlib.suppress(ConnectionError):  # the conductor may be dead by now
            self.send_response(204)
            self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


class Heard:
    """An endpoint of a listener: records what it receives."""

    def __init__(self) -> None:
        self.got: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = []

    def info(
        self, context: dict[str, Any], publisher: str, event_type: str, payload: dict[str, Any], metadata: Any
    ) -> None:
        self.got.append((event_type, publisher, payload, context))


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture(scope="module")
def notifying(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver) -> Iterator[cloud.Cloud]:
    path: Path = tmp_path_factory.mktemp("notifications")
    secret_file = path / "secret"
    secret_file.write_text(SECRET)
    secret_file.chmod(0o600)
    config = CONFIG.format(url=f"http://127.0.0.1:{receiver.server_port}/", secret_file=secret_file)
    with cloud.running(path, extra_config=config) as running:
        yield running


@contextlib.contextmanager
def listening(running: cloud.Cloud, topic: str) -> Iterator[Heard]:
    """Receive notifications as Nova's consumers do."""
    conf = cfg.ConfigOpts()
    conf([])
    url = f"rabbit://guest:guest@127.0.0.1:{running.broker_port}/{running.vhost}"
    transport = messaging.get_notification_transport(conf, url=url)
    heard = Heard()
    target = messaging.Target(topic=topic, exchange="nova")
    listener = messaging.get_notification_listener(transport, [target], [heard], executor="threading")
    listener.start()
    try:
        yield heard
    finally:
        listener.stop()
        listener.wait()
        transport.cleanup()


def live(running: cloud.Cloud) -> str:
    """Create, pause and delete a server. Returns its id."""
    (server_id,) = running.create()
    running.wait_active([server_id])
    ask(running, "POST", f"/servers/{server_id}/action", {"pause": None}, 202)
    running.wait_settled([server_id])
    ask(running, "DELETE", f"/servers/{server_id}", status=204)
    return server_id


def of_servers(heard: Heard) -> list[str]:
    """Return the types of older events about servers. The scheduler's own events have the same topic."""
    return [item[0] for item in heard.got if item[0].startswith("compute.instance.")]


def test_life_of_a_server_is_notified_on_the_bus_and_by_the_webhook(notifying: cloud.Cloud, receiver: Receiver) -> None:
    with listening(notifying, "versioned_notifications") as versioned, listening(notifying, "notifications") as older:
        server_id = live(notifying)

        def types() -> list[str]:
            return [item[0] for item in versioned.got if item[2]["nova_object.data"]["uuid"] == server_id]

        wait_for("the life on the bus", lambda: types() == LIFE)
        wait_for("the older events", lambda: len(of_servers(older)) == len(LIFE))
        wait_for("the webhook's events", lambda: len(receiver.of_server(server_id)) == len(LIFE))
    assert of_servers(older) == [f"compute.{event_type}" for event_type in LIFE]
    assert [event_type for event_type, _ in receiver.of_server(server_id)] == LIFE
    ended = versioned.got[1]
    assert ended[1] == "nova-compute:compute-1"
    assert ended[2]["nova_object.name"] == "InstanceCreatePayload"
    assert ended[2]["nova_object.data"]["request_id"] == ended[3]["request_id"]
    by_webhook = next(item for item in receiver.got if item["event_type"] == "instance.create.end")
    assert by_webhook["payload"] == ended[2]


def test_conductor_that_is_killed_between_delivery_and_its_record_delivers_again(
    notifying: cloud.Cloud, receiver: Receiver
) -> None:
    """The webhook gets the notification twice, with the same id, and none is lost."""
    (server_id,) = notifying.create()
    notifying.wait_active([server_id])
    wait_for("the create's end", lambda: len(receiver.of_server(server_id)) == 2)
    killed: list[str] = []

    def kill(message_id: str) -> None:
        receiver.before_reply = lambda message_id: None
        killed.append(message_id)
        notifying.kill("conductor")

    receiver.before_reply = kill
    ask(notifying, "POST", f"/servers/{server_id}/action", {"pause": None}, 202)
    wait_for("the death of the conductor", lambda: killed and "conductor" not in notifying.processes)
    notifying.start("conductor")
    wait_for(
        "both events", lambda: [item[0] for item in receiver.of_server(server_id)][2:] == LIFE[2:3] * 2 + LIFE[3:4]
    )
    first, again, _ = receiver.of_server(server_id)[2:]
    assert first == again == ("instance.pause.start", killed[0])
