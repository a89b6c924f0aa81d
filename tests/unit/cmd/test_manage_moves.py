"""Plans of moves are carried out: how each server goes, how many at a time, what is said, and when it stops."""

from __future__ import annotations

import os
import signal
import threading
import time
import types
from collections.abc import Callable
from typing import Any

import pytest

from nova_lite import operations
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.base.timing import ManageTiming
from nova_lite.cmd.manage import maintenance, moves
from nova_lite.cmd.manage.app import App
from nova_lite.db.core.models import Service
from nova_lite.db.hosts import services
from nova_lite.db.servers import server_migrations
from nova_lite.objects import RetiredServer, Retirement
from tests.support.manage import Tool, placed, report

DEADLINE = 20.0


class Servers:
    """A scripted API and conductor. A move takes ``waits`` looks; ``fails`` names the operations that fail for a
    server, with event and cause.
    """

    def __init__(self, tool: Tool) -> None:
        self.conductor = self
        self.tool = tool
        self.asked: list[tuple[str, str]] = []
        self.fails: dict[tuple[str, str], tuple[str, str]] = {}
        self.states: dict[str, str] = {}
        self.places: dict[str, str] = {}
        self.services: dict[str, bool] = {}
        self.under_way: dict[str, int] = {}
        self.most = 0
        self.waits = 1
        self.accepted: Callable[[str, str], None] = lambda uuid, kind: None
        self.unheard = 0
        self._actions: dict[str, types.SimpleNamespace] = {}
        self._mutex = threading.Lock()

    def accept(self, context: RequestContext, uuid: str, kind: str, payload: dict[str, Any]) -> None:
        with self._mutex:
            if self.states.get(uuid) == "error":
                raise exceptions.InstanceInvalidState(method=kind, instance_id=uuid, attr="vm_state", state="error")
            if self.states.get(uuid) == "deleted":
                raise exceptions.InstanceNotFound(instance_id=uuid)
            self.asked.append((uuid, kind))
            self.under_way[uuid] = self.waits
            self.most = max(self.most, len(self.under_way))
            event, cause = self.fails.get((uuid, kind), ("", ""))
            found = types.SimpleNamespace(event=event, result="Error" if cause else "Success", details=cause)
            message = "Error" if cause else None
            self._actions[str(context.request_id)] = types.SimpleNamespace(
                message=message, events=[found], finish_time=None
            )
            if not cause and kind != operations.CONFIRM_RESIZE.kind:
                self.places[uuid] = payload["host"]
        self.accepted(uuid, kind)

    def action_get(self, context: RequestContext, uuid: str, request_id: str) -> types.SimpleNamespace:
        with self._mutex:
            if self.unheard:
                self.unheard -= 1
                raise exceptions.MessagingUnavailable(what="action_get")
            if uuid in self.under_way:
                self.under_way[uuid] -= 1
                if self.under_way[uuid] >= 0:
                    return self._actions[request_id]
                del self.under_way[uuid]
            self._actions[request_id].finish_time = 1
            return self._actions[request_id]

    def instance_get(self, context: RequestContext, uuid: str) -> types.SimpleNamespace:
        return types.SimpleNamespace(host=self.places[uuid], vm_state=self.states.get(uuid, "active"), progress=40)

    def service_list(self, context: RequestContext, host: str, binary: str) -> list[types.SimpleNamespace]:
        return [types.SimpleNamespace(uuid=host, disabled=self.services.get(host, False))]

    def service_update(self, context: RequestContext, uuid: str, changes: dict[str, Any]) -> None:
        self.services[uuid] = changes["disabled"]

    def server(self, host: str, **values: Any) -> str:
        uuid = placed(self.tool, host, **values)
        self.states[uuid], self.places[uuid] = values.get("vm_state", "active"), host
        return uuid

    def kinds(self, uuid: str) -> list[str]:
        return [kind for asked, kind in self.asked if asked == uuid]


