"""Hosts are lost in random ways, and their protected guests run again elsewhere: ``python -m tests.faults.failover``.

Real daemons on RabbitMQ and SQLite, with the fake hypervisor and the times that are the defaults. Each host fences
itself, with a guard of its own. An observer looks at all hypervisors 20 times a second.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from nova_lite.db.core.engine import Database
from tests.faults import failover_report, guards, real_disks, real_failover, tenants
from tests.faults.storm import run as storm
from tests.functional import cloud
from tests.functional.proxy import Proxy
from tests.support.waiting import wait_for
from tests.support.watch import Watch

#: The times of an operator's cloud, which tests shorten otherwise.
CONFIG = """
[DEFAULT]
report_interval = 10
service_down_time = 30
[conductor]
lease_seconds = 30
[compute]
self_fencing = true
"""

PROTECTED = {"ha:restart": "always", "ha:local-disk": "rebuild"}
RUNNING = (1, 3)

#: Seconds until guests have to run again, and between two looks of the observer.
LIMIT, LOOK = 240.0, 0.05

KILL, PAUSE, CUT = "daemon and guests killed", "daemon stopped (SIGSTOP)", "cut off the broker"


@dataclasses.dataclass
class Outcome:
    """Outcome of a run. ``twice``: guests that the observer saw at two hosts at once."""

    how: str
    guests: int
    back: int
    seconds: float
    twice: int


class Observer(Watch):
    """Looks at all fake hypervisors, and records guests that run at two hosts."""

    def __init__(self, running: cloud.Cloud) -> None:
        self._running = running
        super().__init__(LOOK)

    def look(self) -> set[str]:
        """Return guests that run at two hosts, both before and after the look at the other one."""
        first = {host: self.guests(host) for host in self._running.computes}
        again = {host: self.guests(host) for host in self._running.computes}
        seen: dict[str, int] = {}
        for host, guests in first.items():
            for uuid in guests & again[host]:
                seen[uuid] = seen.get(uuid, 0) + 1
        return {uuid for uuid, hosts in seen.items() if hosts > 1}

    def guests(self, host: str) -> set[str]:
        """Return the guests that run at a host."""
        found = set()
        for path in (self._running.path / host / "instances" / f"fake-{host}" / "domains").glob("*.json"):
            with contextlib.suppress(FileNotFoundError, ValueError):  # Removed meanwhile.
                if json.loads(path.read_text())["power_state"] in RUNNING:
                    found.add(path.stem)
        return found


@contextlib.contextmanager
def cloud_with_links(
    path: Path, computes: int, more: tuple[str, ...] = (), database: str | None = None
) -> Iterator[tuple[cloud.Cloud, dict[str, Proxy]]]:
    """Run a cloud whose hosts reach the broker by a link each. ``more``: further daemons. ``database``: else SQLite."""
    running = cloud.Cloud(
        path,
        database,
        computes=computes,
        quota=-1,
        vcpus=64,
        patient=True,
        extra_config=CONFIG,
        more=more,
    )
    with contextlib.ExitStack() as stack:
        links = {host: stack.enter_context(Proxy(running.broker_port)) for host in running.computes}
        stack.callback(running.destroy)
        running.make()
        for host, link in links.items():
            config = path / f"{host}.conf"
            text = config.read_text()
            assert f"@127.0.0.1:{running.broker_port}/" in text
            config.write_text(text.replace(f"@127.0.0.1:{running.broker_port}/", f"@127.0.0.1:{link.port}/"))
        running.start_all()
        yield running, links


def lose(running: cloud.Cloud, links: dict[str, Proxy], host: str, how: str) -> None:
    if how == KILL:
        running.kill(host)
        for path in (running.path / host / "instances" / f"fake-{host}" / "domains").glob("*.json"):
            path.write_text(json.dumps(json.loads(path.read_text()) | {"power_state": 4}))
    elif how == PAUSE:
        running.signal(host, signal.SIGSTOP)
    else:
        links[host].cut()


def bring_back(running: cloud.Cloud, links: dict[str, Proxy], host: str, how: str) -> None:
    """Let the host return. It removes what has moved."""
    if how == CUT:
        links[host].restore()
    process = running.processes.get(host)
    if process is not None and process.poll() is None:
        running.signal(host, signal.SIGCONT)
    else:
        running.start(host)

    def is_up() -> bool:
        if running.processes[host].poll() is not None:
            running.start(host)
        services = running.request("GET", "/os-services?binary=nova-compute").json()["services"]
        return {item["host"]: item["state"] for item in services}[host] == "up"

    wait_for(f"{host} is back", is_up, LIMIT, 0.5)


def confirmed(running: cloud.Cloud, ids: list[str]) -> bool:
    """Check whether the hosts have confirmed all these guests."""
    database = Database(running.conductor_conf())
    try:
        return real_failover.are_confirmed(database, ids)
    finally:
        database.close()


def run(running: cloud.Cloud, links: dict[str, Proxy], observer: Observer, count: int, how: str, host: str) -> Outcome:
    ids = running.create(count=count, metadata=PROTECTED)
    running.wait_active(ids)
    wait_for("guests are confirmed", lambda: confirmed(running, ids), LIMIT, 1.0)
    lost = {item["id"] for item in running.servers() if item["OS-EXT-SRV-ATTR:host"] == host}
    observer.twice.clear()
    lose(running, links, host, how)
    began = time.monotonic()

    def elsewhere() -> set[str]:
        others = [observer.guests(other) for other in running.computes if other != host]
        return lost & set().union(*others)

    with contextlib.suppress(AssertionError):
        wait_for("guests run elsewhere", lambda: elsewhere() == lost, LIMIT, 0.1)
    outcome = Outcome(how, len(lost), len(elsewhere()), time.monotonic() - began, 0)
    running.wait_active(ids, LIMIT)
    bring_back(running, links, host, how)
    wait_for("nothing is left at the host", lambda: not lost & observer.guests(host), LIMIT)
    outcome.twice = len(observer.twice)
    running.delete_all()
    wait_for("all guests are gone", lambda: not any(map(observer.guests, running.computes)), LIMIT)
    return outcome


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="failover.sh")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--guests", default="6", help="a number of fake guests, or real: two qemu guests")
    parser.add_argument("--how", default="", metavar="TEXT", help="of real guests: only losses with this in their name")
    parser.add_argument("--computes", type=int, default=3)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--parallel", type=int, default=1, metavar="N", help="of real guests: clouds at the same time")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="of real guests: no run begins later")
    parser.add_argument("--results", type=Path, metavar="FILE", help="of real guests: a line of JSON for each run")
    parser.add_argument("--disks", choices=real_disks.KINDS, help="of real guests: where they have their disks")
    parser.add_argument("--page", action="store_true", help="print the table of the results, and lose nothing")
    parser.add_argument("--tenants", action="store_true", help="instead: two projects with equal addresses lose a host")
    parser.add_argument("--nemesis", type=float, metavar="MINUTES", help="instead: faults at random, and all at once")
    parser.add_argument("--alarms", type=float, metavar="MINUTES", help="instead: stress that no host is lost by")
    parser.add_argument("--load", type=int, default=50, help="of --alarms: processes that want a CPU")
    args = parser.parse_args(arguments)
    for name, least in (("runs", 1), ("parallel", 1), ("computes", 2)):
        if getattr(args, name) < least:
            parser.error(f"--{name} takes a number from {least}; it was given {getattr(args, name)}")
    for name in ("minutes", "nemesis", "alarms"):
        if (minutes := getattr(args, name)) is not None and not minutes > 0:
            parser.error(f"--{name} takes a number above 0; it was given {minutes:g}")
    if args.tenants:
        return tenants.main(args.computes, args.how)
    of_real = args.how or args.parallel != 1 or args.results or args.disks or args.minutes != float("inf")
    if of_real and not args.page and (args.nemesis or args.guests != "real"):
        parser.error("--how, --disks, --parallel, --minutes and --results are of real guests only: add --guests real.")
    if args.disks == "rbd" and args.parallel != 1:
        parser.error("--disks rbd takes no --parallel: one Ceph runs at a time.")
    if args.page:
        if args.results is None:
            parser.error("--page needs --results FILE.")
        print(failover_report.table(failover_report.read(args.results)))
        return 0
    if args.guests != "real" and not (args.guests.isdecimal() and int(args.guests)):
        parser.error(f"--guests {args.guests}: use a number from 1, or real.")
    if args.nemesis:
        return storm.main(args.nemesis, args.seed)
    if args.alarms:
        from tests.faults import alarms  # it needs this module

        return alarms.main(args.alarms, args.computes, args.load, args.seed)
    if args.guests == "real":
        return real_failover.main(
            args.runs,
            2,
            args.computes,
            args.how,
            args.parallel,
            args.minutes,
            args.results,
            args.disks or "directory",
        )
    chance = random.Random(args.seed)
    print(
        f"Seed {args.seed}. Real daemons, broker and database; fake hypervisors; one guard for each host.", flush=True
    )
    print("| Run | Host is lost by | Guests | Came back | Seconds | Twice |\n|---|---|---|---|---|---|", flush=True)
    outcomes = []
    ways = [KILL, PAUSE, CUT]
    chance.shuffle(ways)
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="failover-")))
        stack.callback(guards.end, directory)  # after the daemons, which start guards again
        running, links = stack.enter_context(cloud_with_links(directory, args.computes))
        observer = Observer(running)
        stack.callback(observer.close)
        for number in range(1, args.runs + 1):
            how, host = ways[(number - 1) % len(ways)], chance.choice(running.computes)
            outcome = run(running, links, observer, int(args.guests), how, host)
            outcomes.append(outcome)
            row = f"{outcome.guests} | {outcome.back} | {outcome.seconds:.0f} | {outcome.twice}"
            print(f"| {number} | {outcome.how} | {row} |", flush=True)
    lost, back = sum(item.guests for item in outcomes), sum(item.back for item in outcomes)
    worst, twice = max(item.seconds for item in outcomes), sum(item.twice for item in outcomes)
    print(f"{back} of {lost} guests came back, the last after {worst:.0f} s; {twice} ran twice", flush=True)
    return 0 if back == lost and not twice else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
