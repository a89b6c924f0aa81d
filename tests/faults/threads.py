"""Threads that run during a part of a test."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def running(
    runs: list[Callable[[threading.Event], None]],
    failures: list[BaseException],
    stop: threading.Event | None = None,
    seconds: float = 180.0,
) -> Iterator[None]:
    """Run threads during the block, and then wait for each up to ``seconds``. What they raise goes to ``failures``.

    ``stop``: the event that they end at. It is set after the block.
    """
    ended = stop or threading.Event()

    def guarded(run: Callable[[threading.Event], None]) -> None:
        try:
            run(ended)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(run,), daemon=True) for run in runs]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join(seconds)
