#!/usr/bin/env python3
"""Balancing of 100 hosts over a day of load: our planner, a naive balancer, and none, on equal load.

::

    pip install .[benchmarks]
    benchmarks/balance.py --json result.json --plot docs/images/balance.png
    benchmarks/balance.py --hosts 20 --servers 300 --seed 7

The load is **synthetic**: a seeded generator makes daily curves, bursts, growth and noise. It is not a recording.
Servers are placed by what is allocated, as a scheduler does without measurements, with two vCPUs for each CPU.

The planner is `nova_lite.balance.planner` with the defaults of ``[balance]``. It sees the means of the last ten
minutes, and a host that has too little CPU time shows 100 % only. A move takes as long as the planner estimates, and
its server uses CPU at the source until it arrives. The naive balancer moves the busiest server of the most loaded host
to the least loaded host that has room, as soon as fewer than ``at_once`` moves are under way.

Columns: ``moves``; ``moved_gb``, memory and disk; ``spread``, mean standard deviation of the hosts' CPU pressure in
percentage points; ``hot_minutes``, host minutes above 80 %; ``worst``, highest CPU pressure that was demanded;
``back``, moves of a server to a host that it had left; ``again``, moves of a server within an hour after its last move;
``constant``, moves while the load of the last minute stays as it is until no more follow.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
from oslo_config import cfg

from nova_lite.balance import planner
from nova_lite.conf import balance as options
from nova_lite.db.hosts.balance import limits_of
from nova_lite.objects.balance import Load

MINUTES, WINDOW = 1440, 10
CPUS, MEMORY_MB, NETWORK_MBPS, OVERCOMMIT = 32, 262_144, 10_000, 2.0
COOLDOWN = 60
HIGH = 0.8
#: Flavors: vCPUs, memory in MB, local disk in GB, and how often one is chosen.
FLAVORS = ((2, 4096, 10, 55), (4, 8192, 10, 28), (8, 24_576, 20, 12), (16, 49_152, 20, 5))
#: Curves, and how often one is chosen.
KINDS = {"office": 34, "evening": 18, "night": 10, "steady": 14, "bursts": 14, "growth": 10}
BALANCERS = ("planner", "naive", "none")
#: Minutes of constant load in which a balancer has to come to an end.
PATIENCE = 600


@dataclasses.dataclass
class Guest:
    """A server. ``busy_until``: minute at which its move ends, at ``target``."""

    uuid: str
    vcpus: int
    memory_mb: int
    disk_gb: int
    host: int
    target: int = -1
    busy_until: int = -1
    moved_at: int = -10_000
    been: list[int] = dataclasses.field(default_factory=list)


def make_guests(rng: random.Random, hosts: int, number: int) -> list[Guest]:
    """Place servers on the hosts by free allocated memory and vCPUs, the emptiest of a random few first."""
    room = [[CPUS * OVERCOMMIT, MEMORY_MB * 0.95] for _ in range(hosts)]
    guests = []
    for index in range(number):
        vcpus, memory_mb, disk_gb, _ = rng.choices(FLAVORS, [flavor[3] for flavor in FLAVORS])[0]
        few = [host for host in rng.sample(range(hosts), min(hosts, 12)) if room[host][0] >= vcpus]
        few = [host for host in few if room[host][1] >= memory_mb]
        if few:
            host = max(few, key=lambda place: room[place][1])
            room[host][0] -= vcpus
            room[host][1] -= memory_mb
            guests.append(Guest(f"{index:05d}", vcpus, memory_mb, disk_gb, host))
    return guests


def make_load(rng: np.random.Generator, guests: list[Guest]) -> Any:
    """Return the CPUs that each server wants in each minute (servers x minutes)."""
    minutes = np.arange(MINUTES) / 60

    def hill(middle: float, width: float) -> Any:
        away = np.abs((minutes - middle + 12) % 24 - 12)
        return np.exp(-0.5 * (away / width) ** 2)

    names = list(KINDS)
    share = np.array([KINDS[name] for name in names]) / sum(KINDS.values())
    load = np.empty((len(guests), MINUTES))
    # Servers of one project are alike, and were created together: they are near each other in the list.
    project = 0
    for number, guest in enumerate(guests):
        if number % 12 == 0:
            project = int(rng.choice(len(names), p=share))
        kind = names[project]
        low, high = rng.uniform(0.02, 0.15), rng.beta(2.2, 2.0)
        curves = {
            "office": 0.55 * hill(10.5 + rng.normal(0, 0.5), 1.8) + 0.6 * hill(14.5 + rng.normal(0, 0.5), 2.2),
            "evening": hill(20.5 + rng.normal(0, 0.6), 2.0),
            "night": hill(2.5 + rng.normal(0, 0.7), 1.2),
            "steady": np.full(MINUTES, 0.5),
            "bursts": np.full(MINUTES, 0.15),
            "growth": 0.1 + 0.9 * minutes / 24,
        }
        curve = low + high * curves[kind]
        for _ in range(rng.poisson(5 if kind == "bursts" else 0.6)):
            start, length = int(rng.integers(MINUTES)), int(rng.integers(5, 60))
            curve[start : start + length] += rng.uniform(0.3, 0.9)
        noise = rng.normal(0, 0.05, MINUTES)
        for minute in range(1, MINUTES):
            noise[minute] += 0.8 * noise[minute - 1]
        load[number] = guest.vcpus * np.clip(curve + noise, 0.01, 1.0)
    return load


class Simulation:
    """A day of one balancer."""

    def __init__(self, name: str, hosts: int, guests: list[Guest], load: Any, limits: planner.Limits) -> None:
        self.name = name
        self.hosts = hosts
        self.guests = [dataclasses.replace(guest, been=[guest.host]) for guest in guests]
        self.load = load
        self.limits = limits
        self.allocated = np.zeros((hosts, 2))
        for guest in self.guests:
            self.allocated[guest.host] += guest.vcpus, guest.memory_mb
        self.recent: collections.deque[Any] = collections.deque(maxlen=WINDOW)
        self.hot: set[str] = set()
        self.starts: list[tuple[int, int, int]] = []
        self.counts: collections.Counter[str] = collections.Counter()
        self.spread: list[float] = []
        self.hot_hosts: list[int] = []
        self.worst = 0.0

    def run(self) -> dict[str, Any]:
        for minute in range(MINUTES):
            self._step(minute, self.load[:, minute])
        found = {
            "moves": self.counts["moves"],
            "moved_gb": round(self.counts["mb"] / 1024),
            "spread": round(100 * float(np.mean(self.spread)), 1),
            "hot_minutes": sum(self.hot_hosts),
            "worst": round(100 * self.worst),
            "back": self.counts["back"],
            "again": self.counts["again"],
        }
        until = MINUTES + PATIENCE
        for minute in range(MINUTES, until):
            self._step(minute, self.load[:, -1])
        late = sum(1 for start, _, _ in self.starts if start >= until - WINDOW - COOLDOWN)
        constant = sum(1 for start, _, _ in self.starts if start >= MINUTES)
        return found | {"constant": f"{constant}" + (" and no end" if late else "")}

    def _step(self, minute: int, wanted: Any) -> None:
        for guest in self.guests:
            if guest.busy_until == minute:
                self.allocated[guest.host] -= guest.vcpus, guest.memory_mb
                guest.host, guest.target = guest.target, -1
        places = np.array([guest.host for guest in self.guests])
        demand = np.bincount(places, weights=wanted, minlength=self.hosts)
        used = wanted * np.minimum(1.0, CPUS / np.maximum(demand, 1e-9))[places]
        if minute < MINUTES:
            self.spread.append(float(np.std(demand / CPUS)))
            self.hot_hosts.append(int(np.sum(demand / CPUS > HIGH)))
            self.worst = max(self.worst, float(np.max(demand / CPUS)))
        self.recent.append(used)
        if self.name == "planner":
            self._plan(minute, np.mean(self.recent, axis=0))
        elif self.name == "naive":
            self._even_out(minute, np.mean(self.recent, axis=0))

    def _running(self) -> int:
        return sum(guest.target >= 0 for guest in self.guests)

    def _begin(self, guest: Guest, target: int, minute: int, seconds: float) -> None:
        guest.target, guest.busy_until = target, minute + max(1, round(seconds / 60))
        self.allocated[target] += guest.vcpus, guest.memory_mb
        self.starts.append((minute, guest.host, target))
        if minute < MINUTES:
            self.counts["moves"] += 1
            self.counts["mb"] += guest.memory_mb + 1024 * guest.disk_gb
            self.counts["back"] += target in guest.been
            self.counts["again"] += minute - guest.moved_at < COOLDOWN
        guest.been.append(target)
        guest.moved_at = minute

    def _server(self, guest: Guest, cpu: float, minute: int) -> planner.Server:
        stays = "it moves" if guest.target >= 0 else "it has moved" if minute - guest.moved_at < COOLDOWN else ""
        return planner.Server(
            uuid=guest.uuid,
            name=guest.uuid,
            host=f"{guest.target if guest.target >= 0 else guest.host:03d}",
            load=Load(cpu=cpu, memory=0.8 * guest.memory_mb, network=40 * cpu),
            room=planner.Room(guest.vcpus, guest.memory_mb, 0),
            stays=stays,
            disk_gb=guest.disk_gb,
            dirty=4 * cpu,
        )

    def _plan(self, minute: int, used: Any) -> None:
        latest = [item for item in self.starts if item[0] > minute - 60]
        came = collections.Counter(target for _, _, target in latest)
        left = collections.Counter(source for _, source, _ in latest)
        cloud = planner.Cloud(
            hosts=tuple(
                planner.Host(
                    name=f"{host:03d}",
                    capacity=Load(cpu=CPUS, memory=MEMORY_MB, network=NETWORK_MBPS),
                    was_hot=f"{host:03d}" in self.hot,
                    free=planner.Room(
                        int(CPUS * OVERCOMMIT - self.allocated[host][0]), int(MEMORY_MB - self.allocated[host][1])
                    ),
                    moves_in=came[host],
                    moves_out=left[host],
                )
                for host in range(self.hosts)
            ),
            servers=tuple(
                self._server(guest, float(cpu), minute) for guest, cpu in zip(self.guests, used, strict=True)
            ),
            moves=len(latest),
            running=self._running(),
        )
        self.hot = planner.hot_hosts(cloud, self.limits)
        if not self.hot:
            return
        names = [host.name for host in cloud.hosts]
        by_uuid = {guest.uuid: guest for guest in self.guests}
        for move in planner.make_plan(cloud, self.limits, lambda uuid: names).moves:
            self._begin(by_uuid[move.instance_uuid], int(move.target), minute, move.seconds)

    def _even_out(self, minute: int, used: Any) -> None:
        while self._running() < self.limits.at_once:
            at = np.array([guest.target if guest.target >= 0 else guest.host for guest in self.guests])
            total = np.bincount(at, weights=used, minlength=self.hosts)
            source = int(np.argmax(total))
            mine = [index for index, guest in enumerate(self.guests) if at[index] == source and guest.target < 0]
            if not mine:
                return
            index = max(mine, key=lambda number: used[number])
            guest = self.guests[index]
            free = [
                host
                for host in np.argsort(total)
                if host != source
                and self.allocated[host][0] + guest.vcpus <= CPUS * OVERCOMMIT
                and self.allocated[host][1] + guest.memory_mb <= MEMORY_MB
            ]
            if not free:
                return
            server = self._server(guest, float(used[index]), minute)
            self._begin(guest, int(free[0]), minute, planner.transfer_seconds(server, self.limits))


def draw(path: Path, days: dict[str, Simulation], title: str) -> None:
    """Draw spread, hosts under pressure, and moves over the day."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    hours = np.arange(MINUTES) / 60
    figure, axes = pyplot.subplots(3, 1, figsize=(9, 9), sharex=True)
    colors = {"planner": "#1b6ca8", "naive": "#d1495b", "none": "#8a8a8a"}
    labels = {"planner": "nova_lite", "naive": "naive: most to least loaded", "none": "no balancing"}
    smooth = np.ones(WINDOW) / WINDOW
    for name, day in reversed(days.items()):
        style = {"color": colors[name], "label": labels[name], "linewidth": 1.4}
        axes[0].plot(hours, np.convolve(day.hot_hosts, smooth, "same"), **style)
        axes[1].plot(hours, 100 * np.array(day.spread), **style)
        at = sorted(start for start, _, _ in day.starts if start < MINUTES)
        if name != "none":
            axes[2].step(
                [minute / 60 for minute in at] + [24], [*range(1, len(at) + 1), len(at)], where="post", **style
            )
    axes[0].set_ylabel("hosts above 80 % CPU")
    axes[1].set_ylabel("spread of CPU pressure, points")
    axes[2].set_ylabel("moves so far (log)")
    axes[2].set_yscale("log")
    axes[2].set_xlabel("hour of a synthetic day")
    axes[2].set_xticks(range(0, 25, 3))
    for panel in axes:
        panel.grid(alpha=0.3)
        panel.set_xlim(0, 24)
    axes[1].legend(loc="upper left")
    axes[0].set_title(title)
    figure.tight_layout()
    figure.savefig(path, dpi=90)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=100)
    parser.add_argument("--servers", type=int, default=1450)
    parser.add_argument("--seed", type=int, default=35)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    args = parser.parse_args()
    conf = cfg.ConfigOpts()
    options.register_opts(conf)
    conf([])
    limits = limits_of(conf)
    guests = make_guests(random.Random(args.seed), args.hosts, args.servers)
    load = make_load(np.random.default_rng(args.seed), guests)
    print(f"{args.hosts} hosts, {len(guests)} servers, seed {args.seed}", flush=True)
    days, rows = {}, []
    for name in BALANCERS:
        days[name] = Simulation(name, args.hosts, guests, load, limits)
        rows.append({"balancer": name} | days[name].run())
        print("  ".join(f"{key}={value}" for key, value in rows[-1].items()), flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=2) + "\n")
    if args.plot:
        draw(args.plot, days, f"{args.hosts} hosts, {len(guests)} servers, synthetic day, seed {args.seed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
