"""Connections that break in the middle of each kind of call: the actual state decides what became of the call."""

from __future__ import annotations

import contextlib
import threading
import types
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import libvirt
import pytest
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.base.disk_room import DiskRoom
from nova_lite.base.timing import LibvirtTiming
from nova_lite.objects import BlockDevice, LiveDestination, MigrationControl, MigrationProgress, VolumeKey
from nova_lite.objects.block_device import DeviceSource
from nova_lite.operations.states import PowerState
from nova_lite.virt.libvirt import connection as connections
from nova_lite.virt.libvirt.connection import CALLS_PER_CONNECTION, Connection, ConnectionBroken, LibvirtFailure
from nova_lite.virt.libvirt.disks.freezes import Freezer
from nova_lite.virt.libvirt.disks.secrets import VolumeSecrets
from nova_lite.virt.libvirt.disks.snapshots import Snapshotter
from nova_lite.virt.libvirt.disks.volume_copies import VolumeCopies, raw_disk
from nova_lite.virt.libvirt.disks.volumes import VolumeDevices
from nova_lite.virt.libvirt.domain.domains import Domains
from nova_lite.virt.libvirt.domain.live_migration import LiveMigrator
from nova_lite.virt.libvirt.host import inventory
from nova_lite.virt.libvirt.net.interfaces import InterfaceDevices
from tests.support.guests import make_vif
from tests.support.waiting import wait_for
from tests.unit.virt.libvirt.scripted import (
    AFTER,
    BEFORE,
    CONFIG_XML,
    HOST,
    URI,
    Connect,
    Guest,
    Hypervisor,
    broken_pipe,
    failure,
)

UUID = "2b2e0a7a-55c5-4d5a-a9fd-6d2b9a3d9c11"
VOLUME_ID = "aaaaaaaa-0000-4000-8000-000000000001"
OTHER_ID = "aaaaaaaa-0000-4000-8000-000000000002"
VIF = make_vif()
VOLUME = BlockDevice(
    uuid="b",
    volume_id=VOLUME_ID,
    device_name="/dev/vdb",
    source_type=DeviceSource.VOLUME,
    destination_type="volume",
)


@pytest.fixture
def hypervisor(monkeypatch: pytest.MonkeyPatch) -> Hypervisor:
    made = Hypervisor()
    monkeypatch.setattr(libvirt, "open", made.open)
    return made


@pytest.fixture
def guest(hypervisor: Hypervisor) -> Guest:
    return hypervisor.guest(UUID)


def no_key(owner: str) -> VolumeKey:
    return VolumeKey(passphrase="")


class Driver:
    """Parts of the driver on one connection."""

    def __init__(self, conf: cfg.ConfigOpts, path: Path) -> None:
        self.conf = conf
        self.path = str(path / VOLUME_ID)
        self.connection = Connection(URI, HOST, timing=LibvirtTiming(reconnect_pause=0.01, ask_again=0.0))
        self.domains = Domains(self.connection, HOST)
        self.secrets = secrets = VolumeSecrets(self.connection, "here", no_key, no_key, no_key)
        self.volumes = VolumeDevices(self.connection, self.domains, secrets)
        self.freezer = Freezer(self.connection, self.domains, str(path / "instances"), HOST)
        self.mirrors = Snapshotter(self.connection, self.domains, None, DiskRoom(0), self.freezer, str, None)  # type: ignore[arg-type]
        self.copies = VolumeCopies(self.connection, self.domains, self.volumes, self.mirrors, secrets, DiskRoom(0))
        self.interfaces = InterfaceDevices(self.connection, 5)

    def domain(self) -> Any:
        return self.domains.get(UUID)[0]

    def call(self, name: str, *args: Any) -> Any:
        return self.connection.call(getattr(self.domain(), name), *args)

    def quiesce(self) -> None:
        with self.mirrors.quiesced(self.domain()):
            assert self.domain()._guest.frozen

    def migrator(self) -> LiveMigrator:
        destination = LiveDestination(driver="libvirt", host="two", generation=2, address="192.0.2.2")
        return LiveMigrator(self.conf, self.connection, UUID, destination)

    def migrate(
        self, watch: Callable[[MigrationProgress], MigrationControl] = lambda progress: MigrationControl.CONTINUE
    ) -> None:
        self.migrator().run(self.domain(), watch)

    def swap(self) -> None:
        Path(self.path).write_bytes(b"")
        self.copies.swap(
            UUID, VOLUME, OTHER_ID, self.path.replace(VOLUME_ID, OTHER_ID), 2048, lambda: None, lambda: None
        )

    def shut_down(self) -> None:
        assert self.domains.shut_down(self.domain(), UUID, 5, threading.Event())


