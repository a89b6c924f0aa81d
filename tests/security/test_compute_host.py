"""An attacker has taken a compute host, and has its configuration, its key and its broker account. It gets nothing more
than that host has: no order goes to another host, no report is believed of one, nothing of others' servers is read.

Each attack goes the way that the broker cannot shut: the default exchange, which whoever answers calls may send to.
"""

from __future__ import annotations

import base64
import functools
import json
import shutil
import signal
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import amqp
import pytest

from nova_lite import operations, rpc
from nova_lite.base import sealing
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.volume import volume_keys, volumes
from nova_lite.objects import (
    ActionReport,
    BuildOutcome,
    BuildResult,
    DomainReport,
    ExpectedDomain,
    GuestDevices,
    HostReport,
    Inventory,
    LeaseRequest,
    StorageReport,
    StorageView,
    Volume,
    VolumeType,
)
from nova_lite.rpc import broker, keys
from nova_lite.rpc.keys import COMPUTE, PrivateKey
from nova_lite.rpc.signing import SIGNATURE
from nova_lite.rpcapi.compute import ComputeRPC
from nova_lite.rpcapi.conductor import ConductorRPC
from nova_lite.rpcapi.scheduler import SchedulerRPC
from tests.functional.cloud import role_of
from tests.security.attacker import VICTIM, Attacker, SecuredCloud, Tap, failure_of, versions_of
from tests.security.conftest import SECRET
from tests.support.waiting import wait_for

FORBIDDEN = "role compute may not call it"
OTHERS = "it may speak of itself alone"
ENCRYPTION = {"provider": "luks", "control_location": "front-end"}


def report_of(host: str, **more: Any) -> HostReport:
    inventory = Inventory(node=host, vcpus=1000, memory_mb=10**6, disk_gb=10**6, hypervisor_type="fake")
    return HostReport(host=host, boot_id=str(uuid.uuid4()), inventories=[inventory], **more)


# --- its own work continues


def test_the_host_can_do_its_own_work(cloud: SecuredCloud, attacker: Attacker, servers: dict[str, str]) -> None:
    """The host's own work succeeds, so the refusals below prove something."""
    told = attacker.told("conductor", None, "domains_expected", host="compute-1")
    assert [item["uuid"] for item in told] == [servers["compute-1"]]
    for name in cloud.names:
        assert "is refused" not in cloud.text_of(name), name


def test_a_host_makes_images_of_its_own_servers(
    cloud: SecuredCloud, attacker: Attacker, servers: dict[str, str]
) -> None:
    """And while one is made, no other host gets at it."""
    cloud.control_host(VICTIM, delays={"snapshot": 3.0})
    try:
        answer = cloud.action(servers[VICTIM], {"createImage": {"name": "mine"}})
        assert answer.status_code == 202, answer.text
        image_id = answer.headers["Location"].rsplit("/", 1)[1]
        arguments = {"image_id": image_id, "changes": {"status": "saving"}, "expected_status": None}
        assert failure_of(attacker.ask("conductor", None, "image_update", **arguments)) == "ImageNotFound"
        assert failure_of(attacker.ask("conductor", None, "image_get", image_id=image_id)) == "ImageNotFound"
    finally:
        cloud.wait_settled([servers[VICTIM]])
        cloud.control_host(VICTIM)

    def made() -> bool:
        return bool(cloud.request("GET", f"/images/{image_id}").json()["image"]["status"] == "ACTIVE")

    wait_for("the image is there", made)
    assert cloud.request("DELETE", f"/images/{image_id}").status_code == 204


# --- orders


@pytest.mark.parametrize("method", sorted(operations.command_methods()))
def test_no_order_to_another_host(
    cloud: SecuredCloud, attacker: Attacker, servers: dict[str, str], method: str
) -> None:
    order = operations.command_methods()[method]
    with cloud.refuses(VICTIM, f"Message {method} of compute on compute-1 is refused: {FORBIDDEN}"):
        attacker.order("compute", VICTIM, method, order.since, command={"instance": {"uuid": servers[VICTIM]}})


