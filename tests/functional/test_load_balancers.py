"""Load balancers by openstacksdk, which finds the API in the catalog, with all daemons and two hosts."""

from __future__ import annotations

from collections.abc import Iterator

import openstack.exceptions
import pytest
from openstack.connection import Connection

from tests.functional import cloud as clouds
from tests.functional.cloud import Cloud
from tests.functional.sdk import connect
from tests.support.waiting import wait_for

OPTIONS = """
[DEFAULT]
wings = load_balancer
[load_balancer]
lease = 6
[api]
enabled_apis = osapi_compute, identity, image, volume, network, load_balancer
"""


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    path = tmp_path_factory.mktemp("load-balancers")
    with clouds.running(path, computes=2, standalone=True, extra_config=OPTIONS) as running:
        yield running


@pytest.fixture(scope="module")
def demo(cloud: Cloud) -> Connection:
    return connect(cloud, "demo")


def test_load_balancer_is_made_used_and_fails_over(cloud: Cloud, demo: Connection) -> None:
    api = demo.load_balancer
    (network,) = (one for one in demo.network.networks() if one.name == "private")
    assert {provider.name for provider in api.providers()} == {"haproxy", "amphora", "octavia"}
    made = api.create_load_balancer(name="web", vip_subnet_id=network.subnet_ids[0])

    def ready() -> bool:
        return api.get_load_balancer(made.id).provisioning_status == "ACTIVE"

    wait_for("the load balancer is ACTIVE", ready, 60, 0.3)
    listener = api.create_listener(
        load_balancer_id=made.id, name="http", protocol="HTTP", protocol_port=80, allowed_cidrs=["10.0.0.0/8"]
    )
    with pytest.raises(openstack.exceptions.ConflictException, match="immutable"):
        for _ in range(20):  # unless the host was quicker
            api.update_listener(listener.id, name="other")
    wait_for("the listener is there", ready, 60, 0.3)
    pool = api.create_pool(listener_id=listener.id, protocol="HTTP", lb_algorithm="ROUND_ROBIN", name="servers")
    wait_for("the pool is there", ready, 60, 0.3)
    member = api.create_member(pool, address="10.0.0.77", protocol_port=8080, weight=3)
    wait_for("the member is there", ready, 60, 0.3)
    api.create_health_monitor(pool_id=pool.id, type="HTTP", delay=5, timeout=3, max_retries=2, url_path="/health")
    wait_for("the monitor is there", ready, 60, 0.3)
    assert [one.id for one in api.members(pool)] == [member.id]
    assert [one.id for one in api.listeners(load_balancer_id=made.id)] == [listener.id]
    assert api.get_load_balancer_statistics(made.id).total_connections == 0
    port = demo.network.get_port(made.vip_port_id)
    assert (port.device_owner, port.device_id) == ("Octavia", f"lb-{made.id}")
    admin = connect(cloud, "admin")
    host = admin.network.get_port(made.vip_port_id).binding_host_id
    assert host in cloud.computes
    cloud.kill(host)
    other = next(name for name in cloud.computes if name != host)
    wait_for("the other host has it", lambda: admin.network.get_port(port.id).binding_host_id == other, 90, 0.5)
    api.delete_load_balancer(made.id, cascade=True)
    wait_for("it is gone", lambda: api.find_load_balancer(made.id) is None, 60, 0.3)
    assert demo.network.find_port(port.id) is None
    with pytest.raises(openstack.exceptions.NotFoundException):
        connect(cloud, "other").load_balancer.get_load_balancer(made.id)