@pytest.fixture
def driver(conf: cfg.ConfigOpts, tmp_path: Path) -> Driver:
    (tmp_path / OTHER_ID).write_bytes(b"")
    return Driver(conf, tmp_path)


def run(guest: Guest) -> None:
    guest.createWithFlags(0)


def suspend(guest: Guest) -> None:
    guest.createWithFlags(1)


def save(guest: Guest) -> None:
    guest.saved = True


def add_volume(guest: Guest) -> None:
    run(guest)
    for where in (libvirt.VIR_DOMAIN_AFFECT_LIVE, libvirt.VIR_DOMAIN_AFFECT_CONFIG):
        guest.attachDeviceFlags(
            f"<disk type='file'><source file='/v/{VOLUME_ID}'/><target dev='vdb'/><serial>{VOLUME_ID}</serial></disk>",
            where,
        )


def add_interface(guest: Guest) -> None:
    run(guest)
    for where in (libvirt.VIR_DOMAIN_AFFECT_LIVE, libvirt.VIR_DOMAIN_AFFECT_CONFIG):
        guest.attachDeviceFlags(f"<interface><mac address='{VIF.mac_address}'/></interface>", where)


def mirror(guest: Guest) -> None:
    add_volume(guest)
    guest.blockCopy("vdb", "<disk><source file='/copy'/></disk>", {}, 0)


def nothing(guest: Guest) -> None:
    pass


DETACH = ["detachDeviceFlags"] * 2
SWAP = ["blockCopy", "blockJobAbort", "blockResize", "updateDeviceFlags"]

Case = tuple[str, Callable[[Guest], None], Callable[[Driver], Any], list[str]]

#: Call that breaks, the guest's state before it, what the driver does, and the effects on the guest.
CASES: tuple[Case, ...] = (
    ("createWithFlags", nothing, lambda it: it.domains.start(it.domain(), UUID, 5), ["createWithFlags"]),
    ("createWithFlags", nothing, lambda it: it.domains.start(it.domain(), UUID, 5, paused=True), ["createWithFlags"]),
    ("destroyFlags", run, lambda it: it.domains.cut_power(it.domain()), ["destroyFlags"]),
    ("destroyFlags", run, lambda it: it.domains.remove(UUID), ["destroyFlags", "undefineFlags"]),
    ("undefineFlags", run, lambda it: it.domains.remove(UUID), ["destroyFlags", "undefineFlags"]),
    ("suspend", run, lambda it: it.call("suspend"), ["suspend"]),
    ("resume", suspend, lambda it: it.domains.resume(it.domain()), ["resume"]),
    ("managedSave", run, lambda it: it.domains.save_memory(it.domain()), ["managedSave"]),
    ("shutdownFlags", run, lambda it: it.shut_down(), ["shutdownFlags"]),
    ("attachDeviceFlags", run, lambda it: it.volumes.attach(UUID, VOLUME, it.path), ["attachDeviceFlags"] * 2),
    ("detachDeviceFlags", add_volume, lambda it: it.volumes.detach(UUID, VOLUME_ID, 5), DETACH),
    ("attachDeviceFlags", run, lambda it: it.interfaces.attach(it.domain(), VIF), ["attachDeviceFlags"] * 2),
    ("detachDeviceFlags", add_interface, lambda it: it.interfaces.detach(it.domain(), VIF), DETACH),
    ("blockCopy", add_volume, lambda it: it.mirrors.begin(it.domain(), "vdb", raw_disk("/copy"), 0), ["blockCopy"]),
    ("blockJobAbort", mirror, lambda it: it.mirrors.end(it.domain(), "vdb"), ["blockJobAbort"]),
    ("blockJobAbort", add_volume, lambda it: it.swap(), SWAP),
    ("blockCopy", add_volume, lambda it: it.swap(), SWAP),
    ("fsThaw", run, lambda it: it.quiesce(), ["fsFreeze", "fsThaw"]),
    ("migrateToURI3", run, lambda it: it.migrate(), ["migrateToURI3"]),
)  # fmt: skip


