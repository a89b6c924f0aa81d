"""Model of moves: evacuation after ``forced_down``, and resize or cold migration.

One instance runs at generation 1 on host A. The steps of hosts are coarser than in `compute`, which checks the
protections of a single build. A host first looks at a command and then acts and reports. The daemon may be killed
between any two steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.model.checker import Step
from tests.model.state import OFF, RUNNING

A, B, NOWHERE = 0, 1, -1

Rules = frozenset[str]

MOVING: Rules = frozenset(
    {
        "forced_down is true",
        "no entry while forced_down",
        "destroy before serving",
        "silent daemon registers again",
        "new generation at accept",
        "source confirms first",
        "source holds back",
        "destination fenced first",
        "both ends belong",
        "revocation",
        "order of steps",
        "delete at both ends",
        "reconciler",
    }
)


class Order(NamedTuple):
    """A command. ``gen``: the generation that it is about. ``place``: its sequence number across all actions."""

    kind: str
    host: int
    gen: int
    place: int = 0


#: Sequence numbers of commands. A confirm or a revert comes after the resize, and a delete after all others.
PLACES = {"start": 0, "leave": 10, "arrive": 11, "drop": 12, "return": 13, "remove": 20, "back": 21, "delete": 30}


class End(NamedTuple):
    """A host.

    Durable: ``fenced``, ``held`` (a guest up to this generation must not be started, but stays), ``seen`` (sequence
    number of the newest command), domain, and power.
    """

    daemon: str = "serving"
    fenced: int = 0
    held: int = 0
    seen: int = 0
    domain: int = 0
    power: int = 0
    job: Order | None = None
    at: str = ""


class Move(NamedTuple):
    """The state of the model.

    ``allocs``: the instance's allocations on A and B. ``other``: the other host of a resize, ``other_gen`` its
    generation there. ``last``: the highest generation so far. ``forced``: A is forced down. ``crashes``: how many are
    left.
    """

    vm: str = "active"
    host: int = A
    gen: int = 1
    other: int = NOWHERE
    other_gen: int = 0
    last: int = 1
    allocs: tuple[int, int] = (1, 0)
    step: str = ""
    ends: tuple[End, End] = (End(domain=1, power=RUNNING), End())
    net: tuple[Order, ...] = ()
    forced: bool = False
    used_up: tuple[str, ...] = ()
    crashes: int = 1


def _end(state: Move, index: int, **changes: Any) -> Move:
    ends = list(state.ends)
    ends[index] = ends[index]._replace(**changes)
    return state._replace(ends=tuple(ends))


def _send(state: Move, order: Order) -> Move:
    return state if order in state.net else state._replace(net=tuple(sorted((*state.net, order))))


def _hold(state: Move, index: int, held: int) -> Move:
    allocs = list(state.allocs)
    allocs[index] = held
    return state._replace(allocs=tuple(allocs))


@dataclass(frozen=True)
class Moves:
    """A model of moves. ``story``: "evacuate" or "resize"."""

    story: str
    rules: Rules = MOVING
    crashes: int = 1
    only_twice: bool = False

    def initial(self) -> Move:
        """Return the first state.

        A repeated command to start the guest is still in A's queue, and no caller waits for it.
        """
        return Move(crashes=self.crashes, net=(Order("start", A, 1),))

    def steps(self, state: Move) -> Iterable[Step]:
        yield from self._operator(state) if self.story == "evacuate" else self._user(state)
        yield from self._conductor(state)
        for order in state.net:
            end = state.ends[order.host]
            if end.daemon == "serving" and end.job is None:
                after = _end(state, order.host, job=order, at="look")
                progress = "reconciler" in self.rules and order in self._current(state)
                yield f"{'AB'[order.host]} gets {order.kind} {order.gen}", progress, after
        for index in (A, B):
            for label, progress, after in self._host(state, index):
                yield f"{'AB'[index]}: {label}", progress, after

    def canonical(self, state: Move) -> Move:
        return state

    # --- properties

    def violation(self, state: Move) -> str | None:
        if all(end.power == RUNNING for end in state.ends):
            return "it runs twice"
        if self.only_twice:
            return None
        for index, end in enumerate(state.ends):
            out_of_service = end.daemon != "serving" or (index == A and state.forced)
            if end.domain and not state.allocs[index] and not out_of_service:
                return f"a domain on {'AB'[index]}, which the instance holds nothing of"
        if state.vm == "deleted" and not state.step and any(state.allocs):
            return "deleted, and holds something"
        if self.story == "resize" and state.vm != "deleted" and not any(end.domain for end in state.ends):
            return "its disk is nowhere"
        return None

    def unsettled(self, state: Move) -> str | None:
        if self.only_twice:
            return None
        if state.step and state.step != "resized":
            return f"open at step {state.step}"
        if any(end.job for end in state.ends):
            return "a host is at work"
        if state.vm == "deleted":
            return "deleted, and a domain is left" if any(end.domain for end in state.ends) else None
        if state.forced or state.ends[state.host].daemon != "serving":
            return None
        here = state.ends[state.host]
        if here.domain != state.gen:
            return f"{state.vm}, but on its host is generation {here.domain}"
        if self.story == "resize" and here.power != RUNNING:
            return f"{state.vm}, but its guest is off"
        return None

    # --- the conductor

    def _operator(self, state: Move) -> Iterator[Step]:
        """Force A down, evacuate the instance, or let A back in, as the operator does."""
        if not state.forced and "forced" not in state.used_up:
            down = state._replace(forced=True, used_up=(*state.used_up, "forced"))
            if "forced_down is true" in self.rules:
                off = OFF if state.ends[A].domain else 0
                down = _end(down, A, power=off)
                yield "A is switched off and forced down", False, _end(down, A, daemon="off", job=None, at="")
                if state.ends[A].job is None:
                    frozen = _end(down, A, daemon="frozen")
                    yield "A's guests are off, its idle daemon is cut off, A is forced down", False, frozen
            else:
                yield "A is forced down, and runs on", False, down
        if state.forced and state.ends[A].daemon in ("serving", "starting", "off", "frozen"):
            yield "A is let in again", False, state._replace(forced=False)
        if state.forced and not state.step and state.host == A and state.vm == "active":
            accepted = state._replace(step="claim")
            if "new generation at accept" in self.rules:
                accepted = _hold(accepted._replace(gen=state.gen + 1, host=NOWHERE), A, 0)
            yield "evacuate accepted", False, accepted

    def _user(self, state: Move) -> Iterator[Step]:
        if not state.step and state.vm == "active" and state.host == A and "resize" not in state.used_up:
            yield "resize accepted", False, state._replace(step="schedule", used_up=(*state.used_up, "resize"))
        if state.step == "schedule":
            yield "no room, or past the deadline", False, state._replace(step="")
        if state.step == "resized":
            yield "confirm accepted", False, _send(state._replace(step="confirm"), self._order("remove", A, state))
            yield "revert accepted", False, _send(state._replace(step="revert"), self._order("remove", B, state))
        if state.step in ("leave", "arrive"):
            yield "past the deadline", False, self._give_up(state)
        if state.vm != "deleted":
            yield "delete accepted", False, self._delete(state)

    def _order(self, kind: str, host: int, state: Move) -> Order:
        gen = state.gen if host == state.host else state.other_gen
        name = "back" if kind == "return" and "back" in state.used_up else kind
        return Order(kind, host, gen, PLACES[name])

    def _delete(self, state: Move) -> Move:
        hosts = {state.host}
        if state.other != NOWHERE and "delete at both ends" in self.rules:
            hosts.add(state.other)
        state = state._replace(vm="deleted", step="delete")
        for index in (A, B):
            order = self._order("delete", index, state)
            state = _send(state, order) if index in hosts else _hold(state, index, 0)
        return state

    def _give_up(self, state: Move) -> Move:
        """Undo a step at B. B may have its command, so it has to confirm first that it will not carry it out."""
        if state.step == "leave" or "destination fenced first" not in self.rules:
            return self._way_back(state)
        return _send(state._replace(step="drop"), self._order("drop", B, state))

    def _way_back(self, state: Move) -> Move:
        """Record that B has nothing, so that A continues with the guest."""
        gen = state.gen if state.host == A else state.other_gen
        state = _hold(state, B, 0)._replace(step="return", host=A, gen=gen, other=NOWHERE, other_gen=0)
        return _send(state, self._order("return", A, state))

    def _current(self, state: Move) -> set[Order]:
        """Return the command that the reconciler repeats."""
        orders = {
            "leave": [self._order("leave", A, state)],
            "arrive": [self._order("arrive", B, state)],
            "drop": [self._order("drop", B, state)],
            "return": [self._order("return", A, state)],
            "confirm": [self._order("remove", A, state)],
            "revert": [self._order("remove", B, state)],
            "delete": [self._order("delete", index, state) for index in (A, B) if state.allocs[index]],
            "build": [Order("arrive", B, state.gen, PLACES["arrive"])],
        }
        return set(orders.get(state.step, ()))

    def _conductor(self, state: Move) -> Iterator[Step]:
        if state.step == "claim":
            gen = state.gen if "new generation at accept" in self.rules else state.gen + 1
            claimed = _hold(_hold(state, A, 0), B, 1)._replace(step="build", host=B, gen=gen)
            order = Order("arrive", B, gen, PLACES["arrive"])
            yield "B is claimed", "reconciler" in self.rules, _send(claimed, order)
        if state.step == "schedule":
            target = state._replace(step="leave", other=B, other_gen=state.last + 1, last=state.last + 1)
            target = _hold(target, B, 1)
            order = self._order("leave", A, target)
            if "source confirms first" not in self.rules:
                target = _send(target._replace(step="arrive"), self._order("arrive", B, target))
            yield "B is claimed", "reconciler" in self.rules, _send(target, order)

    def report(self, state: Move, order: Order, answer: str) -> Move:
        """Record how a command has ended. A stale report changes nothing."""
        if order not in self._current(state):
            return state
        step = state.step
        if step == "leave":
            after = state._replace(step="arrive")
            return _send(after, self._order("arrive", B, after))
        if step in ("arrive", "drop"):
            if answer == "fenced" and step == "arrive":
                return self._give_up(state)
            if answer == "runs":
                return self._arrived(state)
            return self._way_back(state)
        if step in ("build", "return"):
            return state._replace(step="")
        if step == "confirm":
            return _hold(state, A, 0)._replace(step="", other=NOWHERE, other_gen=0)
        if step == "revert":
            return self._way_back(state._replace(used_up=(*state.used_up, "back")))
        released = _hold(state, order.host, 0)
        return released if any(released.allocs) else released._replace(step="")

    def _arrived(self, state: Move) -> Move:
        return state._replace(step="resized", host=B, gen=state.other_gen, other=A, other_gen=state.gen)

    def belongs(self, state: Move, index: int, gen: int) -> bool:
        if state.vm == "deleted":
            return False
        if (index, gen) == (state.host, state.gen):
            return True
        return "both ends belong" in self.rules and (index, gen) == (state.other, state.other_gen)

    # --- a host

    def _host(self, state: Move, index: int) -> Iterator[Step]:
        end = state.ends[index]
        if end.daemon in ("off", "down"):
            yield "daemon starts", True, _end(state, index, daemon="starting")
        elif end.daemon == "frozen":
            anew = "starting" if "silent daemon registers again" in self.rules else "serving"
            yield "goes on", True, _end(state, index, daemon=anew)
        elif end.daemon == "starting":
            yield from self._enter(state, index)
        elif end.job is not None:
            yield from self._work(state, index, end, end.job)
        elif end.domain:
            yield from self._reconcile(state, index, end)
            yield from self._boot(state, index, end)
        if state.crashes and end.daemon == "serving":
            killed = _end(state, index, daemon="down", job=None, at="")
            yield "daemon is killed", False, killed._replace(crashes=state.crashes - 1)

    def _enter(self, state: Move, index: int) -> Iterator[Step]:
        """Register, compare domains with the database, serve."""
        if index == A and state.forced and "no entry while forced_down" in self.rules:
            return
        end = state.ends[index]
        if end.domain and "destroy before serving" in self.rules and not self.belongs(state, index, end.domain):
            fenced = max(end.fenced, end.domain)
            state = _end(state, index, domain=0, power=0, fenced=fenced)
        yield "has compared its domains, serves", True, _end(state, index, daemon="serving")

    def _reconcile(self, state: Move, index: int, end: End) -> Iterator[Step]:
        known = self.belongs(state, index, end.domain)
        if not known:
            gone = _end(state, index, domain=0, power=0, fenced=max(end.fenced, end.domain))
            yield "domain reconciliation destroys", True, gone

    def _boot(self, state: Move, index: int, end: End) -> Iterator[Step]:
        """Reboot the host, and start the guests that have to run and are not held."""
        runs_here = state.vm == "active" and (state.host, state.gen) == (index, end.domain)
        held = "source holds back" in self.rules and end.domain <= end.held
        if self.story == "resize" and runs_here and end.power == OFF and not held:
            yield "starts its guests after a reboot", False, _end(state, index, power=RUNNING)

    def _work(self, state: Move, index: int, end: End, order: Order) -> Iterator[Step]:
        if end.at == "look":
            yield f"looks at {order.kind} {order.gen}", True, self._look(state, index, end, order)
        elif end.at == "act":
            yield f"does {order.kind} {order.gen}", True, self._act(state, index, end, order)
        else:
            after = _end(self.report(state, order, end.at), index, job=None, at="")
            yield f"reports {order.kind} {order.gen}: {end.at}", True, after

    def _look(self, state: Move, index: int, end: End, order: Order) -> Move:
        """Write the revoked generation, or drop the command."""
        dropped = _end(state, index, job=None, at="")
        if self.story == "resize" and "order of steps" in self.rules:
            if order.place < end.seen:
                return dropped
            state = _end(state, index, seen=order.place)
            end = state.ends[index]
            dropped = _end(state, index, job=None, at="")
        if order.kind == "drop" and end.domain == order.gen:
            return _end(state, index, at="runs")
        if order.kind in ("remove", "delete", "drop"):
            promise = max(end.fenced, order.gen) if "revocation" in self.rules else end.fenced
            return _end(state, index, at="act", fenced=promise)
        if order.kind == "arrive":
            if order.gen <= end.fenced:
                return _end(state, index, at="fenced") if end.domain <= order.gen else dropped
            if end.domain == order.gen:
                return _end(state, index, at="runs")
            wanted = self.story == "evacuate" or order in self._current(state)
            return _end(state, index, at="act") if end.domain < order.gen and wanted else dropped
        held = order.kind == "start" and "source holds back" in self.rules and end.domain <= end.held
        if end.domain != order.gen or held:
            return dropped
        if order.kind == "leave" and "source holds back" in self.rules:
            return _end(state, index, at="act", held=max(end.held, order.gen))
        return _end(state, index, at="act")

    def _act(self, state: Move, index: int, end: End, order: Order) -> Move:
        if order.kind in ("remove", "delete", "drop"):
            left = end.domain if end.domain > order.gen else 0
            return _end(state, index, domain=left, power=end.power if left else 0, held=0, at="fenced")
        if order.kind == "leave":
            return _end(state, index, power=OFF, at="left")
        if order.kind == "return":
            return _end(state, index, power=RUNNING, held=0, at="runs")
        return _end(state, index, domain=order.gen, power=RUNNING, at="runs")