@pytest.mark.parametrize("method", sorted(set(versions_of(ComputeRPC)) - {"order"}))
def test_no_message_to_another_host(
    cloud: SecuredCloud, attacker: Attacker, servers: dict[str, str], method: str
) -> None:
    with cloud.refuses(VICTIM, f"Message {method} of compute on compute-1 is refused: {FORBIDDEN}"):
        answer = attacker.ask("compute", VICTIM, method, versions_of(ComputeRPC)[method], instance_uuid=servers[VICTIM])
    assert failure_of(answer) == "MessageRefused"


@pytest.mark.parametrize("method", sorted(versions_of(SchedulerRPC)))
def test_no_message_to_the_scheduler(cloud: SecuredCloud, attacker: Attacker, method: str) -> None:
    with cloud.refuses("scheduler", f"Message {method} of compute on compute-1 is refused: {FORBIDDEN}"):
        attacker.order("scheduler", None, method)


# --- reads


FOR_OTHERS = sorted(
    name for name, row in (rpc.contract_of(ConductorRPC).access or {}).items() if COMPUTE not in row.roles
)


def test_most_methods_are_for_other_roles() -> None:
    assert len(FOR_OTHERS) > 70
    assert {"instance_get", "instance_list", "keypair_list", "console_token_redeem", "host_retire"} <= set(FOR_OTHERS)


@pytest.mark.parametrize("method", FOR_OTHERS)
def test_methods_for_other_roles_are_refused(
    cloud: SecuredCloud, attacker: Attacker, servers: dict[str, str], method: str
) -> None:
    version = versions_of(ConductorRPC)[method]
    with cloud.refuses("conductor", f"Message {method} of compute on compute-1 is refused: {FORBIDDEN}"):
        answer = attacker.ask("conductor", None, method, version, instance_uuid=servers[VICTIM])
    assert failure_of(answer) == "MessageRefused"
    assert SECRET not in json.dumps(answer) and servers[VICTIM] not in json.dumps(answer)


def test_no_image_that_is_not_made_on_the_host(cloud: SecuredCloud, attacker: Attacker) -> None:
    changes: dict[str, Any]
    with cloud.unchanged():
        answer = attacker.ask("conductor", None, "image_get", image_id=cloud.image_id)
        assert failure_of(answer) == "ImageNotFound"
        for changes in ({"status": "saving"}, {"checksum": "0"}, {"visibility": "private"}):
            arguments = {"image_id": cloud.image_id, "changes": changes, "expected_status": None}
            assert failure_of(attacker.ask("conductor", None, "image_update", **arguments)) == "ImageNotFound"


def test_no_key_of_a_volume_that_another_host_has(
    cloud: SecuredCloud, attacker: Attacker, servers: dict[str, str]
) -> None:
    """A host gets the key of its own server's volume, in a box that only the key pair of its request opens."""
    kind = VolumeType(id=str(uuid.uuid4()), name="secret", encryption=ENCRYPTION)
    db, made = Database(cloud.conductor_conf()), {}
    try:
        for host in ("compute-1", VICTIM):

            def insert(uow: UnitOfWork, host: str = host) -> str:
                key_id = volume_keys.create(uow, kind)
                volume = Volume(id=str(uuid.uuid4()), project_id="demo", size=1, status="in-use")
                volume.instance_uuid, volume.encryption_key_id = servers[host], key_id
                return volumes.insert(uow, volume).id

            made[host] = db.write(insert)
        ask = functools.partial(attacker.ask, "conductor", None, "volume_key_get", host="compute-1")
        mine, other = sealing.new_private_key(), sealing.new_private_key()
        with cloud.unchanged():
            refused = ask(volume_id=made[VICTIM], public_key=sealing.public_key(mine))
            assert failure_of(refused) == "VolumeKeyUnavailable"
            box = json.loads(ask(volume_id=made["compute-1"], public_key=sealing.public_key(mine))["result"]["text"])
        key = json.loads(sealing.unseal(mine, box))["passphrase"]
        assert len(bytes.fromhex(key)) == 32
        with pytest.raises(sealing.Unreadable):
            sealing.unseal(other, box)
        assert key not in json.dumps(refused) + box + cloud.text_of("conductor")
    finally:
        db.write(lambda uow: [uow.session.delete(volumes.by_id(uow, volume_id)) for volume_id in made.values()])
        db.close()


