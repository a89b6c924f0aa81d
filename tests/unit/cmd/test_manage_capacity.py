"""``nova-lite-manage host capacity``."""

from __future__ import annotations

import pytest

from tests.support.manage import Tool, placed, report

ALWAYS = {"ha:restart": "always", "ha:local-disk": "rebuild"}
KEEPS = {"ha:restart": "always"}


@pytest.fixture
def hosts(tool: Tool) -> Tool:
    """Provide three hosts with room for two servers each."""
    report(tool, "h1", "h2", "h3")
    return tool


def test_protected_servers_of_each_host_fit_elsewhere(hosts: Tool) -> None:
    for host in ("h1", "h2"):
        placed(hosts, host, metadata_=ALWAYS)
    placed(hosts, "h3")
    rows = hosts.json("host", "capacity", "--survive", "1")
    assert [(row["lost"], row["protected"], row["no_room"]) for row in rows] == [("h1", 1, 0), ("h2", 1, 0)]


def test_two_lost_hosts_have_too_little_room(hosts: Tool) -> None:
    for host in ("h1", "h1", "h2", "h3"):
        placed(hosts, host, metadata_=ALWAYS)
    rows = hosts.json("host", "capacity", "--survive", "1")
    assert all(row["no_room"] == 0 for row in rows)
    rows = hosts.json("host", "capacity", "--survive", "2", status=1)
    assert {row["lost"]: row["no_room"] for row in rows} == {"h1, h2": 2, "h1, h3": 2, "h2, h3": 2}
    assert "Filter" in rows[0]["why_not"]


def test_server_whose_disk_no_other_host_sees_waits(hosts: Tool) -> None:
    placed(hosts, "h1", metadata_=KEEPS)
    (row,) = hosts.json("host", "capacity", "--survive", "1")
    assert (row["protected"], row["wait"], row["no_room"]) == (1, 1, 0)


def test_cloud_without_protected_servers_has_no_rows(hosts: Tool) -> None:
    placed(hosts, "h1")
    assert hosts.json("host", "capacity", "--survive", "1") == []


def test_more_hosts_than_there_are_cannot_be_lost(hosts: Tool) -> None:
    assert "3 hosts" in hosts.fails("host", "capacity", "--survive", "3")
