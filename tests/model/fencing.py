"""Model of fencing: a protected guest of a host that is lost, slow, cut off or hung is built again elsewhere.

One guest runs on host A, with its disk on shared storage. Host B has room. Two clocks run at bounded rates and are
never compared: that of A ends the lease, that of the conductor ends the wait. A clock gains or loses at most one tick
in a lease.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tests.model.checker import Step

Rules = frozenset[str]

#: Ticks of a lease, and ticks that a conductor waits: one for each clock that may be wrong, and one more.
LEASE = 2
WAIT = LEASE + 3

FENCING: Rules = frozenset(
    {
        "lease counts from its request",
        "margin for clock rates",
        "own clock",
        "guard",
        "guard ends the daemon",
        "guard knows its guests first",
        "only armed hosts",
        "armed in this start",
        "only confirmed guests",
        "no confirmation of a dropped guest",
        "decision compares the lease",
        "lost registration",
        "renewal of this start",
        "start needs a lease",
        "start again after fencing",
        "late commands wait for a comparison",
        "later requests keep their guests",
        "evacuations come from the rows",
        "off is confirmed",
        "off is newer than the host",
    }
)


class World(NamedTuple):
    """A state.

    The row: ``wanted`` (the policy protects the guest), ``confirmed`` (A has said that it protects it), ``armed`` and
    ``armed_before`` (an earlier start of A's daemon has said so). ``current``: A's registration is. ``fenced``: "",
    "lease" or "off". ``place``: where the guest belongs.

    The conductor: ``waited``, ticks since it saw the lease's row change; ``fast``, its clock has gained one. ``doubt``:
    it saw the wait's end. ``decided``: the decision is its own. ``agent``: "", "sent" or "off"; ``agent_before``: A has
    registered since.

    Host A: ``machine``, ``link``, ``daemon``. ``arms``: this start fences itself. ``known``: it protects the guest.
    ``left``: ticks of its lease; ``slow``: its clock has missed one of them. ``age`` of its pending request (-1: none),
    and ``missed`` as ``slow``. ``guest``: it runs. ``stopped``: A has stopped it. ``starting``: a command to start it
    is under way. ``domain``: A has the guest's definition. ``compared``: a comparison has decided on the guest since A
    has stopped it.

    In flight: ``late``, a command to reboot the guest, which waits in the broker; ``request`` and ``reply`` with what
    they say, ``request_before`` (of an earlier start), ``request_over`` (of an ended registration). ``second``: a
    request by another connection, whose reply is lost in any case, with its own ``second_before`` and ``second_over``;
    ``second_newer``: it was sent after the other one. ``kept``: it names the guest, and A awaits the reply to an
    earlier one.
    """

    wanted: bool = True
    confirmed: bool = True
    armed: bool = True
    armed_before: bool = False
    current: bool = True
    fenced: str = ""
    place: str = "A"
    conductor: bool = True
    waited: int = 0
    fast: bool = False
    doubt: bool = False
    decided: bool = False
    agent: str = ""
    agent_before: bool = False
    machine: bool = True
    link: bool = True
    daemon: str = "serving"
    arms: bool = True
    known: bool = True
    left: int = LEASE
    slow: bool = False
    missed: bool = False
    age: int = -1
    request: str = ""
    request_before: bool = False
    request_over: bool = False
    reply: str = ""
    second: str = ""
    second_before: bool = False
    second_over: bool = False
    second_newer: bool = False
    kept: bool = False
    guest: bool = True
    stopped: bool = False
    starting: bool = False
    domain: bool = True
    compared: bool = False
    late: bool = False
    disk_b: bool = False
    guest_b: bool = False
    faults: int = 2


@dataclass(frozen=True)
class Fencing:
    """A model of fencing.

    ``agent``: "" (none), "works", "lies" (its "off" may do nothing, its status is true) or "hangs". ``armed``: A fences
    itself. ``faults``: how many of them happen. ``policies``: the owner changes the policy as well. ``late``: a command
    to reboot the guest waits in the broker. ``ways``: A requests leases by a second connection, too.
    """

    rules: Rules = FENCING
    agent: str = ""
    armed: bool = True
    faults: int = 2
    policies: bool = False
    late: bool = False
    ways: bool = False
    only_twice: bool = False

    def initial(self) -> World:
        armed = self.armed
        left = LEASE if armed else 0
        return World(
            armed=armed, arms=armed, known=armed, confirmed=armed, left=left, faults=self.faults, late=self.late
        )

    def canonical(self, state: World) -> World:
        return state

    # --- properties

    def violation(self, state: World) -> str | None:
        if state.guest and state.guest_b:
            return "it runs twice"
        if self.only_twice:
            return None
        if state.guest and state.disk_b:
            return "its disk is opened twice"
        return None

    def unsettled(self, state: World) -> str | None:
        """Return what is missing: a protected guest runs, if its host can be fenced or is back."""
        if self.only_twice or not state.wanted:
            return None
        runs = state.guest if state.place == "A" else state.guest_b
        can_be_fenced = self.agent in ("works", "lies") or (state.confirmed and self._is_armed(state))
        serves = state.machine and state.daemon == "serving" and state.link and not state.fenced
        return "the protected guest is off" if not runs and (can_be_fenced or serves) else None

    def _is_armed(self, state: World) -> bool:
        return state.armed and (not state.armed_before or "armed in this start" not in self.rules)

    # --- steps

    def steps(self, state: World) -> Iterable[Step]:
        yield from self._faults(state)
        yield from self._time(state)
        yield from self._conductor(state)
        if state.machine:
            yield from self._host(state)
            yield from self._guard(state)
        if self.policies and state.place == "A":
            yield "the owner changes the policy", False, state._replace(wanted=not state.wanted)

    def _faults(self, state: World) -> Iterator[Step]:
        if not state.conductor:
            again = state._replace(conductor=True, waited=0, fast=False, doubt=False, agent="", agent_before=False)
            yield "another conductor continues", True, again
        if not state.machine:
            yield "A is switched on", False, state._replace(machine=True, daemon="dead")
        if state.machine and not state.link:
            yield "A's link is back", False, state._replace(link=True)
        if not state.faults:
            return
        fewer = state._replace(faults=state.faults - 1)
        if state.conductor:
            yield "the conductor dies", False, fewer._replace(conductor=False, decided=False)
        if not state.machine:
            return
        yield "A loses its power", False, _off(fewer)
        if state.guest:
            yield "A's guest crashes", False, fewer._replace(guest=False)
        if state.link:
            yield "A is cut off from the conductor", False, fewer._replace(link=False)
        if state.daemon == "serving":
            yield "A's daemon hangs", False, fewer._replace(daemon="hung")
            yield "A's daemon is killed", False, _dead(fewer)
            if self.armed:
                yield "A's daemon starts without fencing itself", False, _dead(fewer)._replace(arms=False)
        if "own clock" not in self.rules and state.conductor:
            yield "the database's clock jumps", False, fewer._replace(waited=WAIT)

    def _time(self, state: World) -> Iterator[Step]:
        """Let a tick pass, unless the lease has ended and something can still act at this very moment."""
        if (
            state.machine
            and state.left == 0
            and state.known
            and (state.guest or state.starting)
            and (state.daemon == "serving" or "guard" in self.rules)
        ):
            return
        wait = WAIT if "margin for clock rates" in self.rules else LEASE
        waited = min(state.waited + 1, wait) if state.conductor else 0
        age = -1 if state.age < 0 else min(state.age + 1, LEASE + 1)
        later = state._replace(waited=waited, age=age, left=max(state.left - 1, 0))
        changes = state.left > 0 or state.age >= 0 or waited != state.waited
        if changes:
            yield "a tick", True, later
            if not state.slow:
                yield (
                    "a tick that A's clock misses",
                    False,
                    later._replace(left=state.left, age=state.age, slow=True, missed=state.age >= 0),
                )
            if not state.fast and state.conductor:
                faster = later._replace(waited=min(later.waited + 1, wait), fast=True)
                yield "a tick that the conductor's clock counts twice", False, faster

    # --- the conductor

    def _conductor(self, state: World) -> Iterator[Step]:
        if state.request:
            yield from self._renew(state)
        if state.second:
            yield from self._renew_second(state)
        if state.conductor:
            yield from self._expire(state)
            yield from self._agent(state)
            yield from self._evacuate(state)

    def _renew(self, state: World) -> Iterator[Step]:
        """Deliver the request, at any time and even late, or lose it. An older one by the other way is too old then."""
        lost = state._replace(request="", request_before=False, request_over=False)
        newer = lost if state.second_newer else lost._replace(second="", second_before=False, second_over=False)
        yield "the request is lost", False, lost
        said = state.request == "known"
        if not state.conductor:
            return
        if state.request_over and "lost registration" in self.rules:
            return
        if state.request_before and "renewal of this start" in self.rules:
            return
        changed = self._recorded(newer, said)
        reply = "known" if state.wanted else "dropped"
        waits = state.age >= 0 and not state.request_before
        yield "renew_lease", True, changed._replace(reply=reply if waits else "")

    def _recorded(self, state: World, said: bool) -> World:
        """Return the state after the conductor has recorded a request. ``said``: it names the guest."""
        confirmed = said and state.wanted
        if said and "no confirmation of a dropped guest" not in self.rules:
            confirmed = True
        changed = state._replace(confirmed=confirmed, waited=0, fast=False)
        if "decision compares the lease" in self.rules:
            changed = changed._replace(doubt=False)
        if "off is newer than the host" in self.rules:
            changed = changed._replace(agent="", agent_before=False)
        return changed

    def _renew_second(self, state: World) -> Iterator[Step]:
        """Deliver the request of the second way, or lose it. An older one by the first way is too old then."""
        lost = state._replace(second="", second_before=False, second_over=False)
        yield "the second request is lost", False, lost
        is_over = state.second_over and "lost registration" in self.rules
        if not state.conductor or is_over or (state.second_before and "renewal of this start" in self.rules):
            return
        if state.second_newer:
            lost = lost._replace(request="", request_before=False, request_over=False)
        yield "renew_lease by the second way", True, self._recorded(lost, state.second == "known")

    def _expire(self, state: World) -> Iterator[Step]:
        """See the end of the wait in one step, and decide in another."""
        wait = WAIT if "margin for clock rates" in self.rules else LEASE
        armed = self._is_armed(state) or "only armed hosts" not in self.rules
        if state.fenced or state.place != "A" or not armed:
            return
        if state.waited >= wait and not state.doubt:
            yield "the conductor sees that the lease has passed", True, state._replace(doubt=True)
        if state.doubt:
            yield "expire: A's lease has ended", True, _decided(state, "lease")

    def _agent(self, state: World) -> Iterator[Step]:
        """Ask the fence agent for "off", then for the state of the power, then decide."""
        if not self.agent or self.agent == "hangs" or state.fenced == "off" or state.place != "A":
            return
        if state.agent == "" and not (state.link and state.daemon == "serving" and state.machine):
            sent = state._replace(agent="sent", agent_before=False)
            confirmed = "off" if "off is confirmed" not in self.rules else "sent"
            yield "the agent switches A off", True, _off(sent)._replace(agent=confirmed)
            if self.agent == "lies":
                yield "the agent says so, and does nothing", False, sent._replace(agent=confirmed)
        if state.agent == "sent":
            if state.machine:
                yield "the agent says: A is on", True, state._replace(agent="", agent_before=False)
            else:
                yield "the agent says: A is off", True, state._replace(agent="off")
        if state.agent == "off":
            if state.agent_before and "off is newer than the host" in self.rules:
                yield "A has started since", True, state._replace(agent="", agent_before=False)
            else:
                yield "A is off", True, _decided(state, "off")

    def _evacuate(self, state: World) -> Iterator[Step]:
        confirmed = state.confirmed or "only confirmed guests" not in self.rules or state.fenced == "off"
        found = state.decided or "evacuations come from the rows" in self.rules
        if state.place == "A" and state.fenced and state.wanted and confirmed and found:
            yield "evacuate is accepted", True, state._replace(place="moving")
        if state.place == "moving" and not state.disk_b:
            yield "B opens the disk", True, state._replace(disk_b=True)
        if state.place == "moving" and state.disk_b:
            yield "B runs the guest", True, state._replace(place="B", guest_b=True)

    # --- host A

    def _host(self, state: World) -> Iterator[Step]:
        if state.daemon == "dead":
            yield "A's daemon starts", True, state._replace(daemon="starting", age=-1, reply="")
        if state.daemon == "hung":
            yield "A's daemon continues", False, state._replace(daemon="serving")
        if state.daemon == "starting":
            yield from self._register(state)
        if state.daemon != "serving":
            return
        if not state.current and state.link and state.conductor and "lost registration" in self.rules:
            yield "A learns that it has to register again", True, state._replace(daemon="starting", age=-1, reply="")
        if state.arms:
            yield from self._ask(state)
        yield from self._start(state)
        if state.left == 0 and state.known and state.guest:
            yield "A stops its guest", True, state._replace(guest=False, stopped=True, compared=False)

    def _ask(self, state: World) -> Iterator[Step]:
        if state.age < 0 and state.link:
            asked = state._replace(request="known" if state.known else "nothing", age=0, missed=False)
            asked = asked._replace(request_before=False, request_over=not state.current)
            yield "A requests a lease", True, asked._replace(second_newer=False, kept=False)
        if self.ways and state.age >= 0 and state.link and not state.second and not state.kept:
            second = state._replace(second="known" if state.known else "nothing", kept=state.known)
            second = second._replace(second_before=False, second_over=not state.current, second_newer=True)
            yield "A requests a lease by another way", True, second
        if state.age >= 0 and state.reply and state.link:
            age = state.age if "lease counts from its request" in self.rules else 0
            left = max(LEASE - age, 0)
            kept = state.kept and "later requests keep their guests" in self.rules
            known = state.reply == "known" or kept
            after = state._replace(
                reply="", age=-1, left=max(left, state.left), known=known, slow=state.missed, missed=False
            )
            yield "A gets the reply", True, after
        if state.age >= 0:
            yield "A waits no longer for the reply", state.age > LEASE, state._replace(age=-1, reply="")

    def _start(self, state: World) -> Iterator[Step]:
        """Start the guest again. The daemon looks at its lease first, and the hypervisor starts the guest later."""
        leased = not state.known or state.left > 0 or "start needs a lease" not in self.rules
        belongs = state.place == "A" and not state.fenced and state.link and state.conductor
        wanted = not state.guest and not state.starting and "start again after fencing" in self.rules
        if wanted and belongs and leased:
            yield "A begins to start its guest", True, state._replace(starting=True)
        if state.starting:
            yield "A's guest starts", True, state._replace(starting=False, guest=True, stopped=False)
        if self.late:
            yield from self._late_command(state, leased)

    def _late_command(self, state: World, leased: bool) -> Iterator[Step]:
        if state.stopped and not state.compared and state.link and state.conductor and (state.left or not state.arms):
            stays = state.place == "A"
            compared = state._replace(compared=stays, stopped=stays, domain=stays)
            yield "A compares the guest that it has stopped", True, compared
        if state.late and state.link:
            over = state._replace(late=False)
            waits = state.stopped and not state.compared and "late commands wait for a comparison" in self.rules
            if state.domain and leased and not waits and not state.guest:
                over = over._replace(starting=True)
            yield "A gets the late command", True, over

    def _register(self, state: World) -> Iterator[Step]:
        """Register in the current epoch, and compare what is here with the database before serving."""
        if not (state.link and state.conductor) or state.fenced == "off":
            return
        serving = state._replace(daemon="serving", current=True, fenced="", starting=False, doubt=False)
        serving = serving._replace(request_before=bool(state.request), agent_before=bool(state.agent))
        serving = serving._replace(second_before=bool(state.second), kept=False)
        serving = serving._replace(armed_before=state.armed, compared=False)
        if state.place != "A":
            serving = serving._replace(guest=False, stopped=False, known=False, domain=False)
            if self.late and state.stopped:  # The guest is not reported before the lease is renewed.
                serving = serving._replace(stopped=True, domain=True)
        if not state.arms:
            older = serving._replace(known=False, left=0)
            yield "A registers with an older conductor", True, older
            yield (
                "A registers, and fences itself no more",
                True,
                older._replace(armed=False, armed_before=False, confirmed=False),
            )
            return
        armed = serving._replace(armed=True, armed_before=False, confirmed=state.known and state.place == "A")
        if "guard knows its guests first" not in self.rules:
            armed = armed._replace(confirmed=state.wanted and state.place == "A")
        yield "A registers", True, armed._replace(waited=0, fast=False)

    def _guard(self, state: World) -> Iterator[Step]:
        """End the daemon and its guests when the lease has ended. The guard needs no daemon."""
        if "guard" not in self.rules or state.left or not state.known or not (state.guest or state.starting):
            return
        after = state._replace(guest=False, stopped=True, compared=False)
        if "guard ends the daemon" in self.rules:
            after = _dead(after)
        yield "A's guard fires", True, after


def _off(state: World) -> World:
    return _dead(state)._replace(machine=False, guest=False, known=False, left=0, slow=False)


def _dead(state: World) -> World:
    return state._replace(daemon="dead", starting=False, age=-1, reply="")


def _decided(state: World, how: str) -> World:
    return state._replace(
        fenced=how,
        current=False,
        request_over=bool(state.request),
        second_over=bool(state.second),
        decided=True,
        doubt=False,
        agent="",
        agent_before=False,
    )
