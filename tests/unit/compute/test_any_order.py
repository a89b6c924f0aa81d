"""Commands of one instance in any order, concurrent and duplicated, with kills in between: revocations always hold."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nova_lite.base import exceptions
from nova_lite.compute.fencing import FencingTokenStore
from tests.support.compute_host import LATER, UUID, Host, command

GENERATIONS = st.integers(1, 3)
STEPS = ["plug_vifs", "spawn_before_domain", "spawn_after_domain"]

#: A burst: commands that arrive at the same time.
ORDER = st.one_of(
    st.tuples(st.just("build"), GENERATIONS),
    st.tuples(st.just("fence"), GENERATIONS),
    st.tuples(st.just("fail"), st.sampled_from(STEPS)),
    st.tuples(st.just("delete"), st.integers(0, 1)),
    st.tuples(st.just("kill"), st.just(0)),
)
BURSTS = st.lists(st.lists(ORDER, min_size=1, max_size=3), min_size=1, max_size=5)


class History:
    """Replies that the conductor has received so far."""

    def __init__(self) -> None:
        self.given_up = 0
        self.deleted = False

    def note(self, host: Host) -> None:
        for generation, outcome in host.conductor.outcomes:
            if outcome != "built":
                self.given_up = max(self.given_up, generation)
        self.deleted = bool(host.conductor.of("finish_action"))

    def check(self, host: Host) -> None:
        generation = host.domains().get(UUID)
        if generation is None:
            assert host.traces() == []
            return
        assert generation > self.given_up, "a revoked generation exists"
        assert not self.deleted, "a deleted instance exists"
        assert host.manager.host.claims.used().memory_mb == 512


def carry_out(host: Host, kind: str, value: Any, history: History) -> None:
    if kind == "build":
        host.build(value)
    elif kind == "delete":
        host.act(command("delete", LATER, generation=3))
    elif kind == "fail":
        host.control(fail_at=[value], fail_count=1)
    elif kind == "fence":
        try:
            fenced = host.fence(value)
        except exceptions.ServiceUnavailable:
            return
        if fenced:
            history.given_up = max(history.given_up, value)


def play(path_of: Callable[[str], Any], bursts: list[list[tuple[str, Any]]]) -> None:
    host, history = Host(path_of("host")), History()
    for burst in bursts:
        threads = [
            threading.Thread(target=carry_out, args=(host, kind, value, history))
            for kind, value in burst
            if kind != "kill"
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        host.settle()
        if ("kill", 0) in burst:
            host = host.next_life()
        history.note(host)
        history.check(host)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(bursts=BURSTS)
def test_revocations_hold_in_any_order_of_commands(
    bursts: list[list[tuple[str, Any]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    play(tmp_path_factory.mktemp, bursts)


def test_revocations_without_the_fencing_check_do_not_hold(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prove that the test above can fail: without the check a late command brings a guest back."""
    monkeypatch.setattr(FencingTokenStore, "check", lambda *_: None)
    monkeypatch.setattr(
        "nova_lite.compute.operations.create.Builder._repeat_failure",
        lambda self, request: self._build_or_undo(None, request),
    )
    with pytest.raises(AssertionError, match="revoked generation exists"):
        play(tmp_path_factory.mktemp, [[("fence", 1)], [("build", 1)]])
