"""Shares of servers, through all daemons, with fake hypervisors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.functional import cloud as clouds
from tests.functional.cloud import Cloud
from tests.functional.hosts import come_back, lose, tidy_up
from tests.functional.sdk import connect
from tests.functional.server_requests import act, ask, domain, migrate, place
from tests.support.waiting import wait_for

VERSION = "2.97"
PROJECT = "admin"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with clouds.running(tmp_path_factory.mktemp("shares"), computes=2, standalone=True) as made:
        yield made


@pytest.fixture
def tidy(running: Cloud) -> Iterator[Cloud]:
    yield running
    tidy_up(running)
    for name in ("data", "more"):
        running.try_manage("share", "delete", name)


def stopped(running: Cloud) -> str:
    (server,) = running.create()
    running.wait_active([server])
    act(running, server, {"os-stop": None}, "SHUTOFF")
    return server


def make(running: Cloud, name: str, project: str = PROJECT) -> str:
    return running.manage("share", "create", name, "--project", project, "--protocol", "nfs").strip()


def attach(running: Cloud, server: str, share_id: str, tag: str) -> None:
    path, body = f"/servers/{server}/shares", {"share": {"share_id": share_id, "tag": tag}}
    made = ask(running, "POST", path, body, status=201, version=VERSION)["share"]
    assert (made["status"], made["export_location"]) == ("attaching", f"nfs/{tag}")
    wait_for("it is attached", lambda: shares(running, server).get(tag) == "inactive")


def shares(running: Cloud, server: str) -> dict[str, str]:
    """Return the statuses of a server's shares by tag."""
    found = ask(running, "GET", f"/servers/{server}/shares", version=VERSION)["shares"]
    return {share["tag"]: share["status"] for share in found}


def of_guest(running: Cloud, server: str) -> tuple[str, dict[str, str]]:
    """Return the host of a server, and the shares that its guest has there."""
    _, host = place(running, server)
    found: dict[str, str] = domain(running, host, server)["shares"]
    return host, found


def test_server_has_its_shares_until_they_are_detached(tidy: Cloud) -> None:
    server, data, more = stopped(tidy), make(tidy, "data"), make(tidy, "more")
    attach(tidy, server, data, "data")
    attach(tidy, server, more, "more")
    act(tidy, server, {"os-start": None}, "ACTIVE")
    assert shares(tidy, server) == {"data": "active", "more": "active"}
    for method, path in (("POST", f"/servers/{server}/shares"), ("DELETE", f"/servers/{server}/shares/{data}")):
        ask(tidy, method, path, {"share": {"share_id": data}} if method == "POST" else None, 409, version=VERSION)
    act(tidy, server, {"rebuild": {"imageRef": tidy.image_id}}, "ACTIVE")
    act(tidy, server, {"reboot": {"type": "HARD"}}, "ACTIVE")
    assert of_guest(tidy, server)[1] == {"data": "nfs/data", "more": "nfs/more"}
    act(tidy, server, {"os-stop": None}, "SHUTOFF")
    ask(tidy, "DELETE", f"/servers/{server}/shares/{data}", version=VERSION)
    wait_for("it is detached", lambda: shares(tidy, server) == {"more": "inactive"})
    assert of_guest(tidy, server)[1] == {"more": "nfs/more"}
    assert "is attached to servers" in tidy.try_manage("share", "delete", "more").stderr
    tidy.delete_all()
    tidy.manage("share", "delete", "more")


def test_openstacksdk_attaches_lists_and_detaches_a_share(tidy: Cloud) -> None:
    server, data = stopped(tidy), make(tidy, "data")
    compute = connect(tidy, PROJECT).compute
    made = compute.create_share_attachment(server, data, tag="data")
    assert (made.share_id, made.tag, made.export_location) == (data, "data", "nfs/data")
    wait_for("it is attached", lambda: shares(tidy, server) == {"data": "inactive"})
    assert [(share.tag, share.status) for share in compute.share_attachments(server)] == [("data", "inactive")]
    assert compute.get_share_attachment(server, data).status == "inactive"
    compute.delete_share_attachment(server, data)
    wait_for("it is detached", lambda: shares(tidy, server) == {})


def test_share_of_another_project_is_not_found(tidy: Cloud) -> None:
    server, theirs = stopped(tidy), make(tidy, "more", "other")
    body = {"share": {"share_id": theirs}}
    ask(tidy, "POST", f"/servers/{server}/shares", body, status=404, version=VERSION)
    assert shares(tidy, server) == {}


def test_share_that_the_host_does_not_have_is_in_error_and_can_be_detached(tidy: Cloud) -> None:
    server, data = stopped(tidy), make(tidy, "data")
    for host in tidy.computes:
        tidy.control_host(host, fail_at=["attach_share"], fail_count=1)
    body = {"share": {"share_id": data, "tag": "data"}}
    ask(tidy, "POST", f"/servers/{server}/shares", body, status=201, version=VERSION)
    wait_for("it is in error", lambda: shares(tidy, server) == {"data": "error"})
    assert of_guest(tidy, server)[1] == {}
    ask(tidy, "DELETE", f"/servers/{server}/shares/{data}", version=VERSION)
    wait_for("it is detached", lambda: shares(tidy, server) == {})


def test_server_takes_its_shares_along_except_while_it_runs(tidy: Cloud) -> None:
    server, data = stopped(tidy), make(tidy, "data")
    attach(tidy, server, data, "data")
    act(tidy, server, {"os-start": None}, "ACTIVE")
    assert "which has shares. Detach them." in migrate(tidy, server).text
    refused = ask(tidy, "POST", f"/servers/{server}/action", {"suspend": None}, status=409)
    assert "which has shares. Detach them." in refused["conflictingRequest"]["message"]
    source = of_guest(tidy, server)[0]
    act(tidy, server, {"migrate": None}, "VERIFY_RESIZE")
    ask(tidy, "POST", f"/servers/{server}/action", {"confirmResize": None}, status=204)
    host, found = of_guest(tidy, server)
    assert (host != source, found) == (True, {"data": "nfs/data"})
    act(tidy, server, {"shelve": None}, "SHELVED_OFFLOADED")
    act(tidy, server, {"unshelve": None}, "ACTIVE")
    lost = of_guest(tidy, server)[0]
    lose(tidy, lost)
    assert tidy.evacuate(server).status_code == 200
    tidy.wait_active([server])
    host, found = of_guest(tidy, server)
    assert (host != lost, found) == (True, {"data": "nfs/data"})
    come_back(tidy, lost)
