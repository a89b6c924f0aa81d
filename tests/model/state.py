"""What the model of the protocol knows: rows of the conductor, two hosts, and every message ever sent.

All values are tuples of numbers and short strings, so that states can be hashed, compared and have their hosts swapped.
Host -1 and generation 0 mean none.
"""

from __future__ import annotations

from typing import Any, NamedTuple

NONE = -1
OFF, RUNNING = 1, 2


class Row(NamedTuple):
    """The instance. ``alloc``: host of its allocation; ``launched``: a build was reported and believed."""

    vm: str = "building"
    task: str = "scheduling"
    host: int = NONE
    gen: int = 0
    alloc: int = NONE
    launched: bool = False
    deleted: bool = False


class Action(NamedTuple):
    """The open action; step "" once it is closed (supersede leaves at most one open). ``owner``: token of the lease."""

    id: int = 1
    kind: str = "create"
    step: str = "schedule"
    host: int = NONE
    gen: int = 0
    tried: tuple[int, ...] = ()
    owner: int = NONE


class Job(NamedTuple):
    """A thread of a compute daemon. ``at``: the step it does next; ``gen``: of its order; ``what``: outcome or kind."""

    at: str = ""
    gen: int = 0
    id: int = 0
    what: str = ""


IDLE = Job()


class Host(NamedTuple):
    """One compute host. Durable: the fence file (``fenced`` to ``result``) and the domain; the rest ends with its
    daemon.

    ``daemon``: "down", "starting" (before its first domain reconciliation), "serving", or "lost" with the whole host.
    ``result``: outcome of action ``last``, "" while it is not finished. ``touched``: the instance had a job since the
    snapshot of ``scan``.
    """

    daemon: str = "serving"
    fenced: int = 0
    built: int = 0
    last: int = 0
    result: str = ""
    domain: int = 0
    power: int = 0
    build: Job = IDLE
    acts: tuple[Job, ...] = ()
    fence: Job = IDLE
    scan: Job = IDLE
    touched: bool = False


class Message(NamedTuple):
    """In flight for good: it may be delivered at any later time, any number of times, or never."""

    kind: str
    host: int
    gen: int
    id: int = 0
    what: str = ""


class State(NamedTuple):
    """``drives``: (token, tried) of conductor threads that schedule. ``asked``: what the user asked for last.

    ``crashes`` of daemons and ``losses`` of whole hosts: how many are left."""

    row: Row = Row()
    action: Action = Action()
    drives: tuple[tuple[int, tuple[int, ...]], ...] = ()
    used: tuple[int, int] = (0, 0)
    hosts: tuple[Host, Host] = (Host(), Host())
    net: tuple[Message, ...] = ()
    asked: str = "create"
    crashes: int = 1
    losses: int = 0


def send(state: State, message: Message) -> State:
    if message in state.net:
        return state
    return state._replace(net=tuple(sorted((*state.net, message))))


def at_host(state: State, index: int, **changes: Any) -> State:
    hosts = list(state.hosts)
    hosts[index] = hosts[index]._replace(**changes)
    return state._replace(hosts=tuple(hosts))


_OTHER = {NONE: NONE, 0: 1, 1: 0}


def swapped(state: State) -> State:
    """The same state with the two hosts' names exchanged."""
    row, action = state.row, state.action
    return state._replace(
        row=row._replace(host=_OTHER[row.host], alloc=_OTHER[row.alloc]),
        action=action._replace(host=_OTHER[action.host], tried=_swap_all(action.tried)),
        drives=tuple((token, _swap_all(tried)) for token, tried in state.drives),
        used=state.used[::-1],
        hosts=state.hosts[::-1],
        net=tuple(sorted(message._replace(host=_OTHER[message.host]) for message in state.net)),
    )


def _swap_all(hosts: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(_OTHER[host] for host in hosts))
