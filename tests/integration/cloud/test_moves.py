"""Servers that go from one compute host to another: with looks at both hypervisors and at what the guest says."""

from __future__ import annotations

import contextlib
import itertools
import re
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration import scripts
from tests.integration.cloud.conftest import PATIENCE, PREFIX, VIRSH, StackedCloud
from tests.support.waiting import wait_for

BIGGER = f"{PREFIX}bigger"
BIGGER_GB, BIGGER_MB = 2, 160
SMALL_MB = 128
SECTORS_PER_GB = 1024**3 // 512


@pytest.fixture
def hosts(cloud: StackedCloud) -> tuple[str, str]:
    if len(cloud.entered) < 2:
        pytest.skip("this cloud has one compute host (COMPUTES=2 devstack/stack.sh)")
    first, second, *_ = cloud.entered
    return first, second


@pytest.fixture
def bigger(cloud: StackedCloud) -> Iterator[str]:
    """Provide a flavor with a bigger disk and more memory than m1.nano."""
    found = cloud.compute.find_flavor(BIGGER)
    if not found:
        cloud.compute.create_flavor(name=BIGGER, ram=BIGGER_MB, vcpus=1, disk=BIGGER_GB)
    yield BIGGER
    cloud.sweep()
    cloud.compute.delete_flavor(cloud.compute.find_flavor(BIGGER))


def running(cloud: StackedCloud, name: str, script: str) -> Any:
    """Create a server whose guest runs the script, and wait for its first output."""
    server = cloud.create(name, config_drive=True, user_data=scripts.user_data(script))
    server = cloud.wait_status(server.id, "ACTIVE")
    cloud.guest_lines(server.id)
    return server


def console(cloud: StackedCloud, server: Any) -> str:
    return str(cloud.compute.get_server_console_output(server.id)["output"]).replace("\r", "")


def found_on_disk(cloud: StackedCloud, server: Any, boots: int = 1) -> tuple[str, int]:
    """Return the mark that the guest found on its disk at its last boot on the host, and the disk's size in GB."""

    def said() -> list[tuple[str, str]]:
        text = console(cloud, server)
        lines = re.findall(r"^on disk: (\S+), sectors (\d+)$", text, re.MULTILINE)
        return lines if text.count("mark written") == len(lines) == boots else []

    mark, sectors = wait_for(f"boot {boots} of {server.name}", said, PATIENCE, 0.5)[-1]
    return mark, int(sectors) // SECTORS_PER_GB


def memory_mb(cloud: StackedCloud, host: str, server: Any) -> int:
    return int(re.findall(r"Max memory: +(\d+) KiB", cloud.on(host, *VIRSH, "dominfo", server.id))[0]) // 1024


def other(hosts: tuple[str, str], host: str) -> str:
    return hosts[1] if host == hosts[0] else hosts[0]


def moved(cloud: StackedCloud, server: Any, hosts: tuple[str, str]) -> str:
    """Return the host that the server has moved to, and check that the source keeps its guest, off."""
    after = cloud.wait_status(server.id, "VERIFY_RESIZE")
    assert after.compute_host == other(hosts, server.compute_host)
    assert cloud.where(server.id) == {server.compute_host: "shut off", after.compute_host: "running"}
    assert cloud.guest_lines(server.id) == [(server.id, server.name, server.addresses["private"][0]["addr"])]
    return str(after.compute_host)


