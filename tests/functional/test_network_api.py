"""Networks, ports, groups and floating addresses by the unmodified ``openstack`` command and openstacksdk, which find
the network API in the catalog."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import requests

from tests.functional import cloud as clouds
from tests.functional.cloud import Cloud
from tests.functional.sdk import connect
from tests.functional.standalone_client import Client
from tests.support.waiting import wait_for

OPTIONS = "[DEFAULT]\nwings = trunks\n[network]\nproject_ranges = 10.64.0.0/16\n"


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    path = tmp_path_factory.mktemp("network-api")
    with clouds.running(path, computes=1, standalone=True, extra_config=OPTIONS) as running:
        running.manage("floating-pool", "create", "public", "192.0.2.0/29")
        yield running


@pytest.fixture(scope="module")
def admin(cloud: Cloud) -> Client:
    return Client(cloud, "admin")


@pytest.fixture(scope="module")
def demo(cloud: Cloud) -> Client:
    return Client(cloud, "demo")


def test_networks_and_subnets(cloud: Cloud, demo: Client, admin: Client) -> None:
    assert {row["Name"] for row in demo.one("network list")} == {"private", "public"}
    assert [row["Name"] for row in demo.one("network list --external")] == ["public"]
    made = demo.one("network create --description mine back")
    assert (made["name"], made["subnets"], made["shared"], made["status"]) == ("back", [], False, "ACTIVE")
    demo("server create --image cirros --flavor m1.nano --network back none", status=1)
    demo("subnet create --network back --subnet-range 192.168.0.0/24 back-v4", status=1)
    subnet = demo.one("subnet create --network back --subnet-range 10.64.1.0/24 --dns-nameserver 9.9.9.9 back-v4")
    assert (subnet["cidr"], subnet["gateway_ip"]) == ("10.64.1.0/24", "10.64.1.1")
    assert subnet["allocation_pools"] == [{"start": "10.64.1.2", "end": "10.64.1.254"}]
    assert subnet["id"] != made["id"] and demo.one(f"subnet show {subnet['id']}")["network_id"] == made["id"]
    demo(f"subnet show {made['id']}", status=1)
    demo("network set --name rear back")
    second = demo.one("subnet create --network rear --subnet-range 10.64.2.0/24 back-b")
    assert demo.one("network show rear")["subnets"] == [subnet["id"], second["id"]]
    assert {row["Name"] for row in demo.one("subnet list")} == {"", "back-v4", "back-b"}
    nic = "--nic net-id=rear,v4-fixed-ip=10.64.2.9"
    server = demo.one(f"server create --image cirros --flavor m1.nano {nic} --wait vm0")
    assert server["addresses"] == {"rear": ["10.64.2.9"]}
    demo("server delete --wait vm0")
    demo("subnet delete back-v4")
    demo("network delete rear")
    demo("network delete private", status=1)
    shared = admin.one("network create --share everybody")
    assert {row["Name"] for row in demo.one("network list --share")} == {"private", "everybody"}
    (policy,) = [row["ID"] for row in admin.one("network rbac list --long") if row["Object ID"] == shared["id"]]
    assert admin.one(f"network rbac show {policy}")["action"] == "access_as_shared"
    admin(f"network rbac delete {policy}")
    assert {row["Name"] for row in demo.one("network list --share")} == {"private"}
    admin(f"network delete {shared['id']}")


def test_server_on_a_subnet_of_two_addresses(demo: Client) -> None:
    demo("network create pair")
    create = "subnet create --network pair --subnet-range 10.64.3.8/31 pair-v4"
    assert "incompatible with DHCP service enabled" in demo(create, status=1)
    subnet = demo.one(f"{create} --no-dhcp")
    assert (subnet["gateway_ip"], subnet["enable_dhcp"]) == ("10.64.3.9", False)
    server = demo.one("server create --image cirros --flavor m1.nano --network pair --wait vm-pair")
    assert server["addresses"] == {"pair": ["10.64.3.8"]}
    demo("server delete --wait vm-pair")
    demo("network delete pair")


def test_a_port_before_its_server_and_after_it(cloud: Cloud, demo: Client, admin: Client) -> None:
    choice = "port create --network private --fixed-ip ip-address=10.99.0.77 mine"
    assert "create_port:fixed_ips:ip_address" in demo(choice, status=1)
    port = demo.one("port create --network private mine")
    address = port["fixed_ips"][0]["ip_address"]
    assert (port["status"], port["device_id"]) == ("DOWN", "")
    server = demo.one("server create --image cirros --flavor m1.nano --port mine --wait vm1")
    assert demo.one("server show vm1")["addresses"] == {"private": [address]}
    found = admin.one(f"port show {port['id']}")
    assert (found["device_id"], found["binding_host_id"], found["status"]) == (server["id"], "compute-1", "ACTIVE")
    assert found["device_owner"] == "compute:nova"
    assert "still in use" in demo("server create --image cirros --flavor m1.nano --port mine vm2", status=1)
    demo("port delete mine", status=1)
    demo("server add network vm1 private")
    wait_for("two ports", lambda: len(demo.one(f"port list --server {server['id']}")) == 2)
    demo("server remove port vm1 mine")
    wait_for("one", lambda: demo.one("port show mine")["device_id"] == "")
    demo("server add port vm1 mine")
    wait_for("two", lambda: len(demo.one("server show vm1")["addresses"]["private"]) == 2)
    demo("server delete --wait vm1")
    assert demo.one("port show mine")["status"] == "DOWN"
    assert [row["ID"] for row in demo.one("port list")] == [port["id"]]
    choice = "--no-fixed-ip --fixed-ip ip-address=10.99.0.78"
    assert "update_port:fixed_ips:ip_address" in demo(f"port set {choice} mine", status=1)
    admin(f"port set {choice} {port['id']}")
    demo("port set --name other mine")
    demo("port unset --security-group default other")
    assert demo.one("port show other")["security_group_ids"] == []
    demo("port delete other")


def test_trunk_of_two_networks_and_its_server(cloud: Cloud, demo: Client, admin: Client) -> None:
    """The commands of the page about trunks. Hosts of the fake driver connect no subports."""
    demo("network create storage")
    demo("subnet create --network storage --subnet-range 10.64.9.0/24 storage-v4")
    parent = demo.one("port create --network private parent")
    child, late = (demo.one(f"port create --network storage {name}") for name in ("child", "late"))
    tagged = "segmentation-type=vlan,segmentation-id="
    made = demo.one(f"network trunk create --parent-port parent --subport port=child,{tagged}100 one")
    assert (made["status"], made["port_id"]) == ("DOWN", parent["id"])
    assert [row["Name"] for row in demo.one("network trunk list")] == ["one"]
    assert "in use" in demo(f"network trunk set --subport port=late,{tagged}100 one", status=1)
    demo(f"network trunk set --description two --subport port=late,{tagged}101 one")
    subports = demo.one("network subport list --trunk one")
    assert {(row["Port"], row["Segmentation ID"]) for row in subports} == {(child["id"], 100), (late["id"], 101)}
    server = demo.one("server create --image cirros --flavor m1.nano --port parent --wait carried")
    assert list(demo.one("server show carried")["addresses"]) == ["private"]
    found = admin.one(f"port show {child['id']}")
    assert (found["device_owner"], found["device_id"]) == ("trunk:subport", made["id"])
    assert "sub_ports" in str(demo.one("port show parent")["trunk_details"])
    demo("network trunk unset --subport late one")
    assert [row["Port"] for row in demo.one("network subport list --trunk one")] == [child["id"]]
    assert demo.one("port show late")["device_owner"] == ""
    demo("port delete child", status=1)
    demo(f"server delete --wait {server['id']}")
    demo("network trunk set --disable one")
    assert demo.one("network trunk show one")["is_admin_state_up"] is False
    assert "is currently disabled" in demo("network trunk delete one", status=1)
    demo("network trunk set --enable one")
    demo("network trunk delete one")
    demo("port delete parent child late")
    demo("network delete storage")


def test_security_groups(demo: Client) -> None:
    web = demo.one("security group create --description HTTP web")
    rule = demo.one("security group rule create --protocol tcp --dst-port 80 --remote-ip 0.0.0.0/0 web")
    assert (rule["direction"], rule["port_range_min"], rule["protocol"]) == ("ingress", 80, "tcp")
    assert len(demo.one("security group rule list web")) == 3
    demo("security group rule create --protocol 6 --dst-port 80 --remote-ip 0.0.0.0/0 web", status=1)
    demo("port create --network private --security-group web guarded")
    assert demo.one("port show guarded")["security_group_ids"] == [web["id"]]
    demo("security group delete web", status=1)
    demo("server create --image cirros --flavor m1.nano --port guarded --wait vm3")
    assert demo.one("server show vm3")["security_groups"] == [{"name": "web"}]
    demo("server add security group vm3 default")
    assert len(demo.one("port show guarded")["security_group_ids"]) == 2
    demo("server remove security group vm3 web")
    demo(f"security group rule delete {rule['id']}")
    demo("security group set --name www web")
    demo("security group delete www")
    demo("server delete --wait vm3")
    demo("port delete guarded")


def test_stateless_groups_dhcp_options_and_service_types(demo: Client) -> None:
    assert demo.one("security group create --stateless quick")["stateful"] is False
    demo("security group set --stateful quick")
    assert demo.one("security group show quick")["stateful"] is True
    demo("security group set --stateless quick")
    options = "--extra-dhcp-option name=mtu,value=1400 --extra-dhcp-option name=dns-server,value=fd00::53,ip-version=6"
    port = demo.one(f"port create --network private --security-group quick {options} quick-port")
    mtu = {"opt_name": "mtu", "opt_value": "1400", "ip_version": 4}
    dns6 = {"opt_name": "dns-server", "opt_value": "fd00::53", "ip_version": 6}
    assert port["extra_dhcp_opts"] == [mtu, dns6]
    assert "all stateless" in demo("port set --security-group default quick-port", status=1)
    assert "must be a number" in demo("port set --extra-dhcp-option name=mtu,value=many quick-port", status=1)
    demo("port set --extra-dhcp-option name=mtu,value=1300 quick-port")
    assert demo.one("port show quick-port")["extra_dhcp_opts"] == [{**mtu, "opt_value": "1300"}, dns6]
    demo("port delete quick-port")
    demo("security group delete quick")
    demo("network create typed")
    create = "subnet create --network typed --subnet-range 10.64.9.0/24 --service-type compute:nova typed-v4"
    assert demo.one(create)["service_types"] == ["compute:nova"]
    assert "has no subnet for ports of the owner" in demo("port create --network typed none", status=1)
    server = demo.one("server create --image cirros --flavor m1.nano --network typed --wait vm-typed")
    assert [address.startswith("10.64.9.") for address in server["addresses"]["typed"]] == [True]
    demo("server delete --wait vm-typed")
    demo("subnet unset --service-type compute:nova typed-v4")
    demo("port create --network typed any")
    demo("port delete any")
    demo("network delete typed")


def test_several_addresses_of_a_port(demo: Client) -> None:
    demo("network create several")
    demo("subnet create --network several --subnet-range 10.64.8.0/24 several-v4")
    wanted = [f"10.64.8.{number}" for number in (50, 51, 52)]
    choice = " ".join(f"--fixed-ip ip-address={address}" for address in wanted[:2])
    port = demo.one(f"port create --network several {choice} virtual")
    assert [item["ip_address"] for item in port["fixed_ips"]] == wanted[:2]
    server = demo.one("server create --image cirros --flavor m1.nano --port virtual --wait vm-several")
    assert server["addresses"]["several"] == wanted[:2]
    demo(f"port set --fixed-ip ip-address={wanted[2]} virtual")
    assert demo.one("server show vm-several")["addresses"]["several"] == wanted
    found = demo.one(f"port list --fixed-ip ip-address={wanted[2]}")
    assert [row["ID"] for row in found] == [port["id"]]
    assert wanted[1] in demo(f"port create --network several --fixed-ip ip-address={wanted[1]} other", status=1)
    demo("server delete --wait vm-several")
    demo("port delete virtual")
    demo("network delete several")


def test_floating_addresses(demo: Client) -> None:
    made = demo.one("floating ip create --description mine public")
    address = made["floating_ip_address"]
    assert (made["status"], made["port_id"]) == ("DOWN", None)
    demo("server create --image cirros --flavor m1.nano --network private --wait vm4")
    demo(f"server add floating ip vm4 {address}")
    assert address in demo.one("server show vm4")["addresses"]["private"]
    assert demo.one(f"floating ip show {address}")["status"] == "ACTIVE"
    demo(f"server remove floating ip vm4 {address}")
    port = demo.one("port list --server vm4")[0]["ID"]
    demo(f"floating ip set --port {port} {address}")
    demo(f"floating ip unset --port {address}")
    assert [row["Port"] for row in demo.one("floating ip list")] == [None]
    demo(f"floating ip delete {address}")
    demo("server delete --wait vm4")


def test_router_connects_a_network_of_the_project(demo: Client) -> None:
    """A floating address needs the router's gateway."""
    demo("network create routed")
    demo("subnet create --network routed --subnet-range 10.64.9.0/24 routed-subnet")
    port = demo.one("port create --network routed routed-port")
    made = demo.one("floating ip create public")
    demo(f"floating ip set --port {port['id']} {made['floating_ip_address']}", status=1)
    router = demo.one("router create --external-gateway public main")
    demo("router add subnet main routed-subnet")
    demo("router set --tag blue --tag a/b main")
    assert [row["Name"] for row in demo.one("router list --tags blue,a/b")] == ["main"]
    demo("router unset --tag a/b main")
    assert demo.one("router show main")["tags"] == ["blue"]
    assert demo.one("router list --not-any-tags blue") == []
    (interface,) = demo.one("router show main")["interfaces_info"]
    assert interface["ip_address"] == "10.64.9.1"
    (row,) = demo.one("port list --router main")
    assert row["ID"] == interface["port_id"]
    demo(f"floating ip set --port {port['id']} {made['floating_ip_address']}")
    assert demo.one(f"floating ip show {made['id']}")["router_id"] == router["id"]
    demo("router unset --external-gateway main", status=1)
    demo(f"floating ip delete {made['id']}")
    demo("router delete main", status=1)
    demo("router unset --external-gateway main")
    assert demo.one("router show main")["external_gateway_info"] is None
    demo("router set --external-gateway public --fixed-ip ip-address=192.0.2.5 --name other main")
    (own,) = demo.one("router show other")["external_gateway_info"]["external_fixed_ips"]
    assert own["ip_address"] == "192.0.2.5"
    demo("router set --description kept other")
    assert demo.one("router show other")["external_gateway_info"]["external_fixed_ips"] == [own]
    demo("router remove subnet other routed-subnet")
    gateway = demo.one("port create --network routed --fixed-ip ip-address=10.64.9.1 gateway")
    demo(f"router add port other {gateway['id']}")
    demo(f"router remove port other {gateway['id']}")
    demo("router delete other")
    assert demo.one("router list") == []
    demo(f"port delete {port['id']}")
    demo("network delete routed")


