"""The fake hypervisor: the rules of drivers, configured delays and failures, and survival of its daemon."""

from __future__ import annotations

import json
import time
from operator import attrgetter
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from nova_lite.base import exceptions, files
from nova_lite.hardware import traits
from nova_lite.objects import BlockDevice, Image, ShareMapping, ShareState, VolumeKey
from nova_lite.objects.block_device import DeviceSource
from nova_lite.operations.states import PowerState
from nova_lite.virt import abilities, driver, fake, fake_hypervisor
from tests.support.compute_host import HOST, UUID, VIFS, make_conf, make_instance


def fetch_image(image: Image, target: str) -> None:
    if image.id == "absent":
        raise exceptions.ImageFileMissing(image_id=image.id, reason="gone")
    Path(target).write_text("bytes")


def make_driver(path: Path, host: str = HOST) -> fake.FakeDriver:
    made = fake.FakeDriver(make_conf(path), host, fetch_image)
    made.init_host()
    return made


@pytest.fixture
def fake_driver(tmp_path: Path) -> fake.FakeDriver:
    return make_driver(tmp_path)


def test_partial_file_of_a_kill_is_removed_at_the_start(tmp_path: Path) -> None:
    unfinished = Path(make_driver(tmp_path).hypervisor.path, "domains", f"{files.TEMPORARY}x")
    unfinished.write_bytes(b"{")
    make_driver(tmp_path)
    assert not unfinished.exists()


def spec(generation: int = 1, **values: Any) -> abilities.SpawnSpec:
    fields: dict[str, Any] = {
        "instance": make_instance(),
        "vifs": VIFS,
        "image": None,
        "images": {},
        "injected_files": {},
        "admin_password": "secret-of-the-guest",
        "fence": lambda: None,
    }
    return abilities.SpawnSpec(generation=generation, **{**fields, **values})


def control(made: fake.FakeDriver, **values: Any) -> None:
    fake_hypervisor.write_control(made.conf, made.host, **values)


def test_driver_is_loaded_by_its_name(tmp_path: Path) -> None:
    conf = make_conf(tmp_path)
    conf.set_override("compute_driver", "fake")
    loaded = driver.load_compute_driver(conf, HOST, fetch_image)
    assert isinstance(loaded, fake.FakeDriver)
    assert loaded.consoles


def test_unknown_driver_name_lists_the_known_ones(tmp_path: Path) -> None:
    conf = make_conf(tmp_path)
    conf.set_override("compute_driver", "fakke")
    with pytest.raises(exceptions.ConfigurationError, match=r"fakke.*fake, fake-rules, libvirt"):
        driver.load_compute_driver(conf, HOST, fetch_image)


def test_domain_is_spawned_rebooted_and_destroyed(fake_driver: fake.FakeDriver) -> None:
    with pytest.raises(exceptions.DomainNotFound):
        fake_driver.guests.get(UUID)
    fake_driver.networks.plug(make_instance(), VIFS)
    fake_driver.guests.spawn(spec(3))
    info = abilities.DomainInfo(uuid=UUID, generation=3, power_state=PowerState.RUNNING)
    assert fake_driver.guests.all() == [info] == [fake_driver.guests.get(UUID)]
    assert fake_driver.machine.inventory().running_vms == 1
    fake_driver.power.off(UUID, 5)
    fake_driver.power.off(UUID, 5)
    assert fake_driver.guests.get(UUID).power_state == PowerState.SHUTDOWN
    fake_driver.power.on(UUID)
    fake_driver.power.on(UUID)
    fake_driver.power.reboot(UUID, "SOFT", 5)
    fake_driver.power.off(UUID, 0)
    fake_driver.power.reboot(UUID, "HARD", 5)
    assert fake_driver.guests.get(UUID) == info
    boots = fake_driver.consoles.output(UUID, None)
    assert boots.count(f"nova-lite-guest: instance={UUID} hostname=one ip=10.0.0.5\n") == 4
    fake_driver.guests.destroy(UUID)
    assert fake_driver.guests.leftovers() == {UUID}
    fake_driver.networks.unplug(UUID)
    fake_driver.networks.unplug(UUID)
    fake_driver.guests.destroy(UUID)
    assert (fake_driver.guests.all(), fake_driver.guests.leftovers()) == ([], set())