def test_a_resize_that_is_reverted_and_one_that_is_confirmed(
    cloud: StackedCloud, hosts: tuple[str, str], bigger: str
) -> None:
    server = running(cloud, "resized", scripts.MARKS)
    assert found_on_disk(cloud, server) == ("nothing", 1)
    flavor = cloud.compute.find_flavor(bigger)
    for boots in (1, 2):
        cloud.compute.resize_server(server.id, flavor.id)
        there = moved(cloud, server, hosts)
        assert found_on_disk(cloud, server) == ("marked-by-a-guest", BIGGER_GB)
        assert memory_mb(cloud, there, server) == BIGGER_MB
        if boots == 1:
            cloud.compute.revert_server_resize(server.id)
            after = cloud.wait_status(server.id, "ACTIVE")
            assert (after.compute_host, after.flavor["original_name"]) == (server.compute_host, "m1.nano")
            assert cloud.where(server.id) == {server.compute_host: "running"}
            assert found_on_disk(cloud, server, boots=2) == ("marked-by-a-guest", 1)
            assert memory_mb(cloud, server.compute_host, server) == SMALL_MB
    cloud.compute.confirm_server_resize(server.id)
    after = cloud.wait_status(server.id, "ACTIVE")
    assert (after.compute_host, after.flavor["original_name"]) == (there, bigger)
    assert cloud.where(server.id) == {there: "running"}
    assert len(cloud.guest_lines(server.id)) == 1, "it was booted once more"


def test_a_cold_migration(cloud: StackedCloud, hosts: tuple[str, str]) -> None:
    server = running(cloud, "migrated", scripts.MARKS)
    assert found_on_disk(cloud, server) == ("nothing", 1)
    cloud.compute.migrate_server(server.id, host=other(hosts, server.compute_host))
    there = moved(cloud, server, hosts)
    assert found_on_disk(cloud, server) == ("marked-by-a-guest", 1)
    cloud.compute.confirm_server_resize(server.id)
    cloud.wait_status(server.id, "ACTIVE")
    assert cloud.where(server.id) == {there: "running"}


def test_shelve_and_unshelve(cloud: StackedCloud) -> None:
    server = running(cloud, "shelved", scripts.MARKS)
    assert found_on_disk(cloud, server) == ("nothing", 1)
    cloud.compute.shelve_server(server.id)
    cloud.wait_status(server.id, "SHELVED_OFFLOADED")
    assert cloud.where(server.id) == {}
    cloud.compute.unshelve_server(server.id)
    after = cloud.wait_status(server.id, "ACTIVE")
    assert cloud.where(server.id) == {after.compute_host: "running"}
    assert cloud.guest_lines(server.id) == [(server.id, server.name, server.addresses["private"][0]["addr"])]
    assert found_on_disk(cloud, server) == ("marked-by-a-guest", 1)


def test_an_evacuation(cloud: StackedCloud, hosts: tuple[str, str]) -> None:
    """Its host is lost, and an operator has said so: it is made again elsewhere, with its address, and is off there
    (2.95) until its owner starts it. The host that is back removes its guest."""
    server = running(cloud, "evacuated", scripts.MARKS)
    assert found_on_disk(cloud, server) == ("nothing", 1)
    host, there = server.compute_host, other(hosts, server.compute_host)
    daemon = f"compute-{host.rpartition('-')[2]}"
    (lost,) = (service for service in cloud.compute.services(host=host) if service.binary == "nova-compute")
    cloud.service("stop", daemon)
    try:
        cloud.on(host, *VIRSH, "destroy", server.id)
        cloud.compute.update_service(lost, is_forced_down=True)
        cloud.compute.evacuate_server(server.id)
        after = cloud.wait_status(server.id, "SHUTOFF")
        assert (after.compute_host, after.addresses) == (there, server.addresses)
        assert cloud.where(server.id) == {host: "shut off", there: "shut off"}
        cloud.compute.start_server(server.id)
        cloud.wait_status(server.id, "ACTIVE")
        assert cloud.where(server.id) == {host: "shut off", there: "running"}
        assert set(cloud.guest_lines(server.id)) == {(server.id, server.name, server.addresses["private"][0]["addr"])}
    finally:
        cloud.compute.update_service(lost, is_forced_down=False)
        cloud.service("start", daemon)
    wait_for("what the host had is gone", lambda: cloud.where(server.id) == {there: "running"}, PATIENCE, 0.5)


# --- while it runs


def counted(cloud: StackedCloud, server: Any) -> list[tuple[int, float]]:
    return scripts.counts(console(cloud, server))


