"""Usage of instances in a period, deleted ones included."""

from __future__ import annotations

import datetime

import pytest

from nova_lite.base import exceptions
from nova_lite.db.core.engine import Database
from nova_lite.db.servers import usage
from tests.support import make

START = datetime.datetime(2026, 11, 1)
END = datetime.datetime(2026, 11, 2)
HOUR = datetime.timedelta(hours=1)


@pytest.mark.parametrize(
    ("launched", "terminated", "hours"),
    [
        (START - HOUR, None, 24),
        (START + HOUR, None, 23),
        (START - HOUR, START + 2 * HOUR, 2),
        (START + HOUR, START + 2.5 * HOUR, 1.5),
        (START + HOUR, END + HOUR, 23),
        (START - 2 * HOUR, START - HOUR, None),
        (END + HOUR, None, None),
        (None, None, None),
    ],
)
def test_hours(
    db: Database, launched: datetime.datetime | None, terminated: datetime.datetime | None, hours: float | None
) -> None:
    gone = terminated is not None
    db.write(make.instance, launched_at=launched, terminated_at=terminated, deleted=gone)
    found = db.read(usage.list_, make.ADMIN, None, START, END)
    assert [item.hours for item in found] == ([] if hours is None else [hours])


def test_projects_and_pages(db: Database) -> None:
    uuids = {
        name: [db.write(make.instance, project_id=name, launched_at=START) for _ in range(2)] for name in ("p1", "p2")
    }
    every = sorted(uuids["p1"]) + sorted(uuids["p2"])

    def listed(project: str | None, limit: int | None = None, marker: str | None = None) -> list[str]:
        found = db.read(usage.list_, make.ADMIN, project, START, END, limit, marker)
        return [item.uuid for item in found]

    assert listed(None) == every
    assert listed("p2") == every[2:]
    assert (listed(None, 3), listed(None, 3, every[2])) == (every[:3], every[3:])
    for project, marker in ((None, "nonsense"), ("p1", every[3])):
        with pytest.raises(exceptions.MarkerNotFound):
            listed(project, 1, marker)
    assert {item.project_id for item in db.read(usage.list_, make.context("p1"), None, START, END)} == {"p1"}


def test_shape(db: Database) -> None:
    db.write(make.instance, launched_at=START, terminated_at=START + HOUR, deleted=True, vm_state="deleted")
    (found,) = db.read(usage.list_, make.ADMIN, "p1", START, END)
    assert (found.flavor, found.vcpus, found.memory_mb, found.local_gb, found.uptime) == ("m1", 1, 64, 1, 3600)
    assert found.ended_at == START + HOUR
