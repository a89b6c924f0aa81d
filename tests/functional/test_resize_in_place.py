"""Resizes of running servers where they are, over REST: without a boot, and with a guest that refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.functional.cloud import Cloud
from tests.functional.server_requests import MEMBER, ask, domain, settled

SIZES = {"place-small": (1, 64), "place-large": (2, 128)}
SPECS = {"hw:max_vcpus": "2", "hw:max_memory": "128"}


@pytest.fixture
def cloud(tidy: Cloud) -> Iterator[Cloud]:
    """Provide a cloud with two flavors of one maximum."""
    for name, (vcpus, ram) in SIZES.items():
        ask(tidy, "POST", "/flavors", {"flavor": {"id": name, "name": name, "ram": ram, "disk": 1, "vcpus": vcpus}})
        ask(tidy, "POST", f"/flavors/{name}/os-extra_specs", {"extra_specs": SPECS})
    yield tidy
    for host in tidy.computes:
        tidy.control_host(host)
    tidy.delete_all()
    for name in SIZES:
        ask(tidy, "DELETE", f"/flavors/{name}", status=202)
    tidy.audit()


def created(cloud: Cloud) -> tuple[str, str]:
    (server_id,) = cloud.create(flavor="place-small")
    return server_id, cloud.wait_active([server_id])[server_id]["OS-EXT-SRV-ATTR:host"]


def act(cloud: Cloud, server_id: str, body: dict[str, Any], status: int = 202) -> tuple[str, str, str]:
    """Request an action as a member, and return the server's status, flavor and host once it is settled."""
    ask(cloud, "POST", f"/servers/{server_id}/action", body, status=status, token=MEMBER)
    server = settled(cloud, server_id)
    return server["status"], server["flavor"]["id"], server["OS-EXT-SRV-ATTR:host"]


def guest(cloud: Cloud, host: str, server_id: str) -> tuple[tuple[int, int], int, int]:
    """Return the guest's vCPUs and memory, the number of its boots, and the vCPUs that are claimed at its host."""
    found = domain(cloud, host, server_id)
    console = cloud.path / host / "instances" / f"fake-{host}" / "disks" / server_id / "console.log"
    nodes = ask(cloud, "GET", "/os-hypervisors/detail")["hypervisors"]
    (claimed,) = [node["vcpus_used"] for node in nodes if node["service"]["host"] == host]
    return (found["vcpus"], found["memory_mb"]), console.read_text().count("guest is booting"), claimed


def failure(cloud: Cloud, server_id: str) -> str:
    """Return the text of the newest failed event among the actions of the server."""
    actions = ask(cloud, "GET", f"/servers/{server_id}/os-instance-actions")["instanceActions"]
    path = f"/servers/{server_id}/os-instance-actions/{actions[0]['request_id']}"
    events = ask(cloud, "GET", path, version="2.84")["instanceAction"]["events"]
    return " ".join(event["details"] or "" for event in events)


GROW, SHRINK = ({"resize": {"flavorRef": name}} for name in ("place-large", "place-small"))


def test_running_server_gets_more_without_a_boot_and_gives_it_back(cloud: Cloud) -> None:
    server_id, host = created(cloud)
    assert act(cloud, server_id, GROW) == ("VERIFY_RESIZE", "place-large", host)
    assert guest(cloud, host, server_id) == ((2, 128), 1, 2)
    assert act(cloud, server_id, {"revertResize": None}) == ("ACTIVE", "place-small", host)
    assert guest(cloud, host, server_id) == ((1, 64), 1, 1)
    act(cloud, server_id, GROW)
    assert act(cloud, server_id, {"confirmResize": None}, 204) == ("ACTIVE", "place-large", host)
    assert act(cloud, server_id, SHRINK) == ("VERIFY_RESIZE", "place-small", host)
    assert guest(cloud, host, server_id) == ((1, 64), 1, 2), "the claim stays until the owner decides"
    act(cloud, server_id, {"confirmResize": None}, 204)
    assert guest(cloud, host, server_id) == ((1, 64), 1, 1)


def test_guest_that_refuses_keeps_its_server_as_it_is(cloud: Cloud) -> None:
    server_id, host = created(cloud)
    act(cloud, server_id, GROW)
    cloud.control_host(host, refuses_unplug=True)
    assert act(cloud, server_id, {"revertResize": None}) == ("VERIFY_RESIZE", "place-large", host)
    assert "keeps its size" in failure(cloud, server_id)
    act(cloud, server_id, {"confirmResize": None}, 204)
    assert act(cloud, server_id, SHRINK) == ("ACTIVE", "place-large", host)
    assert guest(cloud, host, server_id) == ((2, 128), 1, 2)


def test_stopped_server_boots_with_its_new_size(cloud: Cloud) -> None:
    server_id, _ = created(cloud)
    assert act(cloud, server_id, {"os-stop": None})[0] == "SHUTOFF"
    status, flavor, host = act(cloud, server_id, GROW)
    assert (status, flavor) == ("VERIFY_RESIZE", "place-large")
    assert domain(cloud, host, server_id)["vcpus"] == 2


def test_flavor_above_its_maximum_is_refused(cloud: Cloud) -> None:
    ask(cloud, "POST", "/flavors/place-large/os-extra_specs", {"extra_specs": {"hw:max_memory": "100"}})
    server = {"name": "vm", "imageRef": cloud.image_id, "flavorRef": "place-large"}
    answer = ask(cloud, "POST", "/servers", {"server": server}, status=400, token=MEMBER)
    assert answer["badRequest"]["message"] == "hw:max_memory is 100, and the flavor has 128 MB of memory."
