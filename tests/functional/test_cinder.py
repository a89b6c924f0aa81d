"""Volumes of Cinder's through all daemons, with fake hypervisors and a small Cinder that misbehaves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
import requests
import sqlalchemy as sa

from nova_lite.db.core import models
from nova_lite.db.core.engine import Database
from tests.functional import cloud as clouds
from tests.functional.cloud import Cloud
from tests.functional.volume_requests import attach, detach, held
from tests.support import cinder as fake
from tests.support import make
from tests.support.waiting import wait_for

LATEST = "2.95"


@pytest.fixture(scope="module")
def cinder() -> Iterator[fake.Cinder]:
    made = fake.Cinder()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, cinder: fake.Cinder) -> Iterator[Cloud]:
    config = f"{cinder.options(timeout=3)}[api]\nenabled_apis = osapi_compute\n"
    path = tmp_path_factory.mktemp("cinder")
    with clouds.running(path, computes=2, extra_config=config, environment=fake.BRICK) as running:
        yield running


@pytest.fixture
def cloud(whole: Cloud, cinder: fake.Cinder) -> Iterator[Cloud]:
    """Provide a cloud without servers; afterwards Cinder holds nothing of any."""
    yield whole
    whole.delete_all()
    wait_for("Cinder has no attachments", lambda: not cinder.attachments)
    assert cinder.troubles == []
    assert {volume["status"] for volume in cinder.volumes.values()} <= {"available"}
    database = Database(make.conf(whole.database))
    try:
        count = sa.select(sa.func.count()).select_from(models.CinderAttachment)
        wait_for("no volume is anybody's", lambda: database.read(lambda uow: uow.session.scalar(count)) == 0)
    finally:
        database.close()
    cinder.volumes.clear()
    whole.audit()


def server(cloud: Cloud, **more: Any) -> str:
    (server_id,) = cloud.create("vm", **more)
    cloud.wait_active([server_id])
    return str(server_id)


def wait_status(cloud: Cloud, server_id: str, status: str) -> None:
    wait_for(f"the server is {status}", lambda: (cloud.show(server_id) or {}).get("status") == status)


def host_of(cloud: Cloud, server_id: str) -> str:
    shown = cloud.request("GET", f"/servers/{server_id}").json()["server"]
    return str(shown["OS-EXT-SRV-ATTR:host"])


def attached(cloud: Cloud, cinder: fake.Cinder, server_id: str, volume_id: str) -> None:
    expected = [(server_id, "attached", host_of(cloud, server_id))]
    wait_for("Cinder has it attached", lambda: cinder.held(volume_id) == expected)
    assert held(cloud) == [(server_id, volume_id)]


def test_attach_show_and_detach(cloud: Cloud, cinder: fake.Cinder) -> None:
    volume_id, server_id = cinder.volume("demo"), server(cloud)
    answer = attach(cloud, server_id, volume_id)
    assert answer.status_code == 200, answer.text
    attached(cloud, cinder, server_id, volume_id)
    wait_for("its id", lambda: _listed(cloud, server_id)[0]["attachment_id"] in cinder.attachments)
    (shown,) = _listed(cloud, server_id)
    assert shown["bdm_uuid"] not in (shown["attachment_id"], None)
    assert fake.SECRET not in str(shown)
    again = attach(cloud, server(cloud), volume_id)
    assert (again.status_code, "Currently in 'in-use'" in again.text) == (400, True)
    assert detach(cloud, server_id, volume_id).status_code == 202
    wait_for("nobody has it", lambda: not cinder.held(volume_id) and not held(cloud))
    for log in cloud.path.glob("*.log"):
        assert fake.SECRET not in log.read_text(errors="replace"), log.name


def _listed(cloud: Cloud, server_id: str) -> list[dict[str, Any]]:
    answer = cloud.request("GET", f"/servers/{server_id}/os-volume_attachments", version=LATEST)
    found: list[dict[str, Any]] = answer.json()["volumeAttachments"]
    return found


def test_snapshots_of_a_volume_in_files(cloud: Cloud, cinder: fake.Cinder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cinder gets help and a report, and the server can be rebooted meanwhile."""
    by_rbd, server_id = cinder.volume("demo"), server(cloud)
    assert attach(cloud, server_id, by_rbd).status_code == 200
    attached(cloud, cinder, server_id, by_rbd)
    monkeypatch.setattr(cinder, "transport", "nfs")
    volume_id = cinder.volume("demo")
    assert attach(cloud, server_id, volume_id).status_code == 200
    wait_for("Cinder has it attached", lambda: [item[1] for item in cinder.held(volume_id)] == ["attached"])
    snapshot_id = cinder.begun(volume_id)
    refused = _new_file(cloud, by_rbd, snapshot_id)
    assert (refused.status_code, "only those by nfs are files here" in refused.text) == (400, True)

    cinder.seconds = 1.0
    cinder.troubles.append(("POST", "/snapshots/", fake.DONE_LATE))
    answer = _new_file(cloud, volume_id, snapshot_id)
    assert (answer.status_code, answer.json()) == (200, {"snapshot": {"id": None, "volumeId": volume_id}})
    new = f"volume-{volume_id}.{snapshot_id}"
    wait_for("the guest has the new file", lambda: _files(cloud, volume_id)[0] == new)
    wait_for("the server is idle", lambda: _reboot(cloud, server_id).status_code == 202)
    wait_for("Cinder knows", lambda: cinder.reports == [(snapshot_id, "creating")])
    cloud.wait_active([server_id])
    assert _files(cloud, volume_id)[0] == new

    cinder.snapshots[snapshot_id]["status"] = "deleting"
    info = json.dumps({"volume_id": volume_id, "type": "qcow2", "file_to_merge": None, "merge_target_file": None})
    path = f"/os-assisted-volume-snapshots/{snapshot_id}?delete_info={quote(info)}"
    assert cloud.request("DELETE", path).status_code == 204
    wait_for("Cinder knows", lambda: cinder.reports[1:] == [(snapshot_id, "deleting")])
    actions = cloud.request("GET", f"/servers/{server_id}/os-instance-actions").json()["instanceActions"]
    assert [item["action"] for item in actions[:3]] == ["volume_snapshot_delete", "reboot", "volume_snapshot_create"]
    cinder.snapshots.clear()