def test_no_key_of_the_tpm_of_a_server_that_another_host_has(
    cloud: SecuredCloud, attacker: Attacker, servers: dict[str, str]
) -> None:
    ask = functools.partial(attacker.ask, "conductor", None, "tpm_key_get", host="compute-1")
    mine = sealing.new_private_key()
    with cloud.unchanged():
        refused = ask(instance_uuid=servers[VICTIM], public_key=sealing.public_key(mine))
        assert failure_of(refused) == "TPMKeyUnavailable"
    box = json.loads(ask(instance_uuid=servers["compute-1"], public_key=sealing.public_key(mine))["result"]["text"])
    assert len(bytes.fromhex(json.loads(sealing.unseal(mine, box))["passphrase"])) == 32


# --- reports


REPORTS: list[tuple[str, dict[str, Any]]] = [
    ("register_host", {"report": report_of(VICTIM)}),
    ("report_state", {"report": report_of(VICTIM, building={}, acting=[1, 2, 3])}),
    (
        "renew_lease",
        {"request": LeaseRequest(host=VICTIM, boot_id="", epoch=0, identity="", number=9, seconds=0)},
    ),
    (
        "report_storage",
        {"report": StorageReport(host=VICTIM, epoch=0, identity="", view=StorageView(marks=["0" * 32]))},
    ),
    ("wing_report", {"host": VICTIM, "wing": "load_balancer", "report": {}}),
    ("start_build", {"instance_uuid": "VICTIM", "host": VICTIM, "generation": 1}),
    (
        "report_guest_devices",
        {"instance_uuid": "VICTIM", "host": VICTIM, "generation": 1, "devices": GuestDevices(devices=[])},
    ),
    (
        "finish_build",
        {"result": BuildResult(instance_uuid="VICTIM", generation=1, host=VICTIM, outcome=BuildOutcome.ABORTED)},
    ),
    (
        "finish_action",
        {"report": ActionReport(host=VICTIM, action_id=2, power_state=4, error="forged")},
    ),
    ("is_command_current", {"host": VICTIM, "action_id": 2, "sequence": 0}),
    ("is_command_open", {"host": VICTIM, "action_id": 2, "sequence": 0, "request_id": "req"}),
    ("live_migration_progress", {"host": VICTIM, "action_id": 2, "sequence": 0, "progress": {}}),
    ("report_task", {"host": VICTIM, "action_id": 2, "task_state": "deleting"}),
    ("reconcile_domains", {"host": VICTIM, "domains": [], "leftovers": []}),
    ("domains_expected", {"host": VICTIM}),
    ("fencing_records_settled", {"host": VICTIM, "instance_uuids": ["VICTIM"]}),
    ("domain_lost", {"host": VICTIM, "expected": ExpectedDomain(uuid="VICTIM", generation=1)}),
    ("is_volume_work_open", {"host": VICTIM, "task_id": 1, "volume_id": "VICTIM"}),
    ("is_volume_data_needed", {"host": VICTIM, "verb": "create", "made_id": "VICTIM"}),
    ("finish_volume_work", {"host": VICTIM, "task_id": 1, "error": "forged"}),
    (
        "finish_builds",
        {
            "host": VICTIM,
            "results": [BuildResult(instance_uuid="VICTIM", generation=1, host=VICTIM, outcome=BuildOutcome.ABORTED)],
        },
    ),
    (
        "finish_actions",
        {"host": VICTIM, "reports": [ActionReport(host=VICTIM, action_id=2, power_state=4, error="forged")]},
    ),
    ("volume_key_get", {"host": VICTIM, "volume_id": "VICTIM", "public_key": ""}),
    ("tpm_key_get", {"host": VICTIM, "instance_uuid": "VICTIM", "public_key": ""}),
    ("disk_key_get", {"host": VICTIM, "instance_uuid": "VICTIM", "role": "root", "public_key": ""}),
    (
        "volume_connect",
        {"host": VICTIM, "instance_uuid": "VICTIM", "device_uuid": "VICTIM", "connector": {"host": VICTIM}},
    ),
    ("report_load", {"host": VICTIM, "load": None}),
    ("cpu_baseline_get", {"host": VICTIM}),
    ("port_filters_get", {"host": VICTIM, "instance_uuids": ["VICTIM"]}),
    ("site_right_get", {"host": VICTIM, "instance_uuid": "VICTIM"}),
    ("interfaces_bind", {"host": VICTIM, "instance_uuid": "VICTIM"}),
    ("interfaces_active", {"host": VICTIM, "instance_uuid": "VICTIM", "refresh": True}),
]