@pytest.mark.parametrize("moment", [BEFORE, AFTER])
@pytest.mark.parametrize(
    ("broken", "prepare", "act", "effects"),
    CASES,
    ids=[f"{number}-{case[0]}" for number, case in enumerate(CASES)],
)
def test_change_takes_effect_once_although_its_connection_breaks(
    hypervisor: Hypervisor,
    guest: Guest,
    driver: Driver,
    moment: str,
    broken: str,
    prepare: Callable[[Guest], None],
    act: Callable[[Driver], Any],
    effects: list[str],
) -> None:
    prepare(guest)
    hypervisor.breaks[broken] = moment
    act(driver)
    assert hypervisor.breaks == {}, "the connection broke"
    repeated = broken in connections.REPEATABLE and moment == AFTER and broken not in ("destroyFlags", "shutdownFlags")
    seen = [name for number, name in enumerate(guest.effects) if not repeated or name not in guest.effects[:number]]
    assert seen == (list(dict.fromkeys(effects)) if repeated else effects)


def test_swapped_volume_larger_than_recorded_is_not_shrunk(guest: Guest, driver: Driver) -> None:
    add_volume(guest)
    guest.block_size = 4096
    driver.swap()
    assert guest.effects[-3:] == [name for name in SWAP if name != "blockResize"]


@pytest.mark.parametrize("moment", [BEFORE, AFTER])
def test_saved_memory_is_removed_once_although_the_connection_breaks(
    hypervisor: Hypervisor, guest: Guest, driver: Driver, moment: str, conf: cfg.ConfigOpts
) -> None:
    from nova_lite.virt.libvirt.driver import LibvirtDriver

    save(guest)
    hypervisor.breaks["managedSaveRemove"] = moment
    LibvirtDriver(conf, HOST, lambda image, path: None).power._launcher.drop_memory(driver.domain())
    assert not guest.saved
    assert guest.effects == ["managedSaveRemove"]


@pytest.mark.parametrize("moment", [BEFORE, AFTER])
def test_interrupted_freeze_is_thawed_and_repeated(
    hypervisor: Hypervisor, guest: Guest, driver: Driver, moment: str
) -> None:
    """Otherwise the guest's file systems would stay frozen."""
    run(guest)
    hypervisor.breaks["fsFreeze"] = moment
    driver.quiesce()
    assert not guest.frozen
    assert guest.effects[-3:] == ["fsThaw", "fsFreeze", "fsThaw"]


def frozen_marks(path: Path) -> list[str]:
    return [file.name for file in (path / "instances" / "_frozen" / HOST).iterdir()]


def test_guest_that_a_killed_daemon_has_frozen_is_thawed_at_the_next_start(
    guest: Guest, driver: Driver, conf: cfg.ConfigOpts, tmp_path: Path
) -> None:
    run(guest)
    after = Driver(conf, tmp_path)
    with driver.mirrors.quiesced(driver.domain()):
        assert frozen_marks(tmp_path) == [UUID]
        after.freezer.thaw_left()
        after.quiesce()  # waits for the thaw
        assert guest.effects[-4:] == ["fsFreeze", "fsThaw", "fsFreeze", "fsThaw"]
        assert not guest.frozen
        assert frozen_marks(tmp_path) == []


def test_freeze_of_a_frozen_guest_thaws_it(guest: Guest, driver: Driver, tmp_path: Path) -> None:
    """Its agent refuses a further freeze."""
    run(guest)
    guest.fsFreeze(None, 0)
    driver.quiesce()
    assert not guest.frozen
    assert frozen_marks(tmp_path) == []


def test_start_asks_no_agent_of_guests_that_were_not_frozen(
    hypervisor: Hypervisor, guest: Guest, driver: Driver, tmp_path: Path
) -> None:
    run(guest)
    driver.freezer.thaw_left()
    driver.quiesce()
    driver.freezer.thaw_left()
    assert (hypervisor.calls["fsThaw"], hypervisor.calls["fsFreeze"]) == (1, 1)


