"""QoS specs, encryption and default types of the volume API, quotas by type, and what admins see of backends."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from nova_lite.db.core import models
from nova_lite.db.hosts import services
from tests.support.api_client import ADMIN, MEMBER, STRANGER, fault
from tests.support.volume_api import NOBODY, Volumes


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Volumes]:
    made = Volumes(tmp_path)
    yield made
    made.manager.close()


def new_type(api: Volumes, name: str, **values: Any) -> str:
    response = api("POST", "/types", {"volume_type": {"name": name, **values}}, token=ADMIN)
    assert response.status_code == 200, response.text
    return str(response.json["volume_type"]["id"])


def new_qos(api: Volumes, name: str = "fast", **values: str) -> str:
    response = api("POST", "/qos-specs", {"qos_specs": {"name": name, **values}}, token=ADMIN)
    assert response.status_code == 200, response.text
    return str(response.json["qos_specs"]["id"])


def test_qos_specs_are_made_changed_and_deleted(api: Volumes) -> None:
    qos = new_qos(api, consumer="front-end", read_iops_sec="2000")
    path = f"/qos-specs/{qos}"
    expected = {"id": qos, "name": "fast", "consumer": "front-end", "specs": {"read_iops_sec": "2000"}}
    shown = api("GET", path, token=ADMIN).json
    assert shown["qos_specs"] == expected
    assert shown["links"][0]["href"].endswith(path)
    assert api("GET", "/qos-specs", token=ADMIN).json == {"qos_specs": [expected]}
    assert "already exist" in fault(
        api("POST", "/qos-specs", {"qos_specs": {"name": "fast"}}, token=ADMIN), "conflictingRequest", 409
    )
    changed = {"consumer": "both", "write_iops_sec": "1"}
    assert api("PUT", path, {"qos_specs": changed}, token=ADMIN).json == {"qos_specs": changed}
    keys = f"{path}/delete_keys"
    assert api("PUT", keys, {"keys": ["read_iops_sec"]}, token=ADMIN).status_code == 202
    assert api("PUT", keys, {"keys": ["read_iops_sec"]}, token=ADMIN).status_code == 400
    assert api("PUT", keys, {"keys": "x"}, token=ADMIN).status_code == 400
    shown = api("GET", path, token=ADMIN).json["qos_specs"]
    assert (shown["consumer"], shown["specs"]) == ("both", {"write_iops_sec": "1"})
    assert api("DELETE", path, token=ADMIN).status_code == 202
    assert api("GET", path, token=ADMIN).status_code == 404


def test_qos_specs_are_listed_by_pages(api: Volumes) -> None:
    ids = {new_qos(api, name) for name in "abc"}
    first = api("GET", "/qos-specs?limit=1", token=ADMIN).json["qos_specs"]
    rest = api("GET", f"/qos-specs?marker={first[0]['id']}", token=ADMIN).json["qos_specs"]
    assert {item["id"] for item in first + rest} == ids and len(rest) == 2
    assert api("GET", f"/qos-specs?marker={NOBODY}", token=ADMIN).status_code == 400


def test_qos_specs_are_given_to_types(api: Volumes) -> None:
    qos, other = new_qos(api), new_qos(api, "slow")
    one, two = new_type(api, "one"), new_type(api, "two")

    def ask(action: str, kind: str = "", which: str = qos) -> int:
        return api("GET", f"/qos-specs/{which}/{action}?vol_type_id={kind}", token=ADMIN).status_code

    def associations() -> list[str]:
        shown = api("GET", f"/qos-specs/{qos}/associations", token=ADMIN).json["qos_associations"]
        return [item["name"] for item in shown]

    assert ask("associate", one) == ask("associate", two) == ask("associate", one) == 202
    assert ask("associate", one, other) == 400
    assert ask("associate") == 400
    assert ask("associate", NOBODY) == 404
    assert associations() == ["one", "two"]
    assert api("GET", f"/types/{one}").json["volume_type"]["qos_specs_id"] == qos
    assert api("DELETE", f"/qos-specs/{qos}", token=ADMIN).status_code == 400
    assert ask("disassociate", one) == 202
    assert associations() == ["two"]
    assert ask("disassociate_all") == 202
    assert associations() == []
    assert ask("associate", two) == 202
    assert api("DELETE", f"/qos-specs/{qos}?force=true", token=ADMIN).status_code == 202
    assert api("GET", f"/types/{two}").json["volume_type"]["qos_specs_id"] is None


@pytest.mark.parametrize("values", [{}, {"name": ""}, {"name": "n", "consumer": "all"}, {"name": "n", "key": 1}])
def test_invalid_qos_specs_are_refused(api: Volumes, values: dict[str, Any]) -> None:
    assert api("POST", "/qos-specs", {"qos_specs": values}, token=ADMIN).status_code == 400


def test_encryption_of_a_type_is_set_changed_and_removed(api: Volumes) -> None:
    path = f"/types/{new_type(api, 'secret')}/encryption"
    wanted = {"provider": "luks", "control_location": "front-end", "cipher": "aes-xts-plain64", "key_size": 256}
    made = api("POST", path, {"encryption": wanted}, token=ADMIN).json["encryption"]
    assert {**made, **wanted} == made
    assert api("POST", path, {"encryption": wanted}, token=ADMIN).status_code == 400
    shown = api("GET", path, token=ADMIN).json
    times = {"created_at": shown["created_at"], "updated_at": None, "deleted_at": None, "deleted": False}
    assert shown == made | times and datetime.datetime.fromisoformat(shown["created_at"])
    assert api("GET", f"{path}/created_at", token=ADMIN).json == {"created_at": shown["created_at"]}
    assert api("GET", f"{path}/cipher", token=ADMIN).json == {"cipher": "aes-xts-plain64"}
    assert api("GET", f"{path}/color", token=ADMIN).status_code == 404
    one = f"{path}/{made['encryption_id']}"
    changed = {"control_location": "back-end", "key_size": 128}
    assert api("PUT", one, {"encryption": changed}, token=ADMIN).json == {"encryption": changed}
    assert api("GET", f"{path}/key_size", token=ADMIN).json == {"key_size": 128}
    again = api("GET", path, token=ADMIN).json
    assert again["created_at"] == shown["created_at"] <= again["updated_at"]
    assert api("PUT", f"{path}/{NOBODY}", {"encryption": changed}, token=ADMIN).status_code == 404
    empty = {"provider": "", "cipher": "", "key_size": 0, "control_location": "front-end"}
    assert api("PUT", one, {"encryption": empty}, token=ADMIN).json["encryption"] == {"control_location": "front-end"}
    assert api("GET", f"{path}/provider", token=ADMIN).json == {"provider": "luks"}
    for bad in ({"key_size": -1}, {"control_location": "moon"}, {"provider": 1}):
        assert api("PUT", one, {"encryption": bad}, token=ADMIN).status_code == 400
    assert api("DELETE", one, token=ADMIN).status_code == 202
    assert api("GET", path, token=ADMIN).json == {}
    assert api("DELETE", one, token=ADMIN).status_code == 404
    assert api("POST", path, {"encryption": {"provider": "luks"}}, token=ADMIN).status_code == 400
    assert api("POST", f"/types/{NOBODY}/encryption", {"encryption": wanted}, token=ADMIN).status_code == 404


def test_volumes_are_not_made_of_types_that_cannot_be_kept(api: Volumes) -> None:
    """A volume that only seems to be encrypted would be worse than none."""
    plain = api.make()
    for name, specs in (("secret", {}), ("many", {"multiattach": "<is> True"})):
        kind = new_type(api, name, extra_specs=specs)
        wanted = {"provider": "luks", "control_location": "front-end"}
        assert api("POST", f"/types/{kind}/encryption", {"encryption": wanted}, token=ADMIN).status_code == 200
        message = fault(api("POST", "/volumes", {"volume": {"size": 1, "volume_type": name}}), "badRequest", 400)
        assert re.search("choose another volume type|cannot be used with encrypted volumes", message)
        retype = {"os-retype": {"new_type": name, "migration_policy": "never"}}
        message = fault(api("POST", f"/volumes/{plain}/action", retype), "badRequest", 400)
        assert "has another encryption" in message


def test_encryption_of_a_type_with_volumes_is_refused(api: Volumes) -> None:
    kind = new_type(api, "used")
    api.make(volume_type="used")
    wanted = {"provider": "luks", "control_location": "front-end"}
    response = api("POST", f"/types/{kind}/encryption", {"encryption": wanted}, token=ADMIN)
    assert "is in use" in fault(response, "badRequest", 400)


def test_default_type_of_a_project_is_that_of_its_new_volumes(api: Volumes) -> None:
    kind = new_type(api, "own")
    path, at = "/default-types/demo", "3.62"
    body = {"default_type": {"volume_type": "own"}}
    assert api("PUT", path, body, token=ADMIN, version="3.61").status_code == 404
    shown = api("PUT", path, body, token=ADMIN, version=at).json
    assert shown == {"default_type": {"project_id": "demo", "volume_type_id": kind}}
    assert api("GET", path, token=ADMIN, version=at).json == shown
    assert api("GET", "/default-types", token=ADMIN, version=at).json == {"default_types": [shown["default_type"]]}
    assert api.create()["volume_type"] == "own"
    assert api("POST", "/volumes", {"volume": {"size": 1}}, token=STRANGER).json["volume"]["volume_type"] == "local"
    assert api("GET", "/types/default").json["volume_type"]["id"] == kind
    assert api("DELETE", path, token=ADMIN, version=at).status_code == 204
    assert api.create()["volume_type"] == "local"
    assert api("GET", path, token=ADMIN, version=at).status_code == 404
    private = new_type(api, "private", **{"os-volume-type-access:is_public": False})
    body = {"default_type": {"volume_type": private}}
    assert api("PUT", path, body, token=ADMIN, version=at).status_code == 400


def test_type_that_is_a_default_is_not_deleted(api: Volumes) -> None:
    kind = new_type(api, "own")
    body = {"default_type": {"volume_type": kind}}
    assert api("PUT", "/default-types/demo", body, token=ADMIN, version="3.62").status_code == 200
    assert "is the default" in fault(api("DELETE", f"/types/{kind}", token=ADMIN), "badRequest", 400)


def test_members_see_and_change_nothing_of_the_admins(api: Volumes) -> None:
    for method, path, body in (
        ("GET", "/qos-specs", None),
        ("POST", "/qos-specs", {"qos_specs": {"name": "n"}}),
        ("GET", f"/qos-specs/{NOBODY}/associate?vol_type_id=1", None),
        ("POST", "/types/local/encryption", {"encryption": {}}),
        ("PUT", "/os-quota-class-sets/default", {"quota_class_set": {"volumes": 1}}),
        ("GET", "/os-hosts", None),
        ("GET", "/scheduler-stats/get_pools", None),
        ("GET", "/capabilities/host1", None),
        ("PUT", "/os-services/disable", {"host": "host1"}),
    ):
        assert api(method, path, body, token=MEMBER).status_code == 403, path
    assert api("PUT", "/default-types/demo", {}, version="3.62").status_code == 403


# --- quotas


def test_class_limits_are_those_of_projects_without_own_ones(api: Volumes) -> None:
    path = "/os-quota-class-sets/default"
    changed = api("PUT", path, {"quota_class_set": {"volumes": 1, "backups": 7}}, token=ADMIN).json["quota_class_set"]
    assert (changed["volumes"], changed["backups"]) == (1, 7)
    assert "id" not in changed
    assert api("GET", "/os-quota-sets/demo").json["quota_set"]["volumes"] == 1
    assert api("GET", "/os-quota-sets/demo/defaults").json["quota_set"]["volumes"] == 1
    api.make()
    assert api("POST", "/volumes", {"volume": {"size": 1}}).status_code == 413
    assert api("PUT", "/os-quota-sets/demo", {"quota_set": {"volumes": 2}}, token=ADMIN).status_code == 200
    api.make()
    assert api("PUT", "/os-quota-class-sets/gold", {"quota_class_set": {}}, token=ADMIN).status_code == 404


def test_types_have_quotas_of_their_own(api: Volumes) -> None:
    new_type(api, "fast")
    limits = {"volumes_fast": 1, "gigabytes_fast": 3, "snapshots_fast": 0}
    shown = api("PUT", "/os-quota-sets/demo", {"quota_set": limits}, token=ADMIN).json["quota_set"]
    assert {**shown, **limits} == shown and shown["volumes_local"] == -1
    volume = api.make(volume_type="fast", size=2)
    refused = api("POST", "/volumes", {"volume": {"size": 1, "volume_type": "fast"}})
    assert "volumes_fast" in fault(refused, "overLimit", 413)
    api.make(size=5)
    refused = api("POST", f"/volumes/{volume}/action", {"os-extend": {"new_size": 4}})
    assert "gigabytes_fast" in fault(refused, "overLimit", 413)
    refused = api("POST", "/snapshots", {"snapshot": {"volume_id": volume}})
    assert "snapshots_fast" in fault(refused, "overLimit", 413)
    used = api("GET", "/os-quota-sets/demo?usage=true").json["quota_set"]
    assert (used["volumes_fast"]["in_use"], used["gigabytes_fast"]["in_use"]) == (1, 2)
    assert (used["volumes"]["in_use"], used["gigabytes"]["in_use"]) == (2, 7)
    assert api("PUT", "/os-quota-sets/demo", {"quota_set": {"volumes_slow": 1}}, token=ADMIN).status_code == 400


def test_quota_of_a_type_counts_for_changes_of_the_type_and_for_transfers(api: Volumes) -> None:
    new_type(api, "fast")
    limits = {"quota_set": {"volumes_fast": 1, "gigabytes_fast": 2}}
    for project in ("demo", "other"):
        assert api("PUT", f"/os-quota-sets/{project}", limits, token=ADMIN).status_code == 200
    retype = {"os-retype": {"new_type": "fast", "migration_policy": "never"}}
    large, volume = api.make(size=3), api.make(size=2)
    assert "gigabytes_fast" in fault(api("POST", f"/volumes/{large}/action", retype), "overLimit", 413)
    assert [api("POST", f"/volumes/{volume}/action", retype).status_code for _ in range(2)] == [202, 202]
    assert "volumes_fast" in fault(api("POST", f"/volumes/{api.make()}/action", retype), "overLimit", 413)

    body = {"volume": {"size": 1, "volume_type": "fast"}}
    assert api("POST", "/volumes", body, token=STRANGER).status_code == 202
    offer = api("POST", "/os-volume-transfer", {"transfer": {"volume_id": volume}}).json["transfer"]
    accept = {"accept": {"auth_key": offer["auth_key"]}}
    refused = api("POST", f"/os-volume-transfer/{offer['id']}/accept", accept, token=STRANGER)
    assert "volumes_fast" in fault(refused, "overLimit", 413)


def test_size_of_one_volume_is_limited(api: Volumes) -> None:
    limits = {"per_volume_gigabytes": 2}
    assert api("PUT", "/os-quota-sets/demo", {"quota_set": limits}, token=ADMIN).status_code == 200
    volume = api.make(size=2)
    assert api("POST", "/volumes", {"volume": {"size": 3}}).status_code == 413
    assert api("POST", f"/volumes/{volume}/action", {"os-extend": {"new_size": 3}}).status_code == 413


def test_quota_of_a_type_with_a_long_name_is_refused(api: Volumes) -> None:
    name = "n" * 60
    new_type(api, name)
    response = api("PUT", "/os-quota-sets/demo", {"quota_set": {f"volumes_{name}": 1}}, token=ADMIN)
    assert "too long" in fault(response, "badRequest", 400)


# --- backends


@pytest.fixture
def hosted(api: Volumes) -> Volumes:
    api.manager.db.write(services.report, "host1", "nova-compute", "compute", "1.0")
    return api


def test_hosts_pools_and_capabilities(hosted: Volumes) -> None:
    hosted.make(size=3)
    (host,) = hosted("GET", "/os-hosts", token=ADMIN).json["hosts"]
    assert (host["host_name"], host["service"]) == ("host1", "cinder-volume")
    total = hosted("GET", "/os-hosts/host1", token=ADMIN).json["host"][0]["resource"]
    assert (total["project"], total["volume_count"], total["total_volume_gb"]) == ("(total)", "1", "3")
    assert hosted("GET", "/os-hosts/nobody", token=ADMIN).status_code == 404
    (pool,) = hosted("GET", "/scheduler-stats/get_pools?detail=True", token=ADMIN).json["pools"]
    shown = hosted("GET", f"/capabilities/{pool['name'].replace('#', '%23')}", token=ADMIN).json
    for name in ("vendor_name", "volume_backend_name", "storage_protocol"):
        assert shown[name] == pool["capabilities"][name]
    assert hosted("GET", "/scheduler-stats/get_pools", token=ADMIN).json["pools"] == [{"name": pool["name"]}]
    assert hosted("GET", "/capabilities/nobody", token=ADMIN).status_code == 404


@pytest.mark.parametrize(
    ("action", "body", "status"),
    [
        ("disable", {"host": "host1", "binary": "cinder-volume"}, 501),
        ("disable-log-reason", {"host": "host1", "binary": "cinder-volume"}, 400),
        ("enable", {"host": "nobody", "binary": "cinder-volume"}, 404),
        ("disable", {"host": "host1", "binary": "other"}, 404),
        ("freeze", {"host": "nobody"}, 400),
        ("thaw", {"host": "nobody"}, 400),
    ],
)
def test_changes_of_services_are_refused(hosted: Volumes, action: str, body: dict[str, Any], status: int) -> None:
    assert hosted("PUT", f"/os-services/{action}", body, token=ADMIN).status_code == status


def test_extensions_are_listed(api: Volumes) -> None:
    names = [item["name"] for item in api("GET", "/extensions").json["extensions"]]
    assert {"Hosts", "VolumeTransfer"} <= set(names)


# --- volumes and snapshots


def test_image_metadata_are_set_and_unset(api: Volumes) -> None:
    volume = api.make()
    action = f"/volumes/{volume}/action"
    metadata = {"image_name": "i", "ramdisk_id": "r"}
    assert api("POST", action, {"os-set_image_metadata": {"metadata": metadata}}).json == {"metadata": metadata}
    assert api("GET", f"/volumes/{volume}").json["volume"]["volume_image_metadata"] == metadata
    assert api("POST", action, {"os-unset_image_metadata": {"key": "ramdisk_id"}}).status_code == 200
    assert api("POST", action, {"os-unset_image_metadata": {"key": "ramdisk_id"}}).status_code == 404
    assert api("POST", action, {"os-show_image_metadata": {}}).json == {"metadata": {"image_name": "i"}}
    for bad in ({}, {"metadata": {"a": 1}}, {"metadata": {str(number): "" for number in range(129)}}):
        assert api("POST", action, {"os-set_image_metadata": bad}).status_code == 400
    changed = {"os-set_image_metadata": {"metadata": metadata}}
    assert api("POST", action, changed, token=STRANGER).status_code == 404


def test_status_and_progress_of_a_snapshot_are_updated(api: Volumes) -> None:
    snapshot = api("POST", "/snapshots", {"snapshot": {"volume_id": api.make()}}).json["snapshot"]["id"]
    action = f"/snapshots/{snapshot}/action"

    def ask(**fields: Any) -> int:
        return api("POST", action, {"os-update_snapshot_status": fields}, token=ADMIN).status_code

    assert ask(status="deleting") == ask(status="error", progress="200%") == 400
    assert ask(status="error", progress="80%") == 202
    shown = api("GET", f"/snapshots/{snapshot}").json["snapshot"]
    assert (shown["status"], shown["os-extended-snapshot-attributes:progress"]) == ("error", "80%")
    assert ask(status="available") == 400
    changed = {"os-update_snapshot_status": {"status": "error"}}
    assert api("POST", action, changed, token=STRANGER).status_code == 404


def test_snapshot_that_a_host_makes_is_kept_whatever_status_a_user_sets(api: Volumes) -> None:
    snapshot = api("POST", "/snapshots", {"snapshot": {"volume_id": api.make()}}).json["snapshot"]["id"]
    path = f"/snapshots/{snapshot}"
    assert api("POST", f"{path}/action", {"os-update_snapshot_status": {"status": "error"}}).status_code == 202
    assert "be made just now" in fault(api("DELETE", path), "badRequest", 400)
    assert api("POST", f"{path}/action", {"os-force_delete": {}}, token=ADMIN).status_code == 400
    api.done()
    assert api("DELETE", path).status_code == 202
    api.done()
    assert api("GET", path).status_code == 404


def test_snapshot_that_an_image_of_a_server_makes_is_kept_whatever_status_a_user_sets(api: Volumes) -> None:
    snapshot = api("POST", "/snapshots", {"snapshot": {"volume_id": api.make()}}).json["snapshot"]["id"]
    api.done()

    def make(uow: Any) -> None:
        values = {"status": "creating", "instance_uuid": NOBODY}
        uow.change(sa.update(models.VolumeSnapshot).where(models.VolumeSnapshot.id == snapshot).values(**values))

    api.manager.db.write(make)
    path = f"/snapshots/{snapshot}"
    assert api("POST", f"{path}/action", {"os-update_snapshot_status": {"status": "available"}}).status_code == 202
    assert "be made just now" in fault(api("DELETE", path), "badRequest", 400)


def test_newer_versions_have_more_fields(api: Volumes) -> None:
    volume = api.make()
    old = api("GET", f"/volumes/{volume}", token=ADMIN, version="3.47").json["volume"]
    new = api("GET", f"/volumes/{volume}", token=ADMIN, version="3.65").json["volume"]
    kind = api("GET", "/types/local").json["volume_type"]["id"]
    assert new.keys() - old.keys() == {
        "shared_targets",
        "service_uuid",
        "cluster_name",
        "volume_type_id",
        "consumes_quota",
    }
    assert new["volume_type_id"] == kind
    snapshot = api("POST", "/snapshots", {"snapshot": {"volume_id": volume}}).json["snapshot"]["id"]
    assert api("GET", f"/snapshots/{snapshot}", version="3.41").json["snapshot"]["user_id"]
    assert "user_id" not in api("GET", f"/snapshots/{snapshot}", version="3.40").json["snapshot"]


def test_newer_transfers_have_a_url_of_their_own(api: Volumes) -> None:
    body = {"transfer": {"volume_id": api.make(), "name": "t", "no_snapshots": False}}
    assert api("POST", "/volume-transfers", body, version="3.54").status_code == 404
    made = api("POST", "/volume-transfers", body, version="3.57").json["transfer"]
    assert (made["no_snapshots"], made["source_project_id"], made["accepted"]) == (False, "demo", False)
    path = f"/volume-transfers/{made['id']}"
    assert "accepted" not in api("GET", path, version="3.55").json["transfer"]
    assert len(api("GET", "/volume-transfers/detail", version="3.55").json["transfers"]) == 1
    accept = {"accept": {"auth_key": made["auth_key"]}}
    assert api("POST", f"{path}/accept", accept, token=STRANGER, version="3.55").status_code == 202
    body = {"transfer": {"volume_id": api.make(), "no_snapshots": True}}
    assert api("POST", "/volume-transfers", body, version="3.55").status_code == 400


def test_url_with_a_slash_at_its_end_names_nothing(api: Volumes) -> None:
    for method in ("GET", "PUT", "DELETE"):
        assert api(method, "/volumes/", {"volume": {"name": "n"}}).status_code == 404


def test_volume_is_not_removed_without_its_data(api: Volumes) -> None:
    volume = api.make()
    assert "is not supported" in fault(
        api("POST", f"/volumes/{volume}/action", {"os-unmanage": {}}), "notImplemented", 501
    )
