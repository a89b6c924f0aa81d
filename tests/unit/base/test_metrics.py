"""What is told to Prometheus, that docs/reference/metrics.md has all of it, and what it costs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from nova_lite.base import metrics

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "metrics.md"
MARK = "<!-- Made by `nova-lite-manage api metrics` from here on. -->\n"


def test_the_page_has_what_the_code_has() -> None:
    _, mark, made = PAGE.read_text().partition(MARK)
    assert mark
    assert made.strip() == metrics.table().strip()


def test_every_metric_is_found_in_a_daemon_and_none_is_made_elsewhere() -> None:
    text = metrics.page()[0].decode()
    told = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE nova_lite_")}
    told = {name for name in told if not name.endswith("_created")}
    assert told <= metrics.FOUND_IN.keys()
    assert metrics.STATES.keys() <= metrics.FOUND_IN.keys()


def test_states_are_asked_for_when_they_are_read_and_added_up() -> None:
    owners = object(), object(), object()
    metrics.state_of(owners[0], lambda: [metrics.one(metrics.JOBS, 2, "build")])
    metrics.state_of(owners[1], lambda: [metrics.one(metrics.JOBS, 3, "build"), metrics.one(metrics.JOBS, 1, "action")])
    metrics.state_of(owners[2], lambda: 1 / 0)  # type: ignore[arg-type, return-value]
    try:
        text = metrics.page()[0].decode()
        assert 'nova_lite_jobs{kind="build"} 5.0' in text
        assert 'nova_lite_jobs{kind="action"} 1.0' in text
    finally:
        for owner in owners:
            metrics.forget(owner)
    assert "nova_lite_jobs{" not in metrics.page()[0].decode()


def test_they_are_cheap() -> None:
    """In CPU time, of the best of some tries: 20 µs would be more than anybody gives for it."""
    best = min(_seconds() for _ in range(5))
    assert best < 20e-6, f"{best * 1e6:.1f} µs"


def _seconds() -> float:
    started = time.thread_time()
    for _ in range(2000):
        metrics.REQUESTS.labels("GET", "/servers", 200).observe(0.01)
    return (time.thread_time() - started) / 2000


def test_a_name_that_nobody_told_is_an_error() -> None:
    owner = object()
    metrics.state_of(owner, lambda: [("nova_lite_unheard_of", ((), 1.0))])
    try:
        with pytest.raises(KeyError):
            metrics.page()
    finally:
        metrics.forget(owner)
