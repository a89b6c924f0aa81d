"""Losses of a cloud with three controllers under load: each controller, a broker, a database's node.

``devstack/ha.sh`` runs it, and prints the failed requests and the seconds of each loss as a table.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import pathlib
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from nova_lite.base import metrics
from nova_lite.conf.metrics import PORTS
from tests.integration.systemd.bare_machine import SET_UP_SECONDS, BareMachine, read_until
from tests.integration.systemd.controllers import ADDRESSES, MANAGE, PYTHON, SETUP, VIRTUAL, Cloud
from tests.support.waiting import wait_for_none
from tests.support.watch import Watch

LOAD = pathlib.Path(__file__).with_name("failover_load.py")
#: Seconds of load before a loss, of the loss, and that the cloud may take to be whole again.
QUIET, LOST, WHOLE = 4.0, 20.0, 240.0
#: Seconds that a client waits for a response.
PATIENCE = 10.0
CONDUCTOR_METRICS = PORTS["nova-lite-conductor"][1]
AS_BROKER = ("setpriv", "--reuid=rabbitmq", "--regid=rabbitmq", "--clear-groups")
NODES = "SHOW STATUS LIKE 'wsrep_cluster_size'"
#: Prints the metric of each node of the database.
DATABASE_NODES = ("sh", "-c", f"curl -s http://127.0.0.1:{CONDUCTOR_METRICS}/metrics | grep ^{metrics.DATABASE_NODE}")
#: Hosts of the cloud; the first one is the machine of the clients as well.
HOSTS = ("haclient", "hahost")
#: Seconds between two looks for guests that run twice.
LOOK = 0.5


class Loss(NamedTuple):
    """A loss: how it begins, and how it ends. ``begin`` and ``end`` get the cloud."""

    title: str
    begin: Callable[[Cloud], Any]
    end: Callable[[Cloud], Any]


class Period(NamedTuple):
    """Times of a loss: its begin, the end of the loss itself, and when the cloud was whole again."""

    title: str
    began: float
    ended: float
    whole: float


def losses() -> list[Loss]:
    found = []
    for name in ADDRESSES:
        found += [
            Loss(f"{name} killed", lambda c, n=name: c.controllers[n].power_off(), lambda c, n=name: c.power_on(n)),
            Loss(f"{name} cut off", lambda c, n=name: c.cut(n), lambda c, n=name: c.mend(n)),
            Loss(
                f"{name} paused",
                lambda c, n=name: c.controllers[n].pause(),
                lambda c, n=name: c.controllers[n].resume(),
            ),
        ]
    found += [
        Loss(
            "broker of ha1 killed",
            lambda c: _kill(c, "ha1", "rabbitmq-server"),
            lambda c: _start(c, "ha1", "rabbitmq-server"),
        ),
        Loss(
            "database of ha1 (the writer) killed",
            lambda c: _kill(c, "ha1", "mariadb"),
            lambda c: _start(c, "ha1", "mariadb"),
        ),
        Loss(
            "application of ha2's broker stopped, which nobody starts",
            lambda c: c.controllers["ha2"].run(*AS_BROKER, "rabbitmqctl", "stop_app"),
            lambda c: None,
        ),
        Loss("database of ha1 killed, that of ha2 stopped", _lose_two, lambda c: _start(c, "ha2", "mariadb")),
        Loss("database of ha2 killed", lambda c: _kill(c, "ha2", "mariadb"), lambda c: _start(c, "ha2", "mariadb")),
    ]
    return found


def _kill(cloud: Cloud, name: str, unit: str) -> None:
    """Kill the processes of a unit, which stays off."""
    machine = cloud.controllers[name]
    machine.run("systemctl", "mask", "--runtime", unit)
    machine.run("systemctl", "kill", "--signal=KILL", unit)


def _lose_two(cloud: Cloud) -> None:
    """Kill a node, which systemd starts again, and stop another one before Galera has noticed."""
    cloud.controllers["ha1"].run("systemctl", "kill", "--signal=KILL", "mariadb")
    cloud.controllers["ha2"].run("systemctl", "stop", "mariadb")


def _start(cloud: Cloud, name: str, unit: str) -> None:
    machine = cloud.controllers[name]
    machine.run("systemctl", "unmask", "--runtime", unit)
    machine.run("systemctl", "reset-failed", unit, check=False)
    machine.run("systemctl", "start", "--no-block", unit)


# --- the cloud


def set_up_hosts(cloud: Cloud) -> tuple[str, str]:
    """Make two hosts without hypervisors, a flavor and an image. Returns the ids of these."""
    first = cloud.controllers["ha1"]
    for controller in cloud.controllers.values():  # All machines share the CPUs of one.
        controller.run("sed", "-i", "s/^workers = .*/workers = 1/", "/etc/nova-lite/api.conf")
        controller.run("systemctl", "restart", "nova-lite-api")
    cloud.client.write("/root/ca.pem", first.run("cat", "/etc/openstack/nova-lite-ca.pem"))
    for host in (cloud.client, cloud.add_host(HOSTS[1], "10.242.0.21")):
        token = first.run(MANAGE, "host", "token").strip()
        host.run(SETUP, "compute", token, seconds=SET_UP_SECONDS)
        host.run("sed", "-i", r"s/^\[DEFAULT\]/[DEFAULT]\ncompute_driver = fake/", "/etc/nova-lite/compute.conf")
        host.run("systemctl", "restart", "nova-lite-compute")
    flavor = first.run(MANAGE, "flavor", "create", "tiny", "--id", "1", "--ram", "64", "--vcpus", "1").strip()
    first.write("/root/image", "image")
    first.run(MANAGE, "quota", "set", "admin", "--instances", "-1", "--cores", "-1", "--ram", "-1")
    image = first.run(MANAGE, "image", "import", "--name", "i", "--disk-format", "raw", "/root/image").split()[-1]
    return flavor.split()[-1] if flavor else "1", image


def wait_until_whole(cloud: Cloud) -> float:
    """Wait until brokers and databases have all nodes, and each API serves. Returns the time."""
    wait_for_none("brokers, databases and APIs are whole", lambda: _problem(cloud), WHOLE, 1)
    return time.time()


def failed_units(machine: BareMachine) -> list[str]:
    """Return the failed units of a machine, without the sessions of users, such as that of a command as the broker's
    user.
    """
    listed = machine.run("systemctl", "list-units", "--failed", "--plain", "--no-legend").splitlines()
    return [line.split()[0] for line in listed if not line.startswith("user@")]


def _problem(cloud: Cloud) -> str:
    for name, machine in cloud.controllers.items():
        if failed := failed_units(machine):
            return f"{name}: {failed[0]} has failed"
        nodes = machine.run(*DATABASE_NODES, check=False).splitlines()
        if len(nodes) != len(ADDRESSES) or not all(line.endswith(" 1.0") for line in nodes):
            return f"{name}: {nodes}"
        size = machine.run("mariadb", "--batch", "--skip-column-names", "--execute", NODES, check=False).split()
        if size[-1:] != ["3"]:
            return f"{name}: nodes of the database: {size}"
    status = cloud.controllers["ha2"].run(*AS_BROKER, "rabbitmqctl", "cluster_status", "--formatter=json", check=False)
    try:
        running = json.loads(status[status.index("{") :])["running_nodes"]
    except ValueError:
        return f"brokers: {status[-200:]}"
    if len(running) != len(ADDRESSES):
        return f"brokers: {running}"
    for name, address in ADDRESSES.items():
        code = cloud.client.run(PYTHON, "-c", _SERVES.format(address=address), check=False)
        if "serves" not in code:
            return f"{name}: {code[-200:]}"
    return ""


_SERVES = (
    "import requests; requests.get('https://{address}:8774/', verify='/root/ca.pem', timeout=5).json(); print('serves')"
)


# --- guests


class Guests(Watch):
    """Guests of the hosts, as the fake hypervisors have them. A thread looks for guests that are at two hosts."""

    def __init__(self, cloud: Cloud) -> None:
        machines = {machine.name: machine for machine in (cloud.client, *cloud.others)}
        self._directories = {
            host: machines[host].tree / f"var/lib/nova-lite/instances/fake-{host}/domains" for host in HOSTS
        }
        super().__init__(LOOK)

    def at(self, host: str) -> set[str]:
        return {path.stem for path in self._directories[host].glob("*.json")}

    def look(self) -> set[str]:
        first, second = HOSTS
        return self.at(first) & self.at(second)


# --- the load


class RunningLoad:
    """Load of the cloud by the machine of the clients, from now to `finish`. ``patience``: seconds of a client."""

    def __init__(self, cloud: Cloud, name: str, flavor: str, image: str, patience: float = PATIENCE) -> None:
        self._client, self._stop, self._result = cloud.client, f"/root/stop-{name}", f"/root/result-{name}"
        self._client.write("/root/load.py", LOAD.read_text())
        arguments = (VIRTUAL, password_of(cloud), flavor, image, self._stop, self._result, str(patience))
        # A shell in between: a process that has entered another name space of pids cannot have threads.
        words = shlex.join([PYTHON, "/root/load.py", *arguments])
        self._process = self._client.start("sh", "-c", f"{words}; exit $?")
        said = read_until(self._process, "serves")
        assert "serves" in said, said
        time.sleep(QUIET)
        assert self._process.poll() is None, self._process.communicate()[0]

    def finish(self, accepted: dict[str, set[str]]) -> list[list[Any]]:
        """End the load, add the servers of accepted requests, and return the requests."""
        time.sleep(QUIET)
        self._client.write(self._stop, "")
        said = self._process.communicate(timeout=120)[0]
        assert self._process.returncode == 0, (self._process.returncode, said)
        lines = [json.loads(line) for line in self._client.run("cat", self._result).splitlines()]
        for kind, ids in lines.pop().items():
            accepted[kind] |= set(ids)
        return lines


def nothing_accepted() -> dict[str, set[str]]:
    return {kind: set() for kind in ("created", "deleted", "tried")}


def password_of(cloud: Cloud) -> str:
    secure = cloud.controllers["ha1"].run("cat", "/etc/openstack/secure.yaml")
    return secure.split("password:")[1].split()[0].strip("'\"")


# --- the measurement


def measure(cloud: Cloud, chosen: Sequence[Loss]) -> str:
    """Run the load and one loss after the other. Returns the table."""
    flavor, image = set_up_hosts(cloud)
    with contextlib.closing(Guests(cloud)) as guests:
        rows, accepted = [], nothing_accepted()
        for number, loss in enumerate(chosen):
            wait_until_whole(cloud)
            load = RunningLoad(cloud, str(number), flavor, image)
            began = time.time()
            loss.begin(cloud)
            time.sleep(LOST)
            ended = time.time()
            loss.end(cloud)
            whole = wait_until_whole(cloud)
            rows.append(row(Period(loss.title, began, ended, whole), load.finish(accepted)))
            print(rows[-1], flush=True)
        lost = check(cloud, accepted, guests)
    return "\n".join([*HEADER, *rows, "", lost])


HEADER = (
    "| Loss | GET: failed | without any | create, delete: failed | without any | whole again after |",
    "|---|---|---|---|---|---|",
)


def row(period: Period, entries: list[list[Any]]) -> str:
    cells = [period.title]
    for kind in ("get", "change"):
        mine = [entry for entry in entries if entry[0] == kind]
        failed = [entry for entry in mine if entry[3]]
        cells += [f"{len(failed)} of {len(mine)}", f"{longest_gap(mine):.1f} s"]
        for entry in failed[:3]:
            print(
                f"    {entry[1] - period.began:6.1f} s, took {entry[2] - entry[1]:.1f} s: {entry[3][:140]}", flush=True
            )
    cells.append(f"{period.whole - period.ended:.0f} s")
    return f"| {' | '.join(cells)} |"


def longest_gap(entries: list[list[Any]]) -> float:
    """Return the longest time between two successes that end one after the other."""
    ends = sorted(entry[2] for entry in entries if not entry[3])
    return max((later - before for before, later in itertools.pairwise(ends)), default=0.0)


def check(cloud: Cloud, accepted: dict[str, set[str]], guests: Guests) -> str:
    """Check that nothing accepted was lost, and that no guest ran twice. Returns a sentence for below the table.

    Each accepted create is a server that is active, with a guest at its host alone, or in error with a reason. Those
    whose delete was accepted are gone, with their guests.
    """
    client, password = cloud.client, password_of(cloud)
    client.write("/root/list.py", _LIST)
    wait_for_none("all is in order", lambda: _problems(_servers(client, password), accepted, guests), WHOLE, 2)
    servers = _servers(client, password)
    assert not guests.twice, f"guests that were at both hosts: {guests.twice}"
    faults = [server["fault"] for server in servers.values() if server["status"] == "ERROR"]
    for fault in faults:
        print(f"    ERROR: {fault}", flush=True)
    audit = cloud.controllers["ha1"].run(MANAGE, "audit", check=False)
    created, deleted = len(accepted["created"]), len(accepted["deleted"])
    return (
        f"{created} accepted creates and {deleted} accepted deletes: none lost, no guest at two hosts. "
        f"Servers in ERROR, with a reason: {len(faults)}. Audit: {audit.strip().splitlines()[-1]}"
    )


def _servers(client: BareMachine, password: str) -> dict[str, dict[str, str]]:
    listed: dict[str, dict[str, str]] = json.loads(
        client.run(PYTHON, "/root/list.py", VIRTUAL, password).splitlines()[-1]
    )
    return listed


def _problems(listed: dict[str, dict[str, str]], accepted: dict[str, set[str]], guests: Guests) -> dict[str, Any]:
    """Return what is not in order, by kind. Actions may still be on their way, so the caller repeats this."""
    at = {host: guests.at(host) for host in HOSTS}
    active = {server: shown["host"] for server, shown in listed.items() if shown["status"] == "ACTIVE"}
    failed = [server for server, shown in listed.items() if shown["status"] == "ERROR"]
    found = {
        "busy": [server for server in listed if server not in active and server not in failed],
        "missing": accepted["created"] - accepted["tried"] - set(listed),
        "not deleted": accepted["deleted"] & set(listed),
        "in error without a reason": [server for server in failed if not listed[server]["fault"]],
        "not at their hosts": [server for server, host in active.items() if server not in at.get(host, ())],
        "guests at another host": [
            (server, host)
            for host, there in at.items()
            for server in there
            if server not in failed and active.get(server) != host
        ],
    }
    return {kind: servers for kind, servers in found.items() if servers}


_LIST = """
import json, sys
sys.path.insert(0, "/root")
import load, requests
made = load.Load(sys.argv[1], sys.argv[2])
url, found = f"https://{sys.argv[1]}:8774/v2.1/servers/detail?limit=500", {}
while url:
    page = requests.get(url, headers=made._headers, verify=load.AUTHORITY, timeout=60).json()
    for server in page["servers"]:
        host, fault = server["OS-EXT-SRV-ATTR:host"], server.get("fault", {}).get("message", "")
        found[server["id"]] = {"status": server["status"], "host": host, "fault": fault}
    url = next((link["href"] for link in page.get("servers_links", []) if link["rel"] == "next"), None)