def _new_file(cloud: Cloud, volume_id: str, snapshot_id: str) -> requests.Response:
    info = {"snapshot_id": snapshot_id, "type": "qcow2", "new_file": f"volume-{volume_id}.{snapshot_id}"}
    body = {"snapshot": {"volume_id": volume_id, "create_info": info}}
    return cloud.request("POST", "/os-assisted-volume-snapshots", body)


def _reboot(cloud: Cloud, server_id: str) -> requests.Response:
    return cloud.request("POST", f"/servers/{server_id}/action", {"reboot": {"type": "HARD"}})


def _files(cloud: Cloud, volume_id: str) -> list[str]:
    found = [
        json.loads(path.read_text())["volume_files"] for path in cloud.path.glob("*/instances/fake-*/domains/*.json")
    ]
    (names,) = [files[volume_id] for files in found if volume_id in files]
    return names


def test_refusals(cloud: Cloud, cinder: fake.Cinder) -> None:
    server_id = server(cloud)
    theirs = attach(cloud, server_id, cinder.volume("somebody"))
    assert (theirs.status_code, "could not be found" in theirs.text) == (404, True)
    cinder.stop()
    try:
        away = attach(cloud, server_id, cinder.volume("demo"))
        assert (away.status_code, away.json()["serviceUnavailable"]["message"]) == (
            503,
            "The volume service did not answer. Please try again.",
        )
    finally:
        cinder.start()


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/attachments$"), ("PUT", "/attachments/"), ("DELETE", "/attachments/")]
)
def test_a_cinder_that_fails_after_it_did_it(cloud: Cloud, cinder: fake.Cinder, method: str, path: str) -> None:
    volume_id, server_id = cinder.volume("demo"), server(cloud)
    cinder.troubles.append((method, path, fake.ERROR_AFTER))
    assert attach(cloud, server_id, volume_id).status_code == 200
    attached(cloud, cinder, server_id, volume_id)
    assert detach(cloud, server_id, volume_id).status_code == 202
    wait_for("nobody has it", lambda: not cinder.held(volume_id) and not held(cloud))


def test_a_conductor_that_is_killed_while_it_asks(cloud: Cloud, cinder: fake.Cinder) -> None:
    volume_id, server_id = cinder.volume("demo"), server(cloud)
    cinder.seconds = 2.0
    cinder.troubles.append(("POST", "/attachments$", fake.LATE))
    assert attach(cloud, server_id, volume_id).status_code == 200
    wait_for("Cinder has been asked", lambda: cinder.held(volume_id))
    cloud.kill("conductor")
    cloud.start("conductor")
    attached(cloud, cinder, server_id, volume_id)


def test_boot_from_a_volume_that_is_made(cloud: Cloud, cinder: fake.Cinder) -> None:
    mapping = {
        "source_type": "blank",
        "destination_type": "volume",
        "volume_size": 2,
        "boot_index": 0,
        "delete_on_termination": True,
    }
    body = {
        "server": {
            "name": "bfv",
            "flavorRef": "1",
            "networks": "auto",
            "block_device_mapping_v2": [mapping],
        }
    }
    answer = cloud.request("POST", "/servers", body, version=LATEST)
    assert answer.status_code == 202, answer.text
    server_id = answer.json()["server"]["id"]
    wait_status(cloud, server_id, "ACTIVE")
    (shown,) = _listed(cloud, server_id)
    expected = [(server_id, "attached", host_of(cloud, server_id))]
    wait_for("Cinder has it attached", lambda: cinder.held(shown["volumeId"]) == expected)
    cloud.delete_all()
    wait_for("it went with the server", lambda: shown["volumeId"] not in cinder.volumes)


def test_a_migration_takes_the_attachment_along(cloud: Cloud, cinder: fake.Cinder) -> None:
    volume_id, server_id = cinder.volume("demo"), server(cloud)
    assert attach(cloud, server_id, volume_id).status_code == 200
    attached(cloud, cinder, server_id, volume_id)
    source = host_of(cloud, server_id)
    assert act(cloud, server_id, {"migrate": None}).status_code == 202
    wait_status(cloud, server_id, "VERIFY_RESIZE")
    ends = {item[2] for item in cinder.held(volume_id)}
    assert source in ends
    assert len(ends) == 2, "at the destination, and at the source as long as that may be gone back to"
    assert act(cloud, server_id, {"confirmResize": None}).status_code == 204
    wait_status(cloud, server_id, "ACTIVE")
    assert host_of(cloud, server_id) != source
    attached(cloud, cinder, server_id, volume_id)


def act(cloud: Cloud, server_id: str, body: dict[str, Any]) -> requests.Response:
    return cloud.request("POST", f"/servers/{server_id}/action", body, version=LATEST)
