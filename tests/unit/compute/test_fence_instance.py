"""`fence_instance` before, during and after a build."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from nova_lite.base import exceptions
from nova_lite.base.timing import ComputeTiming
from nova_lite.operations.states import PowerState
from tests.support.compute_host import DEADLINE, UUID, Gate, Host, command
from tests.support.waiting import wait_for


def test_missing_instance_is_revoked_and_a_late_build_rejected(host: Host) -> None:
    assert host.fence() is True
    host.build()
    host.settle()
    assert host.traces() == []
    assert host.conductor.of("start_build") == []
    assert host.conductor.outcomes == [(1, "rescheduled")]
    host.built(2)


def test_complete_build_is_not_revoked(host: Host) -> None:
    host.built()
    assert host.fence() is False
    assert host.domains() == {UUID: 1}
    assert host.record().revoked_generation < 1


def test_late_revocation_does_not_destroy_a_stopped_server(host: Host) -> None:
    host.built()
    host.act(command("stop"))
    host.settle()
    assert host.fence() is False
    assert host.next_life().fence() is False
    assert host.power() == PowerState.SHUTDOWN


def test_revocation_of_an_older_generation_leaves_the_newer_one(host: Host) -> None:
    host.built(2)
    assert host.fence(1) is True
    assert host.domains() == {UUID: 2}


def test_revocation_of_a_newer_generation_removes_the_older_domain(host: Host) -> None:
    host.built(1)
    assert host.fence(2) is True
    assert host.traces() == []


def test_build_whose_domain_vanished_is_revoked(host: Host) -> None:
    host.built()
    host.driver.guests.destroy(UUID)
    assert host.fence() is True
    host.build()
    host.settle()
    assert host.traces() == []


@pytest.mark.parametrize("step", ["start_build", "plug_vifs", "image", "spawn_before_domain", "spawn_after_domain"])
def test_revocation_stops_a_running_build_and_waits_for_it(host: Host, step: str) -> None:
    gate = Gate()
    (host.conductor.hooks if step == "start_build" else host.driver.hooks)[step] = gate
    host.build()
    gate.wait()
    answers: list[bool] = []
    asking = threading.Thread(target=lambda: answers.append(host.fence()))
    asking.start()
    wait_for("the generation is revoked", lambda: host.record().revoked_generation == 1, DEADLINE)
    assert answers == []
    gate.open()
    asking.join(10)
    assert answers == [True]
    host.settle()
    assert host.traces() == []
    assert host.conductor.outcomes == []


def test_revocation_does_not_wait_for_the_report_of_a_complete_build(host: Host) -> None:
    gate = host.conductor.hooks["finish_build"] = Gate()
    host.build()
    gate.wait()
    assert host.fence() is False
    gate.open()
    host.settle()
    assert host.conductor.outcomes == [(1, "built")]


def test_revocation_of_a_build_that_does_not_stop_has_to_be_repeated(tmp_path: Path) -> None:
    host = Host(tmp_path, timing=ComputeTiming(fence_wait=0.05))
    gate = host.driver.hooks["image"] = Gate()
    host.build()
    gate.wait()
    with pytest.raises(exceptions.ServiceUnavailable):
        host.fence()
    gate.open()
    host.settle()
    assert host.fence() is True
    assert host.traces() == []


def test_revocation_that_cannot_remove_the_domain_fails_but_holds(host: Host) -> None:
    host.built(1)
    host.control(fail_at=["destroy"])
    with pytest.raises(exceptions.VirtDriverError):
        host.fence(2)
    assert host.record().revoked_generation == 2
    host.control()
    assert host.next_life().fence(2) is True
    assert host.traces()[1:] == [] or host.domains() == {}


def test_concurrent_build_and_revocation_agree(host: Host) -> None:
    """Whatever the timing: either it runs or nothing is left, and the reply is right."""
    for generation in range(1, 60):
        uuid_answers: list[bool] = []
        order = threading.Thread(target=host.build, args=(generation,))
        ask = threading.Thread(target=lambda g=generation, a=uuid_answers: a.append(host.fence(g)))
        first, second = (order, ask) if generation % 2 else (ask, order)
        first.start()
        second.start()
        first.join()
        second.join()
        host.settle()
        (fenced,) = uuid_answers
        assert (host.domains() == {UUID: generation}) is not fenced