def test_port_forwarding_reaches_the_host_of_a_running_server(cloud: Cloud, demo: Client) -> None:
    demo("network create forwarded")
    demo("subnet create --network forwarded --subnet-range 10.64.10.0/24 forwarded-subnet")
    demo("router create --external-gateway public forwarder")
    demo("router add subnet forwarder forwarded-subnet")
    port = demo.one("port create --network forwarded --fixed-ip ip-address=10.64.10.9 forwarded-port")
    demo("server create --image cirros --flavor m1.nano --port forwarded-port --wait vm-forwarded")
    floating = demo.one("floating ip create public")
    address, inner = floating["floating_ip_address"], "--port forwarded-port --internal-ip-address 10.64.10.9"
    create = f"floating ip port forwarding create {inner} --protocol tcp"
    ssh = demo.one(f"{create} --internal-protocol-port 22 --external-protocol-port 2222 --description ssh {address}")
    assert (ssh["internal_port"], ssh["external_port"], ssh["description"]) == (22, 2222, "ssh")
    demo(f"{create} --internal-protocol-port 80:90 --external-protocol-port 8080:8090 {address}")
    assert "collision" in demo(
        f"{create} --internal-protocol-port 23 --external-protocol-port 8085 {address}", status=1
    )
    ranges = {row["External Port Range"] for row in demo.one(f"floating ip port forwarding list {address}")}
    assert ranges == {"2222:2222", "8080:8090"}
    path = cloud._domains_of("compute-1").parent / "port-filters.json"

    def external() -> list[list[int]]:
        return sorted(item["external"] for item in json.loads(path.read_text()).get("forwardings", ()))

    wait_for("forwardings on the host", lambda: external() == [[2222, 2222], [8080, 8090]])
    demo(f"floating ip port forwarding set --external-protocol-port 2200 {address} {ssh['id']}")
    wait_for("a changed forwarding", lambda: external() == [[2200, 2200], [8080, 8090]])
    assert demo.one(f"floating ip port forwarding show {address} {ssh['id']}")["external_port"] == 2200
    demo(f"floating ip set --port forwarded-port {address}", status=1)
    demo(f"floating ip delete {address}", status=1)
    sdk = connect(cloud, "demo").network
    shown = sdk.get(f"/floatingips/{floating['id']}").json()["floatingip"]["port_forwardings"]
    assert {item["internal_port_id"] for item in shown} == {port["id"]}
    wanted = {"internal_port_id": port["id"], "internal_port": 53, "external_port": 53, "protocol": "udp"}
    made = sdk.create_port_forwarding(floatingip_id=floating["id"], **wanted)
    assert made.internal_ip_address == "10.64.10.9"
    changed = sdk.update_port_forwarding(made, floating["id"], description="dns")
    assert sdk.get_port_forwarding(made.id, floating["id"]).description == changed.description == "dns"
    (found,) = sdk.port_forwardings(floating["id"], protocol="udp")
    assert found.id == made.id
    sdk.delete_port_forwarding(made.id, floating["id"])
    demo("server delete --wait vm-forwarded")
    demo("port delete forwarded-port")
    assert demo.one(f"floating ip port forwarding list {address}") == []
    demo(f"floating ip delete {address}")
    demo("router remove subnet forwarder forwarded-subnet")
    demo("router delete forwarder")
    demo("network delete forwarded")


