"""State of the database's nodes of several controllers, as load balancers see it."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest
from oslo_config import cfg

from nova_lite.base import metrics
from nova_lite.conductor.manager import ConductorManager
from nova_lite.db.core import database_nodes
from nova_lite.objects import Controller
from nova_lite.rpc import controllers, node_reports
from tests.support import make

BALANCED = f"mysql+pymysql://nova_lite:x@127.0.0.1:{controllers.DATABASE_PORT}/nova_lite"


class Reports:
    """Controllers that report the words of `words` for their addresses. An address without a word refuses
    connections."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.words: dict[str, bytes] = {}
        monkeypatch.setattr(node_reports.socket, "create_connection", self._connect)

    def _connect(self, target: tuple[str, int], seconds: float) -> socket.socket:
        address, port = target
        assert port == controllers.CHECK_PORT
        if address not in self.words:
            raise ConnectionRefusedError(111, "Connection refused")
        ours, theirs = socket.socketpair()
        threading.Thread(target=lambda: (theirs.sendall(self.words[address]), theirs.close())).start()
        return ours


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> Reports:
    return Reports(monkeypatch)


@pytest.fixture
def conf(tmp_path: Path) -> cfg.ConfigOpts:
    listed = [Controller(host=f"ha{number}", address=f"192.0.2.1{number}") for number in (1, 2, 3)]
    controllers.write_members(str(tmp_path), listed)
    made = make.conf(BALANCED)
    made.set_override("keys_directory", str(tmp_path), "rpc")
    return made


def test_node_that_load_balancers_leave_out_has_a_problem(conf: cfg.ConfigOpts, reports: Reports) -> None:
    reports.words = {"192.0.2.11": b"up\n", "192.0.2.12": b"down\n"}
    assert database_nodes.problems(conf) == {
        "ha1": "",
        "ha2": "does not run",
        "ha3": "does not report its state (Connection refused)",
    }
    for report, said in (
        (b"down\nwsrep_cluster_status\tnon-Primary\n", "sees no majority of the nodes"),
        (b"down\nwsrep_cluster_status\tPrimary\n", "is not ready"),
        (b"down\n\nruns 7\n", "starts, and waits for other nodes or for a copy"),
        (b"", "does not report its state (its report is none)"),
    ):
        reports.words["192.0.2.12"] = report
        assert database_nodes.problems(conf)["ha2"] == said


@pytest.mark.parametrize("url", ["sqlite://", "postgresql+psycopg://u:p@192.0.2.50/nova", "mysql://u:p@127.0.0.1/nova"])
def test_database_of_another_kind_has_no_nodes(conf: cfg.ConfigOpts, url: str) -> None:
    conf.set_override("connection", url, "database")
    assert database_nodes.problems(conf) == {}


def test_node_that_is_not_used_has_a_metric_also_while_the_database_is_away(
    conf: cfg.ConfigOpts, reports: Reports
) -> None:
    reports.words = {"192.0.2.11": b"up\n"}
    manager = object.__new__(ConductorManager)
    manager.conf = conf
    found = []
    with pytest.raises(AttributeError):  # The manager has no database.
        for name, (labels, value) in manager.states():
            found.append((name, labels, value))
    assert found == [(metrics.DATABASE_NODE, (host,), used) for host, used in (("ha1", 1), ("ha2", 0), ("ha3", 0))]
