"""The fake driver for tests of clients: metadata and flavors that slow guests down or make them fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nova_lite.base import exceptions
from nova_lite.objects import DiskSource
from nova_lite.operations.states import PowerState
from nova_lite.virt import abilities, fake_rules
from nova_lite.virt.fake_rules import RuledFakeDriver, Rules, rules_of
from tests.support.compute_host import HOST, UUID, VIFS, make_conf, make_instance


@pytest.fixture
def ruled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RuledFakeDriver:
    made = RuledFakeDriver(make_conf(tmp_path), HOST, lambda image, target: None)
    made.init_host()
    return made


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Provide the list of delays, which are not waited for."""
    waited: list[float] = []
    monkeypatch.setattr(fake_rules.time, "sleep", waited.append)
    return waited


def spec(**metadata: str) -> abilities.SpawnSpec:
    return abilities.SpawnSpec(
        instance=make_instance(metadata=metadata),
        generation=1,
        vifs=VIFS,
        image=None,
        images={},
        injected_files={},
        admin_password=None,
        fence=lambda: None,
    )


def test_rules_are_read_from_metadata_and_flavor() -> None:
    instance = make_instance(metadata={"nova_lite:fail": "stop, build@host1", "other": "x"})
    flavor = msgspec.structs.replace(
        instance.flavor, extra_specs={"nova_lite:delay": "1.5", "nova_lite:fail": "delete"}
    )
    instance.flavor = flavor
    assert rules_of(instance) == Rules(frozenset({"stop", "build@host1"}), 1.5)


@pytest.mark.parametrize(("delay", "seconds"), [("soon", 0.0), ("-3", 0.0), ("nan", 0.0), ("1e9", 3600.0), ("2", 2.0)])
def test_delay_is_a_bounded_number(delay: str, seconds: float) -> None:
    assert rules_of(make_instance(metadata={"nova_lite:delay": delay})).delay == seconds


def test_unknown_operation_is_no_rule() -> None:
    assert rules_of(make_instance(metadata={"nova_lite:fail": "fly,, build "})).fail == {"build"}


@pytest.mark.parametrize(("rule", "fails"), [("build", True), (f"build@{HOST}", True), ("build@other", False)])
def test_build_fails_on_the_named_host(ruled: RuledFakeDriver, rule: str, fails: bool) -> None:
    if fails:
        with pytest.raises(exceptions.VirtDriverError, match="nova_lite:fail"):
            ruled.guests.spawn(spec(**{"nova_lite:fail": rule}))
        assert ruled.guests.all() == []
    else:
        ruled.guests.spawn(spec(**{"nova_lite:fail": rule}))
        assert ruled.guests.get(UUID).power_state == PowerState.RUNNING


CALLS: dict[str, Callable[[RuledFakeDriver], Any]] = {
    "start": lambda made: made.power.on(UUID),
    "stop": lambda made: made.power.off(UUID, 1),
    "reboot": lambda made: made.power.reboot(UUID, "SOFT", 1),
    "pause": lambda made: made.standby.pause(UUID),
    "suspend": lambda made: made.standby.suspend(UUID),
    "snapshot": lambda made: made.snapshots.take(UUID, f"{made.hypervisor.path}/image", lambda: None),
    "delete": lambda made: made.guests.destroy(UUID),
}


@pytest.mark.parametrize("operation", sorted(CALLS))
def test_operation_fails_without_effect(ruled: RuledFakeDriver, waits: list[float], operation: str) -> None:
    ruled.guests.spawn(spec(**{"nova_lite:fail": operation, "nova_lite:delay": "7"}))
    before = ruled.guests.get(UUID)
    with pytest.raises(exceptions.VirtDriverError, match=f"{operation} fails on {HOST}"):
        CALLS[operation](ruled)
    assert ruled.guests.get(UUID) == before
    assert waits.count(7.0) == 2


@pytest.mark.parametrize("operation", sorted(CALLS))
def test_operation_of_a_guest_without_rules_succeeds(ruled: RuledFakeDriver, operation: str) -> None:
    ruled.guests.spawn(spec())
    CALLS[operation](ruled)


def test_resize_fails_on_its_destination(ruled: RuledFakeDriver) -> None:
    source = DiskSource(driver="fake", host="127.0.0.1", location=ruled.hypervisor.path, files=[])
    with pytest.raises(exceptions.VirtDriverError, match="resize"):
        ruled.moves.finish(spec(**{"nova_lite:fail": "resize"}), source, True)
    assert ruled.guests.all() == []


def test_each_operation_is_tested() -> None:
    assert {*CALLS, "build", "resize", "attach-volume"} == set(fake_rules.OPERATIONS)
