"""Reports that are repeated until the conductor replies."""

from __future__ import annotations

import threading

import pytest

from nova_lite.base import exceptions
from nova_lite.compute.reports import MAX_BACKOFF, Retrier


class Clock(threading.Event):
    """Records waits without waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.waits.append(timeout)
        return False


def pauses_of(failures: int) -> list[float]:
    clock = Clock()

    def call() -> None:
        if len(clock.waits) < failures:
            raise exceptions.MessagingUnavailable(what="a report")

    Retrier(2.0, clock).call("A report", call, lambda: None)
    return clock.waits


def test_retries_of_many_hosts_are_spread() -> None:
    steps = [2.0, 4.0, 8.0, 16.0, 16.0, 16.0]
    assert max(steps) == 2.0 * MAX_BACKOFF
    hosts = [pauses_of(len(steps)) for _ in range(50)]
    for pauses in hosts:
        assert all(step / 2 <= pause <= step * 1.5 for pause, step in zip(pauses, steps, strict=True))
    assert len({pauses[0] for pauses in hosts}) == len(hosts)


def test_final_error_is_not_retried() -> None:
    with pytest.raises(exceptions.InstanceGone):

        def gone() -> None:
            raise exceptions.InstanceGone(instance_id="u")

        Retrier(2.0, Clock()).call("A report", gone, lambda: None)
