"""Disks of servers in a pool of Ceph: they belong to one host, and no other host removes them."""

from __future__ import annotations

import contextlib
import errno
import os
import types
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.base.disk_room import DiskRoom
from nova_lite.base.timing import ClientTiming
from nova_lite.image import local
from nova_lite.objects import DiskPlace, Image, LeftDisks, LiveDestination, PooledDisks
from nova_lite.operations.states import PowerState
from nova_lite.virt import images
from nova_lite.virt.abilities import BackupRequest, SpawnSpec
from nova_lite.virt.libvirt.disks import pool_marks
from nova_lite.virt.libvirt.disks.disks import DiskMaker
from nova_lite.virt.libvirt.disks.image_cache import ImageCache
from nova_lite.virt.libvirt.disks.incremental import DiskBackups
from nova_lite.virt.libvirt.disks.left_disks import LeftDisksFinder
from nova_lite.virt.libvirt.disks.moved_disks import MovedDisks
from nova_lite.virt.libvirt.disks.pool_disks import PoolDisks
from nova_lite.virt.libvirt.disks.pool_marks import PoolMarks
from nova_lite.virt.libvirt.disks.snapshots import Snapshotter
from nova_lite.virt.libvirt.domain import guest_xml, live_migration
from nova_lite.virt.libvirt.domain.live_moves import LiveMoves
from nova_lite.virt.libvirt.host.pool_room import PoolRoom
from nova_lite.virt.libvirt.records import Records, TakenFrom, key_of, parts_of, pooled_in
from nova_lite.virt.rbd import RbdFailure
from nova_lite.virt.rbd_pool import RbdPool
from tests.support.clock import Clock
from tests.support.config_drives import drives
from tests.support.fake_rbd import FakeRbd
from tests.support.guests import make_flavor, make_image, make_instance, make_spec

UUID = "2b2e0a7a-55c5-4d5a-a9fd-6d2b9a3d9c11"
MIB, GIB = 1024**2, 1024**3
CONTENT = os.urandom(MIB)


def name(generation: int, disk: str = "disk") -> str:
    return f"server-{UUID}-{generation}-{disk}"


class Host:
    """A host with its own directory, and the pool of all."""

    def __init__(self, path: Path, host: str, conf: cfg.ConfigOpts, qemu_img: images.QemuImg, ceph: FakeRbd) -> None:
        self.name, self.path = host, path
        conf.set_override("images_type", "rbd", "libvirt")
        self.records = Records(str(path / host), host)
        self.records.prepare()
        room = DiskRoom(0, lambda directory: 1 << 40)
        self.cache = ImageCache(
            self.records.base_path, qemu_img, lambda image, target: local.copy(image, image.name, target), room
        )
        self.maker = DiskMaker(self.cache, qemu_img, drives(False))
        rbd_pool = RbdPool("pool", ceph, ClientTiming(rbd_watch_wait=0.0))
        self.pool = PoolDisks(conf, rbd_pool, self.maker, self.cache)
        self.records.pool = self.pool
        self.clock = Clock()
        self.marks = PoolMarks(rbd_pool, host, self.clock)
        self.finder = LeftDisksFinder(self.records, self.marks, self.pool)
        self.moved = MovedDisks(conf, self.maker, self.cache, qemu_img, self.pool)

    def make(self, spec: SpawnSpec) -> str:
        """Make the disks of a new server, and return its directory."""
        directory = self.records.create(UUID, spec.generation, pooled=True)
        self.pool.make(key_of(UUID, spec.generation), directory, spec)
        return directory

    def take(self, lost: Host, generation: int, new: int) -> str | None:
        place = DiskPlace(host=lost.name, generation=generation, marks=lost.marks.look().marks)
        return self.finder.take(UUID, new, [], LeftDisks(places=[place], required=True))


@pytest.fixture
def ceph(tmp_path: Path) -> FakeRbd:
    return FakeRbd(tmp_path / "pool")


@pytest.fixture
def hosts(tmp_path: Path, conf: cfg.ConfigOpts, qemu_img: images.QemuImg, ceph: FakeRbd) -> list[Host]:
    return [Host(tmp_path, each, conf, qemu_img, ceph) for each in ("one", "two")]


