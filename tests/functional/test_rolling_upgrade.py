"""Upgrade from the last release, and the way back, daemon by daemon, while clients work: no request fails.

Prints a line with figures. On SQLite; `NOVA_LITE_LONG=1` adds MariaDB and PostgreSQL, with two conductors and more
requests.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.functional import older_code
from tests.functional.clients import Clients
from tests.functional.cloud import ROOT, Cloud, daemon_of
from tests.functional.conftest import database_url
from tests.functional.rolling_cloud import RollingCloud
from tests.support.code_versions import LAST_RELEASE
from tests.support.waiting import wait_for

LONG = os.environ.get("NOVA_LITE_LONG") == "1"

REQUESTS = 2000 if LONG else 1000
#: Servers that are there from the beginning to the end.
KEPT = 4


@pytest.fixture(params=["sqlite", *(["mariadb", "postgresql"] if LONG else [])])
def old_cloud(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RollingCloud]:
    tree = tmp_path / "old"
    tree.mkdir()
    older_code.extract(LAST_RELEASE, tree)
    with database_url(request.param) as url:
        cloud = RollingCloud(tmp_path, tree, url)
        try:
            cloud.make()
            cloud.start_all()
            yield cloud
        finally:
            cloud.destroy()


def order_of(cloud: Cloud) -> list[str]:
    """Return the daemons in the order of docs/howto/upgrade.md."""
    ranks = ("conductor", "scheduler", "compute", "api")
    return sorted(cloud.names, key=lambda name: ranks.index(daemon_of(name)))


@pytest.mark.timeout(1200 if LONG else 300)
def test_rolling_upgrade_and_rollback_fail_no_request(old_cloud: RollingCloud) -> None:
    """The schema is expanded while all daemons have the old code, and stays so on the way back."""
    cloud = old_cloud
    kept = cloud.create("kept", KEPT)
    cloud.wait_active(kept)
    clients = Clients(cloud)
    figures = []
    try:
        for direction, tree in (("upgrade", None), ("rollback", cloud.tree)):
            before = clients.total()
            if tree is None:
                cloud.expand()
            names = order_of(cloud) if tree is None else order_of(cloud)[::-1]
            for name in names:
                clients.wait_for_more(10)
                clients.phase = f"{direction} of {name}"
                cloud.replace(name, tree)
                at = os.readlink(f"/proc/{cloud.processes[name].pid}/cwd")
                assert (at == str(cloud.tree)) == (tree is not None), f"{name} has the wrong code"
            clients.wait_for_more(max(20, REQUESTS - (clients.total() - before)))
            figures.append(f"{direction}: {clients.total() - before} requests")
    finally:
        clients.stop()
    print(f"\n{', '.join(figures)}; {len(clients.failures)} failed; {dict(clients.answers)}")
    assert clients.failures == []
    assert clients.total() >= 2 * REQUESTS
    left = set(clients.created) - set(clients.deleted)
    assert set(cloud.wait_active([*kept, *left])) == {*kept, *left}
    wait_for("the deleted servers are gone", lambda: {item["id"] for item in cloud.servers()} == {*kept, *left})
    assert cloud.domains().keys() == {*kept, *left}
    cloud.audit()
    for name in cloud.names:
        text = (cloud.path / f"{name}.log").read_text()
        assert f'File "{ROOT}/nova_lite' not in text, f"a traceback of this version:\n{cloud.log(name)}"
