"""No process but the conductor opens the database."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.functional import cloud


@pytest.fixture
def without_sql(tmp_path: Path) -> Iterator[cloud.Cloud]:
    """Provide a cloud in which importing SQLAlchemy or alembic kills every daemon but the conductor."""
    for name in ("sqlalchemy", "alembic"):
        package = tmp_path / "no-sql" / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(f"raise SystemExit('this daemon may not import {name}')\n")
    path = os.pathsep.join(filter(None, [str(tmp_path / "no-sql"), os.environ.get("PYTHONPATH")]))
    with cloud.running(tmp_path, environment_but_conductor={"PYTHONPATH": path}) as running:
        yield running


def test_a_server_lives_and_dies_without_sql_outside_the_conductor(without_sql: cloud.Cloud) -> None:
    (server_id,) = without_sql.create()
    without_sql.wait_active([server_id])
    without_sql.action(server_id, {"os-stop": None})
    without_sql.wait_settled([server_id])
    assert opens_database(without_sql) == {"conductor"}
    without_sql.delete_all()


def opens_database(running: cloud.Cloud) -> set[str]:
    """Daemons that have the SQLite file open, as the kernel knows."""
    found = set()
    for name, process in running.processes.items():
        for descriptor in Path(f"/proc/{process.pid}/fd").iterdir():
            try:
                target = os.readlink(descriptor)
            except FileNotFoundError:
                continue
            if target.startswith(f"{running.path}/nova-lite.sqlite"):
                found.add(name)
    return found
