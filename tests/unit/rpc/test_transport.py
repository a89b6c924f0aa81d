"""The end of a transport, while work in the background still sends."""

from __future__ import annotations

import threading

import pytest

from nova_lite import rpc
from nova_lite.base import exceptions
from nova_lite.base.context import get_admin_context
from nova_lite.rpc.client import ECHO, Message
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
