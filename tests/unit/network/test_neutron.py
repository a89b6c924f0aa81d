"""Backend ``neutron``, over HTTP: ports are made, bound and released, and never made twice."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.network import neutron_client
from nova_lite.network.driver import NetworkCall, NetworkMethod, ResolvedNetworks, load_backend
from nova_lite.network.neutron import NeutronNetworks, mac_of
from nova_lite.objects import VIF, NetworkRequest, PCIDevice
from tests.support.api_client import make_conf
from tests.support.neutron import FakeNeutron
from tests.support.neutron_backend import backend_of

ME = RequestContext(user_id="u1", project_id="p1", overwrite=False)
ADMIN = RequestContext(user_id="a", project_id="a", is_admin=True, overwrite=False)
UUID = "11111111-1111-4111-8111-111111111111"
OTHER = "22222222-2222-4222-8222-222222222222"


@pytest.fixture
def neutron() -> Iterator[FakeNeutron]:
    made = FakeNeutron()
    made.add("security-groups", name="default", project_id="p1")
    yield made
    made.stop()


@pytest.fixture
def backend(tmp_path: Path, neutron: FakeNeutron) -> NeutronNetworks:
    return backend_of(tmp_path, neutron.url)


def resolve(
    backend: NeutronNetworks, networks: Any = "auto", context: RequestContext = ME, **more: Any
) -> ResolvedNetworks:
    call = NetworkCall(method=NetworkMethod.RESOLVE, context=context, networks=networks, **more)
    found: ResolvedNetworks = backend.call(call)
    return found


def call(method: NetworkMethod, networks: list[NetworkRequest] | None = None, **more: Any) -> NetworkCall:
    given: dict[str, Any] = {"instance_uuid": UUID, "project_id": "p1", "host": "host1", "zone": "az1", **more}
    return NetworkCall(method=method, context=ME, networks=networks or [], **given)


def allocate(backend: NeutronNetworks, *networks: NetworkRequest, **more: Any) -> list[VIF]:
    vifs: list[VIF] = backend.call(call(NetworkMethod.ALLOCATE, list(networks), **more))
    return vifs


# --- what a user asks for


def test_auto_is_the_only_usable_network(backend: NeutronNetworks, neutron: FakeNeutron) -> None:
    neutron.network("theirs", "p2")
    neutron.network("outside", "p2", shared=False, **{"router:external": True})
    assert resolve(backend).requests == []
    mine = neutron.network("mine")
    assert resolve(backend).requests == [NetworkRequest(network_id=mine["id"])]
    neutron.network("all", "p2", shared=True)
    with pytest.raises(exceptions.NetworkAmbiguous):
        resolve(backend)


def test_network_shared_with_the_project_is_usable(backend: NeutronNetworks, neutron: FakeNeutron) -> None:
    network = neutron.network("theirs", "p2")
    requests = [NetworkRequest(network_id=network["id"])]
    with pytest.raises(exceptions.NetworkUnavailable):
        resolve(backend, requests)
    neutron.add(
        "rbac-policies",
        object_type="network",
        action="access_as_shared",
        target_tenant="p1",
        object_id=network["id"],
    )
    assert resolve(backend, requests).requests == requests
    assert resolve(backend).requests == requests


def test_resources_of_another_project_are_not_found(backend: NeutronNetworks, neutron: FakeNeutron) -> None:
    theirs = neutron.network("theirs", "p2")
    port = neutron.port(theirs, "p2")
    for request in (NetworkRequest(network_id=theirs["id"]), NetworkRequest(network_id=str(uuid.uuid4()))):
        with pytest.raises(exceptions.NetworkUnavailable):
            resolve(backend, [request])
    for port_id in (port["id"], str(uuid.uuid4()), "../networks"):
        with pytest.raises(exceptions.PortUnavailable):
            resolve(backend, [NetworkRequest(port_id=port_id)])
    assert resolve(backend, [NetworkRequest(port_id=port["id"])], ADMIN).requests


def test_external_network_is_refused(backend: NeutronNetworks, neutron: FakeNeutron) -> None:
    outside = neutron.network("outside", "p2", **{"router:external": True})
    with pytest.raises(exceptions.ExternalNetworkForbidden):
        resolve(backend, [NetworkRequest(network_id=outside["id"])])


def test_address_and_port_in_use_are_refused(backend: NeutronNetworks, neutron: FakeNeutron) -> None:
    network = neutron.network()
    port = neutron.port(network, device_id=OTHER)
    address = port["fixed_ips"][0]["ip_address"]
    with pytest.raises(exceptions.FixedIpInUse):
        resolve(backend, [NetworkRequest(network_id=network["id"], fixed_ip=address)])
    with pytest.raises(exceptions.PortInUse):
        resolve(backend, [NetworkRequest(port_id=port["id"])])
    bare = neutron.port(network, fixed_ips=[])
    with pytest.raises(exceptions.PortRequiresFixedIP):
        resolve(backend, [NetworkRequest(port_id=bare["id"])])


def test_address_on_a_shared_network_is_chosen_by_admins_only(backend: NeutronNetworks, neutron: FakeNeutron) -> None:
    shared = neutron.network("all", "p2", shared=True)
    request = [NetworkRequest(network_id=shared["id"], fixed_ip="10.0.0.9")]
    with pytest.raises(exceptions.FixedIpForbidden, match="not your project's"):
        resolve(backend, request)
    with pytest.raises(exceptions.FixedIpForbidden):
        resolve(backend, [NetworkRequest(fixed_ip="10.0.0.9")])
    found = backend.call(NetworkCall(method=NetworkMethod.RESOLVE, context=ADMIN, networks=request))
    assert found.requests[0].fixed_ip == "10.0.0.9"


def test_security_group_is_found_by_name_or_id(backend: NeutronNetworks, neutron: FakeNeutron) -> None:
    web = neutron.add("security-groups", name="web", project_id="p1")
    neutron.add("security-groups", name="db", project_id="p2")
    for reference in ("web", web["id"]):
        found = resolve(backend, "none", security_groups=[reference])
        assert (found.security_groups, found.group_names) == ([web["id"]], ["web"])
    with pytest.raises(exceptions.SecurityGroupUnavailable):
        resolve(backend, "none", security_groups=["db"])
    neutron.add("security-groups", name="web", project_id="p1")
    with pytest.raises(exceptions.SecurityGroupAmbiguous):
        resolve(backend, "none", security_groups=["web"])


# --- ports


def test_port_is_made_for_its_instance(backend: NeutronNetworks, neutron: FakeNeutron) -> None:
    network = neutron.network("blue", cidr="10.1.0.0/24")
    group = neutron.add("security-groups", name="web", project_id="p1")
    request = NetworkRequest(network_id=network["id"], fixed_ip="10.1.0.9", tag="nic")
    (vif,) = allocate(backend, request, security_groups=[group["id"]])
    (port,) = neutron.ports
    assert {key: port[key] for key in ("device_id", "device_owner", "project_id", "binding:host_id")} == {
        "device_id": UUID,
        "device_owner": "compute:az1",
        "project_id": "p1",
        "binding:host_id": "host1",
    }
    assert (vif.id, vif.mac_address, vif.address, vif.tag) == (port["id"], port["mac_address"], "10.1.0.9", "nic")
    assert (vif.network.name, vif.network.cidr, vif.network.gateway) == ("blue", "10.1.0.0/24", "10.1.0.1")
    assert (vif.network.dns, vif.network.mtu, vif.network.bridge) == (["9.9.9.9"], 1450, "")
    assert (vif.vif_type, vif.vif_details) == ("ovs", {"bridge_name": "br-int", "port_filter": True})
    assert (vif.active, vif.kept, vif.security_groups) == (False, False, ["web"])
    assert not vif.port_security_enabled


def test_interface_has_all_addresses_of_its_port(backend: NeutronNetworks, neutron: FakeNeutron) -> None:
    network = neutron.network()
    network["subnets"].insert(0, neutron.subnet(network, "fd00::/120")["id"])
    (vif,) = allocate(backend, NetworkRequest(network_id=network["id"]))
    assert (vif.version, vif.address) == (4, "10.0.0.2")
    assert [(fixed.address, fixed.cidr, fixed.gateway) for fixed in vif.more] == [("fd00::2", "fd00::/120", "fd00::1")]


def test_repeated_allocation_finds_the_same_ports(backend: NeutronNetworks, neutron: FakeNeutron) -> None:
    network = neutron.network()
    requests = [NetworkRequest(network_id=network["id"])] * 2
    first = allocate(backend, *requests)
    assert [vif.id for vif in allocate(backend, *requests)] == [vif.id for vif in first]
    assert len(neutron.ports) == 2


def test_lost_response_makes_no_second_port(tmp_path: Path, neutron: FakeNeutron) -> None:
    backend = backend_of(tmp_path, neutron.url, "[network]\ncall_timeout = 1\n")
    request = NetworkRequest(network_id=neutron.network()["id"])
    neutron.late = {"POST": 1}
    with pytest.raises(exceptions.NetworkServiceUnavailable):
        allocate(backend, request)
    (port,) = neutron.ports
    (vif,) = allocate(backend, request)
    assert (vif.id, len(neutron.ports)) == (port["id"], 1)


def test_late_first_request_makes_no_second_port(
    backend: NeutronNetworks, neutron: FakeNeutron, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The late request takes effect between the lookup and the second request."""
    request = NetworkRequest(network_id=neutron.network()["id"])
    monkeypatch.setattr("nova_lite.network.neutron._ports_of", lambda *_: [])
    first = allocate(backend, request)
    assert [vif.id for vif in allocate(backend, request)] == [vif.id for vif in first]
    assert len(neutron.ports) == 1


