"""The host view: late, doubled and lost messages, full reads that are overtaken, decisions ahead of their claims."""

from __future__ import annotations

import random
import threading
import uuid

from hypothesis import given, settings
from hypothesis import strategies as st

from nova_lite.objects import Destination, HostState, Selection
from nova_lite.scheduler.hosts import HostView
from nova_lite.scheduler.uuids import Uuids

from .builders import host, spec


def generations(view: HostView) -> dict[str, int]:
    return {state.host: state.generation for state in view.snapshot()}


def used(view: HostView) -> dict[str, int]:
    return {state.host: state.memory_mb_used for state in view.snapshot()}


def to_host(number: int) -> Destination:
    name = f"host{number}"
    return Destination(instance_uuid="uuid", selected=Selection(host=name, node=name))


def test_message_is_applied_only_with_a_newer_generation() -> None:
    view = HostView()
    view.apply([host(1, generation=2), host(2, generation=1)])
    view.apply([host(1, generation=1), host(2, generation=2), host(3, generation=1)])
    assert generations(view) == {"host1": 2, "host2": 2, "host3": 1}


def test_removed_host_stays_removed_after_a_late_message() -> None:
    view = HostView()
    view.apply([host(1, generation=1)])
    view.apply([host(1, generation=3, deleted=True)])
    view.apply([host(1, generation=2)])
    assert generations(view) == {}


def test_removal_may_arrive_before_the_host() -> None:
    view = HostView()
    view.apply([host(1, generation=3, deleted=True)])
    view.apply([host(1, generation=1)])
    assert generations(view) == {}


def test_host_that_registers_again_has_a_new_row() -> None:
    view = HostView()
    view.apply([host(1, generation=9, deleted=True)])
    view.apply([host(1, id=5, generation=1)])
    assert generations(view) == {"host1": 1}


def test_full_read_adds_updates_and_removes() -> None:
    view = HostView()
    view.apply([host(1, generation=1), host(2, generation=1)])
    view.replace_all([host(2, generation=5), host(3, generation=1)], since=view.mark())
    assert generations(view) == {"host2": 5, "host3": 1}


def test_full_read_keeps_newer_messages() -> None:
    view = HostView()
    view.apply([host(1, generation=1), host(2, generation=1)])
    mark = view.mark()
    view.apply([host(1, generation=4), host(2, generation=2, deleted=True), host(3, generation=1)])
    view.replace_all([host(1, generation=3), host(2, generation=1)], since=mark)
    assert generations(view) == {"host1": 4, "host3": 1}


def test_full_read_repairs_a_row_whose_generation_restarted() -> None:
    """The database was restored, or reused the id of a removed row."""
    view = HostView()
    view.apply([host(1, generation=50)])
    view.replace_all([host(1, generation=2)], since=view.mark())
    assert generations(view) == {"host1": 2}
    view.apply([host(1, generation=3)])
    assert generations(view) == {"host1": 3}


def test_full_read_keeps_unchanged_objects() -> None:
    view = HostView()
    rows = [host(1), host(2), host(3)]
    view.apply(rows)
    view.consume([to_host(1)], spec())
    instances = [str(uuid.UUID(int=1))]
    same, changed, new = view.known([host(1), host(2, up=False), host(4, instances=instances)])
    assert same is rows[0]
    assert changed is not rows[1] and not changed.up
    assert new.id == 4
    assert isinstance(new.instances, Uuids) and new.instances == instances, "there are many pages of them at a time"


def test_decision_counts_until_the_next_generation() -> None:
    view = HostView()
    view.apply([host(1), host(2)])
    view.consume([to_host(1), to_host(1), to_host(2)], spec())
    assert used(view) == {"host1": 1024, "host2": 512}
    assert [row.memory_mb_used for row in view.rows()] == [0, 0]
    view.apply([host(1, generation=1)])
    assert used(view)["host1"] == 1024, "the same generation says nothing new"
    view.apply([host(1, generation=2, memory_mb_used=512)])
    assert used(view)["host1"] == 512


