"""Resizes of running guests where they are: one place, one claim of the larger flavor, and the guest's answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from nova_lite import objects
from nova_lite.base import exceptions
from nova_lite.conductor.operations import resize
from nova_lite.db.servers import flavors, server_migrations
from nova_lite.objects import Flavor
from nova_lite.operations import states
from tests.support.server_moves import RUNNING, SHUTDOWN, Moving, evacuate, force_down

SPECS = {"hw:max_vcpus": "4", "hw:max_memory": "1024"}


def flavor(number: str, vcpus: int, memory_mb: int) -> Flavor:
    return Flavor(flavorid=number, name=number, vcpus=vcpus, memory_mb=memory_mb, root_gb=1, extra_specs=SPECS)


class InPlace(Moving):
    """A world with a server of flavor "small" on host1."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        for made in (flavor("small", 1, 256), flavor("large", 3, 768)):
            self.db.write(flavors.create, made)
        self.act("delete")
        self.answer()
        self.uuid, self.source, self.generation = self.built(flavor_id="small")

    def expect(self, method: str, flavor_id: str) -> None:
        command = self.command
        assert (command.method, command.host, command.generation) == (method, self.source, self.generation)
        assert command.payload["flavor"]["flavorid"] == flavor_id

    def plugged(self) -> None:
        self.act("resize", flavor_id="large")
        self.expect("resize_in_place", "large")
        self.answer(RUNNING)

    def shrunk(self) -> None:
        """Leave a server of flavor "large" that is resized to "small", and not confirmed."""
        self.plugged()
        self.act("confirmResize")
        self.act("resize", flavor_id="small")
        self.answer(RUNNING)

    def rests(self, vm_state: str, flavor_id: str, held: int, status: str) -> None:
        """Check that nothing is open, and what the server's host and project count for it."""
        assert self.state == (vm_state, None, self.source, self.generation)
        assert (self.row.flavorid, self.used()[self.source], self.cores()) == (flavor_id, held, held)
        assert (self.statuses()[-1], self.open_actions(), self.problems()) == (status, [], [])


@pytest.fixture
def world(tmp_path: Path) -> InPlace:
    return InPlace(tmp_path)


def test_resize_in_place_waits_for_its_owner_and_is_confirmed_without_a_command(world: InPlace) -> None:
    world.act("resize", flavor_id="large")
    assert world.state == (states.ACTIVE, states.RESIZE_MIGRATING, world.source, world.generation)
    assert (world.used()[world.source], world.row.flavorid, world.problems()) == (3, "small", [])
    world.answer(RUNNING)
    world.rests(states.RESIZED, "large", 3, "finished")
    assert world.act("confirmResize").host is None
    world.rests(states.ACTIVE, "large", 3, "confirmed")


def test_resize_in_place_is_reverted_by_its_host(world: InPlace) -> None:
    world.plugged()
    world.act("revertResize")
    world.expect("resize_in_place", "small")
    assert world.state == (states.RESIZED, states.RESIZE_REVERTING, world.source, world.generation)
    world.answer(RUNNING)
    world.rests(states.ACTIVE, "small", 1, "reverted")


def test_guest_that_keeps_its_size_at_a_revert_leaves_the_choice_to_its_owner(world: InPlace) -> None:
    world.plugged()
    world.act("revertResize")
    world.answer(RUNNING, error="it has 3 of 1 vCPUs")
    world.expect("rollback_resize_in_place", "small")
    world.answer(RUNNING, answer={"done": False})
    world.rests(states.RESIZED, "large", 3, "finished")
    world.act("confirmResize")
    world.rests(states.ACTIVE, "large", 3, "confirmed")


def test_smaller_size_frees_its_host_when_it_is_confirmed(world: InPlace) -> None:
    world.shrunk()
    world.rests(states.RESIZED, "small", 3, "finished")
    world.act("confirmResize")
    world.rests(states.ACTIVE, "small", 1, "confirmed")


def test_smaller_size_is_reverted_with_the_claim_that_it_kept(world: InPlace) -> None:
    world.shrunk()
    world.act("revertResize")
    world.expect("resize_in_place", "large")
    world.answer(RUNNING)
    world.rests(states.ACTIVE, "large", 3, "reverted")


def test_failed_resize_in_place_releases_the_claim(world: InPlace) -> None:
    world.act("resize", flavor_id="large")
    world.answer(RUNNING, error="it has 256 of 768 MB of memory")
    world.expect("rollback_resize_in_place", "large")
    assert world.used()[world.source] == 3
    world.answer(RUNNING, answer={"done": False})
    world.rests(states.ACTIVE, "small", 1, "error")


