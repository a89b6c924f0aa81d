"""Changes of a running guest's size on its host, with refusals, failures and kills."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from nova_lite.base import exceptions
from nova_lite.objects import Flavor
from nova_lite.operations.states import PowerState
from nova_lite.virt.abilities import SpawnSpec
from tests.support.compute_host import LATER, UUID, Gate, Host, command, make_instance

SMALL = Flavor(flavorid="1", name="small", vcpus=1, memory_mb=512, root_gb=1)
LARGE = Flavor(flavorid="2", name="large", vcpus=2, memory_mb=1024, root_gb=1)
SIZES = {"small": (1, 512), "large": (2, 1024)}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path).built()


def execute(host: Host, method: str, old: Flavor, new: Flavor, sequence: int = 0, action_id: int = LATER) -> None:
    payload: dict[str, Any] = {"in_place": True, "flavor": msgspec.to_builtins(new), "image": None, "boot_images": {}}
    sent = command("resize", action_id, sequence=sequence, payload=payload, instance=make_instance(flavor=old))
    host.manager.commands[method](host.context, sent)
    host.settle()


def grow(host: Host) -> None:
    execute(host, "resize_in_place", SMALL, LARGE)


def size(host: Host) -> str:
    """Return which size the guest has. The host's claim and its record of it agree."""
    domain, claimed = host.driver.hypervisor.read(UUID), host.manager.host.claims.used()
    recorded = host.manager.host.fencing.resources()[UUID]
    assert (domain.vcpus, domain.memory_mb) == (claimed.vcpus, claimed.memory_mb)
    assert (domain.vcpus, domain.memory_mb) == (recorded.vcpus, recorded.memory_mb)
    return next(name for name, found in SIZES.items() if found == (domain.vcpus, domain.memory_mb))


def error(host: Host) -> str | None:
    return str(host.conductor.of("finish_action")[-1][2] or "")


def test_guest_gets_another_size_while_it_runs(host: Host) -> None:
    grow(host)
    assert (size(host), error(host), host.power()) == ("large", "", PowerState.RUNNING)
    again = host.next_life()
    again.manager.reconciler.run()
    assert (size(again), again.domains()) == ("large", {UUID: 1})


def test_guest_larger_than_its_host_is_refused(host: Host) -> None:
    execute(host, "resize_in_place", SMALL, msgspec.structs.replace(LARGE, memory_mb=1 << 30))
    assert "MB of memory requested" in str(error(host))
    assert size(host) == "small"


def test_failed_change_is_rolled_back(host: Host) -> None:
    host.control(fail_at=["hotplug_after"])
    grow(host)
    assert "configured to fail" in str(error(host))
    host.control()
    execute(host, "rollback_resize_in_place", SMALL, LARGE, sequence=1)
    assert (size(host), host.conductor.answers[-1]) == ("small", {"done": False})


def test_guest_that_keeps_what_it_got_has_the_new_size(host: Host) -> None:
    host.control(fail_at=["hotplug_after"])
    grow(host)
    host.control(refuses_unplug=True)
    execute(host, "rollback_resize_in_place", SMALL, LARGE, sequence=1)
    assert (size(host), host.conductor.answers[-1]) == ("large", {"done": True})


def test_guest_that_refuses_to_shrink_keeps_its_size(host: Host) -> None:
    grow(host)
    host.control(refuses_unplug=True)
    execute(host, "resize_in_place", LARGE, SMALL, action_id=LATER + 1)
    assert "keeps its size" in str(error(host))
    execute(host, "rollback_resize_in_place", LARGE, SMALL, sequence=1, action_id=LATER + 1)
    assert (size(host), host.conductor.answers[-1]) == ("large", {"done": False})


def test_guest_that_takes_its_old_size_later_counts_as_returned(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(spec: SpawnSpec) -> None:
        raise exceptions.GuestSizeRefused(instance_uuid=UUID, reason="it is slow")

    grow(host)
    monkeypatch.setattr(host.driver.hotplug, "resize", refuse)
    execute(host, "rollback_resize_in_place", LARGE, SMALL, sequence=1, action_id=LATER + 1)
    assert (size(host), host.conductor.answers[-1]) == ("large", {"done": False})


def test_rollback_of_a_guest_that_is_gone_is_done(host: Host) -> None:
    host.driver.guests.destroy(UUID)
    execute(host, "rollback_resize_in_place", SMALL, LARGE, sequence=1)
    assert (host.conductor.answers[-1], error(host)) == ({"done": False}, "")


def test_guest_that_is_to_be_deleted_is_not_waited_for(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(spec: SpawnSpec) -> None:
        spec.still_wanted()
        host.manager.host.fencing.admit(UUID, LATER + 1)
        spec.still_wanted()

    monkeypatch.setattr(host.driver.hotplug, "resize", wait)
    grow(host)
    assert "is not current any more" in str(error(host))


@pytest.mark.parametrize("step", ["hotplug", "hotplug_after"])
def test_killed_change_continues(host: Host, step: str) -> None:
    host.driver.hooks[step] = gate = Gate()
    payload = {"in_place": True, "flavor": msgspec.to_builtins(LARGE), "image": None, "boot_images": {}}
    sent = command("resize", payload=payload, instance=make_instance(flavor=SMALL))
    host.manager.commands["resize_in_place"](host.context, sent)
    gate.wait()
    again = host.next_life()
    again.manager.reconciler.run()
    grow(again)
    assert (size(again), error(again)) == ("large", "")
