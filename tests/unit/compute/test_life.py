"""Rescue, soft delete, restore, passwords and crash dumps on a host."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from nova_lite import operations
from nova_lite.objects import ActionCommand, Image
from nova_lite.operations.states import PowerState
from nova_lite.virt.driver import ComputeDriver
from tests.support.compute_host import LATER, UUID, Host, command

RUNNING, SHUTDOWN = PowerState.RUNNING, PowerState.SHUTDOWN
RESCUE: dict[str, Any] = {
    "image": msgspec.to_builtins(Image(id="i", name="i")),
    "images": {},
    "admin_password": "s3cret",
}


def execute(host: Host, method: str, number: int = 0, generation: int = 1, **payload: Any) -> tuple[int | None, Any]:
    """Execute a command. Return the reported power state and error."""
    step = operations.command_methods()[method]
    given: ActionCommand = command(method, LATER + number, generation, payload=payload)
    host.manager.commands[step.method](host.context, given)
    host.settle()
    action_id, power_state, error = host.conductor.of("finish_action")[-1]
    assert action_id == LATER + number
    return power_state, error


def console(host: Host) -> str:
    return host.driver.consoles.output(UUID, None)


def test_guest_is_rescued_and_unrescued(host: Host) -> None:
    host.built()
    (host.path / "images").mkdir(exist_ok=True)
    (host.path / "images" / "i").write_bytes(b"")
    assert execute(host, "rescue_instance", **RESCUE) == (RUNNING, None)
    assert console(host).count("fake rescue system is booting") == 1
    assert execute(host, "rescue_instance", **RESCUE) == (RUNNING, None), "a duplicate command is only reported again"
    assert console(host).count("fake rescue system is booting") == 1
    assert execute(host, "unrescue_instance", 1) == (RUNNING, None)
    assert console(host).count("fake guest is booting") == 2
    assert host.record().built_generation == 1, "it is the same build"


@pytest.mark.parametrize("method", ["rescue_instance", "unrescue_instance", "set_admin_password", "restore_instance"])
def test_command_for_another_generation_changes_nothing(host: Host, method: str) -> None:
    host.built()
    before = console(host)
    _, error = execute(host, method, generation=2, user="root", **RESCUE)
    assert "has no domain on this host" in error
    assert console(host) == before


@pytest.mark.parametrize("method", ["rescue_instance", "set_admin_password"])
def test_operation_without_driver_support_fails(host: Host, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    host.built()
    for name in ("rescue", "passwords"):
        monkeypatch.setattr(host.driver, name, getattr(ComputeDriver, name))
    power_state, error = execute(host, method, user="root", **RESCUE)
    assert (power_state, "does not support" in error) == (RUNNING, True)


def test_soft_delete_stops_the_guest_and_restore_starts_it(host: Host) -> None:
    host.built()
    assert execute(host, "soft_delete_instance") == (SHUTDOWN, None)
    assert host.domains() == {UUID: 1}
    assert execute(host, "restore_instance", 1) == (RUNNING, None)


def test_soft_delete_of_a_missing_guest_succeeds(host: Host) -> None:
    assert execute(host, "soft_delete_instance") == (None, None)


def test_late_soft_delete_leaves_a_newer_generation_alone(host: Host) -> None:
    host.built(2)
    assert execute(host, "soft_delete_instance", generation=1) == (RUNNING, None)


def test_password_and_crash_dump_reach_the_guest(host: Host) -> None:
    host.built()
    assert execute(host, "set_admin_password", user="root", admin_password="s3cret") == (RUNNING, None)
    assert execute(host, "trigger_crash_dump", 1) == (RUNNING, None)
    assert "for root" in console(host) and "crash dump" in console(host)
    written = [path.read_text() for path in host.path.rglob("*") if path.is_file()]
    assert written and not any("s3cret" in text for text in written), "no file of the host has the password"
