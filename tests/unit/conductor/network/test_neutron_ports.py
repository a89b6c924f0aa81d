"""Servers on Neutron's networks in the conductor: every port has an owner, whatever happens to the server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nova_lite.base import exceptions
from nova_lite.base.context import get_admin_context
from nova_lite.conductor.network.endpoints import PortEndpoints
from nova_lite.db.servers import instances
from nova_lite.network import neutron_client
from nova_lite.network.driver import NetworkCall, NetworkMethod
from nova_lite.objects import VIF, ActionReport, BuildOutcome, Instance, NetworkRequest
from tests.support.conductor_world import World
from tests.support.neutron import FakeNeutron
from tests.support.neutron_backend import backend_of


@pytest.fixture
def neutron() -> Iterator[FakeNeutron]:
    made = FakeNeutron()
    made.add("security-groups", name="default", project_id="p1")
    yield made
    made.stop()


@pytest.fixture
def world(tmp_path: Path, neutron: FakeNeutron) -> World:
    backend = backend_of(tmp_path, neutron.url, timeout=1)
    return World(tmp_path, lambda conf: backend)


def instance(world: World, uuid: str) -> Instance:
    return world.db.read(lambda uow: instances.to_object(uow, instances.get_row(uow, get_admin_context(), uuid)))


def delete(world: World, uuid: str, host: str) -> None:
    command = world.lifecycle.accept_action(world.context(), uuid, "delete", {})
    world.reports.finish_action(world.context(), ActionReport(host=host, action_id=command.action_id))


def test_ports_live_as_long_as_the_server(world: World, neutron: FakeNeutron) -> None:
    neutron.network("private")
    uuid, host, _ = world.built()
    (port,) = neutron.ports
    (vif,) = instance(world, uuid).vifs
    assert (port["device_id"], port["binding:host_id"]) == (uuid, host)
    assert (vif.id, vif.network.name, vif.active) == (port["id"], "private", False)
    assert instance(world, uuid).security_groups == ["default"]
    delete(world, uuid, host)
    assert (neutron.ports, world.open_actions()) == ([], [])


def test_failed_create_leaves_no_port(world: World, neutron: FakeNeutron) -> None:
    network = neutron.network()
    port = neutron.port(network)
    asked = [NetworkRequest(port_id=port["id"]), NetworkRequest(network_id=network["id"])]
    (uuid,) = world.create(networks=asked)
    world.lifecycle.build_instances(world.context(), [uuid])
    host, request = world.compute.builds[-1]
    world.reports.start_build(world.context(), uuid, host, request.generation)
    assert [item["device_id"] for item in neutron.ports] == [uuid, uuid]
    world.report(uuid, host, request.generation, BuildOutcome.ABORTED, "the image is corrupt")
    assert ([item["id"] for item in neutron.ports], port["device_id"]) == ([port["id"]], "")


def test_rescheduled_build_keeps_its_ports(world: World, neutron: FakeNeutron) -> None:
    neutron.network()
    (uuid,) = world.create()
    world.lifecycle.build_instances(world.context(), [uuid])
    host, request = world.compute.builds[-1]
    world.reports.start_build(world.context(), uuid, host, request.generation)
    before = neutron.ports[0]["id"]
    world.report(uuid, host, request.generation, BuildOutcome.RESCHEDULED, "no disk")
    world.lifecycle.build_instances(world.context(), [uuid])
    other, request = world.compute.builds[-1]
    world.reports.start_build(world.context(), uuid, other, request.generation)
    assert other != host
    assert [(port["id"], port["binding:host_id"]) for port in neutron.ports] == [(before, other)]


def test_late_start_of_an_earlier_attempt_deletes_no_port(world: World, neutron: FakeNeutron) -> None:
    """The next attempt uses its ports by then."""
    neutron.network()
    (uuid,) = world.create()
    world.lifecycle.build_instances(world.context(), [uuid])
    host, request = world.compute.builds[-1]
    building = world.reports
    real = building.network.call
    building.network.call = lambda call: (  # type: ignore[method-assign]
        real(call),
        world.report(uuid, host, request.generation, BuildOutcome.RESCHEDULED, "no disk"),
    )[0]
    with pytest.raises(exceptions.StaleReport):
        building.start_build(world.context(), uuid, host, request.generation)
    building.network.call = real  # type: ignore[method-assign]
    assert len(neutron.ports) == 1
    world.lifecycle.build_instances(world.context(), [uuid])
    other, request = world.compute.builds[-1]
    (vif,) = building.start_build(world.context(), uuid, other, request.generation).vifs
    assert [vif.id] == [port["id"] for port in neutron.ports]


def test_a_delete_waits_for_neutron(world: World, neutron: FakeNeutron) -> None:
    neutron.network()
    uuid, host, _ = world.built()
    neutron.status = 503
    delete(world, uuid, host)
    assert (len(neutron.ports), world.open_actions()) == (1, [("delete", "deallocate")])
    neutron.status = 0
    world.let_time_pass(100)
    world.reconciler.sweep()
    assert (neutron.ports, world.open_actions()) == ([], [])


def test_a_create_is_refused_while_neutron_is_away(world: World, neutron: FakeNeutron) -> None:
    neutron.status = 503
    with pytest.raises(exceptions.NetworkServiceUnavailable, match="network service"):
        world.create()


# --- attach and detach


def attach(
    world: World,
    uuid: str,
    network: dict[str, str] | None = None,
    port_id: str | None = None,
    request_id: str | None = None,
) -> tuple[int, VIF]:
    request = NetworkRequest(network_id=None if network is None else network["id"], port_id=port_id)
    payload = {"request": msgspec.to_builtins(request)}
    command = world.lifecycle.accept_action(world.context(request_id), uuid, "attach_interface", payload)
    (vif,) = [vif for vif in command.instance.vifs if vif.id == command.payload["port_id"]]
    return command.action_id, vif


def test_attach_and_detach_make_and_delete_a_port(world: World, neutron: FakeNeutron) -> None:
    network = neutron.network()
    uuid, host, _ = world.built()
    action_id, vif = attach(world, uuid, network)
    assert (vif.state, vif.position, len(neutron.ports)) == ("attaching", 1, 2)
    world.reports.finish_action(world.context(), ActionReport(host=host, action_id=action_id))
    assert [item.state for item in instance(world, uuid).vifs] == [None, None]
    command = world.lifecycle.accept_action(world.context(), uuid, "detach_interface", {"port_id": vif.id})
    assert len(neutron.ports) == 2
    world.reports.finish_action(world.context(), ActionReport(host=host, action_id=command.action_id))
    assert [port["id"] for port in neutron.ports] == [item.id for item in instance(world, uuid).vifs]
    assert (len(neutron.ports), world.open_actions()) == (1, [])


def test_attach_that_fails_on_its_host_leaves_no_port(world: World, neutron: FakeNeutron) -> None:
    network = neutron.network()
    uuid, host, _ = world.built()
    action_id, _ = attach(world, uuid, network)
    world.reports.finish_action(world.context(), ActionReport(host=host, action_id=action_id, error="no slot is left"))
    world.reports.finish_action(world.context(), ActionReport(host=host, action_id=action_id, sequence=1))
    assert (len(neutron.ports), len(instance(world, uuid).vifs), world.open_actions()) == (1, 1, [])


def test_refused_attach_makes_no_port(world: World, neutron: FakeNeutron) -> None:
    network = neutron.network()
    uuid, _, _ = world.built()
    world.lifecycle.accept_action(world.context(), uuid, "stop", {})
    with pytest.raises(exceptions.InstanceInvalidState):
        attach(world, uuid, network)
    assert len(neutron.ports) == 1


def test_attach_whose_reply_was_lost_leaves_no_port(world: World, neutron: FakeNeutron) -> None:
    network = neutron.network()
    uuid, host, _ = world.built()
    before = [port["id"] for port in neutron.ports]
    neutron.late["POST"] = 1
    with pytest.raises(exceptions.NetworkServiceUnavailable):
        attach(world, uuid, network)
    assert len(neutron.ports) == 2
    world.reconciler.sweep()
    assert len(neutron.ports) == 2, "it may still be answered"
    world.let_time_pass(100)
    neutron.status = 503
    world.reconciler.sweep()
    assert len(neutron.ports) == 2
    neutron.status = 0
    world.let_time_pass(100)
    world.reconciler.sweep()
    assert [port["id"] for port in neutron.ports] == before
    assert world.attacher.due() == []
    action_id, _ = attach(world, uuid, network)
    world.reports.finish_action(world.context(), ActionReport(host=host, action_id=action_id))
    assert (len(instance(world, uuid).vifs), world.attacher.due()) == (2, [])


def test_repeated_attach_gets_its_first_port_unless_that_is_being_deleted(world: World, neutron: FakeNeutron) -> None:
    network = neutron.network()
    uuid, host, _ = world.built()
    for is_late in (False, True):
        request_id = f"req-{is_late}"
        neutron.late["POST"] = 1
        with pytest.raises(exceptions.NetworkServiceUnavailable):
            attach(world, uuid, network, request_id=request_id)
        made = neutron.ports[-1]["id"]
        if is_late:
            world.let_time_pass(100)
            with pytest.raises(exceptions.NetworkServiceUnavailable):
                attach(world, uuid, network, request_id=request_id)
            world.reconciler.sweep()
        action_id, vif = attach(world, uuid, network, request_id=request_id)
        assert (vif.id == made) is not is_late
        assert attach(world, uuid, network, request_id=request_id) == (action_id, vif)
        world.reports.finish_action(world.context(), ActionReport(host=host, action_id=action_id))
    assert {port["id"] for port in neutron.ports} == {item.id for item in instance(world, uuid).vifs}


def test_users_port_of_an_attach_without_a_reply_is_released(world: World, neutron: FakeNeutron) -> None:
    port = neutron.port(neutron.network())
    uuid, _, _ = world.built()
    neutron.late["PUT"] = 1
    with pytest.raises(exceptions.NetworkServiceUnavailable):
        attach(world, uuid, port_id=port["id"])
    assert port["device_id"] == uuid
    world.let_time_pass(100)
    world.reconciler.sweep()
    assert (port["device_id"], len(neutron.ports), len(instance(world, uuid).vifs)) == ("", 2, 1)


def test_users_port_of_an_unsettled_attach_is_refused(
    world: World, neutron: FakeNeutron, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the end of the first attach would take the port from the second."""
    port = neutron.port(neutron.network())
    uuid, host, _ = world.built()
    update = neutron_client.NeutronSession.update

    def lost(*_: Any) -> Any:
        raise exceptions.NetworkServiceUnavailable()

    monkeypatch.setattr(neutron_client.NeutronSession, "update", lost)
    with pytest.raises(exceptions.NetworkServiceUnavailable):
        attach(world, uuid, port_id=port["id"])
    monkeypatch.setattr(neutron_client.NeutronSession, "update", update)
    assert port["device_id"] == ""
    with pytest.raises(exceptions.PortInUse):
        attach(world, uuid, port_id=port["id"])
    world.let_time_pass(100)
    world.reconciler.sweep()
    action_id, vif = attach(world, uuid, port_id=port["id"])
    world.reports.finish_action(world.context(), ActionReport(host=host, action_id=action_id))
    world.let_time_pass(100)
    world.reconciler.sweep()
    assert (vif.id, port["device_id"], world.attacher.due()) == (port["id"], uuid, [])