@pytest.mark.parametrize("state", ["off", "gone"])
def test_mark_of_a_guest_that_does_not_run_is_removed_at_the_start(
    hypervisor: Hypervisor, guest: Guest, driver: Driver, conf: cfg.ConfigOpts, tmp_path: Path, state: str
) -> None:
    run(guest)
    after = Driver(conf, tmp_path)
    with contextlib.suppress(exceptions.VirtDriverError), driver.mirrors.quiesced(driver.domain()):
        if state == "off":
            guest.destroyFlags(0)
        else:
            guest.exists = False
        after.freezer.thaw_left()
        assert after.freezer._thaws[UUID].wait(30)
        assert frozen_marks(tmp_path) == []
        assert hypervisor.calls["fsThaw"] == 0


def test_mark_stays_while_the_guest_cannot_be_thawed(
    hypervisor: Hypervisor, guest: Guest, driver: Driver, tmp_path: Path
) -> None:
    run(guest)

    def refuse() -> None:
        raise failure(libvirt.VIR_ERR_AGENT_UNRESPONSIVE)

    hypervisor.hooks["fsThaw"] = refuse
    with pytest.raises(exceptions.VirtDriverError):
        driver.quiesce()
    assert frozen_marks(tmp_path) == [UUID]
    del hypervisor.hooks["fsThaw"]
    driver.quiesce()
    assert frozen_marks(tmp_path) == []


def test_volume_that_stays_open_elsewhere_is_not_attached(guest: Guest, driver: Driver) -> None:
    """An attachment that is repeated does not find its own guest."""
    run(guest)

    def refuse(instance_uuid: str, disk: ET.Element) -> None:
        raise exceptions.DiskInUse(instance_uuid=UUID, disk=VOLUME_ID)

    busy = VolumeDevices(driver.connection, driver.domains, driver.secrets, refuse)
    with pytest.raises(exceptions.DiskInUse):
        busy.attach(UUID, VOLUME, driver.path)
    assert [guest.devices(where).findall("disk") for where in (0, CONFIG_XML)] == [[], []]
    driver.volumes.attach(UUID, VOLUME, driver.path)
    busy.attach(UUID, VOLUME, driver.path)


@pytest.mark.parametrize(
    ("volumes", "effects"),
    [
        ([VOLUME_ID], ["fsFreeze", "fsThaw"]),
        ([VOLUME_ID, OTHER_ID], ["fsFreeze", "suspend", "resume", "fsThaw"]),
        ([OTHER_ID], []),
    ],
    ids=["one", "several", "none-of-this-guest"],
)
def test_guest_with_held_volumes_is_frozen_and_with_several_paused(
    guest: Guest, driver: Driver, volumes: list[str], effects: list[str]
) -> None:
    add_volume(guest)
    guest.effects.clear()
    with driver.copies.held(UUID, volumes):
        pass
    assert guest.effects == effects


def test_guest_that_a_killed_daemon_has_paused_is_resumed_and_thawed_at_the_next_start(
    guest: Guest, driver: Driver, conf: cfg.ConfigOpts, tmp_path: Path
) -> None:
    """The agent of a paused guest does not answer, so the guest runs before its thaw."""
    add_volume(guest)
    guest.effects.clear()
    after = Driver(conf, tmp_path)
    with driver.copies.held(UUID, [VOLUME_ID, OTHER_ID]):
        assert sorted(frozen_marks(tmp_path)) == [UUID, f"{UUID}.paused"]
        after.freezer.thaw_left()
        assert after.freezer._thaws[UUID].wait(30)
        assert guest.effects == ["fsFreeze", "suspend", "resume", "fsThaw"]
        assert frozen_marks(tmp_path) == []
        driver.call("suspend")  # the killed daemon would not continue


def test_guest_that_its_user_has_paused_stays_paused_when_the_daemon_starts(guest: Guest, driver: Driver) -> None:
    run(guest)
    driver.call("suspend")
    with driver.copies.held(UUID, [VOLUME_ID, OTHER_ID]):
        pass
    driver.freezer.thaw_left()
    assert driver.domains.get(UUID)[1].power_state == PowerState.PAUSED


