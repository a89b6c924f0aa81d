"""A lost host's guests run again at a host that shares its directory of disks, with their disks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nova_lite.base import exceptions
from nova_lite.base.timing import LibvirtTiming
from nova_lite.compute.guard import QemuGuests
from nova_lite.operations.states import PowerState
from tests.integration import scripts
from tests.integration.libvirt import hosts
from tests.integration.libvirt.conftest import PATIENCE, Images, MakeHost, forms, guest_spec
from tests.integration.libvirt.moves import evacuated, lines, run_and_mark, state
from tests.support.waiting import wait_for


@forms("qcow2")
def test_guest_of_a_lost_host_runs_with_its_disks_and_the_lost_host_removes_none(
    make_host: MakeHost, images: Images
) -> None:
    here = make_host("here", hosts.HERE, path="shared")
    there = make_host("there", hosts.THERE, path="shared", timing=LibvirtTiming(disk_lock_wait=0.0))
    script = scripts.user_data(scripts.MARKS.replace("notrunc,sync", "notrunc,sync,fsync"))
    spec = guest_spec(images, [], config_drive=True, user_data=script)
    uuid = spec.instance.uuid
    here.guests.spawn(spec)
    run_and_mark(here, spec, "nothing")
    moved = evacuated(spec, here)
    assert there.shared_disks.view().live == [here.host]

    # The guest still runs, whatever the conductor believes: qemu's lock prevents a second one.
    with pytest.raises(exceptions.DiskInUse):
        there.guests.spawn(moved)
    assert (state(here, spec), state(there, spec)) == (PowerState.RUNNING, None)
    assert here.guests.leftovers() == there.guests.leftovers() == set()

    QemuGuests().kill([uuid])
    wait_for("end of the guest", lambda: state(here, spec) != PowerState.RUNNING, PATIENCE)
    there.guests.spawn(moved)
    wait_for("second boot", lambda: len(lines(there, moved, "mark written")) == 2, PATIENCE)
    assert lines(there, moved, "on disk:")[-1].startswith("on disk: marked-by-a-guest,")
    assert there.shared_disks.taken() == {uuid}
    there.shared_disks.own(uuid)

    here.shared_disks.keep(uuid)
    here.guests.destroy(uuid)
    here.moves.discard(uuid)
    assert (state(here, spec), state(there, moved)) == (None, PowerState.RUNNING)
    directories = [path.name for path in Path(there.conf.state_path, "instances").glob(f"{uuid}*")]
    assert directories == [f"{uuid}@{there.host}"]
    assert not os.path.exists(here._records.directory(uuid))

    there.guests.destroy(uuid)
    assert there.guests.leftovers() == set()