@pytest.fixture
def image(tmp_path: Path) -> Image:
    (tmp_path / "image").write_bytes(CONTENT)
    return make_image(tmp_path / "image")


def spec_of(image: Image, generation: int = 1, **flavor: Any) -> SpawnSpec:
    instance = make_instance(uuid=UUID, flavor=make_flavor(**flavor))
    return make_spec(instance=instance, image=image, generation=generation)


def servers(ceph: FakeRbd) -> list[str]:
    return [found for found in ceph.names() if found.startswith("server-")]


def test_server_with_encrypted_disks_gets_none_here(hosts: list[Host], ceph: FakeRbd, image: Image) -> None:
    with pytest.raises(exceptions.NotImplementedByDriver, match="encrypted disks in Ceph"):
        hosts[0].make(spec_of(image, extra_specs={"hw:ephemeral_encryption": "yes"}))
    assert servers(ceph) == []


def test_root_disk_is_a_clone_of_the_image_with_the_flavors_size(
    hosts: list[Host], ceph: FakeRbd, image: Image, conf: cfg.ConfigOpts
) -> None:
    conf.set_override("rbd_secret_uuid", "6d0a3b1e-0000-4000-8000-000000000000", "volume")
    spec = spec_of(image, root_gb=2)
    directory = hosts[0].make(spec)
    assert ceph.names() == [f"image-{image.id}", name(1)]
    assert (ceph.read(name(1), MIB), ceph.size(name(1)), ceph.size(f"image-{image.id}")) == (CONTENT, 2 * GIB, MIB)
    assert ceph.found[name(1)].parent == (ceph.found[f"image-{image.id}"].id, ceph.found[name(1)].parent[1])  # type: ignore[index]
    (root,) = hosts[0].moved.adopt(directory, spec, None).disks
    element = guest_xml.disk_element(root)
    source, driver = element.find("source"), element.find("driver")
    assert source is not None and driver is not None
    assert (element.get("type"), source.get("name"), driver.get("cache")) == ("network", f"pool/{name(1)}", "none")
    assert (driver.get("type"), element.find("source/auth/secret") is not None) == ("raw", True)


def test_encrypted_disks_are_refused_and_none_is_made(hosts: list[Host], ceph: FakeRbd, image: Image) -> None:
    spec = spec_of(image, extra_specs={"hw:ephemeral_encryption": "yes"})
    with pytest.raises(exceptions.NotImplementedByDriver, match="encrypted disks in Ceph"):
        hosts[0].make(spec)
    with pytest.raises(exceptions.NotImplementedByDriver, match="encrypted disks in Ceph"):
        hosts[0].pool.adopt(key_of(UUID, 1), str(hosts[0].path), spec)
    assert servers(ceph) == []


def test_image_is_imported_once_for_all_hosts(hosts: list[Host], ceph: FakeRbd, image: Image) -> None:
    hosts[0].make(spec_of(image))
    hosts[1].make(spec_of(image, 2))
    assert ceph.verbs().count("import") == 1


def test_image_that_two_hosts_import_at_once_is_complete(hosts: list[Host], ceph: FakeRbd, image: Image) -> None:
    def other_host_is_faster(verb: str, arguments: tuple[str, ...]) -> None:
        if verb == "import":
            ceph.before = lambda verb, arguments: None
            hosts[1].make(spec_of(image, 2))

    ceph.before = other_host_is_faster
    hosts[0].make(spec_of(image))
    assert ceph.names() == [f"image-{image.id}", name(1), name(2)]
    assert ceph.read(name(1), MIB) == ceph.read(name(2), MIB) == CONTENT