def test_mac_address_collision_is_retried(backend: NeutronNetworks, neutron: FakeNeutron) -> None:
    network = neutron.network()
    neutron.port(network, mac_address=mac_of(UUID, "0"), device_id=OTHER)
    (vif,) = allocate(backend, NetworkRequest(network_id=network["id"]))
    assert vif.mac_address == mac_of(UUID, "0", 1)


@pytest.mark.parametrize(
    ("request_", "raised"),
    [
        ({"fixed_ip": "10.0.0.2"}, exceptions.FixedIpInUse),
        ({"fixed_ip": "10.9.9.9"}, exceptions.FixedIpInvalid),
        ({}, exceptions.NoMoreFixedIps),
    ],
)
def test_refusal_of_neutron_is_translated(
    backend: NeutronNetworks, neutron: FakeNeutron, request_: dict[str, str], raised: type[Exception]
) -> None:
    network = neutron.network(cidr="10.0.0.0/30")
    neutron.port(network)
    with pytest.raises(raised):
        allocate(backend, NetworkRequest(network_id=network["id"], **request_))


def test_port_without_an_agent_fails(backend: NeutronNetworks, neutron: FakeNeutron) -> None:
    request = NetworkRequest(network_id=neutron.network()["id"])
    with pytest.raises(exceptions.PortBindingFailed, match="host9"):
        allocate(backend, request, host="host9")
    (vif,) = allocate(backend, request, host="host2")
    assert ([vif.id], neutron.ports[0]["binding:host_id"]) == ([port["id"] for port in neutron.ports], "host2")


