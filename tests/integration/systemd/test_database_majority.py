"""Broker and database of three controllers: loss of nodes and of the majority, and the purge of a controller.

The commands are those of the page. With ``NOVA_LITE_LONG=1`` alone, because three controllers take minutes.
"""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Iterator

import pytest

from nova_lite.cmd.setup import galera
from nova_lite.cmd.setup.database import SETTLE_SECONDS
from nova_lite.rpc.controllers import DATABASE_PORT
from tests.integration.systemd.bare_machine import BareMachine
from tests.integration.systemd.controllers import ADDRESSES, MANAGE, SETUP, Cloud
from tests.support import pages, postrm
from tests.support.waiting import wait_for, wait_for_none

pytestmark = pytest.mark.skipif(os.environ.get("NOVA_LITE_LONG") != "1", reason="NOVA_LITE_LONG=1 boots a cloud")

PAGE = "howto/high-availability.md"
STATUS = (SETUP, "database", "status")
#: Seconds for a node that comes back, on a busy machine.
BACK = 240.0
#: Seconds until brokers that wait for each other serve. Each of their tries lasts up to five minutes.
BROKERS = 420.0
SERVICES = (MANAGE, "service", "list")
#: Writes through the load balancer until a file exists. Prints the longest time between two successes.
WRITER = f"""
import os, subprocess, time
last, longest = time.monotonic(), 0.0
while not os.path.exists("/root/stop"):
    done = subprocess.run(["mariadb", "--host=127.0.0.1", "--port={DATABASE_PORT}", "--user=probe", "--password=probe",
        "--ssl", "--connect-timeout=2", "--execute=INSERT INTO probe.probe VALUES (NULL)"], timeout=30)
    if done.returncode == 0:
        longest, last = max(longest, time.monotonic() - last), time.monotonic()
    time.sleep(0.1)
print("longest", max(longest, time.monotonic() - last))
"""


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    made = Cloud(tmp_path_factory.mktemp("majority"))
    try:
        made.set_up_first()
        for name in list(ADDRESSES)[1:]:
            made.set_up_further(name)
        made.controllers["ha1"].run(
            "mariadb",
            "--execute=CREATE DATABASE probe; CREATE TABLE probe.probe (id INT PRIMARY KEY AUTO_INCREMENT); "
            "CREATE USER probe@'%' IDENTIFIED BY 'probe'; GRANT ALL ON probe.* TO probe@'%'",
        )
        yield made
    finally:
        made.stop()


@pytest.fixture
def whole(cloud: Cloud) -> Cloud:
    """Provide the cloud once all nodes are used."""
    wait_until_used(cloud, 3)
    return cloud


def wait_until_used(cloud: Cloud, count: int, machine: str = "ha3") -> None:
    def otherwise() -> list[str]:
        said = cloud.controllers[machine].run(*STATUS)
        return [] if said.count("  used  ") >= count else [said]

    wait_for_none(f"{count} nodes are used", otherwise, BACK, 1)


def wait_until_lost(machine: BareMachine) -> None:
    def otherwise() -> list[str]:
        said = machine.run(*STATUS, check=False)
        return [] if "No node is in a majority" in said else [said]

    wait_for_none("the majority is lost", otherwise, BACK, 0.5)


def commands(number: int, without: str = "") -> list[str]:
    """Return a block of the page's section. ``without``: the controller that is off."""
    return [line.replace("HOST", without) for line in pages.blocks(PAGE, "No node is in a majority")[number]]


def kill_node(machine: BareMachine) -> None:
    machine.run("systemctl", "kill", "--signal=KILL", "mariadb")


def test_orderly_stop_beside_a_dead_node_leaves_the_third_serving(whole: Cloud) -> None:
    first, second, third = whole.controllers.values()
    writer = third.start(f"{SETUP.rpartition('/')[0]}/python", "-c", WRITER)
    try:
        kill_node(first)
        second.run("systemctl", "stop", "mariadb", seconds=SETTLE_SECONDS + BACK)
    finally:
        third.write("/root/stop", "")
    said = writer.communicate(timeout=BACK)[0]
    second.run("systemctl", "start", "mariadb", seconds=BACK)
    wait_until_used(whole, 3)
    assert float(said.split("longest")[1]) < SETTLE_SECONDS, said


def test_majority_that_all_machines_have_lost_comes_back_without_an_operator(whole: Cloud) -> None:
    first, second, third = whole.controllers.values()
    kill_node(first)
    second.run("sh", "-c", "kill $(pidof mariadbd)")  # An orderly end, for which the unit does not wait.
    wait_until_lost(third)
    wait_until_used(whole, 2)
    assert "begins a new one" in third.run("journalctl", "--no-pager", "--unit", galera.RECOVERY)
    assert "ha2         stopped" in third.run(*STATUS)
    second.run("systemctl", "start", "mariadb", seconds=BACK)


