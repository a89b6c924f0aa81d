"""A network backend that calls another service: outside transactions, and without leftovers there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nova_lite.base import exceptions
from nova_lite.db.core import models
from nova_lite.network.driver import NetworkCall, NetworkMethod
from nova_lite.network.fake import FakeNetworks
from nova_lite.objects import ActionReport, BuildOutcome
from tests.support.conductor_world import World


class Service(FakeNetworks):
    """Records its calls. ``fails``: the error that it raises. ``meanwhile``: runs during a call."""

    def __init__(self, conf: Any) -> None:
        super().__init__(conf)
        self.asked: list[str] = []
        self.fails: set[NetworkMethod] = set()
        self.meanwhile: dict[NetworkMethod, Callable[[], None]] = {}

    def call(self, call: NetworkCall) -> Any:
        self.asked.append(call.method.value)
        if call.method in self.meanwhile:
            self.meanwhile.pop(call.method)()
        if call.method in self.fails:
            raise exceptions.ServiceUnavailable("The network service is away.")
        return super().call(call)

    def holds(self) -> list[str]:
        directory = Path(self.conf.state_path) / "network-service"
        return sorted(path.name for path in directory.iterdir()) if directory.exists() else []


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, Service)


@pytest.fixture
def service(world: World) -> Service:
    found = world.engine.network
    assert isinstance(found, Service)
    return found


def placed(world: World) -> tuple[str, str, int]:
    """Return an instance whose host got the command to build it."""
    (uuid,) = world.create()
    world.lifecycle.build_instances(world.context(), [uuid])
    host, request = world.compute.builds[-1]
    return uuid, host, request.generation


def delete(world: World, uuid: str, host: str) -> None:
    command = world.lifecycle.accept_action(world.context(), uuid, "delete", {})
    world.reports.finish_action(world.context(), ActionReport(host=host, action_id=command.action_id))


def test_interfaces_live_as_long_as_the_server(world: World, service: Service) -> None:
    uuid, host, _ = world.built()
    assert (service.asked, service.holds()) == (["resolve", "allocate"], [uuid])
    delete(world, uuid, host)
    assert (service.asked[2:], service.holds(), world.open_actions()) == (["deallocate"], [], [])
    assert (world.count(models.Port), world.used()) == (0, {"host1": 0, "host2": 0})


def test_service_is_called_outside_transactions(world: World, service: Service) -> None:
    """SQLite has one writer: with an open transaction another write would wait forever."""
    for method in (NetworkMethod.RESOLVE, NetworkMethod.ALLOCATE, NetworkMethod.DEALLOCATE):
        service.meanwhile[method] = lambda: world.let_time_pass(0)
    uuid, host, _ = world.built()
    delete(world, uuid, host)
    assert not service.meanwhile


def test_create_is_refused_while_the_service_is_away(world: World, service: Service) -> None:
    service.fails = {NetworkMethod.RESOLVE}
    with pytest.raises(exceptions.ServiceUnavailable):
        world.create()
    assert (world.count(models.Instance), world.instances_used()) == (0, 0)


def test_a_delete_is_done_for_its_owner_and_ends_when_the_service_is_back(world: World, service: Service) -> None:
    uuid, host, _ = world.built()
    service.fails = {NetworkMethod.DEALLOCATE}
    delete(world, uuid, host)
    assert world.instance(uuid).deleted
    assert (world.open_actions(), service.holds()) == ([("delete", "deallocate")], [uuid])
    assert world.used()[host] == 1, "given back only after the step before"
    world.let_time_pass(2000)
    world.reconciler.sweep()
    assert world.open_actions() == [("delete", "deallocate")], "it has no deadline"
    service.fails = set()
    world.let_time_pass(100)
    world.reconciler.sweep()
    assert (world.open_actions(), service.holds(), world.used()[host]) == ([], [], 0)


def test_failed_build_releases_the_interfaces(world: World, service: Service) -> None:
    uuid, host, generation = placed(world)
    world.reports.start_build(world.context(), uuid, host, generation)
    world.report(uuid, host, generation, BuildOutcome.ABORTED, "the image is corrupt")
    fault = world.instance(uuid).fault
    assert fault is not None
    assert (fault.message, service.holds(), world.open_actions()) == ("the image is corrupt", [], [])


def test_build_that_ends_during_the_call_leaves_no_interfaces(world: World, service: Service) -> None:
    uuid, host, generation = placed(world)
    service.meanwhile[NetworkMethod.ALLOCATE] = lambda: delete(world, uuid, host)
    with pytest.raises(exceptions.InstanceGone):
        world.reports.start_build(world.context(), uuid, host, generation)
    assert service.holds() == []
    world.let_time_pass(1000)
    world.reconciler.sweep()
    assert (world.open_actions(), service.holds()) == ([], [])


def test_delete_waits_for_a_call_that_may_still_take_effect(world: World, service: Service) -> None:
    """The conductor of the call dies, and the service carries it out after the delete."""
    uuid, host, generation = placed(world)
    plan = world.db.write(world.building._plan_networks, uuid, host, generation)
    delete(world, uuid, host)
    assert world.open_actions() == [("delete", "deallocate")]
    assert "deallocate" not in service.asked
    service.call(plan)
    world.let_time_pass(100)
    world.reconciler.sweep()
    assert (world.open_actions(), service.holds()) == ([], [])
