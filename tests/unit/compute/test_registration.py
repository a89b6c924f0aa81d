"""The daemon of a host that was forced down."""

from __future__ import annotations

import pytest

from nova_lite.base import exceptions
from nova_lite.objects import DomainVerdict, Verdict
from tests.support.compute_host import HOST, UUID, Gate, Host, command

DESTROY = DomainVerdict(uuid=UUID, generation=1, verdict=Verdict.DESTROY)


def silent_for_long(host: Host) -> None:
    """Simulate a pause of the daemon that is longer than its lease."""
    host.manager.registration._confirmed -= host.conf.service_down_time


def test_heartbeats_contain_the_epoch_of_the_registration(host: Host) -> None:
    host.manager.registration.send_heartbeat()
    (beat,) = host.conductor.of("report_state")
    assert beat.epoch == host.conductor.epoch != 0


def test_heartbeats_report_whether_the_host_serves(host: Host) -> None:
    registration = host.manager.registration
    registration.send_heartbeat()
    registration.serve()
    host.manager.connect()
    registration.send_heartbeat()
    assert [report.serving for report in host.conductor.of("report_state")] == [False, True, False]
    assert not any(report.serving for report in host.conductor.of("register_host"))


def test_serving_is_reported_later_to_an_unavailable_conductor(host: Host) -> None:
    host.conductor.down = True
    host.manager.registration.serve()
    host.conductor.down = False
    host.manager.registration.send_heartbeat()
    assert host.conductor.of("report_state")[-1].serving


def test_rejected_heartbeat_causes_a_new_registration(host: Host) -> None:
    host.conductor.epoch += 1
    with pytest.raises(exceptions.HostEpochOver):
        host.manager.registration.send_heartbeat()
    assert host.manager.registration.lost.is_set()
    host.manager.connect()
    assert not host.manager.registration.lost.is_set()
    host.manager.registration.send_heartbeat()


def test_command_before_the_new_registration_is_dropped(host: Host) -> None:
    host.built()
    host.conductor.epoch += 1
    with pytest.raises(exceptions.HostNotAdmitted):
        host.manager.registration.send_heartbeat()
    host.act(command("delete"))
    host.settle()
    assert host.domains() == {UUID: 1}


@pytest.mark.parametrize("admitted", [True, False])
def test_command_after_a_long_silence_sends_a_heartbeat_first(host: Host, admitted: bool) -> None:
    host.built()
    silent_for_long(host)
    host.conductor.epoch += 0 if admitted else 1
    host.act(command("delete"))
    host.settle()
    assert len(host.conductor.of("report_state")) == 1
    assert host.domains() == ({} if admitted else {UUID: 1})
    assert host.manager.registration.lost.is_set() is not admitted


def test_command_is_dropped_while_the_conductor_is_silent(host: Host) -> None:
    host.built()
    silent_for_long(host)
    host.conductor.down = True
    host.act(command("delete"))
    host.settle()
    assert host.domains() == {UUID: 1}
    assert not host.manager.registration.lost.is_set()


def test_host_that_is_forced_down_cannot_register(host: Host) -> None:
    host.conductor.errors["register_host"] = [exceptions.HostForcedDown(host=HOST)]
    with pytest.raises(exceptions.HostForcedDown, match="host-a is forced down"):
        host.manager.connect()


def test_moved_guest_is_destroyed_before_the_host_serves(host: Host) -> None:
    host.built()
    host.conductor.verdicts = [DESTROY]
    host.manager.clean_up()
    assert host.traces() == []


@pytest.mark.parametrize("step", ["destroy", "get_info"])
def test_host_does_not_serve_with_foreign_domains(host: Host, step: str) -> None:
    host.built()
    host.conductor.verdicts = [DESTROY]
    host.control(fail_at=[step])
    with pytest.raises(exceptions.ServiceUnavailable, match=f"could not be destroyed: {UUID}"):
        host.manager.clean_up()
    assert host.domains() == {UUID: 1}
    host.control()
    host.manager.clean_up()
    assert host.domains() == {}


def test_job_of_an_earlier_registration_has_to_end_first(host: Host) -> None:
    gate = host.conductor.hooks["finish_build"] = Gate()
    host.build()
    gate.wait()
    registered = len(host.conductor.of("register_host"))
    with pytest.raises(exceptions.ServiceUnavailable, match="have not ended"):
        host.manager.connect()
    assert len(host.conductor.of("register_host")) == registered
    gate.open()
    host.settle()
    host.manager.connect()
    host.manager.clean_up()
