"""Model of a live migration: A's hypervisor hands a running guest over to B.

One instance at generation 1 is on A. Daemons and whole machines fail between any two steps, and hypervisors continue
without their daemons. The guest moves in one moment (``wire``); A's hypervisor removes its part in a later one. A host
first looks at a command and then carries it out. Everything except the hand-over itself is one step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.model.checker import Step
from tests.model.moves import NOWHERE, A, B, Order, Rules
from tests.model.state import OFF, RUNNING

#: Power state of a domain that only waits for the guest.
INCOMING = 3

LIVE: Rules = frozenset(
    {
        "source is asked",
        "later order ends it",
        "destination is asked",
        "what has arrived counts",
        "source cleared first",
        "no start while it moves",
        "both ends of a live migration belong",
        "order of live steps",
        "delete at both live ends",
        "live orders are sent again",
    }
)

#: The host of each step and undo.
AT = {
    "check": A,
    "prepare": B,
    "hand_over": A,
    "roll_back": A,
    "find": B,
    "drop": B,
    "settle": B,
    "clear": A,
}
#: Sequence numbers of commands. A command is dropped after one with a higher number.
PLACES = {name: place for place, name in enumerate(("start", *AT, "delete"))}


class End(NamedTuple):
    """A host.

    Durable: ``seen`` (sequence number of the newest command), ``fenced``, ``ready`` (prepared), and the domain. Its
    power ends with the machine.
    """

    daemon: str = "serving"
    seen: int = 0
    fenced: int = 0
    ready: bool = False
    domain: int = 0
    power: int = 0
    job: Order | None = None
    at: str = ""


class Guest(NamedTuple):
    """The state of the model.

    ``wire``: "" or the progress of the hand-over: "going", or "passed" (the guest runs at B, and A does not know it
    yet). ``moved``: the guest has run at B. ``forced``: A is forced down and switched off. ``crashes`` of daemons,
    ``outages`` of machines: how many are left. ``dark``: hosts that lost their power with the guest, which stays off.
    """

    vm: str = "active"
    host: int = A
    gen: int = 1
    other: int = NOWHERE
    other_gen: int = 0
    allocs: tuple[int, int] = (1, 0)
    step: str = ""
    ends: tuple[End, End] = (End(domain=1, power=RUNNING), End())
    wire: str = ""
    moved: bool = False
    forced: bool = False
    dark: bool = False
    asked: bool = False
    net: tuple[Order, ...] = (Order("start", A, 1, 0),)
    crashes: int = 1
    outages: int = 1


def _end(state: Guest, index: int, **changes: Any) -> Guest:
    ends = list(state.ends)
    ends[index] = ends[index]._replace(**changes)
    return state._replace(ends=tuple(ends))


def _send(state: Guest, order: Order) -> Guest:
    return state if order in state.net else state._replace(net=tuple(sorted((*state.net, order))))


def _hold(state: Guest, index: int, held: int) -> Guest:
    allocs = list(state.allocs)
    allocs[index] = held
    return state._replace(allocs=tuple(allocs))


def _cut(state: Guest) -> Guest:
    """Abort a hand-over: B's hypervisor removes what has arrived."""
    return _end(state, B, domain=0, power=0)._replace(wire="") if state.wire == "going" else state