@pytest.mark.parametrize("method", ["power.on", "guests.get"])
def test_methods_without_a_domain_fail(fake_driver: fake.FakeDriver, method: str) -> None:
    with pytest.raises(exceptions.DomainNotFound):
        attrgetter(method)(fake_driver)(UUID)
    with pytest.raises(exceptions.DomainNotFound):
        fake_driver.power.off(UUID, 0)
    with pytest.raises(exceptions.DomainNotFound):
        fake_driver.power.reboot(UUID, "HARD", 0)
    with pytest.raises(exceptions.DomainNotFound):
        fake_driver.consoles.output(UUID, None)


def test_domains_outlive_the_daemon_and_belong_to_one_host(tmp_path: Path) -> None:
    make_driver(tmp_path).guests.spawn(spec())
    assert [info.uuid for info in make_driver(tmp_path).guests.all()] == [UUID]
    assert make_driver(tmp_path, "host-b").guests.all() == []


def test_second_domain_of_an_instance_is_rejected(fake_driver: fake.FakeDriver) -> None:
    fake_driver.guests.spawn(spec(1))
    with pytest.raises(exceptions.VirtDriverError, match="exists already"):
        fake_driver.guests.spawn(spec(2))
    assert fake_driver.guests.get(UUID).generation == 1


def test_fence_is_called_right_before_the_domain_exists(fake_driver: fake.FakeDriver) -> None:
    seen: list[tuple[int, bool]] = []

    def fence() -> None:
        seen.append((len(fake_driver.guests.all()), UUID in fake_driver.guests.leftovers()))
        raise exceptions.Fenced(instance_uuid=UUID, generation=1)

    with pytest.raises(exceptions.Fenced):
        fake_driver.guests.spawn(spec(fence=fence))
    assert seen == [(0, True)]
    assert (fake_driver.guests.all(), fake_driver.guests.leftovers()) == ([], set())


@pytest.mark.parametrize(
    "images", [{"image": Image(id="absent", name="x")}, {"images": {"k": Image(id="absent", name="x")}}]
)
def test_missing_image_file_is_an_error(fake_driver: fake.FakeDriver, images: dict[str, Any]) -> None:
    with pytest.raises(exceptions.ImageFileMissing):
        fake_driver.guests.spawn(spec(**images))
    assert fake_driver.guests.leftovers() == set()


@pytest.mark.parametrize("step", ["image", "spawn_before_domain", "spawn_after_domain"])
def test_failed_spawn_leaves_nothing(fake_driver: fake.FakeDriver, step: str) -> None:
    control(fake_driver, fail_at=[step])
    with pytest.raises(exceptions.VirtDriverError, match=f"configured to fail at {step}"):
        fake_driver.guests.spawn(spec())
    assert (fake_driver.guests.all(), fake_driver.guests.leftovers()) == ([], set())


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("virt", exceptions.VirtDriverError),
        ("abort", exceptions.ImageGone),
        ("image", exceptions.ImageFileMissing),
        ("hypervisor", exceptions.HypervisorUnavailable),
        ("unexpected", RuntimeError),
    ],
)
def test_configured_failures_raise_their_errors(
    fake_driver: fake.FakeDriver, kind: str, error: type[Exception]
) -> None:
    control(fake_driver, fail_at=["inventory"], fail_error=kind)
    with pytest.raises(error):
        fake_driver.machine.inventory()


def test_failures_are_counted_per_control_file(fake_driver: fake.FakeDriver) -> None:
    for count in (2, 1):
        control(fake_driver, fail_at=["inventory", "list_domains"], fail_count=count)
        for _ in range(count):
            with pytest.raises(exceptions.VirtDriverError):
                fake_driver.guests.all()
        fake_driver.machine.inventory()
        fake_driver.guests.all()


