"""Plans of runs: requests of users, and faults. A seed makes a plan, and a failing plan can be shrunk."""

from __future__ import annotations

import dataclasses
import random
from typing import NamedTuple

#: Virtual seconds in which users begin to create servers, unless they do so at once.
SECONDS = 20.0
CONDUCTORS = ("conductor1", "conductor2")
SCHEDULER = "scheduler"
#: Steps of a build of the fake driver that fail, or take long.
_STEPS = ("spawn_before_domain", "spawn_after_domain")
#: Kinds of faults, and messages that a fault of the bus may meet alone, in this share of such faults.
_KINDS = ("lose", "double", "slow", "conflict", "cut", "kill", "cut_power", "break_build", "slow_disk", "set_clock")
_METHODS = (
    "build_and_run_instance",
    "fence_instance",
    "fence_instance",
    "finish_action",
    "finish_build",
    "finish_build",
    "finish_build",
    "select_destinations",
    "start_instance",
    "stop_instance",
    "terminate_instance",
)
_OF_ONE = 0.6


class Theme(NamedTuple):
    """Requests and faults that matter together, at times of the seed.

    ``asks``: what follows the create, with the least and most seconds before it. ``faults``: number of the request at
    which each begins, its kind, place and amount. ``build_seconds``: that a build takes at least. ``resumes``: as
    `Plan` has it.
    """

    asks: tuple[tuple[str, float, float], ...]
    faults: tuple[tuple[int, str, str, float], ...]
    build_seconds: float = 0.0
    resumes: bool = False


#: Late copies of commands; late reports; builds, rebuilds and deletes that end after their deadlines; deletes amid
#: builds; slow decisions.
_THEMES = (
    Theme((("stop", 8, 12), ("start", 2, 6), ("stop", 2, 6)), ((1, "double", "", 1.0),)),
    Theme((), ((0, "break_build", "", 1.0), (0, "double", "finish_build", 1.0)), build_seconds=5.0),
    Theme((), ((0, "break_build", "", 3.0), (0, "lose", "fence_instance", 1.0), (0, "lose", "finish_build", 0.9))),
    Theme((("rebuild", 8, 12), ("stop", 26, 40)), ((1, "break_build", "", 4.0), (1, "lose", "fence_instance", 1.0))),
    Theme((("stop", 5, 8), ("delete", 4, 8)), ((2, "lose", "terminate_instance", 1.0),)),
    Theme((("delete", 2, 14),), tuple((0, "slow_disk", f"host{number}", 0.8) for number in (1, 2, 3))),
    Theme((), ((0, "slow", "select_destinations", 1.0),), build_seconds=12.0),
)
#: Themes of fewer seeds: a domain that vanishes; conductors that hear nothing; a late copy of the build of a deleted
#: server, and clocks that jump meanwhile; all hosts without power.
_RARE_THEMES = (
    Theme((("start", 15, 25),), ((1, "vanish", "", 1.0),)),
    Theme((), ((0, "cut", CONDUCTORS[0], 1.0), (0, "cut", CONDUCTORS[1], 1.0))),
    Theme(
        (("delete", 6, 10),),
        (
            (0, "double", "build_and_run_instance", 1.0),
            *((1, "set_clock", f"host{number}", 7200.0) for number in (1, 2, 3)),
        ),
    ),
    Theme((("start", 20, 30),), tuple((1, "cut_power", f"host{number}", 5.0) for number in (1, 2, 3))),
)
#: Guests shut down alone, and late reports of that meet commands.
_OWN_POWER = Theme(
    (("stop", 8, 12), ("start", 2, 6)), ((1, "shut_down", "", 1.0), (1, "slow", "reconcile_domains", 1.0))
)
#: Hosts that operators take away and return, replace or retire, with evacuations; services that are deleted; moves
#: from a host without power, or with lost and late messages; guests that hosts start again.
_MOVES = (
    Theme((("start", 8, 12), ("evacuate", 5, 20), ("stop", 5, 30)), ((1, "take_away", "", 6.0),)),
    Theme((("start", 8, 12), ("evacuate", 5, 20), ("delete", 5, 10)), ((1, "replace", "", -4.0),)),
    Theme((("resize", 8, 12), ("evacuate", 5, 30), ("stop", 5, 30)), ((1, "retire", "", -4.0),)),
    Theme((("delete", 8, 12), ("create", 26, 36)), tuple((0, "forget", f"host{number}", 0.0) for number in (1, 2, 3))),
    Theme(
        (("resize", 8, 12), ("evacuate", 6, 20), ("stop", 5, 30)),
        ((0, "slow", "resize_instance", 0.7), (1, "take_away", "", 6.0)),
    ),
    Theme((("start", 8, 12), ("resize", 22, 30)), ((1, "switch_off", "", 0.0),)),
    Theme((("start", 8, 12), ("migrate", 2, 30), ("reboot", 20, 40)), ((1, "switch_off", "", 0.0),), resumes=True),
    Theme((("migrate", 8, 12), ("migrate", 5, 20)), ((1, "slow", "", 0.3), (2, "lose", "", 0.3))),
    Theme((("resize", 8, 12), ("reboot", 10, 20)), ((1, "lose", "resize_instance", 1.0), (2, "shut_down", "", 0.0))),
    Theme((("resize", 8, 12), ("confirm", 5, 15), ("stop", 2, 10)), ((1, "slow", "", 0.3),)),
    Theme((("resize", 8, 12), ("revert", 5, 15), ("stop", 2, 10)), ((1, "lose", "", 0.3),)),
)
#: Shares of seeds with these themes.
_RARE, _OWN, _MOVED = 0.15, 0.05, 0.15
#: Most virtual seconds between two requests about a server.
_GAPS = (0.2, 3.0, 3.0, 20.0, 40.0)


