"""Changes of the microversions from 2.97 on."""

from __future__ import annotations

from typing import Any

import pytest

from nova_lite.api.http import inventory
from nova_lite.base import exceptions
from nova_lite.objects import ShareMapping, ShareState
from nova_lite.operations.states import PowerState
from tests.support.api_client import ADMIN, STRANGER, Client, fault

SHARE = "3e9b8d9e-4f8a-4a3c-9a7e-0d7a4b6f1c11"
MAPPING = "7a0f2c1e-90a5-4b9e-8a4e-6e1d0d8c2b22"


def with_share(api: Client, **values: Any) -> str:
    """Return the path of the shares of a server with one."""
    mapping = ShareMapping(
        uuid=MAPPING, share_id=SHARE, tag="data", location="nfs/data", state=values.pop("state", ShareState.ATTACHED)
    )
    return f"/servers/{api.conductor.add(shares=[mapping], **values).uuid}/shares"


def test_shares_are_shown_since_2_97(api: Client) -> None:
    path = with_share(api, power_state=PowerState.SHUTDOWN)
    shown = {"share_id": SHARE, "status": "inactive", "tag": "data"}
    fault(api("GET", path, version="2.96"), "itemNotFound", 404)
    assert api.json("GET", path, version="2.97") == {"shares": [shown]}
    assert api.json("GET", f"{path}/{SHARE}", version="2.97") == {"share": shown}
    whole = api.json("GET", f"{path}/{SHARE}", version="2.97", token=ADMIN)["share"]
    assert whole == shown | {"uuid": MAPPING, "export_location": "nfs/data"}
    message = fault(api("GET", f"{path}/{MAPPING}", version="2.97"), "itemNotFound", 404)
    assert message == f"Share {MAPPING} could not be found."
    fault(api("GET", path, version="2.97", token=STRANGER), "itemNotFound", 404)
    fault(api("GET", f"{path}?x=1", version="2.97"), "badRequest", 400)


@pytest.mark.parametrize(
    ("state", "power_state", "status"),
    [
        (ShareState.ATTACHED, PowerState.RUNNING, "active"),
        (ShareState.ATTACHED, PowerState.PAUSED, "active"),
        (ShareState.ATTACHED, PowerState.CRASHED, "inactive"),
        (ShareState.ATTACHING, PowerState.SHUTDOWN, "attaching"),
        (ShareState.DETACHING, PowerState.RUNNING, "detaching"),
        (ShareState.ERROR, PowerState.RUNNING, "error"),
    ],
)
def test_status_of_a_share_follows_its_guest(
    api: Client, state: ShareState, power_state: PowerState, status: str
) -> None:
    path = with_share(api, state=state, power_state=power_state)
    assert [share["status"] for share in api.json("GET", path, version="2.97")["shares"]] == [status]


def test_share_is_attached_and_detached_by_operations(api: Client) -> None:
    path = with_share(api)
    answer = api("POST", path, {"share": {"share_id": SHARE}}, version="2.97")
    assert (answer.status_code, answer.json["share"]["share_id"]) == (201, SHARE)
    assert api.last_call("accept_action")[-2:] == ("attach_share", {"share_id": SHARE, "tag": SHARE})
    assert api("DELETE", f"{path}/{SHARE}", version="2.97").status_code == 200
    assert api.last_call("accept_action")[-2:] == ("detach_share", {"share_id": SHARE})


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"share": {}},
        {"share": {"share_id": "x"}},
        {"share": {"share_id": SHARE, "tag": "a b"}},
        {"share": {"share_id": SHARE, "tag": "t" * 37}},
    ],
)
def test_share_with_a_wrong_body_is_refused(api: Client, wrong: dict[str, Any]) -> None:
    fault(api("POST", with_share(api), wrong, version="2.97"), "badRequest", 400)


def test_server_shows_known_image_properties_since_2_98(api: Client) -> None:
    remembered = {"image_hw_disk_bus": "scsi", "image_os_distro": "debian", "image_owner_id": "x", "image_my-own": "y"}
    instance = api.conductor.add(system_metadata={**remembered, "password": "secret"})
    for path, key in ((f"/servers/{instance.uuid}", "server"), ("/servers/detail", "servers")):
        before = api.json("GET", path, version="2.97")[key]
        after = api.json("GET", path, version="2.98")[key]
        before, after = (one[0] if isinstance(one, list) else one for one in (before, after))
        assert "properties" not in before["image"]
        assert after["image"]["properties"] == {"hw_disk_bus": "scsi", "os_distro": "debian", "owner_id": "x"}
    volume = api.conductor.add(image_ref="")
    assert api.json("GET", f"/servers/{volume.uuid}", version="2.98")["server"]["image"] == ""