def test_expired_attach_is_not_accepted_later(world: World, neutron: FakeNeutron) -> None:
    """The reply arrives when the port is already being deleted."""
    network = neutron.network()
    uuid, _, _ = world.built()
    backend = world.engine.network
    real = backend.call

    def slow(call: NetworkCall) -> Any:
        answer = real(call)
        if call.method is NetworkMethod.ATTACH:
            world.let_time_pass(100)
        return answer

    backend.call = slow  # type: ignore[method-assign]
    with pytest.raises(exceptions.NetworkServiceUnavailable):
        attach(world, uuid, network)
    backend.call = real  # type: ignore[method-assign]
    world.reconciler.sweep()
    assert (len(neutron.ports), len(instance(world, uuid).vifs)) == (1, 1)


@pytest.mark.parametrize("fate", ["answered", "not answered", "deleted"])
def test_port_made_after_its_attach_expired_is_deleted(world: World, neutron: FakeNeutron, fate: str) -> None:
    """The conductor stood still before the call, for longer than a call may take."""
    network = neutron.network()
    uuid, host, _ = world.built()
    backend = world.engine.network
    real = backend.call

    def late(call: NetworkCall) -> Any:
        if call.method is not NetworkMethod.ATTACH:
            return real(call)
        backend.call = real  # type: ignore[method-assign]
        world.let_time_pass(100)
        if fate == "deleted":
            delete(world, uuid, host)
        world.reconciler.sweep()
        assert world.attacher.due() == []
        neutron.late["POST"] = int(fate == "not answered")
        return real(call)

    backend.call = late  # type: ignore[method-assign]
    with pytest.raises(exceptions.InstanceNotFound if fate == "deleted" else exceptions.NetworkServiceUnavailable):
        attach(world, uuid, network)
    world.let_time_pass(100)
    world.reconciler.sweep()
    assert (len(neutron.ports), world.attacher.due()) == (0 if fate == "deleted" else 1, [])


