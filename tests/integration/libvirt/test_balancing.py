"""Balancing with real guests: a busy guest moves by a live migration, and the pressure of both hosts evens out.

Two hosts have a libvirtd with emulated guests each, in namespaces of their own on this machine. Each has one CPU: its
``/proc/stat`` shows what its own processes use.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.faults.real_failover import LIMIT, POLL, Machine, RealCloud
from tests.functional import cloud
from tests.integration import guest_image
from tests.integration.libvirt.conftest import LONG
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="needs root"), LONG]

CONFIG = """
[DEFAULT]
compute_driver = libvirt
[conductor]
rebalance = dry_run
[balance]
interval = 5
window = 30
high = cpu:55,memory:100,disk:100,network:100
margin = 5
[libvirt]
virt_type = qemu
live_migration_uri = qemu+unix:///system?socket={path}/sockets/%s/libvirt-sock
[vnc]
enabled = false
[network]
backend = none
"""
ADDRESS = "127.0.76.{number}"
HOST_CONFIG = f"\n[libvirt]\nlive_migration_inbound_addr = {ADDRESS}\n"

#: Uses a CPU for the given hundredths of a second in each 1.x seconds.
WORK = """#!/bin/sh
n=0
while :; do
    read up rest </proc/uptime
    end=$((${{up%.*}}${{up#*.}} + {hundredths}))
    while read up rest </proc/uptime; [ ${{up%.*}}${{up#*.}} -lt $end ]; do :; done
    n=$((n + 1))
    echo "tick $n"
    sleep 1
done
"""
BUSY, IDLE = (base64.b64encode(WORK.format(hundredths=number).encode()).decode() for number in (43, 1))

EVENT = "conductor_relieve_host"
#: Seconds of the means, and percent of CPU below which a host is relieved, by `CONFIG`.
WINDOW, LOW = 30, 50
#: Columns of the verdicts.
SERVER_COLUMNS = ("Server", "Name", "Host", "Verdict")


class OneCpu(Machine):
    """A host with one CPU, which its own processes share. ``count`` has to be called often."""

    def __init__(self, running: cloud.Cloud, name: str, shared: Path) -> None:
        super().__init__(running, name, shared)
        (self._state / "instances").symlink_to(shared)  # Seen by the other host, at the path that this one names.
        self._file = self.base / "stat"
        self._began, self._busy = time.monotonic(), 0
        self._rest = [line for line in Path("/proc/stat").read_text().splitlines() if not line.startswith("cpu")]
        self._write()

    def count(self) -> None:
        """Add up the CPU time of all processes of the host, and of children that have ended."""
        ticks = 0
        for path in Path(f"/proc/{self.first}/root/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                ticks += sum(map(int, path.read_text().rpartition(")")[2].split()[11:15]))
        self._busy = max(self._busy, ticks)
        self._write()

    def _write(self) -> None:
        whole = int((time.monotonic() - self._began) * os.sysconf("SC_CLK_TCK"))
        times = f"{self._busy} 0 0 {max(0, whole - self._busy)} 0 0 0 0 0 0"
        text = "\n".join([f"cpu  {times}", f"cpu0 {times}", *self._rest, ""])
        with self._file.open("r+" if self._file.exists() else "w") as file:  # the same file: it is mounted
            file.write(text)
            file.truncate()


@pytest.fixture
def path() -> Iterator[Path]:
    """Yield a directory that qemu, which runs as another user, can enter."""
    with tempfile.TemporaryDirectory(prefix="balancing-", dir="/var/tmp") as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


@pytest.fixture
def real(path: Path) -> Iterator[RealCloud]:
    guest = guest_image.build(path)
    found = RealCloud(path, 2, CONFIG.format(path=path), HOST_CONFIG, OneCpu)
    (path / "sockets").mkdir()
    for number, host in enumerate(found.cloud.computes, 1):
        (path / "sockets" / ADDRESS.format(number=number)).symlink_to(path / f"{host}-machine" / "run")
    stop = threading.Event()

    def count() -> None:
        while not stop.wait(0.5):
            for machine in list(found.machines.values()):
                with contextlib.suppress(OSError):
                    machine.count()  # type: ignore[attr-defined]

    counting = threading.Thread(target=count)
    try:
        found.start(guest)
        counting.start()
        yield found
    finally:
        stop.set()
        found.stop()


class Plan(NamedTuple):
    """Output of ``host balance --explain``: percent of CPU by host, and verdicts on the servers that it considers."""

    text: str
    cpu: dict[str, float]
    verdicts: dict[str, str]


def explain(running: cloud.Cloud) -> Plan:
    text = running.manage("host", "balance", "--explain")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    cpu = {row[0]: float(row[1]) for row in rows if row[0] in running.computes and row[1] not in ("", "-")}
    return Plan(text, cpu, {row[0]: row[-1] for row in rows if len(row) == len(SERVER_COLUMNS)})


def switch_on(running: cloud.Cloud) -> None:
    """Let the conductor begin the moves of its plans, as the how-to page says."""
    file = running.path / "conductor.conf"
    file.write_text(file.read_text().replace("rebalance = dry_run", "rebalance = on"))
    running.stop("conductor")
    running.start("conductor")


def create(running: cloud.Cloud, data: str, host: str) -> list[str]:
    return running.create(user_data=data, config_drive=True, availability_zone=f"nova:{host}")


def host_of(running: cloud.Cloud, server: str) -> str:
    found = running.show(server) or {}
    return "" if found.get("OS-EXT-STS:task_state") else str(found.get("OS-EXT-SRV-ATTR:host"))


def moves(running: cloud.Cloud, server: str) -> list[str]:
    """Return why a server was moved each time, as its owner reads it."""
    found = []
    actions = running.request("GET", f"/servers/{server}/os-instance-actions").json()["instanceActions"]
    for request in [item["request_id"] for item in actions if item["action"] == "live-migration"]:
        path = f"/servers/{server}/os-instance-actions/{request}"
        events = running.request("GET", path, version="2.84").json()["instanceAction"]["events"]
        found += [str(event["details"]) for event in events if event["event"] == EVENT]
    return found


def test_busy_guest_moves_by_live_migration_and_pressure_evens_out(real: RealCloud) -> None:
    running = real.cloud
    first, second = running.computes
    busy = [server for _ in range(2) for server in create(running, BUSY, first)]
    servers = [*busy, *create(running, IDLE, first)]
    running.wait_active(servers, LIMIT, POLL)

    def are_steady() -> bool:
        """Check that the means have nothing of the guests' boots: a tick takes a second and more."""
        return all(len(real.ticks(server)) > WINDOW for server in servers)

    wait_for("guests have counted for a window", are_steady, LIMIT, POLL)
    shown: list[Plan] = []

    def look() -> Plan:
        shown.append(explain(running))
        return shown[-1]

    def is_planned() -> bool:
        return any(text.startswith(f"moves to {second}. Host {first} had ") for text in look().verdicts.values())

    try:
        wait_for("a dry run plans a move", is_planned, LIMIT, 1)
        before = shown[-1]
        assert all(host_of(running, server) == first for server in servers), "a dry run moves nothing"
        goals = {server: real.ticks(server)[-1] + 3 for server in servers}
        switch_on(running)
        began = time.monotonic()
        moved = wait_for(
            "a busy guest has moved",
            lambda: [item for item in servers if host_of(running, item) == second],
            LIMIT,
            POLL,
        )
        took = time.monotonic() - began

        def go_on() -> bool:
            """Check that each guest has counted on. A moved guest begins another console."""
            return all(max(real.ticks(item), default=0) >= goals[item] for item in servers)

        wait_for("guests continue counting", go_on, LIMIT, POLL)
        wait_for(
            "no host is under pressure", lambda: len(found := look().cpu) == 2 and max(found.values()) < LOW, LIMIT, 1
        )
        after = shown[-1]
        # Two further windows, in which each plan has other figures.
        ends = time.monotonic() + 2 * WINDOW
        wait_for("two windows are over", lambda: look() and time.monotonic() >= ends, LIMIT, 1)
    finally:
        print("", *dict.fromkeys(plan.text for plan in shown), sep="\n")
    reasons = {server: found for server in servers if (found := moves(running, server))}
    print(f"before: {before.cpu}\nafter: {after.cpu}\nat the end: {shown[-1].cpu}\nmoved after {took:.0f} s\n{reasons}")
    assert len(moved) == 1 and set(moved) < set(busy)
    assert list(reasons) == moved and len(reasons[moved[0]]) == 1, "the loop has ended"
    assert reasons[moved[0]][0].startswith(f"Host {first} had ")
    assert not any(text.startswith("moves to") for text in shown[-1].verdicts.values())
    assert max(shown[-1].cpu.values()) - min(shown[-1].cpu.values()) < max(before.cpu.values()) - min(
        before.cpu.values()
    )
    # A moved guest's console continues in another file. A restart would begin at 1 again.
    assert all(earlier < later for ticks in map(real.ticks, servers) for earlier, later in itertools.pairwise(ticks))
