"""Rescue, soft delete, restore, passwords and crash dumps, as a host carries them out."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from nova_lite import operations
from nova_lite.compute.operations import password, rescue
from nova_lite.objects import ActionCommand, Image
from nova_lite.operations.states import PowerState
from tests.unit.compute.fakes import LATER, UUID, Host, ticket

RUNNING, SHUTDOWN = PowerState.RUNNING, PowerState.SHUTDOWN
RESCUE: dict[str, Any] = {
    "image": msgspec.to_builtins(Image(id="i", name="i")),
    "images": {},
    "admin_password": "s3cret",
}


def order(host: Host, method: str, number: int = 0, generation: int = 1, **payload: Any) -> tuple[int | None, Any]:
    """Carry it out; what is reported of it: the power state and the error."""
    step = operations.command_methods()[method]
    given: ActionCommand = ticket(method, LATER + number, generation, payload=payload)
    host.manager.commands[step.method](host.context, given)
    host.settle()
    action_id, power_state, error = host.conductor.of("finish_action")[-1]
    assert action_id == LATER + number
    return power_state, error


def console(host: Host) -> str:
    return host.driver.get_console_output(UUID, None)


def test_a_rescue_and_the_way_back(host: Host) -> None:
    host.built()
    (host.path / "images").mkdir(exist_ok=True)
    (host.path / "images" / "i").write_bytes(b"")
    assert order(host, "rescue_instance", **RESCUE) == (RUNNING, None)
    assert console(host).count("fake rescue system is booting") == 1
    assert order(host, "rescue_instance", **RESCUE) == (RUNNING, None), "a doubled order is only reported again"
    assert console(host).count("fake rescue system is booting") == 1
    assert order(host, "unrescue_instance", 1) == (RUNNING, None)
    assert console(host).count("fake guest is booting") == 2
    assert host.record().built_generation == 1, "it is the same build"


@pytest.mark.parametrize("method", ["rescue_instance", "unrescue_instance", "set_admin_password", "restore_instance"])
def test_an_order_for_another_generation_touches_nothing(host: Host, method: str) -> None:
    host.built()
    before = console(host)
    _, error = order(host, method, generation=2, user="root", **RESCUE)
    assert "has no domain on this host" in error
    assert console(host) == before


class Other:
    """What the driver is not."""


@pytest.mark.parametrize("method", ["rescue_instance", "set_admin_password"])
def test_what_a_driver_cannot_is_said(host: Host, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    host.built()
    monkeypatch.setattr(rescue, "Rescuing", Other)
    monkeypatch.setattr(password, "SettingPasswords", Other)
    power_state, error = order(host, method, user="root", **RESCUE)
    assert (power_state, "does not support" in error) == (RUNNING, True)


def test_a_soft_delete_turns_it_off_and_a_restore_on_again(host: Host) -> None:
    host.built()
    assert order(host, "soft_delete_instance") == (SHUTDOWN, None)
    assert host.domains() == {UUID: 1}
    assert order(host, "restore_instance", 1) == (RUNNING, None)


def test_a_soft_delete_of_what_is_not_there_is_done(host: Host) -> None:
    assert order(host, "soft_delete_instance") == (None, None)


def test_a_late_soft_delete_leaves_a_later_build_alone(host: Host) -> None:
    host.built(2)
    assert order(host, "soft_delete_instance", generation=1) == (RUNNING, None)


def test_a_password_and_a_crash_dump_reach_the_guest(host: Host) -> None:
    host.built()
    assert order(host, "set_admin_password", user="root", admin_password="s3cret") == (RUNNING, None)
    assert order(host, "trigger_crash_dump", 1) == (RUNNING, None)
    assert "for root" in console(host) and "crash dump" in console(host)
    written = [path.read_text() for path in host.path.rglob("*") if path.is_file()]
    assert written and not any("s3cret" in text for text in written), "no file of the host has the password"
