"""The bus as a channel, over oslo.messaging's driver in memory."""

from __future__ import annotations

import datetime
import socket
import threading
from collections.abc import Iterator
from typing import Any

import kombu.exceptions
import oslo_messaging as messaging
import pytest
from oslo_config import cfg

from nova_lite import conf as configuration
from nova_lite.base.timing import TIMING
from nova_lite.conductor.notifications.bus import BusChannel
from nova_lite.conductor.notifications.service import channels_of
from nova_lite.db.core.outbox import Waiting

ITEM = Waiting(
    id=1,
    channel="versioned",
    message_id="11111111-1111-4111-8111-111111111111",
    event_type="instance.pause.end",
    publisher_id="nova-compute:h1",
    priority="INFO",
    context={"request_id": "req-1", "user_id": "u", "project_id": "p"},
    payload={"nova_object.name": "InstanceActionPayload"},
    created_at=datetime.datetime(2026, 1, 2, 3, 4, 5, 6),
)


def options(url: str = "fake:/", driver: str = "messagingv2", form: str = "versioned") -> cfg.ConfigOpts:
    conf = cfg.ConfigOpts()
    configuration.register_opts(conf)
    conf([], default_config_files=[])
    transport = messaging.get_notification_transport(conf, url=url)  # registers the options
    messaging.Notifier(transport, publisher_id="", driver="noop")
    conf.set_override("transport_url", url)
    conf.set_override("driver", [driver], "oslo_messaging_notifications")
    conf.set_override("notification_format", form, "notifications")
    return conf


def bus(conf: cfg.ConfigOpts, *topics: str) -> BusChannel:
    return BusChannel(conf, topics, versioned=True, envelope=2.0)


class Heard:
    """An endpoint. ``complete``: it has six notifications."""

    def __init__(self) -> None:
        self.got: list[tuple[Any, ...]] = []
        self.complete = threading.Event()

    def info(self, *arguments: Any) -> None:
        self._add("info", *arguments)

    def error(self, *arguments: Any) -> None:
        self._add("error", *arguments)

    def _add(self, *item: Any) -> None:
        self.got.append(item)
        if len(self.got) == 6:
            self.complete.set()


@pytest.fixture
def heard() -> Iterator[tuple[BusChannel, Heard]]:
    conf = options()
    channel, endpoint = bus(conf, "one", "two"), Heard()
    targets = [messaging.Target(topic=topic, exchange="nova") for topic in ("one", "two")]
    listener = messaging.get_notification_listener(channel._transport, targets, [endpoint], executor="threading")
    listener.start()
    yield channel, endpoint
    listener.stop()
    listener.wait()


def test_bus_sends_to_each_topic_with_the_same_message_id_at_each_attempt(
    heard: tuple[BusChannel, Heard],
) -> None:
    channel, endpoint = heard
    channel.send(ITEM)
    channel.send(ITEM._replace(attempts=1))
    channel.send(ITEM._replace(priority="ERROR", event_type="instance.pause.error"))
    assert endpoint.complete.wait(30)
    assert sorted(item[0] for item in endpoint.got) == ["error"] * 2 + ["info"] * 4
    for level, context, publisher_id, event_type, payload, metadata in endpoint.got:
        assert context["request_id"] == "req-1"
        assert publisher_id == "nova-compute:h1"
        assert event_type == f"instance.pause.{'end' if level == 'info' else 'error'}"
        assert payload == ITEM.payload
        assert metadata == {"message_id": ITEM.message_id, "timestamp": "2026-01-02 03:04:05.000006"}


def test_bus_without_a_broker_fails_at_once() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"rabbit://guest:guest@127.0.0.1:{unused.getsockname()[1]}/v"
        with pytest.raises(kombu.exceptions.OperationalError, match="refused"):
            bus(options(url), "one").send(ITEM)


@pytest.mark.parametrize(
    ("driver", "form", "expected"),
    [
        ("messagingv2", "versioned", ["versioned"]),
        ("messaging", "unversioned", ["unversioned"]),
        ("messagingv2", "both", ["versioned", "unversioned"]),
        ("noop", "both", []),
        ("", "versioned", []),
    ],
)
def test_format_and_driver_select_the_channels(driver: str, form: str, expected: list[str]) -> None:
    found = list(channels_of(options(driver=driver, form=form), TIMING.conductor))
    assert [channel.name for channel in found] == expected
    for channel in found:
        assert isinstance(channel, BusChannel)
        assert list(channel.topics) == (["versioned_notifications"] if channel.versioned else ["notifications"])
        assert channel.envelope == (2.0 if driver == "messagingv2" else 1.0)