def test_delete_releases_the_port_of_an_unfinished_attach(world: World, neutron: FakeNeutron) -> None:
    port = neutron.port(neutron.network())
    uuid, host, _ = world.built()
    neutron.late["PUT"] = 1
    with pytest.raises(exceptions.NetworkServiceUnavailable):
        attach(world, uuid, port_id=port["id"])
    delete(world, uuid, host)
    world.let_time_pass(100)
    world.reconciler.sweep()
    assert [(item["id"], item["device_id"]) for item in neutron.ports] == [(port["id"], "")]
    assert (world.open_actions(), world.attacher.due()) == ([], [])


# --- reports of hosts and Neutron


def test_port_is_active_after_an_event_or_a_query(world: World, neutron: FakeNeutron) -> None:
    neutron.network()
    uuid, host, _ = world.built()
    interfaces = PortEndpoints(world.engine)
    (port,) = neutron.ports
    assert not interfaces.interfaces_active(world.context(), uuid, host, refresh=True)
    interfaces.interfaces_event(world.context(), uuid, "network-vif-plugged", port["id"])
    assert interfaces.interfaces_active(world.context(), uuid, host, refresh=False)
    interfaces.interfaces_event(world.context(), uuid, "network-vif-unplugged", port["id"])
    assert not interfaces.interfaces_active(world.context(), uuid, host, refresh=False)
    port["status"] = "ACTIVE"
    assert interfaces.interfaces_active(world.context(), uuid, host, refresh=True), "the event was lost"
    with pytest.raises(exceptions.StaleReport):
        interfaces.interfaces_active(world.context(), uuid, "host9", refresh=True)


