"""A hanging hypervisor in a cloud of real daemons: its host is left out, and returns automatically."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.functional import cloud
from tests.support.waiting import wait_for


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[cloud.Cloud]:
    extra = "[compute]\nhypervisor_timeout = 2\nreconcile_interval = 3\n"
    with cloud.running(tmp_path, computes=2, extra_config=extra) as running:
        yield running


def test_builds_go_elsewhere_until_it_answers(hanging: cloud.Cloud) -> None:
    hung, other = hanging.computes

    def is_state(state: str) -> bool:
        answer = hanging.request("GET", f"/os-services?host={hung}&binary=nova-compute")
        return [item["state"] for item in answer.json()["services"]] == [state]

    before = hanging.create("before", count=2)
    running = hanging.wait_active(before)
    hanging.control_host(hung, hang_at=["*"])
    waiting = hanging.create("waiting", count=4)
    wait_for("the host counts as down", lambda: is_state("down"))
    later = hanging.create("later")
    found = hanging.wait_active(waiting + later)
    assert {server["OS-EXT-SRV-ATTR:host"] for server in found.values()} == {other}
    assert "is left to another host" in hanging.log(hung, 10000), "some had waited there"
    assert hanging.log(hung, 10000).count("The hypervisor does not answer") == 1

    deleted = [key for key, server in running.items() if server["OS-EXT-SRV-ATTR:host"] == hung]
    assert deleted, "one runs there"
    for server_id in deleted:
        assert hanging.request("DELETE", f"/servers/{server_id}").status_code == 204
    wait_for("they are deleted for their owner", lambda: not any(map(hanging.show, deleted)))

    hanging.control_host(hung)
    wait_for("the host counts as up", lambda: is_state("up"))
    hanging.delete_all()
    wait_for("nothing is left", lambda: not any(map(hanging.holders, [*before, *waiting, *later])))
    wait_for("nothing is wrong", lambda: hanging.try_manage("audit").returncode == 0)
