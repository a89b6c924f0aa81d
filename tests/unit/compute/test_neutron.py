"""Ports of another network service: the wait of a new guest, and the binding of a moved one."""

from __future__ import annotations

import msgspec

from nova_lite.base import exceptions
from nova_lite.compute.operations import interfaces
from tests.support.compute_host import HOST, UUID, VIFS, Host, make_instance

REMOTE = [msgspec.structs.replace(vif, vif_type="ovs") for vif in VIFS]


def test_guest_continues_when_its_ports_are_active(host: Host) -> None:
    host.conductor.vifs, host.conductor.connected = REMOTE, 7
    host.build()
    host.settle()
    forwarded = host.conductor.of("interfaces_active")
    assert forwarded == [False] * 4 + [True] + [False] * 2, "every fifth query is forwarded to Neutron"
    assert [result.outcome for result in host.conductor.of("finish_build")] == ["built"]


def test_guest_with_inactive_ports_is_not_created(host: Host) -> None:
    host.conf.set_override("vif_plugging_timeout", 1, "network")
    host.conductor.vifs = REMOTE
    host.build()
    host.settle()
    (result,) = host.conductor.of("finish_build")
    assert (result.outcome, host.domains()) == ("aborted", {})
    assert "did not connect the interfaces" in result.message


def test_guest_with_inactive_ports_runs_if_that_is_not_fatal(host: Host) -> None:
    host.conf.set_override("vif_plugging_timeout", 1, "network")
    host.conf.set_override("vif_plugging_is_fatal", False, "network")
    host.conductor.vifs = REMOTE
    host.build()
    host.settle()
    assert [result.outcome for result in host.conductor.of("finish_build")] == ["built"]


def test_port_state_is_queried_again_after_an_error(host: Host) -> None:
    host.conductor.vifs, host.conductor.connected = REMOTE, 1
    host.conductor.errors["interfaces_active"] = [exceptions.NetworkServiceUnavailable()]
    host.build()
    host.settle()
    assert [result.outcome for result in host.conductor.of("finish_build")] == ["built"]


def test_built_in_networks_need_no_wait(host: Host) -> None:
    host.build()
    host.settle()
    assert host.conductor.of("interfaces_active") == []


def test_arriving_instance_is_bound_to_this_host(host: Host) -> None:
    host.conductor.vifs = REMOTE
    assert interfaces.bind_and_plug(host.manager.host, make_instance(UUID, vifs=REMOTE)) == REMOTE
    assert host.conductor.of("interfaces_bind") == [(UUID, HOST)]
    interfaces.bind_and_plug(host.manager.host, make_instance(UUID, vifs=VIFS))
    assert len(host.conductor.of("interfaces_bind")) == 1
