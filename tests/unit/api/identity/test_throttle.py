"""Delays after wrong passwords."""

from __future__ import annotations

import pytest

from nova_lite.api.identity import throttle
from nova_lite.api.identity.throttle import FREE_OF_ADDRESS, FREE_OF_USER, LONGEST_DELAY, MEMORY, PasswordThrottle
from nova_lite.base import exceptions
from tests.support.identity_api import World, error


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def delay_of(limiter: PasswordThrottle, clock: Clock, user: str = "alice", address: str = "a") -> float:
    """Return the seconds until the next attempt is allowed."""
    before = clock.now
    while True:
        try:
            limiter.check(user, address)
            return clock.now - before
        except exceptions.TooManyFailures:
            clock.now += 0.5


def test_throttle_delay_doubles_up_to_a_minute() -> None:
    clock = Clock()
    limiter = PasswordThrottle(clock)
    delays = []
    for _ in range(FREE_OF_USER + 10):
        limiter.failed("alice", "a")
        delays.append(delay_of(limiter, clock))
    assert delays[: FREE_OF_USER - 1] == [0.0] * (FREE_OF_USER - 1)
    assert delays[FREE_OF_USER - 1 :][:4] == [1.0, 2.0, 4.0, 8.0]
    assert delays[-1] == LONGEST_DELAY
    assert delay_of(limiter, clock, "bob") == delay_of(limiter, clock, "alice", "b") == 0.0
    limiter.failed("alice", "a")
    limiter.succeeded("alice", "a")
    assert delay_of(limiter, clock) == 0.0


def test_throttle_counts_all_users_of_an_address() -> None:
    clock = Clock()
    limiter = PasswordThrottle(clock)
    for number in range(FREE_OF_ADDRESS):
        limiter.check(f"user-{number}", "a")
        limiter.failed(f"user-{number}", "a")
    with pytest.raises(exceptions.TooManyFailures):
        limiter.check("another", "a")
    limiter.check("another", "b")


def test_throttle_forgets_old_and_excess_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    limiter = PasswordThrottle(clock)
    for _ in range(FREE_OF_USER):
        limiter.failed("alice", "a")
    clock.now += MEMORY
    limiter.check("alice", "a")
    monkeypatch.setattr(throttle, "MAX_REMEMBERED", 10)
    limiter = PasswordThrottle(clock)
    for number in range(100):
        limiter.failed("x", str(number))
    assert len(limiter._failures) == 10


def test_throttled_user_gets_429_and_is_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(FREE_OF_USER):
        assert error(world.log_in("alice", "guess"), 401)
    assert "Too many passwords were wrong" in error(world.log_in("alice"), 429)
    assert world.log_in("admin").status_code == 201
    assert caplog.text.count("Failed log-in as 'alice' from") == FREE_OF_USER
    assert "guess" not in caplog.text
