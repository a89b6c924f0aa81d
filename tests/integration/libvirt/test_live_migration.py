"""Live migration between two libvirt hosts on this machine. The guest counts on its console meanwhile."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from pathlib import Path

import libvirt
import pytest

from nova_lite.base import exceptions
from nova_lite.objects import MigrationControl, MigrationProgress
from nova_lite.operations.states import PowerState
from nova_lite.virt.abilities import SpawnSpec
from nova_lite.virt.libvirt.driver import LibvirtDriver
from tests.integration import scripts
from tests.integration.libvirt import hosts
from tests.integration.libvirt.conftest import Images, MakeHost, forms, guest_spec
from tests.integration.libvirt.moves import arriving, counts, instance_path, migrate, state, wait_for_count


def counting_guest(images: Images) -> SpawnSpec:
    return guest_spec(images, [], config_drive=True, user_data=scripts.user_data(scripts.COUNTS))


class Sampler:
    """Polls both hosts continuously: how many of them run the guest, and how long none does."""

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

    def _running(self) -> int:
        return sum(state(driver, self._spec) == PowerState.RUNNING for driver in self._drivers)

    def _look(self) -> None:
        before = time.monotonic()
        while not self._stop.wait(0.02):
            running = self._running()
            now = time.monotonic()
            # The guest may move between the two looks. In a second round, it would be gone from the first host.
            self.twice += running > 1 and self._running() > 1
            self.none += 0 if running else now - before
            before = now


def downtime(destination: LibvirtDriver, spec: SpawnSpec) -> float:
    """Return the seconds for which the guest was paused, according to the destination's libvirtd."""
    connection = libvirt.open(destination.conf.libvirt.connection_uri)
    try:
        domain = connection.lookupByUUIDString(spec.instance.uuid)
        return float(domain.jobStats(libvirt.VIR_DOMAIN_JOB_STATS_COMPLETED)["downtime"]) / 1000
    finally:
        connection.close()


@forms("raw")
def test_guest_migrates_there_and_back_while_it_counts(make_host: MakeHost, images: Images) -> None:
    options = {"live_migration_uri": hosts.URI}
    here, there = make_host("here", hosts.HERE, **options), make_host("there", hosts.THERE, **options)
    spec = counting_guest(images)
    here.guests.spawn(spec)
    wait_for_count(here, spec, 10)

    for generation, (source, destination) in enumerate(((here, there), (there, here)), 2):
        before = counts(source, spec)
        moved = arriving(spec, generation)
        with Sampler((source, destination), spec) as sampler:
            took = migrate(source, destination, moved)
            wait_for_count(destination, spec, before[-1][0] + 10)
        assert state(source, spec) is None
        assert destination.guests.get(spec.instance.uuid).generation == generation
        after = counts(destination, spec)
        gaps = [later - earlier for (_, earlier), (_, later) in itertools.pairwise(after)]
        print(
            f"\nmigration: {took:.2f} s, downtime {downtime(destination, spec):.2f} s by qemu, at neither host for "
            f"{sampler.none:.2f} s, longest pause in the guest's own count {max(gaps, default=0):.2f} s"
        )
        assert sampler.twice == 0
        numbers = [number for number, _ in after]
        assert numbers == list(range(numbers[0], numbers[-1] + 1)), "it did not count without a gap"
        assert numbers[0] > before[-1][0], "it started again from zero"
        source.guests.destroy(spec.instance.uuid)
        assert not instance_path(source, spec).exists()
        assert source.guests.leftovers() == set()


def test_aborted_migration_leaves_the_guest_at_its_source(make_host: MakeHost, images: Images) -> None:
    here = make_host("here", hosts.HERE, live_migration_uri=hosts.URI, live_migration_bandwidth=1)
    there = make_host("there", hosts.THERE)
    spec = counting_guest(images)
    here.guests.spawn(spec)
    wait_for_count(here, spec, 10)
    moved = arriving(spec)
    ready = there.live_moves.prepare(moved, here.live_moves.check_source(spec.instance.uuid))
    seen: list[MigrationProgress] = []

    def abort_when_it_goes_on(progress: MigrationProgress) -> MigrationControl:
        seen.append(progress)
        return MigrationControl.ABORT if progress.memory_processed else MigrationControl.CONTINUE

    with pytest.raises(exceptions.MigrationAborted):
        here.live_moves.migrate(spec.instance.uuid, ready, abort_when_it_goes_on)
    halfway = next(progress for progress in seen if progress.memory_processed)
    assert 0 < halfway.memory_remaining < halfway.memory_total
    assert state(here, spec) == PowerState.RUNNING
    assert not here.live_moves.settle(spec.instance.uuid, ready)
    wait_for_count(here, spec, counts(here, spec)[-1][0] + 10)
    there.guests.destroy(spec.instance.uuid)
    assert state(there, spec) is None
    assert there.guests.leftovers() == set()