def test_full_read_drops_a_decision_that_was_never_claimed() -> None:
    view = HostView()
    view.apply([host(1)])
    view.consume([to_host(1)], spec())
    view.replace_all([host(1)], since=view.mark())
    assert used(view) == {"host1": 0}


def test_decision_during_a_full_read_is_kept() -> None:
    view = HostView()
    view.apply([host(1), host(2)])
    mark = view.mark()
    view.consume([to_host(1)], spec())
    view.replace_all([host(1), host(2)], since=mark)
    assert used(view) == {"host1": 512, "host2": 0}
    view.replace_all([host(1), host(2)], since=view.mark())
    assert used(view) == {"host1": 0, "host2": 0}


def test_decision_for_a_removed_host_is_ignored() -> None:
    view = HostView()
    view.apply([host(1, generation=2, deleted=True)])
    view.consume([to_host(1), to_host(2)], spec())
    assert view.snapshot() == []


def test_snapshot_stays_as_it_was() -> None:
    view = HostView()
    view.apply([host(1)])
    before = view.snapshot()
    view.consume([to_host(1)], spec())
    view.apply([host(2)])
    assert [(state.host, state.memory_mb_used, state.instances) for state in before] == [("host1", 0, [])]


def rows(number: int, last: int, removed: bool) -> list[HostState]:
    """Return the generations of one row, in order."""
    life = [host(number, generation=generation) for generation in range(1, last + 1)]
    return [*life, host(number, generation=last + 1, deleted=True)] if removed else life


@settings(deadline=None)
@given(
    lives=st.lists(st.tuples(st.integers(1, 6), st.booleans()), min_size=1, max_size=4),
    seed=st.randoms(use_true_random=False),
    full_read_at=st.integers(0, 40),
)
def test_messages_in_any_order_end_in_the_same_view(
    lives: list[tuple[int, bool]], seed: random.Random, full_read_at: int
) -> None:
    """Messages come twice and in any order. An outdated full read arrives at any point."""
    histories = [rows(number, last, removed) for number, (last, removed) in enumerate(lives, start=1)]
    messages = [state for history in histories for state in history] * 2
    seed.shuffle(messages)
    stale = [seed.choice(history) for history in histories]
    view = HostView()
    mark = view.mark()
    for position, message in enumerate(messages):
        if position == full_read_at:
            view.replace_all([state for state in stale if not state.deleted], since=mark)
        view.apply([message])
    assert generations(view) == {f"host{n}": last for n, (last, removed) in enumerate(lives, start=1) if not removed}


def test_view_is_consistent_under_many_threads() -> None:
    view = HostView()
    view.apply([host(number) for number in range(50)])

    def write(first: int) -> None:
        for generation in range(2, 50):
            view.apply([host(number, generation=generation) for number in range(first, first + 10)])
            mark = view.mark()
            view.replace_all(view.snapshot(), since=mark)

    threads = [threading.Thread(target=write, args=(first,)) for first in range(0, 50, 10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert generations(view) == {f"host{number}": 49 for number in range(50)}


def test_host_that_returns_with_its_old_id_is_another_row() -> None:
    """SQLite reuses the id of the last row after it is deleted."""
    first, second = str(uuid.uuid4()), str(uuid.uuid4())
    view = HostView()
    view.apply([host(3, generation=50, uuid=first)])
    view.apply([host(3, generation=51, uuid=first, deleted=True)])
    view.apply([host(3, generation=1, uuid=second)])
    assert [state.uuid for state in view.snapshot()] == [second]
    view.apply([host(3, generation=49, uuid=first), host(3, generation=51, uuid=first, deleted=True)])
    assert [state.uuid for state in view.snapshot()] == [second], "what came late is of the row that is gone"
    view.apply([host(3, generation=2, uuid="", vcpus=2)])
    assert [state.vcpus for state in view.snapshot()] == [2], "an older conductor does not tell uuids"
