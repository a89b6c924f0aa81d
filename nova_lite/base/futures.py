"""A future of a response: lets an RPC method return before it has its response, and so release its thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Response = TypeVar("Response")
Mapped = TypeVar("Mapped")


class ResponseFuture(Generic[Response]):
    """A response that comes later, for a caller that does not block its thread.

    It holds no reference to what it has delivered, so that no reference cycle waits for the garbage collector.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._get: Callable[[], Response] | None = None
        self._callback: Callable[[Callable[[], Response]], None] | None = None

    def set_result(self, get: Callable[[], Response]) -> None:
        """Deliver the result: ``get`` returns the response or raises the error. Must be called only once."""
        with self._lock:
            callback, self._callback = self._callback, None
            if callback is None:
                self._get = get
        if callback is not None:
            callback(get)

    def add_callback(self, callback: Callable[[Callable[[], Response]], None]) -> None:
        """Call ``callback(get)`` once, in the thread that delivers the result. A future has only one callback."""
        with self._lock:
            get, self._get = self._get, None
            if get is None:
                self._callback = callback
        if get is not None:
            callback(get)

    def map(self, change: Callable[[Callable[[], Response]], Mapped]) -> ResponseFuture[Mapped]:
        """Return a future of what ``change(get)`` returns or raises."""
        mapped: ResponseFuture[Mapped] = ResponseFuture()
        self.add_callback(lambda get: mapped.set_result(lambda: change(get)))
        return mapped

    def result(self) -> Response:
        """Block until the response is there, and return it or raise its error."""
        delivered = threading.Event()
        results: list[Callable[[], Response]] = []

        def callback(get: Callable[[], Response]) -> None:
            results.append(get)
            delivered.set()

        self.add_callback(callback)
        delivered.wait()
        return results[0]()


def wait_for(response: Response | ResponseFuture[Response]) -> Response:
    """Return the response. Blocks if it is still a future."""
    return response.result() if isinstance(response, ResponseFuture) else response
