"""Delays after wrong passwords."""

from __future__ import annotations

import pytest

from nova_lite.api.identity import throttle
from nova_lite.api.identity.throttle import (
    ACQUAINTANCE,
    MEMORY,
    OF_CLIENT,
    OF_STRANGERS,
    OF_USER,
    PasswordThrottle,
)
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
    for _ in range(OF_USER.free + 10):
        limiter.failed("alice", "a")
        delays.append(delay_of(limiter, clock))
    assert delays[: OF_USER.free - 1] == [0.0] * (OF_USER.free - 1)
    assert delays[OF_USER.free - 1 :][:4] == [1.0, 2.0, 4.0, 8.0]
    assert delays[-1] == OF_USER.longest
    assert delay_of(limiter, clock, "bob") == delay_of(limiter, clock, "alice", "b") == 0.0
    limiter.failed("alice", "a")
    limiter.succeeded("alice", "a")
    assert delay_of(limiter, clock) == 0.0


def test_throttle_counts_all_users_of_an_address() -> None:
    clock = Clock()
    limiter = PasswordThrottle(clock)
    for number in range(OF_CLIENT.free):
        limiter.check(f"user-{number}", "a")
        limiter.failed(f"user-{number}", "a")
    with pytest.raises(exceptions.TooManyFailures):
        limiter.check("another", "a")
    limiter.check("another", "b")


@pytest.mark.parametrize("guess", ["2001:db8::{:x}", "2001:db8::{:x}%eth0", "2001:db8:0:0:{:x}::1"])
def test_throttle_counts_an_ipv6_network_of_64_bits_as_one(guess: str) -> None:
    limiter = PasswordThrottle(Clock())
    checked = 0
    for number in range(1, 3001):
        try:
            limiter.check("alice", guess.format(number))
        except exceptions.TooManyFailures:
            continue
        checked += 1
        limiter.failed("alice", guess.format(number))
    assert checked == OF_USER.free
    limiter.check("alice", "2001:db8:0:1::1")


def test_throttle_slows_guesses_of_one_password_from_many_clients() -> None:
    clock = Clock()
    limiter = PasswordThrottle(clock)
    limiter.succeeded("alice", "2001:db8:a::1")
    checked = 0
    for number in range(3000):
        clock.now += 0.1
        try:
            limiter.check("alice", f"198.51.{number // 250}.{number % 250}")
        except exceptions.TooManyFailures:
            continue
        checked += 1
        limiter.failed("alice", f"198.51.{number // 250}.{number % 250}")
    assert checked <= OF_STRANGERS.free + 5 + 300 / OF_STRANGERS.longest
    # Others are not delayed, and the user is not at all where the user was lately, and by seconds elsewhere.
    limiter.check("bob", "198.51.0.1")
    limiter.check("alice", "2001:db8:a::2")
    limiter.failed("alice", "198.51.100.1")
    assert 0 < delay_of(limiter, clock, "alice", "203.0.113.1") <= OF_STRANGERS.longest
    limiter.succeeded("alice", "203.0.113.1")
    limiter.failed("alice", "198.51.100.2")
    limiter.check("alice", "203.0.113.1")


def test_throttle_wrong_passwords_of_a_known_client_delay_no_other() -> None:
    clock = Clock()
    limiter = PasswordThrottle(clock)
    limiter.succeeded("alice", "a")
    for _ in range(OF_STRANGERS.free + 1):
        limiter.failed("alice", "a")
    limiter.check("alice", "b")
    assert delay_of(limiter, clock, "alice", "a") > 0


def test_throttle_client_without_log_ins_for_two_weeks_is_a_stranger() -> None:
    clock = Clock()
    limiter = PasswordThrottle(clock)
    limiter.succeeded("alice", "a")
    clock.now += ACQUAINTANCE
    for number in range(OF_STRANGERS.free):
        limiter.failed("alice", str(number))
    with pytest.raises(exceptions.TooManyFailures):
        limiter.check("alice", "a")


def test_throttle_forgets_old_and_excess_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    limiter = PasswordThrottle(clock)
    for _ in range(OF_USER.free):
        limiter.failed("alice", "a")
    clock.now += MEMORY
    limiter.check("alice", "a")
    monkeypatch.setattr(throttle, "MAX_REMEMBERED", 10)
    limiter = PasswordThrottle(clock)
    for number in range(100):
        limiter.failed(str(number), str(number))
    assert len(limiter._failures) == 10


def test_throttled_user_gets_429_and_is_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(OF_USER.free):
        assert error(world.log_in("alice", "guess"), 401)
    assert "Too many passwords were wrong" in error(world.log_in("alice"), 429)
    assert world.log_in("admin").status_code == 201
    assert caplog.text.count("Failed log-in as 'alice' from") == OF_USER.free
    assert "guess" not in caplog.text
