"""Delay before a worker is restarted."""

from __future__ import annotations

from nova_lite.api.http.prefork import FIRST_DELAY, MAX_DELAY, MIN_LIFETIME, RestartBackoff


def test_restart_delay_grows_after_short_lives() -> None:
    backoff = RestartBackoff()
    waits = [backoff.after(0.1) for _ in range(10)]
    assert waits[:3] == [FIRST_DELAY, 2 * FIRST_DELAY, 4 * FIRST_DELAY]
    assert waits[-1] == MAX_DELAY
    assert backoff.after(MIN_LIFETIME) == 0
    assert backoff.after(0.1) == FIRST_DELAY