def test_paused_guest_migrates_there_and_back_and_resumes(make_host: MakeHost, images: Images) -> None:
    """QEMU ends a guest that is migrated again before it has run at the destination."""
    options = {"live_migration_uri": hosts.URI}
    here, there = make_host("here", hosts.HERE, **options), make_host("there", hosts.THERE, **options)
    spec = counting_guest(images)
    here.guests.spawn(spec)
    wait_for_count(here, spec, 5)
    here.standby.pause(spec.instance.uuid)
    before = counts(here, spec)[-1][0]
    for generation, (source, destination) in enumerate(((here, there), (there, here)), 2):
        migrate(source, destination, arriving(spec, generation))
        destination.live_moves.take_over_paused(spec.instance.uuid)
        assert (state(source, spec), state(destination, spec)) == (None, PowerState.PAUSED)
        source.guests.destroy(spec.instance.uuid)
    here.standby.unpause(spec.instance.uuid)
    wait_for_count(here, spec, before + 5)


# --- guests that change their memory faster than it can be sent

#: The guest writes sixteen MiB again and again. At this bandwidth (MiB per second) their transfer takes two seconds.
DIRTIES = """
mkdir -p /dirty
mount -t tmpfs none /dirty
dd if=/dev/urandom of=/dirty/a bs=1M count=16 2>/dev/null
while :; do cp /dirty/a /dirty/b; done &
"""
BANDWIDTH = 8


def stubborn_guest(images: Images) -> SpawnSpec:
    return guest_spec(images, [], config_drive=True, user_data=scripts.user_data(DIRTIES + scripts.COUNTS))


class Stubborn:
    """A busy guest at ``here``, and observations of its migration to ``there``."""

    def __init__(self, make: MakeHost, images: Images, **options: object) -> None:
        options = {"live_migration_uri": hosts.URI, "live_migration_bandwidth": BANDWIDTH, **options}
        self.here, self.there = make("here", hosts.HERE, **options), make("there", hosts.THERE)
        self.spec = stubborn_guest(images)
        self.here.guests.spawn(self.spec)
        wait_for_count(self.here, self.spec, 10)
        self.moved = arriving(self.spec)
        self.seen: list[MigrationProgress] = []
        self.throttled = 0

    def migrate(self, wish: MigrationControl, after: int) -> None:
        """Migrate, and return ``wish`` once the transfer has processed ``after`` times the guest's memory."""
        uuid = self.spec.instance.uuid
        ready = self.there.live_moves.prepare(self.moved, self.here.live_moves.check_source(uuid))
        domain = self.here._domains.get(uuid)[0]

        def watch(progress: MigrationProgress) -> MigrationControl:
            if progress.memory_total and progress.memory_processed > progress.memory_total // 2:
                self.seen.append(progress)
            with contextlib.suppress(libvirt.libvirtError):  # the job has just ended
                self.throttled = max(self.throttled, domain.jobStats().get("auto_converge_throttle", 0))
            return wish if len(self.seen) > after else MigrationControl.CONTINUE

        self.here.live_moves.migrate(uuid, ready, watch)

    def runs_there(self) -> None:
        """Assert that the guest continued to count there, and is nowhere else."""
        last = counts(self.there, self.spec)
        wait_for_count(self.there, self.spec, (last[-1][0] if last else 10) + 10)
        numbers = [number for number, _ in counts(self.there, self.spec)]
        assert numbers == list(range(numbers[0], numbers[-1] + 1)), "it did not count without a gap"
        assert numbers[0] > 10, "it started again from zero"
        assert (state(self.here, self.spec), state(self.there, self.spec)) == (None, PowerState.RUNNING)


def test_migration_that_does_not_converge_is_forced_to_complete(make_host: MakeHost, images: Images) -> None:
    guest = Stubborn(make_host, images)
    guest.migrate(MigrationControl.FORCE_COMPLETE, 6)
    assert len(guest.seen) > 6, "it converged without throttling"
    guest.runs_there()


@pytest.mark.parametrize("action", ["abort", "force_complete"])
def test_migration_that_takes_too_long_is_ended(make_host: MakeHost, images: Images, action: str) -> None:
    guest = Stubborn(make_host, images, live_migration_completion_timeout=6, live_migration_timeout_action=action)
    if action == "force_complete":
        guest.migrate(MigrationControl.CONTINUE, 0)
        guest.runs_there()
        return
    with pytest.raises(exceptions.MigrationAborted, match="it has taken too long"):
        guest.migrate(MigrationControl.CONTINUE, 0)
    assert state(guest.here, guest.spec) == PowerState.RUNNING
    wait_for_count(guest.here, guest.spec, counts(guest.here, guest.spec)[-1][0] + 10)


def test_guest_is_throttled_until_its_migration_converges(make_host: MakeHost, images: Images) -> None:
    guest = Stubborn(make_host, images, live_migration_permit_auto_converge=True)
    with contextlib.suppress(exceptions.MigrationAborted):  # on a slow machine it may have converged before
        guest.migrate(MigrationControl.ABORT, 25)
    assert guest.throttled > 0


def test_post_copy_starts_the_guest_at_the_destination_at_once(make_host: MakeHost, images: Images) -> None:
    if Path("/proc/sys/vm/unprivileged_userfaultfd").read_text().strip() != "1":
        pytest.skip("qemu, which is not root, may not fetch memory on demand here (vm.unprivileged_userfaultfd)")
    guest = Stubborn(make_host, images, live_migration_permit_post_copy=True)
    guest.migrate(MigrationControl.FORCE_COMPLETE, 6)
    guest.runs_there()
    assert downtime(guest.there, guest.spec) < 2