@pytest.fixture
def servers(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> Servers:
    made = Servers(tool)
    monkeypatch.setattr(App, "servers", made)
    return made


def test_drained_host_has_no_servers_left(tool: Tool, servers: Servers) -> None:
    report(tool, "h1", "h2", "h3")
    runs, off = servers.server("h1"), servers.server("h1", vm_state="stopped")
    servers.server("h2")
    found = tool.json("host", "drain", "h1")
    assert {(move["server"], move["how"], move["why_not"]) for move in found} == {
        (runs, "live", None),
        (off, "cold", None),
    }
    assert servers.kinds(runs) == ["live-migration"]
    assert servers.kinds(off) == ["migrate", "confirmResize"]
    assert all(servers.places[move["server"]] == move["to"] != "h1" for move in found)
    assert servers.services == {"h1": True}
    for line in ("Host h1 is disabled", f"{runs} (vm): live to", f"{off} (vm): moved to", "2 of 2 server(s) moved."):
        assert line in tool.error


@pytest.mark.parametrize(("way", "kinds"), [("--cold", ["migrate", "confirmResize"]), ("--live", ["live-migration"])])
def test_move_goes_the_requested_way(tool: Tool, servers: Servers, way: str, kinds: list[str]) -> None:
    report(tool, "h1", "h2")
    uuid = servers.server("h1")
    tool("host", "drain", "h1", way)
    assert servers.kinds(uuid) == kinds
    assert "1 of 1 server(s) moved." in tool.text
    tool("host", "drain", "h1", "--cold", "--live", status=2)


def test_move_falls_back_to_cold_migration(tool: Tool, servers: Servers) -> None:
    report(tool, "h1", "h2")
    uuid = servers.server("h1")
    servers.fails[uuid, "live-migration"] = ("compute_pre_live_migration", "the CPU lacks avx512")
    tool("host", "drain", "h1")
    assert servers.kinds(uuid) == ["live-migration", "migrate", "confirmResize"]
    assert "cannot be moved while it runs: the CPU lacks avx512" in tool.text


@pytest.mark.parametrize("event", ["compute_live_migration", "compute_pre_live_migration"])
def test_failed_move_has_a_reason(tool: Tool, servers: Servers, event: str) -> None:
    report(tool, "h1", "h2", "h3")
    failing, other = servers.server("h1"), servers.server("h1")
    servers.fails[failing, "live-migration"] = (event, "it changes its memory too fast")
    found = tool.json("host", "drain", "h1", "--live", status=1)
    assert {move["server"]: move["why_not"] for move in found} == {
        failing: "it changes its memory too fast",
        other: None,
    }
    assert servers.kinds(failing) == ["live-migration"]
    assert "1 of 2 server(s) moved." in tool.error


def test_live_migration_that_fails_after_the_checks_is_not_retried_cold(tool: Tool, servers: Servers) -> None:
    report(tool, "h1", "h2")
    uuid = servers.server("h1")
    servers.fails[uuid, "live-migration"] = ("compute_live_migration", "aborted")
    tool("host", "drain", "h1", status=1)
    assert servers.kinds(uuid) == ["live-migration"]


def test_servers_without_a_target_or_in_error_stay_with_a_reason(tool: Tool, servers: Servers) -> None:
    report(tool, "h1", "h2")
    broken, one, two = servers.server("h1", vm_state="error"), servers.server("h1"), servers.server("h1")
    found = {move["server"]: move for move in tool.json("host", "drain", "h1", status=1)}
    reasons = {uuid: move["why_not"] for uuid, move in found.items()}
    nowhere = [uuid for uuid in (broken, one, two) if "failed RamFilter" in str(reasons[uuid])]
    assert len(nowhere) == 1
    if broken not in nowhere:
        assert "while it is in vm_state error" in reasons[broken]
    assert {found[uuid]["how"] for uuid in nowhere} == {None}


def test_move_of_a_server_that_left_or_was_deleted_is_skipped(tool: Tool, servers: Servers) -> None:
    report(tool, "h1", "h2")
    elsewhere = servers.server("h1")
    servers.places[elsewhere] = "h3"
    assert "it is on h3" in tool.json("host", "drain", "h1", status=1)[0]["why_not"]
    servers.places[elsewhere], servers.states[elsewhere] = "h1", "deleted"
    assert tool.json("host", "drain", "h1")[0]["why_not"] is None
    assert "is deleted" in tool.error


def test_drain_of_a_host_that_is_down_is_refused(tool: Tool, servers: Servers) -> None:
    report(tool, "h1", "h2")
    servers.server("h1")
    database = tool.database_of()
    database.write(lambda uow: uow.session.connection().exec_driver_sql("UPDATE services SET up = 0"))
    database.close()
    assert "can only be evacuated" in tool.fails("host", "drain", "h1")
    assert "could not be found" in tool.fails("host", "drain", "none")
    assert (servers.asked, servers.services) == ([], {})


@pytest.mark.parametrize("at_once", [1, 3])
def test_moves_run_up_to_the_limit_concurrently(tool: Tool, servers: Servers, at_once: int) -> None:
    report(tool, *(f"h{number}" for number in range(1, 6)))
    for _ in range(2):
        servers.server("h1")
    for host in ("h2", "h3"):
        servers.server(host)
    servers.waits = 10
    planned = [moves.Move(uuid, "vm", place, "h5") for uuid, place in servers.places.items()]
    app = types.SimpleNamespace(servers=servers, context=None, timing=tool.timing, say=lambda line: None)
    moves.Mover(app, None, at_once).run(planned)  # type: ignore[arg-type]
    assert (len(servers.asked), servers.most) == (4, at_once)


def test_move_into_an_occupied_place_waits(tool: Tool, servers: Servers) -> None:
    report(tool, "h1", "h2", "h3")
    first, second = servers.server("h2"), servers.server("h1")
    servers.waits = 10
    planned = [moves.Move(first, "vm", "h2", "h3"), moves.Move(second, "vm", "h1", "h2")]
    app = types.SimpleNamespace(servers=servers, context=None, timing=tool.timing, say=lambda line: None)
    results = moves.Mover(app, None, 2).run(planned)  # type: ignore[arg-type]
    assert [result.reason for result in results.values()] == ["", ""]
    assert (servers.most, [uuid for uuid, _ in servers.asked]) == (1, [first, second])


def test_rebalance_moves_a_server_to_the_emptier_host(tool: Tool, servers: Servers) -> None:
    report(tool, "h1", "h2")
    for _ in range(2):
        servers.server("h1")
    (move,) = tool.json("host", "rebalance")
    assert (move["from"], move["to"], move["how"], move["why_not"]) == ("h1", "h2", "live", None)
    assert servers.services == {}


def test_empty_plan_does_nothing(tool: Tool, servers: Servers) -> None:
    report(tool, "h1", "h2")
    assert tool.json("host", "rebalance") == tool.json("host", "drain", "h1") == []
    assert "0 of 0 server(s) moved." in tool.error


def test_move_survives_a_conductor_that_is_away_for_a_moment(tool: Tool, servers: Servers) -> None:
    report(tool, "h1", "h2")
    servers.server("h1")
    servers.unheard = 5
    tool("host", "drain", "h1")
    assert "1 of 1 server(s) moved." in tool.text


def test_long_move_shows_its_progress(tool: Tool, servers: Servers) -> None:
    tool.timing = ManageTiming(move_poll=0.01, move_progress=0.0)
    report(tool, "h1", "h2")
    uuid = servers.server("h1")
    tool("host", "drain", "h1")
    assert f"{uuid} (vm): live-migration, 40 %" in tool.text


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_mover_stops_on_request(tool: Tool, servers: Servers) -> None:
    report(tool, "h1", "h2", "h3")
    for _ in range(2):
        servers.server("h1", vm_state="stopped")
    servers.accepted = lambda uuid, kind: interrupt() if kind == "migrate" else None
    handler = signal.getsignal(signal.SIGINT)
    found = tool.json("host", "drain", "h1", status=1)
    assert [move["why_not"] for move in found] == [None, "not begun: stopped"]
    assert servers.kinds(found[0]["server"]) == ["migrate", "confirmResize"], "a running move ends"
    assert "Stopping: no further move begins; waiting for the running ones." in tool.error
    assert "1 of 2 server(s) moved." in tool.error
    assert signal.getsignal(signal.SIGINT) is handler


def test_second_interrupt_leaves_running_moves(tool: Tool, servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    stopping, say = threading.Event(), App.say

    def heard(self: App, line: str) -> None:
        say(self, line)
        if line.startswith("Stopping"):
            stopping.set()

    monkeypatch.setattr(App, "say", heard)
    report(tool, "h1", "h2")
    servers.server("h1")
    servers.waits = 10**9

    def leave(uuid: str, kind: str) -> None:
        def twice() -> None:
            interrupt()
            assert stopping.wait(DEADLINE)
            interrupt()

        threading.Thread(target=twice).start()

    servers.accepted = leave
    began = time.monotonic()
    (found,) = tool.json("host", "drain", "h1", status=1)
    assert found["why_not"] == "the live-migration continues; the command does not wait for it"
    assert time.monotonic() - began < DEADLINE


# --- retire


def test_retire_closes_actions_of_the_host_once_servers_are_accounted_for(tool: Tool, servers: Servers) -> None:
    server = RetiredServer(uuid="u", name="vm", vm_state="active", outcome="evacuate it")
    asked: list[tuple[str, int]] = []

    def host_retire(context: RequestContext, host: str, with_instances: bool) -> Retirement:
        asked.append((host, with_instances))
        return Retirement(done=with_instances, servers=[server], closed=3)

    servers.host_retire = host_retire  # type: ignore[attr-defined]
    assert "1 server(s) are on it. Evacuate them" in tool.fails("host", "retire", "h1")
    assert "evacuate it" in tool.text
    assert "h1 is retired; 3 open action(s) were closed" in tool("host", "retire", "h1", "--with-instances")
    assert asked == [("h1", False), ("h1", True)]
    assert tool.json("host", "retire", "h1", "--with-instances")[0]["outcome"] == "evacuate it"


class MaintainedHost:
    """Host ``h1`` without servers, whose service the tool changes in its database."""

    def __init__(self, tool: Tool, servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
        self._tool = tool
        monkeypatch.setattr(servers, "service_list", lambda *_: [self.service()])
        monkeypatch.setattr(servers, "service_update", lambda _, __, changes: self.change(**changes))
        report(tool, "h1", "h2")
        database = tool.database_of()
        database.write(services.report, "h1", services.COMPUTE, "compute", "")
        database.close()

    def service(self) -> Service:
        database = self._tool.database_of()
        found = database.read(services.find, "h1", services.COMPUTE)
        database.close()
        assert found is not None
        return found

    def change(self, **changes: Any) -> None:
        database = self._tool.database_of()
        database.write(services.update, self.service().uuid, changes)
        database.close()


def after_migration(host: MaintainedHost) -> str | None:
    return (host.service().disabled_reason or "").rpartition(" ")[2]


def test_maintenance_of_a_host_whose_last_one_did_not_end_begins_anew(
    tool: Tool, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = MaintainedHost(tool, servers, monkeypatch)
    newest = [7, 12]
    monkeypatch.setattr(server_migrations, "newest_id", lambda uow: newest.pop(0))
    tool("host", "maintenance", "h1")
    tool("host", "maintenance", "h1")
    assert (host.service().disabled, after_migration(host)) == (True, "7"), "a repeated command continues"
    host.change(disabled=False, disabled_reason=maintenance.ENDS.format(7))
    tool("host", "maintenance", "h1")
    assert (host.service().disabled, after_migration(host)) == (True, "12")


def test_interrupted_end_of_a_maintenance_is_repeated_on_the_enabled_host(
    tool: Tool, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = MaintainedHost(tool, servers, monkeypatch)
    host.change(disabled=False, disabled_reason=maintenance.ENDS.format(7))
    asked: list[tuple[str, int]] = []
    monkeypatch.setattr(server_migrations, "left_host", lambda uow, name, after: asked.append((name, after)) or [])
    tool("host", "maintenance", "h1", "--end")
    assert asked == [("h1", 7)]
    assert (host.service().disabled, host.service().disabled_reason) == (False, None)
    tool("host", "maintenance", "h1", "--end", status=1)
    assert "is not in maintenance" in tool.error
