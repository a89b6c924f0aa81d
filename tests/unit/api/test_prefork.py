"""Waiting before a worker is started again."""

from __future__ import annotations

from nova_lite.api.http.prefork import FIRST_WAIT, LONGEST_WAIT, SHORT_LIFE, Backoff


def test_short_lives_wait_longer_and_longer() -> None:
    backoff = Backoff()
    waits = [backoff.after(0.1) for _ in range(10)]
    assert waits[:3] == [FIRST_WAIT, 2 * FIRST_WAIT, 4 * FIRST_WAIT]
    assert waits[-1] == LONGEST_WAIT
    assert backoff.after(SHORT_LIFE) == 0
    assert backoff.after(0.1) == FIRST_WAIT
