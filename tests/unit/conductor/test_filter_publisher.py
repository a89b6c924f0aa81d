"""Hosts hear soon that what they filter has changed, and not more often than they need."""

from __future__ import annotations

import threading

import pytest

from nova_lite.base import exceptions
from nova_lite.conductor.hosts import filter_publisher
from nova_lite.conductor.hosts.filter_publisher import FilterPublisher
from nova_lite.db.engine import Database
from tests.support import make


class Compute:
    def __init__(self) -> None:
        self.told: list[str] = []
        self.error: Exception | None = None

    def refresh_security_groups(self, context: object, host: str) -> None:
        self.told.append(host)
        if self.error is not None:
            raise self.error


@pytest.fixture
def compute() -> Compute:
    return Compute()


@pytest.fixture
def news(db: Database, compute: Compute) -> FilterPublisher:
    for host in ("h1", "h2"):
        db.write(make.instance, host=host)
    return FilterPublisher(db, compute)  # type: ignore[arg-type]


def told(news: FilterPublisher) -> None:
    for each in news.tell():
        each.result()


def test_each_host_is_told_once(news: FilterPublisher, compute: Compute) -> None:
    for _ in range(3):
        news.add({"p1"}, set())
    told(news)
    told(news)
    assert sorted(compute.told) == ["h1", "h2"]
    news.add({"p2"}, set())
    told(news)
    assert sorted(compute.told) == ["h1", "h2"]


def test_servers_that_come_and_go_are_told_to_a_few_hosts_at_a_time(
    news: FilterPublisher, db: Database, compute: Compute, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filter_publisher, "MOST", 2)
    for number in range(3, 6):
        db.write(make.instance, host=f"h{number}")
    gone = db.write(make.instance, host="h9")
    for turn in (["h1", "h2"], ["h3", "h4"], ["h1", "h5"]):  # whoever has heard last comes last
        news.add(set(), {gone})
        told(news)
        assert sorted(compute.told) == turn
        compute.told.clear()
    news.add({"p1"}, {gone})
    told(news)
    assert sorted(compute.told) == ["h1", "h2", "h3", "h4", "h5", "h9"], "a change of rules concerns all at once"
    compute.told.clear()
    told(news)
    assert compute.told == [], "and there is no more to tell then"


@pytest.mark.parametrize(
    "error",
    [exceptions.MessagingUnavailable(what="x"), exceptions.ServiceTooOld("old")],
)
def test_a_host_that_cannot_be_told_keeps_no_other_from_hearing(
    news: FilterPublisher, compute: Compute, error: Exception
) -> None:
    compute.error = error
    news.add({"p1"}, set())
    told(news)
    assert sorted(compute.told) == ["h1", "h2"]


def test_what_could_not_be_looked_up_is_told_later(
    news: FilterPublisher, db: Database, compute: Compute, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(db, "read", lambda *_: 1 / 0)
        news.add({"p1"}, set())
        with pytest.raises(ZeroDivisionError):
            told(news)
    told(news)
    assert sorted(compute.told) == ["h1", "h2"]


def test_a_host_that_does_not_answer_keeps_no_other_waiting(
    news: FilterPublisher, compute: Compute, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, heard = threading.Event(), threading.Event()

    def refresh(context: object, host: str) -> None:
        if host == "h1":
            assert hangs.wait(10)
        else:
            heard.set()

    monkeypatch.setattr(compute, "refresh_security_groups", refresh)
    for _ in range(2):
        news.add({"p1"}, set())
        pending = news.tell()
        assert heard.wait(10)
        heard.clear()
    hangs.set()
    for each in pending:
        each.result()
