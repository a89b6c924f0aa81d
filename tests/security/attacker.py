"""A cloud whose daemons each have a key and a broker account, and an attacker who has taken one of its compute hosts.

`Attacker` has the means of a compute host: its configuration, its key, its broker account. It speaks to the broker
itself, so that nothing of ours is in its way.
"""

from __future__ import annotations

import itertools
import json
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import amqp
import kombu
from oslo_config import cfg

from nova_lite import conf as configuration
from nova_lite import rpc
from nova_lite.base.context import get_admin_context
from nova_lite.rpc import broker
from nova_lite.rpc.client import Message, to_plain
from nova_lite.rpc.keys import COMPUTE
from nova_lite.rpc.signing import Signing
from tests.functional.cloud import Cloud, rabbitmqctl, role_of
from tests.support.waiting import wait_for

PASSWORD = "a password for tests"
#: The default exchange: whoever may send to it reaches each queue by its name.
DEFAULT = ""

ROWS = ("instances", "instance_actions", "allocations", "migrations", "images", "key_pairs", "services", "flavors")
#: Columns that heartbeats change.
BEATS = ("last_seen_up", "updated_at", "lease_expires_at", "up", "report_count", "version_since")


#: The host that another host attacks.
VICTIM = "compute-2"


def failure_of(answer: dict[str, Any]) -> str:
    """Return the class of the error in a reply, or an empty string if there is none."""
    failure = answer["failure"] or (answer["result"] or {}).get("failure")
    return "" if failure is None else str(json.loads(failure)["class"])


def versions_of(protocol: type) -> dict[str, str]:
    return {name: method.since for name, method in rpc.contract_of(protocol).methods.items()}


class SecuredCloud(Cloud):
    """Every daemon has its own account, with the permissions of `nova_lite.rpc.broker`."""

    def account(self, name: str) -> str:
        return f"{self.vhost}-{name}"

    def url(self, user: str, password: str = PASSWORD) -> str:
        return f"amqp://{user}:{password.replace(' ', '%20')}@127.0.0.1:{self.broker_port}/{self.vhost}"

    def make_vhost(self) -> None:
        super().make_vhost()
        for name in self.names:
            user, found = self.account(name), broker.permissions(role_of(name), self.host_of(name))
            rabbitmqctl("add_user", user, PASSWORD)
            rabbitmqctl("set_permissions", "-p", self.vhost, user, found.configure, found.write, found.read)
            topics = (broker.EXCHANGE, found.topic_write, found.topic_read)
            rabbitmqctl("set_topic_permissions", "-p", self.vhost, user, *topics)

    def delete_vhost(self) -> None:
        super().delete_vhost()
        for name in self.names:
            rabbitmqctl("delete_user", self.account(name))

    def _write_config(self, name: str) -> None:
        super()._write_config(name)
        file = self.path / f"{name}.conf"
        old = f"rabbit://guest:guest@127.0.0.1:{self.broker_port}/{self.vhost}"
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, self.url(self.account(name)).replace("amqp:", "rabbit:")))

    def rows(self) -> dict[str, list[Any]]:
        """Return the database's content, without the columns that heartbeats change."""
        with sqlite3.connect(f"file:{self.path}/nova-lite.sqlite?mode=ro", uri=True) as database:
            database.row_factory = sqlite3.Row
            return {
                table: [
                    {key: row[key] for key in row.keys() if key not in BEATS}  # noqa: SIM118
                    for row in database.execute(f"SELECT * FROM {table} ORDER BY id")
                ]
                for table in ROWS
            }

    def text_of(self, name: str) -> str:
        return (self.path / f"{name}.log").read_text(errors="replace")

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        before, domains = self.rows(), self.domains()
        yield
        after = self.rows()
        changes = {
            table: [(old, new) for old, new in itertools.zip_longest(before[table], after[table]) if old != new]
            for table in ROWS
        }
        assert not any(changes.values()), changes
        assert self.domains() == domains

    @contextmanager
    def refuses(self, name: str, why: str, times: int = 1) -> Iterator[None]:
        """Expect that the daemon ``name`` logs so many refusals with this reason, and that nothing changes."""
        before = self.text_of(name).count(why)
        with self.unchanged():
            yield
            wait_for(f"{name} refuses: {why}", lambda: self.text_of(name).count(why) >= before + times, 20)