def test_failures_can_be_set_in_the_configuration(tmp_path: Path) -> None:
    made = make_driver(tmp_path)
    for name, value in {"memory_mb": 7, "fail_at": ["destroy"], "spawn_delay": 0.05}.items():
        made.conf.set_override(name, value, group="fake")
    assert made.machine.inventory().memory_mb == 7
    started = time.monotonic()
    made.guests.spawn(spec())
    assert time.monotonic() - started >= 0.05
    with pytest.raises(exceptions.VirtDriverError):
        made.guests.destroy(UUID)
    control(made, memory_mb=9, fail_at=[])
    assert made.machine.inventory().memory_mb == 9
    made.guests.destroy(UUID)


def test_metrics_are_taken_from_the_control_file(fake_driver: fake.FakeDriver) -> None:
    assert "metrics" not in fake_driver.machine.inventory().capabilities
    control(fake_driver, metrics={"cpu.percent": 0.25})
    assert fake_driver.machine.inventory().capabilities["metrics"] == {"cpu.percent": 0.25}


def test_guests_may_request_any_hardware(fake_driver: fake.FakeDriver) -> None:
    assert set(traits.DERIVED) <= set(fake_driver.machine.inventory().capabilities["traits"])
    assert "COMPUTE_ARCH_AARCH64" not in fake_driver.machine.inventory().capabilities["traits"]
    fake_driver.conf.set_override("emulated_architectures", ["aarch64"], "libvirt")
    assert "COMPUTE_ARCH_AARCH64" in fake_driver.machine.inventory().capabilities["traits"]


def test_delays_apply_by_step(fake_driver: fake.FakeDriver) -> None:
    control(fake_driver, delays={"plug_vifs": 0.05})
    started = time.monotonic()
    fake_driver.networks.plug(make_instance(), VIFS)
    assert time.monotonic() - started >= 0.05


def test_console_keeps_the_last_lines(fake_driver: fake.FakeDriver) -> None:
    fake_driver.guests.spawn(spec())
    everything = fake_driver.consoles.output(UUID, None)
    assert fake_driver.consoles.output(UUID, 1) == everything.splitlines()[-1]
    assert fake_driver.consoles.output(UUID, 100) == everything.removesuffix("\n")


def test_secrets_do_not_reach_the_disk(fake_driver: fake.FakeDriver, tmp_path: Path) -> None:
    fake_driver.guests.spawn(spec())
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or b"secret-of-the-guest" not in path.read_bytes()
    assert (tmp_path / "instances" / f"fake-{HOST}" / "domains").stat().st_mode & 0o777 == 0o700


def test_numa_cells_follow_the_options(fake_driver: fake.FakeDriver) -> None:
    inventory = fake_driver.machine.inventory()
    assert [cell.dedicated_cpus for cell in inventory.numa] == ["", ""]
    fake_driver.conf.set_override("cpu_dedicated_set", "0-1", "compute")
    fake_driver.conf.set_override("cpu_shared_set", "2-3", "compute")
    given = fake_driver.machine.inventory()
    assert (given.vcpus, given.numa[0].dedicated_cpus, given.numa[0].shared_cpus) == (2, "0-1", "2-3")
    fake_driver.conf.set_override("cpu_shared_set", "999", "compute")
    with pytest.raises(exceptions.ConfigurationError, match="names CPUs 999"):
        fake_driver.init_host()


def test_machine_with_very_many_cpus_has_no_cells(fake_driver: fake.FakeDriver) -> None:
    fake_driver.conf.set_override("vcpus", 10_000, "fake")
    inventory = fake_driver.machine.inventory()
    assert (inventory.vcpus, inventory.numa) == (10_000, [])


def test_domain_file_has_the_expected_format(fake_driver: fake.FakeDriver, tmp_path: Path) -> None:
    fake_driver.guests.spawn(spec(4))
    text = (tmp_path / "instances" / f"fake-{HOST}" / "domains" / f"{UUID}.json").read_text()
    assert json.loads(text) | {"hostname": "one"} == {
        "uuid": UUID,
        "generation": 4,
        "generations": {},
        "power_state": 1,
        "halted": False,
        "hostname": "one",
        "project_id": "p",
        "address": "10.0.0.5",
        "vcpus": 1,
        "memory_mb": 512,
        "disk_gb": 1,
        "config_drive": False,
        "rescued": False,
        "volumes": {},
        "tpm": False,
        "encrypted_disk": False,
        "encrypted": [],
        "interfaces": ["port"],
        "host_cpus": [],
        "pci": [],
        "checkpoint": None,
        "volume_files": {},
        "cpu": None,
        "shared": [],
        "read_only": [],
        "shares": {},
    }


