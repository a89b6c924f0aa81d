"""Sending and receiving without preparations for the case that it fails, which is nearly never.

oslo.messaging has kombu repeat whatever is done on a connection until it works. For each message that is sent,
received or acknowledged, that makes four functions and a class, and asks the connection three times whether it is
there: an eighth of what a call costs. Here it is just done; what fails goes the long way, which takes the failure for
that of its own first try.

It also tells the socket, before and after whatever it sends, how long that may take, which is nearly always the same.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from oslo_messaging._drivers import impl_rabbit


@functools.cache
def try_first() -> None:
    """For every connection of this process, from now on."""
    ensure = impl_rabbit.Connection.ensure

    def straight(connection: Any, method: Callable[[], Any], *arguments: Any, **options: Any) -> Any:
        # Without a channel there was no connection yet, or it broke; after a fork it is another process's.
        if connection.channel is None or connection._initial_pid != impl_rabbit.os.getpid():
            return ensure(connection, method, *arguments, **options)
        failures: list[BaseException] = []
        try:
            method()
            return None
        except Exception as error:
            failures.append(error)

        def tried() -> Any:
            if failures:
                raise failures.pop()
            return method()

        return ensure(connection, tried, *arguments, **options)

    impl_rabbit.Connection.ensure = straight


@functools.cache
def tell_timeouts_once() -> None:
    """For every connection of this process, from now on."""
    tell = impl_rabbit.Connection.set_transport_socket_timeout

    def told(connection: Any, timeout: float | None = None) -> None:
        try:
            sock = connection.channel.connection.sock
        except AttributeError:
            sock = None
        known = connection.__dict__.get("nova_lite_timeout", (None, None))
        wanted = sock, _bounded(connection, timeout)
        if sock is None or known != wanted or sock.gettimeout() != wanted[1]:
            tell(connection, timeout)
            connection.nova_lite_timeout = wanted

    impl_rabbit.Connection.set_transport_socket_timeout = told


def _bounded(connection: Any, timeout: float | None) -> float | None:
    """As oslo.messaging does it: nobody waits longer than until the connection counts as lost."""
    if not connection._heartbeat_supported_and_enabled():
        return timeout
    longest: float = connection.heartbeat_timeout_threshold
    return longest if timeout is None else min(longest, timeout)
