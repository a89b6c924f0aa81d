"""Copies of the identity service's records."""

from __future__ import annotations

import dataclasses
import logging
import os
import threading

import pytest

from nova_lite.api.identity.content import Content
from nova_lite.api.identity.records import Project, Revocation
from nova_lite.api.identity.replica import Replica
from nova_lite.base import exceptions
from nova_lite.base.timing import TIMING
from nova_lite.objects import IdentityRecord
from tests.support.identity_records import MemoryStore, fresh_replica

#: Times of a replica that is never too old.
LASTING = dataclasses.replace(TIMING.api, identity_max_age=3600.0)


def add(name: str) -> Project:
    return Project(id=f"id-of-{name}", name=name)


def add_project(content: Content, name: str) -> None:
    content.projects.append(add(name))


def names(replica: Replica) -> list[str]:
    return [project.name for project in replica.content.projects]


def test_records_are_read_once_while_they_are_young_enough() -> None:
    store = MemoryStore()
    replica = Replica(store, timing=LASTING)
    for _ in range(3):
        assert names(replica) == []
    assert store.reads == 1


def test_change_of_another_daemon_is_seen_after_the_age() -> None:
    store = MemoryStore()
    young, fresh = Replica(store, timing=LASTING), fresh_replica(store)
    assert names(young) == names(fresh) == []
    Replica(store).change(lambda content: add_project(content, "demo"))
    assert (names(young), names(fresh)) == ([], ["demo"])


def test_change_of_a_forked_process_is_seen_at_once() -> None:
    """The child's store is not the parent's, so the parent reads again, and finds nothing."""
    store = MemoryStore()
    replica = Replica(store, timing=LASTING)
    assert names(replica) == []
    child = os.fork()
    if not child:
        replica.change(lambda content: add_project(content, "demo"))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert names(replica) == []
    assert store.reads == 2
    assert names(replica) == []
    assert store.reads == 2


def test_own_change_is_seen_at_once() -> None:
    replica = Replica(MemoryStore(), timing=LASTING)
    replica.change(lambda content: add_project(content, "demo"))
    assert names(replica) == ["demo"]
    replica.change(lambda content: content.projects.clear())
    assert names(replica) == []


def test_concurrent_changes_are_all_stored() -> None:
    store = MemoryStore()
    other = fresh_replica(store)
    attempts = []

    def change(content: Content) -> None:
        attempts.append(len(content.projects))
        if len(attempts) < 3:
            other.change(lambda content: add_project(content, f"other{len(attempts)}"))
        add_project(content, "mine")

    fresh_replica(store).change(change)
    assert attempts == [0, 1, 2]
    assert names(other) == ["other1", "other2", "mine"]


def test_change_in_a_block_is_refused_after_another_change() -> None:
    store = MemoryStore()
    with pytest.raises(exceptions.IdentityChanged), fresh_replica(store).changing() as content:
        add_project(content, "mine")
        fresh_replica(store).change(lambda content: add_project(content, "other"))
    assert names(fresh_replica(store)) == ["other"]


def test_failed_change_is_not_stored() -> None:
    replica = fresh_replica(MemoryStore())
    replica.change(lambda content: add_project(content, "demo"))

    def fail(content: Content) -> None:
        content.projects.clear()
        raise exceptions.Conflict("no")

    with pytest.raises(exceptions.Conflict):
        replica.change(fail)
    with pytest.raises(ValueError, match="two projects have the name demo"):
        replica.change(lambda content: content.projects.append(Project(id="x", name="demo")))
    assert names(replica) == ["demo"]


def test_unchanged_records_are_not_stored_again() -> None:
    store = MemoryStore()
    replica = fresh_replica(store)
    replica.change(lambda content: add_project(content, "demo"))
    replica.change(lambda content: None)
    assert store.version == 1


def test_fields_and_kinds_of_a_newer_program_are_kept() -> None:
    store = MemoryStore()
    data = {"id": "p", "name": "demo", "color": "red"}
    store.change(0, [IdentityRecord(kind="project", id="p", data=data), IdentityRecord(kind="new", id="n", data={})])

    def describe(content: Content) -> None:
        content.projects[0].description = "d"

    fresh_replica(store).change(describe)
    stored = {record.id: record.data for record in store.read(0).records}
    assert stored["n"] == {}
    assert stored["p"] is not None
    assert (stored["p"]["color"], stored["p"]["description"]) == ("red", "d")


def test_unreadable_record_is_logged_and_not_used(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    records = [
        IdentityRecord(kind="project", id=id, data={"id": id, "name": name}) for id, name in (("a", 5), ("b", "b"))
    ]
    store.change(0, records)
    replica = fresh_replica(store)
    with caplog.at_level(logging.ERROR):
        assert names(replica) == ["b"]
    assert "Record a of kind project is not used" in caplog.text
    replica.change(lambda content: add_project(content, "c"))
    assert {record.id for record in store.read(0).records} == {"a", "b", "id-of-c"}


def test_independent_record_needs_no_version() -> None:
    store = MemoryStore()
    behind = Replica(store, timing=LASTING)
    assert names(behind) == []
    fresh_replica(store).change(lambda content: add_project(content, "demo"))
    behind.add(Revocation(id="r", expires_at=1.0))
    assert behind.content.find(Revocation, "r") is not None
    behind.remove(Revocation, ["r"])
    assert behind.content.find(Revocation, "r") is None
    assert names(behind) == ["demo"]


def test_failed_read_fails_requests_until_it_succeeds() -> None:
    store = MemoryStore()
    replica = fresh_replica(store)
    read, store.read = store.read, _fail  # type: ignore[method-assign]
    with pytest.raises(exceptions.MessagingUnavailable):
        names(replica)
    store.read = read  # type: ignore[method-assign]
    assert names(replica) == []


def _fail(known: int) -> object:
    raise exceptions.MessagingUnavailable(what="identity_read")


def test_requests_that_wait_for_records_share_a_message() -> None:
    store = MemoryStore()
    begun, go_on = threading.Event(), threading.Event()
    real = store.read

    def read(known: int) -> object:
        begun.set()
        assert go_on.wait(30)
        return real(known)

    store.read = read  # type: ignore[method-assign,assignment]
    replica = fresh_replica(store)
    threads = [threading.Thread(target=names, args=(replica,)) for _ in range(10)]
    threads[0].start()
    assert begun.wait(30)
    for thread in threads[1:]:
        thread.start()
    while replica._reads.pending < 9:
        pass
    go_on.set()
    for thread in threads:
        thread.join()
    assert store.reads == 2
