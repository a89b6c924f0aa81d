"""A cloud whose images are another one's: the Glance backend against the image API, with tokens and real downloads."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from nova_lite.db.core.engine import Database
from nova_lite.db.identity import identity_records
from tests.functional.cloud import PASSWORDS, Cloud
from tests.support.waiting import wait_for

DATA = bytes(range(256)) * 4096
CONFIG = """
[api]
auth_strategy = standalone
[image]
backend = glance
[glance]
auth_type = password
auth_url = {source.identity_url}
username = admin
password = {password}
project_name = admin
user_domain_id = default
project_domain_id = default
num_retries = 0
"""


class Images(Cloud):
    """A cloud with the services of users and images only."""

    @property
    def names(self) -> list[str]:
        return ["conductor", "api"]

    def upload(self, token: str, data: bytes = DATA, **values: str) -> str:
        """Create a private image of the token's project and return its id."""
        headers = {"X-Auth-Token": token}
        body = {"name": "mine", "disk_format": "raw", "container_format": "bare", "visibility": "private", **values}
        made = requests.post(f"{self.image_url}/v2/images", json=body, headers=headers, timeout=60)
        assert made.status_code == 201, made.text
        image_id: str = made.json()["id"]
        headers["Content-Type"] = "application/octet-stream"
        answer = requests.put(f"{self.image_url}/v2/images/{image_id}/file", data=data, headers=headers, timeout=60)
        assert answer.status_code == 204, answer.text
        return image_id


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Images]:
    made = Images(tmp_path_factory.mktemp("images"), computes=0, standalone=True)
    try:
        made.make()
        made.start_all()
        yield made
    finally:
        made.destroy()


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory, source: Images) -> Iterator[Cloud]:
    config = CONFIG.format(source=source, password=PASSWORDS["admin"])
    made = Cloud(tmp_path_factory.mktemp("cloud"), extra_config=config)
    made.token = source.token
    try:
        made.make()
        copy_users(source, made)
        made.start_all()
        yield made
    finally:
        made.destroy()


def copy_users(source: Cloud, target: Cloud) -> None:
    """Store all records of the identity service of one cloud in another, as if both used one Keystone."""
    databases = [Database(cloud.conductor_conf()) for cloud in (source, target)]
    try:
        records = databases[0].read(identity_records.read, 0).records
        databases[1].write(identity_records.change, 0, records)
    finally:
        for database in databases:
            database.close()


def create(cloud: Cloud, image_id: str, token: str) -> requests.Response:
    server = {"name": "vm", "imageRef": image_id, "flavorRef": "1"}
    return cloud.request("POST", "/servers", {"server": server}, token=token)


def settled(cloud: Cloud, answer: requests.Response) -> dict[str, Any]:
    assert answer.status_code == 202, answer.text
    server_id = answer.json()["server"]["id"]
    shown: dict[str, Any] = wait_for("it settles", lambda: _with_status(cloud, server_id, "ACTIVE", "ERROR"))
    return shown


def _with_status(cloud: Cloud, server_id: str, *wanted: str) -> dict[str, Any] | None:
    server = cloud.show(server_id)
    return server if server is not None and server["status"] in wanted else None


def cached(cloud: Cloud) -> dict[str, bytes]:
    directory = cloud.path / "compute-1" / "instances" / "fake-compute-1" / "images"
    return {file.name: file.read_bytes() for file in Path(directory).iterdir()}


def test_a_server_boots_from_a_private_image_and_its_kernel(cloud: Cloud, source: Images) -> None:
    token = source.token_of("demo")
    kernel = source.upload(token, b"kernel", disk_format="aki", container_format="aki")
    image = source.upload(token, disk_format="ami", container_format="ami", kernel_id=kernel)
    server = settled(cloud, create(cloud, image, token))
    assert (server["status"], server["image"]["id"]) == ("ACTIVE", image)
    assert cached(cloud) == {image: DATA, kernel: b"kernel"}
    listed = cloud.request("GET", "/images/detail", token=token).json()["images"]
    assert {image, kernel} <= {item["id"] for item in listed}
    assert not [name for name in cloud.names if token in (cloud.path / f"{name}.log").read_text()]


def test_others_do_not_find_it(cloud: Cloud, source: Images) -> None:
    image = source.upload(source.token_of("demo"))
    for image_id, token in ((image, source.token_of("other")), (str(uuid.uuid4()), source.token_of("demo"))):
        answer = create(cloud, image_id, token)
        assert (answer.status_code, answer.json()["badRequest"]["message"]) == (400, "Can not find requested image")


def test_bytes_that_are_not_the_images_are_not_booted(cloud: Cloud, source: Images) -> None:
    token = source.token_of("demo")
    image = source.upload(token)
    before = cached(cloud)
    (source.path / "shared" / "images" / image).write_bytes(DATA[::-1])
    server = settled(cloud, create(cloud, image, token))
    assert server["status"] == "ERROR"
    assert "checksum is not the registered one" in cloud.log("compute-1")
    assert cached(cloud) == before
    cloud.request("DELETE", f"/servers/{server['id']}")
    wait_for("it is gone", lambda: cloud.show(server["id"]) is None)


def test_glance_away(cloud: Cloud, source: Images) -> None:
    """Last, as it takes the source away."""
    token = source.token_of("demo")
    image = source.upload(token)
    source.kill("api")
    answer = create(cloud, image, token)
    fault = answer.json()["serviceUnavailable"]
    assert (answer.status_code, fault["message"]) == (503, "The image service did not answer. Please try again.")
    assert "Traceback" not in cloud.log("api")
