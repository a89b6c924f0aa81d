"""What users do and what breaks in a run. Its seed makes it, and a part of it fails as the whole did."""

from __future__ import annotations

import dataclasses
import random
from typing import NamedTuple

#: Virtual seconds in which users ask and things break.
SECONDS = 150.0
CONDUCTORS = ("conductor1", "conductor2")
SCHEDULER = "scheduler"
#: Steps of a build of the fake driver that fail, or take long.
_STEPS = ("spawn_before_domain", "spawn_after_domain")


class Ask(NamedTuple):
    """A request of a user about a server, at a time. ``kind``: create, delete, stop, start or rebuild."""

    at: float
    server: int
    kind: str


class Fault(NamedTuple):
    """``kind``: a method of `tests.simulation.cloud.Cloud`. ``where``: its process or host, if it has one."""

    at: float
    kind: str
    where: str
    seconds: float
    amount: float


@dataclasses.dataclass(frozen=True)
class Plan:
    """The plan of a run. ``hosts``: their number."""

    seed: int
    hosts: int
    asks: tuple[Ask, ...]
    faults: tuple[Fault, ...]

    @property
    def names(self) -> list[str]:
        return [f"host{number}" for number in range(1, self.hosts + 1)]

    def without(self, item: Ask | Fault) -> Plan:
        """Return the plan without an item. Without its create a server has no other requests."""
        gone = [ask for ask in self.asks if isinstance(item, Ask) and item.kind == "create" and ask.server == item.server]
        asks = tuple(ask for ask in self.asks if ask != item and ask not in gone)
        return dataclasses.replace(self, asks=asks, faults=tuple(fault for fault in self.faults if fault != item))

    def __str__(self) -> str:
        lines = [f"{ask.at:7.2f} s  server {ask.server}: {ask.kind}" for ask in self.asks]
        lines += [
            f"{one.at:7.2f} s  {one.kind} {one.where} for {one.seconds:.2f} s, {one.amount:.3g}" for one in self.faults
        ]
        return "\n".join(sorted(lines))


def make(seed: int, hosts: int = 3) -> Plan:
    """Return the plan of a seed."""
    choices = random.Random(f"plan {seed}")
    plan = Plan(seed, hosts, (), ())
    faults = tuple(sorted(_fault(choices, plan.names) for _ in range(choices.choice((0, 1, 2, 3, 4, 6, 9)))))
    is_calm = not any(fault.where in CONDUCTORS for fault in faults)
    asks = [ask for server in range(choices.choice((1, 2, 3, 4))) for ask in _asks(choices, server, is_calm)]
    return dataclasses.replace(plan, asks=tuple(sorted(asks)), faults=faults)


def _asks(choices: random.Random, server: int, is_calm: bool) -> list[Ask]:
    """Return the requests about a server. The model stops no server that was rebuilt off, so that needs no late one."""
    at = choices.uniform(0, SECONDS / 3)
    asks = [Ask(at, server, "create")]
    kinds = ["stop", "start", "stop", "start", "delete", *(["rebuild"] if is_calm else [])]
    for _ in range(choices.randrange(5)):
        at += choices.choice((choices.uniform(0, 0.2), choices.uniform(0, 3), choices.uniform(0, 40)))
        asks.append(Ask(at, server, choices.choice(kinds)))
    return asks


def _fault(choices: random.Random, hosts: list[str]) -> Fault:
    at, seconds = choices.uniform(0, SECONDS * 0.8), choices.uniform(1, 60)
    processes = [*hosts, *CONDUCTORS, SCHEDULER]
    kind = choices.choice(("lose", "double", "slow", "conflict", "cut", "kill", "kill", "break_build", "set_clock"))
    where, amount = "", choices.choice((0.02, 0.1, 0.4))
    if kind in ("cut", "set_clock", "kill"):
        where = choices.choice(processes)
    if kind == "kill":
        amount = choices.choice((choices.randrange(1, 40), choices.randrange(40, 800)))
    elif kind == "conflict":
        amount = choices.choice((0.005, 0.05))
    elif kind == "set_clock":
        amount = choices.choice((-7200.0, -5.0, 5.0, 7200.0))
    elif kind == "break_build":
        where, amount = choices.choice(hosts), choices.randrange(6)
    return Fault(at, kind, where, seconds, amount)


def build_control(amount: float) -> dict[str, object]:
    """Return how builds of a host behave, by the amount of a fault."""
    step = _STEPS[int(amount) % 2]
    return {"fail_at": [step]} if amount < 2 else {"delays": {step: amount * 8}} if amount < 4 else {"hang_at": [step]}
