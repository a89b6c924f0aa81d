"""Model of replication to a second site: planned failover and failback, unplanned failover, and a site that returns.

One server has a row at each of two sites. A journal that both sites reach has numbered generations; the newest one
names the site that may run the server, and the data that it begins with. A site loses its power or the journal and
returns. The operator says that a site is off only if it is. A site's database may be restored from a backup that was
made at any moment, once its conductor has noted what the site has built.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tests.model.checker import Step

Rules = frozenset[str]

SITES: Rules = frozenset(
    {
        "exclusive generations",
        "off before the last increment",
        "host asks before it starts",
        "answer reads the site's role",
        "answer reads the journal",
        "answer compares the generation",
        "word that the site is off",
        "increments belong to a generation",
        "what a site has built is noted",
    }
)

#: Most writes of guests, and most generations.
WRITES, GENERATIONS = 2, 4


class Site(NamedTuple):
    """A site.

    Its row: ``role`` (primary, leaving, replica, arriving), ``generation``, ``base`` (data that it arrives with),
    ``backup`` (the last increment before it leaves, -1: none). ``writing``: the generation that a slow conductor is
    about to hand over with. ``command``: a command that waits for the host, even while the power is off.
    ``starting``: the host has asked, and is about to do it. ``disk``: the number of its newest write, and
    ``disk_of``: the generation that the disk belongs to. ``saved``: its row in a backup of the database.
    """

    role: str = "replica"
    generation: int = 1
    base: int = 0
    backup: int = -1
    writing: int = 0
    power: bool = True
    link: bool = True
    command: str = ""
    starting: str = ""
    guest: bool = False
    disk: int = 0
    disk_of: int = 0
    saved: tuple[str, int, int] | None = None


class Sites(NamedTuple):
    """A state.

    The newest generation of the journal: ``generation``, ``owner``, ``kind`` (planned, unplanned, or kept: its owner
    did not leave after all), ``base``. ``published``: the newest increment of this generation, -1: none.
    ``mixed``: a generation has begun with an increment of another line. ``built``: its owner runs from it. ``undone``:
    a rebuild has replaced a disk of its own generation.
    """

    sites: tuple[Site, Site] = (Site(role="primary", guest=True, disk_of=1), Site())
    generation: int = 1
    owner: int = 0
    kind: str = "kept"
    base: int = 0
    published: int = -1
    published_of: int = 1
    mixed: bool = False
    built: bool = True
    undone: bool = False
    writes: int = 0
    requests: int = 2
    faults: int = 2
    restores: int = 0


@dataclass(frozen=True)
class Replication:
    """A model of replication.

    ``requests``: of operators. ``faults``: losses of power or of the journal. ``restores``: of databases.
    """

    rules: Rules = SITES
    requests: int = 2
    faults: int = 2
    restores: int = 0
    only_twice: bool = False

    def initial(self) -> Sites:
        return Sites(requests=self.requests, faults=self.faults, restores=self.restores)

    def canonical(self, state: Sites) -> Sites:
        return state

    # --- properties

    def violation(self, state: Sites) -> str | None:
        one, other = state.sites
        if one.guest and other.guest:
            return "it runs twice"
        if self.only_twice:
            return None
        if state.mixed:
            return "a generation begins with an increment of another line"
        if state.undone:
            return "a rebuild has lost what the server wrote at its site"
        for site, number in ((one, 0), (other, 1)):
            if site.guest and site.disk_of != state.generation:
                return "it runs from a disk of an older generation"
            left = state.sites[1 - number]
            if site.guest and state.owner == number and state.kind == "planned" and left.disk > state.base:
                return "a planned failover has lost data"
        return None

    def unsettled(self, state: Sites) -> str | None:
        owner = state.sites[state.owner]
        if not self.only_twice and owner.power and owner.link and not owner.guest:
            return "the server is off at the site that may run it"
        return None

    # --- steps

    def steps(self, state: Sites) -> Iterable[Step]:
        for number, name in enumerate("AB"):
            for label, progress, after in self._of(state, number):
                yield label.format(name), progress, after

    def _of(self, state: Sites, number: int) -> Iterator[Step]:
        site = state.sites[number]
        yield from self._faults(state, number)
        yield from self._restores(state, number)
        if site.power:
            yield from self._host(state, number)
            yield from self._operator(state, number)
            yield from self._leave(state, number)
            if site.link:
                yield from self._follow(state, number)

    def _faults(self, state: Sites, number: int) -> Iterator[Step]:
        site = state.sites[number]
        if not site.power:
            yield "{} returns", False, _with(state, number, power=True)
        if not site.link:
            yield "{} reaches the journal again", False, _with(state, number, link=True)
        if not state.faults:
            return
        fewer = state._replace(faults=state.faults - 1)
        if site.power:
            yield "{} loses its power", False, _with(fewer, number, power=False, guest=False, starting="", writing=0)
        if site.link:
            yield "{} does not reach the journal", False, _with(fewer, number, link=False)

    def _restores(self, state: Sites, number: int) -> Iterator[Step]:
        site = state.sites[number]
        if not state.restores:
            return
        if site.saved is None:
            row = (site.role, site.generation, site.base)
            yield "{}'s database is backed up", False, _with(state, number, saved=row)
        elif state.built or state.owner != number:
            role, generation, base = site.saved
            row_of = {"role": role, "generation": generation, "base": base, "backup": -1, "writing": 0, "saved": None}
            yield "{}'s database is restored", False, _with(state._replace(restores=0), number, **row_of)

    # --- guest and host

    def _host(self, state: Sites, number: int) -> Iterator[Step]:
        site = state.sites[number]
        if site.guest and state.writes < WRITES:
            wrote = state._replace(writes=state.writes + 1)
            yield "{}'s guest writes", False, _with(wrote, number, disk=state.writes + 1)
        if site.role == "primary" and not (site.guest or site.command or site.starting):
            yield "{} accepts a start", True, _with(state, number, command="start")
        if site.role == "arriving" and not (site.command or site.starting):
            yield from self._arrive(state, number)
        if site.command:
            yield from self._ask(state, number)
        if site.starting == "start":
            yield "{}'s guest starts", True, _with(state, number, guest=True, starting="")
        if site.starting == "rebuild":
            disk = {"disk": site.base, "disk_of": site.generation}
            undone = state.undone or (site.disk_of == site.generation and site.disk > site.base)
            after = _with(state, number, guest=True, starting="", role="primary", **disk)
            yield "{} builds the guest", True, after._replace(undone=undone)

    def _arrive(self, state: Sites, number: int) -> Iterator[Step]:
        site = state.sites[number]
        if not site.link:
            return
        if self._is_here(state, number) and site.generation == state.generation:
            yield "{} keeps the disk that it has built", True, _with(state, number, role="primary")
        else:
            yield "{} accepts a rebuild from the increments", True, _with(state, number, command="rebuild")

    def _is_here(self, state: Sites, number: int) -> bool:
        """Check whether the journal says that the site has the disk of the newest generation."""
        is_noted = state.built and "what a site has built is noted" in self.rules
        return state.owner == number and (state.kind == "kept" or is_noted)

    def _ask(self, state: Sites, number: int) -> Iterator[Step]:
        """Ask whether the guest may start here. The reply is lost with the power of the host."""
        site = state.sites[number]
        begun = _with(state, number, command="", starting=site.command)
        if "host asks before it starts" not in self.rules:
            yield "{}'s host obeys", True, begun
            return
        if "answer reads the journal" in self.rules and not site.link:
            return
        may = site.role == ("primary" if site.command == "start" else "arriving")
        may = may or "answer reads the site's role" not in self.rules
        if "answer reads the journal" in self.rules:
            may = may and state.owner == number
            if "answer compares the generation" in self.rules:
                may = may and site.generation == state.generation
        yield ("{}'s host may", True, begun) if may else ("{}'s host may not", True, _with(state, number, command=""))

    # --- operator

    def _operator(self, state: Sites, number: int) -> Iterator[Step]:
        site, other = state.sites[number], state.sites[1 - number]
        if not state.requests or state.generation == GENERATIONS:
            return
        fewer = state._replace(requests=state.requests - 1)
        if site.role == "primary":
            yield "planned failover from {}", False, _with(fewer, number, role="leaving")
        if site.role == "leaving" and site.link:
            kept = self._next(fewer, site.generation + 1, number, "kept", _newest(state))
            if kept is not None:
                kept = _with(kept, number, disk_of=kept.generation)
                yield "{} takes its planned failover back", False, kept
        may = not other.power or "word that the site is off" not in self.rules
        if state.owner != number and site.link and may:
            taken = self._next(fewer, state.generation + 1, number, "unplanned", _newest(state))
            assert taken is not None
            mixed = state.published >= 0 and state.published_of != state.generation
            yield "unplanned failover to {}", False, taken._replace(mixed=mixed)

    def _next(self, state: Sites, generation: int, owner: int, kind: str, base: int) -> Sites | None:
        """Write a generation; None if there is one of this number."""
        if generation <= state.generation and "exclusive generations" in self.rules:
            return None
        return state._replace(
            generation=generation,
            owner=owner,
            kind=kind,
            base=base,
            published=-1,
            published_of=generation,
            built=kind == "kept",
        )

    # --- the conductor

    def _leave(self, state: Sites, number: int) -> Iterator[Step]:
        site = state.sites[number]
        if site.role == "leaving":
            if site.guest and not site.starting:
                yield "{} stops its guest", True, _with(state, number, guest=False)
            is_off = not (site.guest or site.starting) or "off before the last increment" not in self.rules
            if is_off and site.backup < 0:
                yield "{} makes the last increment", True, _with(state, number, backup=site.disk)
            if site.backup >= 0 and not site.guest and not site.writing and state.generation < GENERATIONS:
                decided = _with(state, number, writing=site.generation + 1)
                yield "a conductor of {} is about to hand over", True, decided
        if site.writing and site.link:
            free = _with(state, number, writing=0)
            after = self._next(free, site.writing, 1 - number, "planned", site.backup)
            yield "a conductor of {} hands over", True, free if after is None else after

    def _follow(self, state: Sites, number: int) -> Iterator[Step]:
        site = state.sites[number]
        if site.role == "primary":
            is_own = site.generation == state.generation
            if is_own or "increments belong to a generation" not in self.rules:
                of = {"published": site.disk, "published_of": site.generation}
                yield "{} publishes an increment", False, state._replace(**of)
            if is_own and not state.built:
                yield "{} notes that it runs from its generation", True, state._replace(built=True)
        if state.generation == site.generation:
            return
        seen = {"generation": state.generation, "backup": -1}
        if state.owner != number:
            yield "{} learns that it is the replica", True, _with(state, number, role="replica", guest=False, **seen)
        elif self._is_here(state, number):
            yield "{} stays the primary", True, _with(state, number, role="primary", **seen)
        else:
            yield "{} learns that it takes over", True, _with(state, number, role="arriving", base=state.base, **seen)


def _newest(state: Sites) -> int:
    """Return the data of the newest increment: the published one, or what the generation has begun with."""
    return state.published if state.published >= 0 else state.base


def _with(state: Sites, number: int, **changes: object) -> Sites:
    changed = list(state.sites)
    changed[number] = changed[number]._replace(**changes)  # type: ignore[arg-type]
    return state._replace(sites=(changed[0], changed[1]))
