"""State of the database's nodes, as the controllers report it.

Each controller reports the state of its node at a port of its own. HAProxy uses a node whose report begins with ``up``.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from concurrent import futures
from typing import NamedTuple

from nova_lite.objects import Controller
from nova_lite.rpc.controllers import CHECK_PORT

#: States of a node: it is used; is in the majority and not ready; runs without a majority; waits for others in its
#: start; does not run; or its machine does not report.
USED, JOINS, WAITS, STARTS, STOPPED, SILENT = "used", "joins", "waits", "starts", "stopped", "silent"
#: Seconds for a report, and its greatest size.
_SECONDS, _BYTES = 5.0, 4096
_NO_UUID = "00000000-0000-0000-0000-000000000000"


class Node(NamedTuple):
    """A node by its controller. ``uuid`` and ``seqno``: its last commit, as far as known.

    ``reason``: why its machine does not report. ``is_empty``: it has no data of a cluster.
    """

    host: str
    state: str
    uuid: str = ""
    seqno: int = -1
    reason: str = ""
    is_empty: bool = False

    @property
    def is_in_majority(self) -> bool:
        return self.state in (USED, JOINS)


def look_at_all(listed: Sequence[Controller]) -> list[Node]:
    """Return the node of each controller. Machines that do not answer cost the time of one."""
    with futures.ThreadPoolExecutor(max(1, len(listed))) as pool:
        return list(pool.map(look, listed))


def look(member: Controller) -> Node:
    """Return the node of a controller."""
    try:
        return parse(member.host, _read(member.address))
    except OSError as error:
        return Node(member.host, SILENT, reason=error.strerror or str(error))
    except ValueError as error:
        return Node(member.host, SILENT, reason=str(error))


def _read(address: str) -> str:
    deadline, found = time.monotonic() + _SECONDS, b""
    with socket.create_connection((address, CHECK_PORT), _SECONDS) as sock:
        while len(found) < _BYTES and (piece := sock.recv(_BYTES)):
            found += piece
            sock.settimeout(max(0.1, deadline - time.monotonic()))
    return found.decode("ascii", "replace")


def parse(host: str, report: str) -> Node:
    """Return the node that a report describes. Raises `ValueError` for what is none."""
    lines = report.split("\n")
    facts = dict(line.split(maxsplit=1) for line in lines[1:] if len(line.split()) > 1)
    if lines[0] == "up":
        return Node(host, USED)
    if lines[0] != "down":
        raise ValueError("its report is none")
    if status := facts.get("wsrep_cluster_status"):
        state = JOINS if status == "Primary" else WAITS
        return _placed(host, state, facts.get("wsrep_cluster_state_uuid", ""), facts.get("wsrep_last_committed", ""))
    if start := facts.get("start"):
        uuid, _, seqno = start.rpartition(":")
        return _placed(host, STARTS, uuid, seqno)
    return _placed(host, STARTS if "runs" in facts else STOPPED, facts.get("uuid", ""), facts.get("seqno", ""))


def _placed(host: str, state: str, uuid: str, seqno: str) -> Node:
    number = int(seqno) if seqno.isdecimal() else -1
    is_empty = uuid == _NO_UUID and state == STARTS
    return Node(host, state, "" if uuid == _NO_UUID else uuid, number, is_empty=is_empty)
