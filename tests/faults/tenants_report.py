"""Judgement of answers that two projects gave while a host was lost (`tests.faults.tenants`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

#: Ways of a project, by the words of the table.
STAYED = "floating address of the guest that stayed"
LOST = "floating address of the guest that was lost"
BALANCER = "floating address of the load balancer"
INSIDE = "load balancer, from the guest that stayed"
GUEST = "guest that was lost, from the one that stayed"
WAYS = (STAYED, LOST, BALANCER, INSIDE, GUEST)

HEAD = (
    "| Project | Way | Connections | Failed | Longest gap | Answers again after | Of the other project |\n"
    "|---|---|---|---|---|---|---|"
)


@dataclasses.dataclass(frozen=True)
class Answer:
    """End of a connection: ``text`` is the name of the guest that answered, or anything else after a failure."""

    project: str
    way: str
    at: float
    text: str


@dataclasses.dataclass
class Row:
    """Connections on a way. ``gap``: longest time without a good answer; ``back``: seconds until the end of the last
    failure; ``foreign``: answers of the other project. Without a good answer at the end, ``back`` is None.
    """

    connections: int = 0
    failed: int = 0
    gap: float = 0.0
    back: float | None = 0.0
    foreign: int = 0


def row_of(answers: Iterable[Answer], guests: dict[str, str], lost_at: float, until: float) -> Row:
    """Return the row of one way, between the loss and ``until``. ``guests``: projects by the names of their guests."""
    row, last = Row(), lost_at
    for item in sorted(answers, key=lambda item: item.at):
        project = guests.get(item.text)
        if project == item.project and item.at < lost_at:
            last = item.at
        row.foreign += project not in (None, item.project)
        if not lost_at <= item.at <= until:
            continue
        row.connections += 1
        if project == item.project:
            row.gap, last = max(row.gap, item.at - last), item.at
            row.back = item.at - lost_at if row.back is None else row.back
        else:
            row.failed, row.back = row.failed + 1, None
    if not row.connections:
        row.back = None
    row.gap = max(row.gap, until - last)
    return row


def line(project: str, way: str, row: Row) -> str:
    back = "never" if row.back is None else f"{row.back:.0f} s" if row.failed else "-"
    return f"| {project} | {way} | {row.connections} | {row.failed} | {row.gap:.1f} s | {back} | {row.foreign} |"


def problems(rows: dict[tuple[str, str], Row], limit: float) -> list[str]:
    """Return what is wrong. ``limit``: seconds after which each way has to answer again."""
    found = []
    for (project, way), row in rows.items():
        if row.foreign:
            found.append(f"{project}, {way}: {row.foreign} answers are of the other project")
        if row.back is None or row.back > limit:
            found.append(f"{project}, {way}: does not answer within {limit:g} s")
    return found


def conflicts(owners: Sequence[tuple[float, str, str]], lost: str) -> list[str]:
    """Return the addresses for which the lost host answers after another one. ``owners``: seconds, addresses, MACs."""
    moved: set[str] = set()
    again: dict[str, list[float]] = {}
    for seconds, address, mac in owners:
        if mac != lost:
            moved.add(address)
        elif address in moved:
            again.setdefault(address, []).append(seconds)
    return [
        f"the lost host answers for {address}, which has moved, {min(times):.1f} to {max(times):.1f} s after the loss"
        for address, times in sorted(again.items())
    ]
