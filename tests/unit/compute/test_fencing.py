"""The fencing token store: revocations survive, in every order of events."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nova_lite.base import exceptions, files
from nova_lite.compute.claims import Resources
from nova_lite.compute.fencing import ActionResult, FencingTokenStore, Record
from nova_lite.objects import BuildOutcome, BuildResult

UUID = "11111111-1111-4111-8111-111111111111"


@pytest.fixture
def store(tmp_path: Path) -> FencingTokenStore:
    return FencingTokenStore(str(tmp_path / "fences"))


def again(store: FencingTokenStore) -> FencingTokenStore:
    """Return the store after a restart."""
    return FencingTokenStore(store._directory)


def failure(generation: int) -> BuildResult:
    return BuildResult(instance_uuid=UUID, generation=generation, host="h", outcome=BuildOutcome.ABORTED, message="why")


def test_new_store_has_no_revocations(store: FencingTokenStore) -> None:
    store.check(UUID, 0)
    assert store.get(UUID) == Record(uuid=UUID)


def test_revocation_holds_for_lower_generations_and_after_a_restart(store: FencingTokenStore) -> None:
    store.revoke(UUID, 3)
    store.revoke(UUID, 2)
    for life in (store, again(store)):
        for generation in (1, 2, 3):
            with pytest.raises(exceptions.Fenced, match="fenced at generation 3"):
                life.check(UUID, generation)
        life.check(UUID, 4)


def test_revocation_is_synced_before_revoke_returns(store: FencingTokenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    fsync, replace = files.os.fsync, files.os.replace
    monkeypatch.setattr(files.os, "fsync", lambda fd: (synced.append("sync"), fsync(fd))[1])
    monkeypatch.setattr(files.os, "replace", lambda a, b: (synced.append("rename"), replace(a, b))[1])
    store.revoke(UUID, 1)
    assert synced == ["sync", "rename", "sync"]


def test_failed_write_changes_nothing(store: FencingTokenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.revoke(UUID, 1)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        store.revoke(UUID, 2)
    store.check(UUID, 2)
    monkeypatch.undo()
    again(store).check(UUID, 2)
    assert len(list(Path(store._directory).iterdir())) == 1


def test_complete_and_revoked_exclude_each_other(store: FencingTokenStore) -> None:
    store.mark_creating(UUID, 1)
    store.mark_built(UUID, 1, Resources(vcpus=1))
    assert store.revoke_unless_built(UUID, 1) is False
    store.check(UUID, 1)
    assert store.revoke_unless_built(UUID, 2) is True
    with pytest.raises(exceptions.Fenced):
        store.mark_built(UUID, 2)
    with pytest.raises(exceptions.Fenced):
        store.mark_creating(UUID, 2)
    assert not store.get(UUID).is_revoked(1), "a complete build stays valid"


def test_concurrent_build_and_revocation_have_one_winner(store: FencingTokenStore) -> None:
    for generation in range(1, 40):
        won: list[str] = []

        def build(generation: int = generation, won: list[str] = won) -> None:
            try:
                store.mark_built(UUID, generation)
            except exceptions.Fenced:
                return
            won.append("build")

        def fence(generation: int = generation, won: list[str] = won) -> None:
            if store.revoke_unless_built(UUID, generation):
                won.append("fence")

        threads = [threading.Thread(target=work) for work in (build, fence)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1


def test_failed_build_is_remembered_with_its_report(store: FencingTokenStore) -> None:
    store.mark_creating(UUID, 2)
    store.revoke_failed_build(failure(2))
    record = again(store).get(UUID)
    assert record.failed_build == failure(2)
    assert record.is_revoked(2)
    assert record.may_have_domain, "until it is removed"
    store.mark_removed(UUID)
    assert not again(store).get(UUID).may_have_domain


def test_failed_build_does_not_lower_a_revocation(store: FencingTokenStore) -> None:
    store.revoke(UUID, 5)
    store.revoke_failed_build(failure(4))
    assert store.get(UUID).revoked_generation == 5


def test_admission_accepts_commands_in_order(store: FencingTokenStore) -> None:
    done = ActionResult(power_state=4)
    assert store.admit(UUID, 7)
    assert store.admit(UUID, 7), "seen, not finished"
    store.record_result(UUID, 6, ActionResult(error="of another one"))
    assert store.admit(UUID, 7)
    store.record_result(UUID, 7, done)
    after = again(store)
    assert after.admit(UUID, 7)
    assert after.get(UUID).result == done
    assert not after.admit(UUID, 6)
    assert after.admit(UUID, 8, revoke_generation=3)
    assert (after.get(UUID).result, after.get(UUID).revoked_generation) == (None, 3)


def test_dropped_delete_revokes_nothing(store: FencingTokenStore) -> None:
    store.admit(UUID, 8)
    assert not store.admit(UUID, 7, revoke_generation=9)
    store.check(UUID, 9)


OTHER = "22222222-2222-4222-8222-222222222222"


def test_pruning_removes_only_records_without_a_domain(store: FencingTokenStore) -> None:
    store.mark_creating(UUID, 1)
    store.revoke(OTHER, 1)
    assert store.without_domain() == [store.get(OTHER)]
    assert store.prune([store.get(UUID), store.get(OTHER)], 7) == 1
    assert again(store).get(UUID).created_generation == 1
    assert again(store).get(OTHER) == Record(uuid=OTHER, settled_action_id=7)


def test_pruning_keeps_a_record_that_has_changed_since_the_query(store: FencingTokenStore) -> None:
    store.revoke(UUID, 1)
    seen = store.without_domain()
    store.revoke(UUID, 2)
    assert store.prune(seen, 7) == 0
    with pytest.raises(exceptions.Fenced):
        again(store).check(UUID, 2)


def test_commands_up_to_the_settled_action_are_out_of_order(store: FencingTokenStore) -> None:
    store.admit(UUID, 5)
    store.prune(store.without_domain(), 7)
    for life in (store, again(store)):
        assert not life.admit(UUID, 5, revoke_generation=9)
        assert not life.admit(UUID, 7)
        assert [life.get(UUID).is_build_in_order(number) for number in (5, 7, 8)] == [False, False, True]
    assert store.admit(UUID, 6, is_open=True), "the conductor waits for it"
    assert store.admit(UUID, 6, sequence=1)
    assert store.admit(OTHER, 8)
    assert not again(store).admit(OTHER, 7)


def test_settled_action_id_never_falls(store: FencingTokenStore) -> None:
    store.prune([], 7)
    store.prune([], 3)
    assert again(store).get(UUID).settled_action_id == 7


def test_settled_action_id_is_on_disk_before_a_record_is_removed(
    store: FencingTokenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.revoke(UUID, 1)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        store.prune(store.without_domain(), 7)
    with pytest.raises(exceptions.Fenced):
        again(store).check(UUID, 1)


@pytest.mark.parametrize("content", [b"", b"what", b"\xff"])
def test_corrupt_settled_action_id_stops_the_daemon_with_one_line(store: FencingTokenStore, content: bytes) -> None:
    store.prune([], 7)
    path = Path(store._directory, "settled")
    path.write_bytes(content)
    with pytest.raises(exceptions.ConfigurationError, match=str(path)):
        again(store)


def test_resources_of_completed_builds(store: FencingTokenStore) -> None:
    store.mark_built(UUID, 1, Resources(memory_mb=5))
    store.revoke(UUID, 1)
    assert again(store).resources() == {UUID: Resources(memory_mb=5)}
    store.mark_removed(UUID)
    assert again(store).resources() == {}


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"uuid": "\xff"}'])
def test_corrupt_record_stops_the_daemon_with_one_line(store: FencingTokenStore, content: bytes) -> None:
    store.revoke(UUID, 1)
    path = Path(store._directory) / f"{UUID}.json"
    path.write_bytes(content)
    with pytest.raises(exceptions.ConfigurationError, match=str(path)):
        again(store)


def test_partial_file_of_a_kill_is_ignored_and_removed(store: FencingTokenStore) -> None:
    (Path(store._directory) / f"{files.TEMPORARY}x").write_bytes(b"{")
    again(store)
    assert list(Path(store._directory).iterdir()) == []


def test_record_path_stays_in_the_directory(store: FencingTokenStore) -> None:
    store.revoke("../../evil", 1)
    assert [path.name for path in Path(store._directory).iterdir()] == ["evil.json"]


GENERATIONS = st.integers(1, 4)
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("revoke"), GENERATIONS),
        st.tuples(st.just("mark_creating"), GENERATIONS),
        st.tuples(st.just("mark_built"), GENERATIONS),
        st.tuples(st.just("fail"), GENERATIONS),
        st.tuples(st.just("fence"), GENERATIONS),
        st.tuples(st.just("removed"), GENERATIONS),
        st.tuples(st.just("restart"), GENERATIONS),
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(events=EVENTS)
def test_revoked_generation_is_never_created_again(
    events: list[tuple[str, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = FencingTokenStore(str(tmp_path_factory.mktemp("fences")))
    given_up = 0
    for event, generation in events:
        if event == "restart":
            before = store.get(UUID)
            store = again(store)
            assert store.get(UUID) == before
        elif event in ("mark_creating", "mark_built"):
            try:
                getattr(store, event)(UUID, generation)
            except exceptions.Fenced:
                assert generation <= given_up
            else:
                assert generation > given_up or store.get(UUID).built_generation == generation
        elif event == "removed":
            store.mark_removed(UUID)
        elif event == "fence":
            if store.revoke_unless_built(UUID, generation):
                given_up = max(given_up, generation)
        else:
            store.revoke_failed_build(failure(generation)) if event == "fail" else store.revoke(UUID, generation)
            given_up = max(given_up, generation)
        assert max(0, store.get(UUID).revoked_generation) == given_up


def test_identity_is_kept_and_differs_between_hosts(store: FencingTokenStore, tmp_path: Path) -> None:
    identity = store.identity()
    assert again(store).identity() == identity
    assert FencingTokenStore(str(tmp_path / "other")).identity() != identity
    again(store).prune(again(store).without_domain(), 7)
    assert again(store).identity() == identity


def test_corrupt_identity_is_not_replaced(store: FencingTokenStore) -> None:
    Path(store._directory, "identity").write_text("what")
    with pytest.raises(exceptions.ConfigurationError, match="identity"):
        store.identity()


def test_record_file_keeps_its_field_names(store: FencingTokenStore) -> None:
    """A daemon of another version reads the same files."""
    store.revoke_failed_build(failure(2))
    store.admit(UUID, 7, sequence=1, request_id="req-1")
    (path,) = Path(store._directory).glob("*.json")
    content = json.loads(path.read_bytes())
    assert (content["fenced_generation"], content["last_action_id"], content["last_position"]) == (2, 7, 1)
    assert content["refused"]["generation"] == 2
