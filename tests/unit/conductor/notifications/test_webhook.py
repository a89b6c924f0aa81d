"""Webhooks against a real HTTP server: signed requests, and what a response means."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import hmac
import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from oslo_config import cfg

from nova_lite import conf as configuration
from nova_lite.base import exceptions
from nova_lite.base.timing import TIMING
from nova_lite.conductor.notifications import webhook
from nova_lite.conductor.notifications.courier import RefusedError
from nova_lite.conductor.notifications.service import channels_of
from nova_lite.conductor.notifications.webhook import DeliveryError, WebhookChannel
from nova_lite.conf.notifications import WebhookUrl
from nova_lite.db.core.outbox import Waiting
from tests.support.http_site import make_certificate

SECRET = b"0123456789abcdef0123456789abcdef"
ITEM = Waiting(
    id=1,
    channel="w",
    message_id="11111111-1111-4111-8111-111111111111",
    event_type="instance.pause.end",
    publisher_id="nova-compute:h1",
    priority="INFO",
    context={"request_id": "req-1"},
    payload={"nova_object.name": "InstanceActionPayload", "text": "ä"},
    created_at=datetime.datetime(2026, 1, 2, 3, 4, 5),
)


class Receiver(ThreadingHTTPServer):
    """Records requests, and answers with ``status``."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 204
        #: Seconds between two bytes of the response.
        self.pause = 0.0
        self.patience = threading.Event()
        self.requests: list[tuple[str, dict[str, str], bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/events?a=b"


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append((self.path, dict(self.headers), body))
        if self.server.pause:
            self._trickle()
            return
        self.send_response(self.server.status)
        self.send_header("Location", self.server.url)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _trickle(self) -> None:
        """Send a good response, byte by byte, until the client goes away."""
        with contextlib.suppress(OSError):
            for byte in b"HTTP/1.1 204 No Content\r\nX-Padding: " + b"x" * 1000 + b"\r\n\r\n":
                self.wfile.write(bytes([byte]))
                self.server.patience.wait(self.server.pause)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def receiving(receiver: Receiver) -> Iterator[Receiver]:
    thread = threading.Thread(target=receiver.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.shutdown()
        receiver.server_close()
        thread.join(10)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving(Receiver()) as made:
        yield made


def channel(url: str, cafile: str = "", timeout: float = 30.0) -> WebhookChannel:
    return WebhookChannel(url, SECRET, webhook.tls_context(cafile), timeout)


def test_request_is_signed_over_its_time_and_body(receiver: Receiver) -> None:
    channel(receiver.url).send(ITEM)
    ((path, headers, body),) = receiver.requests
    assert path == "/events?a=b"
    signed = headers["X-Nova-Lite-Timestamp"].encode() + b"." + body
    assert headers["X-Nova-Lite-Signature"] == "sha256=" + hmac.new(SECRET, signed, hashlib.sha256).hexdigest()
    assert headers["X-Nova-Lite-Message-Id"] == ITEM.message_id
    assert headers["X-Nova-Lite-Event"] == ITEM.event_type
    assert headers["Content-Type"] == "application/json"
    assert json.loads(body) == {
        "message_id": ITEM.message_id,
        "event_type": "instance.pause.end",
        "publisher_id": "nova-compute:h1",
        "priority": "INFO",
        "timestamp": "2026-01-02T03:04:05Z",
        "payload": ITEM.payload,
    }


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirect_is_a_failure_and_is_not_followed(receiver: Receiver, status: int) -> None:
    receiver.status = status
    with pytest.raises(DeliveryError, match=str(status)):
        channel(receiver.url).send(ITEM)
    assert len(receiver.requests) == 1


@pytest.mark.parametrize("status", [401, 403, 404, 408, 410, 429, 500, 503])
def test_status_that_may_change_is_tried_again(receiver: Receiver, status: int) -> None:
    receiver.status = status
    with pytest.raises(DeliveryError, match=str(status)):
        channel(receiver.url).send(ITEM)


@pytest.mark.parametrize("status", [400, 413, 415, 422])
def test_status_about_the_notification_itself_is_final(receiver: Receiver, status: int) -> None:
    receiver.status = status
    with pytest.raises(RefusedError, match=str(status)):
        channel(receiver.url).send(ITEM)


def test_consumer_that_is_away_is_a_failure(receiver: Receiver) -> None:
    url = receiver.url
    receiver.server_close()
    with pytest.raises(OSError, match=r"refused|reset"):  # reset while the receiver's thread still polls its socket
        channel(url).send(ITEM)


def test_response_that_trickles_ends_at_the_total_limit(receiver: Receiver) -> None:
    """Each byte comes well before the limit, and the last one never would."""
    receiver.pause = 0.05
    with pytest.raises(TimeoutError, match=r"no response within 0\.5 seconds"):
        channel(receiver.url, timeout=0.5).send(ITEM)
    receiver.patience.set()
    assert len(receiver.requests) == 1


def test_https_needs_a_certificate_of_a_known_authority(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    receiver = Receiver()
    receiver.socket = context.wrap_socket(receiver.socket, server_side=True)
    url = f"https://127.0.0.1:{receiver.server_port}/"
    with receiving(receiver):
        channel(url, certificate).send(ITEM)
        with pytest.raises(ssl.SSLCertVerificationError):
            channel(url).send(ITEM)
    assert len(receiver.requests) == 1


def test_names_of_webhooks_differ_by_url_and_reveal_none_of_it() -> None:
    first, second = channel("https://h/token-1"), channel("https://h/token-2")
    assert first.name != second.name
    assert len(first.name) <= 64
    assert "token" not in first.name + first.label


@pytest.mark.parametrize(
    "url", ["https://consumer/x", "https://[2001:db8::1]:8443/", "http://127.0.0.1:8080/", "http://localhost/a?b"]
)
def test_url_of_a_webhook_is_accepted(url: str) -> None:
    assert WebhookUrl()(url) == url


@pytest.mark.parametrize(
    "url",
    [
        "http://consumer/",
        "ftp://127.0.0.1/",
        "consumer",
        "https:///path",
        "https://user:secret@host/",
        "https://h:99999/",
        "https://h:0/",
        "https://h/#a",
        "https://h/a b",
        "https://h/\r\nX: y",
        "https://[::1",
    ],
)
def test_url_of_a_webhook_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"URL|encryption|percent"):
        WebhookUrl()(url)


def options(path: Path, **values: str) -> cfg.ConfigOpts:
    file = path / "nova-lite.conf"
    lines = "".join(f"{name} = {value}\n" for name, value in values.items())
    file.write_text(f"[DEFAULT]\ntransport_url = fake:/\n[notifications]\n{lines}")
    conf = cfg.ConfigOpts()
    configuration.register_opts(conf)
    conf(["--config-file", str(file)], default_config_files=[])
    return conf


def secret_file(path: Path, text: str = SECRET.decode() + "\n", mode: int = 0o600) -> str:
    file = path / "secret"
    file.write_text(text)
    file.chmod(mode)
    return str(file)


def test_channels_are_the_webhooks_of_the_options(tmp_path: Path) -> None:
    urls = "https://a/, https://b/, https://a/"
    conf = options(tmp_path, webhooks=urls, webhook_secret_file=secret_file(tmp_path))
    found = list(channels_of(conf, TIMING.conductor))
    assert [item.label for item in found] == ["webhook a:443", "webhook b:443"]
    assert list(channels_of(options(tmp_path), TIMING.conductor)) == []


def test_webhooks_without_a_good_secret_are_a_mistake(tmp_path: Path) -> None:
    for values, mistake in (
        ({}, "webhook_secret_file has to be set"),
        ({"webhook_secret_file": secret_file(tmp_path, "short")}, "at least 32 characters"),
        ({"webhook_secret_file": str(tmp_path / "absent")}, "No such file"),
    ):
        conf = options(tmp_path, webhooks="https://a/", **values)
        with pytest.raises(exceptions.ConfigurationError, match=mistake):
            list(channels_of(conf, TIMING.conductor))
    conf = options(tmp_path, webhooks="https://a/", webhook_secret_file=secret_file(tmp_path, mode=0o644))
    with pytest.raises(exceptions.ConfigurationError, match="can be read by others"):
        list(channels_of(conf, TIMING.conductor))


def test_authorities_without_certificates_are_a_mistake(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("no certificate")
    with pytest.raises(exceptions.ConfigurationError, match="webhook_cafile"):
        webhook.tls_context(str(file))


def test_url_that_is_no_webhook_is_found_when_the_options_are_read(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="use https"):
        configuration.check(options(tmp_path, webhooks="http://consumer/"))