@dataclass(frozen=True)
class LiveMigration:
    rules: Rules = LIVE
    crashes: int = 1
    outages: int = 1
    only_twice: bool = False

    def initial(self) -> Guest:
        """Return the first state.

        A repeated command to start the guest is still in A's queue, and no caller waits for it.
        """
        return Guest(crashes=self.crashes, outages=self.outages)

    def canonical(self, state: Guest) -> Guest:
        return state

    def steps(self, state: Guest) -> Iterable[Step]:
        yield from self._people(state)
        yield from self._conductor(state)
        yield from self._hypervisors(state)
        for order in state.net:
            progress = "live orders are sent again" in self.rules and order in self._current(state)
            yield from self._deliver(state, order, progress)
        for index in (A, B):
            for label, progress, after in self._host(state, index):
                yield f"{'AB'[index]}: {label}", progress, after

    # --- properties

    def violation(self, state: Guest) -> str | None:
        here, there = state.ends
        if here.power == RUNNING and there.power == RUNNING:
            return "it runs twice"
        if self.only_twice:
            return None
        for index, end in enumerate(state.ends):
            out_of_service = end.daemon != "serving" or (index == A and state.forced)
            if (end.domain or end.ready) and not state.allocs[index] and not out_of_service:
                return f"something on {'AB'[index]}, where the instance holds nothing"
        if state.vm == "deleted":
            return "deleted, and holds something" if not state.step and any(state.allocs) else None
        if state.moved and not there.domain:
            return "what it has done since it moved is lost"
        if not here.domain and not there.domain:
            return "it is nowhere"
        return None

    def unsettled(self, state: Guest) -> str | None:
        if self.only_twice:
            return None
        if state.step and not (state.forced and state.step in ("clear", "delete")):
            return f"open at step {state.step}"
        if any(end.job for end in state.ends) or state.wire:
            return "a host is at work"
        if state.vm == "deleted":
            left = any(end.domain for index, end in enumerate(state.ends) if not (index == A and state.forced))
            return "deleted, and a domain is left" if left else None
        here = state.ends[state.host]
        if here.daemon == "serving" and not state.forced and here.domain != state.gen:
            return f"on its host is generation {here.domain}"
        if state.vm == "active" and not state.dark and here.power != RUNNING:
            return "active, but its guest does not run"
        return None

    # --- users and operators

    def _people(self, state: Guest) -> Iterator[Step]:
        if not state.step and state.vm == "active" and state.host == A and not state.asked:
            yield "live migration accepted", False, state._replace(step="schedule", asked=True)
        if state.vm != "deleted":
            yield "delete accepted", False, self._delete(state)
        if not state.forced and state.outages:
            off = self._power_off(state, A)
            yield "A is switched off and forced down", False, off._replace(forced=True)
        if state.forced:
            yield "A is let in again", False, state._replace(forced=False)

    def _power_off(self, state: Guest, index: int) -> Guest:
        """Stop the machine.

        A guest on its way from there never arrives; one on its way to there continues at its source.
        """
        end = state.ends[index]
        guest_was_here = end.power == RUNNING
        state = state._replace(outages=state.outages - 1, dark=state.dark or guest_was_here)
        if index == B:
            state = _cut(state)
            end = state.ends[index]
        state = state._replace(wire="")
        return _end(state, index, daemon="off", power=OFF if end.domain else 0, job=None, at="")

    # --- the conductor

    def _order(self, kind: str, state: Guest) -> Order:
        index = AT[kind]
        return Order(kind, index, state.gen if index == state.host else state.other_gen, PLACES[kind])

    def _go(self, state: Guest, step: str) -> Guest:
        state = state._replace(step=step)
        return _send(state, self._order(step, state))

    def _delete(self, state: Guest) -> Guest:
        ends = {state.host: state.gen}
        if state.other != NOWHERE:
            ends[state.other] = state.other_gen
        state = state._replace(vm="deleted", step="delete")
        for index, gen in ends.items():
            if index == state.host or "delete at both live ends" in self.rules:
                state = _send(state, Order("delete", index, gen, PLACES["delete"]))
            else:
                state = _hold(state, index, 0)
        return state

    def _current(self, state: Guest) -> set[Order]:
        """Return the command that the reconciler repeats."""
        if state.step == "delete":
            gens = {state.host: state.gen, state.other: state.other_gen}
            held = [index for index in (A, B) if state.allocs[index]]
            return {Order("delete", index, gens[index], PLACES["delete"]) for index in held}
        return {self._order(state.step, state)} if state.step in AT else set()

    def _conductor(self, state: Guest) -> Iterator[Step]:
        again = "live orders are sent again" in self.rules
        if state.step == "schedule":
            claimed = _hold(state._replace(other=B, other_gen=2), B, 1)
            yield "B is claimed", again, self._go(claimed, "check")
            yield "no room", False, state._replace(step="")
        if state.step in ("check", "prepare", "hand_over"):
            yield "past the deadline", False, self._give_up(state)
        if state.forced and state.step in ("check", "prepare", "hand_over", "roll_back"):
            yield "A is lost", again, self._give_up(state)
        if state.forced and state.step == "delete" and state.allocs[A]:
            yield "A is waited for", False, state

    def _give_up(self, state: Guest) -> Guest:
        if state.step == "check":
            return self._back(state)
        if state.step == "prepare":
            return self._go(state, "drop")
        if state.step == "roll_back":
            return self._go(state, "find")
        return self._go(state, "roll_back" if "source is asked" in self.rules else "drop")

    def _back(self, state: Guest) -> Guest:
        """Record that B has nothing, so that the guest is where it was, unless it is lost."""
        vm = "error" if state.forced else state.vm
        return _hold(state, B, 0)._replace(step="", other=NOWHERE, other_gen=0, vm=vm)

    def report(self, state: Guest, order: Order, answer: str) -> Guest:
        """Record how a command has ended. A stale report changes nothing."""
        if order not in self._current(state):
            return state
        if state.step == "delete":
            released = _hold(state, order.host, 0)
            return released if any(released.allocs) else released._replace(step="")
        if answer == "failed":
            return self._give_up(state)
        if state.step == "check":
            return self._go(state, "prepare")
        if state.step == "prepare":
            return self._go(state, "hand_over")
        if state.step in ("hand_over", "roll_back", "find"):
            if answer != "moved":
                return self._go(state, "drop")
            moved = state._replace(host=B, gen=state.other_gen, other=A, other_gen=state.gen)
            return self._go(moved, "settle")
        if state.step == "settle" and "source cleared first" in self.rules:
            return self._go(state, "clear")
        if state.step in ("settle", "clear"):
            return _hold(state, A, 0)._replace(step="", other=NOWHERE, other_gen=0)
        return self._back(state)

    def belongs(self, state: Guest, index: int, gen: int) -> bool:
        if state.vm == "deleted":
            return False
        if (index, gen) == (state.host, state.gen):
            return True
        both = "both ends of a live migration belong" in self.rules
        return both and (index, gen) == (state.other, state.other_gen)

    # --- hypervisors

    def _hypervisors(self, state: Guest) -> Iterator[Step]:
        if state.wire == "going":
            passed = _end(_end(state, A, power=OFF), B, power=RUNNING)
            yield "the guest passes over", True, passed._replace(wire="passed", moved=True)
            yield "the hand-over breaks off", False, _cut(state)
        if state.wire == "passed":
            yield (
                "A's hypervisor hears it, and removes the guest",
                True,
                _end(state, A, domain=0, power=0)._replace(wire=""),
            )
        if not state.wire and state.ends[B].power == INCOMING:
            yield "B's hypervisor rids itself of what came", True, _end(state, B, domain=0, power=0)

    # --- a host

    def _deliver(self, state: Guest, order: Order, progress: bool) -> Iterator[Step]:
        index, end = order.host, state.ends[order.host]
        label = f"{'AB'[index]} gets {order.kind}"
        if end.daemon != "serving":
            return
        if end.job is None:
            yield label, progress, _end(state, index, job=order, at="look")
        elif end.at == "wait" and order.place > end.seen:
            yield f"{label}, and is at work", progress, _end(state, index, seen=order.place)

    def _host(self, state: Guest, index: int) -> Iterator[Step]:
        end = state.ends[index]
        if end.daemon == "off" and not (index == A and state.forced):
            booted = _end(state, index, daemon="down")
            yield "boots", True, booted
        elif end.daemon == "down":
            yield "daemon starts", True, self._enter(state, index)
        elif end.daemon == "serving":
            if end.job is not None:
                yield from self._work(state, index, end, end.job)
            else:
                yield from self._look_around(state, index, end)
            if state.crashes:
                killed = _end(state, index, daemon="down", job=None, at="")
                yield "daemon is killed", False, killed._replace(crashes=state.crashes - 1)
        if state.outages and end.daemon != "off":
            yield "loses its power", False, self._power_off(state, index)

    def _enter(self, state: Guest, index: int) -> Guest:
        end = state.ends[index]
        if end.domain and not self.belongs(state, index, end.domain):
            state = self._remove(state, index, end.domain)
        return _end(state, index, daemon="serving")

    def _remove(self, state: Guest, index: int, gen: int) -> Guest:
        """Remove files and the domain up to this generation, and abort a hand-over."""
        end = state.ends[index]
        if end.domain and end.domain <= gen:
            state = _cut(state)._replace(wire="")
            state = _end(state, index, domain=0, power=0)
        return _end(state, index, fenced=max(end.fenced, gen), ready=False)

    def _look_around(self, state: Guest, index: int, end: End) -> Iterator[Step]:
        """Reconcile domains. After a boot, start the guests that have to run."""
        if end.domain and end.power != INCOMING and not self.belongs(state, index, end.domain):
            yield "domain reconciliation destroys", True, self._remove(state, index, end.domain)
        idle = not state.step or "no start while it moves" not in self.rules
        if (
            state.vm == "active"
            and idle
            and (index, end.domain) == (state.host, state.gen)
            and end.power == OFF
            and state.wire == ""
        ):
            yield "starts its guests after a boot", False, _end(state, index, power=RUNNING)

    def _work(self, state: Guest, index: int, end: End, order: Order) -> Iterator[Step]:
        if end.at == "look":
            yield f"looks at {order.kind}", True, self._look(state, index, end, order)
        elif end.at == "wait":
            yield from self._wait(state, end)
        else:
            after = _end(self.report(state, order, end.at), index, job=None, at="")
            yield f"reports {order.kind}: {end.at}", True, after

    def _look(self, state: Guest, index: int, end: End, order: Order) -> Guest:
        dropped = _end(state, index, job=None, at="")
        if "order of live steps" in self.rules:
            if order.place < end.seen:
                return dropped
            if order.place > end.seen:
                state = _end(state, index, seen=order.place)
        act = self._drop if order.kind == "delete" else getattr(self, f"_{order.kind}")
        after: Guest | None = act(state, index, state.ends[index], order)
        return dropped if after is None else after

    def _start(self, state: Guest, index: int, end: End, order: Order) -> Guest | None:
        if end.domain != order.gen or state.wire:
            return None
        return _end(state, index, power=RUNNING, at="done")

    def _check(self, state: Guest, index: int, end: End, order: Order) -> Guest:
        return _end(state, index, at="done" if end.power == RUNNING else "failed")

    def _prepare(self, state: Guest, index: int, end: End, order: Order) -> Guest | None:
        """Prepare the destination, after the conductor has confirmed that the command is current."""
        if order.gen <= end.fenced or order not in self._current(state):
            return _end(state, index, at="failed") if order.gen <= end.fenced else None
        return _end(state, index, ready=True, at="done")

    def _hand_over(self, state: Guest, index: int, end: End, order: Order) -> Guest:
        """Hand the guest over, after the hand-over of a killed daemon has been aborted."""
        state = _cut(state)
        if self._has_moved(state):
            return _end(state, A, at="moved")
        there = state.ends[B]
        if state.ends[A].power != RUNNING or not there.ready or there.daemon == "off":
            return _end(state, A, at="failed")
        begun = _end(state, B, domain=2, power=INCOMING)
        return _end(begun, A, at="wait")._replace(wire="going")

    def _wait(self, state: Guest, end: End) -> Iterator[Step]:
        overtaken = end.job is not None and end.seen > end.job.place
        if state.wire == "going" and overtaken and "later order ends it" in self.rules:
            yield "a later order ends it", True, _end(_cut(state), A, job=None, at="")
        if state.wire == "going" and overtaken and "later order ends it" not in self.rules:
            yield "makes room for a later order", True, _end(state, A, job=None, at="")
        if not state.wire:
            moved = self._has_moved(state)
            yield "the hand-over has ended", True, _end(state, A, at="moved" if moved else "failed")

    def _has_moved(self, state: Guest) -> bool | None:
        """Return whether the guest has moved, as A's daemon finds it. None: B is away, so it cannot be found out.

        A guest that is off, or was stopped at the end of the hand-over, may be at B.
        """
        here, there = state.ends
        if not here.domain:
            return True
        if here.power == RUNNING or "destination is asked" not in self.rules:
            return False
        if there.daemon == "off":
            return None
        if "what has arrived counts" in self.rules:
            return there.domain == 2 and there.power != INCOMING
        return there.power in (RUNNING, INCOMING)

    def _roll_back(self, state: Guest, index: int, end: End, order: Order) -> Guest | None:
        """Undo the hand-over. While its outcome is unknown the command is repeated."""
        if "later order ends it" in self.rules:
            state = _cut(state)
        moved = self._has_moved(state)
        if moved is None:
            return None
        if not moved and state.ends[A].power == OFF and not state.dark:
            state = _end(state, A, power=RUNNING)._replace(wire="")
        return _end(state, A, at="moved" if moved else "here")

    def _find(self, state: Guest, index: int, end: End, order: Order) -> Guest | None:
        """Look for the guest at B. While something still arrives the command is repeated."""
        if end.power == INCOMING:
            return None
        return _end(state, B, at="moved" if end.domain == order.gen else "here")

    def _drop(self, state: Guest, index: int, end: End, order: Order) -> Guest:
        return _end(self._remove(state, index, order.gen), index, at="done")

    _clear = _drop

    def _settle(self, state: Guest, index: int, end: End, order: Order) -> Guest:
        return _end(state, index, at="done")
