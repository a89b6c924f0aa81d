"""Hosts under stress that are not lost: no guest of theirs may stop or move. ``failover.sh --alarms MINUTES``.

Real daemons with the times that are the defaults, a MariaDB, and fake hypervisors. Each host fences itself, and would
be evacuated without a person's word. Its link to the broker loses packets. Hosts, or one of the two conductors, stand
still for 20 s, again and again. Other processes want all CPUs.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.faults import failover, guards
from tests.faults.private import PrivateDatabase
from tests.functional import cloud
from tests.functional.proxy import Proxy
from tests.support.waiting import polls, wait_for

#: Seconds for which processes stand still, and between two such times.
PAUSE, REST = 20.0, (10.0, 30.0)
#: Packets of 100 that are lost, in each direction.
LOSS = 30
#: Number of pauses of which one is the conductor's, and number of hosts of which one stands still in the others.
CONDUCTOR_ONE_IN, HOSTS_ONE_IN = 8, 3
#: Self-fencing is for clouds whose conductors are redundant. One of them stands still at a time.
CONDUCTORS = ("conductor", "conductor-2")
#: Seconds between two looks at the guests.
LOOK = 0.5


class PacketLoss:
    """Loss of packets from and to some TCP ports of this machine, until `close`, or until this process ends."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._table = f"nova_lite_alarms_{os.getpid()}"
        #: The table belongs to this process, and the kernel removes it with the process.
        self._nft = subprocess.Popen(("nft", "-i"), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        assert self._nft.stdin is not None
        chosen = f"{{ {', '.join(map(str, ports))} }} numgen random mod 100 < {LOSS}"
        for line in (
            f"add table inet {self._table} {{ flags owner; }}",
            f"add chain inet {self._table} lost {{ type filter hook input priority 0; }}",
            *(f"add rule inet {self._table} lost tcp {side} {chosen} counter drop" for side in ("dport", "sport")),
        ):
            print(line, file=self._nft.stdin, flush=True)
        wait_for("packets are lost", lambda: self.lost() is not None, 10.0, 0.1)

    def lost(self) -> int | None:
        """Return the number of packets that were lost; None: none are lost yet."""
        command = ("nft", "list", "table", "inet", self._table)
        words = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
        found = [int(words[at + 2]) for at, word in enumerate(words) if word == "counter"]
        return sum(found) if len(found) == 2 else None

    def close(self) -> None:
        assert self._nft.stdin is not None
        self._nft.stdin.close()
        self._nft.wait(10)


class Guests:
    """The guests, each at its host. ``stopped``: guests that did not run at a look."""

    def __init__(self, running: cloud.Cloud, ids: Sequence[str]) -> None:
        self._running = running
        self._observer = failover.Observer(running)
        self._homes = {item["id"]: item["OS-EXT-SRV-ATTR:host"] for item in running.servers()}
        assert self._homes.keys() == set(ids)
        self.stopped: set[str] = set()

    def look(self) -> None:
        running = {host: self._observer.guests(host) for host in set(self._homes.values())}
        for uuid, host in self._homes.items():
            if uuid not in running[host] and uuid not in self.stopped:
                self.stopped.add(uuid)
                print(f"{time.strftime('%H:%M:%S')} guest {uuid} of {host} does not run. The log of {host} ends:")
                print(*self._running.log(host, 30).splitlines(), sep="\n", flush=True)

    def moved(self) -> list[str]:
        """Return what was done to the guests after their creates."""
        return [
            f"{action['action']} of {uuid}"
            for uuid in self._homes
            for action in self._running.request("GET", f"/servers/{uuid}/os-instance-actions").json()["instanceActions"]
            if action["action"] != "create"
        ]

    def close(self) -> None:
        self._observer.close()


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    """Let this many processes want a CPU. They end with this process."""
    command = ("setpriv", "--pdeathsig", "KILL", sys.executable, "-c", "while True: pass")
    started = [subprocess.Popen(command) for _ in range(processes)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def pause(running: cloud.Cloud, names: Sequence[str], guests: Guests) -> None:
    """Let daemons stand still."""
    try:
        for name in names:
            running.signal(name, signal.SIGSTOP)
        for _ in polls(PAUSE, LOOK):
            guests.look()
    finally:
        for name in names:
            running.signal(name, signal.SIGCONT)


def stress(running: cloud.Cloud, links: dict[str, Proxy], guests: Guests, seconds: float, chance: random.Random) -> str:
    """Let hosts work badly for so many seconds. Return what was done."""
    loss = PacketLoss([link.port for link in links.values()])
    pauses, loads = 0, []
    began = time.monotonic()
    try:
        while time.monotonic() < began + seconds:
            is_conductor = chance.randrange(CONDUCTOR_ONE_IN) == 0
            count = max(1, len(running.computes) // HOSTS_ONE_IN)
            chosen = [chance.choice(CONDUCTORS)] if is_conductor else chance.sample(running.computes, count)
            pause(running, chosen, guests)
            pauses += 1 if is_conductor else count
            for _ in polls(chance.uniform(*REST), LOOK):
                guests.look()
            loads.append(os.getloadavg()[0])
        lost = loss.lost()
    finally:
        loss.close()
    hours = (time.monotonic() - began) * len(running.computes) / 3600
    load = sum(loads) / len(loads)
    return f"{hours:.1f} hours of a host, {pauses} pauses of {PAUSE:g} s, {lost} packets lost, mean load {load:.0f}"


def main(minutes: float, hosts: int, load: int, seed: int) -> int:
    chance = random.Random(seed)
    print(f"Seed {seed}. {hosts} hosts for {minutes:g} minutes. Real daemons, broker and database.", flush=True)
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="alarms-")))
        stack.callback(guards.end, directory)  # after the daemons, which start guards again
        database = stack.enter_context(PrivateDatabase(directory / "database"))
        running, links = stack.enter_context(failover.cloud_with_links(directory, hosts, CONDUCTORS[1:], database.url))
        ids = running.create(count=hosts, metadata=failover.PROTECTED)
        running.wait_active(ids, failover.LIMIT)
        confirmed = "guests are confirmed"
        wait_for(confirmed, lambda: failover.confirmed(running, ids), failover.LIMIT, 1.0)
        guests = Guests(running, ids)
        stack.callback(guests.close)
        with busy(load):
            done = stress(running, links, guests, minutes * 60, chance)
        moved = guests.moved()
    for line in moved:
        print(line)
    print(f"{done}; {len(guests.stopped)} guests stopped, {len(moved)} were moved", flush=True)
    return 1 if guests.stopped or moved else 0
