"""Servers of a host that has booted again."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from nova_lite.db.core import models
from nova_lite.objects import ActionReport, DomainReport, Verdict
from tests.support.conductor_world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def off(world: World, lost_power: bool, vm_state: str = "active") -> tuple[str, str]:
    """Report, as a host does after its boot, that a server is off. Returns the server's uuid and its host."""
    uuid, host, generation = world.built()
    world.db.write(lambda uow: uow.session.execute(sa.update(models.Instance).values(vm_state=vm_state)))
    report = DomainReport(uuid=uuid, generation=generation, power_state=4, last_action_id=0, lost_power=lost_power)
    for _ in range(2):
        world.reports.reconcile_domains(world.context(admin=True), host, [report], [])
    return uuid, host


def test_server_that_ran_is_started_again_after_a_power_loss(world: World) -> None:
    uuid, host = off(world, lost_power=True)
    assert world.open_actions() == [("start", "perform")]
    assert (world.instance(uuid).vm_state, world.instance(uuid).task_state) == ("stopped", "powering-on")
    world.let_time_pass(3)
    world.reconciler.sweep()
    (command,) = world.compute.commands
    assert (command.method, command.host) == ("start_instance", host)
    world.reports.finish_action(world.context(), ActionReport(host=host, action_id=command.action_id, power_state=1))
    assert (world.instance(uuid).vm_state, world.open_actions()) == ("active", [])


def test_locked_server_is_started_again_after_a_power_loss(world: World) -> None:
    uuid, host, generation = world.built()
    world.lifecycle.accept_action(world.context(admin=True), uuid, "lock", {})
    report = DomainReport(uuid=uuid, generation=generation, power_state=4, last_action_id=0, lost_power=True)
    world.reports.reconcile_domains(world.context(admin=True), host, [report], [])
    assert world.open_actions() == [("start", "perform")]


@pytest.mark.parametrize("vm_state", ["stopped", "paused", "suspended", "rescued", "soft-delete", "error"])
def test_server_that_did_not_run_is_not_started_after_a_power_loss(world: World, vm_state: str) -> None:
    off(world, lost_power=True, vm_state=vm_state)
    assert world.open_actions() == []


@pytest.mark.parametrize("policy", ["always", "never"])
def test_protected_server_is_started_again_after_a_boot_whatever_the_host_wants(world: World, policy: str) -> None:
    uuid, host, generation = world.built(metadata={"ha:restart": policy})
    report = DomainReport(uuid=uuid, generation=generation, power_state=4, last_action_id=0, booted=True)
    world.reports.reconcile_domains(world.context(admin=True), host, [report], [])
    assert world.open_actions() == ([("start", "perform")] if policy == "always" else [])


def test_server_that_shut_itself_down_is_stopped(world: World) -> None:
    uuid, _ = off(world, lost_power=False)
    assert (world.instance(uuid).vm_state, world.open_actions()) == ("stopped", [])


def test_server_with_a_task_as_its_host_booted_is_decided_on_when_the_task_has_ended(world: World) -> None:
    uuid, host, generation = world.built(metadata={"ha:restart": "always"})
    report = DomainReport(uuid=uuid, generation=generation, power_state=4, last_action_id=0, booted=True)

    def reported() -> bool:
        (verdict,) = world.reports.reconcile_domains(world.context(admin=True), host, [report], [])
        assert verdict.verdict == Verdict.KEEP
        return verdict.undecided

    set_task(world, "migrating")
    assert reported()
    assert (world.instance(uuid).vm_state, world.open_actions()) == ("active", [])
    set_task(world, None)
    assert not reported()
    assert world.open_actions() == [("start", "perform")]


def set_task(world: World, task_state: str | None) -> None:
    world.db.write(lambda uow: uow.session.execute(sa.update(models.Instance).values(task_state=task_state)))