def test_each_report_is_tried() -> None:
    rows = rpc.contract_of(ConductorRPC).access or {}
    assert {method for method, _ in REPORTS} == {name for name, row in rows.items() if COMPUTE in row.roles and row.own}


@pytest.mark.parametrize(("method", "arguments"), REPORTS, ids=[report[0] for report in REPORTS])
def test_no_report_in_the_name_of_another_host(
    cloud: SecuredCloud,
    attacker: Attacker,
    servers: dict[str, str],
    method: str,
    arguments: dict[str, Any],
) -> None:
    plain = json.loads(json.dumps(rpc.to_plain(arguments)).replace("VICTIM", servers[VICTIM]))
    with cloud.refuses("conductor", f"Message {method} of compute on compute-1 is refused: {OTHERS}"):
        answer = attacker.ask("conductor", None, method, **plain)
    assert failure_of(answer) == "MessageRefused"


def test_a_host_that_is_no_member_cannot_be_invented(cloud: SecuredCloud, attacker: Attacker) -> None:
    with cloud.refuses("conductor", f"Message register_host of compute on compute-1 is refused: {OTHERS}"):
        attacker.ask("conductor", None, "register_host", report=report_of("compute-3"))


def test_no_report_of_a_server_that_is_elsewhere(
    cloud: SecuredCloud, attacker: Attacker, servers: dict[str, str]
) -> None:
    """A host may report in its own name, about its own servers."""
    row = next(item for item in cloud.rows()["instances"] if item["uuid"] == servers[VICTIM])
    action = next(item for item in cloud.rows()["instance_actions"] if item["instance_uuid"] == servers[VICTIM])
    uuid_, generation, mine = row["uuid"], row["generation"], {"host": "compute-1"}
    with cloud.unchanged():
        for outcome in BuildOutcome:
            result = BuildResult(instance_uuid=uuid_, generation=generation, outcome=outcome, **mine)
            attacker.ask("conductor", None, "finish_build", result=result)
            result.action_id = action["id"]
            attacker.ask("conductor", None, "finish_build", result=result)
        done = ActionReport(action_id=action["id"], power_state=4, error="forged", **mine)
        attacker.ask("conductor", None, "finish_action", report=done)
        asked = {"action_id": action["id"], "sequence": 0} | mine
        assert attacker.told("conductor", None, "is_command_current", **asked) is False
        build = {"instance_uuid": uuid_, "generation": generation} | mine
        assert failure_of(attacker.ask("conductor", None, "start_build", **build)) == "StaleReport"
        for method, more in (("interfaces_bind", {}), ("interfaces_active", {"refresh": True})):
            answer = attacker.ask("conductor", None, method, instance_uuid=uuid_, **more, **mine)
            assert failure_of(answer) == "StaleReport"
        expected = ExpectedDomain(uuid=uuid_, generation=generation, last_action_id=action["id"])
        attacker.ask("conductor", None, "domain_lost", expected=expected, **mine)
        domains = [
            DomainReport(uuid=servers["compute-1"], generation=1, power_state=1),
            DomainReport(uuid=uuid_, generation=generation, power_state=4),
        ]
        answer = attacker.ask("conductor", None, "reconcile_domains", domains=domains, leftovers=[uuid_], **mine)
    assert SECRET not in json.dumps(answer)


