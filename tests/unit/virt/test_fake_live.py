"""Live migration of the fake driver: a guest is always on exactly one host."""

from __future__ import annotations

from pathlib import Path

import pytest

from nova_lite.base import exceptions
from nova_lite.objects import GuestCpu, LiveDestination, MigrationControl, MigrationProgress
from nova_lite.operations.states import PowerState
from nova_lite.virt import abilities, fake, fake_hypervisor
from tests.support.compute_host import make_conf
from tests.support.guests import make_instance, make_spec


@pytest.fixture
def hosts(tmp_path: Path) -> tuple[fake.FakeDriver, fake.FakeDriver]:
    conf = make_conf(tmp_path)
    found = []
    for name in ("one", "two"):
        found.append(fake.FakeDriver(conf, name, lambda image, path: None))
        found[-1].init_host()
    return found[0], found[1]


def begun(source: fake.FakeDriver, destination: fake.FakeDriver) -> tuple[abilities.SpawnSpec, LiveDestination]:
    spec = make_spec(instance=make_instance(), generation=3)
    source.guests.spawn(spec)
    there = make_spec(instance=spec.instance, generation=4)
    ready = destination.live_moves.prepare(there, source.live_moves.check_source(spec.instance.uuid))
    assert destination.guests.leftovers() == {spec.instance.uuid}
    return spec, ready


def guests(host: fake.FakeDriver) -> list[tuple[int, PowerState]]:
    return [(info.generation, info.power_state) for info in host.guests.all()]


def test_live_migration_moves_the_guest(hosts: tuple[fake.FakeDriver, fake.FakeDriver]) -> None:
    source, destination = hosts
    spec, ready = begun(source, destination)
    reported: list[MigrationProgress] = []
    source.live_moves.migrate(
        spec.instance.uuid, ready, lambda progress: (reported.append(progress), MigrationControl.CONTINUE)[1]
    )
    assert (guests(source), guests(destination)) == ([], [(4, PowerState.RUNNING)])
    assert reported[-1].memory_remaining == 0 < reported[-1].memory_total
    assert source.live_moves.settle(spec.instance.uuid, ready)
    assert "fake guest is booting" in destination.consoles.output(spec.instance.uuid, None)


def test_paused_guest_is_paused_at_the_destination(hosts: tuple[fake.FakeDriver, fake.FakeDriver]) -> None:
    source, destination = hosts
    spec, ready = begun(source, destination)
    source.standby.pause(spec.instance.uuid)
    source.live_moves.migrate(spec.instance.uuid, ready, lambda progress: MigrationControl.CONTINUE)
    for _ in range(2):
        destination.live_moves.take_over_paused(spec.instance.uuid)
        assert guests(destination) == [(4, PowerState.PAUSED)]


def test_live_migration_is_aborted(hosts: tuple[fake.FakeDriver, fake.FakeDriver]) -> None:
    source, destination = hosts
    spec, ready = begun(source, destination)
    with pytest.raises(exceptions.MigrationAborted):
        source.live_moves.migrate(spec.instance.uuid, ready, lambda progress: MigrationControl.ABORT)
    assert (guests(source), guests(destination)) == ([(3, PowerState.RUNNING)], [])
    assert not source.live_moves.settle(spec.instance.uuid, ready)
    destination.guests.destroy(spec.instance.uuid)
    assert destination.guests.leftovers() == set()


def test_guest_has_the_processor_of_the_host_that_started_it(hosts: tuple[fake.FakeDriver, fake.FakeDriver]) -> None:
    source, destination = hosts
    old, new = ({"virt_type": "qemu", "features": features} for features in ("aes", "aes avx"))
    for host, cpu in ((source, old), (destination, new)):
        fake_hypervisor.write_control(host.conf, host.host, cpu=cpu)
    spec, ready = begun(source, destination)
    uuid = spec.instance.uuid
    offered = source.live_moves.check_source(uuid)
    destination.live_moves.check_destination(offered)
    source.live_moves.migrate(uuid, ready, lambda progress: MigrationControl.CONTINUE)
    report = destination.guests.devices(uuid)
    assert report is not None
    assert report.cpu == offered.guest_cpu == GuestCpu(virt_type="qemu", features="aes")
    destination.power.reboot(uuid, "HARD", 0)
    with pytest.raises(exceptions.MigrationPreCheckError, match="its processor lacks avx"):
        source.live_moves.check_destination(destination.live_moves.check_source(uuid))


@pytest.mark.parametrize("step", ["live_migration_before_move", "live_migration_after_move"])
def test_failed_live_migration_shows_where_the_guest_is(
    hosts: tuple[fake.FakeDriver, fake.FakeDriver], step: str
) -> None:
    source, destination = hosts
    spec, ready = begun(source, destination)
    fake_hypervisor.write_control(source.conf, "one", fail_at=[step], fail_count=-1)
    with pytest.raises(exceptions.VirtDriverError):
        source.live_moves.migrate(spec.instance.uuid, ready, lambda progress: MigrationControl.CONTINUE)
    moved = step == "live_migration_after_move"
    assert source.live_moves.settle(spec.instance.uuid, ready) == moved
    assert (len(guests(source)), len(guests(destination))) == ((0, 1) if moved else (1, 0))


def test_stopped_guest_is_not_moved(hosts: tuple[fake.FakeDriver, fake.FakeDriver]) -> None:
    source, _ = hosts
    spec = make_spec(instance=make_instance())
    source.guests.spawn(spec)
    source.power.off(spec.instance.uuid, 0)
    with pytest.raises(exceptions.MigrationPreCheckError):
        source.live_moves.check_source(spec.instance.uuid)
