"""Servers: keys by version, create, list, and actions."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from nova_lite.api.compute.servers import schemas
from nova_lite.base import exceptions
from nova_lite.objects import NetworkRequest, RequestedDestination
from nova_lite.operations import states
from tests.support.api_client import ADMIN, MEMBER, Client, fault, make_client, make_conf
from tests.support.control_plane import IMAGE_ID, NETWORK_ID, make_fault

KEYS_21 = {
    "id",
    "name",
    "status",
    "tenant_id",
    "user_id",
    "metadata",
    "hostId",
    "image",
    "flavor",
    "created",
    "updated",
    "addresses",
    "accessIPv4",
    "accessIPv6",
    "links",
    "OS-DCF:diskConfig",
    "progress",
    "config_drive",
    "key_name",
    "OS-EXT-AZ:availability_zone",
    "OS-SRV-USG:launched_at",
    "OS-SRV-USG:terminated_at",
    "security_groups",
    "OS-EXT-SRV-ATTR:host",
    "OS-EXT-SRV-ATTR:instance_name",
    "OS-EXT-SRV-ATTR:hypervisor_hostname",
    "OS-EXT-STS:task_state",
    "OS-EXT-STS:vm_state",
    "OS-EXT-STS:power_state",
    "os-extended-volumes:volumes_attached",
}
#: version, what it adds to show for admins
ADDED: list[tuple[str, set[str]]] = [
    (
        "2.3",
        {
            f"OS-EXT-SRV-ATTR:{name}"
            for name in (
                "reservation_id",
                "launch_index",
                "hostname",
                "kernel_id",
                "ramdisk_id",
                "root_device_name",
                "user_data",
            )
        },
    ),
    ("2.9", {"locked"}),
    ("2.16", {"host_status"}),
    ("2.19", {"description"}),
    ("2.26", {"tags"}),
    ("2.63", {"trusted_image_certificates"}),
    ("2.71", {"server_groups"}),
    ("2.73", {"locked_reason"}),
    ("2.96", {"pinned_availability_zone"}),
    ("2.100", {"scheduler_hints"}),
]
FOR_ADMINS = {
    f"OS-EXT-SRV-ATTR:{name}"
    for name in (
        "host",
        "hypervisor_hostname",
        "instance_name",
        "kernel_id",
        "launch_index",
        "ramdisk_id",
        "reservation_id",
        "root_device_name",
        "user_data",
    )
} | {"host_status"}


def keys_at(version: str) -> set[str]:
    minor = int(version.partition(".")[2])
    return KEYS_21.union(*(keys for since, keys in ADDED if minor >= int(since.partition(".")[2])))


def versions_around() -> list[str]:
    """Return each version that adds keys, and the version before it."""
    minors = {1} | {int(since[2:]) + step for since, _ in ADDED for step in (-1, 0)}
    return [f"2.{minor}" for minor in sorted(minors)]


def body(**changes: Any) -> dict[str, Any]:
    return {"server": {"name": "vm", "imageRef": IMAGE_ID, "flavorRef": "1"} | changes}


# --- looks


def test_server_has_thirty_keys_at_2_1() -> None:
    assert len(KEYS_21) == 30


@pytest.mark.parametrize("version", versions_around())
def test_server_has_the_keys_of_its_version_for_admins(api: Client, version: str) -> None:
    instance = api.conductor.add()
    shown = api.json("GET", f"/servers/{instance.uuid}", version=version, token=ADMIN)["server"]
    assert set(shown) == keys_at(version)
    (listed,) = api.json("GET", "/servers/detail", version=version, token=ADMIN)["servers"]
    assert set(listed) == keys_at(version) - {"server_groups"}


@pytest.mark.parametrize("version", ["2.1", "2.3", "2.16", "2.89", "2.90", "2.96", "2.104"])
def test_server_has_the_keys_of_its_version_for_its_owner(api: Client, version: str) -> None:
    instance = api.conductor.add()
    shown = api.json("GET", f"/servers/{instance.uuid}", version=version)["server"]
    hidden = FOR_ADMINS if version in ("2.90", "2.96", "2.104") else FOR_ADMINS | {"OS-EXT-SRV-ATTR:hostname"}
    assert set(shown) == keys_at(version) - hidden


def test_server_shows_the_instances_values(api: Client) -> None:
    instance = api.conductor.add(metadata={"k": "v"}, config_drive=True, auto_disk_config=True)
    shown = api.json("GET", f"/servers/{instance.uuid}")["server"]
    assert shown["created"] == shown["updated"] == "2026-11-21T08:20:32Z"
    assert shown["OS-SRV-USG:launched_at"] == "2026-11-21T08:20:32.425308"
    assert re.fullmatch("[0-9a-f]{56}", shown["hostId"])
    assert shown["addresses"] == {
        "private": [
            {
                "version": 4,
                "addr": "10.0.0.5",
                "OS-EXT-IPS:type": "fixed",
                "OS-EXT-IPS-MAC:mac_addr": "fa:16:3e:00:00:01",
            }
        ]
    }
    assert shown["image"] == {
        "id": IMAGE_ID,
        "links": [{"rel": "bookmark", "href": f"http://cloud:8774/images/{IMAGE_ID}"}],
    }
    assert shown["flavor"] == {"id": "1", "links": [{"rel": "bookmark", "href": "http://cloud:8774/flavors/1"}]}
    assert shown["security_groups"] == [{"name": "default"}]
    assert (shown["config_drive"], shown["OS-DCF:diskConfig"], shown["accessIPv4"]) == ("True", "AUTO", "")
    assert shown["links"][0] == {"rel": "self", "href": f"http://cloud:8774/v2.1/servers/{instance.uuid}"}


def test_host_id_differs_by_project(api: Client) -> None:
    ids = [api.conductor.add(project_id=project).uuid for project in ("demo", "demo", "other")]
    seen = [api.json("GET", f"/servers/{uuid}", token=ADMIN)["server"]["hostId"] for uuid in ids]
    assert seen[0] == seen[1] != seen[2]


def test_server_embeds_its_flavor_since_2_47(api: Client) -> None:
    instance = api.conductor.add()
    shown = api.json("GET", f"/servers/{instance.uuid}", version="2.47")["server"]["flavor"]
    assert shown == {
        "vcpus": 1,
        "ram": 512,
        "disk": 1,
        "ephemeral": 0,
        "swap": 0,
        "original_name": "m1.tiny",
        "extra_specs": {"a": "b"},
    }


@pytest.mark.parametrize(
    ("vm_state", "task_state", "status"),
    [
        (states.BUILDING, states.SPAWNING, "BUILD"),
        (states.ACTIVE, None, "ACTIVE"),
        (states.ACTIVE, states.POWERING_OFF, "ACTIVE"),
        (states.ACTIVE, states.REBOOTING, "REBOOT"),
        (states.ACTIVE, states.REBOOTING_HARD, "HARD_REBOOT"),
        (states.STOPPED, None, "SHUTOFF"),
        (states.ERROR, states.DELETING, "ERROR"),
        (states.DELETED, None, "DELETED"),
    ],
)
def test_server_status_follows_from_its_states(api: Client, vm_state: str, task_state: str | None, status: str) -> None:
    instance = api.conductor.add(vm_state=vm_state, task_state=task_state)
    shown = api.json("GET", f"/servers/{instance.uuid}")["server"]
    assert shown["status"] == status
    assert ("progress" in shown) == (status in ("ACTIVE", "BUILD"))


def test_fault_has_details_for_admins_only(api: Client) -> None:
    instance = api.conductor.add(vm_state=states.ERROR, fault=make_fault(), host=None, node=None)
    path = f"/servers/{instance.uuid}"
    expected = {"code": 500, "created": "2026-11-21T08:20:32Z", "message": "No valid host was found."}
    assert api.json("GET", path)["server"]["fault"] == expected
    assert api.json("GET", path, token=ADMIN)["server"]["fault"] == expected | {"details": "who knows"}


# --- create


def test_create_is_accepted(api: Client) -> None:
    response = api("POST", "/servers", body())
    assert response.status_code == 202
    server = response.json["server"]
    assert set(server) == {"id", "links", "OS-DCF:diskConfig", "security_groups", "adminPass"}
    assert response.headers["Location"] == f"http://cloud:8774/v2.1/servers/{server['id']}"
    (request,) = api.last_call("create_instances")
    assert (request.name, request.flavor_id, request.image_ref, request.networks) == ("vm", "1", IMAGE_ID, "auto")
    assert (request.min_count, request.max_count) == (1, 1)
    assert request.admin_password == server["adminPass"]
    assert api.last_call("build_instances") == ([server["id"]],)
    context = api.conductor.contexts[-1]
    assert (context.user_id, context.project_id, context.is_admin) == ("alice", "demo", False)


def test_generated_passwords_differ_and_are_hidden_by_option(api: Client, tmp_path) -> None:
    passwords = {api.json("POST", "/servers", body(), 202)["server"]["adminPass"] for _ in range(20)}
    assert len(passwords) == 20
    assert all(re.fullmatch("[A-Za-z0-9]{12}", password) for password in passwords)
    assert api.json("POST", "/servers", body(adminPass="mine"), 202)["server"]["adminPass"] == "mine"
    silent = make_client(make_conf(tmp_path, "enable_instance_password = false\n"))
    assert "adminPass" not in silent.json("POST", "/servers", body(adminPass="mine"), 202)["server"]


def test_idempotency_key_is_sent_with_a_fingerprint(api: Client) -> None:
    key = {"Idempotency-Key": "a wish"}
    requests = []
    for content in (body(), body(adminPass="mine"), body(name="other")):
        api.json("POST", "/servers", content, 202, headers=key)
        requests.append(api.last_call("create_instances")[0])
    assert {request.idempotency_key for request in requests} == {"a wish"}
    first, with_password, other = (request.fingerprint for request in requests)
    assert first == with_password != other
    api.json("POST", "/servers", body(), 202)
    assert api.last_call("create_instances")[0].idempotency_key is None


def test_repeated_create_does_not_return_a_generated_password(api: Client) -> None:
    create = api.conductor.own_answer("create_instances")

    def repeated(context: Any, request: Any) -> Any:
        return msgspec.structs.replace(create(context, request), earlier=True)

    api.conductor.script("create_instances", repeated)
    assert "adminPass" not in api.json("POST", "/servers", body(), 202)["server"]
    assert api.json("POST", "/servers", body(adminPass="mine"), 202)["server"]["adminPass"] == "mine"


@pytest.mark.parametrize("key", ["", "k" * 256, "\xe9"])
def test_idempotency_key_must_be_ascii(api: Client, key: str) -> None:
    said = fault(api("POST", "/servers", body(), headers={"Idempotency-Key": key}), "badRequest", 400)
    assert said == "Idempotency-Key must be 1 to 255 printable ASCII characters."


def test_create_accepts_the_openstack_clients_body(api: Client) -> None:
    device = {
        "uuid": IMAGE_ID,
        "boot_index": 0,
        "source_type": "image",
        "destination_type": "local",
        "delete_on_termination": True,
    }
    server = body(
        min_count=2,
        max_count=3,
        networks=[{"uuid": NETWORK_ID}],
        block_device_mapping_v2=[device],
        security_groups=[{"name": "default"}, {"name": "default"}],
        key_name="k1",
        metadata={"foo": "bar"},
        tags=["a", "b"],
        description="words",
        config_drive=True,
        user_data="aGVsbG8=",
        availability_zone="nova",
    )
    assert api("POST", "/servers", server, version="2.96").status_code == 202
    (request,) = api.last_call("create_instances")
    assert (request.min_count, request.max_count) == (2, 3)
    assert request.networks == [NetworkRequest(network_id=NETWORK_ID)]
    assert request.security_groups == ["default"]
    assert (request.key_name, request.tags, request.description) == ("k1", ["a", "b"], "words")
    assert (request.config_drive, request.user_data, request.metadata) == (True, "aGVsbG8=", {"foo": "bar"})
    assert (request.availability_zone, request.forced_host) == ("nova", None)


def test_create_accepts_an_image_in_the_block_device_mapping_only(api: Client) -> None:
    device = {"uuid": IMAGE_ID, "boot_index": "0", "source_type": "image", "destination_type": "local"}
    for image in ({}, {"imageRef": ""}):
        server = {"name": "vm", "flavorRef": 1, "block_device_mapping_v2": [device]} | image
        assert api("POST", "/servers", {"server": server}).status_code == 202
        (request,) = api.last_call("create_instances")
        assert (request.image_ref, request.flavor_id) == (IMAGE_ID, "1")


@pytest.mark.parametrize(
    ("networks", "expected"),
    [
        ("auto", "auto"),
        ("none", "none"),
        ([], "none"),
        (
            [{"uuid": NETWORK_ID, "fixed_ip": "10.0.0.9", "tag": "t"}],
            [NetworkRequest(network_id=NETWORK_ID, fixed_ip="10.0.0.9", tag="t")],
        ),
        ([{"port": NETWORK_ID}], [NetworkRequest(port_id=NETWORK_ID)]),
    ],
)
def test_create_networks_become_requests(api: Client, networks: Any, expected: Any) -> None:
    assert api("POST", "/servers", body(networks=networks), version="2.42").status_code == 202
    assert api.last_call("create_instances")[0].networks == expected


def test_create_counts_become_minimum_and_maximum(api: Client) -> None:
    for parameters, expected in (
        ({"min_count": 2}, (2, 2)),
        ({"max_count": 3}, (1, 3)),
        ({"min_count": "1", "max_count": "2"}, (1, 2)),
    ):
        assert api("POST", "/servers", body(**parameters)).status_code == 202
        request = api.last_call("create_instances")[0]
        assert (request.min_count, request.max_count) == expected


def test_create_counts_are_bounded_whatever_the_quota(api: Client) -> None:
    """A maximum is what the user accepts, and fewer servers are in order; a minimum is not."""
    limit = 1000
    for parameters, expected in (
        ({"max_count": 10**9}, (1, limit)),
        ({"min_count": limit, "max_count": 2**31 - 1}, (limit, limit)),
    ):
        assert api("POST", "/servers", body(**parameters)).status_code == 202
        request = api.last_call("create_instances")[0]
        assert (request.min_count, request.max_count) == expected
    message = fault(api("POST", "/servers", body(min_count=limit + 1)), "badRequest", 400)
    assert message == "min_count must be at most 1000: one request creates no more servers here."


def test_create_returns_a_reservation_id_on_request(api: Client) -> None:
    response = api.json("POST", "/servers", body(max_count=2, return_reservation_id=True), 202)
    assert response == {"reservation_id": "r-abcdefgh"}


@pytest.mark.parametrize(
    ("zone", "expected"),
    [
        ("nova:h1", ("nova", "h1", None)),
        ("nova:h1:n1", ("nova", "h1", "n1")),
        ("nova::n1", ("nova", None, "n1")),
        (":h1", (None, "h1", None)),
    ],
)
def test_forced_hosts_are_for_admins(api: Client, zone: str, expected: tuple[str | None, ...]) -> None:
    message = fault(api("POST", "/servers", body(availability_zone=zone)), "forbidden", 403)
    assert message == "Policy doesn't allow os_compute_api:servers:create:forced_host to be performed."
    assert api("POST", "/servers", body(availability_zone=zone), token=ADMIN).status_code == 202
    request = api.last_call("create_instances")[0]
    assert (request.availability_zone, request.forced_host, request.forced_node) == expected


def test_requested_destination_is_for_admins_since_2_74(api: Client) -> None:
    server = body(networks="none", host="h1", hypervisor_hostname="n1")
    message = fault(api("POST", "/servers", server, version="2.74"), "forbidden", 403)
    assert message == "Policy doesn't allow compute:servers:create:requested_destination to be performed."
    assert api("POST", "/servers", server, version="2.74", token=ADMIN).status_code == 202
    request = api.last_call("create_instances")[0]
    assert (request.forced_host, request.forced_node) == (None, None), "the filters are not skipped"
    assert request.requested_destination == RequestedDestination(host="h1", node="n1")
    assert api("POST", "/servers", body(networks="none", host="h1"), version="2.74", token=ADMIN).status_code == 202
    assert api.last_call("create_instances")[0].requested_destination == RequestedDestination(host="h1")
    both = body(networks="none", host="h1", availability_zone="nova:h2")
    assert api("POST", "/servers", both, version="2.74", token=ADMIN).status_code == 400


def test_description_repeats_the_name_before_2_19(api: Client) -> None:
    api("POST", "/servers", body())
    assert api.last_call("create_instances")[0].description == "vm"
    api("POST", "/servers", body(), version="2.19")
    assert api.last_call("create_instances")[0].description is None


def test_create_has_scheduler_hints_and_files(api: Client) -> None:
    server = body(personality=[{"path": "/etc/motd", "contents": "aGk="}])
    server["os:scheduler_hints"] = {"same_host": [NETWORK_ID], "mine": 5}
    assert api("POST", "/servers", server).status_code == 202
    request = api.last_call("create_instances")[0]
    assert request.injected_files == {"/etc/motd": "aGk="}
    assert request.scheduler_hints == {"same_host": [NETWORK_ID], "mine": "5"}


def test_create_in_unknown_server_group_is_refused(api: Client) -> None:
    """The conductor checks the group."""
    api.conductor.error = exceptions.ServerGroupUnavailable(group_uuid=NETWORK_ID)
    server = body() | {"os:scheduler_hints": {"group": NETWORK_ID}}
    message = fault(api("POST", "/servers", server), "badRequest", 400)
    assert message == f"Instance group {NETWORK_ID} could not be found."


def test_create_hostname_depends_on_the_version(api: Client) -> None:
    assert api("POST", "/servers", body(networks="none", hostname="web-1"), version="2.90").status_code == 202
    assert api.last_call("create_instances")[0].hostname == "web-1"
    assert api("POST", "/servers", body(networks="none", hostname="web.example"), version="2.94").status_code == 202


def test_create_succeeds_if_the_wake_up_cannot_be_sent(api: Client) -> None:
    api.conductor.cast_error = exceptions.MessagingUnavailable(what="build_instances")
    assert api("POST", "/servers", body()).status_code == 202


# --- list


def test_server_list_has_short_form(api: Client) -> None:
    instance = api.conductor.add()
    assert api.json("GET", "/servers") == {
        "servers": [
            {
                "id": instance.uuid,
                "name": "vm",
                "links": [
                    {"rel": "self", "href": f"http://cloud:8774/v2.1/servers/{instance.uuid}"},
                    {"rel": "bookmark", "href": f"http://cloud:8774/servers/{instance.uuid}"},
                ],
            }
        ]
    }


@pytest.mark.parametrize("path", ["/servers", "/servers/detail"])
def test_server_pages_lead_to_every_server(api: Client, path: str) -> None:
    expected = [api.conductor.add().uuid for _ in range(5)]
    seen: list[str] = []
    url = f"{path}?limit=2&name=v"
    for _ in range(4):
        page = api.json("GET", url)
        seen += [server["id"] for server in page["servers"]]
        if "servers_links" not in page:
            break
        (link,) = page["servers_links"]
        assert link["rel"] == "next"
        assert link["href"].startswith(f"http://cloud:8774/v2.1{path}?limit=2&name=v&marker=")
        url = link["href"].removeprefix("http://cloud:8774/v2.1")
    assert seen == expected


def test_server_pages_are_limited(tmp_path) -> None:
    api = make_client(make_conf(tmp_path, "max_limit = 3\n"))
    for _ in range(4):
        api.conductor.add()
    for query in ("", "?limit=1000"):
        page = api.json("GET", f"/servers{query}")
        assert len(page["servers"]) == 3
        assert "servers_links" in page
    assert api.json("GET", "/servers?limit=0") == {"servers": []}


def filters_of(api: Client, query: str, **options: Any) -> Any:
    response = api("GET", f"/servers?{query}", **options)
    assert response.status_code == 200, response.text
    return api.last_call("instance_list")[0]


def test_server_filters_for_all_callers_are_applied(api: Client) -> None:
    filters = filters_of(api, "name=v.*&image=i&flavor=2&ip=10&reservation_id=r-1&changes-since=2026-01-01T00:00:00Z")
    assert (filters.name, filters.image_ref, filters.flavorid, filters.ip) == ("v.*", "i", "2", "10")
    assert filters.reservation_id == "r-1"
    assert filters.changes_since.isoformat() == "2026-01-01T00:00:00"
    assert filters.project_id == "demo"


def test_server_filters_for_admins_are_dropped_for_others(api: Client) -> None:
    query = "host=h&node=n&deleted=True&user_id=u&vm_state=active&project_id=other"
    filters = filters_of(api, query)
    assert (filters.host, filters.node, filters.deleted, filters.user_id) == (None, None, False, None)
    assert (filters.vm_states, filters.project_id) == (None, "demo")
    filters = filters_of(api, query, token=ADMIN)
    assert (filters.host, filters.node, filters.deleted, filters.user_id) == ("h", "n", True, "u")
    assert (filters.vm_states, filters.project_id) == (["active"], "demo")


def test_server_filters_depend_on_the_version(api: Client) -> None:
    assert filters_of(api, "ip6=fe80").ip6 is None
    assert filters_of(api, "ip6=fe80", version="2.5").ip6 == "fe80"
    assert filters_of(api, "tags=a,b", version="2.25").tags is None
    assert filters_of(api, "tags=a,b&not-tags-any=c", version="2.26").tags == ["a", "b"]
    assert filters_of(api, "changes-before=2026-01-01", version="2.65").changes_before is None
    assert filters_of(api, "changes-before=2026-01-01", version="2.66").changes_before is not None
    assert filters_of(api, "locked=true", version="2.72").locked is None
    assert filters_of(api, "locked=true", version="2.73").locked is True
    assert filters_of(api, "user_id=u", version="2.82").user_id is None
    assert filters_of(api, "user_id=u&power_state=1", version="2.83").user_id == "u"


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("2026-01-01T10:00:00Z", "2026-01-01T10:00:00.999999"),
        ("2026-01-01T10:00:00.25Z", "2026-01-01T10:00:00.250000"),
    ],
)
def test_server_filter_changes_before_includes_the_whole_second_that_responses_show(
    api: Client, text: str, last: str
) -> None:
    assert filters_of(api, f"changes-before={text}", version="2.66").changes_before.isoformat() == last


@pytest.mark.parametrize(
    ("status", "vm_states", "task_states"),
    [
        ("ACTIVE", ["active"], None),
        ("active", ["active"], None),
        ("REBOOT", ["active"], ["rebooting", "reboot_pending", "reboot_started"]),
        ("SHUTOFF", ["stopped"], None),
        ("ERROR", ["error"], None),
        ("BUILD", ["building"], None),
    ],
)
def test_server_status_filter_becomes_states(
    api: Client, status: str, vm_states: list[str], task_states: list[str] | None
) -> None:
    filters = filters_of(api, f"status={status}")
    assert (filters.vm_states, filters.task_states) == (vm_states, task_states)


def test_deleted_servers_are_listed_for_admins(api: Client) -> None:
    message = fault(api("GET", "/servers?status=deleted"), "forbidden", 403)
    assert message == "Only administrators may list deleted instances"
    assert filters_of(api, "status=deleted", token=ADMIN).deleted is True


@pytest.mark.parametrize(
    ("path", "version", "token", "expected"),
    [
        ("/servers/detail", "2.3", ADMIN, True),
        ("/servers/detail", "2.2", ADMIN, False),
        ("/servers/detail", "2.3", MEMBER, False),
        ("/servers", "2.3", ADMIN, False),
    ],
)
def test_user_data_is_read_only_if_the_caller_may_see_it(
    api: Client, path: str, version: str, token: str, expected: bool
) -> None:
    assert api("GET", path, version=version, token=token).status_code == 200
    assert api.last_call("instance_list")[0].with_user_data is expected


def test_all_tenants_lists_servers_of_all_projects_for_admins(api: Client) -> None:
    api.conductor.add(project_id="other")
    message = fault(api("GET", "/servers?all_tenants=1"), "forbidden", 403)
    assert message == "Policy doesn't allow os_compute_api:servers:index:get_all_tenants to be performed."
    message = fault(api("GET", "/servers/detail?all_tenants=1"), "forbidden", 403)
    assert message == "Policy doesn't allow os_compute_api:servers:detail:get_all_tenants to be performed."
    assert api.json("GET", "/servers", token=ADMIN) == {"servers": []}
    assert len(api.json("GET", "/servers?all_tenants=True", token=ADMIN)["servers"]) == 1
    assert filters_of(api, "all_tenants=1&project_id=p", token=ADMIN).project_id == "p"
    assert filters_of(api, "all_tenants=0", token=ADMIN).project_id == "demo"


def test_server_list_is_sorted(api: Client) -> None:
    filters_of(api, "limit=5")
    assert api.last_call("instance_list")[1:] == (5, None, ["created_at"], ["desc"])
    filters_of(api, "sort_key=display_name&sort_key=uuid&sort_dir=asc")
    assert api.last_call("instance_list")[3:] == (["display_name", "uuid"], ["asc", "asc"])
    assert api("GET", "/servers?sort_key=host").status_code == 403
    assert api("GET", "/servers?sort_key=host", token=ADMIN).status_code == 200
    assert api("GET", "/servers?sort_key=uuid&sort_dir=asc&sort_dir=asc").status_code == 400
    assert api("GET", "/servers?sort_key=locked", version="2.72").status_code == 400
    assert api("GET", "/servers?sort_key=locked", version="2.73").status_code == 200


# --- update, delete, actions


def test_server_is_updated(api: Client) -> None:
    instance = api.conductor.add()
    path = f"/servers/{instance.uuid}"
    change = {"server": {"name": "new", "accessIPv4": "1.2.3.4", "accessIPv6": "", "OS-DCF:diskConfig": "AUTO"}}
    shown = api.json("PUT", path, change)["server"]
    assert (shown["name"], shown["accessIPv4"], shown["OS-DCF:diskConfig"]) == ("new", "1.2.3.4", "AUTO")
    assert api.last_call("instance_update")[1] == {
        "display_name": "new",
        "access_ip_v4": "1.2.3.4",
        "access_ip_v6": None,
        "auto_disk_config": True,
    }
    assert not any(key.startswith("OS-EXT") for key in shown)
    assert set(shown["addresses"]["private"][0]) == {"version", "addr"}
    assert api("PUT", path, {"server": {"description": "d"}}).status_code == 400
    assert api.json("PUT", path, {"server": {"description": "d"}}, version="2.19")["server"]["description"] == "d"
    assert api("PUT", path, {"server": {"hostname": "h1"}}, version="2.89").status_code == 400
    api.json("PUT", path, {"server": {"hostname": "h1"}}, version="2.90")
    assert api.last_call("instance_update")[1] == {"hostname": "h1"}


def test_update_returns_the_same_as_show_since_2_75(api: Client) -> None:
    instance = api.conductor.add()
    path = f"/servers/{instance.uuid}"
    changed = api.json("PUT", path, {"server": {"name": "new"}}, version="2.75", token=ADMIN)["server"]
    assert changed == api.json("GET", path, version="2.75", token=ADMIN)["server"]


@pytest.mark.parametrize(
    ("method", "suffix", "body", "action", "rpc_method", "status"),
    [
        ("DELETE", "", None, "delete", "terminate_instance", 204),
        ("POST", "/action", {"forceDelete": None}, "delete", "terminate_instance", 202),
        ("POST", "/action", {"os-start": None}, "start", "start_instance", 202),
        ("POST", "/action", {"os-stop": None}, "stop", "stop_instance", 202),
        ("POST", "/action", {"reboot": {"type": "soft"}}, "reboot", "reboot_instance", 202),
    ],
)
def test_server_actions_are_accepted(
    api: Client, method: str, suffix: str, body: Any, action: str, rpc_method: str, status: int
) -> None:
    instance = api.conductor.add()
    response = api(method, f"/servers/{instance.uuid}{suffix}", body)
    assert (response.status_code, response.body) == (status, b"")
    payload = {"reboot_type": "SOFT"} if action == "reboot" else {}
    assert api.last_call("accept_action") == (instance.uuid, action, payload)
    ((name, (host, command)),) = api.compute.calls
    assert (name, host, command.action) == (rpc_method, "compute1", action)


def test_action_without_host_sends_no_command(api: Client) -> None:
    instance = api.conductor.add(host=None)
    assert api("DELETE", f"/servers/{instance.uuid}").status_code == 204
    assert api.compute.calls == []


def test_action_succeeds_if_the_command_cannot_be_sent(api: Client) -> None:
    instance = api.conductor.add()
    api.compute.cast_error = exceptions.MessagingUnavailable(what="stop_instance")
    assert api("POST", f"/servers/{instance.uuid}/action", {"os-stop": None}).status_code == 202


@pytest.mark.parametrize("kind", ["nonsense", 5, None])
def test_invalid_reboot_type_is_refused(api: Client, kind: Any) -> None:
    instance = api.conductor.add()
    response = api("POST", f"/servers/{instance.uuid}/action", {"reboot": {"type": kind}})
    assert "Invalid input for field/attribute type" in fault(response, "badRequest", 400)


def test_ipv6_address_is_stored_in_its_shortest_form(api: Client) -> None:
    instance = api.conductor.add()
    body = {"server": {"accessIPv6": "0000:0000:0000:0000:0000:BABE:220.12.22.2"}}
    assert api.json("PUT", f"/servers/{instance.uuid}", body)["server"]["accessIPv6"] == "::babe:dc0c:1602"
    server = {"name": "n", "imageRef": IMAGE_ID, "flavorRef": "1", "accessIPv6": "2001:0DB8::0001"}
    assert api("POST", "/servers", {"server": server}).status_code == 202
    assert api.last_call("create_instances")[0].access_ip_v6 == "2001:db8::1"


# --- console


@pytest.mark.parametrize(
    ("length", "lines"), [({}, None), ({"length": 5}, 5), ({"length": "7"}, 7), ({"length": -1}, None)]
)
def test_console_output_is_returned(api: Client, length: dict[str, Any], lines: int | None) -> None:
    instance = api.conductor.add()
    api.compute.output = "\x1b[0mlogin:\tok\r\n\x00"
    response = api.json("POST", f"/servers/{instance.uuid}/action", {"os-getConsoleOutput": length})
    assert response == {"output": "[0mlogin:\tok" + ("\r\n" if lines is None else "")}
    assert api.compute.calls == [("get_console_output", ("compute1", instance.uuid, lines))]


def test_console_output_of_n_lines_has_no_final_newline(api: Client) -> None:
    """Clients split the output at newlines, and count."""
    instance = api.conductor.add()
    api.compute.output = "one\ntwo\n"
    path = f"/servers/{instance.uuid}/action"
    assert api.json("POST", path, {"os-getConsoleOutput": {"length": 2}})["output"] == "one\ntwo"
    assert api.json("POST", path, {"os-getConsoleOutput": {}})["output"] == "one\ntwo\n"


@pytest.mark.parametrize(
    ("changes", "error", "name", "code"),
    [
        ({"host": None}, None, "conflictingRequest", 409),
        ({"host_status": "DOWN"}, None, "serviceUnavailable", 503),
        ({}, exceptions.MessagingUnavailable(what="x"), "serviceUnavailable", 503),
        ({}, exceptions.NotImplementedByDriver(operation="console output"), "notImplemented", 501),
        ({}, exceptions.DomainNotFound(instance_uuid="x"), "conflictingRequest", 409),
    ],
)
def test_unavailable_console_output_is_an_error(
    api: Client, changes: dict[str, Any], error: Exception | None, name: str, code: int
) -> None:
    instance = api.conductor.add(**changes)
    api.compute.error = error
    fault(api("POST", f"/servers/{instance.uuid}/action", {"os-getConsoleOutput": {}}), name, code)


# --- facts


def test_server_subresources_show_the_instances_values(api: Client) -> None:
    instance = api.conductor.add(metadata={"k": "v"}, tags=["a"])
    path = f"/servers/{instance.uuid}"
    address = [{"version": 4, "addr": "10.0.0.5"}]
    assert api.json("GET", f"{path}/ips") == {"addresses": {"private": address}}
    assert api.json("GET", f"{path}/ips/private") == {"private": address}
    assert api("GET", f"{path}/ips/nosuch").status_code == 404
    assert api.json("GET", f"{path}/metadata") == {"metadata": {"k": "v"}}
    assert api.json("GET", f"{path}/metadata/k") == {"meta": {"k": "v"}}
    assert api("GET", f"{path}/metadata/nosuch").status_code == 404
    assert api("GET", f"{path}/tags").status_code == 404
    assert api.json("GET", f"{path}/tags", version="2.26") == {"tags": ["a"]}
    assert api("GET", f"{path}/tags/a", version="2.26").status_code == 204
    assert api("GET", f"{path}/tags/b", version="2.26").status_code == 404


def test_server_is_visible_to_its_project_and_to_admins(api: Client) -> None:
    instance = api.conductor.add(project_id="other", user_id="bob")
    assert api("GET", f"/servers/{instance.uuid}", token=MEMBER).status_code == 404
    assert api("GET", f"/servers/{instance.uuid}", token="bob:other").status_code == 200
    assert api("GET", f"/servers/{instance.uuid}", token=ADMIN).status_code == 200


@pytest.mark.parametrize("version", ["2.1", "2.32", "2.37", "2.96"])
def test_create_interfaces_are_limited(api: Client, version: str) -> None:
    networks = [{"uuid": NETWORK_ID}] * (schemas.MAX_NETWORKS + 1)
    assert api("POST", "/servers", body(networks=networks), version=version).status_code == 400
    assert api("POST", "/servers", body(networks=networks[1:]), version=version).status_code == 202


@pytest.mark.parametrize(("token", "may"), [(ADMIN, True), (MEMBER, False)])
def test_create_with_zero_disk_flavor_is_for_admins(api: Client, token: str, may: bool) -> None:
    assert api("POST", "/servers", body(), token=token).status_code == 202
    assert api.last_call("create_instances")[0].may_have_zero_disk is may