@pytest.mark.parametrize(
    "name", sorted({"XMLDesc", "state", "isActive", "metadata", "hasManagedSaveImage", "lookupByUUIDString"})
)
def test_query_is_repeated_on_a_new_connection(hypervisor: Hypervisor, guest: Guest, driver: Driver, name: str) -> None:
    run(guest)
    hypervisor.breaks[name] = BEFORE
    domain, info = driver.domains.get(UUID)
    assert info.power_state == PowerState.RUNNING
    driver.connection.call(domain.XMLDesc, 0)
    driver.connection.call(domain.isActive)
    assert not driver.connection.call(domain.hasManagedSaveImage, 0)
    assert hypervisor.breaks == {}


def test_call_without_visible_effect_is_not_repeated(hypervisor: Hypervisor, guest: Guest, driver: Driver) -> None:
    run(guest)
    hypervisor.breaks["injectNMI"] = AFTER
    with pytest.raises(ConnectionBroken):
        driver.call("injectNMI", 0)
    assert guest.effects == ["injectNMI"]


def test_statistics_use_the_connection_of_the_call(hypervisor: Hypervisor, guest: Guest, driver: Driver) -> None:
    domain = driver.domain()
    for connect in hypervisor.connects:
        connect.alive = False
    ((found, _),) = driver.connection.connect_call("domainListGetStats", [domain], 0, 0)
    assert found.UUIDString() == UUID


def test_domain_of_a_broken_connection_stays_usable(hypervisor: Hypervisor, guest: Guest, driver: Driver) -> None:
    domain = driver.domain()
    for connect in hypervisor.connects:
        connect.alive = False
    driver.domains.start(domain, UUID, 5)
    assert driver.domains.state(UUID) == PowerState.RUNNING


def test_caller_waits_for_a_libvirtd_that_restarts(hypervisor: Hypervisor, guest: Guest, driver: Driver) -> None:
    hypervisor.breaks["createWithFlags"] = BEFORE
    domain = driver.domain()
    hypervisor.away = 0
    hypervisor.hooks["createWithFlags"] = lambda: setattr(hypervisor, "away", 3)
    driver.domains.start(domain, UUID, 5)
    assert driver.domains.state(UUID) == PowerState.RUNNING


def test_second_break_of_a_call_is_reported(hypervisor: Hypervisor, guest: Guest, driver: Driver) -> None:
    hypervisor.breaks["createWithFlags"] = BEFORE
    again = [BEFORE]

    def break_again() -> None:
        if "createWithFlags" not in hypervisor.breaks and again:
            hypervisor.breaks["createWithFlags"] = again.pop()

    hypervisor.hooks["createWithFlags"] = break_again
    with pytest.raises(exceptions.HypervisorUnavailable, match="Connection reset by peer"):
        driver.domains.start(driver.domain(), UUID, 5)


def test_start_in_progress_is_awaited(hypervisor: Hypervisor, guest: Guest, driver: Driver) -> None:
    """libvirtd still executes the first start after the break, and refuses the second one."""
    hypervisor.breaks["createWithFlags"] = BEFORE

    def refuse(flags: int) -> None:
        guest.state = (libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_RUNNING_BOOTED)
        raise failure(libvirt.VIR_ERR_OPERATION_TIMEOUT, message="cannot acquire state change lock")

    guest.createWithFlags = refuse  # type: ignore[method-assign]
    driver.domains.start(driver.domain(), UUID, 5)
    assert driver.domains.state(UUID) == PowerState.RUNNING


def test_migration_that_goes_on_without_its_caller_is_awaited(
    hypervisor: Hypervisor, guest: Guest, driver: Driver
) -> None:
    run(guest)
    guest.migrating = 3
    ended: list[int] = []
    hypervisor.breaks["migrateToURI3"] = BEFORE

    def progress() -> None:
        ended.append(guest.migrating)
        if guest.migrating == 1:
            guest.exists = False

    hypervisor.hooks["jobStats"] = progress
    driver.migrate()
    assert hypervisor.calls["migrateToURI3"] == 1
    assert hypervisor.calls["abortJob"] == 0
    assert 1 in ended


