"""Servers on a real Neutron, with real guests: devstack/test-neutron.sh stacks a cloud for this.

Where the machine is no cloud with NETWORK=neutron these tests are skipped.
"""

from __future__ import annotations

import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import openstack
import pytest

SETTINGS = Path("/etc/nova-lite/devstack.env")

pytestmark = [
    pytest.mark.skipif(
        not SETTINGS.exists() or "NETWORK=neutron" not in SETTINGS.read_text(),
        reason="this machine is not stacked with NETWORK=neutron (devstack/test-neutron.sh)",
    ),
    pytest.mark.timeout(900),
]

SECONDS = 240
FLAVOR, IMAGE, NETWORK = "m1.nano", "nova-lite-guest", "private"

T = TypeVar("T")


def poll(what: str, probe: Callable[[], T | None]) -> T:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        found = probe()
        if found:
            return found
        time.sleep(0.5)
    raise AssertionError(f"gave up waiting for {what}")


class Demo:
    """The project demo, through the real clients' library. ``admin`` sees all ports."""

    def __init__(self) -> None:
        self.cloud: Any = openstack.connect(cloud="nova-lite-demo")
        self.admin: Any = openstack.connect(cloud="nova-lite")
        self.compute, self.network = self.cloud.compute, self.cloud.network
        self.made: list[str] = []

    def boot(self, networks: Any = None, **more: Any) -> Any:
        image, flavor = self.cloud.image.find_image(IMAGE), self.compute.find_flavor(FLAVOR)
        networks = networks or [{"uuid": self.network.find_network(NETWORK).id}]
        name = f"neutron-{uuid.uuid4().hex[:8]}"
        server = self.compute.create_server(
            name=name, image_id=image.id, flavor_id=flavor.id, networks=networks, **more
        )
        self.made.append(server.id)
        return self.active(server.id)

    def active(self, server_id: str) -> Any:
        def probe() -> Any:
            server = self.compute.get_server(server_id)
            assert server.status != "ERROR", server.fault
            return server if server.status == "ACTIVE" and server.task_state is None else None

        return poll("the server to be ACTIVE", probe)

    def ports(self, server_id: str) -> list[Any]:
        return list(self.admin.network.ports(device_id=server_id))

    def console(self, server: Any, text: str) -> str:
        def probe() -> str | None:
            output: str = self.compute.get_server_console_output(server.id)["output"]
            return output if text in output else None

        return poll(f"the console to show {text!r}", probe)

    def delete(self, server_id: str) -> None:
        self.compute.delete_server(server_id, ignore_missing=True)
        gone = lambda: self.compute.find_server(server_id, ignore_missing=True) is None  # noqa: E731
        poll("the server to be gone", gone)


@pytest.fixture
def demo() -> Iterator[Demo]:
    made = Demo()
    yield made
    for server_id in made.made:
        made.delete(server_id)
        poll("its ports to be gone", lambda item=server_id: not made.ports(item))


def address(server: Any) -> str:
    ((entry,),) = server.addresses.values()
    return str(entry["addr"])


def pings(network_id: str, target: str) -> bool:
    """Ping from the namespace of the network's DHCP agent, a neighbour of the guest."""
    command = ["ip", "netns", "exec", f"qdhcp-{network_id}", "ping", "-c", "1", "-W", "2", target]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "No such file" not in done.stderr, done.stderr
    return done.returncode == 0


def test_a_server_gets_its_address_and_leaves_no_port(demo: Demo) -> None:
    server = demo.boot()
    (port,) = demo.ports(server.id)
    assert (port.status, port.binding_vif_type) == ("ACTIVE", "bridge")
    assert [fixed_ip["ip_address"] for fixed_ip in port.fixed_ips] == [address(server)]
    assert server.security_groups == [{"name": "default"}]
    demo.console(server, f"nova-lite-guest: instance={server.id} hostname={server.name} ip={address(server)}")
    demo.delete(server.id)
    poll("its port to be gone", lambda: not demo.ports(server.id))


def test_security_groups_are_neutrons(demo: Demo) -> None:
    """The default group lets ping in; one without rules lets in nothing."""
    shut = demo.network.create_security_group(name=f"shut-{uuid.uuid4().hex[:8]}")
    server = demo.boot()
    network_id = demo.network.find_network(NETWORK).id
    demo.console(server, "nova-lite-guest:")
    poll("the guest to be reached", lambda: pings(network_id, address(server)))
    demo.compute.add_security_group_to_server(server, shut)
    demo.compute.remove_security_group_from_server(server, demo.network.find_security_group("default"))
    assert [group["name"] for group in demo.compute.get_server(server.id).security_groups] == [shut.name]
    poll("the guest not to be reached", lambda: not pings(network_id, address(server)))
    demo.delete(server.id)
    demo.network.delete_security_group(shut)


def test_a_users_port_outlives_its_server(demo: Demo) -> None:
    port = demo.network.create_port(network_id=demo.network.find_network(NETWORK).id)
    server = demo.boot([{"port": port.id}])
    assert address(server) == port.fixed_ips[0]["ip_address"]
    demo.delete(server.id)
    kept = poll("the port to be free", lambda: (found := demo.network.get_port(port.id)).device_id == "" and found)
    assert kept.id == port.id
    demo.network.delete_port(port)


def test_interfaces_come_and_go(demo: Demo) -> None:
    server = demo.boot()
    (first,) = demo.ports(server.id)
    made = demo.compute.create_server_interface(server, net_id=demo.network.find_network(NETWORK).id)
    poll("the interface", lambda: len(demo.ports(server.id)) == 2 and demo.active(server.id))
    poll("it to be connected", lambda: demo.admin.network.get_port(made.port_id).status == "ACTIVE")
    assert {server_interface.port_id for server_interface in demo.compute.server_interfaces(server)} == {
        first.id,
        made.port_id,
    }
    demo.compute.delete_server_interface(made.port_id, server=server)
    poll("one port", lambda: [port.id for port in demo.ports(server.id)] == [first.id])


def test_neutron_ports_belong_to_neutron_and_nova_is_notified(demo: Demo) -> None:
    """The catalog's network service is Neutron. Of the daemons only the conductor has its credentials."""
    assert demo.network.find_extension("agent") is not None
    assert demo.compute.get("/os-security-groups", microversion="2.1").status_code == 501
    told = [path.name for path in SETTINGS.parent.glob("*.conf") if "[neutron]" in path.read_text().splitlines()]
    assert told == ["conductor.conf"]


def test_a_network_that_is_not_there(demo: Demo) -> None:
    with pytest.raises(openstack.exceptions.BadRequestException, match="could not be found"):
        demo.boot([{"uuid": str(uuid.uuid4())}])
