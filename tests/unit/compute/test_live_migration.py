"""Preparation of a live migration at the source, and its end at the destination."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from nova_lite.base import exceptions
from nova_lite.base.timing import ComputeTiming
from nova_lite.compute import manager
from nova_lite.compute.operations import live_migration
from nova_lite.objects import LiveSource, MigrationControl, MigrationProgress
from nova_lite.operations import states
from nova_lite.virt.abilities import LiveMoves
from tests.support.guests import make_instance


def check(disks: dict[str, int], block: bool | None) -> dict[str, Any]:
    moves = mock.Mock(spec=LiveMoves)
    moves.check_source.return_value = LiveSource(driver="fake", disks=disks)
    host: Any = SimpleNamespace(driver=SimpleNamespace(live_moves=moves), require_domain=lambda command: None)
    command: Any = SimpleNamespace(instance=SimpleNamespace(uuid="uuid"), payload={"block": block})
    return live_migration.check_can_live_migrate_source(host, command)


@pytest.mark.parametrize(
    ("disks", "block"), [({}, False), ({}, None), ({}, True), ({"disk": 1}, None), ({"disk": 1}, True)]
)
def test_source_offers_its_disks(disks: dict[str, int], block: bool | None) -> None:
    assert check(disks, block)["live"]["disks"] == disks


def test_local_disks_need_a_block_migration() -> None:
    with pytest.raises(exceptions.MigrationPreCheckError, match="block_migration is needed"):
        check({"disk": 1}, False)


@pytest.mark.parametrize("vm_state", [states.ACTIVE, states.PAUSED])
def test_destination_lets_the_source_in_no_longer(monkeypatch: pytest.MonkeyPatch, vm_state: str) -> None:
    moves = mock.Mock(spec=LiveMoves)
    settle(monkeypatch, moves, vm_state, domain=object())
    moves.finish.assert_called_once_with("uuid")
    assert moves.take_over_paused.called == (vm_state == states.PAUSED)


def test_destination_whose_guest_is_missing_ends_the_move(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    moves = mock.Mock(spec=LiveMoves)
    host, interfaces = settle(monkeypatch, moves, states.PAUSED, domain=None)
    assert "its domain of generation 2 is missing" in caplog.text
    host.fencing.mark_built.assert_called_once()
    moves.finish.assert_called_once_with("uuid")
    assert (interfaces.bind.called, interfaces.bind_and_plug.called) == (True, False)
    assert not moves.take_over_paused.called


def settle(monkeypatch: pytest.MonkeyPatch, moves: Any, vm_state: str, domain: object) -> tuple[Any, Any]:
    """End a live migration at its destination, and return the host and what connected the guest there."""
    host: Any = SimpleNamespace(
        driver=SimpleNamespace(live_moves=moves), fencing=mock.Mock(), domain=lambda uuid: domain
    )
    command: Any = SimpleNamespace(
        instance=make_instance(uuid="uuid", vm_state=vm_state), generation=2, payload={"answers": {}}
    )
    interfaces = mock.Mock()
    monkeypatch.setattr(live_migration, "moves", mock.Mock(instance_at=lambda command, role: command.instance))
    monkeypatch.setattr(live_migration, "interfaces", interfaces)
    live_migration.post_live_migration_at_destination(host, command)
    return host, interfaces


def test_destination_that_cannot_continue_the_guest_claims_and_plugs_nothing() -> None:
    moves = mock.Mock(spec=LiveMoves)
    moves.check_destination.side_effect = exceptions.MigrationPreCheckError(reason="its processor lacks avx512f")
    host: Any = SimpleNamespace(driver=mock.Mock(live_moves=moves), fencing=mock.Mock(), claims=mock.Mock())
    live = {"driver": "fake", "disks": {}, "guest_cpu": {"virt_type": "kvm", "features": "avx512f"}}
    payload = {"answers": {"check": {"live": live}}}
    command: Any = SimpleNamespace(instance=SimpleNamespace(uuid="uuid"), generation=2, payload=payload)
    with pytest.raises(exceptions.MigrationPreCheckError, match="avx512f"):
        live_migration.pre_live_migration(host, command)
    (source,) = moves.check_destination.call_args.args
    assert source.guest_cpu.features == "avx512f"
    assert (host.claims.mock_calls, host.driver.networks.mock_calls, moves.prepare.called) == ([], [], False)


# --- several at a time

DEADLINE = 30.0
READY = {"answers": {"prepare": {"live": {"driver": "fake", "host": "h2", "generation": 2, "address": "192.0.2.2"}}}}


class Source:
    """A host with ``limit`` slots. Migrations wait in the driver until ``may_end``. ``wish``: of the user."""

    def __init__(self, limit: int) -> None:
        self.started: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.queued: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.may_end = threading.Event()
        self.wish = MigrationControl.CONTINUE
        moves = mock.Mock(spec=LiveMoves)
        moves.settle.return_value = False
        moves.migrate.side_effect = self._migrate
        self.host: Any = SimpleNamespace(
            driver=SimpleNamespace(live_moves=moves),
            name="h1",
            require_domain=lambda command: None,
            fencing=SimpleNamespace(get=lambda uuid: SimpleNamespace(last_command=(uuid, 1))),
            conductor=SimpleNamespace(live_migration_progress=self._progress),
            timing=ComputeTiming(live_migration_slot_poll=0.01),
            live_migration_slots=manager._slots(limit),
        )

    def _migrate(self, uuid: str, destination: object, watch: object) -> None:
        self.started.put(uuid)
        assert self.may_end.wait(DEADLINE)

    def _progress(
        self, context: object, host: str, action_id: str, sequence: int, progress: MigrationProgress
    ) -> MigrationControl:
        assert progress.queued
        self.queued.put(action_id)
        return self.wish

    def run(self, uuid: str) -> None:
        command: Any = SimpleNamespace(instance=SimpleNamespace(uuid=uuid), payload=READY, action_id=uuid, sequence=1)
        live_migration.live_migration(self.host, command)


def test_further_migration_waits_for_its_turn_and_reports_it() -> None:
    source = Source(1)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(source.run, "a")
        assert source.started.get(timeout=DEADLINE) == "a"
        second = pool.submit(source.run, "b")
        assert [source.queued.get(timeout=DEADLINE) for _ in range(3)] == ["b"] * 3
        assert source.started.empty()
        source.may_end.set()
        first.result(DEADLINE)
        second.result(DEADLINE)
    assert source.started.get(timeout=DEADLINE) == "b"
    source.run("c")


@pytest.mark.parametrize("limit", [2, 0])
def test_migrations_within_the_limit_do_not_wait(limit: int) -> None:
    source = Source(limit)
    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(source.run, uuid) for uuid in ("a", "b")]
        assert {source.started.get(timeout=DEADLINE) for _ in running} == {"a", "b"}
        source.may_end.set()
        for future in running:
            future.result(DEADLINE)
    assert source.queued.empty()


def test_waiting_migration_that_is_aborted_does_not_begin() -> None:
    source = Source(1)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(source.run, "a")
        assert source.started.get(timeout=DEADLINE) == "a"
        source.wish = MigrationControl.ABORT
        with pytest.raises(exceptions.MigrationAborted):
            source.run("b")
        source.may_end.set()
        first.result(DEADLINE)
    assert source.started.empty()