class Attacker:
    """Attacker with everything that host ``name`` has. ``role``: of the daemon whose key signs."""

    def __init__(self, cloud: SecuredCloud, name: str, keys: str | None = None, role: str = COMPUTE) -> None:
        self.cloud = cloud
        self.name = name
        self.connection = kombu.Connection(cloud.url(cloud.account(name)), heartbeat=0)
        self.connection.connect()
        conf = cfg.ConfigOpts()
        configuration.register_opts(conf)
        conf(cloud.config_arguments(name), project="nova-lite", default_config_files=[])
        if keys is not None:
            conf.set_override("keys_directory", keys, group="rpc")
        self.signing = Signing(conf, role, name)

    def close(self) -> None:
        self.connection.release()

    def signed(self, topic: str, server: str | None, method: str, version: str = "2.0", **arguments: Any) -> Any:
        """Build a message with its context as this host signs it."""
        values = {name: to_plain(value) for name, value in arguments.items()}
        message = Message(topic, method, get_admin_context(), server, version, arguments=values)
        return message, self.signing.signed(message)[0]

    def send(self, message: Message, context: dict[str, Any], queue: str | None = None, **more: Any) -> None:
        """Send it to its receiver's queue, by the default exchange."""
        body = {
            "method": message.method,
            "args": message.arguments,
            "version": message.version,
            "_unique_id": uuid.uuid4().hex,
            **{f"_context_{key}": value for key, value in context.items()},
            **more,
        }
        to = queue or (f"{message.topic}.{message.server}" if message.server else message.topic)
        self.publish(DEFAULT, to, body)

    def order(self, topic: str, server: str | None, method: str, version: str = "2.0", **arguments: Any) -> None:
        self.send(*self.signed(topic, server, method, version, **arguments))

    def ask(self, topic: str, server: str | None, method: str, version: str = "2.0", **arguments: Any) -> Any:
        """Call a method and return the body of the reply to this host's queue, with ``result`` or ``failure``."""
        return self.asked(*self.signed(topic, server, method, version, **arguments))

    def told(self, topic: str, server: str | None, method: str, version: str = "2.0", **arguments: Any) -> Any:
        """Return the result of such a call, without verifying its signature."""
        return json.loads(self.ask(topic, server, method, version, **arguments)["result"]["text"])

    def asked(self, message: Message, context: dict[str, Any]) -> Any:
        replies, call = broker.reply_queues(COMPUTE, self.name) + uuid.uuid4().hex, uuid.uuid4().hex
        with self.channel() as channel:
            channel.queue_declare(replies, auto_delete=False, arguments={"x-expires": 60000})
            self.send(message, context, _msg_id=call, _reply_q=replies, _timeout=None)
            found = wait_for(f"{message.method} is answered", lambda: channel.basic_get(replies, no_ack=True), 20)
            channel.queue_delete(replies)
        answer = json.loads(json.loads(found.body)["oslo.message"])
        assert answer["_msg_id"] == call
        return answer

    def publish(self, exchange: str, routing_key: str, body: dict[str, Any]) -> None:
        """Publish with the broker's confirmation, so that a refusal raises an error."""
        wrapped = {"oslo.version": "2.0", "oslo.message": json.dumps(body)}
        with self.channel() as channel:
            channel.confirm_select()
            text = json.dumps(wrapped)
            message = amqp.Message(text, content_type="application/json", content_encoding="utf-8")
            channel.basic_publish_confirm(message, exchange=exchange, routing_key=routing_key, mandatory=True)

    @contextmanager
    def channel(self) -> Iterator[Any]:
        """Open a private channel: the broker closes a channel on which it refuses something."""
        channel = self.connection.channel()
        try:
            yield channel
        finally:
            if channel.is_open:
                channel.close()

    def refused(self, act: Callable[[Any], Any]) -> None:
        """Check that the broker refuses ``act``, which gets a channel."""
        try:
            with self.channel() as channel:
                act(channel)
        except amqp.exceptions.AccessRefused:
            return
        raise AssertionError("the broker lets it")


class Tap:
    """The broker's operator hears what goes to a routing key: messages, as they are on the wire."""

    def __init__(self, cloud: SecuredCloud, *routing_keys: str) -> None:
        self._connection = kombu.Connection(cloud.url("guest", "guest"))
        exchange = kombu.Exchange(broker.EXCHANGE, "topic", durable=False, passive=True)
        queue = kombu.Queue(f"tap-{uuid.uuid4().hex}", exclusive=True, auto_delete=True)
        self._queue = queue(self._connection.channel())
        self._queue.declare()
        for key in routing_keys:
            self._queue.bind_to(exchange, routing_key=key)

    def next(self, method: str) -> SimpleNamespace:
        """Return the next message of this method: ``body``, ``message`` and ``context``."""

        def look() -> Any:
            while (got := self._queue.get(no_ack=True, accept=None)) is not None:
                envelope = got.payload if isinstance(got.payload, dict) else json.loads(got.payload)
                body = json.loads(envelope["oslo.message"])
                if body.get("method") == method:
                    return body
            return None

        body = wait_for(f"{method} is heard", look, 30)
        context = {key[9:]: value for key, value in body.items() if key.startswith("_context_")}
        message = Message("", method, get_admin_context(), None, body["version"], arguments=body["args"])
        return SimpleNamespace(body=body, message=message, context=context)

    def close(self) -> None:
        self._connection.release()