def test_filters_of_other_hosts_are_not_disclosed(
    cloud: SecuredCloud, attacker: Attacker, servers: dict[str, str]
) -> None:
    asked = {"host": "compute-1", "instance_uuids": [servers["compute-1"], servers[VICTIM]]}
    told = attacker.told("conductor", None, "port_filters_get", **asked)["instances"]
    assert len(told[servers["compute-1"]]) == 1
    assert told[servers[VICTIM]] == []


def test_a_lease_of_another_hosts_work_is_not_renewed(
    cloud: SecuredCloud, attacker: Attacker, servers: dict[str, str]
) -> None:
    """The epoch is that of this host's own registration, so that the report itself is taken."""
    cloud.signal(VICTIM, signal.SIGSTOP)
    try:
        assert cloud.action(servers[VICTIM], {"os-stop": None}).status_code == 202
        (action,) = [row for row in cloud.rows()["instance_actions"] if row["finish_time"] is None]
        before = lease_of(cloud, action["id"])
        report = report_of("compute-1", acting=[action["id"]])
        attacker.ask("conductor", None, "report_state", report=report)
        assert lease_of(cloud, action["id"]) <= before + 6, "the conductor's own drives renew it, too, by seconds"
        done = {"host": "compute-1", "action_id": action["id"], "power_state": 4, "error": None, "details": ""}
        attacker.ask("conductor", None, "finish_action", **done)
        assert cloud.rows()["instance_actions"][-1]["finish_time"] is None
    finally:
        cloud.signal(VICTIM, signal.SIGCONT)
    cloud.wait_settled([servers[VICTIM]])
    assert cloud.action(servers[VICTIM], {"os-start": None}).status_code == 202
    cloud.wait_active([servers[VICTIM]])


def lease_of(cloud: SecuredCloud, action_id: int) -> float:
    import datetime
    import sqlite3

    with sqlite3.connect(f"file:{cloud.path}/nova-lite.sqlite?mode=ro", uri=True) as database:
        (text,) = database.execute("SELECT lease_expires_at FROM instance_actions WHERE id = ?", [action_id]).fetchone()
    return datetime.datetime.fromisoformat(text).timestamp()


# --- messages of others


def test_captured_messages_are_taken_once(
    cloud: SecuredCloud, attacker: Attacker, servers: dict[str, str], tap: Tap
) -> None:
    """Messages of another daemon are replayed as they were on the wire."""
    assert cloud.action(servers[VICTIM], {"os-stop": None}).status_code == 202
    heard, order = tap.next("accept_action"), tap.next("stop_instance")
    cloud.wait_settled([servers[VICTIM]])
    assert cloud.action(servers[VICTIM], {"os-start": None}).status_code == 202
    cloud.wait_active([servers[VICTIM]])
    with cloud.refuses("conductor", "of api on controller is refused: it was taken before"):
        attacker.send(heard.message, heard.context, queue="conductor")
    signer = signer_of(cloud, order.context)
    with cloud.refuses(VICTIM, f"Message stop_instance of {signer} is refused: it was taken before"):
        attacker.send(order.message, order.context, queue=f"compute.{VICTIM}")


def signer_of(cloud: SecuredCloud, context: dict[str, Any]) -> keys.DaemonIdentity:
    trusted = keys.read_trusted(str(cloud.path / "keys" / keys.TRUSTED))
    return next(item.peer for item in trusted if item.id == context[SIGNATURE]["key"])