class Ask(NamedTuple):
    """A request of a user about a server, at a time. ``kind``: create, delete, or one of `tests.simulation.cloud`."""

    at: float
    server: int
    kind: str


class Fault(NamedTuple):
    """``kind``: a method of `tests.simulation.cloud.Cloud`. ``where``: its process, host or message, if it has one."""

    at: float
    kind: str
    where: str
    seconds: float
    amount: float


@dataclasses.dataclass(frozen=True)
class Plan:
    """The plan of a run.

    ``hosts``: their number. ``build_seconds``: that a build takes. ``room``: vCPUs of a host. ``resumes``: whether a
    host that has lost its power starts guests again.
    """

    seed: int
    hosts: int
    asks: tuple[Ask, ...]
    faults: tuple[Fault, ...]
    build_seconds: float = 0.0
    room: int = 64
    resumes: bool = False

    @property
    def names(self) -> list[str]:
        return [f"host{number}" for number in range(1, self.hosts + 1)]

    def without(self, item: Ask | Fault) -> Plan:
        """Return the plan without an item. Without its create a server has no other requests."""
        if isinstance(item, Ask):
            gone = [ask for ask in self.asks if item.kind == "create" and ask.server == item.server]
            return dataclasses.replace(self, asks=tuple(ask for ask in self.asks if ask not in (item, *gone)))
        return dataclasses.replace(self, faults=tuple(fault for fault in self.faults if fault != item))

    def __str__(self) -> str:
        lines = [f"{ask.at:7.2f} s  server {ask.server}: {ask.kind}" for ask in self.asks]
        lines += [
            f"{one.at:7.2f} s  {one.kind} {one.where} for {one.seconds:.2f} s, {one.amount:.3g}" for one in self.faults
        ]
        return "\n".join(sorted(lines))


