"""The metadata API of a whole control plane. Its guests are clients at loopback addresses, which are their networks."""

from __future__ import annotations

import base64
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from nova_lite import objects
from nova_lite.db.core.engine import Database
from nova_lite.db.network import builtin_networks
from tests.functional.cloud import Cloud
from tests.support import guest_requests
from tests.support.waiting import wait_for

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBWv0rXwHdgN2Fj7uI3QcTVhYsDS1tdw1JMXfZ2XDKcF alice"
TOKENS = {"demo": "admin:demo", "other": "someone:other"}
HOST = "compute-1"


class MetadataCloud(Cloud):
    """A cloud with a network of all projects, and one of each of two tenants, who have every address in common."""

    network = {
        "cidr": "127.77.0.0/24",
        "gateway": "127.77.0.1",
        "bridge": "nlt0",
        "start": "127.77.0.2",
        "end": "127.77.0.250",
    }

    def _fill_database(self) -> None:
        super()._fill_database()
        self.own = {project: str(uuid.uuid4()) for project in TOKENS}
        db = Database(self.conductor_conf())
        for number, (project, network_id) in enumerate(self.own.items(), 1):
            values = {**self.network, "bridge": f"nlt{number}", "project_id": project}
            db.write(builtin_networks.create, objects.Network(id=network_id, name="own", **values))
        (self.shared,) = {network.id for network in db.read(lambda uow: builtin_networks.Store(uow).usable(None))}
        db.close()

    def place(self, network_id: str) -> tuple[str, int]:
        """Return where the host listens on a network."""

        def find() -> tuple[str, int] | None:
            try:
                return guest_requests.listening(self.path / "sockets", HOST).get(network_id)
            except OSError:
                return None

        return wait_for("the host listens on the network", find)

    def ask(self, address: str, path: str, body: bytes | None = None, **options: Any) -> requests.Response:
        network_id = options.pop("network_id", self.shared)
        return guest_requests.ask(self.place(network_id), address, path, body, **options)

    def address(self, server_id: str) -> str:
        server = self.show(server_id)
        assert server is not None
        address: str = server["addresses"]["private"][0]["addr"]
        return address


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MetadataCloud]:
    path = tmp_path_factory.mktemp("metadata")
    made = MetadataCloud(
        path,
        extra_config=(
            "[api]\nenabled_apis = osapi_compute, metadata\nmetadata_cache_expiration = 2\n"
            f"[network]\nmetadata_service = true\nmetadata_directory = {path}/sockets\n"
        ),
    )
    made.make()
    try:
        made.start_all()
        yield made
    finally:
        made.destroy()


def test_a_guest_is_told_who_it_is_until_it_is_gone(cloud: MetadataCloud) -> None:
    answer = cloud.request("POST", "/os-keypairs", {"keypair": {"name": "mine", "public_key": KEY}})
    assert answer.status_code == 200, answer.text
    user_data = base64.b64encode(b"#!/bin/sh\n").decode()
    networks = [{"uuid": cloud.shared}]
    (server_id,) = cloud.create(
        "told", key_name="mine", user_data=user_data, metadata={"role": "web"}, networks=networks
    )
    (other_id,) = cloud.create("other", networks=networks)
    cloud.wait_active([server_id, other_id])
    address, other = cloud.address(server_id), cloud.address(other_id)

    told = cloud.ask(address, "/openstack/latest/meta_data.json").json()
    assert (told["uuid"], told["hostname"], told["meta"]) == (server_id, "told", {"role": "web"})
    assert told["public_keys"] == {"mine": KEY}
    assert cloud.ask(address, "/latest/user-data").text == "#!/bin/sh\n"
    assert cloud.ask(address, "/2009-04-04/meta-data/local-ipv4").text == address
    assert cloud.ask(other, "/latest/meta-data/instance-id").text == other_id
    assert cloud.ask(other, "/latest/user-data").status_code == 404
    assert cloud.ask("127.77.0.251", "/latest/meta-data/").status_code == 404
    refusal = f"A metadata request from 127.77.0.251 ({cloud.shared}) is refused: no server has it"
    assert refusal in cloud.log("api", 500)

    path = "/openstack/2013-04-04/password"
    assert cloud.ask(address, path, b"c2VjcmV0").status_code == 200
    assert cloud.ask(address, path, b"another").status_code == 409
    shown = cloud.request("GET", f"/servers/{server_id}/os-server-password").json()
    assert shown == {"password": "c2VjcmV0"} == {"password": cloud.ask(address, path).text}

    cloud.request("DELETE", f"/servers/{server_id}")
    wait_for("a deleted server is not served", lambda: cloud.ask(address, "/latest/meta-data/").status_code == 404)
    assert cloud.ask(other, "/latest/meta-data/instance-id").text == other_id