def test_image_larger_than_the_flavors_disk_is_refused(hosts: list[Host], ceph: FakeRbd, tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(GIB + 1)
    with pytest.raises(exceptions.FlavorDiskTooSmall):
        hosts[0].make(spec_of(make_image(tmp_path / "large"), root_gb=1))
    assert servers(ceph) == []


def test_ephemeral_disk_swap_and_config_drive_are_in_the_pool(hosts: list[Host], ceph: FakeRbd, image: Image) -> None:
    spec = spec_of(image, ephemeral_gb=1, swap=8)
    spec.instance.config_drive = True
    directory = hosts[0].make(spec)
    assert servers(ceph) == [name(1), *(name(1, f"disk.{disk}") for disk in ("config", "eph0", "swap"))]
    assert ceph.read(name(1, "disk.config"), 32774)[32769:] == b"CD001"
    assert ceph.read(name(1, "disk.swap"), 4096)[-10:] == b"SWAPSPACE2"
    assert (ceph.size(name(1, "disk.eph0")), ceph.read(name(1, "disk.eph0"), 1082)[1080:]) == (GIB, b"\x53\xef")
    assert os.listdir(directory) == ["instance.json"]
    found = hosts[0].moved.adopt(directory, spec, None).disks
    assert [(disk.path, disk.device, disk.read_only) for disk in found] == [
        ("disk", "vda", False),
        ("disk.eph0", "vdb", False),
        ("disk.swap", "vdc", False),
        ("disk.config", "vdd", True),
    ]


def test_disks_grow_with_the_flavor_and_are_kept_otherwise(hosts: list[Host], ceph: FakeRbd, image: Image) -> None:
    directory = hosts[0].make(spec_of(image, ephemeral_gb=1, swap=8))
    ceph.write(name(1), b"guest")
    hosts[0].moved.adopt(directory, spec_of(image, root_gb=3, ephemeral_gb=2, swap=16), None)
    assert [ceph.size(found) for found in servers(ceph)] == [3 * GIB, 2 * GIB, 16 * MIB]
    assert ceph.read(name(1), 5) == b"guest"
    hosts[0].moved.adopt(directory, spec_of(image, root_gb=3), None)
    assert servers(ceph) == [name(1)]
    with pytest.raises(exceptions.FlavorDiskTooSmall):
        hosts[0].moved.adopt(directory, spec_of(image, root_gb=2), None)


def test_missing_root_disk_is_not_made_again(hosts: list[Host], ceph: FakeRbd, image: Image) -> None:
    directory = hosts[0].make(spec_of(image))
    del ceph.found[name(1)]
    with pytest.raises(exceptions.VirtDriverError, match=r"its root disk pool/server-.* is missing"):
        hosts[0].moved.adopt(directory, spec_of(image), None)


def test_removal_of_a_server_leaves_its_image_alone(hosts: list[Host], ceph: FakeRbd, image: Image) -> None:
    hosts[0].make(spec_of(image, ephemeral_gb=1))
    hosts[0].records.remove(UUID)
    assert ceph.names() == [f"image-{image.id}"]
    assert not hosts[0].records.owns(UUID)


def test_directory_stays_until_the_pool_has_removed_the_disks(hosts: list[Host], ceph: FakeRbd, image: Image) -> None:
    hosts[0].make(spec_of(image))
    ceph.found[name(1)].watchers.append("a guest")
    with pytest.raises(exceptions.VirtDriverError, match="is in use by a guest"):
        hosts[0].records.remove(UUID)
    assert (hosts[0].records.owns(UUID), servers(ceph)) == (True, [name(1)])


def test_rescue_system_has_disks_of_its_own(hosts: list[Host], ceph: FakeRbd, image: Image) -> None:
    spec = spec_of(image)
    spec.instance.config_drive = True
    directory = hosts[0].make(spec)
    for _ in range(2):
        found = hosts[0].pool.make_rescue(key_of(UUID, 1), directory, spec).disks
    assert [disk.path for disk in found] == ["disk.rescue", "disk.config.rescue"]
    assert ceph.read(name(1, "disk.rescue"), MIB) == CONTENT
    hosts[1].pool.clone(key_of(UUID, 1), key_of(UUID, 2))
    assert [found for found in servers(ceph) if "rescue" in found and "-2-" in found] == []
    hosts[0].pool.remove_rescue(key_of(UUID, 1))
    assert [found for found in servers(ceph) if "rescue" in found] == []


# --- evacuation


def test_evacuated_server_gets_clones_of_its_disks(hosts: list[Host], ceph: FakeRbd, image: Image) -> None:
    lost, target = hosts
    lost.make(spec_of(image, ephemeral_gb=1))
    ceph.write(name(1), b"guest")
    directory = target.take(lost, 1, 2)
    assert directory is not None and pooled_in(directory) == key_of(UUID, 2)
    assert (ceph.read(name(2), 5), name(2, "disk.eph0") in ceph.names()) == (b"guest", True)
    assert target.records.has_taken() == {UUID}


def test_lost_host_that_returns_removes_its_own_disks_only(hosts: list[Host], ceph: FakeRbd, image: Image) -> None:
    lost, target = hosts
    lost.make(spec_of(image))
    ceph.write(name(1), b"guest")
    target.take(lost, 1, 2)
    lost.records.remove(UUID)
    assert (servers(ceph), ceph.read(name(2), 5)) == ([name(2)], b"guest")
    target.records.own(UUID)
    target.records.remove(UUID)
    assert (servers(ceph), ceph.trashed) == ([], {})


def test_accepted_build_removes_the_disks_that_the_lost_host_has_left(
    hosts: list[Host], ceph: FakeRbd, image: Image
) -> None:
    lost, target = hosts
    lost.make(spec_of(image))
    target.take(lost, 1, 2)
    target.records.own(UUID)
    assert (servers(ceph), target.records.has_taken()) == ([name(2)], set())
    lost.records.remove(UUID)
    assert servers(ceph) == [name(2)]


def test_failed_build_leaves_the_disks_to_the_next_target(hosts: list[Host], ceph: FakeRbd, image: Image) -> None:
    lost, target = hosts
    lost.make(spec_of(image))
    target.take(lost, 1, 2)
    target.records.remove(UUID)
    assert (servers(ceph), target.records.owns(UUID)) == ([name(1)], False)
    assert target.take(lost, 1, 3) is not None


def test_returning_host_keeps_disks_that_nobody_has_taken_yet(hosts: list[Host], ceph: FakeRbd, image: Image) -> None:
    lost, target = hosts
    lost.make(spec_of(image))
    lost.records.keep(UUID)
    lost.records.remove(UUID)
    assert target.take(lost, 1, 2) is not None
    lost.records.discard_kept(UUID)
    assert servers(ceph) == [name(2)]


def test_disks_that_a_guest_still_writes_are_not_taken(hosts: list[Host], ceph: FakeRbd, image: Image) -> None:
    lost, target = hosts
    lost.make(spec_of(image))
    ceph.found[name(1)].watchers.append("a guest")
    with pytest.raises(exceptions.VirtDriverError, match="is in use by a guest"):
        target.take(lost, 1, 2)
    assert servers(ceph) == [name(1)]


@pytest.mark.parametrize(
    ("generation", "why"), [(1, "has no disks of that generation"), (2, "no mark of its last host")]
)
def test_disks_of_another_generation_or_of_an_unknown_host_are_not_taken(
    hosts: list[Host], ceph: FakeRbd, image: Image, generation: int, why: str
) -> None:
    lost, target = hosts
    lost.make(spec_of(image, 2))
    marks = lost.marks.look().marks if generation == 1 else ["0" * 32]
    left = LeftDisks(places=[DiskPlace(host="one", generation=generation, marks=marks)], required=True)
    with pytest.raises(exceptions.DisksNotHere, match=why):
        target.finder.take(UUID, 3, [], left)
    assert (servers(ceph), target.records.owns(UUID)) == ([name(2)], False)


# --- moves


def test_cold_move_clones_the_disks_and_the_source_keeps_its_own(
    hosts: list[Host], ceph: FakeRbd, image: Image
) -> None:
    source, target = hosts
    source.make(spec_of(image, ephemeral_gb=1))
    offered = source.pool.offer(key_of(UUID, 1))
    target.pool.require_same(offered, UUID)
    directory = target.records.create(UUID, 2, pooled=True)
    for _ in range(2):
        target.pool.clone(offered.key, key_of(UUID, 2))
    target.moved.adopt(directory, spec_of(image, 2, root_gb=2, ephemeral_gb=1), None)
    ceph.write(name(2), b"after")
    assert (ceph.size(name(1)), ceph.size(name(2)), ceph.read(name(1), MIB)) == (GIB, 2 * GIB, CONTENT)
    target.records.remove(UUID)
    assert servers(ceph) == [name(1), name(1, "disk.eph0")]


def test_disk_set_aside_is_removed_alone(hosts: list[Host], ceph: FakeRbd, image: Image) -> None:
    host = hosts[0]
    host.make(spec_of(image))
    directory = host.records.set_aside(UUID)
    assert pooled_in(directory) == key_of(UUID, 1)
    host.records.create(UUID, 2, pooled=True)
    host.pool.clone(key_of(UUID, 1), key_of(UUID, 2))
    host.records.discard_set_aside(UUID)
    assert servers(ceph) == [name(2)]


@pytest.mark.parametrize("key", [key_of(UUID, 1), key_of(str(uuid.UUID(int=1)), 1), "../x"])
def test_disks_of_another_pool_or_server_are_refused(hosts: list[Host], image: Image, key: str) -> None:
    hosts[0].make(spec_of(image))
    with pytest.raises(exceptions.VirtDriverError, match=r"does not have its disks|is not the name"):
        hosts[1].pool.require_same(PooledDisks(key=key, images={"disk": "an id of another Ceph"}), UUID)


class Migrator:
    """A migration that ends as ``result`` says. ``names``: of the images meanwhile."""

    result: Exception | bool = True

    def __init__(self, ceph: FakeRbd) -> None:
        self.ceph = ceph
        self.names: list[str] = []

    def __call__(self, *_: Any) -> Migrator:
        return self

    def run(self, *_: Any) -> None:
        self.names = servers(self.ceph)
        if isinstance(self.result, Exception):
            raise self.result

    def settle(self) -> bool:
        return self.result is True


@pytest.fixture
def migrator(ceph: FakeRbd, monkeypatch: pytest.MonkeyPatch) -> Migrator:
    made = Migrator(ceph)
    monkeypatch.setattr(live_migration, "LiveMigrator", made)
    return made


def live_moves(host: Host) -> LiveMoves:
    idle: Any = types.SimpleNamespace(forget=lambda *_: None, close=lambda *_: None, forget_incoming=lambda *_: None)
    domains = types.SimpleNamespace(get=lambda uuid: (None, None))
    context: Any = types.SimpleNamespace(
        conf=None, host=host.name, connection=None, domains=domains, records=host.records
    )
    return LiveMoves(context, idle, idle, idle, host.moved, idle, idle, idle, host.pool)


def there(generation: int = 2) -> LiveDestination:
    return LiveDestination(driver="libvirt", host="two", generation=generation, address="")


def receive(host: Host) -> None:
    host.records.create(UUID, 2, pooled=True, taken=TakenFrom("one", 1, ""))


def test_live_migration_hands_the_disks_over(
    hosts: list[Host], ceph: FakeRbd, image: Image, migrator: Migrator
) -> None:
    source, target = hosts
    source.make(spec_of(image))
    receive(target)
    live_moves(source).migrate(UUID, there(), lambda progress: None)  # type: ignore[arg-type, return-value]
    assert migrator.names == [name(2)]
    source.records.remove(UUID)
    live_moves(target).finish(UUID)
    assert (servers(ceph), target.records.has_taken()) == ([name(2)], set())
    target.records.remove(UUID)
    assert servers(ceph) == []


@pytest.mark.parametrize(
    "error",
    [
        exceptions.MigrationFailed(instance_uuid=UUID, reason="r"),
        exceptions.MigrationAborted(instance_uuid=UUID, reason="r"),
        exceptions.MigrationPreCheckError(reason="r"),
    ],
)
def test_failed_live_migration_leaves_the_disks_at_the_source(
    hosts: list[Host], ceph: FakeRbd, image: Image, migrator: Migrator, error: Exception
) -> None:
    source, target = hosts
    source.make(spec_of(image))
    receive(target)
    migrator.result = error
    with pytest.raises(type(error)):
        live_moves(source).migrate(UUID, there(), lambda progress: None)  # type: ignore[arg-type, return-value]
    assert servers(ceph) == [name(1)]
    target.records.remove(UUID)
    assert (servers(ceph), target.records.owns(UUID)) == ([name(1)], False)


def test_killed_live_migration_is_settled_with_the_disks(
    hosts: list[Host], ceph: FakeRbd, image: Image, migrator: Migrator
) -> None:
    hosts[0].make(spec_of(image))
    hosts[0].pool.rename(key_of(UUID, 1), key_of(UUID, 2))  # the daemon is killed here
    migrator.result = False
    assert not live_moves(hosts[0]).settle(UUID, there())
    assert servers(ceph) == [name(1)]


def test_destination_gives_the_disks_back_if_the_source_is_lost(hosts: list[Host], ceph: FakeRbd, image: Image) -> None:
    source, target = hosts
    source.make(spec_of(image))
    receive(target)
    source.pool.rename(key_of(UUID, 1), key_of(UUID, 2))
    target.records.remove(UUID)
    assert servers(ceph) == [name(1)]


def test_image_with_two_names_is_not_removed(
    hosts: list[Host], ceph: FakeRbd, image: Image, caplog: pytest.LogCaptureFixture
) -> None:
    hosts[0].make(spec_of(image))
    ceph.found[name(2)] = ceph.found[name(1)]  # a rename was interrupted
    hosts[0].records.remove(UUID)
    assert servers(ceph) == [name(1), name(2)]
    assert "after an interrupted rename" in caplog.text


def test_destination_opens_the_renamed_disks_and_copies_none() -> None:
    xml = f"""<domain><metadata><n:instance xmlns:n="{guest_xml.NAMESPACE}"/></metadata><devices>
        <disk type='network' device='disk'><driver type='raw' cache='none'/>
          <source protocol='rbd' name='pool/server-{UUID}-1-disk'/><target dev='vda'/></disk>
        </devices></domain>"""
    moved = live_migration.destination_xml(xml, msgspec.structs.replace(there(), paths={"disk": "pool/new"}))
    assert 'name="pool/new"' in moved and "file=" not in moved
    assert live_migration.volumes.local_targets(xml) == ([], True)
    assert live_migration.volumes.all_direct(xml)
    assert not live_migration.volumes.all_direct(xml.replace("cache='none'", ""))
    assert live_migration.describe_source(None, xml, "/i").disks == {}  # type: ignore[arg-type]


# --- marks


def test_hosts_of_one_pool_see_each_other(hosts: list[Host]) -> None:
    one, two = (host.marks for host in hosts)
    first = one.look()
    assert (len(first.marks), first.seen, first.live) == (2, {}, [])
    view = two.look()
    assert (view.seen, view.live) == ({"one": first.marks}, [])
    assert one.look().seen == {"two": view.marks}
    assert two.look().live == ["one"]
    assert (one.read("two"), one.read("one"), one.read("three")) == (view.marks, first.marks, [])


def test_host_whose_word_does_not_change_is_not_live(hosts: list[Host]) -> None:
    one, two = hosts
    for _ in range(2):
        one.marks.look()
        two.marks.look()
    two.clock.time += pool_marks.LIVE_SECONDS - 1
    assert two.marks.look().live == ["one"]
    two.clock.time += 1
    assert two.marks.look().live == []
    one.marks.look()
    assert two.marks.look().live == ["one"]


def test_mark_in_a_pool_is_replaced_and_the_last_one_stays_valid(hosts: list[Host], ceph: FakeRbd) -> None:
    one = hosts[0]
    before = one.marks.look().marks
    assert one.marks.look().marks == before
    one.clock.time += pool_marks.LIFETIME
    after = one.marks.look().marks
    assert (after[0] in before, after[1]) == (False, before[0])
    restarted = PoolMarks(one.pool.pool, "one")
    assert restarted.look().marks[1] == after[0]


def test_words_that_are_no_marks_are_ignored(hosts: list[Host], ceph: FakeRbd) -> None:
    hosts[0].marks.look()
    ceph.found["hosts"].metadata["bad"] = "x"
    assert hosts[0].marks.look().seen == {}


def test_image_of_marks_that_another_host_has_just_made_is_used(hosts: list[Host], ceph: FakeRbd) -> None:
    def make_it(verb: str, arguments: tuple[str, ...]) -> None:
        if verb == "create":
            ceph.before = lambda verb, arguments: None
            hosts[1].marks.look()

    ceph.before = make_it
    assert list(hosts[0].marks.look().seen) == ["two"]


# --- room, snapshots and backups


def test_room_is_that_of_the_pool(hosts: list[Host], ceph: FakeRbd, caplog: pytest.LogCaptureFixture) -> None:
    room = PoolRoom(hosts[0].pool.pool)
    assert room.get() == (10 * GIB, 7 * GIB)

    def lost(verb: str, arguments: tuple[str, ...]) -> None:
        raise RbdFailure("ceph df: no end within 60 s", errno.ETIMEDOUT)

    ceph.before = lost
    room._asked_at -= 3600
    assert room.get() == (10 * GIB, 7 * GIB)
    assert "The room in pool pool is unknown now: ceph df" in caplog.text
    assert PoolRoom(hosts[0].pool.pool).get() == (0, 0)


@pytest.mark.parametrize("power_state", [PowerState.RUNNING, PowerState.SHUTDOWN])
def test_image_of_a_server_is_that_of_one_moment(
    hosts: list[Host], ceph: FakeRbd, image: Image, qemu_img: images.QemuImg, tmp_path: Path, power_state: PowerState
) -> None:
    directory = hosts[0].make(spec_of(image))
    held: list[list[str]] = []

    @contextlib.contextmanager
    def frozen(domain: Any) -> Iterator[None]:
        first = len(ceph.commands)
        yield
        held.append(ceph.verbs()[first:])

    domains: Any = types.SimpleNamespace(get=lambda uuid: (None, types.SimpleNamespace(power_state=power_state)))
    freezer: Any = types.SimpleNamespace(frozen=frozen)
    target, room = tmp_path / "snapshot", DiskRoom(0, lambda directory: 1 << 40)
    none: Any = None
    snapshots = Snapshotter(none, domains, qemu_img, room, freezer, lambda uuid: directory, hosts[0].pool)
    snapshots.take(UUID, str(target), lambda: None)
    assert images.QemuImg(hosts[0].pool._conf).info(str(target), "qcow2").virtual_size == GIB
    images.run("qemu-img", "convert", "-O", "raw", str(target), str(tmp_path / "raw"))
    with (tmp_path / "raw").open("rb") as file:
        assert file.read(MIB) == CONTENT
    assert held == ([["snap create"]] if power_state == PowerState.RUNNING else [])
    assert (ceph.found[name(1)].snapshots, list(tmp_path.glob("snapshot*"))) == ({}, [target])


def test_backup_of_a_server_that_is_off_has_its_data(
    hosts: list[Host], ceph: FakeRbd, image: Image, qemu_img: images.QemuImg, tmp_path: Path
) -> None:
    directory = hosts[0].make(spec_of(image))
    off = types.SimpleNamespace(power_state=PowerState.SHUTDOWN)
    domains: Any = types.SimpleNamespace(get=lambda uuid: (None, off))
    room, none = DiskRoom(0, lambda directory: 1 << 40), None
    arguments: Any = (none, domains, qemu_img, none, room, lambda uuid: directory, hosts[0].pool)
    target = tmp_path / "stream"
    DiskBackups(*arguments).take(UUID, str(target), BackupRequest(backup_id=UUID), lambda: None, none)  # type: ignore[arg-type]
    assert CONTENT in target.read_bytes()
    assert list(tmp_path.glob("stream*")) == [target]


def test_key_of_disks_is_a_uuid_and_a_generation() -> None:
    assert parts_of(key_of(UUID, 12)) == (UUID, 12)
    for key in (f"{UUID}-", f"{UUID}-1x", "x-1", f"{UUID}--1"):
        with pytest.raises(exceptions.VirtDriverError):
            parts_of(key)
