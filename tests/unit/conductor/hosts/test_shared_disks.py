"""Servers of a lost host whose directory of disks other hosts share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from nova_lite import objects
from nova_lite.base import exceptions
from nova_lite.db.core import models
from nova_lite.db.hosts import evacuations, host_storage, hosts, leases
from nova_lite.db.image import images
from nova_lite.objects import (
    BuildOutcome,
    DiskPlace,
    DomainReport,
    DomainVerdict,
    LeftDisks,
    StorageReport,
    StorageView,
    Verdict,
)
from tests.support.conductor_world import BUILT, heartbeat
from tests.support.fencing_world import PAST, Fencing
from tests.support.server_moves import evacuate, force_down
from tests.support.server_rebuilds import begin, rebuild

KEEPS = {"ha:restart": "always"}
ONE, TWO, THREE = "host1", "host2", "host3"


@pytest.fixture
def world(tmp_path: Path) -> Fencing:
    made = Fencing(tmp_path)
    made.db.write(hosts.register_host, made.conf, heartbeat(THREE))
    made.scheduler.hosts = [ONE, TWO, THREE]
    return made


def see(world: Fencing, host: str, seen: dict[str, list[str]], live: list[str] | None = None, mark: str = "") -> None:
    view = StorageView(
        marks=[mark or f"mark-{host}", f"old-{host}"], seen=seen, live=list(seen if live is None else live)
    )
    world.db.write(hosts.report_storage, StorageReport(host=host, epoch=0, identity="", view=view))


def share(world: Fencing, *names: str) -> None:
    """Let these hosts see each other."""
    for _ in range(2):
        for host in names:
            see(world, host, {other: [f"mark-{other}"] for other in names if other != host})


def sharing(world: Fencing, host: str = ONE) -> list[str]:
    return world.db.read(host_storage.sharing, host)


def verdict(world: Fencing, uuid: str, generation: int) -> DomainVerdict:
    domain = DomainReport(uuid=uuid, generation=generation, power_state=4)
    return world.reports.reconcile_domains(world.context(), ONE, [domain], [])[0]


def leftovers(world: Fencing, uuid: str) -> list[DomainVerdict]:
    return world.reports.reconcile_domains(world.context(), ONE, [], [uuid])


def next_build(world: Fencing, uuid: str) -> tuple[str, Any]:
    world.lifecycle.build_instances(world.context(), [uuid])
    host, request = world.compute.builds[-1]
    world.reports.start_build(world.context(), uuid, host, request.generation)
    return host, request


# --- who shares with whom


def test_hosts_that_see_each_other_share_their_disks(world: Fencing) -> None:
    share(world, ONE, TWO)
    assert (sharing(world), sharing(world, TWO), sharing(world, THREE)) == ([TWO], [ONE], [])


@pytest.mark.parametrize("why", ["one side", "old marks", "no daemon", "old marks later", "itself"])
def test_hosts_that_do_not_see_each_other_share_nothing(world: Fencing, why: str) -> None:
    if why == "one side":
        see(world, ONE, {})
        see(world, TWO, {ONE: [f"mark-{ONE}"]})
        see(world, ONE, {})
    elif why == "itself":
        for _ in range(2):
            see(world, ONE, {ONE: [f"mark-{ONE}"]})
    elif why == "old marks later":
        share(world, ONE, TWO)
        see(world, TWO, {ONE: ["copied"]})
    else:
        mark = "copied" if why == "old marks" else f"mark-{TWO}"
        for _ in range(2):
            see(world, TWO, {ONE: [f"mark-{ONE}"]})
            see(world, ONE, {TWO: [mark]}, live=[] if why == "no daemon" else None)
    assert sharing(world) == []


def test_mark_that_was_replaced_since_counts_once(world: Fencing) -> None:
    share(world, ONE, TWO)
    see(world, TWO, {ONE: [f"old-{ONE}"]})
    see(world, ONE, {TWO: [f"old-{TWO}"]})
    assert sharing(world) == [TWO]


def test_registration_forgets_what_an_earlier_daemon_saw_but_not_its_marks(world: Fencing) -> None:
    share(world, ONE, TWO)
    world.come_back()
    assert sharing(world) == []
    row = world.db.read(lambda uow: uow.session.get(models.HostStorage, ONE))
    assert row is not None
    assert row.marks[0] == f"mark-{ONE}"


def test_report_of_an_ended_registration_is_refused(world: Fencing) -> None:
    force_down(world, ONE)
    with pytest.raises(exceptions.HostNotAdmitted):
        see(world, ONE, {})


# --- evacuation


def test_protected_server_gets_its_disks_at_a_host_that_shares_them(world: Fencing) -> None:
    uuid, host, generation = world.built(metadata=KEEPS)
    assert host == ONE
    world.renew()
    world.renew(uuid)
    share(world, ONE, THREE)
    world.lapse()
    world.evacuator.sweep()
    target, request = next_build(world, uuid)
    assert world.scheduler.specs[-1].ignore_hosts == [ONE, TWO]
    place = DiskPlace(host=ONE, generation=generation, marks=[f"mark-{ONE}", f"old-{ONE}"])
    assert (target, request.disks) == (THREE, LeftDisks(places=[place], required=True))
    world.report(uuid, target, request.generation, BUILT)
    assert (world.instance(uuid).host, world.instance(uuid).vm_state) == (THREE, "active")
    found = verdict(world, uuid, generation)
    assert (found.verdict, found.keeps_disks) == (Verdict.DESTROY, False)


def test_protected_server_without_a_host_that_shares_its_disks_waits(world: Fencing) -> None:
    uuid, _, _ = world.built(metadata=KEEPS)
    world.renew()
    world.renew(uuid)
    see(world, TWO, {ONE: [f"mark-{ONE}"]})
    world.lapse()
    world.evacuator.sweep()
    (row,) = world.db.read(evacuations.of_host, ONE)
    assert (row.due_at, row.attempts) == (evacuations.NEVER, 0)
    assert world.instance(uuid).host == ONE


def test_returning_host_keeps_disks_until_the_server_runs(world: Fencing) -> None:
    uuid, _, generation = world.built()
    share(world, ONE, TWO)
    force_down(world, ONE)
    evacuate(world, uuid)
    assert verdict(world, uuid, generation) == DomainVerdict(
        uuid=uuid, generation=generation, verdict=Verdict.DESTROY, keeps_disks=True
    )
    assert leftovers(world, uuid) == []
    target, request = next_build(world, uuid)
    assert leftovers(world, uuid) == []
    world.report(uuid, target, request.generation, BUILT)
    assert [found.verdict for found in leftovers(world, uuid)] == [Verdict.DESTROY]


def test_failed_evacuation_leaves_the_disks_for_the_next_one(world: Fencing) -> None:
    uuid, _, generation = world.built()
    share(world, ONE, TWO)
    force_down(world, ONE)
    evacuate(world, uuid)
    target, request = next_build(world, uuid)
    world.report(uuid, target, request.generation, BuildOutcome.ABORTED)
    assert world.instance(uuid).vm_state == "error"
    assert leftovers(world, uuid) == []
    assert verdict(world, uuid, generation).keeps_disks
    evacuate(world, uuid)
    _, again = next_build(world, uuid)
    assert [place.host for place in again.disks.places] == [ONE]
    assert again.disks.required


def test_disks_that_were_shared_are_waited_for_after_the_lost_host_has_returned(world: Fencing) -> None:
    uuid, _, _ = world.built()
    share(world, ONE, TWO)
    force_down(world, ONE)
    evacuate(world, uuid)
    target, request = next_build(world, uuid)
    world.report(uuid, target, request.generation, BuildOutcome.ABORTED)
    force_down(world, ONE, False)
    world.come_back()
    evacuate(world, uuid)
    host, again = next_build(world, uuid)
    assert (host, again.disks.required) == (ONE, True)


def test_second_lost_host_is_another_place_of_the_disks(world: Fencing) -> None:
    uuid, _, generation = world.built()
    share(world, ONE, TWO, THREE)
    force_down(world, ONE)
    evacuate(world, uuid)
    target, request = next_build(world, uuid)
    force_down(world, target)
    evacuate(world, uuid)
    last, again = next_build(world, uuid)
    assert last not in (ONE, target)
    places = [(place.host, place.generation) for place in again.disks.places]
    assert places == [(target, request.generation), (ONE, generation)]


@pytest.mark.parametrize(("target", "required"), [(TWO, True), (THREE, False)])
def test_target_that_an_operator_names_needs_the_disks_if_it_shares_them(
    world: Fencing, target: str, required: bool
) -> None:
    uuid, _, _ = world.built()
    share(world, ONE, TWO)
    force_down(world, ONE)
    evacuate(world, uuid, host=target)
    world.scheduler.hosts = [target]
    host, request = next_build(world, uuid)
    assert (host, request.disks.required) == (target, required)


def test_server_whose_policy_accepts_new_disks_gets_them_at_the_second_attempt(world: Fencing) -> None:
    uuid = world.protected()
    share(world, ONE, TWO)
    world.lapse()
    world.evacuator.sweep()
    target, request = next_build(world, uuid)
    assert (target, request.disks.required) == (TWO, True)
    world.report(uuid, target, request.generation, BuildOutcome.ABORTED)
    world.db.write(lambda uow: uow.change(sa.update(models.Restart).values(due_at=PAST)))
    world.evacuator.sweep()
    _, request = next_build(world, uuid)
    assert not request.disks.required
    assert world.scheduler.specs[-1].ignore_hosts == []


def test_server_that_was_being_rebuilt_gets_a_new_disk(world: Fencing) -> None:
    world.db.write(images.create, objects.Image(id="old", name="old"))
    uuid, _, _ = world.built(image_ref="old")
    share(world, ONE, TWO)
    begin(world, rebuild(world, uuid))
    force_down(world, ONE)
    evacuate(world, uuid)
    _, request = next_build(world, uuid)
    assert request.disks is None


def test_guest_of_a_host_that_shares_its_disks_is_off_before_it_moves(world: Fencing) -> None:
    """Shared disks are no reason to move a server of a host that promises nothing."""
    uuid, _, _ = world.built(metadata=KEEPS)
    share(world, ONE, TWO)
    world.silence(ONE)
    world.fencer.sweep()
    world.evacuator.sweep()
    assert world.instance(uuid).host == ONE
    assert not world.db.read(leases.fenced_hosts)
