"""A host whose interfaces another service connects: what a new guest waits for, and what a moved one asks."""

from __future__ import annotations

import msgspec
import pytest

from nova_lite.base import exceptions
from nova_lite.compute.operations import interfaces
from tests.unit.compute.fakes import HOST, UUID, VIFS, Host, make_instance

REMOTE = [msgspec.structs.replace(vif, vif_type="bridge") for vif in VIFS]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interfaces, "POLL_SECONDS", 0.01)


def test_a_guest_runs_on_when_it_is_connected(host: Host) -> None:
    host.conductor.vifs, host.conductor.connected = REMOTE, 7
    host.build()
    host.settle()
    asked = host.conductor.of("interfaces_active")
    assert asked == [False] * 4 + [True] + [False] * 2, "Neutron itself is asked now and then"
    assert [result.outcome for result in host.conductor.of("finish_build")] == ["built"]


def test_one_that_is_never_connected_is_not_made(host: Host) -> None:
    host.conf.set_override("vif_plugging_timeout", 1, "network")
    host.conductor.vifs = REMOTE
    host.build()
    host.settle()
    (result,) = host.conductor.of("finish_build")
    assert (result.outcome, host.domains()) == ("aborted", {})
    assert "did not connect the interfaces" in result.message


def test_it_runs_without_where_that_is_not_fatal(host: Host) -> None:
    host.conf.set_override("vif_plugging_timeout", 1, "network")
    host.conf.set_override("vif_plugging_is_fatal", False, "network")
    host.conductor.vifs = REMOTE
    host.build()
    host.settle()
    assert [result.outcome for result in host.conductor.of("finish_build")] == ["built"]


def test_a_conductor_that_is_away_is_asked_again(host: Host) -> None:
    host.conductor.vifs, host.conductor.connected = REMOTE, 1
    host.conductor.errors["interfaces_active"] = [exceptions.NetworkServiceUnavailable()]
    host.build()
    host.settle()
    assert [result.outcome for result in host.conductor.of("finish_build")] == ["built"]


def test_built_in_networks_are_not_waited_for(host: Host) -> None:
    host.build()
    host.settle()
    assert host.conductor.of("interfaces_active") == []


def test_what_arrives_is_bound_here(host: Host) -> None:
    host.conductor.vifs = REMOTE
    assert interfaces.bind_and_plug(host.manager.host, make_instance(UUID, vifs=REMOTE)) == REMOTE
    assert host.conductor.of("interfaces_bind") == [(UUID, HOST)]
    interfaces.bind_and_plug(host.manager.host, make_instance(UUID, vifs=VIFS))
    assert len(host.conductor.of("interfaces_bind")) == 1