def test_majority_without_lost_machines_comes_back_by_the_pages_command(whole: Cloud) -> None:
    first, second, third = whole.controllers.values()
    first.power_off()
    second.power_off()
    wait_until_lost(third)
    assert "ha1 does not report its state" in third.execute(commands(0))
    (recover,) = commands(1, "ha1")
    with pytest.raises(AssertionError, match="ha2 does not report its state"):
        third.execute([recover])
    third.execute([f"{recover} --without ha2"])
    wait_until_used(whole, 1)
    whole.power_on("ha1", "ha2")
    wait_until_used(whole, 3)


def test_broker_that_is_killed_comes_back_without_an_operator(whole: Cloud) -> None:
    first = whole.controllers["ha1"]
    first.run("systemctl", "kill", "--signal=KILL", "rabbitmq-server")
    wait_until_brokers_run(whole, list(ADDRESSES))
    wait_until_served(first)


def test_all_controllers_come_back_from_a_power_cut_without_an_operator(whole: Cloud) -> None:
    for machine in whole.controllers.values():
        machine.power_off()
    whole.power_on(*ADDRESSES)
    wait_until_brokers_run(whole, list(ADDRESSES))
    wait_until_used(whole, 3)
    wait_until_served(whole.controllers["ha1"])


def test_two_controllers_of_a_power_cut_serve_by_the_pages_commands(whole: Cloud) -> None:
    """Brokers that lost their power wait for all others, since the lost one may have the last messages."""
    for machine in whole.controllers.values():
        machine.power_off()
    whole.power_on("ha1", "ha2", is_whole=False)
    first = whole.controllers["ha1"]
    wait_until_lost(first)
    (recover,) = commands(1, "ha3")
    first.execute([recover])
    wait_until_used(whole, 2, "ha1")
    first.execute(pages.blocks(PAGE, "No broker starts")[0])
    wait_until_brokers_run(whole, ["ha1", "ha2"])
    wait_until_served(first)
    whole.power_on("ha3")
    wait_until_brokers_run(whole, list(ADDRESSES))
    wait_until_used(whole, 3)


def wait_until_served(machine: BareMachine) -> None:
    """Wait until the control plane answers this controller."""
    wait_for("services are listed", lambda: "nova-scheduler" in machine.run(*SERVICES, check=False), BACK, 1)


def wait_until_brokers_run(cloud: Cloud, names: list[str]) -> None:
    """Wait until the brokers of these controllers, and no others, are a cluster that serves."""
    expected = [f"rabbit@{name}" for name in names]

    def others() -> list[list[str]]:
        seen = [running_brokers(cloud.controllers[name]) for name in names]
        return [nodes for nodes in seen if nodes != expected]

    wait_for_none("the brokers are a cluster", others, BROKERS, 2)


def running_brokers(machine: BareMachine) -> list[str]:
    said = rabbit(machine, "cluster_status", "--formatter", "json", check=False)
    return sorted(json.loads(said)["running_nodes"]) if said.startswith("{") else []


def test_purge_of_a_controllers_package_leaves_the_others_brokers_as_they_are(whole: Cloud) -> None:
    """Last, because the third controller ends. The brokers of the others have the same accounts and virtual host."""
    first, _, third = whole.controllers.values()
    before = broker_has(first)
    assert any(name.startswith("nova-lite") for name in before)
    third.run("systemctl", "stop", "nova-lite-*")  # The package's removal does the same.
    third.run("sh", "-c", postrm.script("nova-lite-controller", pathlib.Path("/")), "postrm", "purge", seconds=BACK)
    assert broker_has(first) == before
    nodes = json.loads(rabbit(first, "cluster_status", "--formatter", "json"))["disk_nodes"]
    assert sorted(nodes) == ["rabbit@ha1", "rabbit@ha2"]
    assert third.run("grep", "-rslF", "nova-lite", "/etc/rabbitmq", "/etc/mysql", check=False) == ""
    third.run("systemctl", "start", "rabbitmq-server", seconds=BACK)
    assert broker_has(third) == ["/", "guest"]


def rabbit(machine: BareMachine, *arguments: str, check: bool = True) -> str:
    as_broker = ("setpriv", "--reuid=rabbitmq", "--regid=rabbitmq", "--clear-groups", "env", "HOME=/var/lib/rabbitmq")
    return machine.run(*as_broker, "rabbitmqctl", "--quiet", *arguments, check=check)


def broker_has(machine: BareMachine) -> list[str]:
    """Return the names of the virtual hosts and accounts of a broker."""
    listed = [rabbit(machine, command, "--no-table-headers") for command in ("list_vhosts", "list_users")]
    return sorted(line.split("\t")[0] for text in listed for line in text.splitlines())
