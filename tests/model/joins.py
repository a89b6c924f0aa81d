"""Model of keys that are replaced: a host renews its key, and a thief has what an old backup of the host has.

The thief has the host's first key, a token, and a key of his own. He knows the key of no other machine. Taking the host
over with its present key is not modelled: whoever has that is the host. So the thief begins when the first key was
replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tests.model.checker import Step

Rules = frozenset[str]

JOINS: Rules = frozenset(
    {
        "replaced key replaces none",
        "replaced key ends",
        "next key signs, too",
        "token serves one key",
        "token serves once",
        "name is joined once",
    }
)

#: Keys by number: the host's first one and its successors. The thief's own.
FIRST, LAST, THIEF = 0, 2, 9
NONE = -1

PENDING, JOINED, GONE = "pending", "joined", ""


class World(NamedTuple):
    """A state.

    The row: ``state``, ``key``, ``previous``; ``recent``: the previous key is still trusted. ``trusted``: the key that
    the registrar has admitted. ``used``: the stolen token was used. ``misuse``: what the cloud has accepted wrongly.

    The host: ``own`` key, and ``following``, its successor.
    """

    state: str = JOINED
    key: int = FIRST
    previous: int = NONE
    recent: bool = False
    trusted: int = FIRST
    used: bool = True
    misuse: str = ""
    own: int = FIRST
    following: int = NONE
    removals: int = 0


@dataclass(frozen=True)
class Joins:
    """A model of a host's keys. ``used``: the stolen token is the host's. ``removals``: how often a host is removed."""

    rules: Rules = JOINS
    used: bool = True
    removals: int = 0

    def initial(self) -> World:
        return World(used=self.used, removals=self.removals)

    def canonical(self, state: World) -> World:
        return state

    def violation(self, state: World) -> str | None:
        if THIEF in (state.key, state.trusted):
            return "the thief's key is the host's"
        return state.misuse or None

    def unsettled(self, state: World) -> str | None:
        """Return what is missing: a rotation that was begun ends, and the host has the key that the cloud knows."""
        if state.state == GONE:
            return None
        settled = state.state == JOINED and state.own == state.key == state.trusted and state.following == NONE
        return None if settled else "the host and the cloud have different keys"

    def steps(self, state: World) -> Iterable[Step]:
        yield from self._host(state)
        yield from self._cloud(state)
        if state.key != FIRST or state.state == GONE:
            yield from self._thief(state)

    def _host(self, state: World) -> Iterator[Step]:
        if state.state == GONE:
            return
        if state.following == NONE and state.own < LAST:
            yield "the host makes the next key", False, state._replace(following=state.own + 1)
        if state.following == NONE:
            return
        signers = [state.own]
        if "next key signs, too" in self.rules:
            signers.append(state.following)
        for signer in signers:
            after = self._renewed(state, signer, state.following)
            if after is not None and after != state:
                yield f"_renew: the host's key {signer} signs key {state.following}", True, after
            known = after is not None and after.state == JOINED and after.key == state.following
            if known and state.trusted == state.following:
                yield "the host uses the next key", True, state._replace(own=state.following, following=NONE)

    def _cloud(self, state: World) -> Iterator[Step]:
        if state.state == PENDING:
            admitted = state._replace(state=JOINED, trusted=state.key, recent=state.previous != NONE)
            yield "finish: the registrar admits the key", True, admitted
        if state.recent:
            yield "the overlap ends", False, state._replace(recent=False)
        if state.state != GONE and state.removals:
            gone = World(GONE, NONE, NONE, trusted=NONE, own=NONE, used=state.used, removals=state.removals - 1)
            yield "remove: an operator removes the host", False, gone

    def _renewed(self, state: World, signer: int, key: int) -> World | None:
        """Return the state after a request to replace the key, or None if it is refused."""
        if state.state == GONE or signer not in (state.key, state.previous):
            return None
        if signer != state.key:
            is_over = state.state == JOINED and not state.recent
            if is_over and "replaced key ends" in self.rules:
                return None
            if key != state.key and "replaced key replaces none" in self.rules:
                return None
            if is_over:
                state = state._replace(misuse="a key is believed that was replaced long ago")
        if key == state.key:
            return state
        if state.state != JOINED:
            return None
        return state._replace(state=PENDING, key=key, previous=state.key)

    def _thief(self, state: World) -> Iterator[Step]:
        """Sign with each stolen key. The new key is the thief's, since a request is signed by the new key as well."""
        for signer in (FIRST, THIEF):
            for key in (FIRST, THIEF):
                after = self._renewed(state, signer, key)
                if after is not None:
                    yield f"_renew: the thief's key {signer} signs key {key}", False, after
        if state.state == GONE:
            if not state.used or "token serves once" not in self.rules:
                taken = state._replace(state=PENDING, key=THIEF, used=True)
                yield "join: the thief uses the token", False, taken
            return
        if state.used and "token serves one key" not in self.rules:
            yield "join: the thief repeats the host's token", False, state._replace(state=PENDING, key=THIEF)
        if not state.used and "name is joined once" not in self.rules:
            yield "join: the thief uses another token", False, state._replace(state=PENDING, key=THIEF, used=True)
