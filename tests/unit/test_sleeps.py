"""Tests sleep only where the seconds are their subject. All else waits with `tests.support.waiting`."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
#: Functions that sleep, by module, and why.
PLACES = {
    "support/waiting.py": {"polls": "the pause of every poll"},
    # The pace of a load or of an observer.
    "faults/history/clients.py": {"Client.create": "a client repeats a create after a random time"},
    "integration/libvirt/eventlet_guest.py": {"Watch._tick": "a thread measures how long it does not run"},
    "integration/systemd/failover_load.py": {
        "Load._read": "the load's rate, in a program that has no test modules",
        "Load._write": "the load's rate, in a program that has no test modules",
    },
    # The length of a fault, or of the time around it.
    "faults/arena.py": {"Arena.outlast": "a fault of known length ends"},
    "faults/outages.py": {"Strike.run": "the broker or the database is away"},
    "faults/private.py": {
        "Server.restart": "a server is away",
        "PrivateDatabase._install": "the server's packages are being changed",
    },
    "faults/real_failover.py": {"Machine.hang": "a host hangs"},
    "faults/scenarios.py": {"no_scheduler": "no scheduler runs until shortly before the deadline"},
    "functional/test_restarts_under_load.py": {
        "test_daemons_restarted_one_by_one_under_load_refuse_no_request": "a daemon is away",
    },
    "integration/systemd/failover.py": {
        "RunningLoad.__init__": "quiet seconds of the measurement, before the fault",
        "RunningLoad.finish": "quiet seconds of the measurement, after the fault",
        "measure": "a machine is lost",
    },
    "model/unreliable_cloud.py": {"UnreliableCloud.run": "messages and faults come after random times"},
    # A slow party.
    "unit/virt/qemu/fake_qemu.py": {"main": "a process ends later than its monitor"},
    "unit/api/image/test_imports.py": {
        "test_host_that_sends_its_response_byte_by_byte_is_given_up_at_the_deadline.respond": "a server sends slowly",
    },
    "unit/api/test_limits.py": {"test_request_in_pieces_is_served": "a client sends in pieces"},
    "unit/compute/test_server_metrics.py": {"test_slow_reading_is_repeated_less_often": "a driver's call takes long"},
    "unit/console/test_proxy.py": {
        "test_proxy_closes_a_connection_whose_request_comes_in_drops": "a client sends in drops",
    },
    "unit/scheduler/test_scheduler_manager.py": {
        "test_concurrent_decisions_never_share_a_place.Slow.randrange": "other threads run during a decision",
    },
}


def sleeping_functions(source: str) -> list[str]:
    """Return the functions of a module that sleep, once for each sleep. The wait for an unnamed event is a sleep."""
    found: list[str] = []

    def visit(node: ast.AST, name: str) -> None:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{name}.{node.name}".lstrip(".")
        written = ast.unparse(node) if isinstance(node, ast.Attribute | ast.ImportFrom) else ""
        if written in ("time.sleep", "asyncio.sleep", "threading.Event().wait", "from time import sleep"):
            found.append(name)
        for child in ast.iter_child_nodes(node):
            visit(child, name)

    visit(ast.parse(source), "")
    return found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("class A:\n    def f(self):\n        time.sleep(1)\n        time.sleep(2)", ["A.f", "A.f"]),
        ("def f():\n    g(lambda: time.sleep(1))", ["f"]),
        ("def f():\n    return Thread(target=time.sleep)", ["f"]),
        ("def f():\n    threading.Event().wait(0.1)", ["f"]),
        ("from time import sleep", [""]),
        ("def f(stop):\n    stop.wait(0.1)", []),
        ("def f():\n    run('time.sleep(1)')", []),
    ],
)
def test_sleep_is_found(source: str, found: list[str]) -> None:
    assert sleeping_functions(source) == found


def test_no_function_sleeps_unless_it_is_named() -> None:
    found = {
        str(path.relative_to(TESTS)): names
        for path in TESTS.rglob("*.py")
        if (names := sleeping_functions(path.read_text()))
    }
    assert found == {module: list(names) for module, names in PLACES.items()}
