"""Networks of a host: their realms, bridges and DHCP servers, with a kernel in memory."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nova_lite.base import exceptions
from nova_lite.objects import HostRouter, Network
from nova_lite.virt.libvirt.net import dhcp, names, namespaces, networks, nft, realms
from nova_lite.virt.libvirt.net.networks import HostNetworks
from tests.support.config_drives import make_conf
from tests.support.guests import make_network, make_vif
from tests.unit.virt.libvirt.net.kernel import Kernel, Libvirt

ONE = make_network(
    id="net-1", bridge="br1", cidr="10.1.0.0/24", gateway="10.1.0.1", vni=101, project_id="p", needs_router=True
)
TWO = make_network(
    id="net-2", bridge="br2", cidr="10.2.0.0/24", gateway="10.2.0.1", vni=102, project_id="p", needs_router=True
)
OPEN = make_network(id="net-3", bridge="br3", cidr="10.3.0.0/24", gateway="10.3.0.1")
ROUTER = HostRouter(id="r", networks=[ONE, TWO], external=True)


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(tmp_path, monkeypatch)


@pytest.fixture
def libvirtd() -> Libvirt:
    return Libvirt()


def make(libvirtd: Libvirt, check_seconds: float = 0.0, **options: Any) -> HostNetworks:
    conf = make_conf()
    for name, value in options.items():
        conf.set_override(name, value, "network")
    return HostNetworks(conf, libvirtd, "h1", check_seconds)  # type: ignore[arg-type]


@pytest.fixture
def host(kernel: Kernel, libvirtd: Libvirt) -> HostNetworks:
    return make(libvirtd)


def plug(host: HostNetworks, network: Network) -> bool:
    return host.plug(make_vif(network=network), "web")


def test_network_without_a_router_has_a_realm_of_its_own(host: HostNetworks, kernel: Kernel, libvirtd: Libvirt) -> None:
    assert plug(host, ONE)
    assert (realms.realm_of(ONE.id), kernel.namespaces) == (ONE.id, {"nl-net-1"})
    assert realms.network_on("br1") == ONE.id
    assert realms.members("br1") == {names.gateway_name(ONE.id)}
    assert kernel.running == {dhcp.RESOLVER: None, "nova-lite-net-1": ONE.id}
    assert "address replace 10.1.0.1/24 dev br1 broadcast +" in kernel.lines["nl-net-1"]
    assert "chain sent {\n    reject" in kernel.table_of("nl-net-1", names.network_table(ONE.id))
    assert libvirtd.networks["nova-lite-net-1"].isActive(), "definitions of guests of older versions name it"
    done = [*kernel.lines[None]]
    assert plug(host, ONE)
    assert kernel.lines[None] == done, "all is there"


def test_gateway_has_the_same_mac_address_on_all_hosts_and_in_all_realms(host: HostNetworks, kernel: Kernel) -> None:
    plug(host, ONE)
    plug(host, OPEN)
    made = [line for line in kernel.lines[None] if "type veth" in line and "name nlg" in line]
    assert [line.split()[-3] for line in made] == ["fa:16:3f:00:00:65", "fa:16:3f:00:00:00"]


def test_networks_of_a_router_meet_in_its_realm(host: HostNetworks, kernel: Kernel) -> None:
    host.set_routers([ROUTER])
    assert plug(host, ONE) and host.start(TWO)
    assert {realms.realm_of(network.id) for network in (ONE, TWO)} == {"r"}
    assert kernel.namespaces == {"nl-r"}
    assert 'oifname { "br2" } accept' in kernel.table_of("nl-r", names.network_table(ONE.id))


def test_network_moves_when_its_router_comes_and_goes(host: HostNetworks, kernel: Kernel) -> None:
    plug(host, ONE)
    host.route([ROUTER])
    assert (realms.realm_of(ONE.id), kernel.running["nova-lite-net-1"]) == ("r", "r")
    assert kernel.namespaces == {"nl-r"}, "its own realm is empty and removed"
    assert 'oifname "nlup" accept' in kernel.table_of("nl-r", names.network_table(ONE.id))
    host.start(TWO)
    host.route([msgspec.structs.replace(ROUTER, networks=[TWO])])
    assert (realms.realm_of(ONE.id), kernel.running["nova-lite-net-1"]) == (ONE.id, ONE.id)
    assert realms.realm_of(TWO.id) == "r"
    assert kernel.namespaces == {"nl-r", "nl-net-1"}
    table = f"inet {names.network_table(ONE.id)}"
    assert ("nl-r", f"add table {table}\ndelete table {table}\n") in kernel.tables, "it is gone from the router's realm"
    host.route([])
    assert realms.realm_of(TWO.id) == "r", "no guest of this daemon is on it"


def test_network_is_moved_with_its_routers_static_routes_and_neighbours(host: HostNetworks, kernel: Kernel) -> None:
    plug(host, ONE)
    neighbours = {"10.1.0.5": "fa:16:3e:00:00:05"}
    host.route([msgspec.structs.replace(ROUTER, neighbours={ONE.id: neighbours})])
    assert kernel.lines["nl-r"][-1] == "neigh replace 10.1.0.5 lladdr fa:16:3e:00:00:05 dev br1 nud permanent"


def test_unchanged_router_is_carried_out_once_in_a_while(kernel: Kernel, libvirtd: Libvirt) -> None:
    host = make(libvirtd, check_seconds=3600.0)
    plug(host, ONE)
    host.route([ROUTER])
    shown = len(kernel.commands)
    host.route([ROUTER])
    assert len(kernel.commands) == shown
    host.route([msgspec.structs.replace(ROUTER, neighbours={ONE.id: {"10.1.0.5": "fa:16:3e:00:00:05"}})])
    assert len(kernel.commands) > shown


def test_unchanged_routers_are_carried_out_again_a_few_at_a_time_in_turn(
    host: HostNetworks, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    monkeypatch.setattr(networks, "_carry_out", lambda router: done.append(router.id) or True)
    routers = [msgspec.structs.replace(ROUTER, id=f"r{number:02}", networks=[]) for number in range(20)]
    host.route(routers)
    assert len(done) == 20
    for first in (0, 8, 16):
        done.clear()
        host.route(routers)
        assert set(done) == {f"r{number % 20:02}" for number in range(first, first + 8)}


def test_realm_that_another_daemon_has_chosen_stays(host: HostNetworks, kernel: Kernel, libvirtd: Libvirt) -> None:
    """The other daemon may know the router first."""
    host.set_routers([ROUTER])
    plug(host, ONE)
    other = make(libvirtd)
    assert plug(other, ONE)
    assert realms.realm_of(ONE.id) == "r" and kernel.namespaces == {"nl-r"}
    assert other.managed([make_vif(network=ONE)]) == {ONE.id}


def test_bridge_of_the_operator_is_used_unchanged(host: HostNetworks, kernel: Kernel) -> None:
    kernel.bridge("br1", "eth1")
    assert not plug(host, ONE)
    assert not host.start(ONE)
    assert (kernel.lines, kernel.namespaces, kernel.running) == ({}, set(), {})
    assert host.managed([make_vif(network=ONE)]) == set()


@pytest.mark.parametrize("own", [["10.1.0.1/24"], ["192.0.2.1/24", "10.1.0.9/16"]])
def test_bridge_of_the_operator_may_have_addresses(host: HostNetworks, kernel: Kernel, own: list[str]) -> None:
    kernel.bridge("br1")
    show_addresses(kernel, own)
    assert not plug(host, ONE)


def show_addresses(kernel: Kernel, addresses: list[str]) -> None:
    found = [dict(zip(("local", "prefixlen"), address.split("/"), strict=True)) for address in addresses]
    kernel.shown["ip -json -4 address show dev br1"] = msgspec.json.encode([{"addr_info": found}]).decode()


def test_bridge_with_another_subnet_is_refused(host: HostNetworks, kernel: Kernel) -> None:
    kernel.bridge("br1")
    show_addresses(kernel, ["10.9.0.1/24"])
    text = "bridge br1 exists with 10.9.0.1/24, and network private has 10.1.0.0/24"
    with pytest.raises(exceptions.VirtDriverError, match=text):
        plug(host, ONE)


def test_bridge_of_another_network_is_refused(host: HostNetworks, kernel: Kernel) -> None:
    plug(host, OPEN)
    same = msgspec.structs.replace(ONE, bridge="br3")
    with pytest.raises(
        exceptions.VirtDriverError, match="bridge br3 of network private belongs to network net-3"
    ) as caught:
        plug(host, same)
    assert caught.value.message.endswith("ip link delete br3")


def test_network_that_fails_does_not_stop_the_others(
    host: HostNetworks, kernel: Kernel, caplog: pytest.LogCaptureFixture
) -> None:
    kernel.broken = f"link add name {names.new_name(ONE.id)}"
    vifs = [make_vif(network=network) for network in (ONE, TWO)]
    assert host.init_host(vifs) == {TWO.id}
    assert f"Network {ONE.id} of guests is not restored: " in caplog.text
    kernel.broken = None
    assert plug(host, ONE)
    kernel.broken = f"name {names.gateway_name(ONE.id)} "
    host.route([ROUTER])
    assert f"Network {ONE.id} is not routed: " in caplog.text
    assert (realms.realm_of(ONE.id), realms.realm_of(TWO.id)) == (None, "r")
    kernel.broken = None
    host.route([ROUTER])
    assert realms.realm_of(ONE.id) == "r", "the next attempt completes it"


def test_port_of_neutron_or_a_device_of_the_host_needs_no_network(
    host: HostNetworks, kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugged: list[str] = []
    monkeypatch.setattr(networks.neutron, "plug", lambda vif: plugged.append(vif.id))
    vif = make_vif(network=ONE, vif_type="ovs")
    assert not host.plug(vif, "web")
    assert (plugged, kernel.lines) == ([vif.id], {})
    assert host.init_host([vif]) == set() and kernel.namespaces == set()


def test_changed_settings_reach_the_gateway_and_dnsmasq(
    host: HostNetworks, kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    reloaded: list[str] = []
    monkeypatch.setattr(dhcp, "reload", reloaded.append)
    host.update(ONE)
    assert kernel.lines == {}, "no guest is on it"
    plug(host, ONE)
    reloaded.clear()
    host.update(ONE)
    assert reloaded == []
    host.update(msgspec.structs.replace(ONE, dns=["9.9.9.10"]))
    assert reloaded == ["nova-lite-net-1"]
    changed = msgspec.structs.replace(ONE, gateway="10.1.0.254", mtu=1400, dns=["9.9.9.9"])
    host.update(changed)
    assert kernel.lines["nl-net-1"][-3:] == [
        "link set dev br1 mtu 1400",
        "address replace 10.1.0.254/24 dev br1 broadcast +",
        "address delete 10.1.0.1/24 dev br1",
    ]
    assert {f"link set dev {name} mtu 1400" for name in (names.gateway_name(ONE.id), "br1")} <= {*kernel.lines[None]}
    host.update(changed)
    assert Path(dhcp.path_of("nova-lite-net-1", "servers")).read_text() == "server=/openstacklocal/\nserver=9.9.9.9\n"


def test_guests_without_snat_and_on_networks_of_the_operator_are_reached_from_the_host(
    host: HostNetworks, kernel: Kernel
) -> None:
    plug(host, OPEN)
    way = f"via 169.254.192.2 dev {names.uplink_name(OPEN.id)}"
    assert kernel.lines[None][-1] == f"route replace 10.3.0.0/24 {way}"
    table = f"table inet {names.links_table('h1')}"
    assert "set closed4 { type ipv4_addr; flags interval; auto-merge; elements = { 10.3.0.0/24 }; }" in kernel.table_of(
        None, table
    )
    plug(host, ONE)
    assert not any("10.1.0.0/24" in line for line in kernel.lines[None])
    host.route([msgspec.structs.replace(ROUTER, snat=False)])
    assert f"route replace 10.1.0.0/24 via 169.254.192.4 dev {names.uplink_name('r')}" in kernel.lines[None]
    assert "set open4 { type ipv4_addr; flags interval; auto-merge; elements = { 10.1.0.0/24 }; }" in kernel.table_of(
        None, table
    )
    host.route([])
    assert any(line.startswith("route delete 10.1.0.0/24 ") for line in kernel.lines[None])


def test_host_filters_an_uplink_before_its_realm_exists(
    host: HostNetworks, kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    place = host._realms.place

    def watched(network: Network, realm_id: str) -> bool:
        seen.append(kernel.table_of(None, f"table inet {names.links_table('h1')}"))
        return place(network, realm_id)

    monkeypatch.setattr(host._realms, "place", watched)
    plug(host, ONE)
    (table,) = seen
    assert f'set uplinks {{ type ifname; elements = {{ "{names.uplink_name(ONE.id)}" }}; }}' in table


def test_network_that_another_daemon_has_removed_is_published_no_more(host: HostNetworks, kernel: Kernel) -> None:
    plug(host, OPEN)
    kernel.run("ip", "-batch", "-", text=f"link delete dev {names.gateway_name(OPEN.id)}\n")
    realms.Realms(host.numbers).remove(OPEN.id)
    done = len(kernel.lines[None])
    plug(host, ONE)
    assert not any(line.startswith("route replace 10.3.0.0/24") for line in kernel.lines[None][done:])
    assert "10.3.0.0/24" not in kernel.table_of(None, f"table inet {names.links_table('h1')}")


def test_range_that_the_machine_has_itself_stays_its_own(
    host: HostNetworks, kernel: Kernel, caplog: pytest.LogCaptureFixture
) -> None:
    kernel.shown["ip -json -4 route show 10.3.0.0/24"] = '[{"dst": "10.3.0.0/24", "dev": "eth0"}]'
    assert plug(host, OPEN)
    assert "This machine does not reach guests of 10.3.0.0/24: it has that range on eth0" in caplog.text
    assert not any(line.startswith("route replace 10.3.0.0/24") for line in kernel.lines[None])


def test_realm_that_another_daemon_has_removed_gets_its_table_again(host: HostNetworks, kernel: Kernel) -> None:
    plug(host, ONE)
    kernel.run("ip", "-batch", "-", text=f"link delete dev {names.gateway_name(ONE.id)}\n")
    realms.Realms(host.numbers).remove(ONE.id)
    kernel.tables.clear()
    plug(host, ONE)
    assert "chain sent" in kernel.table_of("nl-net-1", names.network_table(ONE.id))


def test_table_of_the_host_that_somebody_removed_is_loaded_again(
    host: HostNetworks, kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    plug(host, ONE)
    kernel.tables.clear()
    host.restore()
    table = names.links_table("h1")
    assert kernel.tables == [(None, f"list chain inet {table} forward\n")]
    monkeypatch.setattr(nft, "run", lambda text: "nft: No such file or directory")
    host.restore()
    assert "chain forward" in kernel.table_of(None, f"table inet {table}")


def test_guests_of_a_former_network_follow_and_learn_their_gateways_address(
    host: HostNetworks, kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    announced: list[tuple[str, str]] = []
    monkeypatch.setattr(networks, "_announce", lambda network, realm_id: announced.append((network.id, realm_id)))
    monkeypatch.setattr(networks.former_networks, "take_over", lambda connection, network: {"tap1", "tap0"})
    plug(host, ONE)
    assert {"tap0", "tap1"} < realms.members("br1")
    assert announced == [(ONE.id, ONE.id)]


def test_process_that_has_ended_starts_again(host: HostNetworks, kernel: Kernel) -> None:
    host.restore()
    assert kernel.running == {}, "no network is here"
    plug(host, ONE)
    kernel.running.clear()
    host.restore()
    assert kernel.running == {dhcp.RESOLVER: None, "nova-lite-net-1": ONE.id}


def test_dhcp_server_that_has_ended_is_reported_and_starts_again_without_systemd(
    host: HostNetworks, kernel: Kernel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plug(host, ONE)
    host.watch()
    assert caplog.text == ""
    del kernel.running["nova-lite-net-1"]
    monkeypatch.setattr(namespaces, "has_manager", lambda: True)
    host.watch()
    assert "nova-lite-net-1" not in kernel.running, "systemd does it"
    monkeypatch.setattr(namespaces, "has_manager", lambda: False)
    host.watch()
    assert "nova-lite-net-1" in kernel.running
    assert f"The DHCP server of network {ONE.id} has ended and starts again" in caplog.text


def test_dhcp_server_that_does_not_start_keeps_no_other_from_it(
    host: HostNetworks, kernel: Kernel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plug(host, ONE)
    plug(host, TWO)
    kernel.running.clear()
    run = dhcp.run

    def fail(name: str, text: str, realm_id: str | None) -> None:
        if name == "nova-lite-net-1":
            raise exceptions.VirtDriverError(reason="dnsmasq cannot be run")
        run(name, text, realm_id)

    monkeypatch.setattr(dhcp, "run", fail)
    host.watch()
    assert "Network net-1 of this host is not restored: " in caplog.text and "dnsmasq cannot be run" in caplog.text
    assert "nova-lite-net-2" in kernel.running


def test_failed_repair_is_logged(
    host: HostNetworks, kernel: Kernel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*arguments: Any) -> None:
        raise exceptions.VirtDriverError(reason="dnsmasq cannot be run")

    plug(host, ONE)
    monkeypatch.setattr(dhcp, "run", fail)
    host.restore()
    assert "Networks of this host are not restored: " in caplog.text and "dnsmasq cannot be run" in caplog.text


def test_links_are_accepted_before_rules_of_other_programs(host: HostNetworks, kernel: Kernel) -> None:
    show, load = "iptables --wait -S FORWARD", "iptables-restore --noflush --wait"
    kernel.shown[show] = f"-P FORWARD DROP\n-A FORWARD -j DOCKER\n-A FORWARD -j {names.CHAIN}\n"
    plug(host, ONE)
    assert load in kernel.commands
    kernel.commands.clear()
    kernel.shown[show] = f"-P FORWARD DROP\n-A FORWARD -j {names.CHAIN}\n-A FORWARD -j DOCKER\n"
    host.restore()
    assert show in kernel.commands and load not in kernel.commands


@pytest.mark.parametrize(
    ("service", "changes", "serves"),
    [
        (True, {}, True),
        (True, {"gateway": None}, False),
        (True, {"enable_dhcp": False}, False),
        (False, {}, False),
    ],
)
def test_metadata_service_needs_a_gateway_and_dhcp(
    libvirtd: Libvirt, service: bool, changes: dict[str, Any], serves: bool
) -> None:
    assert make(libvirtd, metadata_service=service).serves(msgspec.structs.replace(ONE, **changes)) is serves


def test_metadata_service_needs_nft(kernel: Kernel, libvirtd: Libvirt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nft, "run", lambda text: "nft cannot be run: No such file or directory")
    with pytest.raises(exceptions.ConfigurationError, match="metadata_service: nft cannot be run"):
        make(libvirtd, metadata_service=True).init_host([])
    assert make(libvirtd, metadata_service=False).init_host([]) == set()


def test_each_network_has_a_socket_for_metadata_in_its_realm(
    kernel: Kernel, libvirtd: Libvirt, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made: list[tuple[str, str, socket.socket]] = []

    def listen(network: Network, realm_id: str) -> socket.socket:
        if network.id == "net-3":
            raise OSError(98, "Address already in use")
        made.append((network.id, realm_id, socket.socket()))
        return made[-1][2]

    monkeypatch.setattr(networks, "_listen", listen)
    host = make(libvirtd, metadata_service=True)
    for network in (ONE, TWO, OPEN):
        plug(host, network)
    found = host.metadata_sockets()
    assert found == {ONE.id: made[0][2], TWO.id: made[1][2]}
    assert host.metadata_sockets() == found and len(made) == 2
    assert caplog.text.count("Network net-3 has no metadata service: [Errno 98]") == 1
    host.route([ROUTER])
    assert set(host.metadata_sockets()) == {ONE.id, TWO.id}
    assert [item[:2] for item in made[2:]] == [(ONE.id, "r"), (TWO.id, "r")]
    assert made[0][2].fileno() == -1, "that of the former realm is closed"
    host.update(msgspec.structs.replace(ONE, gateway=None))
    assert set(host.metadata_sockets()) == {TWO.id}


def test_unplugged_interface_has_no_reservation_and_no_lease(
    host: HostNetworks, kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    released: list[tuple[str, bool, bool]] = []

    def release(network: Network, realm_id: str, address: str, is_obsolete: Any) -> None:
        released.append((realm_id, is_obsolete(vif.mac_address), is_obsolete("fa:16:3e:00:00:99")))

    monkeypatch.setattr(dhcp, "release", release)
    vif = make_vif(network=ONE)
    host.plug(vif, "web")
    assert released == [(ONE.id, False, True)], "the lease of a former guest"
    host.unplug(vif)
    assert released[1:] == [(ONE.id, True, False)]
    host.unplug(vif)
    assert len(released) == 2
    assert os.listdir(Path(dhcp.DIRECTORY) / "nova-lite-net-1.d") == []
