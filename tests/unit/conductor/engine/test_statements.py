"""Limits for the number of the conductor's statements, so that an accidental increase is found without timing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from oslo_config import cfg

from nova_lite import objects, rpc
from nova_lite.conductor.manager import ConductorManager
from nova_lite.db.core import quotas
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.image import images
from nova_lite.db.network import builtin_networks
from nova_lite.objects import (
    ActionReport,
    BatchedDelete,
    ImageQuery,
    InstanceFilters,
)
from nova_lite.rpcapi.conductor import ConductorRPC
from tests.support import make
from tests.support.counted_cloud import Cloud, accept, create, finish, report, serve
from tests.support.statements import counting

ME = make.context()

#: Statements of one create: 10 to accept it, 2 to lease its action, 11 to claim a host and addresses, 3 for the report.
BOOT = 26
#: Statements of its delete: 5 to accept it, 8 for the report.
DELETE = 13
#: Statements of leases and claims in one batch: once, and for each claim.
TOGETHER = 10
OF_EACH = 3
#: Statements of build reports in one batch, however many: all rows are locked, then written.
SETTLED = 3
#: Statements of an idle sweep: the time, and whether anything is due.
SWEEP = 2
#: Statements of publishing the changes of hosts.
ANNOUNCEMENT = 1


@pytest.fixture
def cloud(db: Database, conf: cfg.ConfigOpts, bus: rpc.InProcess, manager: ConductorManager) -> Cloud:
    return serve(db, conf, bus, manager)


def test_server_is_read_with_its_parts_by_two_statements(db: Database, conductor: ConductorRPC, cloud: Cloud) -> None:
    image = db.write(images.create, make.image())
    (uuid,) = create(conductor, image)
    finish(conductor, cloud.builds.pop())
    with counting() as read:
        instance = conductor.instance_get(ME, uuid)
    assert (instance.host, instance.host_status, len(instance.vifs)) == ("h1", "UP", 1)
    assert len(read.statements) == 2, read.statements


def test_concurrent_reads_of_servers_need_the_statements_of_one(db: Database, conductor: ConductorRPC) -> None:
    db.write(fill, 5)
    uuids = [item.uuid for item in conductor.instance_list(ME, InstanceFilters(project_id="p1"), 5, None, [], [])]
    mine = [objects.InstanceQuery(uuid=uuid, project_id="p1") for uuid in [*uuids[:4], uuids[0], "no-such"]]
    foreign = objects.InstanceQuery(uuid=uuids[4], project_id="p2")
    with counting() as read:
        found = conductor.instances_get(ME, [*mine, foreign])
    assert sorted(item.uuid for item in found) == sorted(uuids[:4])
    assert len(read.statements) == 2, read.statements


def test_list_needs_the_statements_of_one_server(db: Database, conductor: ConductorRPC, cloud: Cloud) -> None:
    db.write(fill, 50)
    arguments = (ME, InstanceFilters(project_id="p1"), 50)
    with counting() as read:
        first = conductor.instance_list(*arguments, None, ["created_at"], ["desc"])
    assert len(first) == 50
    assert len(read.statements) == 2, read.statements
    with counting() as read:
        conductor.instance_list(*arguments, first[10].uuid, ["created_at"], ["desc"])
    assert len(read.statements) == 3, read.statements


def fill(uow: UnitOfWork, count: int) -> None:
    for number in range(count):
        make.instance(uow, host="h1", tag_names=["a", "b"][: number % 3])


@pytest.mark.parametrize(
    "read",
    [
        lambda conductor: conductor.flavor_get(ME, "1"),
        lambda conductor: conductor.flavor_list(ME, True, None, None, 50, None, "flavorid", "asc"),
        lambda conductor: conductor.keypair_list(ME, "u1", 50, None),
        lambda conductor: conductor.service_list(ME, None, None),
        lambda conductor: conductor.image_list(ME, ImageQuery(limit=50)),
    ],
)
def test_other_resources_are_read_by_one_statement(
    conductor: ConductorRPC, cloud: Cloud, read: Callable[[ConductorRPC], object]
) -> None:
    with counting() as counted:
        read(conductor)
    assert len(counted.statements) == 1, counted.statements


def test_networks_and_who_shares_them_are_two_statements(conductor: ConductorRPC, cloud: Cloud) -> None:
    with counting() as counted:
        conductor.network_list(ME)
    assert len(counted.statements) == 2, counted.statements


def test_statements_of_a_boot_and_a_delete(
    db: Database, manager: ConductorManager, conductor: ConductorRPC, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = db.write(images.create, make.image())
    create(conductor, image)  # the first server of a project inserts its quota rows
    finish(conductor, cloud.builds.pop())
    announce = manager.host_publisher.publish
    monkeypatch.setattr(manager.host_publisher, "publish", lambda: None)
    with counting() as boot:
        (uuid,) = create(conductor, image)
        finish(conductor, cloud.builds.pop())
    assert conductor.instance_get(ME, uuid).vm_state == "active"
    with counting() as delete:
        command = conductor.accept_action(make.context(), uuid, "delete", {})
        conductor.finish_action(
            make.ADMIN, ActionReport(host="h1", action_id=command.action_id, power_state=0, sequence=command.sequence)
        )
    assert [item.uuid for item in conductor.instance_list(ME, InstanceFilters(deleted=True), 9, None, [], [])] == [uuid]
    assert (boot.transactions, len(boot.statements)) == (4, BOOT), boot.statements
    assert (delete.transactions, len(delete.statements)) == (2, DELETE), delete.statements
    with counting() as announced:
        announce()
    assert len(announced.statements) == ANNOUNCEMENT, announced.statements


def test_boots_of_one_message_are_placed_by_two_transactions(
    db: Database, manager: ConductorManager, conductor: ConductorRPC, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each boot has its own statements. The number of transactions, each synced to disk, does not grow."""
    image = db.write(images.create, make.image())
    accepted = [accept(conductor, image) for _ in range(4)]
    monkeypatch.setattr(manager.host_publisher, "publish", lambda: None)
    with counting() as placed:
        conductor.build_instances(accepted[0][0], [uuid for _, uuids in accepted for uuid in uuids])
    assert placed.transactions == 2
    assert len(cloud.builds) == 4


