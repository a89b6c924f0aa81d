"""Guessing passwords."""

from __future__ import annotations

import pytest

from nova_lite.api.identity import throttle
from nova_lite.api.identity.throttle import FREE_OF_ADDRESS, FREE_OF_USER, LONGEST_WAIT, MEMORY, PasswordThrottle
from nova_lite.base import exceptions
from tests.unit.api.identity.conftest import World
from tests.unit.api.identity.test_identity_api import error


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def wait(guard: PasswordThrottle, clock: Clock, user: str = "alice", address: str = "a") -> float:
    """Seconds until the next try."""
    before = clock.now
    while True:
        try:
            guard.check(user, address)
            return clock.now - before
        except exceptions.TooManyFailures:
            clock.now += 0.5


def test_each_wrong_one_doubles_the_wait_up_to_a_minute() -> None:
    clock = Clock()
    guard = PasswordThrottle(clock)
    waits = []
    for _ in range(FREE_OF_USER + 10):
        guard.failed("alice", "a")
        waits.append(wait(guard, clock))
    assert waits[: FREE_OF_USER - 1] == [0.0] * (FREE_OF_USER - 1)
    assert waits[FREE_OF_USER - 1 :][:4] == [1.0, 2.0, 4.0, 8.0]
    assert waits[-1] == LONGEST_WAIT
    assert wait(guard, clock, "bob") == wait(guard, clock, "alice", "b") == 0.0
    guard.failed("alice", "a")
    guard.succeeded("alice", "a")
    assert wait(guard, clock) == 0.0


def test_many_users_from_one_address() -> None:
    clock = Clock()
    guard = PasswordThrottle(clock)
    for number in range(FREE_OF_ADDRESS):
        guard.check(f"user-{number}", "a")
        guard.failed(f"user-{number}", "a")
    with pytest.raises(exceptions.TooManyFailures):
        guard.check("another", "a")
    guard.check("another", "b")


def test_what_is_old_or_too_much_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    guard = PasswordThrottle(clock)
    for _ in range(FREE_OF_USER):
        guard.failed("alice", "a")
    clock.now += MEMORY
    guard.check("alice", "a")
    monkeypatch.setattr(throttle, "MAX_REMEMBERED", 10)
    for number in range(100):
        guard.failed("x", str(number))
    assert len(guard._failures) == 10


def test_the_api_says_so_and_the_log_who(world: World, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(FREE_OF_USER):
        assert error(world.log_in("alice", "guess"), 401)
    told = error(world.log_in("alice"), 429)
    assert "Too many passwords were wrong" in told
    assert world.log_in("admin").status_code == 201
    assert caplog.text.count("Failed log-in as 'alice' from") == FREE_OF_USER
    assert "guess" not in caplog.text