def test_port_of_a_user_is_assigned_and_released(backend: NeutronNetworks, neutron: FakeNeutron) -> None:
    network = neutron.network()
    port = neutron.port(network)
    made = NetworkRequest(network_id=network["id"])
    vifs = allocate(backend, NetworkRequest(network_id=network["id"], port_id=port["id"]), made)
    assert [(vif.id, vif.kept) for vif in vifs] == [(port["id"], True), (vifs[1].id, False)]
    assert (port["device_id"], port["binding:host_id"]) == (UUID, "host1")
    backend.call(call(NetworkMethod.DEALLOCATE, vifs=vifs))
    assert neutron.ports == [port]
    assert (port["device_id"], port["device_owner"], port["binding:host_id"]) == ("", "", "")


def with_function(port: dict[str, Any], address: str) -> list[PCIDevice]:
    """Return the devices of a server: one of its flavor, and a virtual function of the port."""
    function = PCIDevice(
        address=address,
        vendor_id="8086",
        product_id="1889",
        dev_type="type-VF",
        physical_network="physnet1",
        alias=f"port:{port['id']}",
    )
    return [PCIDevice(address="0000:81:00.0", vendor_id="10de", product_id="1eb8", alias="gpu"), function]


@pytest.mark.parametrize("where", ["network", "segment"])
def test_port_with_a_device_names_it_while_a_server_has_it(
    backend: NeutronNetworks, neutron: FakeNeutron, where: str
) -> None:
    physical = {"provider:physical_network": "physnet1", "provider:segmentation_id": 42}
    network = neutron.network(**(physical if where == "network" else {"segments": [{}, physical]}))
    port = neutron.port(network, **{"binding:vnic_type": "direct", "binding:profile": {"trusted": "false"}})
    (request,) = resolve(backend, [NetworkRequest(port_id=port["id"])]).requests
    assert (request.vnic_type, request.physical_network) == ("direct", "physnet1")
    (vif,) = allocate(backend, request, devices=with_function(port, "0000:c1:01.0"))
    profile = {"pci_slot": "0000:c1:01.0", "pci_vendor_info": "8086:1889", "physical_network": "physnet1"}
    assert port["binding:profile"] == {"trusted": "false", **profile}
    assert (vif.vif_type, vif.vnic_type, vif.is_device, vif.is_remote) == ("hw_veb", "direct", True, True)
    assert (vif.network.physical_network, vif.network.vlan) == ("physnet1", 42 if where == "network" else None)
    backend.call(call(NetworkMethod.BIND, vifs=[vif], devices=with_function(port, "0000:c1:01.3")))
    assert port["binding:profile"]["pci_slot"] == "0000:c1:01.3", "it is bound again, at the same host"
    backend.call(call(NetworkMethod.DEALLOCATE, vifs=[vif]))
    assert (port["binding:profile"], port["device_id"]) == ({"trusted": "false"}, "")