def wait_for_count(cloud: StackedCloud, server: Any, beyond: int) -> None:
    wait_for(
        f"a count beyond {beyond}", lambda: (found := counted(cloud, server)) and found[-1][0] > beyond, PATIENCE, 0.5
    )


class Sampler:
    """Looks at both hosts all the time, and counts how often both ran the guest.

    The guest may move between two looks. So both run it only if the first host runs it before and after the second one.
    """

    def __init__(self, cloud: StackedCloud, server: Any) -> None:
        self._cloud, self._server = cloud, server
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.twice = self.looks = 0

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join(60)

    def _look(self) -> None:
        while not self._stop.wait(0.05):
            first, *others = self._cloud.entered
            self.twice += all(self._runs_at(host) for host in (first, *others, first))
            self.looks += 1

    def _runs_at(self, host: str) -> bool:
        with contextlib.suppress(AssertionError):  # there is no such domain
            return self._cloud.on(host, *VIRSH, "domstate", self._server.id).strip() == "running"
        return False


def test_a_live_migration_and_back_counting(cloud: StackedCloud, hosts: tuple[str, str]) -> None:
    server = running(cloud, "counting", scripts.COUNTS)
    wait_for_count(cloud, server, 10)
    for target in (other(hosts, server.compute_host), server.compute_host):
        before = counted(cloud, server)
        began = time.monotonic()
        with Sampler(cloud, server) as sampler:
            cloud.compute.live_migrate_server(server.id, host=target, block_migration="auto")
            after = cloud.wait_status(server.id, "ACTIVE")
            took = time.monotonic() - began
            wait_for_count(cloud, server, before[-1][0] + 10)
        assert after.compute_host == target
        assert cloud.where(server.id) == {target: "running"}
        assert sampler.looks
        assert sampler.twice == 0
        numbers, clocks = zip(*counted(cloud, server), strict=True)
        assert numbers == tuple(range(numbers[0], numbers[-1] + 1)), "it did not count through"
        assert numbers[0] > before[-1][0], "it began again"
        pause = max(later - earlier for earlier, later in itertools.pairwise(clocks))
        stats = cloud.on(target, *VIRSH, "domjobinfo", "--completed", server.id)
        downtime = re.findall(r"Total downtime: +(\d+) +ms", stats)[0]
        print(
            f"\nto {target}: {took:.1f} s to ACTIVE, downtime {downtime} ms, longest pause in its count {pause:.2f} s"
        )


def test_a_live_migration_that_is_aborted_halfway(cloud: StackedCloud, hosts: tuple[str, str]) -> None:
    server = running(cloud, "aborted", scripts.COUNTS)
    wait_for_count(cloud, server, 10)
    cloud.on(server.compute_host, *VIRSH, "migrate-setspeed", server.id, "1")
    cloud.compute.live_migrate_server(server.id, block_migration="auto")

    def halfway() -> Any:
        found = list(cloud.compute.server_migrations(server.id))
        return found[0] if found and 0 < (found[0].memory_remaining_bytes or 0) < found[0].memory_total_bytes else None

    migration = wait_for("it is halfway", halfway, PATIENCE, 0.5)
    assert cloud.compute.get_server(server.id).status == "MIGRATING"
    assert (migration.status, migration.dest_compute) == ("running", other(hosts, server.compute_host))
    cloud.cli_quiet("server", "migration", "abort", server.name, str(migration.id))
    after = cloud.wait_status(server.id, "ACTIVE")
    assert after.compute_host == server.compute_host
    wait_for("nothing is left there", lambda: cloud.where(server.id) == {server.compute_host: "running"}, PATIENCE, 0.5)
    wait_for_count(cloud, server, counted(cloud, server)[-1][0] + 10)
    numbers = [number for number, _ in counted(cloud, server)]
    assert numbers == list(range(1, numbers[-1] + 1)), "it did not count through"
    rows = cloud.cli("server", "migration", "list", "--server", server.name)
    assert [row["Status"] for row in rows] == ["cancelled"]