def make(seed: int, hosts: int = 3) -> Plan:
    """Return the plan of a seed. Each has its own share of the kinds of faults, so that some are frequent in it."""
    choices = random.Random(f"plan {seed}")
    plan = Plan(seed, hosts, (), (), choices.choice((0.0, 0.0, 0.5, 3.0)), choices.choice((1, 64, 64)))
    servers = range(choices.choice((1, 2, 4)))
    spread = choices.choice((0.05, SECONDS, SECONDS))
    asks = sorted(ask for server in servers for ask in _asks(choices, server, spread))
    theme = choices.choice((None, *_THEMES))
    others = random.Random(f"seldom {seed}")
    seldom = others.random()
    if seldom < _RARE:
        theme = others.choice(_RARE_THEMES)
    elif seldom < _RARE + _OWN:
        theme = _OWN_POWER
    elif seldom < _RARE + _OWN + _MOVED:
        theme = others.choice(_MOVES)
    themed: list[Fault] = []
    if theme is not None:
        asks = sorted([*asks, *_themed_asks(choices, theme, len(servers))])
        themed = _themed_faults(choices, theme, asks, len(servers))
        longest = max(plan.build_seconds, theme.build_seconds)
        plan = dataclasses.replace(plan, build_seconds=longest, resumes=theme.resumes)
    kinds = [*choices.sample(_KINDS, choices.choice((1, 2, 3, len(_KINDS)))), *choices.choice(((), ("break_build",)))]
    daemons = choices.choice((plan.names, [*plan.names, *CONDUCTORS, SCHEDULER]))
    number = choices.choice((0, 1, 2, 4, 8) if theme is None else (0, 0, 1, 2))
    faults = [_fault(choices, kinds, daemons, plan.names, choices.choice(asks).at) for _ in range(number)]
    faults = sorted([*faults, *themed])
    if any(fault.where in CONDUCTORS for fault in faults):
        # A late stop may follow. The model has no stop of a server that was rebuilt while it was off.
        asks = [ask for ask in asks if ask.kind != "rebuild"]
    return dataclasses.replace(plan, asks=tuple(asks), faults=tuple(faults))


def _themed_asks(choices: random.Random, theme: Theme, server: int) -> list[Ask]:
    at = choices.uniform(0, SECONDS / 2)
    asks = [Ask(at, server, "create")]
    for kind, least, most in theme.asks:
        at += choices.uniform(least, most)
        asks.append(Ask(at, server, kind))
    return asks


def _themed_faults(choices: random.Random, theme: Theme, asks: list[Ask], server: int) -> list[Fault]:
    """Return the faults of a theme, which begin at its request of that number."""
    own = [ask for ask in asks if ask.server == server]
    return [
        Fault(max(0.0, own[number].at - choices.uniform(0.1, 1)), kind, where, choices.uniform(30, 50), amount)
        for number, kind, where, amount in theme.faults
    ]


def _asks(choices: random.Random, server: int, spread: float) -> list[Ask]:
    at = choices.uniform(0, spread)
    asks = [Ask(at, server, "create")]
    for _ in range(choices.randrange(5)):
        is_rebuilt = asks[-1].kind == "rebuild"
        at += choices.uniform(0, choices.choice(_GAPS) + 30.0 * is_rebuilt)
        kinds = ("stop", "start", "delete") if is_rebuilt else ("stop", "start", "stop", "start", "delete", "rebuild")
        asks.append(Ask(at, server, choices.choice(kinds)))
    return asks


def _fault(choices: random.Random, kinds: list[str], daemons: list[str], hosts: list[str], near: float) -> Fault:
    """Return a fault that begins shortly before or after a request. ``daemons``: may die, or be cut off."""
    kind = choices.choice(kinds)
    at = max(0.0, near + choices.uniform(-3, 1))
    seconds = choices.choice((choices.uniform(0.1, 3), choices.uniform(1, 30), choices.uniform(30, 60)))
    where, amount = "", choices.choice((0.02, 0.1, 0.4))
    if kind in ("cut", "set_clock", "kill"):
        where = choices.choice(daemons)
    elif kind in ("cut_power", "slow_disk"):
        where = choices.choice(hosts)
    elif kind == "break_build":
        where = choices.choice([*hosts, *[""] * len(hosts)])
    if kind in ("lose", "double", "slow") and choices.random() < _OF_ONE:
        where, amount = choices.choice(_METHODS), choices.choice((0.5, 1.0))
    elif kind in ("kill", "cut_power"):
        amount = choices.choice((choices.randrange(1, 40), choices.randrange(40, 800)))
    elif kind in ("double", "slow_disk"):
        amount *= 2
    elif kind == "conflict":
        amount = choices.choice((0.002, 0.01))
    elif kind == "set_clock":
        amount = choices.choice((-7200.0, -5.0, 5.0, 7200.0))
    elif kind == "break_build":
        amount = choices.randrange(6)
    return Fault(at, kind, where, seconds, amount)


def build_control(amount: float) -> dict[str, object]:
    """Return how builds of a host behave, by the amount of a fault."""
    step = _STEPS[int(amount) % 2]
    return {"fail_at": [step]} if amount < 2 else {"delays": {step: amount * 8}} if amount < 4 else {"hang_at": [step]}
