"""State of the protocol's model: rows of the conductor, hosts, and every message ever sent.

All values are tuples of numbers and short strings, so that states can be hashed and compared, and their hosts swapped.
Host -1 and generation 0 mean none.
"""

from __future__ import annotations

from typing import Any, NamedTuple

NONE = -1
NAMES = "ABCDEFGH"
OFF, RUNNING = 1, 2


class Row(NamedTuple):
    """The instance. ``alloc``: host of its allocation. ``launched``: a build was reported and accepted."""

    vm: str = "building"
    task: str = "scheduling"
    host: int = NONE
    gen: int = 0
    alloc: int = NONE
    launched: bool = False
    deleted: bool = False


class Action(NamedTuple):
    """The open action, of which there is at most one. ``step``: "" once it is closed.

    ``owner``: number of the thread that has the lease.
    """

    id: int = 1
    kind: str = "create"
    step: str = "schedule"
    host: int = NONE
    gen: int = 0
    tried: tuple[int, ...] = ()
    owner: int = NONE


class Job(NamedTuple):
    """A thread of a compute daemon.

    ``at``: its next step. ``gen``: generation of its command. ``what``: outcome or kind.
    """

    at: str = ""
    gen: int = 0
    id: int = 0
    what: str = ""


IDLE = Job()


class Host(NamedTuple):
    """A compute host.

    Durable: the fencing token store (``fenced`` to ``result``) and the domain. Everything else ends with its daemon.
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
    """A message. It stays in flight: it may be delivered at any later time, any number of times, or never."""

    kind: str
    host: int
    gen: int
    id: int = 0
    what: str = ""


class State(NamedTuple):
    """A state of the model.

    ``threads``: (number, tried) of conductor threads that schedule. ``requested``: the user's last request, or
    "nothing" after it has failed. ``crashes`` of daemons and ``losses`` of whole hosts: how many are left.
    ``attempts``: hosts that a build tries.
    """

    row: Row = Row()
    action: Action = Action()
    threads: tuple[tuple[int, tuple[int, ...]], ...] = ()
    used: tuple[int, ...] = (0, 0)
    hosts: tuple[Host, ...] = (Host(), Host())
    net: tuple[Message, ...] = ()
    requested: str = "create"
    crashes: int = 1
    losses: int = 0
    attempts: int = 2


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
    """Return the state with the two hosts' names exchanged."""
    row, action = state.row, state.action
    return state._replace(
        row=row._replace(host=_OTHER[row.host], alloc=_OTHER[row.alloc]),
        action=action._replace(host=_OTHER[action.host], tried=_swap_all(action.tried)),
        threads=tuple((number, _swap_all(tried)) for number, tried in state.threads),
        used=state.used[::-1],
        hosts=state.hosts[::-1],
        net=tuple(sorted(message._replace(host=_OTHER[message.host]) for message in state.net)),
    )


def _swap_all(hosts: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(_OTHER[host] for host in hosts))
