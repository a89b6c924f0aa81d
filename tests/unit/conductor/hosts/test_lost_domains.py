"""A vanished domain: the expected domains of a host, and the effect of its report, over a real database."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nova_lite.conductor.hosts.domains import LOST
from nova_lite.objects import BuildOutcome, ExpectedDomain
from nova_lite.operations import states
from tests.support.server_moves import Live

SHUTDOWN = 4


class World(Live):
    """A world with one server that runs at host1."""

    def expected(self, host: str = "host1") -> list[ExpectedDomain]:
        return self.reports.domains_expected(self.context(), host)  # type: ignore[no-any-return]

    def lost(self, expected: ExpectedDomain, host: str = "host1") -> None:
        self.reports.domain_lost(self.context(), host, expected)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_server_without_its_domain_is_in_error_and_keeps_its_claim(world: World) -> None:
    (expected,) = world.expected()
    assert (expected.uuid, expected.generation, world.expected("host2")) == (world.uuid, 1, [])
    world.lost(expected)
    assert world.state == (states.ERROR, None, "host1", 1)
    assert (world.row.power_state, world.used()["host1"], world.problems()) == (0, 1, [])
    assert world.row.fault is not None and world.row.fault["message"] == LOST
    assert world.expected() == []
    before = world.row.updated_at
    world.lost(expected)
    assert world.row.updated_at == before, "reported twice"


def test_rebuild_restores_a_server_without_its_domain(world: World) -> None:
    world.lost(world.expected()[0])
    images = {"i": {"id": "i", "name": "image"}}
    world.act("rebuild", image_ref="i", images=images, changes={}, injected_files={})
    command = world.command
    assert command.build is not None and (command.host, command.build.generation) == ("host1", 2)
    world.reports.start_build(world.context(), world.uuid, "host1", 2)
    world.report(world.uuid, "host1", 2, BuildOutcome.BUILT)
    assert world.state == (states.ACTIVE, None, "host1", 2)
    assert (world.row.fault, world.used()["host1"]) == (None, 1)


def test_hard_reboot_command_has_the_images(world: World) -> None:
    world.lost(world.expected()[0])
    command = world.act("reboot", reboot_type="HARD")
    assert (command.host, command.generation) == ("host1", 1)
    assert {"image", "boot_images"} <= set(command.payload)
    world.answer(1)
    assert (world.state, world.row.fault) == ((states.ACTIVE, None, "host1", 1), None)


@pytest.mark.parametrize("action", ["stop", "resize", "delete"])
def test_missing_domain_is_ignored_while_an_action_is_open(world: World, action: str) -> None:
    (expected,) = world.expected()
    world.act(action, **({"flavor_id": "2"} if action == "resize" else {}))
    assert world.expected() == []
    before = world.state
    world.lost(expected)
    assert world.state == before
    assert world.row.fault is None


def test_missing_domain_is_ignored_after_a_later_action(world: World) -> None:
    (expected,) = world.expected()
    world.act("stop")
    world.answer(SHUTDOWN)
    world.lost(expected)
    assert world.state == (states.STOPPED, None, "host1", 1)
    world.lost(world.expected()[0])
    assert world.state == (states.ERROR, None, "host1", 1)


@pytest.mark.parametrize(
    ("host", "changes"), [("host2", {}), ("host1", {"generation": 2}), ("host1", {"uuid": "00000000-0000-4000-8000-0"})]
)
def test_host_reports_only_its_own_missing_domains(world: World, host: str, changes: dict[str, Any]) -> None:
    (expected,) = world.expected()
    fields = {"uuid": expected.uuid, "generation": 1, "last_action_id": expected.last_action_id}
    world.lost(ExpectedDomain(**{**fields, **changes}), host)
    assert world.state == (states.ACTIVE, None, "host1", 1)


def test_states_without_a_domain_are_not_expected(world: World) -> None:
    """A resized server may be reverted, because its disks are at the other host."""
    world.resized()
    assert world.state == (states.RESIZED, None, "host2", 2)
    assert (world.expected("host2"), world.expected("host1")) == ([], [])
