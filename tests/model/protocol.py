"""The protocol as a model to check: one instance and its hosts, which are two in a search of all states."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tests.model import compute, conductor
from tests.model.checker import Step
from tests.model.compute import Rules
from tests.model.state import NAMES, NONE, OFF, RUNNING, Message, State, swapped

BLANK = State()

#: The rules of `nova_lite`.
IMPLEMENTED: Rules = frozenset(
    {
        "late success",
        "lasting delete",
        "undo first",
        "revocation",
        "durable revocation",
        "fence check at order",
        "fence check at creation",
        "fence before report",
        "instance lock",
        "confirmation",
        "reconciler",
        "domain reconciliation",
        "one driver",
        "report generation",
        "action order",
        "cleanup",
    }
)


@dataclass(frozen=True)
class Protocol:
    """The model of the protocol.

    ``users``: kinds of actions that users request. ``max_actions``: how many of them, with the create. ``crashes`` of
    daemons, ``losses`` of whole hosts. ``only_twice``: check only that no guest runs twice.
    """

    rules: Rules = IMPLEMENTED
    users: tuple[str, ...] = ("delete",)
    max_actions: int = 2
    crashes: int = 1
    losses: int = 0
    start: State = BLANK
    only_twice: bool = False

    def initial(self) -> State:
        return self.start._replace(crashes=self.crashes, losses=self.losses)

    def steps(self, state: State) -> Iterable[Step]:
        yield from conductor.steps(state, self.rules, self.users, self.max_actions)
        for message in state.net:
            yield from compute.deliver(state, message, self.rules)
        for index in range(len(state.hosts)):
            yield from compute.steps(state, index, self.rules)

    def violation(self, state: State) -> str | None:
        if sum(host.power == RUNNING for host in state.hosts) > 1:
            return "it runs twice"
        if self.only_twice:
            return None
        problem = conductor.problem(state)
        if problem is not None:
            return problem
        for index, host in enumerate(state.hosts):
            if host.domain and state.row.alloc != index:
                return f"a domain on {NAMES[index]}, which the instance holds nothing of any more"
        return None

    def unsettled(self, state: State) -> str | None:
        if self.only_twice:
            return None
        row, action = state.row, state.action
        lost = row.alloc != NONE and state.hosts[row.alloc].daemon == "lost"
        if action.step and not (lost and action.step in ("compensate", "cleanup")):
            return f"{action.kind} is open at step {action.step}"
        problem = None if lost or row.alloc == NONE else self._wrong_on_host(state)
        if problem is not None:
            return problem
        busy = any(host.daemon in ("down", "starting") or host.build.at or host.acts for host in state.hosts)
        return "a host is at work" if busy else None

    def _wrong_on_host(self, state: State) -> str | None:
        """Return a contradiction between the row and its host, if any."""
        row, host = state.row, state.hosts[state.row.host]
        if row.vm == "error":
            empty = not host.domain and "rebuild" not in self.users
            return "in error, and holds what its host does not have" if empty else None
        expected = {"active": RUNNING, "stopped": OFF}[row.vm]
        if (host.domain, host.power) != (row.gen, expected):
            there = (
                f"generation {host.domain}, {'off' if host.power == OFF else 'running'}" if host.domain else "nothing"
            )
            return f"{row.vm}, but on its host is {there}"
        wanted = {"stop": "stopped", "start": "active"}.get(state.requested, row.vm)
        return None if row.vm == wanted else f"{state.requested} was requested and done, but it is {row.vm}"

    def canonical(self, state: State) -> State:
        state = without_dead(state, self.rules)
        return min(state, swapped(state))


def without_dead(state: State, rules: Rules) -> State:
    """Return the state without everything that cannot have an effect any more under these rules.

    A thread that lost its lease finds that out at its claim, and never gets the lease again. A report or reply about an
    old generation changes nothing, because generations only grow and a closed build stays closed. A command that its
    host would drop or refuse, with nothing there to remove, will always be dropped or refused.
    """
    action = state.action
    if "one driver" in rules and state.threads:
        threads = tuple(thread for thread in state.threads if action.kind == "create" and thread[0] == action.owner)
        state = state._replace(threads=threads)
    if rules >= _SURE and state.net:
        state = state._replace(net=tuple(message for message in state.net if not _is_dead(state, message, rules)))
    return state


_SURE = {"report generation", "revocation", "durable revocation", "instance lock"}


def _is_dead(state: State, message: Message, rules: Rules) -> bool:
    action, host = state.action, state.hosts[message.host]
    over = action.kind not in conductor.BUILDS or not action.step or message.gen < state.row.gen
    if message.kind in ("report", "answer"):
        return over
    if message.kind == "run_command":
        if "action order" not in rules:
            return False
        done = host.last > message.id or (host.last == message.id and bool(host.result))
        return done and (action.id != message.id or not action.step) and not host.acts
    nothing_there = host.fenced >= message.gen and not host.domain and not host.build.at
    return nothing_there and over
