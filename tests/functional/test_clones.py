"""Clones of servers, through all daemons, with fake hypervisors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.functional import cloud as clouds
from tests.functional.cloud import Cloud
from tests.functional.hosts import tidy_up
from tests.functional.server_requests import act, ask, fault, place, settled


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with clouds.running(tmp_path_factory.mktemp("clones"), computes=2, standalone=True) as made:
        yield made


@pytest.fixture
def tidy(running: Cloud) -> Iterator[Cloud]:
    yield running
    tidy_up(running)


def server_of(running: Cloud) -> str:
    """Make a server whose disk has another content than a new one."""
    (server,) = running.create()
    running.wait_active([server])
    disk_of(running, server).write_text("changed\n")
    return server


def disk_of(running: Cloud, server: str) -> Path:
    (path,) = running.path.glob(f"*/instances/fake-*/disks/{server}/disk")
    return path


def clone(running: Cloud, server: str, status: int = 202, **body: Any) -> Any:
    return ask(running, "POST", f"/servers/{server}/os-clones", {"clone": {"name": "clone", **body}}, status=status)


def addresses(running: Cloud, server: str) -> set[tuple[str, str]]:
    """Return the MAC and IP addresses of a server."""
    found = settled(running, server)["addresses"].values()
    return {(port["OS-EXT-IPS-MAC:mac_addr"], port["addr"]) for ports in found for port in ports}


@pytest.mark.parametrize("action", [None, {"os-stop": None}])
def test_clone_is_a_server_of_its_own_with_the_disk_of_its_source(tidy: Cloud, action: dict[str, None] | None) -> None:
    source = server_of(tidy)
    if action is not None:
        act(tidy, source, action, "SHUTOFF")
    made = clone(tidy, source, hostname="second", metadata={"a": "b"})["server"]["id"]
    tidy.wait_active([made])
    assert disk_of(tidy, made).read_text() == "changed\n"
    assert place(tidy, made)[1] == place(tidy, source)[1]
    assert settled(tidy, source)["status"] == ("ACTIVE" if action is None else "SHUTOFF")
    assert len(addresses(tidy, made)) == 1
    assert addresses(tidy, made).isdisjoint(addresses(tidy, source))
    shown = ask(tidy, "GET", f"/servers/{made}", version="2.90")["server"]
    assert (shown["name"], shown["OS-EXT-SRV-ATTR:hostname"], shown["metadata"]) == ("clone", "second", {"a": "b"})
    assert shown["image"]["id"] == tidy.image_id
    disk_of(tidy, made).write_text("other\n")
    ask(tidy, "DELETE", f"/servers/{source}", status=204)
    assert disk_of(tidy, made).read_text() == "other\n"


def test_clone_without_interfaces_is_rebuilt_from_its_image(tidy: Cloud) -> None:
    made = clone(tidy, server_of(tidy), networks="none")["server"]["id"]
    tidy.wait_active([made])
    assert addresses(tidy, made) == set()
    act(tidy, made, {"rebuild": {"imageRef": tidy.image_id}}, "ACTIVE")
    assert disk_of(tidy, made).read_text().startswith("generation")


def test_clone_of_a_disk_that_its_host_cannot_freeze_is_in_error(tidy: Cloud) -> None:
    source = server_of(tidy)
    for host in tidy.computes:
        tidy.control_host(host, fail_at=["clone"], fail_count=1)
    made = clone(tidy, source)["server"]["id"]
    assert source in fault(tidy, made)
    assert settled(tidy, source)["status"] == "ACTIVE"


def test_request_for_a_clone_is_checked(tidy: Cloud) -> None:
    source = server_of(tidy)
    for body in ({"name": ""}, {"networks": "some"}, {"user_data": 1}, {"other": 1}, {"flavorRef": "1"}):
        clone(tidy, source, status=400, **body)
    clone(tidy, "11111111-1111-4111-8111-111111111111", status=404)
    ask(tidy, "POST", f"/servers/{source}/os-snapshot-points", {"snapshot_point": {"name": "one"}}, status=202)
    settled(tidy, source)
    assert "snapshot points" in clone(tidy, source, status=409)["conflictingRequest"]["message"]
