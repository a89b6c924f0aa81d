"""Plan of steps from the things of a cloud to the things of a file. Pure: it reads and changes nothing.

A *thing* has a kind, a name in the file, and values. Relations are things, too: the attachment of a volume, the
interface of a router on a subnet. A thing goes, and comes back, with each thing that it ``needs``. It only follows
the things that it ``uses``.
"""

from __future__ import annotations

import enum
import graphlib
import hashlib
import heapq
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import msgspec

#: Kind and name of a thing.
Key: TypeAlias = tuple[str, str]

#: Kinds in the order in which things are made. For each, the values whose change makes a new thing of it.
KINDS: dict[str, frozenset[str]] = {
    "project": frozenset(),
    "flavor": frozenset({"id", "vcpus", "ram", "disk", "ephemeral", "swap", "public"}),
    "key pair": frozenset({"public_key"}),
    "server group": frozenset({"policy"}),
    "security group": frozenset(),
    "security group rule": frozenset(),
    "network": frozenset(),
    "subnet": frozenset({"cidr", "network"}),
    "router": frozenset(),
    "router gateway": frozenset({"pool"}),
    "router interface": frozenset(),
    "port": frozenset(),
    "server": frozenset({"server_group", "availability_zone", "failed"}),
    "interface": frozenset(),
    "volume": frozenset({"image", "failed"}),
    "attachment": frozenset({"server"}),
    "floating address": frozenset({"pool"}),
    "association": frozenset({"port"}),
    "backup policy": frozenset(),
}
_RANKS = {kind: rank for rank, kind in enumerate(KINDS)}
#: Kinds that come and go with a thing of another kind, in one request.
IMPLIED = {"interface": "server"}


class Thing(msgspec.Struct, frozen=True):
    """``values``: of JSON's types. ``needs``, ``uses``: keys of other things of the same file."""

    kind: str
    name: str
    values: dict[str, Any] = {}
    needs: frozenset[Key] = frozenset()
    uses: frozenset[Key] = frozenset()

    @property
    def key(self) -> Key:
        return self.kind, self.name

    @property
    def refs(self) -> frozenset[Key]:
        return self.needs | self.uses

    def is_related_to(self, other: Thing) -> bool:
        """Return whether both are the same thing, or one refers to the other."""
        return self.key == other.key or self.key in other.refs or other.key in self.refs


Things: TypeAlias = Mapping[Key, Thing]


class Op(enum.StrEnum):
    DELETE = "delete"
    CREATE = "create"
    UPDATE = "update"


class Step(msgspec.Struct, frozen=True):
    """Change of one thing. A replacement is a deletion and a creation.

    ``changed``: values that differ. ``cause``: the thing that forces the replacement by its own. ``implied``: another
    step does this one.
    """

    op: Op
    key: Key
    before: Thing | None = None
    after: Thing | None = None
    changed: tuple[str, ...] = ()
    is_replacement: bool = False
    cause: Key | None = None
    implied: bool = False


def steps(desired: Things, found: Things) -> list[Step]:
    """Return the steps in an order of dependencies, deletions as early as possible."""
    changed = {key: _changed(found[key], thing) for key, thing in desired.items() if key in found}
    causes = _replaced(desired, found, changed)
    made: dict[tuple[Op, Key], Step] = {}
    for key, thing in found.items():
        if key not in desired or key in causes:
            made[Op.DELETE, key] = Step(
                Op.DELETE, key, thing, desired.get(key), changed.get(key, ()), key in desired, causes.get(key)
            )
    for key, thing in desired.items():
        before = found.get(key)
        if before is None or key in causes:
            made[Op.CREATE, key] = Step(
                Op.CREATE, key, before, thing, changed.get(key, ()), key in causes, causes.get(key)
            )
        elif changed[key]:
            made[Op.UPDATE, key] = Step(Op.UPDATE, key, before, thing, changed[key])
    for op, key in list(made):
        if any(made.get((op, owner)) for owner in _owners(made[op, key])):
            made[op, key] = msgspec.structs.replace(made[op, key], implied=True)
    return [made[place] for place in _order(made, desired, found)]


def _changed(before: Thing, after: Thing) -> tuple[str, ...]:
    return tuple(sorted(name for name, value in after.values.items() if before.values.get(name) != value))


def _owners(step: Step) -> Iterator[Key]:
    """Yield the thing whose creation or deletion does this step, too."""
    thing = step.before if step.op == Op.DELETE else step.after
    assert thing is not None
    yield from (key for key in thing.needs if key[0] == IMPLIED.get(thing.kind))


