"""A webhook as a channel: signed POST requests to one URL."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import json
import ssl
import time
import urllib.parse

from nova_lite.base import key_files
from nova_lite.base.exceptions import ConfigurationError
from nova_lite.base.timed_socket import TimedSocket
from nova_lite.conductor.notifications.courier import RefusedError
from nova_lite.db.core.outbox import Waiting

#: Shortest secret that is accepted.
MIN_SECRET = 32

#: Statuses that are about this one notification, so that another attempt would have the same result.
_REFUSED = frozenset({400, 413, 415, 422})


class DeliveryError(Exception):
    """The webhook did not confirm the notification."""


def read_secret(path: str) -> bytes:
    """Return the secret of a file. Raises `ConfigurationError` for a file that others may read, or a short secret."""
    option = "[notifications] webhook_secret_file"
    if not path:
        raise ConfigurationError(reason=f"{option} has to be set for [notifications] webhooks")
    key_files.check(path, option, hidden_from=0o007, chmod="0640")
    with open(path, "rb") as file:
        secret = file.read().strip()
    if len(secret) < MIN_SECRET:
        raise ConfigurationError(reason=f"{option}: {path} has to have at least {MIN_SECRET} characters in one line")
    return secret


def tls_context(cafile: str) -> ssl.SSLContext:
    """Return the context for requests to webhooks. ``cafile``: certificates of authorities; "": the system's."""
    option = "[notifications] webhook_cafile"
    if cafile:
        key_files.check(cafile, option)
    try:
        context = ssl.create_default_context(cafile=cafile or None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(reason=f"{option}: {cafile} has no certificates: {error}") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def sign(secret: bytes, timestamp: str, body: bytes) -> str:
    """Return the signature of a request: HMAC-SHA256 of the timestamp, a dot, and the body."""
    return "sha256=" + hmac.new(secret, timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


class WebhookChannel:
    """Posts versioned notifications to a URL. It follows no redirect and uses no proxy."""

    versioned = True
    max_attempts: int | None = 10

    def __init__(self, url: str, secret: bytes, context: ssl.SSLContext, timeout: float) -> None:
        parts = urllib.parse.urlsplit(url)
        self.name = "webhook-" + hashlib.sha256(url.encode()).hexdigest()[:32]
        self.label = f"webhook {parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"
        self._is_tls = parts.scheme == "https"
        self._host, self._port = str(parts.hostname), parts.port
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._secret = secret
        self._context = context
        self._timeout = timeout

    def send(self, notification: Waiting) -> None:
        body = body_of(notification)
        timestamp = str(int(time.time()))
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "nova-lite",
            "X-Nova-Lite-Event": notification.event_type,
            "X-Nova-Lite-Message-Id": notification.message_id,
            "X-Nova-Lite-Timestamp": timestamp,
            "X-Nova-Lite-Signature": sign(self._secret, timestamp, body),
        }
        try:
            status = self._post(body, headers)
        except TimeoutError as error:
            raise TimeoutError(f"no response within {self._timeout:g} seconds") from error
        if status in _REFUSED:
            raise RefusedError(f"status {status}")
        if not 200 <= status < 300:
            raise DeliveryError(f"status {status}")

    def close(self) -> None:
        """Do nothing: each request has a connection of its own."""

    def _post(self, body: bytes, headers: dict[str, str]) -> int:
        """Return the status of the response, whose head has to arrive before the request's deadline."""
        deadline = time.monotonic() + self._timeout
        with contextlib.closing(self._connection()) as connection:
            connection.connect()
            connection.sock = TimedSocket(connection.sock, deadline)
            connection.request("POST", self._path, body, headers)
            return connection.getresponse().status

    def _connection(self) -> http.client.HTTPConnection:
        if self._is_tls:
            return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout, context=self._context)
        return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)


def body_of(notification: Waiting) -> bytes:
    """Return the body of the request: the notification as JSON, as it would be on the bus."""
    fields = {
        "message_id": notification.message_id,
        "event_type": notification.event_type,
        "publisher_id": notification.publisher_id,
        "priority": notification.priority,
        "timestamp": notification.created_at.isoformat() + "Z",
        "payload": notification.payload,
    }
    return json.dumps(fields, ensure_ascii=True, separators=(",", ":")).encode()
