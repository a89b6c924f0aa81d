"""A real compute host whose lease has ended while a job runs, and a real conductor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nova_lite.base import exceptions
from nova_lite.db.hosts import leases
from tests.support.compute_host import LATER, UUID, Gate
from tests.support.control_plane_machine import TIMING, Life, Link
from tests.support.fencing_world import ALWAYS, HOST, Fencing


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Fencing]:
    made = Fencing(tmp_path)
    yield made
    made.db.close()


def test_host_registers_when_its_jobs_have_ended_and_its_protected_guests_leave_before(
    world: Fencing, tmp_path: Path
) -> None:
    """The job is an upload of an unprotected guest, for example."""
    life = Life(tmp_path / HOST, Link(world), HOST, TIMING)  # type: ignore[arg-type]
    uuid, host, _ = world.built(metadata=ALWAYS)
    assert host == HOST
    world.renew(uuid, boot_id=life.manager.heartbeat.boot_id, identity=life.manager.host.fencing.identity())
    gate = Gate()
    life.manager.jobs.start_action(life.context, UUID, LATER, gate)
    gate.wait()
    world.lapse()
    with pytest.raises(exceptions.ServiceUnavailable, match="have not ended"):
        life.manager.connect()
    assert world.lease().fenced == leases.LEASE
    world.evacuator.sweep()
    assert world.rebuilt(uuid) == "host2"
    gate.open()
    life.settle()
    life.manager.connect()
    assert world.lease().fenced == ""
