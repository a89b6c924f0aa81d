"""Snapshots on a host: uploads, progress reports, and the removal of files in all cases."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nova_lite.base import exceptions
from nova_lite.image.store import uploads_path
from nova_lite.objects import ActionCommand, Image
from nova_lite.operations import states
from nova_lite.operations.states import PowerState
from nova_lite.virt.driver import snapshots_path
from tests.support.compute_host import DEADLINE, HOST, LATER, Gate, Host, command
from tests.support.waiting import wait_for

IMAGE = Image(id="99999999-9999-4999-8999-999999999999", name="snap", status="queued")


@pytest.fixture
def host(host: Host) -> Host:
    host.conductor.images[IMAGE.id] = IMAGE
    return host.built()


def order(**values: Any) -> ActionCommand:
    payload = {"image": msgspec.to_builtins(IMAGE)}
    return command("createImage", payload=payload, method="snapshot_instance", **values)


def uploaded(host: Host) -> list[str]:
    path = uploads_path(host.conf.image.store_path, HOST)
    return sorted(os.listdir(path)) if os.path.isdir(path) else []


def made(host: Host) -> list[str]:
    path = snapshots_path(host.conf, HOST)
    return os.listdir(path) if os.path.isdir(path) else []


def test_snapshot_is_made_and_uploaded(host: Host) -> None:
    host.act(order())
    host.settle()
    assert host.conductor.of("finish_action") == [(LATER, PowerState.RUNNING, None)]
    tasks = [states.IMAGE_SNAPSHOT, states.IMAGE_PENDING_UPLOAD, states.IMAGE_UPLOADING]
    assert host.conductor.of("report_task") == [(LATER, task) for task in tasks]
    assert uploaded(host) == [IMAGE.id]
    path = Path(uploads_path(host.conf.image.store_path, HOST), IMAGE.id)
    found = host.conductor.images[IMAGE.id]
    assert (found.status, found.size) == ("saving", path.stat().st_size)
    assert b"generation 1" in path.read_bytes()
    assert made(host) == []


@pytest.mark.parametrize("fail_error", ["virt", "unexpected"])
def test_snapshot_failure_is_reported_and_leaves_no_file(host: Host, fail_error: str) -> None:
    host.control(fail_at=["snapshot"], fail_error=fail_error)
    host.act(order())
    host.settle()
    ((_, power_state, error),) = host.conductor.of("finish_action")
    assert (power_state, bool(error)) == (PowerState.RUNNING, True)
    assert (made(host), uploaded(host)) == ([], [])


def test_snapshot_of_a_deleted_image_leaves_no_file(host: Host) -> None:
    def delete(arguments: Any) -> None:
        if "size" in arguments[1]:
            host.conductor.images.clear()

    host.conductor.hooks["image_update"] = delete
    host.act(order())
    host.settle()
    ((_, _, error),) = host.conductor.of("finish_action")
    assert error == f"Image {IMAGE.id} could not be found."
    assert (made(host), uploaded(host)) == ([], [])


@pytest.mark.parametrize("step", ["report_task", "image_update"])
def test_snapshot_waits_for_an_unavailable_conductor(host: Host, step: str) -> None:
    host.conductor.errors[step] = [exceptions.MessagingUnavailable(what=step)] * 2
    host.act(order())
    host.settle()
    assert host.conductor.of("finish_action") == [(LATER, PowerState.RUNNING, None)]
    assert uploaded(host) == [IMAGE.id]


def test_snapshot_ends_when_its_action_is_over(host: Host) -> None:
    host.conductor.is_current = False
    host.act(order())
    host.settle()
    assert "snapshot" not in host.driver.steps
    assert "is over" in host.conductor.of("finish_action")[0][2]
    assert (made(host), uploaded(host)) == ([], [])


def test_delete_does_not_wait_for_a_snapshot(host: Host) -> None:
    gate = host.driver.hooks["snapshot"] = Gate()
    host.act(order())
    gate.wait()
    host.act(command("delete", LATER + 1))
    wait_for("the later command is recorded", lambda: host.record().last_action_id == LATER + 1, DEADLINE)
    gate.open()
    host.settle()
    assert host.traces() == []
    assert (made(host), uploaded(host)) == ([], [])
    assert [action for action, _, _ in host.conductor.of("finish_action")][-1] == LATER + 1


def test_snapshots_are_limited_in_number(host: Host) -> None:
    slots = host.manager.host.snapshot_slots
    for _ in range(host.conf.compute.max_concurrent_snapshots):
        assert slots.acquire(blocking=False)
    host.act(order())
    assert not host.manager.jobs.wait_idle(0.1)
    assert "snapshot" not in host.driver.steps
    slots.release()
    host.settle()
    assert uploaded(host) == [IMAGE.id]


def test_snapshot_is_repeated_after_a_kill(host: Host) -> None:
    gate = host.driver.hooks["snapshot"] = Gate()
    host.act(order())
    gate.wait()
    (Path(snapshots_path(host.conf, HOST)) / "half").write_bytes(b"")
    after = host.next_life()
    assert made(after) == []
    after.act(order())
    after.settle()
    assert uploaded(after) == [IMAGE.id]


def test_obsolete_uploads_are_removed_at_the_next_start(host: Host) -> None:
    host.act(order())
    host.settle()
    directory = Path(uploads_path(host.conf.image.store_path, HOST))
    (directory / "11111111-1111-4111-8111-111111111119").write_bytes(b"")
    (directory / ".import-1").write_bytes(b"")
    host.next_life().manager.clean_up()
    assert uploaded(host) == [IMAGE.id]
    host.conductor.images.clear()
    host.next_life().manager.clean_up()
    assert uploaded(host) == []


def test_guest_is_shelved_offloaded_and_unshelved(host: Host) -> None:
    payload = {"image": msgspec.to_builtins(IMAGE)}
    host.act(command("shelve", payload=payload, method="shelve_instance"))
    host.settle()
    assert host.power() == PowerState.SHUTDOWN
    assert uploaded(host) == [IMAGE.id]
    host.act(command("unshelve", LATER + 1, method="unshelve_instance"))
    host.settle()
    assert host.power() == PowerState.RUNNING
    host.act(command("shelveOffload", LATER + 2, method="shelve_offload_instance"))
    host.settle()
    assert host.traces() == []
    reports = host.conductor.of("finish_action")
    assert [(action, state) for action, state, _ in reports] == [
        (LATER, PowerState.SHUTDOWN),
        (LATER + 1, PowerState.RUNNING),
        (LATER + 2, None),
    ]
    tasks = [states.SHELVING_IMAGE_PENDING_UPLOAD, states.SHELVING_IMAGE_UPLOADING]
    assert [task for _, task in host.conductor.of("report_task")] == tasks
    assert host.record().revoked_generation == 1
    host.build(2, action_id=LATER + 3)
    host.settle()
    assert host.domains() == {"11111111-1111-4111-8111-111111111111": 2}