def test_a_port_that_was_deleted_is_not_shown(world: World, neutron: FakeNeutron) -> None:
    neutron.network()
    uuid, _, _ = world.built()
    (port,) = neutron.ports
    neutron.rows["ports"].clear()
    PortEndpoints(world.engine).interfaces_event(world.context(), uuid, "network-vif-deleted", port["id"])
    assert instance(world, uuid).vifs == []


def test_binding_follows_the_server(world: World, neutron: FakeNeutron) -> None:
    neutron.network()
    uuid, host, _ = world.built()
    with pytest.raises(exceptions.StaleReport):
        PortEndpoints(world.engine).interfaces_bind(world.context(), uuid, "host9")
    neutron.ports[0]["binding:host_id"] = "host9"
    (vif,) = PortEndpoints(world.engine).interfaces_bind(world.context(), uuid, host).vifs
    assert (vif.id, neutron.ports[0]["binding:host_id"]) == (neutron.ports[0]["id"], host)


def test_security_groups_of_a_server_are_those_of_its_ports(world: World, neutron: FakeNeutron) -> None:
    web = neutron.add("security-groups", name="web", project_id="p1")
    neutron.network()
    uuid, _, _ = world.built(security_groups=["web"])
    interfaces = PortEndpoints(world.engine)
    assert neutron.ports[0]["security_groups"] == [web["id"]]
    interfaces.instance_security_group_add(world.context(), uuid, "default")
    assert [
        instance_security_group.name
        for instance_security_group in interfaces.instance_security_groups(world.context(), uuid)
    ] == ["web", "default"]
    interfaces.instance_security_group_remove(world.context(), uuid, "web")
    assert web["id"] not in neutron.ports[0]["security_groups"]
    assert instance(world, uuid).security_groups == ["default"]
    with pytest.raises(exceptions.SecurityGroupNotAssociated):
        interfaces.instance_security_group_remove(world.context(), uuid, "web")
    with pytest.raises(exceptions.SecurityGroupNotFound):
        interfaces.instance_security_group_add(world.context(), uuid, "nowhere")
    twin = neutron.add("security-groups", name="default", project_id="p1")
    interfaces.instance_security_group_add(world.context(), uuid, twin["id"])
    assert [
        instance_security_group.name
        for instance_security_group in interfaces.instance_security_groups(world.context(), uuid)
    ] == ["default", "default"]
    with pytest.raises(exceptions.SecurityGroupAmbiguous):
        interfaces.instance_security_group_add(world.context(), uuid, "default")