def test_a_captured_order_is_for_its_host_alone(
    cloud: SecuredCloud, attacker: Attacker, servers: dict[str, str]
) -> None:
    """A command to the taken host is sent on to another host."""
    own = Tap(cloud, "compute.compute-1")
    try:
        assert cloud.action(servers["compute-1"], {"os-stop": None}).status_code == 202
        order = own.next("stop_instance")
    finally:
        own.close()
    cloud.wait_settled([servers["compute-1"]])
    with cloud.refuses(VICTIM, "is refused: it is for compute on compute-1"):
        attacker.send(order.message, order.context, queue=f"compute.{VICTIM}")


def test_altered_messages(cloud: SecuredCloud, attacker: Attacker, servers: dict[str, str], tap: Tap) -> None:
    heartbeat = tap.next("report_state")
    wrong = "is refused: its signature is wrong"
    changed = json.loads(json.dumps(heartbeat.message.arguments)) | {"more": 1}
    object.__setattr__(heartbeat.message, "arguments", changed)
    with cloud.refuses("conductor", wrong):
        attacker.send(heartbeat.message, heartbeat.context, queue="conductor")
    message, context = attacker.signed("conductor", None, "domains_expected", host="compute-1")
    object.__setattr__(message, "method", "instance_list")
    with cloud.refuses("conductor", wrong):
        attacker.send(message, context)
    message, context = attacker.signed("conductor", None, "domains_expected", host="compute-1")
    object.__setattr__(message, "arguments", {"host": VICTIM})
    with cloud.refuses("conductor", wrong):
        attacker.send(message, context)


# --- keys


def test_unsigned_messages(cloud: SecuredCloud, attacker: Attacker, servers: dict[str, str]) -> None:
    message, context = attacker.signed("conductor", None, "instance_list")
    del context[SIGNATURE]
    with cloud.refuses("conductor", "Message instance_list is refused: it is not signed"):
        assert failure_of(attacker.asked(message, context)) == "MessageRefused"
    message, context = attacker.signed("compute", VICTIM, "terminate_instance", command={})
    del context[SIGNATURE]
    with cloud.refuses(VICTIM, "Message terminate_instance is refused: it is not signed"):
        attacker.send(message, context)


@pytest.mark.parametrize("role", ["api", "conductor", COMPUTE])
def test_keys_of_its_own_making(
    cloud: SecuredCloud, attacker: Attacker, servers: dict[str, str], tmp_path: Path, role: str
) -> None:
    """Whatever it calls itself: who it is, says the receiver's list."""
    key = PrivateKey.generate()
    attacker.signing._ring._private._value, old = key, attacker.signing._ring.own  # type: ignore[union-attr]
    try:
        with cloud.refuses("conductor", f"is refused: its key '{key.id}' is not trusted"):
            attacker.order("conductor", None, "instance_list")
        with cloud.refuses(VICTIM, f"is refused: its key '{key.id}' is not trusted"):
            attacker.order("compute", VICTIM, "terminate_instance", command={})
        old_id = old.id
        message, context = attacker.signed("conductor", None, "instance_list")
        trusted = keys.read_trusted(str(cloud.path / "keys" / keys.TRUSTED))
        stolen = next(item for item in trusted if item.role == role)
        context[SIGNATURE]["key"] = stolen.id
        with cloud.refuses("conductor", f"of {stolen.peer} is refused: its signature is wrong"):
            attacker.send(message, context)
        assert old_id != key.id
    finally:
        attacker.signing._ring._private._value = old  # type: ignore[union-attr]


