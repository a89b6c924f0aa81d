"""A cloud of the last commit before version 1.0 is carried over (docs/howto/upgrade.md): hosts and guests stay."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.functional import older_code
from tests.functional.conftest import database_url
from tests.functional.rolling_cloud import RollingCloud
from tests.support.code_versions import LAST_BEFORE_1_0
from tests.support.waiting import wait_for

SERVERS = 3


@pytest.fixture(params=["sqlite", "mariadb", "postgresql"])
def urls(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str | None, str]]:
    """Provide the URLs of the old database (None: SQLite in the cloud's directory) and of an empty one."""
    with database_url(request.param) as old, database_url(request.param) as new:
        yield old, new or f"sqlite:///{tmp_path}/new.sqlite"


@pytest.fixture
def cloud(urls: tuple[str | None, str], tmp_path: Path) -> Iterator[RollingCloud]:
    tree = tmp_path / "old"
    tree.mkdir()
    older_code.extract(LAST_BEFORE_1_0, tree)
    made = RollingCloud(tmp_path, tree, urls[0])
    try:
        made.make()
        made.start_all()
        yield made
    finally:
        made.destroy()


def manage(cloud: RollingCloud, *arguments: str) -> None:
    done = subprocess.run(cloud.manage_command(*arguments), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(600)
def test_cloud_before_1_0_is_carried_over_with_its_servers(cloud: RollingCloud, urls: tuple[str | None, str]) -> None:
    kept = cloud.create("kept", SERVERS)
    cloud.wait_active(kept)
    guests = cloud.domains()
    cloud.action(kept[0], {"os-stop": None})
    wait_for("the server is off", lambda: (found := cloud.show(kept[0])) and found["status"] == "SHUTOFF")
    for name in cloud.names:
        assert cloud.stop(name) == 0
    backup = str(cloud.path / "before-1.0.backup")
    manage(cloud, "db", "contract")
    manage(cloud, "backup", "create", backup)

    cloud.prefixes.clear()
    (cloud.path / "database.conf").write_text(f"[database]\nconnection = {urls[1]}\n")
    manage(cloud, "backup", "restore", backup, "--only", "database")
    cloud.start_all()

    assert {item["id"]: item["status"] for item in cloud.servers()} == {
        server: "SHUTOFF" if server == kept[0] else "ACTIVE" for server in kept
    }
    assert cloud.domains() == guests
    cloud.action(kept[0], {"os-start": None})
    cloud.wait_active(kept)
    (new,) = cloud.create("new", 1)
    cloud.wait_active([new])
    assert cloud.request("DELETE", f"/servers/{kept[1]}").status_code == 204
    wait_for("the deleted server is gone", lambda: {item["id"] for item in cloud.servers()} == {*kept, new} - {kept[1]})
    cloud.audit()


@pytest.mark.timeout(600)
def test_database_before_1_0_is_refused_with_the_way(cloud: RollingCloud) -> None:
    cloud.prefixes.clear()
    done = cloud.try_manage("db", "sync")
    assert done.returncode != 0
    assert "is of a version before 1.0" in done.stdout + done.stderr
