"""A read that is sent again while it has no reply (`nova_lite.rpc.patches`)."""

from __future__ import annotations

import sys
from typing import Any

import oslo_messaging as messaging
import pytest
from oslo_messaging._drivers import amqpdriver, common

from nova_lite.base import exceptions
from nova_lite.rpc import patches


def refusal(why: str) -> dict[str, Any]:
    try:
        raise exceptions.MessageRefused(topic="conductor", server="c1", method="instance_get", why=why)
    except exceptions.MessageRefused:
        return {"result": None, "failure": common.serialize_remote_exception(sys.exc_info())}


@pytest.fixture
def get(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Provide a wait for replies. The first one ends without a reply; then the copy and the read have one each."""
    replies: list[Any] = [messaging.MessagingTimeout()]

    def reply(waiters: Any, msg_id: str, timeout: float) -> Any:
        found = replies.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(amqpdriver.AMQPDriverBase, "send", amqpdriver.AMQPDriverBase.send)
    monkeypatch.setattr(amqpdriver.ReplyWaiters, "get", reply)
    patches._repeat_late_reads()
    monkeypatch.setattr(patches._repeating, "again", lambda left: None, raising=False)

    def answered(*more: Any) -> Any:
        replies.extend(more)
        return amqpdriver.ReplyWaiters.get(None, "id", 20.0)

    return answered


def test_refused_copy_is_no_reply_to_the_read(get: Any) -> None:
    answer = {"result": "the instance", "failure": None}
    assert get(refusal(f"it was taken before: {exceptions.MessageRefused.REPLAYED}"), answer) == answer


def test_other_refusal_of_a_repeated_read_is_its_reply(get: Any) -> None:
    refused = refusal("its key is revoked")
    assert get(refused) == refused