def test_a_revoked_key(cloud: SecuredCloud, attacker: Attacker) -> None:
    """The operator's command revokes the key while all daemons run."""
    directory = cloud.path / "keys"
    kept = (directory / keys.TRUSTED).read_text()

    def answer() -> str:
        return failure_of(attacker.ask("conductor", None, "domains_expected", host="compute-1"))

    shutil.copy(directory / "compute.compute-1.key", directory / "kept.key")
    try:
        cloud.signal("compute-1", signal.SIGSTOP)
        key = attacker.signing._ring.own.id  # type: ignore[union-attr]
        cloud.manage("keys", "revoke", key)
        with cloud.refuses("conductor", f"is refused: its key '{key}' is not trusted"):
            wait_for("the key is refused", lambda: answer() == "MessageRefused", 20)
    finally:
        (directory / keys.TRUSTED).write_text(kept)
        cloud.signal("compute-1", signal.SIGCONT)
    assert answer() == "", "a daemon reads its list again for an unknown key"


@pytest.mark.parametrize(("wrong_by", "why"), [(-400, "400 s behind ours"), (100, "100 s ahead of ours")])
def test_another_time(cloud: SecuredCloud, attacker: Attacker, wrong_by: int, why: str) -> None:
    clock = attacker.signing.clock.time
    attacker.signing.clock.time = lambda: time.time() + wrong_by  # type: ignore[method-assign]
    try:
        with cloud.refuses("conductor", why):
            attacker.ask("conductor", None, "domains_expected", host="compute-1")
    finally:
        attacker.signing.clock.time = clock  # type: ignore[method-assign]


# --- answers


def test_forged_answers_are_not_believed(cloud: SecuredCloud, attacker: Attacker, servers: dict[str, str]) -> None:
    """Suppose that it had learned of a call of the API, which the broker keeps from it: the true answer is late, and
    its own comes first."""
    tap = Tap(cloud, "conductor")
    answers: list[Any] = []
    cloud.signal("conductor", signal.SIGSTOP)
    try:
        client = threading.Thread(target=lambda: answers.append(cloud.request("GET", f"/servers/{servers[VICTIM]}")))
        client.start()
        call = tap.next("instance_get").body
        forged = {"result": {"uuid": servers[VICTIM], "display_name": "forged"}, "failure": None, "ending": True}
        attacker.publish("", call["_reply_q"], forged | {"_msg_id": call["_msg_id"], "_unique_id": uuid.uuid4().hex})
        client.join(30)
        assert not client.is_alive()
    finally:
        cloud.signal("conductor", signal.SIGCONT)
        tap.close()
    assert answers[0].status_code == 503, answers[0].text
    assert "The reply of conductor to instance_get is not trusted: it is not signed" in cloud.text_of("api")
    path = f"/servers/{servers[VICTIM]}"
    wait_for("the conductor answers", lambda: cloud.request("GET", path).status_code == 200)


# --- the broker


def test_other_queues_are_not_read(cloud: SecuredCloud, attacker: Attacker) -> None:
    names = cloud.broker_control("list_queues", "-p", cloud.vhost, "name").split()
    others = [name for name in names if name not in ("name", "compute", "compute.compute-1")]
    others = [name for name in others if not name.startswith(("reply_compute.compute-1.", "compute_fanout"))]
    assert {"conductor", "scheduler", "conductor.controller", f"compute.{VICTIM}"} <= set(others)
    assert any(name.startswith("reply_api.controller.") for name in others), others
    for name in others:
        attacker.refused(lambda channel, name=name: channel.basic_get(name))
        attacker.refused(lambda channel, name=name: channel.basic_consume(name))
        attacker.refused(lambda channel, name=name: channel.queue_purge(name))
        attacker.refused(lambda channel, name=name: channel.queue_delete(name))