def test_server_shows_scheduler_hints_since_2_100(api: Client) -> None:
    hints = {"same_host": [SHARE], "query": "[]"}
    instance = api.conductor.add(scheduler_hints=hints)
    path = f"/servers/{instance.uuid}"
    assert "scheduler_hints" not in api.json("GET", path, version="2.99")["server"]
    assert api.json("GET", path, version="2.100")["server"]["scheduler_hints"] == hints
    update = {"server": {"name": "n"}}
    assert api.json("PUT", path, update, version="2.100")["server"]["scheduler_hints"] == hints
    assert api.json("GET", "/servers/detail", version="2.100")["servers"][0]["scheduler_hints"] == hints


def test_flavors_lose_two_fields_in_2_102(api: Client) -> None:
    gone = {"rxtx_factor", "OS-FLV-DISABLED:disabled"}
    for version, there in (("2.101", gone), ("2.102", set())):
        (one, *_) = api.json("GET", "/flavors/detail", version=version)["flavors"]
        assert set(one) & gone == there
    body: dict[str, Any] = {"flavor": {"name": "f", "ram": 1, "vcpus": 1, "disk": 0, "rxtx_factor": 1.0}}
    message = fault(api("POST", "/flavors", body, version="2.102", token=ADMIN), "badRequest", 400)
    assert "'rxtx_factor' was unexpected" in message
    del body["flavor"]["rxtx_factor"]
    made = api.json("POST", "/flavors", body, version="2.102", token=ADMIN)["flavor"]
    assert not set(made) & gone
    assert api("GET", "/flavors?sort_key=rxtx_factor", version="2.101").status_code == 200
    fault(api("GET", "/flavors?sort_key=rxtx_factor", version="2.102"), "badRequest", 400)


def test_flavors_are_filtered_by_name_since_2_102(api: Client) -> None:
    for name in ("web.small", "web.large", "db"):
        body = {"flavor": {"name": name, "ram": 1, "vcpus": 1, "disk": 0}}
        api.json("POST", "/flavors", body, token=ADMIN)
    for path in ("/flavors", "/flavors/detail"):
        flavors = api.json("GET", f"{path}?name=^web", version="2.102")["flavors"]
        assert {one["name"] for one in flavors} == {"web.small", "web.large"}
    fault(api("GET", "/flavors?name=web", version="2.101"), "badRequest", 400)
    assert len(api.json("GET", "/flavors?name=web", version="2.74")["flavors"]) > 2
    fault(api("GET", "/flavors?name=(", version="2.102"), "badRequest", 400)


QUERIES = sorted(
    {row.path for row in inventory.route_entries() if row.served and row.method == "GET" and row.until is None}
)


@pytest.mark.parametrize("path", QUERIES)
def test_unknown_parameters_of_every_get_are_errors_since_2_102(api: Client, path: str) -> None:
    url = path.replace("{", "").replace("}", "") + "?nonsense=1"
    message = fault(api("GET", url, version="2.102", token=ADMIN), "badRequest", 400)
    assert "nonsense" in message


def test_unknown_parameters_are_ignored_before_2_102(api: Client) -> None:
    instance = api.conductor.add()
    assert api("GET", f"/servers/{instance.uuid}?nonsense=1", version="2.101").status_code == 200
    assert api("GET", "/extensions?nonsense=1", version="2.101").status_code == 200


def test_volumes_boot_ends_with_2_102(api: Client) -> None:
    assert api.json("GET", "/os-volumes_boot", version="2.102") == {"servers": []}
    fault(api("GET", "/os-volumes_boot", version="2.103"), "itemNotFound", 404)


def test_server_zone_is_pinned_and_unpinned_since_2_104(api: Client) -> None:
    instance = api.conductor.add()
    path = f"/servers/{instance.uuid}"
    body = {"server": {"pinned_availability_zone": None}}
    fault(api("PUT", path, body, version="2.103"), "badRequest", 400)
    assert api.json("PUT", path, body, version="2.104")["server"]["pinned_availability_zone"] is None
    assert api.last_call("instance_update") == (instance.uuid, {"requested_availability_zone": None})
    fault(api("PUT", path, {"server": {"pinned_availability_zone": 5}}, version="2.104"), "badRequest", 400)
    api.conductor.error = exceptions.Conflict("no")
    fault(api("PUT", path, {"server": {"pinned_availability_zone": "z"}}, version="2.104"), "conflictingRequest", 409)
