"""openstacksdk's cloud layer, as Ansible's ``openstack.cloud.server`` drives it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openstack
import openstack.exceptions
import pytest
from openstack.config.loader import OpenStackConfig
from openstack.connection import Connection

from tests.functional import cloud as clouds
from tests.functional.cloud import PASSWORDS, Cloud
from tests.functional.sdk import connect
from tests.support.waiting import wait_for

NETWORK = "private"
CLOUDS = Path(__file__).parents[2] / "nova_lite/cmd/setup/clouds.py"


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    path = tmp_path_factory.mktemp("sdk")
    with clouds.running(path, standalone=True, extra_config="[quota]\nram = -1\n") as running:
        yield running


@pytest.fixture(scope="module")
def demo(cloud: Cloud) -> Iterator[Connection]:
    connection = connect(cloud, "demo")
    yield connection
    connection.close()


@pytest.fixture
def server(cloud: Cloud, demo: Connection) -> Iterator[Any]:
    made = demo.create_server("web", image="cirros", flavor="m1.nano", wait=True, auto_ip=False, timeout=60)
    yield made
    demo.delete_server(made.id, wait=True, timeout=60)


def test_create_waits_for_an_active_server_with_addresses(server: Any, demo: Connection) -> None:
    assert (server.name, server.status) == ("web", "ACTIVE")
    assert [address["version"] for address in server.addresses[NETWORK]] == [4]
    assert demo.get_server(server.id).private_v4 == server.addresses[NETWORK][0]["addr"]


def test_create_with_defaults_and_the_file_that_devstack_writes(cloud: Cloud, tmp_path: Path) -> None:
    file = tmp_path / "clouds.yaml"
    subprocess.run(
        [sys.executable, CLOUDS, "add-user", file, "nova-lite-demo", cloud.identity_url, "demo"],
        input=PASSWORDS["demo"],
        text=True,
        check=True,
        timeout=60,
    )
    region = OpenStackConfig(
        config_files=[str(file)], secure_files=[str(file.with_name("secure.yaml"))], load_envvars=False
    )
    connection = Connection(config=region.get_one(cloud="nova-lite-demo"))
    try:
        made = connection.create_server("defaults", image="cirros", flavor="m1.nano", wait=True)
        assert (made.status, len(made.addresses[NETWORK])) == ("ACTIVE", 1)
        assert connection.delete_server("defaults", wait=True)
    finally:
        connection.close()


def test_create_as_ansible_does(demo: Connection) -> None:
    """Create a server with all arguments that Ansible's module passes, and return its facts."""
    demo.create_keypair(
        "ansible", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBZkgYMJVdyBZKqH1IWNkEZkg7RvqrXtlgP9BzhZLdCt me"
    )
    image, flavor = demo.get_image("cirros"), demo.get_flavor("m1.nano")
    made = demo.create_server(
        name="db",
        image=image.id,
        flavor=flavor.id,
        nics=[],
        meta={"tier": "data"},
        key_name="ansible",
        userdata="#!/bin/sh\n",
        config_drive=False,
        boot_from_volume=False,
        terminate_volume=False,
        reuse_ips=True,
        auto_ip=False,
        wait=True,
        timeout=60,
    )
    assert made.status == "ACTIVE" and made.addresses
    assert (made.metadata, made.key_name) == ({"tier": "data"}, "ansible")
    assert demo.delete_server("db", wait=True, timeout=60, delete_ips=False)
    assert demo.delete_keypair("ansible")


def test_get_list_search(server: Any, demo: Connection) -> None:
    assert demo.get_server("web").id == server.id
    assert demo.get_server("web", bare=True, detailed=True).status == "ACTIVE"
    assert demo.get_server("none of ours") is None
    assert [item.id for item in demo.list_servers()] == [server.id]
    assert [item.id for item in demo.search_servers("web")] == [server.id]
    assert [item.id for item in demo.search_servers(filters={"status": "ACTIVE"})] == [server.id]
    assert demo.search_servers("web", filters={"status": "ERROR"}) == []


def test_other_projects_resources_are_invisible(server: Any, cloud: Cloud) -> None:
    other = connect(cloud, "other")
    try:
        assert other.list_servers() == []
        assert other.get_server(server.id) is None
        assert other.delete_server(server.id) is False
    finally:
        other.close()


def test_delete_waits_until_it_is_gone(demo: Connection) -> None:
    made = demo.create_server("short", image="cirros", flavor="m1.nano", wait=True, auto_ip=False, timeout=60)
    assert demo.delete_server("short", wait=True, timeout=60) is True
    assert demo.get_server(made.id) is None
    assert demo.delete_server(made.id) is False


def test_a_server_without_addresses_is_taken_for_a_failure(tmp_path: Path) -> None:
    """The cloud layer deletes what came up without an address: a cloud for Ansible needs a default network."""
    with clouds.running(tmp_path, standalone=True, extra_config="[network]\nbackend = none\n") as cloud:
        demo = connect(cloud, "demo")
        with pytest.raises(openstack.exceptions.SDKException, match="without being allocated an IP address"):
            demo.create_server("bare", image="cirros", flavor="m1.nano", wait=True, auto_ip=False, timeout=60)
        wait_for("the server is deleted again", lambda: demo.get_server("bare") is None)
        demo.close()


def test_a_failed_build_says_why(demo: Connection) -> None:
    with pytest.raises(openstack.exceptions.SDKException, match="No valid host"):
        demo.create_server("huge", image="cirros", flavor="m1.huge", wait=True, auto_ip=False, timeout=60)
    demo.delete_server("huge", wait=True, timeout=60)