def _replaced(desired: Things, found: Things, changed: Mapping[Key, tuple[str, ...]]) -> dict[Key, Key | None]:
    """Return the things that a replacement is needed for, each with the thing that causes it, or None."""
    causes: dict[Key, Key | None] = {
        key: None for key, names in changed.items() if _is_unchangeable(found[key], desired[key], names)
    }
    gone = {key for key in found if key not in desired} | causes.keys()
    waiting = list(gone)
    dependents: dict[Key, list[Key]] = {}
    for key, thing in found.items():
        for need in thing.needs:
            dependents.setdefault(need, []).append(key)
    while waiting:
        need = waiting.pop()
        for key in dependents.get(need, ()):
            if key not in gone:
                gone.add(key)
                causes[key] = need
                waiting.append(key)
    return causes


def _is_unchangeable(before: Thing, after: Thing, names: Iterable[str]) -> bool:
    if KINDS[before.kind].intersection(names):
        return True
    if before.kind == "volume" and "size" in names:
        return bool(after.values["size"] < before.values["size"])
    if before.kind == "server" and "flavor" in names:
        old, new = before.values["flavor"], after.values["flavor"]
        return bool(new["disk"] < old["disk"] or new["ephemeral"] < old["ephemeral"])
    return False


def _order(made: Mapping[tuple[Op, Key], Step], desired: Things, found: Things) -> list[tuple[Op, Key]]:
    sorter: graphlib.TopologicalSorter[tuple[Op, Key]] = graphlib.TopologicalSorter()

    def after(later: tuple[Op, Key], *earlier: tuple[Op, Key]) -> None:
        sorter.add(later, *(place for place in earlier if place in made))

    for op, key in made:
        before = found.get(key)
        if op == Op.CREATE:
            after((op, key), (Op.DELETE, key))
        else:
            sorter.add((op, key))
            assert before is not None
            kept = desired[key].refs if op == Op.UPDATE else frozenset()
            for other in before.refs - kept:
                if (Op.DELETE, other) in made:
                    sorter.add((Op.DELETE, other), (op, key))
        if op != Op.DELETE:
            for other in desired[key].refs:
                after((op, key), (Op.CREATE, other), (Op.UPDATE, other))
    return list(_sorted(sorter))


def _sorted(sorter: graphlib.TopologicalSorter[tuple[Op, Key]]) -> Iterator[tuple[Op, Key]]:
    """Yield places so that no other order of the same plan is possible: deletions first, then by kind and name."""
    sorter.prepare()
    ready: list[tuple[bool, int, str, tuple[Op, Key]]] = []
    while sorter.is_active():
        for op, (kind, name) in sorter.get_ready():
            rank = _RANKS[kind] * (-1 if op == Op.DELETE else 1)
            heapq.heappush(ready, (op != Op.DELETE, rank, name, (op, (kind, name))))
        place = heapq.heappop(ready)[3]
        yield place
        sorter.done(place)


def simulate(found: Things, planned: Iterable[Step]) -> dict[Key, Thing]:
    """Return the things of the cloud after the steps. Raises `ValueError` where a cloud would refuse one."""
    things = dict(found)
    for step in planned:
        if step.op == Op.DELETE:
            del things[step.key]
            if users := [thing.key for thing in things.values() if step.key in thing.needs]:
                raise ValueError(f"{step.key} is deleted while {users} need it")
            continue
        assert step.after is not None
        if (step.key in things) != (step.op == Op.UPDATE):
            raise ValueError(f"{step.op} of {step.key} at the wrong time")
        if missing := step.after.refs - things.keys():
            raise ValueError(f"{step.op} of {step.key} before {missing}")
        things[step.key] = step.after
    return things


class Place(msgspec.Struct, frozen=True):
    """A cloud's own things with their ids, and others that a file names. Ids of others: by kind and name.

    ``users``: things of others, by the own thing that they use, so that it cannot be deleted.
    """

    found: dict[Key, Thing]
    ids: dict[Key, str]
    others: dict[Key, list[str]]
    flavors: dict[str, dict[str, Any]]
    users: dict[Key, list[str]] = {}

    def obstacle(self, planned: Iterable[Step]) -> tuple[Key, str] | None:
        """Return a thing that the cloud would not delete, because others use it, and the sentence that says so."""
        for step in planned:
            if step.op == Op.DELETE and (users := self.users.get(step.key)):
                names = ", ".join(users[:3]) + (f" and {len(users) - 3} more" if len(users) > 3 else "")
                return step.key, f"{' '.join(step.key)} has to be deleted, but things of others use it: {names}."
        return None

    def fingerprint(self) -> str:
        """Return a digest of all of it: two places with the same one are equal."""
        rows: list[Any] = [
            [thing.key, self.ids.get(thing.key), thing.values, sorted(thing.needs), sorted(thing.uses)]
            for thing in self.found.values()
        ]
        rows += [[key, sorted(ids)] for key, ids in self.others.items()]
        rows += [[name, values] for name, values in self.flavors.items()]
        rows += [["users", key, sorted(users)] for key, users in self.users.items()]
        encoder = msgspec.json.Encoder(order="sorted")
        return hashlib.sha256(b"\n".join(sorted(encoder.encode(row) for row in rows))).hexdigest()
