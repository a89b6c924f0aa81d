"""The metadata API of a whole control plane. Its guests are clients at loopback addresses, which are their network."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from tests.functional.cloud import Cloud
from tests.support.ports import free_port
from tests.support.waiting import wait_for

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBWv0rXwHdgN2Fj7uI3QcTVhYsDS1tdw1JMXfZ2XDKcF alice"
USER_DATA = base64.b64encode(b"#!/bin/sh\n").decode()


class GuestAt(requests.adapters.HTTPAdapter):
    def __init__(self, address: str) -> None:
        self._address = address
        super().__init__()

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, source_address=(self._address, 0), **options)  # type: ignore[no-untyped-call]


class MetadataCloud(Cloud):
    network = {
        "cidr": "127.77.0.0/24",
        "gateway": "127.77.0.1",
        "bridge": "nlt0",
        "start": "127.77.0.2",
        "end": "127.77.0.250",
    }

    metadata_port = 0

    def ask(self, address: str, path: str, body: bytes | None = None) -> requests.Response:
        with requests.Session() as session:
            session.mount("http://", GuestAt(address))
            url = f"http://127.0.0.1:{self.metadata_port}{path}"
            return session.get(url, timeout=30) if body is None else session.post(url, data=body, timeout=30)

    def address(self, server_id: str) -> str:
        server = self.show(server_id)
        assert server is not None
        address: str = server["addresses"]["private"][0]["addr"]
        return address


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MetadataCloud]:
    port = free_port()
    made = MetadataCloud(
        tmp_path_factory.mktemp("metadata"),
        extra_config=(
            "[api]\nenabled_apis = osapi_compute, metadata\nmetadata_cache_expiration = 2\n"
            f"metadata_listen_port = {port}\n"
        ),
    )
    made.metadata_port = port
    made.make()
    try:
        made.start_all()
        yield made
    finally:
        made.destroy()


def test_a_guest_is_told_who_it_is_until_it_is_gone(cloud: MetadataCloud) -> None:
    answer = cloud.request("POST", "/os-keypairs", {"keypair": {"name": "mine", "public_key": KEY}})
    assert answer.status_code == 200, answer.text
    (server_id,) = cloud.create("told", key_name="mine", user_data=USER_DATA, metadata={"role": "web"})
    (other_id,) = cloud.create("other")
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
    assert "A metadata request from 127.77.0.251 (no MAC) is refused: no server has it" in cloud.log("api", 500)

    path = "/openstack/2013-04-04/password"
    assert cloud.ask(address, path, b"c2VjcmV0").status_code == 200
    assert cloud.ask(address, path, b"another").status_code == 409
    shown = cloud.request("GET", f"/servers/{server_id}/os-server-password").json()
    assert shown == {"password": "c2VjcmV0"} == {"password": cloud.ask(address, path).text}

    cloud.request("DELETE", f"/servers/{server_id}")
    wait_for("a deleted server is not served", lambda: cloud.ask(address, "/latest/meta-data/").status_code == 404)
    assert cloud.ask(other, "/latest/meta-data/instance-id").text == other_id


def test_without_a_conductor_it_says_so_and_comes_back(cloud: MetadataCloud) -> None:
    (server_id,) = cloud.create("patient")
    cloud.wait_active([server_id])
    address = cloud.address(server_id)
    cloud.kill("conductor")
    assert cloud.ask(address, "/latest/meta-data/instance-id").status_code == 503
    cloud.start("conductor")
    wait_for("an answer", lambda: cloud.ask(address, "/latest/meta-data/instance-id").text == server_id)
