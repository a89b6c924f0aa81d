"""Servers on Neutron's networks through all daemons, with fake hypervisors and a small Neutron that misbehaves."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import pytest
import requests
import sqlalchemy as sa

from nova_lite.db.core import models
from nova_lite.db.core.engine import Database
from tests.functional import cloud as clouds
from tests.functional.cloud import Cloud
from tests.functional.server_requests import attach
from tests.support import make
from tests.support.neutron import Body, FakeNeutron
from tests.support.waiting import wait_for

#: Seconds that a call to Neutron has; after them what was not answered is looked for.
CALL = 6


@pytest.fixture(scope="module")
def neutron() -> Iterator[FakeNeutron]:
    made = FakeNeutron()
    made.add("security-groups", name="default", project_id="demo")
    made.network("private", "demo", shared=True)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, neutron: FakeNeutron) -> Iterator[Cloud]:
    config = f"{neutron.options(timeout=2)}call_timeout = {CALL}\n"
    with clouds.running(tmp_path_factory.mktemp("neutron"), computes=2, extra_config=config) as running:
        neutron.serve(running)
        yield running
        neutron.notify = None


@pytest.fixture
def cloud(whole: Cloud, neutron: FakeNeutron) -> Iterator[Cloud]:
    """Provide a cloud without servers; afterwards no port belongs to a server, and only users' ports are left."""
    yield whole
    whole.delete_all()
    wait_for("no port is a server's", lambda: not any(port["device_id"] for port in neutron.ports))
    assert {port.get("name") for port in neutron.ports} <= {"a user's"}
    database = Database(make.conf(whole.database))
    try:
        count = sa.select(sa.func.count()).select_from(models.PendingAttach)
        wait_for("nothing is in doubt", lambda: database.read(lambda uow: uow.session.scalar(count)) == 0)
    finally:
        database.close()
    neutron.rows["ports"].clear()
    whole.audit()


@pytest.fixture
def server(cloud: Cloud) -> str:
    (server_id,) = cloud.create("vm")
    cloud.wait_active([server_id])
    return server_id


def ports_of(neutron: FakeNeutron, server_id: str) -> list[Body]:
    return [port for port in neutron.ports if port["device_id"] == server_id]


def interfaces(cloud: Cloud, server_id: str) -> dict[str, str]:
    answer = cloud.request("GET", f"/servers/{server_id}/os-interface").json()["interfaceAttachments"]
    return {item["port_id"]: item["port_state"] for item in answer}


def host_of(cloud: Cloud, server_id: str) -> str:
    return str((cloud.show(server_id) or {})["OS-EXT-SRV-ATTR:host"])


def users_port(neutron: FakeNeutron, project_id: str = "demo") -> Body:
    (network,) = neutron.rows["networks"].values()
    return neutron.port(network, project_id, name="a user's")


def test_a_server_has_its_port(cloud: Cloud, neutron: FakeNeutron, server: str) -> None:
    (port,) = ports_of(neutron, server)
    assert (port["project_id"], port["binding:host_id"], port["status"]) == ("demo", host_of(cloud, server), "ACTIVE")
    shown = cloud.show(server) or {}
    ((entry,),) = shown["addresses"].values()
    assert ([entry["addr"]], shown["security_groups"]) == (
        [item["ip_address"] for item in port["fixed_ips"]],
        [{"name": "default"}],
    )
    assert interfaces(cloud, server) == {port["id"]: "ACTIVE"}
    said = (cloud.path / f"{host_of(cloud, server)}.log").read_text()
    assert f"Instance {server}: connected after" in said, "it was held until then"


def test_interfaces_come_and_go(cloud: Cloud, neutron: FakeNeutron, server: str) -> None:
    with futures.ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda _: attach(cloud, server), range(2)))
    assert [answer.status_code for answer in answers] == [200, 200], [answer.text for answer in answers]
    wait_for("three are up", lambda: list(interfaces(cloud, server).values()) == ["ACTIVE"] * 3)
    assert {port["id"] for port in ports_of(neutron, server)} == interfaces(cloud, server).keys()
    gone = answers[0].json()["interfaceAttachment"]["port_id"]
    assert cloud.request("DELETE", f"/servers/{server}/os-interface/{gone}").status_code == 202
    wait_for("two are left", lambda: len(interfaces(cloud, server)) == 2)
    assert {port["id"] for port in ports_of(neutron, server)} == interfaces(cloud, server).keys()


def test_ports_that_users_bring_outlive_their_server(cloud: Cloud, neutron: FakeNeutron) -> None:
    first, second, theirs = users_port(neutron), users_port(neutron), users_port(neutron, "somebody")
    (server_id,) = cloud.create("vm", networks=[{"port": first["id"]}])
    cloud.wait_active([server_id])
    assert attach(cloud, server_id, port_id=second["id"]).status_code == 200
    wait_for(
        "both are up", lambda: interfaces(cloud, server_id) == dict.fromkeys((first["id"], second["id"]), "ACTIVE")
    )
    for port_id, at_create, at_attach in (
        (second["id"], 409, 409),
        (theirs["id"], 400, 404),
        (str(uuid.uuid4()), 400, 404),
    ):
        body = {"name": "x", "imageRef": cloud.image_id, "flavorRef": "1", "networks": [{"port": port_id}]}
        create = cloud.request("POST", "/servers", {"server": body}, token="member:demo")
        assert (create.status_code, port_id in create.text) == (at_create, True), create.text
        wanted = {"interfaceAttachment": {"port_id": port_id}}
        refused = cloud.request("POST", f"/servers/{server_id}/os-interface", wanted, token="member:demo")
        assert (refused.status_code, port_id in refused.text) == (at_attach, True), refused.text
    cloud.delete_all()
    wait_for("they are free", lambda: not any(port["device_id"] for port in neutron.ports))
    assert {first["id"], second["id"]} <= {port["id"] for port in neutron.ports}