def test_qos_policy_reaches_the_host_of_a_running_server(cloud: Cloud, demo: Client, admin: Client) -> None:
    create = "network qos policy create --share --description text slow"
    demo(create, status=1)
    made = admin.one(create)
    assert (made["name"], made["shared"], made["rules"]) == ("slow", True, [])
    rule = admin.one("network qos rule create --type bandwidth-limit --max-kbps 1000 --egress slow")
    assert (rule["max_kbps"], rule["max_burst_kbps"], rule["direction"]) == (1000, 0, "egress")
    admin("network qos rule create --type dscp-marking --dscp-mark 26 slow")
    assert [row["ID"] == rule["id"] for row in demo.one("network qos rule list slow")].count(True) == 1
    assert {row["Type"] for row in demo.one("network qos rule type list")} == {"bandwidth_limit", "dscp_marking"}
    port = demo.one("port create --network private --qos-policy slow limited")
    demo("server create --image cirros --flavor m1.nano --port limited --wait vm-qos")
    path = cloud._domains_of("compute-1").parent / "port-filters.json"

    def limits() -> dict[str, dict[str, object]]:
        found: dict[str, dict[str, object]] = json.loads(path.read_text()).get("qos", {})
        return found

    wait_for("limits", lambda: limits() == {port["id"]: {"egress": [1000, 0], "dscp": 26}})
    admin(f"network qos rule set --max-kbps 2000 slow {rule['id']}")
    wait_for("a changed limit", lambda: limits()[port["id"]]["egress"] == [2000, 0])
    assert "is used by port" in admin("network qos policy delete slow", status=1)
    demo("port unset --qos-policy limited")
    wait_for("no limit", lambda: limits() == {})
    demo("network create --qos-policy slow apart")
    assert demo.one("network show apart")["qos_policy_id"] == made["id"]
    demo("network set --no-qos-policy apart")
    demo("floating ip create --qos-policy slow public")
    (floating,) = [row["ID"] for row in demo.one("floating ip list")]
    assert demo.one(f"floating ip show {floating}")["qos_policy_id"] == made["id"]
    demo(f"floating ip delete {floating}")
    demo("server delete --wait vm-qos")
    demo("port delete limited")
    demo("network delete apart")
    admin("network qos policy delete slow")


