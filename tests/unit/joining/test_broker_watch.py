"""The watch over a controller's broker, whose application may stay stopped after the loss of others."""

from __future__ import annotations

from pathlib import Path

import pytest

from nova_lite.cmd.setup import broker, broker_watch, cluster
from nova_lite.cmd.setup.broker_watch import DISTRIBUTION_PORT, INTERVAL, PATIENCE, BrokerWatch
from nova_lite.objects import Controller
from nova_lite.rpc import controllers

ADDRESSES = ("192.0.2.11", "192.0.2.12", "192.0.2.13")
OWN = ADDRESSES[1]


class Machine:
    """A machine whose broker runs, but serves no client. ``processes``: addresses with a broker's process."""

    def __init__(self) -> None:
        self.serves, self.active, self.restarts = False, True, 0
        self.processes = set(ADDRESSES)
        self.now = 0.0

    def accepts(self, address: str, port: int) -> bool:
        if port == broker.TLS_PORT:
            assert address == OWN
            return self.serves
        assert port == DISTRIBUTION_PORT
        return address in self.processes

    def is_active(self) -> bool:
        return self.active

    def restart(self) -> None:
        self.restarts += 1


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    monkeypatch.setattr(cluster, "LOCAL", tmp_path / "cluster.json")
    listed = [Controller(host=f"ha{number}", address=address) for number, address in enumerate(ADDRESSES, 1)]
    controllers.write_members(str(tmp_path), listed)
    cluster.write_local(
        cluster.Local(host="ha2", address=OWN, interface="eth0", virtual_address="192.0.2.10", has_database=True)
    )
    return Machine()


def watch(machine: Machine, tmp_path: Path) -> BrokerWatch:
    return BrokerWatch(str(tmp_path), machine, lambda: machine.now)


def look(watching: BrokerWatch, machine: Machine, seconds: float) -> None:
    """Let the watch look for so many seconds."""
    end = machine.now + seconds
    while machine.now < end:
        watching.tick()
        machine.now += INTERVAL


def test_broker_that_stays_stopped_is_restarted_again_and_again(machine: Machine, tmp_path: Path) -> None:
    watching = watch(machine, tmp_path)
    look(watching, machine, PATIENCE)
    assert machine.restarts == 0
    look(watching, machine, INTERVAL)
    assert machine.restarts == 1
    look(watching, machine, PATIENCE)
    assert machine.restarts == 1
    look(watching, machine, 2 * INTERVAL)
    assert machine.restarts == 2


def test_broker_that_serves_in_between_is_left_alone(machine: Machine, tmp_path: Path) -> None:
    watching = watch(machine, tmp_path)
    for _ in range(5):
        machine.serves = False
        look(watching, machine, PATIENCE - INTERVAL)
        machine.serves = True
        look(watching, machine, INTERVAL)
    assert machine.restarts == 0


def test_broker_of_a_minority_or_stopped_by_an_operator_is_left_alone(machine: Machine, tmp_path: Path) -> None:
    watching = watch(machine, tmp_path)
    machine.processes = {OWN}
    look(watching, machine, 2 * PATIENCE)
    machine.processes, machine.active = {OWN, ADDRESSES[2]}, False
    look(watching, machine, 2 * PATIENCE)
    assert machine.restarts == 0
    machine.active = True
    look(watching, machine, 2 * PATIENCE)
    assert machine.restarts == 1


def test_broker_of_the_only_controller_is_left_alone(machine: Machine, tmp_path: Path) -> None:
    controllers.write_members(str(tmp_path), [Controller(host="ha2", address=OWN)])
    look(watch(machine, tmp_path), machine, 2 * PATIENCE)
    (tmp_path / "cluster.json").unlink()
    look(watch(machine, tmp_path), machine, 2 * PATIENCE)
    assert machine.restarts == 0


def test_ports_of_this_machine_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert broker_watch.ThisMachine().accepts("127.0.0.1", port)
    assert not broker_watch.ThisMachine().accepts("127.0.0.1", port)
