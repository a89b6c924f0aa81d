"""Guests that move between two libvirt hosts on this machine while they are off."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import libvirt
import msgspec
import pytest

from nova_lite.base import exceptions
from nova_lite.objects import DiskSource, Image
from nova_lite.operations.states import PowerState
from nova_lite.virt.abilities import SpawnSpec
from nova_lite.virt.libvirt.disks import transfer
from nova_lite.virt.libvirt.driver import LibvirtDriver
from tests.integration import scripts
from tests.integration.libvirt import hosts
from tests.integration.libvirt.conftest import IS_LONG, PATIENCE, Images, MakeHost, forms, guest_spec
from tests.integration.libvirt.moves import arriving, instance_path, lines, run_and_mark, state
from tests.support.guests import make_flavor
from tests.support.waiting import wait_for

#: Ends of a resize, with a form of the root disk. ``NOVA_LITE_LONG=1`` has all.
RESIZES = [("confirm", "raw"), ("revert", "qcow2"), *([("confirm", "qcow2"), ("revert", "raw")] if IS_LONG else [])]


def marking_guest(images: Images, **changes: Any) -> SpawnSpec:
    return guest_spec(images, [], config_drive=True, user_data=scripts.user_data(scripts.MARKS), **changes)


@forms("qcow2")
def test_guest_moves_with_its_disks_and_returns(make_host: MakeHost, images: Images) -> None:
    here, there = make_host("here", hosts.HERE), make_host("there", hosts.THERE)
    spec = marking_guest(images)
    here.guests.spawn(spec)
    run_and_mark(here, spec, "nothing")

    source = here.moves.offer_disks(spec.instance.uuid, 30)
    assert state(here, spec) == PowerState.SHUTDOWN
    bigger = arriving(spec, root_gb=2, ephemeral_gb=1, swap=16)
    there.moves.finish(bigger, source, power_on=True)
    run_and_mark(there, bigger, "marked-by-a-guest")
    assert lines(there, bigger, "on disk:")[-1].endswith(f"sectors {2 * 1024**3 // 512}")
    assert (state(here, spec), state(there, spec)) == (PowerState.SHUTDOWN, PowerState.RUNNING)
    assert there.guests.get(spec.instance.uuid).generation == 2
    there.moves.finish(bigger, source, power_on=True)

    there.guests.destroy(spec.instance.uuid)
    assert state(there, spec) is None
    assert not instance_path(there, spec).exists()
    here.power.on(spec.instance.uuid)
    wait_for("second boot", lambda: len(lines(here, spec, "mark written")) == 2, PATIENCE)
    assert lines(here, spec, "on disk:")[-1].startswith("on disk: marked-by-a-guest,")


@pytest.mark.parametrize(("word", "form"), RESIZES)
def test_guest_is_resized_on_its_host(make_host: MakeHost, images: Images, word: str) -> None:
    here = make_host("here", hosts.HERE)
    spec = marking_guest(images)
    uuid = spec.instance.uuid
    here.guests.spawn(spec)
    run_and_mark(here, spec, "nothing")
    definition = here._domains.get(uuid)[0].XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)

    source = here.moves.set_aside(uuid, 30)
    assert (state(here, spec), here.guests.leftovers()) == (None, {uuid})
    again = here.moves.set_aside(uuid, 30)
    assert (again.location, again.files[:-1]) == (source.location, source.files[:-1])
    bigger = arriving(spec, root_gb=2)
    here.moves.finish(bigger, again, power_on=True)
    run_and_mark(here, bigger, "marked-by-a-guest")
    assert lines(here, bigger, "on disk:")[-1].endswith(f"sectors {2 * 1024**3 // 512}")
    assert (here.guests.get(uuid).generation, here.guests.leftovers()) == (2, set())
    if word == "confirm":
        here.moves.discard(uuid)
        assert state(here, spec) == PowerState.RUNNING
        assert [path.name for path in instance_path(here, spec).parent.glob(f"{uuid}*")] == [uuid]
        return

    here.guests.destroy(uuid)
    assert (state(here, spec), here.guests.leftovers()) == (None, {uuid})
    for _ in range(2):
        here.moves.restore(uuid)
        assert (state(here, spec), here.guests.get(uuid).generation, here.guests.leftovers()) == (
            PowerState.SHUTDOWN,
            1,
            set(),
        )
    assert here._domains.get(uuid)[0].XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE) == definition
    here.power.on(uuid)
    wait_for("second boot", lambda: len(lines(here, spec, "mark written")) == 2, PATIENCE)
    assert lines(here, spec, "on disk:")[-1] == f"on disk: marked-by-a-guest, sectors {1024**3 // 512}"


def test_hosts_that_share_a_path_have_separate_directories(make_host: MakeHost, images: Images) -> None:
    here = make_host("here", hosts.HERE, path="shared")
    there = make_host("there", hosts.THERE, path="shared")
    spec = marking_guest(images)
    here.guests.spawn(spec)
    run_and_mark(here, spec, "nothing")
    source = here.moves.offer_disks(spec.instance.uuid, 30)
    there.moves.finish(arriving(spec), source, power_on=True)
    run_and_mark(there, spec, "marked-by-a-guest")
    here.guests.destroy(spec.instance.uuid)
    assert state(there, spec) == PowerState.RUNNING
    assert (here.guests.leftovers(), there.guests.leftovers()) == (set(), set())
    assert not instance_path(here, spec).exists()


@pytest.fixture
def over_ssh(make_host: MakeHost, directory: Path) -> Iterator[tuple[LibvirtDriver, LibvirtDriver, hosts.SshDaemon]]:
    """Two hosts. The second can fetch the first one's disks by SSH."""
    if shutil.which("sshd", path="/usr/sbin") is None or not os.path.exists("/usr/bin/rrsync"):
        pytest.skip("no sshd, or no rrsync, here")
    here = make_host("here", hosts.HERE)
    path = directory / f"ssh-{uuid.uuid4().hex[:8]}"
    with hosts.ssh_daemon(path, Path(here.conf.state_path, "instances")) as daemon:
        yield here, make_host("there", hosts.THERE, **daemon.options), daemon
    shutil.rmtree(path)


