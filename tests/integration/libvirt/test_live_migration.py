"""A guest goes from one libvirt host to another, both on this machine, and counts on its console meanwhile."""

from __future__ import annotations

import itertools
import threading
import time

import libvirt
import pytest

from nova_lite import exception
from nova_lite.objects import MigrationProgress, Wish
from nova_lite.states import PowerState
from nova_lite.virt.driver import SpawnSpec
from nova_lite.virt.libvirt.driver import LibvirtDriver
from tests.integration import scripts
from tests.integration.libvirt import hosts
from tests.integration.libvirt.conftest import Images, guest_spec, wait_for
from tests.integration.libvirt.test_moves import (  # noqa: F401 fixtures
    MakeHost,
    arriving,
    instance_path,
    make_host,
    second_host,
    state,
)


def counting_guest(images: Images) -> SpawnSpec:
    return guest_spec(images, [], config_drive=True, user_data=scripts.user_data(scripts.COUNTS))


def counts(driver: LibvirtDriver, spec: SpawnSpec) -> list[tuple[int, float]]:
    return scripts.counts(driver.get_console_output(spec.instance.uuid, None))


def wait_for_count(driver: LibvirtDriver, spec: SpawnSpec, beyond: int) -> None:
    wait_for(f"count beyond {beyond}", lambda: (found := counts(driver, spec)) and found[-1][0] > beyond)


def go_on(progress: MigrationProgress) -> Wish:
    return Wish.GO_ON


class Sampler:
    """Looks at both hosts all the time: how many of them run the guest, and for how long none does."""

    def __init__(self, drivers: tuple[LibvirtDriver, ...], spec: SpawnSpec) -> None:
        self._drivers, self._spec = drivers, spec
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.twice = 0
        self.none = 0.0

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join(30)

    def _look(self) -> None:
        before = time.monotonic()
        while not self._stop.wait(0.02):
            running = sum(state(driver, self._spec) == PowerState.RUNNING for driver in self._drivers)
            now = time.monotonic()
            self.twice += running > 1
            self.none += 0 if running else now - before
            before = now


def migrate(source: LibvirtDriver, destination: LibvirtDriver, spec: SpawnSpec) -> float:
    """The three steps as the hosts take them; seconds that the last one took."""
    offered = source.check_can_live_migrate_source(spec.instance.uuid)
    ready = destination.pre_live_migration(spec, offered)
    started = time.monotonic()
    source.live_migration(spec.instance.uuid, ready, go_on)
    return time.monotonic() - started


def downtime(destination: LibvirtDriver, spec: SpawnSpec) -> float:
    """Seconds for which it was paused, as the destination's libvirtd was told."""
    connection = libvirt.open(destination.conf.libvirt.connection_uri)
    try:
        domain = connection.lookupByUUIDString(spec.instance.uuid)
        return float(domain.jobStats(libvirt.VIR_DOMAIN_JOB_STATS_COMPLETED)["downtime"]) / 1000
    finally:
        connection.close()


def test_there_and_back_counting(make_host: MakeHost, images: Images) -> None:  # noqa: F811
    options = {"live_migration_uri": hosts.URI}
    here, there = make_host("here", hosts.HERE, **options), make_host("there", hosts.THERE, **options)
    spec = counting_guest(images)
    here.spawn(spec)
    wait_for_count(here, spec, 10)

    for generation, (source, destination) in enumerate(((here, there), (there, here)), 2):
        before = counts(source, spec)
        moved = arriving(spec, generation)
        with Sampler((source, destination), spec) as sampler:
            took = migrate(source, destination, moved)
            wait_for_count(destination, spec, before[-1][0] + 10)
        assert state(source, spec) is None
        assert destination.get_info(spec.instance.uuid).generation == generation
        after = counts(destination, spec)
        gaps = [later - earlier for (_, earlier), (_, later) in itertools.pairwise(after)]
        print(
            f"\nmigration: {took:.2f} s, downtime {downtime(destination, spec):.2f} s by qemu, at neither host for "
            f"{sampler.none:.2f} s, longest pause in the guest's own count {max(gaps):.2f} s"
        )
        assert sampler.twice == 0
        numbers = [number for number, _ in after]
        assert numbers == list(range(numbers[0], numbers[-1] + 1)), "it did not count through"
        assert numbers[0] > before[-1][0], "it began anew"
        source.destroy(spec.instance.uuid)
        assert not instance_path(source, spec).exists()
        assert source.leftovers() == set()


def test_aborted_halfway_it_runs_on_where_it_was(make_host: MakeHost, images: Images) -> None:  # noqa: F811
    here = make_host("here", hosts.HERE, live_migration_uri=hosts.URI, live_migration_bandwidth=1)
    there = make_host("there", hosts.THERE)
    spec = counting_guest(images)
    here.spawn(spec)
    wait_for_count(here, spec, 10)
    moved = arriving(spec)
    ready = there.pre_live_migration(moved, here.check_can_live_migrate_source(spec.instance.uuid))
    seen: list[MigrationProgress] = []

    def abort_when_it_goes_on(progress: MigrationProgress) -> Wish:
        seen.append(progress)
        return Wish.ABORT if progress.memory_processed else Wish.GO_ON

    with pytest.raises(exception.MigrationAborted):
        here.live_migration(spec.instance.uuid, ready, abort_when_it_goes_on)
    halfway = next(progress for progress in seen if progress.memory_processed)
    assert 0 < halfway.memory_remaining < halfway.memory_total
    assert state(here, spec) == PowerState.RUNNING
    assert not here.settle_live_migration(spec.instance.uuid, ready)
    wait_for_count(here, spec, counts(here, spec)[-1][0] + 10)
    there.destroy(spec.instance.uuid)
    assert state(there, spec) is None
    assert there.leftovers() == set()