def test_no_queue_of_its_own_hears_what_is_for_others(cloud: SecuredCloud, attacker: Attacker) -> None:
    own = broker.reply_queues(COMPUTE, "compute-1") + "0"
    with attacker.channel() as channel:
        channel.queue_declare(own, auto_delete=False, arguments={"x-expires": 60000})
        channel.queue_bind(own, broker.EXCHANGE, "compute.compute-1")
    for key in ("conductor", "conductor.controller", "scheduler", f"compute.{VICTIM}", "#", "*", "compute.#"):
        attacker.refused(lambda channel, key=key: channel.queue_bind(own, broker.EXCHANGE, key))
    attacker.refused(lambda channel: channel.queue_bind(own, "scheduler_fanout", "scheduler"))
    attacker.refused(lambda channel: channel.queue_bind(own, "amq.rabbitmq.trace", "#"))
    attacker.refused(lambda channel: channel.exchange_bind("compute_fanout", broker.EXCHANGE, "#"))
    attacker.refused(lambda channel: channel.queue_declare("mine"))
    attacker.refused(lambda channel: channel.queue_declare(f"compute.{VICTIM}.x"))
    attacker.refused(lambda channel: channel.exchange_declare("mine", "topic"))
    with attacker.channel() as channel:
        channel.queue_delete(own)


def test_topics_of_others_are_not_sent_to(cloud: SecuredCloud, attacker: Attacker) -> None:
    for key in (f"compute.{VICTIM}", "scheduler", "scheduler.controller", "conductor.controller", "compute"):
        with pytest.raises(amqp.exceptions.AccessRefused):
            attacker.publish(broker.EXCHANGE, key, {"method": "echo", "args": {}, "version": "2.0"})
    with pytest.raises(amqp.exceptions.AccessRefused):
        attacker.publish("scheduler_fanout", "scheduler", {"method": "echo", "args": {}, "version": "2.0"})


def test_no_other_vhost(cloud: SecuredCloud, attacker: Attacker) -> None:
    import kombu

    url = cloud.url(cloud.account("compute-1")).rsplit("/", 1)[0] + "/"
    with pytest.raises(amqp.exceptions.NotAllowed):
        kombu.Connection(url).connect()


# --- files


def test_secrets_are_their_daemons_own(cloud: SecuredCloud) -> None:
    directory = cloud.path / "keys"
    for path in directory.glob("*.key"):
        assert path.stat().st_mode & 0o777 == 0o600, path
        text = path.read_bytes()
        for name in cloud.names:
            assert text not in cloud.text_of(name).encode()
    private = PrivateKey.from_file(str(directory / "compute.compute-1.key"))
    assert base64.b64encode(private.public).decode() in (directory / keys.TRUSTED).read_text()


def test_keys_are_replaced_while_servers_come_and_go(cloud: SecuredCloud, servers: dict[str, str]) -> None:
    """Each daemon's key is replaced: no message is refused, and no caller waits."""
    refusals = {name: cloud.text_of(name).count(" is refused: ") for name in cloud.names}
    unbelieved = cloud.text_of("api").count("is not trusted")
    answers: list[int] = []
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            answers.append(cloud.request("GET", "/servers/detail").status_code)

    client = threading.Thread(target=ask)
    client.start()
    try:
        before = {item.id for item in keys.read_trusted(str(cloud.path / "keys" / keys.TRUSTED))}
        for name in cloud.names:
            cloud.manage("keys", "rotate", role_of(name), cloud.host_of(name), "--overlap", "3600")
            cloud.wait_active(cloud.create(f"during-{name}"))
    finally:
        over.set()
        client.join(60)
    after = keys.read_trusted(str(cloud.path / "keys" / keys.TRUSTED))
    assert len({item.id for item in after} - before) == len(cloud.names)
    assert set(answers) == {200} and len(answers) > 10
    assert {name: cloud.text_of(name).count(" is refused: ") for name in cloud.names} == refusals
    assert cloud.text_of("api").count("is not trusted") == unbelieved


def test_cloud_works_after_all_attacks(cloud: SecuredCloud, servers: dict[str, str]) -> None:
    new = cloud.create("after", availability_zone=f"nova:{VICTIM}")
    cloud.wait_active(new)
    cloud.delete_all()
    cloud.audit()
    for name in cloud.names:
        assert "Traceback (most recent call last)" not in cloud.text_of(name), cloud.log(name)