# --- calls that libvirt refuses while another call of the same guest is in progress


BUSY = failure(libvirt.VIR_ERR_OPERATION_TIMEOUT, message="cannot acquire state change lock")


def refuse(hypervisor: Hypervisor, name: str, *errors: Exception) -> None:
    """Let the next calls of this name fail."""
    left = list(errors or (BUSY,))

    def fail() -> None:
        if left:
            raise left.pop()

    hypervisor.hooks[name] = fail


def hold_migration(hypervisor: Hypervisor, until: Callable[[], bool]) -> None:
    def wait() -> None:
        wait_for("the test lets the migration end", until, 30)

    hypervisor.hooks["migrateToURI3"] = wait


@pytest.mark.parametrize("errors", [[BUSY], [broken_pipe()] * 2], ids=["busy", "broken"])
def test_migration_continues_after_a_missed_poll_of_its_job(
    hypervisor: Hypervisor, guest: Guest, driver: Driver, errors: list[Exception]
) -> None:
    run(guest)
    guest.migrating = 100
    reports: list[MigrationProgress] = []
    hold_migration(hypervisor, lambda: len(reports) > 1)
    refuse(hypervisor, "jobStats", *errors)

    def watch(progress: MigrationProgress) -> MigrationControl:
        reports.append(progress)
        return MigrationControl.CONTINUE

    driver.migrate(watch)
    assert not guest.exists
    assert hypervisor.calls["migrateToURI3"] == 1


def test_request_to_abort_a_migration_is_repeated_after_a_refusal(
    hypervisor: Hypervisor, guest: Guest, driver: Driver
) -> None:
    run(guest)
    guest.migrating = 100
    refuse(hypervisor, "abortJob")
    hold_migration(hypervisor, lambda: hypervisor.calls["abortJob"] > 1)
    driver.migrate(lambda progress: MigrationControl.ABORT)
    assert hypervisor.calls["abortJob"] == 2


def test_end_of_a_migration_is_awaited_while_libvirt_is_busy(
    hypervisor: Hypervisor, guest: Guest, driver: Driver
) -> None:
    run(guest)
    guest.migrating = 2
    refuse(hypervisor, "jobStats")
    assert not driver.migrator().settle()
    assert guest.migrating == 0


def test_job_is_awaited_while_libvirt_is_busy(hypervisor: Hypervisor, guest: Guest, driver: Driver) -> None:
    run(guest)
    guest.migrating = 2
    refuse(hypervisor, "jobStats")
    driver.domains.wait_for_job(driver.domain())
    assert guest.migrating == 0


def test_copy_of_a_disk_continues_after_a_missed_poll(hypervisor: Hypervisor, guest: Guest, driver: Driver) -> None:
    add_volume(guest)
    refuse(hypervisor, "blockJobInfo")
    before = len(guest.effects)
    driver.swap()
    assert guest.effects[before:] == SWAP


def test_copy_of_a_disk_is_ended_although_libvirt_is_busy(hypervisor: Hypervisor, guest: Guest, driver: Driver) -> None:
    mirror(guest)
    refuse(hypervisor, "blockJobAbort")
    driver.mirrors.abort(driver.domain(), "vdb")
    assert guest.disk("vdb").find("mirror") is None


@pytest.mark.parametrize(
    ("prepare", "act"),
    [
        (add_volume, lambda it: it.volumes.detach(UUID, VOLUME_ID, 5)),
        (add_interface, lambda it: it.interfaces.detach(it.domain(), VIF)),
    ],
    ids=["volume", "interface"],
)
def test_guest_is_requested_again_to_release_a_device_after_a_refusal(
    hypervisor: Hypervisor,
    guest: Guest,
    driver: Driver,
    prepare: Callable[[Guest], None],
    act: Callable[[Driver], Any],
) -> None:
    prepare(guest)
    refuse(hypervisor, "detachDeviceFlags")
    act(driver)
    assert guest.effects[-2:] == DETACH
    assert hypervisor.calls["detachDeviceFlags"] == 3


# --- limits of connections