def test_neutron_resources_are_not_changed_here(cloud: Cloud, server: str) -> None:
    for path in ("/os-security-groups", "/os-floating-ips"):
        answer = cloud.request("GET", path)
        assert (answer.status_code, "the network service's" in answer.text) == (501, True), answer.text
    listed = cloud.request("GET", "/os-networks").json()["networks"]
    assert [item["label"] for item in listed] == ["private"]
    with pytest.raises(requests.ConnectionError):
        requests.get(f"http://127.0.0.1:{cloud.network_port}/v2.0/networks", timeout=5)


def test_a_move_takes_its_ports_along(cloud: Cloud, neutron: FakeNeutron, server: str) -> None:
    before = host_of(cloud, server)
    assert cloud.action(server, {"migrate": None}).status_code == 202
    wait_for("it has moved", lambda: (cloud.show(server) or {})["status"] == "VERIFY_RESIZE")
    (port,) = ports_of(neutron, server)
    assert before != port["binding:host_id"] == host_of(cloud, server)
    assert cloud.action(server, {"revertResize": None}).status_code == 202
    wait_for("it is back", lambda: (cloud.show(server) or {})["status"] == "ACTIVE")
    assert port["binding:host_id"] == before == host_of(cloud, server)


def test_a_server_that_is_off_goes_back_with_its_ports(cloud: Cloud, neutron: FakeNeutron, server: str) -> None:
    before = host_of(cloud, server)
    assert cloud.action(server, {"os-stop": None}).status_code == 202
    wait_for("it is off", lambda: (cloud.show(server) or {})["status"] == "SHUTOFF")
    assert cloud.action(server, {"migrate": None}).status_code == 202
    wait_for("it has moved", lambda: (cloud.show(server) or {})["status"] == "VERIFY_RESIZE")
    (port,) = ports_of(neutron, server)
    assert port["binding:host_id"] != before
    assert cloud.action(server, {"revertResize": None}).status_code == 202
    wait_for("it is back", lambda: (cloud.show(server) or {})["status"] == "SHUTOFF")
    assert port["binding:host_id"] == before


# --- a Neutron that does not answer


def test_a_build_whose_port_was_made_unanswered_has_that_one(cloud: Cloud, neutron: FakeNeutron) -> None:
    neutron.late["POST"] = 1
    (server_id,) = cloud.create("vm")
    cloud.wait_active([server_id])
    assert [port["id"] for port in neutron.ports] == list(interfaces(cloud, server_id))
    assert neutron.late["POST"] == 0


@pytest.mark.parametrize("brought", [False, True])
def test_an_attach_that_was_not_answered_leaves_nothing(
    cloud: Cloud, neutron: FakeNeutron, server: str, brought: bool
) -> None:
    wanted = {"port_id": users_port(neutron)["id"]} if brought else {}
    neutron.late["PUT" if brought else "POST"] = 1
    answer = attach(cloud, server, **wanted)
    assert (answer.status_code, "did not answer" in answer.text) == (503, True)
    assert len(ports_of(neutron, server)) == 2
    wait_for("it is nobody's", lambda: len(ports_of(neutron, server)) == 1)
    assert (len(neutron.ports), len(interfaces(cloud, server))) == (1 + brought, 1)


def test_a_conductor_that_is_killed_while_neutron_makes_a_port(cloud: Cloud, neutron: FakeNeutron, server: str) -> None:
    """The API asks the next one again, or has given up: the server's ports are Neutron's ports."""
    neutron.late["POST"] = 1
    with futures.ThreadPoolExecutor(1) as pool:
        asked: Any = pool.submit(attach, cloud, server)
        wait_for("it is made", lambda: len(ports_of(neutron, server)) == 2)
        cloud.kill("conductor")
        cloud.start("conductor")
        status = asked.result(60).status_code
    assert status in (200, 503, 504)
    count = 2 if status == 200 else 1

    def same() -> bool:
        shown = interfaces(cloud, server)
        return {port["id"] for port in ports_of(neutron, server)} == shown.keys() and len(shown) == count

    wait_for("they are the same", same)


def test_a_delete_while_neutron_is_away(cloud: Cloud, neutron: FakeNeutron, server: str) -> None:
    neutron.status = 503
    try:
        assert cloud.request("DELETE", f"/servers/{server}").status_code == 204
        wait_for("its owner does not see it", lambda: cloud.show(server) is None)
        assert len(ports_of(neutron, server)) == 1
        body = {"name": "x", "imageRef": cloud.image_id, "flavorRef": "1", "networks": "auto"}
        refused = cloud.request("POST", "/servers", {"server": body}, version="2.37")
        assert (
            refused.json()["serviceUnavailable"]["message"] == "The network service did not answer. Please try again."
        )
    finally:
        neutron.status = 0
    wait_for("its port is gone", lambda: neutron.ports == [])
