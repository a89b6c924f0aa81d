"""Events that handlers of signals set."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from nova_lite.base.stop_event import StopEvent


class Interrupted(threading.Condition):
    """A condition whose lock is held when a signal arrives, at each `wait`."""

    def wait(self, timeout: float | None = None) -> bool:
        os.kill(os.getpid(), signal.SIGUSR1)
        return super().wait(timeout)


def test_handler_that_interrupts_a_wait_while_it_holds_the_lock_does_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    """The handler runs in this thread. An alarm ends the test if it hangs."""
    monkeypatch.setattr(threading, "Condition", Interrupted)
    stopping = StopEvent()
    before = signal.signal(signal.SIGUSR1, lambda *_: stopping.set())
    alarm = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("the handler hangs"))
    signal.alarm(10)
    try:
        assert stopping.wait(0.2)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, alarm)
        signal.signal(signal.SIGUSR1, before)


def test_event_set_by_another_thread_ends_a_wait() -> None:
    stopping = StopEvent()
    threading.Timer(0.05, stopping.set).start()
    assert stopping.wait(30.0) and stopping.wait() and stopping.is_set()


def test_wait_for_an_event_that_nobody_sets_ends_after_its_timeout() -> None:
    stopping = StopEvent()
    began = time.monotonic()
    assert not stopping.wait(0.05)
    assert time.monotonic() - began >= 0.05
    stopping.set()
    stopping.clear()
    assert not stopping.wait(0) and not stopping.is_set()
