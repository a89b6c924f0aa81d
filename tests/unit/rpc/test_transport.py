"""A transport: its end while work in the background still sends, and reads that a broker did not take."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from typing import Any

import oslo_messaging as messaging
import pytest

from nova_lite import rpc
from nova_lite.base import exceptions
from nova_lite.base.context import get_admin_context
from nova_lite.rpc import transport as transport_module
from nova_lite.rpc.client import ECHO, Message
from tests.support.ports import free_port
from tests.support.waiting import wait_for

MESSAGE = Message("conductor", ECHO, get_admin_context())


def test_closed_transport_sends_nothing(transport: rpc.Transport) -> None:
    transport.cleanup()
    with pytest.raises(exceptions.MessagingUnavailable, match="this daemon has stopped"):
        transport.cast(MESSAGE)
    with pytest.raises(exceptions.MessagingUnavailable, match="this daemon has stopped"):
        transport.call(MESSAGE)


def test_transport_is_closed_when_the_last_message_is_sent(
    transport: rpc.Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new message is refused meanwhile."""
    order: list[str] = []
    monkeypatch.setattr(transport._current, "cleanup", lambda: order.append("closed"))
    closing = threading.Thread(target=transport.cleanup)
    with transport._connected():
        closing.start()
        wait_for("it is being closed", lambda: transport._closed, 30)
        with pytest.raises(exceptions.MessagingUnavailable):
            transport.cast(MESSAGE)
        order.append("sent")
    closing.join(30)
    assert order == ["sent", "closed"]


READ = dataclasses.replace(MESSAGE, is_read=True)


@pytest.fixture
def lossy(transport: rpc.Transport, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[Message]]:
    """Return a function: it lets so many first calls fail, and returns the sent messages."""
    monkeypatch.setattr(transport_module, "_RESEND_AFTER", (0.0, 0.0, 0.0))
    sent: list[Message] = []

    def fail(times: int) -> list[Message]:
        def once(message: Message, signed: Any) -> str:
            sent.append(message)
            if len(sent) <= times:
                raise messaging.MessageDeliveryFailure("the connection was reset")
            return "the reply"

        monkeypatch.setattr(transport, "_call_once", once)
        return sent

    return fail


@pytest.mark.parametrize("failures", [0, 1, 3])
def test_read_that_a_lost_broker_did_not_take_is_answered_by_the_next(
    transport: rpc.Transport, lossy: Callable[[int], list[Message]], failures: int
) -> None:
    sent = lossy(failures)
    assert (transport.call(READ), len(sent)) == ("the reply", failures + 1)


@pytest.mark.parametrize(
    ("message", "failures", "tries"), [(MESSAGE, 1, 1), (READ, 9, 4)], ids=["a change", "no broker takes it"]
)
def test_call_that_is_not_taken_is_unavailable(
    transport: rpc.Transport, lossy: Callable[[int], list[Message]], message: Message, failures: int, tries: int
) -> None:
    sent = lossy(failures)
    with pytest.raises(exceptions.MessagingUnavailable):
        transport.call(message)
    assert len(sent) == tries


def test_read_is_not_sent_again_without_a_broker(
    transport: rpc.Transport, lossy: Callable[[int], list[Message]]
) -> None:
    sent = lossy(9)
    transport.conf.set_override("transport_url", f"rabbit://u:p@127.0.0.1:{free_port()}/")
    with pytest.raises(exceptions.MessagingUnavailable, match="cannot be reached"):
        transport.call(READ)
    assert len(sent) == 1
