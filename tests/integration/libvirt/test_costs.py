"""Costs of a guest's boot, hard reboot and removal besides libvirt's own work: programs, calls of libvirt, and disk
syncs.

They are counted, so the test needs no clock. A change that adds one has to explain it here. The second guest of an
image and a network is measured, because the first one fills caches.
"""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from nova_lite.objects import VIF, Image
from nova_lite.virt.libvirt.connection import Connection
from nova_lite.virt.libvirt.driver import LibvirtDriver
from tests.integration.libvirt.conftest import Images, MakeDriver, boot, guest_spec


class Costs:
    def __init__(self) -> None:
        self.programs: list[str] = []
        self.calls: Counter[str] = Counter()
        self.syncs = 0

    def of(self, work: Callable[[], object]) -> tuple[list[str], Counter[str], int]:
        self.__init__()  # type: ignore[misc]
        work()
        return self.programs, self.calls, self.syncs


@pytest.fixture
def costs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Costs]:
    noted = Costs()
    call, sync = Connection.call, os.fsync

    class Noting(subprocess.Popen[Any]):
        def __init__(self, command: Any, *arguments: Any, **options: Any) -> None:
            noted.programs.append(" ".join(command))
            super().__init__(command, *arguments, **options)

    def noting_call(self: Connection, method: Callable[..., Any], *arguments: Any) -> Any:
        noted.calls[method.__name__] += 1
        return call(self, method, *arguments)

    def noting_sync(descriptor: int) -> None:
        noted.syncs += 1
        sync(descriptor)

    monkeypatch.setattr(subprocess, "Popen", Noting)
    monkeypatch.setattr(Connection, "call", noting_call)
    monkeypatch.setattr(os, "fsync", noting_sync)
    yield noted


def test_costs_of_a_guest_do_not_grow(
    costs: Costs, make_driver: MakeDriver, blank: Image, new_vif: Callable[[], VIF]
) -> None:
    driver = make_driver("costs")

    def make() -> Any:
        vif = msgspec.structs.replace(new_vif(), port_security_enabled=True)
        return guest_spec(Nothing(), [vif], image=blank)

    first, spec = make(), make()
    boot(driver, first)
    uuid = spec.instance.uuid

    programs, calls, syncs = costs.of(lambda: boot(driver, spec))
    assert programs == ["nft -f -"], "tables of ports; the overlay is a copy of the first guest's"
    assert (calls["defineXMLFlags"], calls["createWithFlags"]) == (1, 1)
    assert calls["XMLDesc"] == 1, "a guest may have an older version's filters"
    assert calls.total() <= 12, calls
    assert syncs <= 6, "record of interfaces, its directory; record of the guest, two directories; overlay"

    driver.statistics.guests()
    programs, calls, syncs = costs.of(driver.statistics.guests)
    assert (programs, syncs, calls["getAllDomainStats"]) == ([], 0, 1), "one call for all guests"
    assert calls.keys() <= {"getAllDomainStats", "metadata"}, "the owner of another test's new domain is read once"

    programs, calls, syncs = costs.of(lambda: hard_reboot(driver, spec))
    assert programs == ["nft -f -"]
    assert (calls["destroyFlags"], calls["defineXMLFlags"], calls["createWithFlags"]) == (1, 1, 1)
    assert calls.total() <= 29, calls
    assert syncs <= 2

    programs, calls, syncs = costs.of(lambda: (driver.guests.destroy(uuid), driver.networks.unplug(uuid)))
    assert programs == ["nft -f -"]
    assert (calls["destroyFlags"], calls["undefineFlags"]) == (1, 1)
    assert calls.total() <= 5, calls
    assert syncs == 0


class Nothing(Images):
    """A blank disk needs no kernel."""

    def __init__(self) -> None:
        self.others = {}


def hard_reboot(driver: LibvirtDriver, spec: Any) -> None:
    driver.networks.plug(spec.instance, spec.vifs)
    driver.definitions.renew(spec)
    driver.power.reboot(spec.instance.uuid, "HARD", 60)
