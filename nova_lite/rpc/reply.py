"""How answers are sent: those that come later than the thread that was asked has gone on, and those to compute hosts.

A host asks again whatever it has no answer to, and a conductor answers hosts a hundred times a second and more. So with
such an answer nobody waits for the broker's word that it has it, which takes a third of the switches between threads
that a heartbeat takes; it goes out on a channel of its own, as on oslo.messaging's each message has that word. All
other answers are sent as ever: of what users wait for, the broker is asked until it has it.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections.abc import Callable
from typing import Any

import oslo_messaging as messaging
from kombu.messaging import Producer
from oslo_messaging._drivers import amqpdriver, common

from nova_lite.base.batching import ResponseFuture
from nova_lite.rpc.keys import COMPUTE
from nova_lite.rpc.signing import SENDER

LOG = logging.getLogger(__name__)

_PRODUCER = "nova_lite_producer"


@functools.cache
def send_simply() -> None:
    """For every message that comes to this process, from now on."""
    reply = amqpdriver.AMQPIncomingMessage.reply

    def replied(message: Any, answer: Any = None, failure: Any = None) -> None:
        if isinstance(answer, ResponseFuture):
            answer.add_callback(functools.partial(_reply_later, message))
        elif not _is_to_host(message) or not _sent(message, answer, failure):
            reply(message, answer, failure)

    amqpdriver.AMQPIncomingMessage.reply = replied


def _reply_later(message: Any, get: Callable[[], Any]) -> None:
    """What oslo.messaging does with what a method returns, or raises."""
    answer = failure = None
    try:
        answer = get()
    except messaging.ExpectedException as expected:
        failure = expected.exc_info
    except Exception:
        failure = sys.exc_info()
    message.reply(answer, failure)


def _is_to_host(message: Any) -> bool:
    sender = message.ctxt.get(SENDER) if isinstance(message.ctxt, dict) else None
    return sender is not None and sender.role == COMPUTE


def _sent(message: Any, answer: Any, failure: Any) -> bool:
    """No: it has to be sent by oslo.messaging, which connects first, or once more."""
    if not message.orig_msg_id:
        return False
    with message.listener.driver._get_connection(common.PURPOSE_SEND) as pooled:
        used = pooled.connection
        # Without a channel there was no connection yet, or it broke; after a fork it is another process's.
        if used.channel is None or used._initial_pid != os.getpid():
            return False
        try:
            with used._connection_lock:
                message._send_reply(_Plain(used), answer, failure)
            return True
        except Exception as error:
            LOG.info("An answer is sent once more: %s", " ".join(str(error).split()) or type(error).__name__)
            return False


class _Plain:
    """A connection of oslo.messaging's, as far as an answer needs it."""

    def __init__(self, used: Any) -> None:
        self._used = used

    def direct_send(self, queue: str, content: Any) -> None:
        made_for, producer = getattr(self._used, _PRODUCER, (None, None))
        if producer is None or made_for is not self._used.channel:
            channel = self._used.channel.connection.channel()
            channel.basic_publish = channel._basic_publish  # and not the one that waits
            producer = Producer(channel)  # type: ignore[no-untyped-call]
            setattr(self._used, _PRODUCER, (self._used.channel, producer))
        producer.publish(content, exchange="", routing_key=queue)