def test_claims_of_many_requests_share_reads_and_locks(
    db: Database, manager: ConductorManager, conductor: ConductorRPC, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request has statements of its own only for its claim and its address."""
    image = db.write(images.create, make.image())
    wide = {"cidr": "10.1.0.0/16", "gateway": "10.1.0.1", "start": "10.1.0.2", "end": "10.1.255.254"}
    db.write(builtin_networks.create, make.network(name="wide", is_default=True, **wide))
    accepted = [accept(conductor, image) for _ in range(8)]
    monkeypatch.setattr(manager.host_publisher, "publish", lambda: None)
    with counting() as placed:
        conductor.build_instances(accepted[0][0], [uuid for _, uuids in accepted for uuid in uuids])
    assert [(build.connected, len(build.instance.vifs)) for build in cloud.builds] == [("0/", 1)] * 8
    assert len({build.instance.vifs[0].address for build in cloud.builds}) == 8
    assert (placed.transactions, len(placed.statements)) == (2, TOGETHER + 8 * OF_EACH), placed.statements
    results = [report(build) for build in cloud.builds]
    with counting() as settled:
        assert conductor.finish_builds(make.ADMIN, "h1", results) == [True] * 8
    assert (settled.transactions, len(settled.statements)) == (1, SETTLED), settled.statements


def test_idle_sweep_needs_two_statements(manager: ConductorManager, cloud: Cloud) -> None:
    with counting() as swept:
        assert manager.reconciler.sweep() == 0
    assert len(swept.statements) == SWEEP, swept


#: Statements of reports of deletes in one batch, however many: actions are found and locked, quota, ports and
#: allocations are released, the node is changed, instances and actions are written, and their project's version.
GONE = 9


def test_reports_of_deletes_need_the_statements_of_one_batch_however_many(
    db: Database, manager: ConductorManager, conductor: ConductorRPC, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = db.write(images.create, make.image())
    counts = []
    monkeypatch.setattr(manager.host_publisher, "publish", lambda: None)
    for number in (2, 5):
        uuids = [uuid for _ in range(number) for uuid in create(conductor, image)]
        while cloud.builds:
            finish(conductor, cloud.builds.pop())
        commands = [conductor.accept_action(make.context(), uuid, "delete", {}) for uuid in uuids]
        reports = [
            ActionReport(host="h1", action_id=item.action_id, power_state=0, sequence=item.sequence)
            for item in commands
        ]
        with counting() as gone:
            conductor.finish_actions(make.ADMIN, "h1", reports)
        counts.append((gone.transactions, len(gone.statements)))
        shown = conductor.instance_list(ME, InstanceFilters(deleted=True, uuids=uuids), 9, None, [], [])
        assert {item.vm_state for item in shown} == {"deleted"}
    assert counts == [(1, GONE)] * 2
    limits = db.read(quotas.get, manager.conf, "p1")
    assert {limits.quotas[name].used for name in ("instances", "cores", "ram")} == {0}
    (node,) = conductor.compute_node_list(make.ADMIN, None, None, None)
    assert (node.vcpus_used, node.memory_mb_used, node.disk_gb_used) == (0, 0, 0)


#: Statements that accept deletes in one batch: instances are locked, their actions and places are read, and instances
#: are written. Actions are inserted by one more, on SQLite by one each.
ACCEPTED_DELETES = 4


def test_deletes_of_a_batch_are_accepted_by_one_transaction_with_shared_statements(
    db: Database, conductor: ConductorRPC, cloud: Cloud
) -> None:
    image = db.write(images.create, make.image())
    counts = []
    for number in (2, 5):
        uuids = [uuid for _ in range(number) for uuid in create(conductor, image)]
        while cloud.builds:
            finish(conductor, cloud.builds.pop())
        deletes = [BatchedDelete(context=make.context().to_rpc(), instance_uuid=uuid) for uuid in uuids]
        with counting() as accepted:
            commands = conductor.delete_instances_batch(make.context(), deletes)
        others = [statement for statement in accepted.statements if not statement.startswith("INSERT")]
        counts.append((accepted.transactions, len(others)))
        assert [command and command.instance.uuid for command in commands] == uuids
        for command in filter(None, commands):
            conductor.finish_action(
                make.ADMIN,
                ActionReport(host="h1", action_id=command.action_id, power_state=0, sequence=command.sequence),
            )
    assert counts == [(1, ACCEPTED_DELETES)] * 2, accepted.statements
