"""Resources other than servers: keys by version, verbs, validation."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import pytest

from nova_lite.api.compute import ssh_keys
from nova_lite.api.http import inventory, router
from nova_lite.objects import NUMACell, NUMACellUsage
from tests.support.api_client import ADMIN, ROOT, Client, fault, make_client, make_conf
from tests.support.control_plane import IMAGE_ID, NETWORK_ID, NODE_ID, SERVICE_ID, make_action, make_instance

RSA_LIKE = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKotuhLbl9jfEG3+ro7D+5cGG9LmDay91HqOs+RyVskj root@vm"

BAD = ("badRequest", 400)

# --- flavors

FLAVOR_KEYS = {
    "id",
    "name",
    "ram",
    "disk",
    "vcpus",
    "swap",
    "OS-FLV-EXT-DATA:ephemeral",
    "OS-FLV-DISABLED:disabled",
    "os-flavor-access:is_public",
    "rxtx_factor",
    "links",
}


@pytest.mark.parametrize(
    ("version", "short", "added"),
    [
        ("2.1", {"id", "name", "links"}, set()),
        ("2.54", {"id", "name", "links"}, set()),
        ("2.55", {"id", "name", "links", "description"}, {"description"}),
        ("2.61", {"id", "name", "links", "description"}, {"description", "extra_specs"}),
    ],
)
def test_flavor_has_the_keys_of_its_version(api: Client, version: str, short: set[str], added: set[str]) -> None:
    assert set(api.json("GET", "/flavors", version=version)["flavors"][0]) == short
    assert set(api.json("GET", "/flavors/detail", version=version)["flavors"][0]) == FLAVOR_KEYS | added
    assert set(api.json("GET", "/flavors/1", version=version)["flavor"]) == FLAVOR_KEYS | added


def test_flavor_without_swap_shows_an_empty_string_before_2_75(api: Client) -> None:
    assert api.json("GET", "/flavors/1", version="2.74")["flavor"]["swap"] == ""
    assert api.json("GET", "/flavors/1", version="2.75")["flavor"]["swap"] == 0


def test_flavor_list_parameters_reach_the_conductor(api: Client) -> None:
    api("GET", "/flavors?minRam=1&minDisk=2&sort_key=name&sort_dir=desc&is_public=None")
    assert api.last_call("flavor_list") == (True, 1, 2, 1000, None, "name", "desc", None)
    for query, expected in (("", True), ("?is_public=None", None), ("?is_public=false", False)):
        api("GET", f"/flavors{query}", token=ADMIN)
        assert api.last_call("flavor_list")[0] is expected
    for query in ("minRam=x", "minDisk=x", "limit=x", "sort_key=x"):
        assert api("GET", f"/flavors?{query}").status_code == 400
    message = fault(api("GET", "/flavors?is_public=perhaps", token=ADMIN), "badRequest", 400)
    assert message == "Invalid is_public filter [perhaps]"


def test_flavor_list_has_pages(api: Client) -> None:
    page = api.json("GET", "/flavors/detail?limit=1")
    href = "http://cloud:8774/v2.1/flavors/detail?limit=1&marker=1"
    assert page["flavors_links"] == [{"rel": "next", "href": href}]


def test_unknown_flavor_is_404(api: Client) -> None:
    assert fault(api("GET", "/flavors/x"), "itemNotFound", 404) == "Flavor x could not be found."


def test_flavor_is_created(api: Client) -> None:
    body = {"flavor": {"name": "f", "ram": 64, "disk": "1", "vcpus": 1, "id": None}}
    shown = api.json("POST", "/flavors", body, token=ADMIN)["flavor"]
    assert (shown["ram"], shown["disk"], shown["os-flavor-access:is_public"]) == (64, 1, True)
    assert len(shown["id"]) == 36
    body["flavor"] |= {"id": "auto", "name": "g"}
    assert len(api.json("POST", "/flavors", body, token=ADMIN)["flavor"]["id"]) == 36
    body["flavor"]["id"] = "1"
    response = api("POST", "/flavors", body, token=ADMIN)
    assert fault(response, "conflictingRequest", 409) == "Flavor with ID 1 already exists."
    body["flavor"]["description"] = "d"
    assert api("POST", "/flavors", body, token=ADMIN).status_code == 400


@pytest.mark.parametrize(
    "change",
    [
        {"ram": 0},
        {"ram": "x"},
        {"ram": 2**31},
        {"ram": "2147483648"},
        {"ram": "0"},
        {"ram": True},
        {"vcpus": 0},
        {"disk": -1},
        {"name": " f"},
        {"id": " x"},
        {"id": "a/b"},
        {"rxtx_factor": 0},
        {"rxtx_factor": "x"},
        {"os-flavor-access:is_public": "perhaps"},
        {"more": 1},
    ],
)
def test_malformed_flavor_is_refused(api: Client, change: dict[str, Any]) -> None:
    body = {"flavor": {"name": "f", "ram": 64, "disk": 1, "vcpus": 1} | change}
    fault(api("POST", "/flavors", body, token=ADMIN), "badRequest", 400)


def test_flavor_is_updated_and_deleted(api: Client) -> None:
    body = {"flavor": {"description": "words"}}
    assert api("PUT", "/flavors/1", body, token=ADMIN, version="2.54").status_code == 404
    assert api.json("PUT", "/flavors/1", body, token=ADMIN, version="2.55")["flavor"]["description"] == "words"
    assert api("DELETE", "/flavors/1", token=ADMIN).status_code == 202


def test_extra_specs_are_added_shown_and_deleted(api: Client) -> None:
    path = "/flavors/1/os-extra_specs"
    assert api.json("GET", path) == {"extra_specs": {"a": "b"}}
    assert api.json("GET", f"{path}/a") == {"a": "b"}
    message = fault(api("GET", f"{path}/x"), "itemNotFound", 404)
    assert message == "Flavor 1 has no extra specs with key x."
    assert api.json("POST", path, {"extra_specs": {"n": 1.5}}, token=ADMIN) == {"extra_specs": {"n": "1.5"}}
    assert api.json("PUT", f"{path}/a", {"a": "c"}, token=ADMIN) == {"a": "c"}
    assert fault(api("PUT", f"{path}/a", {"b": "c"}, token=ADMIN), "badRequest", 400) == "Request body and URI mismatch"
    assert api("DELETE", f"{path}/a", token=ADMIN).status_code == 200
    assert api.json("POST", path, {"extra_specs": {}}, token=ADMIN) == {"extra_specs": {}}
    assert api("POST", path, {}, token=ADMIN).status_code == 400
    assert api("PUT", f"{path}/a", {}, token=ADMIN).status_code == 400
    assert api("POST", path, {"extra_specs": {"a/b": "c"}}, token=ADMIN).status_code == 400


def test_extra_specs_are_checked_since_2_86(api: Client) -> None:
    body = {"extra_specs": {"hw:cpu_policy": "nonsense"}}
    path = "/flavors/1/os-extra_specs"
    assert api("POST", path, body, token=ADMIN, version="2.85").status_code == 200
    fault(api("POST", path, body, token=ADMIN, version="2.86"), "badRequest", 400)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("anything", "x"),
        ("mine:key", "x"),
        ("hw:cpu_policy", "dedicated"),
        ("hw:mem_page_size", "2MB"),
        ("hw:numa_cpus.0", "0-1,^3"),
        ("hw_rng:allowed", "true"),
        ("quota:disk_read_bytes_sec", "1000"),
        ("quota:vif_inbound_average", "7"),
        ("trait:HW_CPU_X86_AVX", "required"),
        ("group_policy", "none"),
        ("capabilities:cpu_info:features", "<in> sse"),
        ("os:secure_boot", "required"),
    ],
)
def test_valid_extra_spec_is_accepted(api: Client, key: str, value: str) -> None:
    body = {"extra_specs": {key: value}}
    assert api("POST", "/flavors/1/os-extra_specs", body, token=ADMIN, version="2.86").status_code == 200


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hw:cpu_policy", "x"),
        ("hw:nosuch", "1"),
        ("hw:numa_nodes", "0"),
        ("trait:HW_CPU_X86_AVX", "yes"),
        ("resources:VCPU", "-1"),
        ("resources:vcpu", "1"),
        ("hw_rng:allowed", "perhaps"),
        ("quota:nosuch", "1"),
    ],
)
def test_invalid_extra_spec_is_refused(api: Client, key: str, value: str) -> None:
    body = {"extra_specs": {key: value}}
    message = fault(api("PUT", f"/flavors/1/os-extra_specs/{key}", {key: value}, token=ADMIN, version="2.86"), *BAD)
    assert message.startswith(f"Extra spec '{key}' ")
    assert fault(api("POST", "/flavors/1/os-extra_specs", body, token=ADMIN, version="2.86"), *BAD) == message


@pytest.mark.parametrize("version", ["2.1", "2.86"])
@pytest.mark.parametrize(("key", "value"), [("hw:viommu_model", "intel"), ("resources1:VGPU", "1")])
def test_unsupported_extra_spec_is_refused_in_every_version(api: Client, version: str, key: str, value: str) -> None:
    body = {"extra_specs": {key: value}}
    message = fault(api("POST", "/flavors/1/os-extra_specs", body, token=ADMIN, version=version), *BAD)
    assert message.startswith(f"Extra spec '{key}' ({value}) is not supported here: ")


# --- key pairs


@pytest.mark.parametrize(
    ("version", "created", "deleted", "typed"), [("2.1", 200, 202, set()), ("2.2", 201, 204, {"type"})]
)
def test_keypair_is_created_shown_and_deleted(
    api: Client, version: str, created: int, deleted: int, typed: set[str]
) -> None:
    body = {"keypair": {"name": "k1", "public_key": RSA_LIKE}}
    made = api.json("POST", "/os-keypairs", body, created, version=version)["keypair"]
    assert set(made) == {"name", "public_key", "fingerprint", "user_id"} | typed
    (listed,) = api.json("GET", "/os-keypairs", version=version)["keypairs"]
    assert set(listed["keypair"]) == {"name", "public_key", "fingerprint"} | typed
    shown = api.json("GET", "/os-keypairs/k1", version=version)["keypair"]
    assert set(shown) == {
        "name",
        "public_key",
        "fingerprint",
        "user_id",
        "id",
        "created_at",
        "updated_at",
        "deleted",
        "deleted_at",
        *typed,
    }
    assert fault(api("POST", "/os-keypairs", body), "conflictingRequest", 409) == "Key pair 'k1' already exists."
    response = api("DELETE", "/os-keypairs/k1", version=version)
    assert (response.status_code, response.body) == (deleted, b"")
    assert api("GET", "/os-keypairs/k1").status_code == 404


def test_generated_key_is_returned_once_and_not_stored(api: Client) -> None:
    made = api.json("POST", "/os-keypairs", {"keypair": {"name": "k"}}, 201, version="2.10")["keypair"]
    assert made["private_key"].startswith("-----BEGIN OPENSSH PRIVATE KEY-----\n")
    assert "private_key" not in api.json("GET", "/os-keypairs/k")["keypair"]
    assert api.last_call("keypair_create")[0].private_key is None


def test_keypairs_are_only_imported_since_2_92(api: Client) -> None:
    body = {"keypair": {"name": "k"}}
    assert "'public_key' is a required property" in fault(
        api("POST", "/os-keypairs", body, version="2.92"), "badRequest", 400
    )
    named = {"keypair": {"name": "me@home.org", "public_key": RSA_LIKE}}
    assert api("POST", "/os-keypairs", named, version="2.91").status_code == 400
    assert api("POST", "/os-keypairs", named, version="2.92").status_code == 201


def test_keypairs_of_others_are_for_admins(api: Client) -> None:
    body = {"keypair": {"name": "k", "public_key": RSA_LIKE, "user_id": "bob"}}
    assert api("POST", "/os-keypairs", body, version="2.9").status_code == 400
    assert api("POST", "/os-keypairs", body, version="2.10").status_code == 403
    assert api("POST", "/os-keypairs", body, version="2.10", token=ADMIN).status_code == 201
    assert api("GET", "/os-keypairs?user_id=bob", version="2.10").status_code == 403
    assert len(api.json("GET", "/os-keypairs?user_id=bob", version="2.10", token=ADMIN)["keypairs"]) == 1
    assert api.json("GET", "/os-keypairs?user_id=bob", version="2.9", token=ADMIN) == {"keypairs": []}


def test_keypair_list_has_pages_since_2_35(api: Client) -> None:
    for name in ("a", "b"):
        api("POST", "/os-keypairs", {"keypair": {"name": name, "public_key": RSA_LIKE}})
    assert len(api.json("GET", "/os-keypairs?limit=1", version="2.34")["keypairs"]) == 2
    page = api.json("GET", "/os-keypairs?limit=1", version="2.35")
    href = "http://cloud:8774/v2.1/os-keypairs?limit=1&marker=a"
    assert page["keypairs_links"] == [{"rel": "next", "href": href}]


@pytest.mark.parametrize("name", ["", "a/b", "a\n", " a", "x" * 256, 5])
def test_invalid_keypair_name_is_refused(api: Client, name: Any) -> None:
    fault(api("POST", "/os-keypairs", {"keypair": {"name": name, "public_key": RSA_LIKE}}), "badRequest", 400)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "nonsense",
        "ssh-rsa",
        "ssh-rsa !!!",
        "ssh-rsa AAAA",
        RSA_LIKE.replace("ed25519 ", "rsa "),
        RSA_LIKE + "\n" + RSA_LIKE,
        "-----BEGIN OPENSSH PRIVATE KEY-----",
    ],
)
def test_invalid_public_key_is_refused(api: Client, key: str) -> None:
    response = api("POST", "/os-keypairs", {"keypair": {"name": "k", "public_key": key}})
    assert fault(response, "badRequest", 400).startswith("Keypair data is invalid: failed to generate fingerprint")


@pytest.mark.parametrize("kind", ["rsa", "ecdsa", "ed25519"])
def test_fingerprints_equal_those_of_openssh(tmp_path, kind: str) -> None:
    path = tmp_path / "key"
    made = subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", str(path)], check=False)
    if made.returncode:
        pytest.skip("no ssh-keygen")
    line = path.with_suffix(".pub").read_text()
    output = subprocess.run(
        ["ssh-keygen", "-E", "md5", "-lf", f"{path}.pub"], capture_output=True, text=True, check=True
    ).stdout
    assert f"MD5:{ssh_keys.fingerprint(ssh_keys.checked(line))} " in output


def test_generated_keys_are_readable_by_openssh(tmp_path) -> None:
    private, public = ssh_keys.generate()
    path = tmp_path / "key"
    path.write_text(private)
    path.chmod(0o600)
    output = subprocess.run(["ssh-keygen", "-y", "-f", str(path)], capture_output=True, text=True, check=True).stdout
    assert output.split()[:2] == public.split()[:2]


# --- images and networks


def test_images_are_listed_and_shown(api: Client) -> None:
    (short,) = api.json("GET", "/images")["images"]
    assert set(short) == {"id", "name", "links"}
    assert [link["rel"] for link in short["links"]] == ["self", "bookmark", "alternate"]
    shown = api.json("GET", f"/images/{IMAGE_ID}")["image"]
    assert set(shown) == {
        "id",
        "name",
        "links",
        "status",
        "progress",
        "created",
        "updated",
        "minDisk",
        "minRam",
        "metadata",
        "OS-EXT-IMG-SIZE:size",
    }
    assert (shown["status"], shown["progress"], shown["metadata"]) == ("ACTIVE", 100, {"k": "v"})
    assert fault(api("GET", "/images/x"), "itemNotFound", 404) == "Image x could not be found."


def test_image_is_deleted(api: Client) -> None:
    assert api("DELETE", f"/images/{IMAGE_ID}", version="2.36").status_code == 404
    assert api("DELETE", f"/images/{IMAGE_ID}").status_code == 204
    assert api("GET", f"/images/{IMAGE_ID}").status_code == 404


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("status=ACTIVE", 1),
        ("status=SAVING", 0),
        ("minRam=1", 1),
        ("minRam=2", 0),
        ("property-k=v", 1),
        ("property-k=w", 0),
        ("changes-since=2030-01-01T00:00:00Z", 0),
        ("type=snapshot", 0),
    ],
)
def test_image_list_is_filtered(api: Client, query: str, count: int) -> None:
    assert len(api.json("GET", f"/images/detail?{query}")["images"]) == count


def test_networks_are_listed_and_shown(api: Client) -> None:
    (network,) = api.json("GET", "/os-networks")["networks"]
    assert (network["id"], network["label"], network["cidr"]) == (NETWORK_ID, "private", "10.0.0.0/24")
    assert (network["netmask"], network["broadcast"]) == ("255.255.255.0", "10.0.0.255")
    assert "bridge" not in network
    assert api.json("GET", f"/os-networks/{NETWORK_ID}", token=ADMIN)["network"]["bridge"] == "br0"
    assert api("GET", "/os-networks/private").status_code == 404


# --- limits and quotas

LIMITS_257 = {
    "maxServerMeta",
    "maxTotalCores",
    "maxTotalInstances",
    "maxTotalRAMSize",
    "maxTotalKeypairs",
    "maxServerGroups",
    "maxServerGroupMembers",
    "totalCoresUsed",
    "totalInstancesUsed",
    "totalRAMUsed",
    "totalServerGroupsUsed",
}
LIMITS_239 = LIMITS_257 | {"maxPersonality", "maxPersonalitySize"}
LIMITS_236 = LIMITS_239 | {"maxImageMeta"}
LIMITS_21 = LIMITS_236 | {
    "maxSecurityGroups",
    "maxSecurityGroupRules",
    "maxTotalFloatingIps",
    "totalSecurityGroupsUsed",
    "totalFloatingIpsUsed",
}


@pytest.mark.parametrize(
    ("version", "keys"),
    [
        ("2.1", LIMITS_21),
        ("2.35", LIMITS_21),
        ("2.36", LIMITS_236),
        ("2.39", LIMITS_239),
        ("2.56", LIMITS_239),
        ("2.57", LIMITS_257),
        ("2.96", LIMITS_257),
    ],
)
def test_limits_have_the_keys_of_their_version(api: Client, version: str, keys: set[str]) -> None:
    limits = api.json("GET", "/limits?reserved=False", version=version)["limits"]
    assert limits["rate"] == []
    assert set(limits["absolute"]) == keys
    assert (limits["absolute"]["maxTotalCores"], limits["absolute"]["totalCoresUsed"]) == (20, 2)


def test_limits_of_others_are_for_admins(api: Client) -> None:
    assert api("GET", "/limits?tenant_id=other").status_code == 403
    api.json("GET", "/limits?tenant_id=other", token=ADMIN)
    assert api.last_call("limits_get") == ("other", None)


QUOTAS_257 = {
    "id",
    "cores",
    "instances",
    "ram",
    "key_pairs",
    "metadata_items",
    "server_groups",
    "server_group_members",
}
QUOTAS_236 = QUOTAS_257 | {"injected_files", "injected_file_content_bytes", "injected_file_path_bytes"}
QUOTAS_21 = QUOTAS_236 | {"fixed_ips", "floating_ips", "security_groups", "security_group_rules"}


@pytest.mark.parametrize(("version", "keys"), [("2.1", QUOTAS_21), ("2.36", QUOTAS_236), ("2.57", QUOTAS_257)])
def test_quotas_are_shown_and_updated(api: Client, version: str, keys: set[str]) -> None:
    quotas = api.json("GET", "/os-quota-sets/demo", version=version)["quota_set"]
    assert set(quotas) == keys
    assert (quotas["id"], quotas["cores"]) == ("demo", 20)
    detail = api.json("GET", "/os-quota-sets/demo/detail", version=version)["quota_set"]
    assert detail["cores"] == {"limit": 20, "in_use": 2, "reserved": 0}
    assert api("GET", "/os-quota-sets/other", version=version).status_code == 403


# --- hosts


def test_availability_zones_are_listed(api: Client) -> None:
    assert api.json("GET", "/os-availability-zone") == {
        "availabilityZoneInfo": [{"zoneName": "nova", "zoneState": {"available": True}, "hosts": None}]
    }
    assert api("GET", "/os-availability-zone/detail").status_code == 403
    zones = api.json("GET", "/os-availability-zone/detail", token=ADMIN)["availabilityZoneInfo"]
    assert [zone["zoneName"] for zone in zones] == ["internal", "nova"]
    state = {"available": True, "active": True, "updated_at": "2026-11-21T08:20:32.425308"}
    assert zones[1]["hosts"] == {"compute1": {"nova-compute": state}}


@pytest.mark.parametrize(("version", "identity"), [("2.1", 3), ("2.52", 3), ("2.53", SERVICE_ID)])
def test_services_are_listed(api: Client, version: str, identity: Any) -> None:
    (service,) = api.json("GET", "/os-services", version=version, token=ADMIN)["services"]
    assert service["id"] == identity
    keys = {"id", "binary", "host", "zone", "status", "state", "updated_at", "disabled_reason"}
    assert set(service) == keys | (set() if version == "2.1" else {"forced_down"})
    assert (service["status"], service["state"]) == ("enabled", "up")


def test_services_are_changed_by_host_and_binary_before_2_53(api: Client) -> None:
    which = {"host": "compute1", "binary": "nova-compute"}
    put = "/os-services"
    assert api.json("PUT", f"{put}/disable", which, token=ADMIN) == {"service": which | {"status": "disabled"}}
    assert api.conductor.service.disabled
    assert api.json("PUT", f"{put}/enable", which, token=ADMIN) == {"service": which | {"status": "enabled"}}
    reason = which | {"disabled_reason": "r"}
    response = api.json("PUT", f"{put}/disable-log-reason", reason, token=ADMIN)
    assert response == {"service": reason | {"status": "disabled"}}
    assert api.conductor.service.disabled_reason == "r"
    down = which | {"forced_down": True}
    assert api("PUT", f"{put}/force-down", down, token=ADMIN).status_code == 404
    assert api.json("PUT", f"{put}/force-down", down, token=ADMIN, version="2.11") == {"service": down}
    message = fault(api("PUT", f"{put}/enable", which | {"host": "x"}, token=ADMIN), "itemNotFound", 404)
    assert message == "Could not find binary nova-compute on host x."
    assert api("PUT", f"{put}/enable", which, token=ADMIN, version="2.53").status_code == 404


def test_services_are_changed_by_uuid_since_2_53(api: Client) -> None:
    path = f"/os-services/{SERVICE_ID}"
    body = {"status": "disabled", "disabled_reason": "r"}
    shown = api.json("PUT", path, body, token=ADMIN, version="2.53")["service"]
    assert (shown["status"], shown["disabled_reason"], shown["id"]) == ("disabled", "r", SERVICE_ID)
    assert api.json("PUT", path, {"forced_down": True}, token=ADMIN, version="2.53")["service"]["state"] == "down"
    for wrong in ({}, {"disabled_reason": "r"}, {"status": "enabled", "disabled_reason": "r"}, {"status": "x"}):
        fault(api("PUT", path, wrong, token=ADMIN, version="2.53"), "badRequest", 400)
    assert fault(api("PUT", "/os-services/3", body, token=ADMIN, version="2.53"), "badRequest", 400) == "Invalid uuid 3"
    assert api("PUT", path, body, token=ADMIN, version="2.52").status_code == 404
    assert api("DELETE", path, token=ADMIN, version="2.53").status_code == 204
    assert api("DELETE", "/os-services/3", token=ADMIN).status_code == 204


HYPERVISOR_KEYS = {
    "id",
    "hypervisor_hostname",
    "state",
    "status",
    "hypervisor_type",
    "hypervisor_version",
    "host_ip",
    "service",
}
STATISTICS = {
    "vcpus",
    "vcpus_used",
    "memory_mb",
    "memory_mb_used",
    "local_gb",
    "local_gb_used",
    "free_ram_mb",
    "free_disk_gb",
    "disk_available_least",
    "current_workload",
    "running_vms",
}


@pytest.mark.parametrize(
    ("version", "identity", "keys"),
    [
        ("2.1", 7, HYPERVISOR_KEYS | STATISTICS | {"cpu_info"}),
        ("2.53", NODE_ID, HYPERVISOR_KEYS | STATISTICS | {"cpu_info"}),
        ("2.88", NODE_ID, HYPERVISOR_KEYS | {"uptime"}),
    ],
)
def test_hypervisors_are_listed_and_shown(api: Client, version: str, identity: Any, keys: set[str]) -> None:
    (short,) = api.json("GET", "/os-hypervisors", version=version, token=ADMIN)["hypervisors"]
    assert short == {"id": identity, "hypervisor_hostname": "node1", "state": "up", "status": "enabled"}
    (listed,) = api.json("GET", "/os-hypervisors/detail", version=version, token=ADMIN)["hypervisors"]
    shown = api.json("GET", f"/os-hypervisors/{identity}", version=version, token=ADMIN)["hypervisor"]
    assert listed == shown
    assert set(shown) == keys


def test_cpu_info_is_an_object_since_2_28(api: Client) -> None:
    seen = [
        api.json("GET", "/os-hypervisors/7", version=version, token=ADMIN)["hypervisor"]["cpu_info"]
        for version in ("2.27", "2.28")
    ]
    assert seen == ['{"arch": "x86_64"}', {"arch": "x86_64"}]


def test_hypervisor_statistics_sum_all_nodes(api: Client) -> None:
    totals = api.json("GET", "/os-hypervisors/statistics", token=ADMIN)["hypervisor_statistics"]
    assert set(totals) == STATISTICS | {"count"}
    assert (totals["count"], totals["vcpus"], totals["free_ram_mb"]) == (1, 4, 7680)
    assert api("GET", "/os-hypervisors/statistics", token=ADMIN, version="2.87").status_code == 200
    response = api("GET", "/os-hypervisors/statistics", token=ADMIN, version="2.88")
    assert response.status_code in (400, 404)


def test_hypervisor_vcpus_count_shared_and_dedicated_ones(api: Client) -> None:
    node = api.conductor.node
    node.inventory.numa = [NUMACell(id=0, memory_mb=1, shared_cpus="0-3", dedicated_cpus="4-9")]
    node.numa_used = {"0": NUMACellUsage(cpus=[4, 5, 6])}
    node.vcpus_used = 2
    shown = api.json("GET", "/os-hypervisors/7", token=ADMIN)["hypervisor"]
    assert (shown["vcpus"], shown["vcpus_used"]) == (10, 5)


def test_hypervisor_name_instead_of_id_is_refused(api: Client) -> None:
    """Clients try the name first, and depend on these statuses."""
    assert api("GET", "/os-hypervisors/node1", token=ADMIN, version="2.53").status_code == 400
    assert api("GET", "/os-hypervisors/node1", token=ADMIN, version="2.52").status_code == 404
    unknown = SERVICE_ID
    assert api("GET", f"/os-hypervisors/{unknown}", token=ADMIN, version="2.53").status_code == 404


def test_hypervisor_uptime_search_and_servers_are_served(api: Client) -> None:
    instance = api.conductor.add()
    uptime = api.json("GET", "/os-hypervisors/7/uptime", token=ADMIN)["hypervisor"]
    assert set(uptime) == {"id", "hypervisor_hostname", "state", "status", "uptime"}
    assert len(api.json("GET", "/os-hypervisors/nod/search", token=ADMIN)["hypervisors"]) == 1
    message = fault(api("GET", "/os-hypervisors/x/search", token=ADMIN), "itemNotFound", 404)
    assert message == "No hypervisor matching 'x' could be found."
    (node,) = api.json("GET", "/os-hypervisors/nod/servers", token=ADMIN)["hypervisors"]
    assert node["servers"] == [{"uuid": instance.uuid, "name": f"instance-{instance.uuid}"}]
    assert api("GET", "/os-hypervisors/nod/search", token=ADMIN, version="2.53").status_code == 404
    api.conductor.node.inventory.uptime = None
    assert api("GET", "/os-hypervisors/7/uptime", token=ADMIN).status_code == 501


def test_hypervisor_that_is_down_has_no_uptime(api: Client) -> None:
    api.conductor.service.up = False
    message = fault(api("GET", "/os-hypervisors/7/uptime", token=ADMIN), "badRequest", 400)
    assert message == "Service of host compute1 is unavailable: it is down."
    shown = api.json("GET", f"/os-hypervisors/{NODE_ID}", version="2.88", token=ADMIN)["hypervisor"]
    assert (shown["state"], shown["uptime"]) == ("down", None)


@pytest.mark.parametrize(
    ("path", "version", "code"),
    [
        ("/nod/search", "2.52", 200),
        ("/nod/servers", "2.52", 200),
        ("/nod/servers", "2.53", 404),
        (f"/{NODE_ID}/uptime", "2.52", 404),
        (f"/{NODE_ID}/uptime", "2.53", 200),
        (f"/{NODE_ID}/uptime", "2.87", 200),
        (f"/{NODE_ID}/uptime", "2.88", 404),
        ("/7/uptime", "2.53", 400),
        ("/statistics", "2.88", 404),
        ("?with_servers=perhaps", "2.53", 400),
        ("?with_servers=perhaps", "2.52", 200),
        (f"/{NODE_ID}?with_servers=1", "2.75", 200),
        (f"/{NODE_ID}?limit=1", "2.75", 400),
        ("?hypervisor_hostname_pattern=a%20b", "2.53", 400),
        ("?limit=x", "2.32", 200),
        ("?limit=x", "2.33", 400),
        ("/detail?limit=1&marker=x&other=1", "2.74", 200),
        ("/detail?limit=1&other=1", "2.75", 400),
    ],
)
def test_hypervisor_routes_depend_on_the_version(api: Client, path: str, version: str, code: int) -> None:
    assert api("GET", f"/os-hypervisors{path}", version=version, token=ADMIN).status_code == code


def test_hypervisor_list_parameters_are_checked(api: Client) -> None:
    instance = api.conductor.add()
    (node,) = api.json("GET", "/os-hypervisors?with_servers=1", token=ADMIN, version="2.53")["hypervisors"]
    assert node["servers"] == [{"uuid": instance.uuid, "name": instance.name}]
    path = "/os-hypervisors?hypervisor_hostname_pattern="
    assert len(api.json("GET", path + "node", token=ADMIN, version="2.53")["hypervisors"]) == 1
    assert api("GET", path + "x", token=ADMIN, version="2.53").status_code == 404
    assert api("GET", path + "x&limit=1", token=ADMIN, version="2.53").status_code == 400
    assert "hypervisors_links" not in api.json("GET", "/os-hypervisors?limit=1", token=ADMIN, version="2.32")
    page = api.json("GET", "/os-hypervisors?limit=1", token=ADMIN, version="2.33")
    assert page["hypervisors_links"][0]["href"].endswith("/os-hypervisors?limit=1&marker=7")


def test_hypervisor_without_servers_shows_an_empty_list_since_2_75(api: Client) -> None:
    path = "/os-hypervisors?with_servers=1"
    assert "servers" not in api.json("GET", path, token=ADMIN, version="2.74")["hypervisors"][0]
    assert api.json("GET", path, token=ADMIN, version="2.75")["hypervisors"][0]["servers"] == []


# --- action log


@pytest.fixture
def log(api: Client) -> str:
    """Return the URL of a log with two actions, the newest first."""
    instance = api.conductor.add()
    api.conductor.actions[instance.uuid] = [
        make_action(instance_uuid=instance.uuid, request_id="req-2", action="stop"),
        make_action(instance_uuid=instance.uuid, request_id="req-1"),
    ]
    return f"/servers/{instance.uuid}/os-instance-actions"


ACTION_KEYS = {"action", "instance_uuid", "request_id", "user_id", "project_id", "start_time", "message"}


def test_instance_actions_are_listed_and_shown(api: Client, log: str) -> None:
    actions = api.json("GET", log)["instanceActions"]
    assert [action["action"] for action in actions] == ["stop", "create"]
    assert set(actions[0]) == ACTION_KEYS
    assert set(api.json("GET", log, version="2.58")["instanceActions"][0]) == ACTION_KEYS | {"updated_at"}
    assert actions[0]["start_time"] == "2026-11-21T08:20:32.425308"


EVENT_KEYS = {"event", "start_time", "finish_time", "result"}


@pytest.mark.parametrize(
    ("version", "token", "keys"),
    [
        ("2.1", ADMIN, EVENT_KEYS | {"traceback"}),
        ("2.1", "alice:demo", None),
        ("2.50", "alice:demo", None),
        ("2.51", "alice:demo", EVENT_KEYS),
        ("2.62", "alice:demo", EVENT_KEYS | {"hostId"}),
        ("2.62", ADMIN, EVENT_KEYS | {"hostId", "host", "traceback"}),
        ("2.84", "alice:demo", EVENT_KEYS | {"hostId"}),
        ("2.84", ADMIN, EVENT_KEYS | {"hostId", "host", "traceback", "details"}),
    ],
)
def test_instance_action_events_depend_on_version_and_role(
    api: Client, log: str, version: str, token: str, keys: set[str] | None
) -> None:
    action = api.json("GET", f"{log}/req-1", version=version, token=token)["instanceAction"]
    if keys is None:
        assert "events" not in action
    else:
        assert set(action["events"][0]) == keys


def test_instance_action_list_has_pages(api: Client, log: str) -> None:
    page = api.json("GET", f"{log}?limit=1", version="2.58")
    assert [action["request_id"] for action in page["instanceActions"]] == ["req-2"]
    (link,) = page["links"]
    last = api.json("GET", link["href"].removeprefix("http://cloud:8774/v2.1"), version="2.58")
    assert [action["request_id"] for action in last["instanceActions"]] == ["req-1"]
    assert "links" not in last
    assert len(api.json("GET", f"{log}?limit=1", version="2.57")["instanceActions"]) == 2
    assert api("GET", f"{log}?marker=x", version="2.58").status_code == 400
    assert api("GET", f"{log}?nonsense=x", version="2.58").status_code == 400
    future = "changes-since=2030-01-01T00:00:00Z"
    assert api.json("GET", f"{log}?{future}", version="2.58") == {"instanceActions": []}
    assert api("GET", f"{log}?changes-before=2030-01-01T00:00:00Z", version="2.65").status_code == 400
    assert len(api.json("GET", f"{log}?changes-before=2030-01-01T00:00:00Z", version="2.66")["instanceActions"]) == 2


def test_log_of_a_deleted_server_is_readable_since_2_21(api: Client) -> None:
    instance = make_instance(deleted=True)
    api.conductor.instances[instance.uuid] = instance
    path = f"/servers/{instance.uuid}/os-instance-actions"
    assert api("GET", path, version="2.20").status_code == 404
    assert api("GET", path, version="2.21").status_code == 200


def test_unknown_instance_action_is_404(api: Client, log: str) -> None:
    message = fault(api("GET", f"{log}/req-x"), "itemNotFound", 404)
    assert message.startswith("Action for request_id req-x on instance")


# --- extensions


def test_extensions_are_listed_and_shown(api: Client) -> None:
    extensions = api.json("GET", "/extensions")["extensions"]
    names = {item["alias"]: item["name"] for item in extensions}
    facts = dict(line.split() for line in (ROOT / "tests/unit/api/nova_extensions.txt").read_text().splitlines()[1:])
    assert names.items() <= facts.items(), "an alias or a name that Nova has not"
    assert {"os-keypairs", "os-hypervisors", "os-server-start-stop", "OS-EXT-STS", "os-multiple-create"} <= set(names)
    assert not {"os-cells", "os-baremetal-nodes", "os-fping", "os-unserved", "server-readings"} & set(names)
    assert all(set(item) == {"alias", "name", "description", "namespace", "updated", "links"} for item in extensions)
    assert api.json("GET", "/extensions/os-keypairs")["extension"]["alias"] == "os-keypairs"
    assert fault(api("GET", "/extensions/x"), "itemNotFound", 404) == "There is no extension x here."


def test_listed_extensions_are_the_served_ones() -> None:
    from nova_lite.api.compute import extensions

    facts = {line.split()[0] for line in (ROOT / "tests/unit/api/nova_extensions.txt").read_text().splitlines()[1:]}
    removed = {"os-agents", "os-cells", "os-cell-capacities", "os-certificates", "os-cloudpipe", "os-cloudpipe-update"}
    removed |= {"os-fixed-ips", "os-floating-ip-dns", "os-floating-ips-bulk", "os-fping", "os-networks-associate"}
    removed |= {"os-security-group-default-rules", "os-virtual-interfaces"}
    assert set(extensions.NOVA_EXTENSIONS) == facts - removed - {"os-hide-server-addresses"}
    shapes = {re.sub(r"{\w+}", "{}", f"{row.method} {row.path}") for row in inventory.route_entries()}
    actions = {row.action for row in inventory.route_entries()}
    assert {part.route for part in extensions.NOVA_EXTENSIONS.values()} <= shapes | actions
    assert len(extensions.served()) >= 65


def test_broken_extension_is_left_out(tmp_path, monkeypatch: pytest.MonkeyPatch, caplog) -> None:
    from nova_lite.api.compute import images

    def broken(self: Any, services: Any) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(images.Images, "__init__", broken)
    api = make_client(make_conf(tmp_path))
    assert api("GET", "/images").status_code == 404
    assert api("GET", "/flavors").status_code == 200
    assert "API extension images cannot be loaded" in caplog.text


def test_route_table_names_existing_functions() -> None:
    import importlib

    table = router.route_table()
    assert ("GET", "/servers", "nova_lite.api.compute.servers.routes:Servers.index") in table
    for _, _, where in table:
        module, _, path = where.partition(":")
        name, _, function = path.partition(".")
        assert callable(getattr(getattr(importlib.import_module(module), name), function))


# --- hosts


def test_hosts_are_listed(api: Client) -> None:
    host, zone = "compute1", api.conductor.service.availability_zone
    shown = {"host_name": host, "service": "compute", "zone": zone}
    assert api.json("GET", "/os-hosts", token=ADMIN) == {"hosts": [shown]}
    assert api.json("GET", f"/os-hosts?zone={zone}", token=ADMIN) == {"hosts": [shown]}
    assert api.json("GET", "/os-hosts?zone=", token=ADMIN) == {"hosts": [shown]}
    assert api.json("GET", "/os-hosts?zone=x", token=ADMIN) == {"hosts": []}
    assert api("GET", "/os-hosts", token=ADMIN, version="2.43").status_code == 404


def test_host_resources_are_shown_by_project(api: Client) -> None:
    api.conductor.add(host="compute1")
    resources = [item["resource"] for item in api.json("GET", "/os-hosts/compute1", token=ADMIN)["host"]]
    assert [item["project"] for item in resources] == ["(total)", "(used_now)", "(used_max)", "demo"]
    flavor, node = make_instance().flavor, api.conductor.node
    assert resources[0] == {
        "host": "compute1",
        "project": "(total)",
        "cpu": node.inventory.vcpus,
        "memory_mb": node.inventory.memory_mb,
        "disk_gb": node.inventory.disk_gb,
    }
    assert resources[3]["memory_mb"] == flavor.memory_mb
    assert api("GET", "/os-hosts/other", token=ADMIN).status_code == 404


def test_host_is_enabled_and_disabled(api: Client) -> None:
    path = "/os-hosts/compute1"
    assert api.json("PUT", path, {"status": "disable"}, token=ADMIN) == {"host": "compute1", "status": "disabled"}
    assert api.conductor.service.disabled
    assert api.json("PUT", path, {"status": "enable"}, token=ADMIN) == {"host": "compute1", "status": "enabled"}
    assert not api.conductor.service.disabled
    for body in ({}, {"status": "on"}, {"maintenance_mode": "x"}, {"param": "x"}):
        assert api("PUT", path, body, token=ADMIN).status_code == 400
    fault(api("PUT", path, {"maintenance_mode": "enable"}, token=ADMIN), "notImplemented", 501)
    assert api("PUT", "/os-hosts/other", {"status": "enable"}, token=ADMIN).status_code == 404


@pytest.mark.parametrize("verb", ["startup", "shutdown", "reboot"])
def test_host_power_actions_are_refused(api: Client, verb: str) -> None:
    fault(api("GET", f"/os-hosts/compute1/{verb}", token=ADMIN), "notImplemented", 501)
    assert api("GET", f"/os-hosts/other/{verb}", token=ADMIN).status_code == 404
    assert api("GET", f"/os-hosts/compute1/{verb}").status_code == 403


# --- metadata of images


def test_image_metadata_is_changed_through_the_image_service(api: Client) -> None:
    path = f"/images/{IMAGE_ID}/metadata"
    assert api.json("PUT", path, {"metadata": {"a": "1", "b": "2"}}) == {"metadata": {"a": "1", "b": "2"}}
    assert api.json("POST", path, {"metadata": {"b": "3", "c": "4"}}) == {"metadata": {"a": "1", "b": "3", "c": "4"}}
    assert api.json("PUT", path, {"metadata": {"a": "5", "b": "6"}}) == {"metadata": {"a": "5", "b": "6"}}
    assert api.json("PUT", f"{path}/a", {"meta": {"a": "7"}}) == {"meta": {"a": "7"}}
    assert api.json("GET", f"{path}/a") == {"meta": {"a": "7"}}
    assert api("DELETE", f"{path}/a").status_code == 204
    assert api("DELETE", f"{path}/a").status_code == 404
    assert api("GET", f"{path}/a").status_code == 404
    assert api.json("GET", path, version="2.38") == {"metadata": {"b": "6"}}
    assert api("GET", path, version="2.39").status_code == 404


def test_malformed_image_metadata_is_refused(api: Client) -> None:
    path = f"/images/{IMAGE_ID}/metadata"
    for body in ({}, {"metadata": {"a": 1}}, {"metadata": {"a/b": "1"}}, {"metadata": None}):
        assert api("POST", path, body).status_code == 400
    for meta in ({}, {"b": "1"}, {"a": "1", "b": "2"}):
        assert api("PUT", f"{path}/a", {"meta": meta}).status_code == 400
    many = {"metadata": {f"key{number}": "x" for number in range(129)}}
    assert fault(api("POST", path, many), "forbidden", 403) == "Image metadata limit exceeded"
    assert api("POST", "/images/00000000-0000-0000-0000-000000000000/metadata", {"metadata": {}}).status_code == 404