def test_rescued_domain_returns_to_its_disk_when_started(fake_driver: fake.FakeDriver, tmp_path: Path) -> None:
    fake_driver.guests.spawn(spec())
    disks = tmp_path / "instances" / f"fake-{HOST}" / "disks" / UUID
    for back in (
        lambda: fake_driver.rescue.end(UUID),
        lambda: fake_driver.power.reboot(UUID, "HARD", 0),
        lambda: (fake_driver.power.off(UUID, 0), fake_driver.power.on(UUID)),
    ):
        for _ in range(2):
            fake_driver.rescue.start(spec(), 0)
            assert "fake rescue system is booting" in fake_driver.consoles.output(UUID, 3)
            assert (disks / "disk.rescue").exists()
        back()
        assert "fake guest is booting" in fake_driver.consoles.output(UUID, 3)
        assert not (disks / "disk.rescue").exists()
        assert fake_driver.guests.get(UUID).power_state == PowerState.RUNNING


def test_passwords_and_crash_dumps_appear_on_the_console(fake_driver: fake.FakeDriver) -> None:
    fake_driver.guests.spawn(spec())
    fake_driver.passwords.set(UUID, "root", "s3cret")
    fake_driver.crash_dumps.trigger(UUID)
    console = fake_driver.consoles.output(UUID, 2)
    assert "for root" in console and "crash dump" in console and "s3cret" not in console
    fake_driver.power.off(UUID, 0)
    with pytest.raises(exceptions.VirtDriverError):
        fake_driver.crash_dumps.trigger(UUID)


def test_diagnostics_describe_the_domain(fake_driver: fake.FakeDriver) -> None:
    fake_driver.networks.plug(make_instance(), VIFS)
    fake_driver.guests.spawn(spec())
    found = fake_driver.diagnostics.read(UUID)
    assert (len(found.cpus), found.memory_maximum) == (1, 512)
    assert [nic.mac_address for nic in found.nics] == [vif.mac_address for vif in VIFS]
    fake_driver.networks.unplug(UUID)
    assert fake_driver.diagnostics.read(UUID).nics == []


def test_statistics_have_the_running_guests_with_their_projects(fake_driver: fake.FakeDriver) -> None:
    fake_driver.guests.spawn(spec())
    (found,) = fake_driver.statistics.guests()
    assert (found.uuid, found.project_id) == (UUID, make_instance().project_id)
    assert (found.memory_limit_bytes, found.cpu_seconds) == (512 << 20, 0.0)
    fake_driver.power.off(UUID, 0)
    assert fake_driver.statistics.guests() == []


@pytest.mark.parametrize(
    ("there", "back", "meanwhile"),
    [("pause", "unpause", PowerState.PAUSED), ("suspend", "resume", PowerState.SHUTDOWN)],
)
def test_domain_is_paused_and_resumed(
    fake_driver: fake.FakeDriver, there: str, back: str, meanwhile: PowerState
) -> None:
    fake_driver.guests.spawn(spec())
    getattr(fake_driver.standby, there)(UUID)
    assert fake_driver.guests.get(UUID).power_state == meanwhile
    getattr(fake_driver.standby, back)(UUID)
    assert fake_driver.guests.get(UUID).power_state == PowerState.RUNNING
    control(fake_driver, fail_at=[there])
    with pytest.raises(exceptions.VirtDriverError):
        getattr(fake_driver.standby, there)(UUID)
    with pytest.raises(exceptions.DomainNotFound):
        getattr(fake_driver.standby, there)("none")


