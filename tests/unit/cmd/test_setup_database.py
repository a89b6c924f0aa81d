"""``nova-lite-setup database``: which node may begin a new majority, and orderly stops that wait for the others."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from nova_lite.cmd import setup
from nova_lite.cmd.setup import cluster, database, database_watch, galera, machine
from nova_lite.cmd.setup.database import plan
from nova_lite.cmd.setup.database_watch import INTERVAL, PATIENCE, DatabaseWatch
from nova_lite.objects import Controller
from nova_lite.rpc import controllers, node_reports
from nova_lite.rpc.node_reports import JOINS, SILENT, STARTS, STOPPED, USED, WAITS, Node

UUID = "8b54cb2d-eb56-11f1-ba78-3abf75f44e39"
ADDRESSES = {f"ha{number}": f"192.0.2.1{number}" for number in (1, 2, 3)}


def node(host: str, state: str, seqno: int = -1, uuid: str = UUID) -> Node:
    return Node(host, state, uuid, seqno, reason="timed out" if state == SILENT else "")


# --- which node begins


def test_running_node_begins_although_a_stopped_one_has_the_same_commits() -> None:
    assert plan([node("ha1", STARTS, 28), node("ha2", STOPPED, 28), node("ha3", WAITS, 28)]).host == "ha3"


def test_node_with_the_last_commit_begins_although_it_is_stopped() -> None:
    assert plan([node("ha1", STARTS, 27), node("ha2", STOPPED, 29), node("ha3", WAITS, 28)]).host == "ha2"


def test_node_without_data_counts_and_never_begins() -> None:
    empty = Node("ha1", STARTS, is_empty=True)
    assert plan([empty, node("ha2", STOPPED, 0), node("ha3", STARTS, 5)]).host == "ha3"
    assert "restore a backup" in plan([empty]).reason


@pytest.mark.parametrize(
    ("found", "said", "is_final"),
    [
        ([node("ha1", WAITS, 9), node("ha2", USED), node("ha3", STOPPED, 9)], "ha2 is in a majority", True),
        ([node("ha1", WAITS, 9), node("ha2", JOINS, 9), node("ha3", STOPPED, 9)], "ha2 is in a majority", True),
        ([node("ha1", WAITS, 9), node("ha2", SILENT), node("ha3", STOPPED, 9)], "ha2 does not report", True),
        ([node("ha1", WAITS, 9), node("ha2", STARTS), node("ha3", STOPPED, 9)], "commit of ha2 is not known", False),
        ([node("ha1", WAITS, 9), node("ha2", STOPPED, 4, "other"), node("ha3", WAITS, 9)], "different clusters", True),
    ],
)
def test_no_node_begins_while_another_may_go_on_or_have_later_commits(
    found: list[Node], said: str, is_final: bool
) -> None:
    made = plan(found)
    assert (made.host, made.is_final) == ("", is_final) and said in made.reason


def test_machine_that_is_off_is_left_out_by_the_operators_word_alone() -> None:
    found = [node("ha1", WAITS, 9), node("ha2", SILENT), node("ha3", STOPPED, 8)]
    assert "--without ha2" in plan(found).reason
    assert plan(found, ["ha2"]).host == "ha1"
    assert "it counts" in plan(found, ["ha3"]).reason
    assert "ha9 is no controller" in plan(found, ["ha2", "ha9"]).reason


# --- reports


def test_reports_of_a_node_are_read() -> None:
    status = f"wsrep_cluster_state_uuid\t{UUID}\nwsrep_last_committed\t28\nwsrep_ready\tOFF\n"
    saved = f"uuid {UUID}\nseqno -1\n"
    assert node_reports.parse("ha1", "up\n") == Node("ha1", USED)
    waiting = f"down\nwsrep_cluster_status\tnon-Primary\n{status}runs 7\nstart {UUID}:3\n{saved}"
    assert node_reports.parse("ha1", waiting) == node("ha1", WAITS, 28)
    assert node_reports.parse("ha1", f"down\nwsrep_cluster_status\tPrimary\n{status}") == node("ha1", JOINS, 28)
    assert node_reports.parse("ha1", f"down\n\nruns 7\nstart {UUID}:3\n{saved}") == node("ha1", STARTS, 3)
    assert node_reports.parse("ha1", f"down\n\nruns 7\n{saved}") == node("ha1", STARTS)
    assert node_reports.parse("ha1", f"down\n\n{saved}") == node("ha1", STOPPED)
    assert node_reports.parse("ha1", f"down\n\nuuid {UUID}\nseqno 5\n") == node("ha1", STOPPED, 5)
    nothing = "00000000-0000-0000-0000-000000000000"
    assert node_reports.parse("ha1", f"down\n\nruns 7\nstart {nothing}:-1\nuuid {nothing}\nseqno -1\n").is_empty
    assert not node_reports.parse("ha1", f"down\n\nuuid {nothing}\nseqno -1\n").is_empty
    with pytest.raises(ValueError, match="its report is none"):
        node_reports.parse("ha1", "startup\n")


@pytest.mark.parametrize(
    ("ready", "cluster_status", "first"),
    [("ON", "Primary", "up"), ("OFF", "Primary", "down"), ("ON", "non-Primary", "down"), ("", "", "down")],
)
def test_report_is_up_for_a_ready_node_of_the_majority_alone(
    tmp_path: Path, ready: str, cluster_status: str, first: str
) -> None:
    """The program runs with a client of the database that prints this state, and no running database."""
    rows = f"wsrep_ready\\t{ready}\\nwsrep_cluster_status\\t{cluster_status}\\nwsrep_last_committed\\t12"
    for name, text in (("mariadb", f"printf '{rows if ready else ''}\\n'"), ("pidof", "true")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    saved = tmp_path / "grastate.dat"
    saved.write_text(f"# GALERA saved state\nversion: 2.1\nuuid:    {UUID}\nseqno:   12\nsafe_to_bootstrap: 0\n")
    program = galera.REPORT_TEXT.replace("/var/lib/mysql", str(tmp_path))
    done = subprocess.run(
        ["sh", "-c", program], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[0] == first
    if first == "down":
        found = node_reports.parse("ha1", done.stdout)
        assert found.seqno == 12 and found.state in (
            {"Primary": JOINS, "non-Primary": WAITS}.get(cluster_status, STOPPED)
        )


# --- the commands


class Cloud:
    """Three controllers, of which ha2 is this machine. ``found``: their nodes. ``done``: what was done here."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
        self.now, self.done, self.serving = 0.0, list[str](), set[str]()
        self.found = [node("ha1", STARTS, 28), node("ha2", WAITS, 28), node("ha3", STOPPED, 27)]
        self.sizes = [3]
        self.keys = path / "keys"
        self.keys.mkdir()
        controllers.write_members(str(self.keys), [Controller(host=h, address=a) for h, a in ADDRESSES.items()])
        monkeypatch.setattr(cluster, "LOCAL", path / "cluster.json")
        cluster.write_local(
            cluster.Local(
                host="ha2", address=ADDRESSES["ha2"], interface="eth0", virtual_address="192.0.2.10", has_database=True
            )
        )
        monkeypatch.setattr(cluster, "KEYS", self.keys)
        monkeypatch.setattr(setup, "_LOCK", str(path / "lock"))
        monkeypatch.setattr(setup.os, "geteuid", lambda: 0)
        monkeypatch.setattr(node_reports, "look", self._look)
        monkeypatch.setattr(
            database.broker_watch.ThisMachine, "accepts", lambda _, address, port: address in self.serving
        )
        monkeypatch.setattr(database.galera, "majority_size", lambda: self.sizes[0])
        for name in ("bootstrap_running", "bootstrap_stopped"):
            monkeypatch.setattr(database.galera, name, lambda name=name: self.done.append(name))
        monkeypatch.setattr(machine, "run", lambda *words, **_: self.done.append(" ".join(words)))
        monkeypatch.setattr(database.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(database.time, "sleep", self.sleep)

    def _look(self, member: Controller) -> Node:
        return next(found for found in self.found if found.host == member.host)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.now == 8:
            self.later()

    def later(self) -> None:
        """Change the cloud after eight seconds."""


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cloud:
    return Cloud(monkeypatch, tmp_path)


def test_recover_lets_the_running_node_of_this_machine_begin(cloud: Cloud, capsys: pytest.CaptureFixture[str]) -> None:
    assert setup.main(["database", "recover"]) == 0
    assert cloud.done == ["bootstrap_running"]
    said = capsys.readouterr().out
    assert f"ha1         starts                   {UUID}:28" in said
    assert "none has later commits than ha2: it begins a new one" in said
    assert "The node of ha3 is stopped. There: systemctl start mariadb" in said


def test_recover_starts_a_stopped_node_as_the_first(cloud: Cloud) -> None:
    cloud.found[1] = node("ha2", STARTS, 29)
    assert setup.main(["database", "recover"]) == 0
    assert cloud.done == ["bootstrap_stopped"]


def test_recover_names_the_machine_with_the_last_commit(cloud: Cloud, capsys: pytest.CaptureFixture[str]) -> None:
    cloud.found[0] = node("ha1", STARTS, 29)
    assert setup.main(["database", "recover"]) == 1
    assert "ha1 has the last commit. Run this command there." in capsys.readouterr().err
    assert not cloud.done


def test_recover_waits_for_a_node_whose_start_finds_its_position(cloud: Cloud) -> None:
    cloud.found[0] = node("ha1", STARTS)
    cloud.later = lambda: cloud.found.__setitem__(0, node("ha1", STARTS, 27))  # type: ignore[method-assign]
    assert setup.main(["database", "recover"]) == 0
    assert (cloud.done, cloud.now) == (["bootstrap_running"], 8)


def test_status_names_the_machine_on_which_to_recover(cloud: Cloud, capsys: pytest.CaptureFixture[str]) -> None:
    assert setup.main(["database", "status"]) == 0
    assert "No node is in a majority: on ha2, run nova-lite-setup database recover" in capsys.readouterr().out
    cloud.found[2] = node("ha3", USED)
    assert setup.main(["database", "status"]) == 0
    assert "No node" not in capsys.readouterr().out
    assert not cloud.done


def test_machine_without_a_node_is_refused(cloud: Cloud, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.LOCAL.unlink()
    assert setup.main(["database", "recover"]) == 1
    assert "no node of a database of several controllers" in capsys.readouterr().err


class Waiting:
    """A node that waits in its start, and ignores SIGTERM."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
        self.commands, self.pid, self.now = list[str](), "7", 0.0
        self.saved, self.view = path / "grastate.dat", path / "gvwstate.dat"
        self.saved.write_text(
            f"# GALERA saved state\nversion: 2.1\nuuid:    {UUID}\nseqno:   -1\nsafe_to_bootstrap: 0\n"
        )
        self.view.write_text("my_uuid: x\n")
        monkeypatch.setattr(galera, "_DATA", path)
        monkeypatch.setattr(galera, "is_ready", lambda: True)
        monkeypatch.setattr(machine, "ids", lambda user: (os.getuid(), os.getgid()))
        monkeypatch.setattr(machine, "run", self._run)
        monkeypatch.setattr(galera.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(galera.time, "sleep", self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds

    def _run(self, *words: str, **options: object) -> str:
        command = " ".join(words)
        if command.startswith("systemctl show"):
            return f"{self.pid}\n"
        self.commands.append(command)
        if "KILL" in command:
            self.pid = "0"
        assert command != "galera_new_cluster" or not self.view.exists(), "It would wait for its old majority."
        return ""


@pytest.mark.parametrize("is_killed", [True, False])
def test_node_that_waits_is_ended_and_starts_as_the_first_with_its_own_data(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_killed: bool
) -> None:
    waiting = Waiting(monkeypatch, tmp_path)
    if not is_killed:
        waiting.pid = "0"
    galera.bootstrap_stopped()
    kill = ["systemctl kill --signal=KILL mariadb"] if is_killed else []
    assert waiting.commands == [
        "systemctl stop --no-block mariadb",
        *kill,
        "systemctl stop mariadb",
        "galera_new_cluster",
    ]
    lines = waiting.saved.read_text().splitlines()
    assert f"uuid:    {UUID}" in lines and lines[-1] == "safe_to_bootstrap: 1"
    assert len([line for line in lines if line.startswith("safe_to_bootstrap")]) == 1
    assert waiting.saved.stat().st_mode & 0o777 == 0o660


# --- orderly stops


def test_stop_of_a_node_waits_until_the_cluster_has_noticed_a_dead_one(cloud: Cloud) -> None:
    cloud.found = [node("ha1", STARTS, 28), node("ha2", USED), node("ha3", USED)]
    cloud.later = lambda: cloud.sizes.__setitem__(0, 2)  # type: ignore[method-assign]
    assert setup.main(["settle", "database"]) == 0
    assert cloud.now == 8


def test_stop_of_a_node_waits_for_a_minute_at_most(cloud: Cloud, capsys: pytest.CaptureFixture[str]) -> None:
    cloud.found = [node("ha1", STARTS, 28), node("ha2", USED), node("ha3", USED)]
    assert setup.main(["settle", "database"]) == 0
    assert database.SETTLE_SECONDS <= cloud.now < database.SETTLE_SECONDS + 2
    assert "This one stops nevertheless" in capsys.readouterr().out


def test_stop_of_a_node_without_a_majority_does_not_wait(cloud: Cloud) -> None:
    cloud.sizes = [0]
    assert setup.main(["settle", "database"]) == 0
    cloud.sizes, cloud.found = [3], [node(host, USED) for host in ADDRESSES]
    assert setup.main(["settle", "database"]) == 0
    assert cloud.now == 0


def test_stop_of_a_broker_waits_until_the_others_are_a_majority(cloud: Cloud) -> None:
    cloud.serving = {ADDRESSES["ha2"], ADDRESSES["ha3"]}
    cloud.later = lambda: cloud.serving.add(ADDRESSES["ha1"])  # type: ignore[method-assign]
    assert setup.main(["settle", "broker"]) == 0
    assert cloud.now == 8


def test_stop_during_a_set_up_is_not_kept_by_its_lock(cloud: Cloud) -> None:
    with setup._alone():
        assert setup.main(["settle", "broker"]) == 0
        assert setup.main(["database", "recover"]) == 1


# --- the watch


def watched(cloud: Cloud, seconds: float) -> list[str]:
    """Let the watch of this machine look for so many seconds. Returns what it does."""
    watching = DatabaseWatch(str(cloud.keys), clock=lambda: cloud.now)
    end = cloud.now + seconds
    while cloud.now < end:
        watching.tick()
        cloud.now += INTERVAL
    return cloud.done


START = f"systemctl start --no-block {galera.RECOVERY}"


def test_watch_lets_the_node_with_the_last_commit_begin(cloud: Cloud) -> None:
    assert watched(cloud, PATIENCE) == []
    assert watched(cloud, PATIENCE + INTERVAL) == [START]


@pytest.mark.parametrize(
    "other", [node("ha1", USED), node("ha1", JOINS, 28), node("ha1", SILENT), node("ha1", STARTS, 29)]
)
def test_watch_leaves_a_cluster_alone_that_may_go_on_elsewhere(cloud: Cloud, other: Node) -> None:
    cloud.found[0] = other
    assert watched(cloud, 3 * PATIENCE) == []


def test_watch_of_a_machine_without_a_node_does_nothing(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_watch.cluster, "local", lambda: None)
    assert watched(cloud, 3 * PATIENCE) == []
