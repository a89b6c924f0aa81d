"""The registry of abilities, and the driver with three abilities of the page for new drivers."""

from __future__ import annotations

import inspect
import re
import typing
from pathlib import Path
from typing import Any

import pytest

from nova_lite.base import exceptions
from nova_lite.operations.states import PowerState
from nova_lite.virt import abilities
from nova_lite.virt import driver as drivers
from nova_lite.virt.driver import ComputeDriver, Unsupported
from nova_lite.virt.fake import FakeDriver
from nova_lite.virt.libvirt.driver import LibvirtDriver
from nova_lite.virt.qemu.driver import QemuDriver
from tests.support.compute_host import LATER, UUID, VIFS, Host, command, make_conf, make_instance

PAGE = Path(__file__).parents[3] / "docs/contributing/add-a-driver.md"
ABILITIES = typing.get_type_hints(ComputeDriver)


def example() -> type[ComputeDriver]:
    """Return the driver of the page."""
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    names: dict[str, Any] = {}
    exec(found[1], names)
    made: type[ComputeDriver] = names["MemoryDriver"]
    return made


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setattr("tests.support.compute_host.HookedDriver", example())
    made = Host(tmp_path)
    made.conductor.vifs = []
    made.build()
    made.settle()
    return made


def act(host: Host, action: str, action_id: int = LATER, **values: Any) -> tuple[Any, Any]:
    host.act(command(action, action_id, instance=make_instance(vifs=[]), **values))
    host.settle()
    done, power_state, error = host.conductor.of("finish_action")[-1]
    assert done == action_id
    return power_state, error


def test_driver_with_three_abilities_builds_and_deletes_a_server(host: Host) -> None:
    assert host.conductor.outcomes == [(1, "built")]
    assert host.power() == PowerState.RUNNING
    assert act(host, "stop") == (PowerState.SHUTDOWN, None)
    assert act(host, "start", LATER + 1) == (PowerState.RUNNING, None)
    assert act(host, "delete", LATER + 2) == (None, None)
    assert host.driver.guests.all() == []


def test_driver_with_three_abilities_refuses_every_other_operation(host: Host) -> None:
    for number, (action, named) in enumerate((("pause", "pause"), ("suspend", "suspend"), ("resume", "resume"))):
        power_state, error = act(host, action, LATER + number)
        assert power_state == PowerState.RUNNING
        assert re.search(f"does not support .*{named}", error)


def test_driver_with_three_abilities_survives_the_periodic_jobs(host: Host) -> None:
    manager = host.manager
    manager.reconciler.run()
    manager.age_images()
    manager.age_networks()
    manager.report_storage()
    manager.health_reports.tick()
    manager.load_reports.tick()
    assert host.driver.guests.get(UUID).power_state == PowerState.RUNNING


def test_driver_without_networks_refuses_interfaces_only(host: Host) -> None:
    host.driver.networks.plug(make_instance(), [])
    host.driver.networks.unplug(UUID)
    with pytest.raises(exceptions.NotImplementedByDriver, match="interfaces"):
        host.driver.networks.plug(make_instance(), VIFS)


def test_unsupported_ability_is_false_and_names_the_operation() -> None:
    ability = Unsupported("console output", vnc="VNC consoles")
    assert not ability
    for method, words in (("output", "console output"), ("vnc", "VNC consoles")):
        with pytest.raises(exceptions.NotImplementedByDriver, match=words):
            getattr(ability, method)


def test_driver_that_lacks_a_required_ability_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drivers.plugins, "load", lambda *arguments: [ComputeDriver])
    with pytest.raises(exceptions.ConfigurationError, match="lacks guests, power, machine"):
        drivers.load_compute_driver(make_conf(tmp_path), "h1", lambda image, path: None)


def is_required(method: Any) -> bool:
    return getattr(method, "__isabstractmethod__", False)


def test_ability_that_lacks_a_method_is_not_made() -> None:
    class Half(abilities.Power):
        def on(self, instance_uuid: str) -> None: ...

    with pytest.raises(TypeError, match=r"off.*reboot"):
        Half()  # type: ignore[abstract]


@pytest.mark.parametrize("kind", [FakeDriver, LibvirtDriver, QemuDriver])
def test_abilities_of_a_driver_have_every_method_with_its_arguments(tmp_path: Path, kind: type[Any]) -> None:
    made = kind(make_conf(tmp_path), "h1", lambda image, path: None)
    there = {name: getattr(made, name) for name in ABILITIES if getattr(made, name)}
    assert there.keys() >= set(drivers.REQUIRED)
    for name, ability in there.items():
        protocol = ABILITIES[name]
        for method, declared in vars(protocol).items():
            if inspect.isfunction(declared) and not method.startswith("_"):
                own = getattr(type(ability), method)
                assert own is not declared or not is_required(declared), f"{name}.{method}"
                assert [*inspect.signature(own).parameters] == [*inspect.signature(declared).parameters]


@pytest.mark.parametrize("kind", [FakeDriver, LibvirtDriver, QemuDriver, *ABILITIES.values()])
def test_classes_of_drivers_are_small(kind: type[Any]) -> None:
    assert sum(inspect.isfunction(member) for member in vars(kind).values()) <= 12