def test_calls_of_a_connection_stay_below_the_limit_of_libvirtd(hypervisor: Hypervisor, driver: Driver) -> None:
    """20 slow calls: none is lost, queries pass, and no connection has five calls in progress."""
    guests = [hypervisor.guest(f"2b2e0a7a-55c5-4d5a-a9fd-{number:012d}") for number in range(20)]
    gate, entered = threading.Event(), threading.Semaphore(0)

    def wait() -> None:
        entered.release()
        gate.wait(30)

    hypervisor.hooks["createWithFlags"] = wait
    threads = [
        threading.Thread(target=driver.domains.start, args=(driver.domains.get(guest.uuid)[0], guest.uuid, 30))
        for guest in guests
    ]
    for thread in threads:
        thread.start()
    for _ in range(CALLS_PER_CONNECTION * connections.CHANGE_CONNECTIONS):
        assert entered.acquire(timeout=30)
    assert driver.domains.state(guests[0].uuid) == PowerState.SHUTDOWN, "queries do not wait for changes"
    assert hypervisor.most == CALLS_PER_CONNECTION
    gate.set()
    for thread in threads:
        thread.join(30)
    assert [guest.effects for guest in guests] == [["createWithFlags"]] * len(guests)
    assert hypervisor.most == CALLS_PER_CONNECTION


def test_limit_of_a_connection_is_below_the_default_of_libvirtd() -> None:
    assert CALLS_PER_CONNECTION < 5
    every = connections.QUERY_CONNECTIONS + connections.CHANGE_CONNECTIONS + connections.TRANSFER_CONNECTIONS
    assert CALLS_PER_CONNECTION * (every + 1) <= 20, "max_workers, with the inventory's connection"


def test_migrations_do_not_delay_changes(hypervisor: Hypervisor, guest: Guest, driver: Driver) -> None:
    other = hypervisor.guest("2b2e0a7a-55c5-4d5a-a9fd-000000000000")
    run(guest)
    gate, entered = threading.Event(), threading.Event()

    def wait() -> None:
        entered.set()
        gate.wait(30)

    hypervisor.hooks["migrateToURI3"] = wait
    thread = threading.Thread(target=driver.migrate)
    thread.start()
    assert entered.wait(30)
    driver.domains.start(driver.domains.get(other.uuid)[0], other.uuid, 5)
    gate.set()
    thread.join(30)
    assert not guest.exists


def test_events_and_inventory_have_a_connection_of_their_own(hypervisor: Hypervisor, conf: cfg.ConfigOpts) -> None:
    from nova_lite.virt.libvirt.driver import LibvirtDriver

    driver = LibvirtDriver(conf, HOST, lambda image, path: None)
    driver.guests.all()
    driver._reports.connect_call("getVersion")
    assert [connect.callbacks for connect in hypervisor.connects] == [0, 2]


def test_number_of_running_guests_does_not_wait_for_a_starting_guest(
    hypervisor: Hypervisor, guest: Guest, driver: Driver
) -> None:
    run(guest)
    running = inventory.RunningCount(driver.domains.all, LibvirtTiming(list_wait=0.05))
    while running.get() != 1:
        pass
    gate = threading.Event()
    hypervisor.hooks["listAllDomains"] = lambda: (gate.wait(30), None)[1]
    assert running.get() == 1
    before = hypervisor.calls["listAllDomains"]
    assert running.get() == 1
    assert hypervisor.calls["listAllDomains"] == before, "the list is not requested twice at a time"
    gate.set()


def test_unknown_number_of_running_guests_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> list[Any]:
        raise exceptions.HypervisorUnavailable(host=HOST, reason="it is gone")

    running = inventory.RunningCount(fail)
    assert running.get() == 0
    assert "number of running guests is unknown now" in caplog.text


def test_failure_that_is_no_break_is_not_repeated(hypervisor: Hypervisor, guest: Guest, driver: Driver) -> None:
    with pytest.raises(LibvirtFailure):
        driver.call("suspend")
    assert hypervisor.calls["suspend"] == 1


def test_other_callables_are_called_directly(driver: Driver) -> None:
    assert driver.connection.call(types.SimpleNamespace(f=lambda: 3).f) == 3


def test_connection_is_found_by_its_class(hypervisor: Hypervisor, driver: Driver) -> None:
    assert isinstance(driver.connection.get(), Connect)
    assert CONFIG_XML