def twins(cloud: MetadataCloud) -> dict[str, str]:
    """Create a server of each tenant, with the same address. Return the servers' ids by project."""
    ids = {}
    for project, network_id in cloud.own.items():
        user_data = base64.b64encode(f"secret of {project}".encode()).decode()
        networks = [{"uuid": network_id, "fixed_ip": "127.77.0.9"}]
        server = {"name": "twin", "imageRef": cloud.image_id, "flavorRef": "1", "networks": networks}
        answer = cloud.request("POST", "/servers", {"server": {**server, "user_data": user_data}}, TOKENS[project])
        assert answer.status_code == 202, answer.text
        ids[project] = answer.json()["server"]["id"]

    def are_active() -> bool:
        return all(status(cloud, ids[project], TOKENS[project]) == "ACTIVE" for project in ids)

    wait_for("both servers are active", are_active)
    return ids


def status(cloud: MetadataCloud, server_id: str, token: str) -> str:
    found: str = cloud.request("GET", f"/servers/{server_id}", token=token).json()["server"]["status"]
    return found


def test_two_tenants_with_every_address_in_common_read_their_own(cloud: MetadataCloud) -> None:
    ids = twins(cloud)
    everything = {"X-Forwarded-For": "127.77.0.9", "X-Instance-ID": ids["demo"], "X-Tenant-ID": "demo"}
    for project, network_id in cloud.own.items():
        for headers in ({}, everything):
            told = cloud.ask("127.77.0.9", "/latest/user-data", network_id=network_id, headers=headers)
            assert told.text == f"secret of {project}"
        assert cloud.ask("127.77.0.9", "/latest/meta-data/instance-id", network_id=network_id).text == ids[project]
        posted = cloud.ask("127.77.0.9", "/openstack/latest/password", project.encode(), network_id=network_id)
        assert posted.status_code == 200
    for project, server_id in ids.items():
        shown = cloud.request("GET", f"/servers/{server_id}/os-server-password", token=TOKENS[project]).json()
        assert shown == {"password": project}
    assert cloud.ask("127.77.0.10", "/latest/user-data", network_id=cloud.own["demo"]).status_code == 404


def test_restarts_of_api_and_compute_lose_no_connection(cloud: MetadataCloud) -> None:
    (server_id,) = cloud.create("patient", networks=[{"uuid": cloud.shared}])
    cloud.wait_active([server_id])
    address, place = cloud.address(server_id), cloud.place(cloud.shared)
    path = "/latest/meta-data/instance-id"
    told: list[str] = []
    cloud.stop("api")
    waiting = threading.Thread(target=lambda: told.append(guest_requests.ask(place, address, path).text))
    waiting.start()
    cloud.start("api")
    waiting.join(30)
    assert told == [server_id]
    cloud.kill(HOST)
    assert guest_requests.ask(place, address, path).text == server_id, "the API serves the sockets that it has"
    cloud.start(HOST)
    wait_for("the host has a new socket", lambda: cloud.place(cloud.shared) != place)
    wait_for("it is served", lambda: cloud.ask(address, path).text == server_id)


def test_without_a_conductor_it_says_so_and_comes_back(cloud: MetadataCloud) -> None:
    (server_id,) = cloud.create("patient", networks=[{"uuid": cloud.shared}])
    cloud.wait_active([server_id])
    address = cloud.address(server_id)
    cloud.kill("conductor")
    assert cloud.ask(address, "/latest/meta-data/instance-id").status_code == 503
    cloud.start("conductor")
    wait_for("an answer", lambda: cloud.ask(address, "/latest/meta-data/instance-id").text == server_id)