def test_the_rest(demo: Client, admin: Client) -> None:
    assert [(row["Host"], row["Alive"]) for row in admin.one("network agent list")] == [("compute-1", True)]
    assert "security-group" in {row["Alias"] for row in demo.one("extension list --network")}
    demo_project = admin.one("project show demo")["id"]
    admin(f"quota set --ports 7 --floating-ips 3 {demo_project}")
    shown = {row["Resource"]: row["Limit"] for row in demo.one("quota show --network")}
    assert (shown["ports"], shown["floating_ips"]) == (7, 3)


def test_create_with_a_floating_address_of_its_own(cloud: Cloud) -> None:
    """Create a server as Ansible's module does by default."""
    demo = connect(cloud, "demo")
    try:
        made = demo.create_server("auto", image="cirros", flavor="m1.nano", wait=True, auto_ip=True, timeout=60)
        shown = demo.get_server("auto")
        assert shown.public_v4.startswith("192.0.2.") and shown.private_v4.startswith("10.99.")
        assert demo.delete_server(made.id, wait=True, delete_ips=True, timeout=60)
        assert list(demo.network.ips()) == []
    finally:
        demo.close()


def test_projects_do_not_see_each_other(cloud: Cloud) -> None:
    demo, other = connect(cloud, "demo"), connect(cloud, "other")
    try:
        pool = demo.network.find_network("public")
        private = demo.network.find_network("private")
        network = demo.network.create_network(name="hidden")
        things = [
            ("networks", network),
            ("ports", demo.network.create_port(network_id=private.id)),
            ("security-groups", demo.network.create_security_group(name="hidden")),
            ("floatingips", demo.network.create_ip(floating_network_id=pool.id)),
        ]
        for path, thing in things:
            for method in ("get", "delete"):
                answer = other.network.request(f"/{path}/{thing.id}", method, raise_exc=False)
                assert answer.status_code == 404, (path, method, answer.text)
            listed = other.network.get(f"/{path}").json()
            assert thing.id not in json.dumps(listed), path
        body = {"server": {"name": "s", "imageRef": cloud.image_id, "flavorRef": "1"}}
        body["server"]["networks"] = [{"port": things[1][1].id}]  # type: ignore[assignment]
        refused = cloud.request("POST", "/servers", body, token=cloud.token_of("other"))
        assert (refused.status_code, "could not be found" in refused.text) == (400, True)
        for item, remove in zip(
            (thing for _, thing in things),
            (
                demo.network.delete_network,
                demo.network.delete_port,
                demo.network.delete_security_group,
                demo.network.delete_ip,
            ),
            strict=True,
        ):
            remove(item, ignore_missing=False)
    finally:
        demo.close()
        other.close()


def test_documents_and_faults(cloud: Cloud) -> None:
    root = f"http://127.0.0.1:{cloud.network_port}"
    (version,) = requests.get(root, timeout=60).json()["versions"]
    assert (version["id"], version["links"][0]["href"]) == ("v2.0", f"{root}/v2.0/")
    assert requests.get(f"{root}/v2.0/", timeout=60).status_code == 200
    assert requests.get(f"{root}/v2.0/networks", timeout=60).status_code == 401
    token = {"X-Auth-Token": cloud.token_of("demo")}
    answer = requests.get(f"{root}/v2.0/ports/{cloud.image_id}", headers=token, timeout=60)
    error = answer.json()["NeutronError"]
    assert (answer.status_code, error["type"], error["detail"]) == (404, "PortNotFound", "")