def test_guest_that_does_not_release_what_it_got_keeps_the_new_flavor(world: InPlace) -> None:
    world.act("resize", flavor_id="large")
    world.answer(RUNNING, error="it has 500 of 768 MB of memory")
    world.answer(RUNNING, answer={"done": True})
    world.rests(states.RESIZED, "large", 3, "finished")


def test_guest_that_has_turned_itself_off_is_stopped_after_the_decision(world: InPlace) -> None:
    world.act("resize", flavor_id="large")
    world.answer(SHUTDOWN)
    world.act("confirmResize")
    world.rests(states.STOPPED, "large", 3, "confirmed")


def test_guest_that_has_turned_itself_off_is_stopped_after_a_revert(world: InPlace) -> None:
    world.plugged()
    world.act("revertResize")
    world.answer(SHUTDOWN)
    world.rests(states.STOPPED, "small", 1, "reverted")


def test_host_without_room_leaves_the_resize_to_another_host(world: InPlace) -> None:
    for _ in range(2):
        world.scheduler.hosts = ["host1"]
        world.built()
    world.scheduler.hosts = ["host1", "host2"]
    world.act("resize", flavor_id="large")
    assert (world.command.method, world.used()) == ("resize_instance", {"host1": 3, "host2": 3})


def test_host_that_is_down_gets_no_resize_in_place(world: InPlace) -> None:
    world.silence(world.source)
    world.act("resize", flavor_id="large")
    assert world.used()[world.source] == 1


def test_host_that_is_down_is_not_asked_to_release_anything(world: InPlace) -> None:
    world.plugged()
    world.act("confirmResize")
    world.silence(world.source)
    commands = len(world.compute.commands)
    world.act("resize", flavor_id="small")
    assert [command.method for command in world.compute.commands[commands:]] == []


def test_stopped_server_is_resized_as_a_move(world: InPlace) -> None:
    world.act("stop")
    world.answer(SHUTDOWN)
    world.act("resize", flavor_id="large")
    assert world.command.method == "resize_instance"


def test_quota_counts_a_resize_in_place_at_once(world: InPlace) -> None:
    world.db.write(flavors.create, flavor("quota", 4, 1024))
    for _ in range(9):
        world.scheduler.hosts = ["host2"]
        world.create(flavor_id="2")
    with pytest.raises(exceptions.QuotaExceeded):
        world.act("resize", flavor_id="quota")
    assert world.used()["host1"] == 1


@pytest.mark.parametrize("moment", ["plugging", "resized", "reverting"])
def test_delete_at_any_moment_releases_all(world: InPlace, moment: str) -> None:
    world.act("resize", flavor_id="large")
    if moment != "plugging":
        world.answer(RUNNING)
    if moment == "reverting":
        world.act("revertResize")
    world.act("delete")
    world.answer()
    assert (world.row.deleted, world.used()[world.source], world.cores()) == (True, 0, 0)
    assert (world.open_actions(), world.problems()) == ([], [])
    assert world.statuses() == ["error" if moment == "plugging" else "confirmed"]


@pytest.mark.parametrize(
    ("moment", "flavor_id", "held", "status"),
    [("plugging", "small", 1, "error"), ("resized", "large", 3, "confirmed"), ("reverting", "large", 3, "error")],
)
def test_evacuation_takes_the_flavor_of_the_row(
    world: InPlace, moment: str, flavor_id: str, held: int, status: str
) -> None:
    world.act("resize", flavor_id="large")
    if moment != "plugging":
        world.answer(RUNNING)
    if moment == "reverting":
        world.act("revertResize")
    force_down(world, world.source)
    evacuate(world, world.uuid)
    world.lifecycle.build_instances(world.context(), [world.uuid])
    assert (world.row.flavorid, world.used()) == (flavor_id, {"host1": 0, "host2": held})
    assert (world.statuses()[0], world.cores(), world.problems()) == (status, held, [])


def test_server_reset_during_a_resize_in_place_can_be_resized_again(world: InPlace) -> None:
    world.shrunk()
    world.act("reset_state", vm_state=states.ACTIVE)
    world.act("resize", flavor_id="large")
    world.answer(RUNNING)
    world.rests(states.RESIZED, "large", 3, "finished")
    assert world.statuses() == ["confirmed", "confirmed", "finished"]


def test_resize_in_place_is_listed_with_one_host(world: InPlace) -> None:
    world.plugged()
    (row,) = world.db.read(server_migrations.list_, objects.MigrationFilters())
    assert (row.source_compute, row.dest_compute, row.migration_type) == ("host1", "host1", "resize")


def test_move_between_hosts_is_never_in_place(world: InPlace) -> None:
    world.act("migrate")
    row = world.db.read(server_migrations.current, world.uuid)
    assert row is not None
    assert not resize.is_in_place(row)
