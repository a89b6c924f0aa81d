"""Counters of all guests by one call. `tests/integration/libvirt/test_costs.py` uses the real libvirt."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import libvirt
import pytest

from nova_lite.virt.abilities import GuestStatistics
from nova_lite.virt.libvirt.domain.guest_xml import Owner, parse_owner
from nova_lite.virt.libvirt.domain.statistics import AllStatistics, statistics

VALUES: dict[str, Any] = {
    "cpu.time": 2_500_000_000,
    "balloon.current": 524288,
    "balloon.rss": 1000,
    "block.count": 2,
    **{f"block.{number}.{name}": 10 for number in (0, 1) for name in ("rd.bytes", "wr.bytes", "rd.reqs", "wr.reqs")},
    "net.count": 1,
    **{f"net.0.{name}": 7 for name in ("rx.bytes", "tx.bytes", "rx.drop", "tx.drop")},
}


class Hypervisor:
    """Connection and domains. ``calls``: by name; ``owners``: by uuid, only of our domains."""

    def __init__(self, *uuids: str) -> None:
        self.calls: Counter[str] = Counter()
        self.uuids = list(uuids)
        self.owners = {uuid: Owner("h", 1, f"project-of-{uuid}") for uuid in uuids}
        self.flags = 0
        self.reader = AllStatistics(self, self, "")  # type: ignore[arg-type]

    def connect_call(self, name: str, wanted: int, flags: int) -> list[Any]:
        self.calls[name] += 1
        self.flags = flags
        return [(SimpleNamespace(UUIDString=lambda uuid=uuid: uuid), VALUES) for uuid in self.uuids]

    def owner(self, domain: Any) -> Owner | None:
        self.calls["owner"] += 1
        return self.owners.get(domain.UUIDString())


def test_counters_are_summed_over_devices() -> None:
    assert statistics("u", "p", VALUES) == GuestStatistics(
        uuid="u",
        project_id="p",
        cpu_seconds=2.5,
        memory_bytes=1_024_000,
        memory_limit_bytes=512 * 1024 * 1024,
        disk_read_bytes=20,
        disk_written_bytes=20,
        disk_reads=20,
        disk_writes=20,
        network_received_bytes=7,
        network_sent_bytes=7,
        network_dropped=14,
    )


def test_counters_that_libvirt_leaves_out_are_unknown() -> None:
    """A busy guest has only what libvirt knows without it. A sum without one of its parts would look like a reset."""
    busy = {name: value for name, value in VALUES.items() if name not in ("balloon.rss", "block.1.rd.bytes")}
    found = statistics("u", "p", busy)
    assert (found.memory_bytes, found.disk_read_bytes, found.disk_written_bytes) == (None, None, 20)
    assert statistics("u", "p", {}) == GuestStatistics(uuid="u", project_id="p")


@pytest.mark.parametrize("guests", [1, 1000])
def test_reading_is_one_call_however_many_guests_there_are(guests: int) -> None:
    hypervisor = Hypervisor(*(f"u{number}" for number in range(guests)))
    assert len(hypervisor.reader.guests()) == guests
    hypervisor.calls.clear()
    found = hypervisor.reader.guests()
    assert hypervisor.calls == {"getAllDomainStats": 1}
    assert {item.project_id for item in found} == {f"project-of-{uuid}" for uuid in hypervisor.uuids}


def test_reading_does_not_wait_for_busy_guests_and_leaves_out_those_that_are_off() -> None:
    hypervisor = Hypervisor("u1")
    hypervisor.reader.guests()
    assert hypervisor.flags & libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT
    assert hypervisor.flags & libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_ACTIVE


def test_domains_of_others_are_left_out_and_not_looked_at_with_each_reading() -> None:
    hypervisor = Hypervisor("u1", "u2")
    del hypervisor.owners["u2"]
    for _ in range(3):
        assert [item.uuid for item in hypervisor.reader.guests()] == ["u1"]
    assert hypervisor.calls["owner"] == 2


def test_owner_of_a_domain_that_was_away_is_read_again() -> None:
    hypervisor = Hypervisor("u1")
    hypervisor.reader.guests()
    hypervisor.uuids = []
    hypervisor.reader.guests()
    hypervisor.uuids, hypervisor.owners["u1"] = ["u1"], Owner("h", 2, "other")
    assert [item.project_id for item in hypervisor.reader.guests()] == ["other"]


@pytest.mark.parametrize("project", ["", "<n:project>p1</n:project>"])
def test_owner_has_the_project_of_a_guest_that_names_it(project: str) -> None:
    text = f'<n:instance xmlns:n="urn:n"><n:host>h</n:host><n:generation>3</n:generation>{project}</n:instance>'
    assert parse_owner(text) == Owner("h", 3, "p1" if project else "")


def test_dirty_rates_are_those_that_were_measured_and_all_guests_are_sampled_anew_on_request() -> None:
    hypervisor = Hypervisor("a", "b", "foreign")
    del hypervisor.owners["foreign"]
    sampled: list[tuple[str, int]] = []
    statuses = {"a": libvirt.VIR_DOMAIN_DIRTYRATE_MEASURED, "b": libvirt.VIR_DOMAIN_DIRTYRATE_MEASURING}

    def domain(uuid: str) -> tuple[Any, dict[str, Any]]:
        found = SimpleNamespace(
            UUIDString=lambda: uuid, startDirtyRateCalc=lambda seconds, flags: sampled.append((uuid, seconds))
        )
        return found, {"dirtyrate.calc_status": statuses.get(uuid), "dirtyrate.megabytes_per_second": 12}

    hypervisor.connect_call = lambda name, wanted, flags: [domain(uuid) for uuid in hypervisor.uuids]  # type: ignore[method-assign]
    hypervisor.call_unless = lambda codes, method, *args: method(*args)  # type: ignore[attr-defined]
    assert hypervisor.reader.dirty_rates(start=False) == {"a": 12.0}
    assert sampled == []
    assert hypervisor.reader.dirty_rates(start=True) == {"a": 12.0}
    assert sampled == [("a", 1), ("b", 1)]
