"""Servers on a real Neutron, with real guests: devstack/test-neutron.sh stacks a cloud for this.

Where the machine is no cloud with NETWORK=neutron these tests are skipped.
"""

from __future__ import annotations

import base64
import contextlib
import json
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import openstack
import pytest

from tests.support.waiting import wait_for

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

#: Reports what a neighbour reaches, whenever this changes.
WATCH = """
while :; do
    ping=no tcp=none
    ping -c 1 -W 1 TARGET >/dev/null 2>&1 && ping=yes && tcp=$(nc -w 2 TARGET 22 </dev/null 2>/dev/null)
    now="ping $ping, tcp ${tcp:-none}"
    [ "$now" = "$was" ] || echo "TARGET: $now"
    was=$now
    sleep 1
done
"""

T = TypeVar("T")


def script(text: str) -> str:
    """Return user data that a guest runs."""
    return base64.b64encode(f"#!/bin/sh\n{text}\n".encode()).decode()


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

        return wait_for("the server to be ACTIVE", probe, SECONDS, 0.5)

    def ports(self, server_id: str) -> list[Any]:
        return list(self.admin.network.ports(device_id=server_id))

    def console(self, server: Any, text: str) -> str:
        def probe() -> str | None:
            output: str = self.compute.get_server_console_output(server.id)["output"]
            return output if text in output else None

        return wait_for(f"the console to show {text!r}", probe, SECONDS, 0.5)

    def watch(self, target: str, networks: Any = None) -> Any:
        """Boot a neighbour whose console shows what it reaches of the target."""
        return self.boot(networks, user_data=script(WATCH.replace("TARGET", target)))

    def reported(self, neighbour: Any, text: str) -> None:
        """Wait until the last report of the neighbour ends with this text."""

        def probe() -> bool:
            output: str = self.compute.get_server_console_output(neighbour.id)["output"]
            reports = [line for line in output.splitlines() if ": ping " in line]
            return bool(reports) and reports[-1].endswith(text)

        wait_for(f"the neighbour to report {text!r}", probe, SECONDS, 0.5)

    def subnet_of(self, name: str) -> Any:
        return next(iter(self.admin.network.subnets(network_id=self.network.find_network(name).id)))

    @contextlib.contextmanager
    def routed_network(self, cidr: str) -> Iterator[tuple[Any, Any]]:
        """Make a network of the project's own, and a router with an interface in it."""
        network = self.network.create_network(name=f"own-{uuid.uuid4().hex[:8]}")
        subnet = self.network.create_subnet(network_id=network.id, ip_version=4, cidr=cidr)
        router = self.network.create_router(name=network.name)
        self.network.add_interface_to_router(router, subnet_id=subnet.id)
        try:
            yield network, router
        finally:
            for port in list(self.admin.network.ports(device_id=router.id)):
                self.admin.network.remove_interface_from_router(router, port_id=port.id)
            self.network.delete_router(router)
            self.network.delete_network(network)

    def delete(self, server_id: str) -> None:
        self.compute.delete_server(server_id, ignore_missing=True)
        gone = lambda: self.compute.find_server(server_id, ignore_missing=True) is None  # noqa: E731
        wait_for("the server to be gone", gone, SECONDS, 0.5)
        wait_for("its ports to be gone", lambda: not self.ports(server_id), SECONDS, 0.5)


@pytest.fixture
def demo() -> Iterator[Demo]:
    made = Demo()
    yield made
    for server_id in made.made:
        made.delete(server_id)


def address(server: Any) -> str:
    ((entry,),) = server.addresses.values()
    return str(entry["addr"])


def rows(server: Any) -> list[dict[str, str]]:
    """Return Open vSwitch's records of the ports of a server, in the order of their names."""
    columns = ["ovs-vsctl", "--format=json", "--columns=external_ids", "find", "Interface"]
    done = subprocess.run([*columns, f"external_ids:vm-id={server.id}"], capture_output=True, text=True, check=True)
    return [dict(ids[1]) for (ids,) in json.loads(done.stdout)["data"]]


def test_a_server_gets_its_address_and_leaves_no_port(demo: Demo) -> None:
    server = demo.boot()
    (port,) = demo.ports(server.id)
    assert (port.status, port.binding_vif_type) == ("ACTIVE", "ovs")
    assert [fixed_ip["ip_address"] for fixed_ip in port.fixed_ips] == [address(server)]
    assert server.security_groups == [{"name": "default"}]
    (row,) = rows(server)
    assert (row["iface-id"], row["attached-mac"], row["ovn-installed"]) == (port.id, port.mac_address, "true")
    tap = Path(f"/sys/class/net/tap{port.id[:11]}")
    assert int((tap / "mtu").read_text()) == demo.network.get_network(port.network_id).mtu < 1500
    demo.console(server, f"nova-lite-guest: instance={server.id} hostname={server.name} ip={address(server)}")
    demo.delete(server.id)
    assert (rows(server), tap.exists()) == ([], False)