print(json.dumps(found))
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="devstack/ha.sh", description=__doc__)
    parser.add_argument("--only", metavar="TEXT", action="append", help="losses whose title has this text; repeatable")
    parser.add_argument(
        "--interrupt", action="store_true", help="kill the set-up of ha2 at each step, and run it again"
    )
    parser.add_argument("--stay", action="store_true", help="after a failure, keep the machines until Ctrl-C")
    args = parser.parse_args()
    only = args.only
    chosen = [loss for loss in losses() if not only or any(text in loss.title for text in only)]
    if not chosen:
        parser.error(f"no loss has this text in its title; there are: {', '.join(loss.title for loss in losses())}")
    with cloud_of_three(args.stay, interrupt=args.interrupt) as cloud:
        print(measure(cloud, chosen))
    return 0


@contextlib.contextmanager
def cloud_of_three(
    stay: bool, prepare: Callable[[BareMachine], None] = lambda machine: None, interrupt: bool = False
) -> Iterator[Cloud]:
    """Set three controllers up. The machines end with the context. ``stay``: after a failure, with Ctrl-C."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(130))
    with contextlib.ExitStack() as stack:
        directory = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nova-lite-ha.")))
        cloud = Cloud(directory, prepare)
        stack.callback(cloud.stop)
        try:
            _set_up(cloud, interrupt)
            yield cloud
        except (AssertionError, OSError, ValueError, subprocess.SubprocessError) as error:
            if not stay:
                raise
            print(f"{error}\nThe machines in {directory} stay until you press Ctrl-C.", flush=True)
            for machine in (*cloud.controllers.values(), cloud.client, *cloud.others):
                print(f"    {machine.name}: nsenter --target {machine.init} -m -u -i -n -p -C bash", flush=True)
            signal.pause()


def _set_up(cloud: Cloud, interrupt: bool) -> None:
    """Set the controllers up, and print the seconds of each. ``interrupt``: kill that of ha2 at each step."""
    for name in ADDRESSES:
        began = time.monotonic()
        print(f"{name} ...", end=" ", flush=True)
        if name == "ha1":
            cloud.set_up_first()
        else:
            cloud.set_up_further(name, range(2, 13) if interrupt and name == "ha2" else (), attempts=2)
        print(f"{time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
