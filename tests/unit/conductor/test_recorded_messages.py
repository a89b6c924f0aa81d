"""Messages that their handlers record in the transactions of their changes."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from oslo_config import cfg
from sqlalchemy import exc

from nova_lite import objects, rpc
from nova_lite.base import exceptions
from nova_lite.base.context import ReceivedMessage
from nova_lite.conductor.database import WRITES
from nova_lite.conductor.engine.accept import DeleteRequest
from nova_lite.conductor.manager import ConductorManager
from nova_lite.db.core import models, replay_cache
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.image import images
from nova_lite.objects import ActionReport, BatchedCreate, BatchedDelete, CreateRequest, GuestDevices
from nova_lite.rpcapi.conductor import ConductorRPC
from tests.support import make
from tests.support.counted_cloud import Cloud, finish, serve
from tests.support.counted_cloud import create as create_server
from tests.support.statements import counting
from tests.support.verified_messages import VerifiedMessages

ME = make.context()

#: Statements of a boot and a delete without signatures (`test_statements.py`), and the ids of their messages.
BOOT, DELETE = 26 + 1, 13 + 2


@pytest.fixture
def cloud(db: Database, conf: cfg.ConfigOpts, bus: rpc.InProcess, manager: ConductorManager) -> Cloud:
    return serve(db, conf, bus, manager)


@pytest.fixture
def image(db: Database, cloud: Cloud) -> objects.Image:
    return db.write(images.create, make.image())


@pytest.fixture
def messages(manager: ConductorManager) -> VerifiedMessages:
    return VerifiedMessages(manager.endpoint)


def rows(db: Database) -> dict[str, list[str]]:
    """Return all rows but those of the messages."""

    def read(uow: UnitOfWork) -> dict[str, list[str]]:
        tables = [table for table in models.Base.metadata.sorted_tables if table.name != "taken_messages"]
        return {table.name: sorted(map(repr, uow.session.execute(sa.select(table)))) for table in tables}

    return db.read(read)


def is_taken(db: Database, message_id: str) -> bool:
    return db.read(lambda uow: uow.session.get(models.SeenMessage, message_id)) is not None


def request(image: objects.Image) -> CreateRequest:
    return CreateRequest(name="vm", flavor_id="1", image_ref=image.id)


#: Arguments of each handler that records, for an active server, and those of a server that is being stopped.
OF_ACTIVE: dict[str, Callable[[str, objects.Image], dict[str, Any]]] = {
    "accept_action": lambda uuid, image: {"instance_uuid": uuid, "action": "stop", "payload": {}},
    "create_instances": lambda uuid, image: {"request": request(image)},
    "create_instances_batch": lambda uuid, image: {
        "creates": [BatchedCreate(context=make.context().to_rpc(), request=request(image))]
    },
    "delete_instances_batch": lambda uuid, image: {
        "deletes": [BatchedDelete(context=make.context().to_rpc(), instance_uuid=uuid)]
    },
    "instance_lock": lambda uuid, image: {"instance_uuid": uuid, "reason": None},
    "instance_reset_state": lambda uuid, image: {"instance_uuid": uuid, "vm_state": "error"},
    "instance_unlock": lambda uuid, image: {"instance_uuid": uuid, "may_override": False},
    "instance_update": lambda uuid, image: {"instance_uuid": uuid, "changes": {"display_name": "new"}},
    "keypair_create": lambda uuid, image: {
        "keypair": objects.KeyPair(user_id="u1", name="k", public_key="ssh", fingerprint="f", type="ssh")
    },
}
OF_COMMAND: dict[str, Callable[[ActionReport], dict[str, Any]]] = {
    "finish_action": lambda report: {"report": report},
    "finish_actions": lambda report: {"host": "h1", "reports": [report]},
    "report_task": lambda report: {"host": "h1", "action_id": report.action_id, "task_state": "powering-off"},
}


def is_active(messages: VerifiedMessages, conductor: ConductorRPC, cloud: Cloud, image: objects.Image) -> str:
    (instance_uuid,) = create_server(conductor, image)
    finish(conductor, cloud.builds.pop())
    return instance_uuid


@pytest.mark.parametrize("method", [*OF_ACTIVE, *OF_COMMAND])
def test_taken_message_changes_nothing(
    db: Database, messages: VerifiedMessages, conductor: ConductorRPC, cloud: Cloud, image: objects.Image, method: str
) -> None:
    instance_uuid = is_active(messages, conductor, cloud, image)
    if method in OF_COMMAND:
        command = conductor.accept_action(make.context(), instance_uuid, "stop", {})
        ended = ActionReport(host="h1", action_id=command.action_id, power_state=4, sequence=command.sequence)
        arguments = OF_COMMAND[method](ended)
    else:
        arguments = OF_ACTIVE[method](instance_uuid, image)
    message_id = uuid.uuid4().hex
    db.write(replay_cache.message_taken, message_id)
    before = rows(db)
    with pytest.raises(exceptions.MessageRefused, match="it is replayed"):
        messages.send(method, make.context(), message_id, **arguments)
    assert rows(db) == before
    messages.send(method, make.context(), uuid.uuid4().hex, **arguments)
    assert rows(db) != before or method in ("report_task", "instance_unlock")


def test_taken_report_of_devices_changes_nothing(
    db: Database, messages: VerifiedMessages, conductor: ConductorRPC, cloud: Cloud, image: objects.Image
) -> None:
    (instance_uuid,) = create_server(conductor, image)
    build = cloud.builds.pop()
    arguments = {"instance_uuid": instance_uuid, "host": "h1", "generation": build.generation}
    db.write(replay_cache.message_taken, "1" * 32)
    before = rows(db)
    with pytest.raises(exceptions.MessageRefused):
        messages.send("report_guest_devices", make.ADMIN, "1" * 32, devices=GuestDevices(), **arguments)
    assert rows(db) == before
    messages.send("report_guest_devices", make.ADMIN, "2" * 32, devices=GuestDevices(), **arguments)
    assert rows(db) != before


def test_every_handler_that_records_is_tested(manager: ConductorManager) -> None:
    assert manager.endpoint.recorders - WRITES.keys() <= {*OF_ACTIVE, *OF_COMMAND, "report_guest_devices"}


def test_harmless_messages_are_not_recorded(manager: ConductorManager) -> None:
    contract = rpc.contract_of(ConductorRPC)
    assert [name for name in manager.endpoint.recorders if contract.is_replay_safe(name)] == []


def test_boot_and_delete_need_a_statement_for_each_message_and_no_transaction(
    db: Database,
    manager: ConductorManager,
    messages: VerifiedMessages,
    conductor: ConductorRPC,
    cloud: Cloud,
    image: objects.Image,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_active(messages, conductor, cloud, image)  # the first server of a project inserts its quota rows
    monkeypatch.setattr(manager.host_publisher, "publish", lambda: None)
    with counting() as boot:
        result = messages.send("create_instances", make.context(), request=request(image))
        instance_uuid = result["instances"][0]["uuid"]
        messages.send("build_instances", ME, instance_uuids=[instance_uuid])
        finish(conductor, cloud.builds.pop())
    with counting() as delete:
        arguments = {"instance_uuid": instance_uuid, "action": "delete", "payload": {}}
        command = messages.send("accept_action", make.context(), **arguments)
        ended = ActionReport(host="h1", action_id=command["action_id"], power_state=0, sequence=command["sequence"])
        messages.send("finish_action", make.ADMIN, report=ended)
    assert conductor.instance_list(ME, objects.InstanceFilters(uuids=[instance_uuid]), 9, None, [], []) == []
    assert (boot.transactions, len(boot.statements)) == (4, BOOT), boot.statements
    assert (delete.transactions, len(delete.statements)) == (2, DELETE), delete.statements


def test_refused_message_is_recorded(db: Database, messages: VerifiedMessages, cloud: Cloud) -> None:
    arguments = {"instance_uuid": str(uuid.uuid4()), "action": "stop", "payload": {}}
    with pytest.raises(exceptions.InstanceNotFound):
        messages.send("accept_action", make.context(), "1" * 32, **arguments)
    assert is_taken(db, "1" * 32)


def test_message_of_several_changes_in_one_transaction_is_recorded_once(db: Database) -> None:
    context = make.context()
    context.message = ReceivedMessage("m")

    def change(uow: UnitOfWork) -> None:
        replay_cache.record(uow, context)
        replay_cache.record(uow, context)

    db.write(change)
    assert is_taken(db, "m") and context.message.is_recorded
    context.message = ReceivedMessage("m")
    with pytest.raises(exceptions.MessageRefused):
        db.write(change)


def test_message_without_the_database_is_not_recorded_twice(
    manager: ConductorManager, messages: VerifiedMessages, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []

    def fails(*arguments: object, **named: object) -> None:
        tries.append(arguments)
        raise exc.OperationalError("INSERT", {}, Exception("gone"))

    monkeypatch.setattr(manager.db, "_retrying", fails)
    with pytest.raises(exceptions.DatabaseUnavailable):
        messages.send("aggregate_create", make.ADMIN, name="a", availability_zone=None)
    assert len(tries) == 1


def test_taken_message_of_a_batch_is_refused_alone(
    db: Database, manager: ConductorManager, conductor: ConductorRPC, cloud: Cloud, image: objects.Image
) -> None:
    db.write(replay_cache.message_taken, "2" * 32)
    instance_uuids, requests = [], []
    for number in "123":
        (instance_uuid,) = create_server(conductor, image)
        finish(conductor, cloud.builds.pop())
        context = make.context()
        context.message = ReceivedMessage(number * 32)
        instance_uuids.append(instance_uuid)
        requests.append([DeleteRequest(context, instance_uuid)])
    (first,), (second,), (third,) = manager.engine.acceptor._accept_messages(requests)
    assert isinstance(second, exceptions.MessageRefused)
    assert [getattr(result, "instance", None) is not None for result in (first, third)] == [True, True]
    assert [item[0].context.message.is_recorded for item in requests if item[0].context.message] == [True, False, True]
    shown = {item: conductor.instance_get(ME, item).task_state for item in instance_uuids}
    assert list(shown.values()) == ["deleting", None, "deleting"]


def lost(db: Database, monkeypatch: pytest.MonkeyPatch, is_committed: bool) -> None:
    """Let the connection break during the next transaction, or after its COMMIT."""
    error = exc.OperationalError("COMMIT", {}, Exception("lost"), connection_invalidated=True)

    def broken(uow: UnitOfWork, *_: object) -> None:
        monkeypatch.undo()
        raise error

    monkeypatch.setattr("random.uniform", lambda low, high: 0.0)
    if is_committed:
        monkeypatch.setattr(UnitOfWork, "committed", broken)
    else:
        monkeypatch.setattr(Database, "announce", lambda self, uow: broken(uow))


@pytest.mark.parametrize("is_committed", [True, False])
def test_message_whose_commit_was_lost_gets_the_reply_of_its_work(
    db: Database,
    messages: VerifiedMessages,
    conductor: ConductorRPC,
    cloud: Cloud,
    image: objects.Image,
    monkeypatch: pytest.MonkeyPatch,
    is_committed: bool,
) -> None:
    lost(db, monkeypatch, is_committed)
    result = messages.send("create_instances", make.context(), "1" * 32, request=request(image))
    found = conductor.instance_list(ME, objects.InstanceFilters(), 9, None, [], [])
    assert [item.uuid for item in found] == [item["uuid"] for item in result["instances"]]
    assert is_taken(db, "1" * 32)


def test_change_whose_commit_was_lost_is_not_made_twice(
    db: Database, messages: VerifiedMessages, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost(db, monkeypatch, is_committed=True)
    with pytest.raises(exceptions.MessageRefused):
        messages.send("aggregate_create", make.ADMIN, name="a", availability_zone=None)
    assert len(db.read(lambda uow: uow.session.scalars(sa.select(models.Aggregate)).all())) == 1


def test_taken_message_is_refused_although_the_connection_was_lost_before(
    db: Database, messages: VerifiedMessages, cloud: Cloud, image: objects.Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.write(replay_cache.message_taken, "1" * 32)
    before = rows(db)
    original = replay_cache.record

    def broken(uow: UnitOfWork, *arguments: Any, **named: Any) -> None:
        monkeypatch.setattr(replay_cache, "record", original)
        raise exc.OperationalError("INSERT", {}, Exception("lost"), connection_invalidated=True)

    monkeypatch.setattr("random.uniform", lambda low, high: 0.0)
    monkeypatch.setattr(replay_cache, "record", broken)
    with pytest.raises(exceptions.MessageRefused):
        messages.send("create_instances", make.context(), "1" * 32, request=request(image))
    assert rows(db) == before