def test_security_groups_are_neutrons(demo: Demo) -> None:
    """The default group lets ping and SSH in; one without rules lets in nothing."""
    shut = demo.network.create_security_group(name=f"shut-{uuid.uuid4().hex[:8]}")
    server = demo.boot(user_data=script("while :; do echo hello | nc -l -p 22; done"))
    neighbour = demo.watch(address(server))
    demo.reported(neighbour, "ping yes, tcp hello")
    demo.compute.add_security_group_to_server(server, shut)
    demo.compute.remove_security_group_from_server(server, demo.network.find_security_group("default"))
    assert [group["name"] for group in demo.compute.get_server(server.id).security_groups] == [shut.name]
    demo.reported(neighbour, "ping no, tcp none")
    demo.delete(server.id)
    demo.network.delete_security_group(shut)


def test_networks_meet_where_a_router_connects_them(demo: Demo) -> None:
    server = demo.boot()
    with demo.routed_network(cidr="192.168.93.0/24") as (network, router):
        neighbour = demo.watch(address(server), [{"uuid": network.id}])
        demo.reported(neighbour, "ping no, tcp none")
        inside = demo.subnet_of(NETWORK)
        gateway = demo.admin.network.create_port(
            network_id=inside.network_id, fixed_ips=[{"ip_address": inside.gateway_ip}]
        )
        demo.admin.network.add_interface_to_router(router, port_id=gateway.id)
        demo.reported(neighbour, "ping yes, tcp none")
        demo.delete(neighbour.id)


def test_a_users_port_outlives_its_server(demo: Demo) -> None:
    port = demo.network.create_port(network_id=demo.network.find_network(NETWORK).id)
    server = demo.boot([{"port": port.id}])
    assert address(server) == port.fixed_ips[0]["ip_address"]
    demo.delete(server.id)
    kept = wait_for(
        "the port to be free", lambda: (found := demo.network.get_port(port.id)).device_id == "" and found, SECONDS, 0.5
    )
    assert kept.id == port.id
    demo.network.delete_port(port)


def test_interfaces_come_and_go(demo: Demo) -> None:
    server = demo.boot()
    (first,) = demo.ports(server.id)
    made = demo.compute.create_server_interface(server, net_id=demo.network.find_network(NETWORK).id)
    wait_for("the interface", lambda: len(demo.ports(server.id)) == 2 and demo.active(server.id), SECONDS, 0.5)
    wait_for("it to be connected", lambda: demo.admin.network.get_port(made.port_id).status == "ACTIVE", SECONDS, 0.5)
    assert {row["iface-id"] for row in rows(server)} == {first.id, made.port_id}
    assert {server_interface.port_id for server_interface in demo.compute.server_interfaces(server)} == {
        first.id,
        made.port_id,
    }
    demo.compute.delete_server_interface(made.port_id, server=server)
    wait_for("one port", lambda: [port.id for port in demo.ports(server.id)] == [first.id], SECONDS, 0.5)
    assert [row["iface-id"] for row in rows(server)] == [first.id]


def test_port_that_a_crash_has_left_goes_with_its_server(demo: Demo) -> None:
    """Open vSwitch keeps ports over a crash of the host; libvirt removes only those of guests that it ends."""
    server = demo.boot()
    (port,) = demo.ports(server.id)
    demo.compute.stop_server(server)
    wait_for("the server to be off", lambda: demo.compute.get_server(server.id).status == "SHUTOFF", SECONDS, 0.5)
    assert rows(server) == []
    ids = [f"external_ids:iface-id={port.id}", f"external_ids:vm-id={server.id}"]
    tap = f"tap{port.id[:11]}"
    subprocess.run(
        ["ovs-vsctl", "--no-wait", "add-port", "br-int", tap, "--", "set", "Interface", tap, *ids], check=True
    )
    demo.delete(server.id)
    wait_for("the port to be gone from Open vSwitch", lambda: not rows(server), SECONDS, 0.5)


def test_neutron_ports_belong_to_neutron_and_nova_is_notified(demo: Demo) -> None:
    """The catalog's network service is Neutron. Of the daemons only the conductor has its credentials."""
    assert demo.network.find_extension("agent") is not None
    assert demo.compute.get("/os-security-groups", microversion="2.1").status_code == 501
    told = [path.name for path in SETTINGS.parent.glob("*.conf") if "[neutron]" in path.read_text().splitlines()]
    assert told == ["conductor.conf"]


def test_a_network_that_is_not_there(demo: Demo) -> None:
    with pytest.raises(openstack.exceptions.BadRequestException, match="could not be found"):
        demo.boot([{"uuid": str(uuid.uuid4())}])