def test_guest_with_a_tpm_starts_with_its_key_alone(fake_driver: fake.FakeDriver) -> None:
    given = spec()
    specs = {"hw:tpm_version": "2.0"}
    flavor = msgspec.structs.replace(given.instance.flavor, extra_specs=specs)
    given = msgspec.structs.replace(given, instance=msgspec.structs.replace(given.instance, flavor=flavor))
    with pytest.raises(exceptions.TPMKeyUnavailable, match="this host has no conductor"):
        fake_driver.guests.spawn(given)
    asked: list[str] = []

    def key(instance_uuid: str) -> VolumeKey:
        asked.append(instance_uuid)
        return VolumeKey(passphrase="secret")

    fake_driver.tpm_key = key
    fake_driver.guests.spawn(given)
    fake_driver.power.reboot(UUID, "HARD", 0)
    assert asked == [UUID, UUID]


def test_guest_with_encrypted_disks_starts_with_their_key_alone(fake_driver: fake.FakeDriver) -> None:
    given = spec()
    flavor = msgspec.structs.replace(given.instance.flavor, extra_specs={"hw:ephemeral_encryption": "yes"})
    given = msgspec.structs.replace(given, instance=msgspec.structs.replace(given.instance, flavor=flavor))
    with pytest.raises(exceptions.DiskKeyUnavailable, match="this host has no conductor"):
        fake_driver.guests.spawn(given)
    asked: list[str] = []

    def key(instance_uuid: str, role: str) -> VolumeKey:
        asked.append(role)
        return VolumeKey(passphrase="secret")

    fake_driver.disk_key = key
    fake_driver.guests.spawn(given)
    assert asked == ["root"]


def test_volume_has_two_domains_only_if_both_share_it(tmp_path: Path) -> None:
    made, other, volume_id = make_driver(tmp_path), make_driver(tmp_path, "another"), "v"

    def attach(driver: fake.FakeDriver, uuid: str, **more: Any) -> None:
        device = BlockDevice(
            uuid="d", source_type=DeviceSource.VOLUME, destination_type="volume", volume_id=volume_id, **more
        )
        driver.volumes.attach(uuid, device, "/v")

    made.guests.spawn(spec())
    second = msgspec.structs.replace(make_instance(), uuid=str(uuid4()))
    other.guests.spawn(spec(instance=second))
    attach(made, UUID)
    with pytest.raises(RuntimeError, match="is attached to"):
        attach(other, second.uuid, multiattach=True)
    made.volumes.detach(UUID, volume_id, 0)
    attach(made, UUID, multiattach=True)
    with pytest.raises(RuntimeError, match="is attached to"):
        attach(other, second.uuid)
    attach(other, second.uuid, multiattach=True, read_only=True)
    assert other.hypervisor.read(second.uuid).read_only == [volume_id]


def test_guest_has_a_share_until_it_is_detached(fake_driver: fake.FakeDriver) -> None:
    def mapping(tag: str, state: ShareState) -> ShareMapping:
        return ShareMapping(uuid=UUID, share_id=UUID, tag=tag, location=f"directory/{tag}", state=state)

    has, has_not = mapping("has", ShareState.ATTACHED), mapping("has-not", ShareState.ERROR)
    fake_driver.guests.spawn(spec(instance=msgspec.structs.replace(make_instance(), shares=[has, has_not])))
    assert fake_driver.hypervisor.read(UUID).shares == {"has": "directory/has"}
    for _ in range(2):
        fake_driver.shares.attach(UUID, mapping("more", ShareState.ATTACHING))
    fake_driver.shares.detach(UUID, has)
    fake_driver.shares.detach(UUID, has)
    assert fake_driver.hypervisor.read(UUID).shares == {"more": "directory/more"}


def test_guest_returns_to_a_snapshot_point_and_continues_with_its_memory(fake_driver: fake.FakeDriver) -> None:
    fake_driver.guests.spawn(spec())
    disk = Path(fake_driver.hypervisor.disks(UUID), "disk")
    whole = disk.read_text()
    for _ in range(2):
        fake_driver.points.create(UUID, "point", True)
    for memory, power_state in ((False, PowerState.SHUTDOWN), (True, PowerState.RUNNING)):
        disk.write_text("later")
        fake_driver.points.revert(UUID, "point", memory)
        assert (disk.read_text(), fake_driver.guests.get(UUID).power_state) == (whole, power_state)
    for _ in range(2):
        fake_driver.points.delete(UUID, "point")
    assert [path.name for path in disk.parent.glob("point-*")] == []