def test_port_whose_device_no_host_has_is_refused(backend: NeutronNetworks, neutron: FakeNeutron) -> None:
    network = neutron.network()
    for kind, text in (("direct", "has no provider:physical_network"), ("vdpa", "binding:vnic_type vdpa")):
        port = neutron.port(network, **{"binding:vnic_type": kind})
        with pytest.raises(exceptions.InvalidInput, match=text):
            resolve(backend, [NetworkRequest(port_id=port["id"])])


def test_port_is_assigned_to_one_of_two_servers(backend: NeutronNetworks, neutron: FakeNeutron) -> None:
    network = neutron.network()
    port = neutron.port(network)
    allocate(backend, NetworkRequest(network_id=network["id"], port_id=port["id"]))
    with pytest.raises(exceptions.PortInUse):
        allocate(backend, NetworkRequest(network_id=network["id"], port_id=port["id"]), instance_uuid=OTHER)
    assert port["device_id"] == UUID


def test_port_that_another_server_takes_first_is_refused(
    backend: NeutronNetworks, neutron: FakeNeutron, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other server takes the port between the lookup and the update."""
    network = neutron.network()
    port = neutron.port(network)
    handle = neutron.handle

    def slower(method: str, *rest: Any) -> Any:
        if method == "PUT" and port["device_id"] == "":
            port.update(device_id=OTHER, revision_number=7)
        return handle(method, *rest)

    monkeypatch.setattr(neutron, "handle", slower)
    with pytest.raises(exceptions.PortInUse):
        allocate(backend, NetworkRequest(network_id=network["id"], port_id=port["id"]))
    assert port["device_id"] == OTHER


def test_unrecorded_ports_are_deleted(backend: NeutronNetworks, neutron: FakeNeutron) -> None:
    network = neutron.network()
    port = neutron.port(network)
    requests = [NetworkRequest(network_id=network["id"], port_id=port["id"]), NetworkRequest(network_id=network["id"])]
    others = neutron.port(network, device_id=OTHER)
    allocate(backend, *requests)
    backend.call(call(NetworkMethod.DEALLOCATE, requests))
    assert neutron.ports == [port, others]
    backend.call(call(NetworkMethod.DEALLOCATE, requests))


def test_move_binds_ports_to_the_other_host(backend: NeutronNetworks, neutron: FakeNeutron) -> None:
    vifs = allocate(backend, NetworkRequest(network_id=neutron.network()["id"], tag="t"))
    moved = backend.call(call(NetworkMethod.BIND, vifs=vifs, host="host2"))
    assert neutron.ports[0]["binding:host_id"] == "host2"
    assert [(vif.id, vif.tag) for vif in moved] == [(vifs[0].id, "t")]
    again = allocate(backend, vifs=vifs, host="host1")
    assert ([vif.id for vif in again], neutron.ports[0]["binding:host_id"]) == ([vifs[0].id], "host1")


def test_attach_and_detach_of_a_port(backend: NeutronNetworks, neutron: FakeNeutron) -> None:
    network = neutron.network()
    first = allocate(backend, NetworkRequest(network_id=network["id"]))
    attach = call(NetworkMethod.ATTACH, [NetworkRequest(network_id=network["id"])], vifs=first)
    second = backend.call(attach)
    assert backend.call(attach).id == second.id
    assert {port["id"] for port in neutron.ports} == {first[0].id, second.id}
    backend.call(call(NetworkMethod.DETACH, vifs=[second]))
    assert [port["id"] for port in neutron.ports] == [first[0].id]
    backend.call(call(NetworkMethod.DETACH, vifs=[second]))


def test_look_shows_connected_ports_without_deleted_ones(backend: NeutronNetworks, neutron: FakeNeutron) -> None:
    network = neutron.network()
    vifs = allocate(backend, *[NetworkRequest(network_id=network["id"])] * 2)
    neutron.rows["ports"][vifs[0].id]["status"] = "ACTIVE"
    del neutron.rows["ports"][vifs[1].id]
    looked = backend.call(call(NetworkMethod.LOOK, vifs=vifs))
    assert [(vif.id, vif.active) for vif in looked] == [(vifs[0].id, True)]


def test_join_keeps_the_other_groups_of_each_port(backend: NeutronNetworks, neutron: FakeNeutron) -> None:
    web, db, shut = (neutron.add("security-groups", name=name, project_id="p1")["id"] for name in ("web", "db", "shut"))
    network = neutron.network()
    vifs = allocate(backend, *(NetworkRequest(network_id=network["id"]) for _ in range(3)))
    for port, groups, is_filtered in zip(neutron.ports, ([web], [db], [shut]), (True, True, False), strict=True):
        port.update(security_groups=groups, port_security_enabled=is_filtered)
    joined = backend.call(call(NetworkMethod.JOIN, vifs=vifs, security_groups=[db]))
    assert [port["security_groups"] for port in neutron.ports] == [[web, db], [db], [shut]]
    assert [vif.security_groups for vif in joined] == [["web", "db"], ["db"], ["shut"]]
    backend.call(call(NetworkMethod.LEAVE, vifs=vifs, security_groups=[db]))
    assert [port["security_groups"] for port in neutron.ports] == [[web], [], [shut]]


def test_concurrent_change_of_groups_is_not_lost(
    backend: NeutronNetworks, neutron: FakeNeutron, monkeypatch: pytest.MonkeyPatch
) -> None:
    web, db = (neutron.add("security-groups", name=name, project_id="p1")["id"] for name in ("web", "db"))
    vifs = allocate(backend, NetworkRequest(network_id=neutron.network()["id"]))
    (port,) = neutron.ports
    update = neutron_client.NeutronSession.update

    def interrupted(self: Any, what: str, id: str, values: Any, revision: int | None = None) -> Any:
        if web not in port["security_groups"]:
            port.update(security_groups=[web], revision_number=port["revision_number"] + 1)
        return update(self, what, id, values, revision)

    monkeypatch.setattr(neutron_client.NeutronSession, "update", interrupted)
    backend.call(call(NetworkMethod.JOIN, vifs=vifs, security_groups=[db]))
    assert port["security_groups"] == [web, db]


def test_visible_networks_are_listed(backend: NeutronNetworks, neutron: FakeNeutron) -> None:
    neutron.network("theirs", "p2")
    neutron.network("mine")
    (found,) = backend.call(NetworkCall(method=NetworkMethod.NETWORKS, context=ME))
    assert (found.name, found.cidr) == ("mine", "10.0.0.0/24")


# --- Neutron in trouble


@pytest.mark.parametrize("status", [500, 503, 401, 403])
def test_failure_of_neutron_is_a_503(backend: NeutronNetworks, neutron: FakeNeutron, status: int) -> None:
    neutron.status = status
    with pytest.raises(exceptions.NetworkServiceUnavailable):
        resolve(backend)


def test_neutron_down_is_a_503(tmp_path: Path) -> None:
    with pytest.raises(exceptions.NetworkServiceUnavailable):
        resolve(backend_of(tmp_path, "http://127.0.0.1:9"))


def test_call_ends_within_its_time_limit(backend: NeutronNetworks, neutron: FakeNeutron) -> None:
    conversation = backend._client.within(1)
    conversation._deadline = 0.0
    with pytest.raises(exceptions.NetworkServiceUnavailable):
        conversation.list("ports")
    assert not neutron.asked


def test_late_call_is_not_sent(backend: NeutronNetworks, neutron: FakeNeutron) -> None:
    """The time limit starts when the call is recorded."""
    started_at = time.monotonic() - backend.conf.network.call_timeout
    with pytest.raises(exceptions.NetworkServiceUnavailable):
        backend.call(
            call(NetworkMethod.ATTACH, [NetworkRequest(network_id=neutron.network()["id"])], started_at=started_at)
        )
    assert not neutron.asked


def test_missing_credentials_are_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(exceptions.ConfigurationError, match="auth_type"):
        load_backend(make_conf(tmp_path, "[network]\nbackend = neutron\n"))


@pytest.mark.parametrize(("limit", "expected"), [(5, (5, 1)), (0, (0, 1)), (-1, None)])
def test_resolve_reports_the_quota_of_ports(
    backend: NeutronNetworks, neutron: FakeNeutron, limit: int, expected: Any
) -> None:
    network = neutron.network()
    taken = neutron.port(network)
    neutron.rows["quotas"]["p1"] = {"port": limit}
    assert resolve(backend).port_quota == expected
    assert resolve(backend, [NetworkRequest(port_id=taken["id"])]).port_quota is None