def distant(source: DiskSource, **changes: Any) -> DiskSource:
    """Return the source as another machine would see it: without the marker, over loopback."""
    files = [file for file in source.files if file.name != transfer.MARKER]
    return msgspec.structs.replace(source, host="127.0.0.1", **{"files": files, **changes})


@forms("raw")
def test_disks_travel_over_ssh(over_ssh: tuple[LibvirtDriver, LibvirtDriver, hosts.SshDaemon], images: Images) -> None:
    here, there, _ = over_ssh
    spec = marking_guest(images)
    here.guests.spawn(spec)
    run_and_mark(here, spec, "nothing")
    source = distant(here.moves.offer_disks(spec.instance.uuid, 30))
    there.moves.finish(arriving(spec), source, power_on=True)
    run_and_mark(there, spec, "marked-by-a-guest")


def test_file_that_differs_from_the_offer_is_rejected(
    over_ssh: tuple[LibvirtDriver, LibvirtDriver, hosts.SshDaemon], images: Images, blank: Image
) -> None:
    here, there, _ = over_ssh
    spec = guest_spec(images, [], blank)
    here.guests.spawn(spec)
    source = distant(here.moves.offer_disks(spec.instance.uuid, 0))
    root = source.files[0]
    other = str(uuid.uuid4())
    for wrong in (
        distant(source, files=[msgspec.structs.replace(root, checksum="0" * 64)]),
        distant(source, files=[msgspec.structs.replace(root, name="../../_base/locks")]),
        distant(source, files=[msgspec.structs.replace(root, size=2**62)]),
        distant(source, location=f"/etc/{other}"),
        distant(source, location="/etc/ssh"),
        distant(source, driver="fake"),
        msgspec.structs.replace(distant(source), host="-oProxyCommand=touch /tmp/x"),
    ):
        with pytest.raises(exceptions.VirtDriverError):
            there.moves.finish(arriving(spec), wrong, power_on=True)
        assert state(there, spec) is None
        assert there.guests.leftovers() == set()
    here.power.on(spec.instance.uuid)
    assert state(here, spec) == PowerState.RUNNING


def test_deleted_image_is_fetched_from_the_source(
    over_ssh: tuple[LibvirtDriver, LibvirtDriver, hosts.SshDaemon], images: Images, directory: Path
) -> None:
    here, there, _ = over_ssh
    file = directory / f"gone-{uuid.uuid4().hex}.img"
    file.write_bytes(b"contents of the image".ljust(1024**2, b"\0"))
    image = msgspec.structs.replace(images.disk, id=str(uuid.uuid4()), name=str(file), disk_format="raw")
    image = msgspec.structs.replace(image, size=1024**2, checksum=transfer.checksum(str(file)))
    spec = guest_spec(images, [], image)
    here.guests.spawn(spec)
    source = distant(here.moves.offer_disks(spec.instance.uuid, 0))
    file.unlink()
    there.moves.finish(arriving(spec), source, power_on=False)
    assert state(there, spec) == PowerState.SHUTDOWN
    disk = instance_path(there, spec) / "disk"
    info = subprocess.run(["qemu-img", "info", "--output=json", disk], capture_output=True, check=True).stdout
    assert "backing-filename" not in msgspec.json.decode(info)
    command = ["qemu-img", "compare", str(disk), str(instance_path(here, spec) / "disk")]
    assert subprocess.run(command, check=False).returncode == 0
    assert sorted(os.listdir(disk.parent)) == ["disk", "disk.config", "instance.json"]


def test_killed_fetch_is_a_leftover_and_is_resumed(
    over_ssh: tuple[LibvirtDriver, LibvirtDriver, hosts.SshDaemon], images: Images, blank: Image
) -> None:
    here, there, _ = over_ssh
    spec = guest_spec(images, [], blank)
    here.guests.spawn(spec)
    source = distant(here.moves.offer_disks(spec.instance.uuid, 0))
    moved = arriving(spec)
    path = Path(there._records.create(spec.instance.uuid, moved.generation))
    whole = (instance_path(here, spec) / "disk").read_bytes()
    (path / "disk").write_bytes(whole[: len(whole) // 2])
    inode = (path / "disk").stat().st_ino
    assert there.guests.leftovers() == {spec.instance.uuid}
    there.moves.finish(moved, source, power_on=True)
    assert (path / "disk").stat().st_ino == inode
    assert state(there, spec) == PowerState.RUNNING
    assert there.guests.leftovers() == set()


def test_flavor_disks_are_adapted(images: Images) -> None:
    assert arriving(guest_spec(images, []), root_gb=5).instance.flavor == make_flavor(root_gb=5)
