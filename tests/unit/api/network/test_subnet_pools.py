"""Subnet pools and address scopes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from nova_lite.base import ip
from nova_lite.db.network import address_scopes, subnet_pools
from tests.support.api_client import ADMIN, MEMBER, STRANGER
from tests.unit.api.network.conftest import Api

NOBODY = "00000000-0000-0000-0000-000000000001"


def pool(api: Api, *prefixes: str, **values: Any) -> dict[str, Any]:
    return api.make("/subnetpools", "subnetpool", prefixes=list(prefixes) or ["10.64.0.0/16"], **values)


def subnet(api: Api, pool_id: str, **values: Any) -> dict[str, Any]:
    network_id = api.make("/networks", "network")["id"]
    return api.make("/subnets", "subnet", network_id=network_id, subnetpool_id=pool_id, ip_version=4, **values)


def refused(api: Api, values: dict[str, Any], status: int, kind: str, text: str, **rest: Any) -> None:
    network_id = api.make("/networks", "network", **rest)["id"]
    body = {"subnet": {"network_id": network_id, "ip_version": 4, **values}}
    api.refused("POST", "/subnets", body, status, kind, text)
    assert api("DELETE", f"/networks/{network_id}").status_code == 204


def test_pool_is_shown_as_in_neutron(api: Api) -> None:
    made = pool(api, "10.1.1.0/24", "10.1.0.5/24", name="one", description="text", default_quota=512)
    assert made == {
        "id": made["id"],
        "name": "one",
        "description": "text",
        "project_id": "demo",
        "tenant_id": "demo",
        "prefixes": ["10.1.0.0/23"],
        "ip_version": 4,
        "default_prefixlen": "8",
        "min_prefixlen": "8",
        "max_prefixlen": "32",
        "default_quota": 512,
        "is_default": False,
        "shared": False,
        "address_scope_id": None,
        "tags": [],
        "revision_number": 1,
        "created_at": made["created_at"],
        "updated_at": made["created_at"],
    }
    assert api.get(f"/subnetpools/{made['id']}") == {"subnetpool": made}
    assert api.get("/subnetpools?name=one") == {"subnetpools": [made]}
    assert api.get("/subnetpools", STRANGER) == {"subnetpools": []}
    api.refused("GET", f"/subnetpools/{made['id']}", None, 404, "SubnetPoolNotFound", made["id"], STRANGER)
    six = pool(api, "2001:db8::/48")
    assert (six["ip_version"], six["min_prefixlen"], six["max_prefixlen"]) == (6, "64", "128")


def test_subnets_get_free_prefixes_of_the_pool(api: Api) -> None:
    api.manager.conf.set_override("networks_per_project", 10, "network")
    made = pool(api, "10.63.255.0/24", "10.64.0.0/22", min_prefixlen=24, max_prefixlen=28)
    taken = api.make("/networks", "network")["id"]
    api.make("/subnets", "subnet", network_id=taken, ip_version=4, cidr="10.64.0.0/28")
    first = subnet(api, made["id"])
    # The first prefix is not within the operator's ranges. A part of the second one is in use, but not of the pool.
    assert (first["cidr"], first["subnetpool_id"], first["gateway_ip"]) == ("10.64.0.0/24", made["id"], "10.64.0.1")
    second = subnet(api, made["id"], prefixlen=26)
    assert second["cidr"] == "10.64.1.0/26"
    for cidr in ("10.64.0.16/28", "10.64.1.0/24"):
        refused(api, {"subnetpool_id": made["id"], "cidr": cidr}, 400, "SubnetAllocationError", "is not available")
    api.refused("DELETE", f"/subnetpools/{made['id']}", None, 400, "SubnetPoolInUse", "existing allocations")
    for item in (first, second):
        assert api("DELETE", f"/networks/{item['network_id']}").status_code == 204
    chosen = subnet(api, made["id"], cidr="10.64.3.16/28")
    assert (chosen["cidr"], chosen["subnetpool_id"]) == ("10.64.3.16/28", made["id"])
    assert api("DELETE", f"/networks/{chosen['network_id']}").status_code == 204
    assert api("DELETE", f"/subnetpools/{made['id']}").status_code == 204


@pytest.mark.parametrize(
    ("values", "status", "kind", "text"),
    [
        ({"prefixlen": 23}, 400, "MinPrefixSubnetAllocationError", "prefix length 23, minimum allowed prefix is 24"),
        ({"prefixlen": 29}, 400, "MaxPrefixSubnetAllocationError", "prefix length 29, maximum allowed prefix is 28"),
        ({"cidr": "10.64.0.0/20"}, 400, "MinPrefixSubnetAllocationError", "minimum allowed prefix is 24"),
        ({"cidr": "10.65.0.0/24"}, 400, "SubnetAllocationError", "10.65.0.0/24 is not available"),
        ({"cidr": "10.64.0.0/24", "prefixlen": 24}, 400, "HTTPBadRequest", "needs a subnetpool_id, and no cidr"),
        ({"cidr": "rubbish"}, 400, "InvalidInput", "not an IPv4 network"),
        ({"use_default_subnetpool": True}, 400, "HTTPBadRequest", "cannot both be specified"),
        ({"subnetpool_id": NOBODY}, 404, "SubnetPoolNotFound", NOBODY),
        ({"subnetpool_id": None, "use_default_subnetpool": True}, 400, "BadRequest", "No default subnetpool"),
    ],
)
def test_unsuitable_prefix_is_refused(api: Api, values: dict[str, Any], status: int, kind: str, text: str) -> None:
    made = pool(api, "10.64.0.0/16", min_prefixlen=24, max_prefixlen=28)
    refused(api, {"subnetpool_id": made["id"], **values}, status, kind, text)


def test_pool_without_room_gives_no_prefix(api: Api) -> None:
    made = pool(api, "10.64.0.0/24", default_prefixlen=24, default_quota=256)
    subnet(api, made["id"])
    wanted = {"subnetpool_id": made["id"]}
    refused(api, wanted, 400, "SubnetAllocationError", "Insufficient prefix space to allocate subnet size /24")
    changes = {"subnetpool": {"prefixes": ["10.64.0.0/23"]}}
    assert api("PUT", f"/subnetpools/{made['id']}", changes).json["subnetpool"]["prefixes"] == ["10.64.0.0/23"]
    refused(api, wanted, 409, "SubnetPoolQuotaExceeded", "prefix quota exceeded")
    assert api("PUT", f"/subnetpools/{made['id']}", {"subnetpool": {"default_quota": None}}).status_code == 200
    assert subnet(api, made["id"])["cidr"] == "10.64.1.0/24"


def test_default_pool_gives_a_prefix(api: Api) -> None:
    body = {"subnetpool": {"prefixes": ["10.64.0.0/16"], "is_default": True, "default_prefixlen": 26, "shared": True}}
    api.refused("POST", "/subnetpools", body, 403, "PolicyNotAuthorized", "create_subnetpool:shared")
    body["subnetpool"]["shared"] = False
    api.refused("POST", "/subnetpools", body, 403, "PolicyNotAuthorized", "create_subnetpool:is_default")
    made = api.make("/subnetpools", "subnetpool", ADMIN, **body["subnetpool"] | {"shared": True})
    api.refused("POST", "/subnetpools", body, 400, "InvalidInput", "Only one default may exist", ADMIN)
    network_id = api.make("/networks", "network")["id"]
    given = api.make("/subnets", "subnet", network_id=network_id, ip_version=4, use_default_subnetpool=True)
    assert (given["cidr"], given["subnetpool_id"]) == ("10.64.0.0/26", made["id"])


@pytest.mark.parametrize(
    ("values", "kind", "text"),
    [
        ({}, "HTTPBadRequest", "Required attribute 'prefixes'"),
        ({"prefixes": ["10.0.0.0/8", "2001:db8::/32"]}, "PrefixVersionMismatch", "Cannot mix IPv4 and IPv6"),
        ({"prefixes": ["10.0.0.0/33"]}, "HTTPBadRequest", "not a valid IP subnet"),
        (
            {"prefixes": ["10.0.0.0/8"], "min_prefixlen": 25, "max_prefixlen": 24},
            "IllegalSubnetPoolPrefixBounds",
            "min_prefixlen",
        ),
        ({"prefixes": ["10.0.0.0/8"], "max_prefixlen": 33}, "IllegalSubnetPoolPrefixBounds", "ip_version_max=32"),
        ({"prefixes": ["10.0.0.0/8"], "default_prefixlen": 4}, "IllegalSubnetPoolPrefixBounds", "default_prefixlen=4"),
        ({"prefixes": ["10.0.0.0/8"], "min_prefixlen": "x"}, "HTTPBadRequest", "from 0 to 128"),
    ],
)
def test_invalid_pool_is_refused(api: Api, values: dict[str, Any], kind: str, text: str) -> None:
    api.refused("POST", "/subnetpools", {"subnetpool": values}, 400, kind, text)


def test_prefixes_of_a_pool_grow_and_lose_what_is_unused(api: Api) -> None:
    url = f"/subnetpools/{pool(api, '10.64.0.0/24', default_prefixlen=24)['id']}"
    subnet(api, url.rpartition("/")[2])
    shrunk = {"subnetpool": {"prefixes": ["10.64.0.0/25"]}}
    api.refused("PUT", url, shrunk, 400, "IllegalSubnetPoolPrefixUpdate", "must be a subset of the new prefixes")
    added = api("PUT", f"{url}/add_prefixes", {"prefixes": ["10.64.1.0/24", "10.70.0.0/16"]})
    assert (added.status_code, added.json) == (200, {"prefixes": ["10.64.0.0/23", "10.70.0.0/16"]})
    api.refused(
        "PUT", f"{url}/remove_prefixes", {"prefixes": ["10.64.0.0/25"]}, 400, "IllegalSubnetPoolPrefixUpdate", "subnet"
    )
    api.refused(
        "PUT",
        f"{url}/remove_prefixes",
        {"prefixes": ["10.9.0.0/25"]},
        400,
        "IllegalSubnetPoolPrefixUpdate",
        "not within",
    )
    removed = api("PUT", f"{url}/remove_prefixes", {"prefixes": ["10.70.0.0/16", "10.64.1.128/25"]})
    assert removed.json == {"prefixes": ["10.64.0.0/24", "10.64.1.0/25"]}
    api.refused("PUT", f"{url}/add_prefixes", {}, 400, "HTTPBadRequest", "prefixes")
    api.refused("PUT", f"{url}/add_prefixes", {"prefixes": ["10.1.0.0/16"]}, 404, "SubnetPoolNotFound", "", STRANGER)


def test_quota_limits_pools(api: Api) -> None:
    quota = {"quota": {"subnetpool": 1, "rbac_policy": 0}}
    shown = api("PUT", "/quotas/demo", quota, ADMIN).json["quota"]
    assert (shown["subnetpool"], shown["rbac_policy"]) == (1, 0)
    pool(api)
    api.refused("POST", "/subnetpools", {"subnetpool": {"prefixes": ["10.1.0.0/16"]}}, 409, "OverQuota", "subnetpool")
    assert api.get("/quotas/demo/details", ADMIN)["quota"]["subnetpool"]["used"] == 1


def test_project_without_a_quota_has_few_pools(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    assert api.get("/quotas/demo")["quota"]["subnetpool"] == 50
    monkeypatch.setattr(subnet_pools, "DEFAULT_LIMIT", 1)
    pool(api)
    api.refused("POST", "/subnetpools", {"subnetpool": {"prefixes": ["10.1.0.0/16"]}}, 409, "OverQuota", "subnetpool")


def test_pools_of_a_scope_do_not_overlap(api: Api) -> None:
    scope = api.make("/address-scopes", "address_scope", name="one", ip_version=4)
    assert scope == {
        "id": scope["id"],
        "name": "one",
        "project_id": "demo",
        "tenant_id": "demo",
        "ip_version": 4,
        "shared": False,
    }
    made = pool(api, "10.64.0.0/24", address_scope_id=scope["id"])
    assert made["address_scope_id"] == scope["id"]
    body = {"subnetpool": {"prefixes": ["10.64.0.128/25"], "address_scope_id": scope["id"]}}
    api.refused("POST", "/subnetpools", body, 409, "AddressScopePrefixConflict", "unique prefixes")
    body["subnetpool"]["prefixes"] = ["2001:db8::/48"]
    api.refused(
        "POST", "/subnetpools", body, 400, "IllegalSubnetPoolIpVersionAssociationToAddressScope", "ip_version is not 4"
    )
    api.refused("POST", "/subnetpools", body, 404, "AddressScopeNotFound", scope["id"], STRANGER)
    api.refused("DELETE", f"/address-scopes/{scope['id']}", None, 409, "AddressScopeInUse", "in use")
    assert api("PUT", f"/subnetpools/{made['id']}", {"subnetpool": {"address_scope_id": None}}).status_code == 200
    renamed = api("PUT", f"/address-scopes/{scope['id']}", {"address_scope": {"name": "two"}})
    assert renamed.json["address_scope"]["name"] == "two"
    assert api("DELETE", f"/address-scopes/{scope['id']}").status_code == 204
    api.refused("GET", f"/address-scopes/{scope['id']}", None, 404, "AddressScopeNotFound", scope["id"])


def test_shared_scope_is_seen_by_all_and_stays_shared(api: Api) -> None:
    body = {"address_scope": {"ip_version": 4, "shared": True}}
    api.refused("POST", "/address-scopes", body, 403, "PolicyNotAuthorized", "create_address_scope:shared")
    scope = api.make("/address-scopes", "address_scope", ADMIN, ip_version=4)
    url = f"/address-scopes/{scope['id']}"
    api.refused("GET", url, None, 404, "AddressScopeNotFound", scope["id"], STRANGER)
    shared = api("PUT", url, {"address_scope": {"shared": True}}, ADMIN)
    assert shared.json["address_scope"]["shared"] is True
    assert api.get(url, STRANGER)["address_scope"]["shared"] is True
    api.refused("PUT", url, {"address_scope": {"shared": False}}, 400, "HTTPBadRequest", "can't be unshared", ADMIN)
    api.refused("PUT", url, {"address_scope": {"name": "x"}}, 403, "Forbidden", "another project", STRANGER)
    api.refused("POST", "/address-scopes", {"address_scope": {"ip_version": 5}}, 400, "HTTPBadRequest", "4 or 6")


def test_pool_of_another_project_gives_no_prefix(api: Api) -> None:
    theirs = api.make("/subnetpools", "subnetpool", STRANGER, prefixes=["10.64.0.0/16"])
    refused(api, {"subnetpool_id": theirs["id"]}, 404, "SubnetPoolNotFound", theirs["id"])
    target = {"object_type": "subnetpool", "object_id": theirs["id"], "action": "access_as_shared"}
    policy = api.make("/rbac-policies", "rbac_policy", STRANGER, **target, target_tenant="demo")
    given = subnet(api, theirs["id"], prefixlen=24)
    assert given["cidr"] == "10.64.0.0/24"
    used = f"/rbac-policies/{policy['id']}"
    api.refused("DELETE", used, None, 409, "RbacPolicyInUse", theirs["id"], STRANGER)
    assert api("DELETE", f"/networks/{given['network_id']}").status_code == 204
    assert api("DELETE", used, token=STRANGER).status_code == 204


def pool_in_scope_of_another_project(api: Api) -> dict[str, Any]:
    scope = api.make("/address-scopes", "address_scope", STRANGER, ip_version=4)
    share = {"object_type": "address_scope", "object_id": scope["id"], "action": "access_as_shared"}
    api.make("/rbac-policies", "rbac_policy", STRANGER, **share, target_tenant="demo")
    return pool(api, address_scope_id=scope["id"])


def test_pool_is_shared_with_those_who_may_use_its_scope(api: Api) -> None:
    mine = pool_in_scope_of_another_project(api)
    share = {"object_type": "subnetpool", "object_id": mine["id"], "action": "access_as_shared"}
    for target, token in (("third", MEMBER), ("*", ADMIN)):
        body = {"rbac_policy": {**share, "target_tenant": target}}
        api.refused("POST", "/rbac-policies", body, 400, "InvalidInput", "share the scope first", token)
    policy = api.make("/rbac-policies", "rbac_policy", **share, target_tenant="other")
    body = {"rbac_policy": {"target_tenant": "third"}}
    api.refused("PUT", f"/rbac-policies/{policy['id']}", body, 400, "InvalidInput", "share the scope first")


def test_project_of_the_scope_alone_changes_prefixes_of_a_pool_in_it(api: Api) -> None:
    mine = pool_in_scope_of_another_project(api)
    path, more = f"/subnetpools/{mine['id']}", ["10.64.0.0/16", "10.66.0.0/16"]
    for changes in ({"prefixes": more}, {"address_scope_id": None}):
        refused_change = {"subnetpool": changes}
        api.refused("PUT", path, refused_change, 400, "IllegalSubnetPoolUpdate", "which alone may change its prefixes")
    api.refused(
        "PUT", f"{path}/add_prefixes", {"prefixes": more}, 400, "IllegalSubnetPoolUpdate", "which alone may change"
    )
    assert api("PUT", path, {"subnetpool": {"name": "new", "prefixes": mine["prefixes"]}}).status_code == 200
    assert api("PUT", path, {"subnetpool": {"prefixes": more}}, ADMIN).json["subnetpool"]["prefixes"] == more


def apart(number: int, first: str = "10.64.0.0") -> list[str]:
    """Return prefixes that do not touch."""
    return [f"{ip.parse4(first) + 2 * item}/32" for item in range(number)]


def test_prefixes_of_a_scope_are_compared_in_one_pass(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pool may have 1,000 prefixes, and a scope many pools: the conductor has no time for all pairs."""
    scope = api.make("/address-scopes", "address_scope", name="all", ip_version=4)["id"]
    pool(api, *apart(100), address_scope_id=scope)
    parsed: list[str] = []
    original = ip.parse_network

    def parse(text: str, strict: bool = True) -> Any:
        parsed.append(text)
        return original(text, strict)

    monkeypatch.setattr(address_scopes.ip, "parse_network", parse)
    pool(api, *apart(100, "10.65.0.0"), address_scope_id=scope)
    assert len(parsed) < 1000
    body = {"subnetpool": {"prefixes": ["10.65.0.128/25"], "address_scope_id": scope}}
    api.refused("POST", "/subnetpools", body, 409, "AddressScopePrefixConflict", "")


def test_pool_gets_no_more_prefixes_than_a_new_one_may_have(api: Api) -> None:
    made = pool(api, *apart(900))
    url = f"/subnetpools/{made['id']}"
    api.refused("PUT", f"{url}/add_prefixes", {"prefixes": apart(900, "10.66.0.0")}, 400, "BadRequest", "at most 1000")
    assert api("PUT", f"{url}/add_prefixes", {"prefixes": apart(100, "10.66.0.0")}).status_code == 200
    whole = pool(api, "2001:db8::/32")
    gone = {"prefixes": [f"2001:db8:{item:x}::1/128" for item in range(0, 100, 2)]}
    api.refused("PUT", f"/subnetpools/{whole['id']}/remove_prefixes", gone, 400, "BadRequest", "at most 1000")


def test_prefixes_without_subnets_are_removed(api: Api) -> None:
    made = pool(api, "10.64.0.0/16", min_prefixlen=24, default_prefixlen=24)
    for cidr in ("10.64.1.0/24", "10.64.9.0/24"):
        subnet(api, made["id"], cidr=cidr)
    url = f"/subnetpools/{made['id']}/remove_prefixes"
    for prefix in ("10.64.0.0/21", "10.64.9.128/25", "10.64.9.0/24", "10.64.0.0/16"):
        api.refused(
            "PUT", url, {"prefixes": [prefix]}, 400, "IllegalSubnetPoolPrefixUpdate", "has addresses of subnet 10.64."
        )
    left = api("PUT", url, {"prefixes": ["10.64.128.0/17", "10.64.8.0/24", "10.64.10.0/23"]})
    assert left.status_code == 200, left.text
    assert "10.64.9.0/24" in left.json["prefixes"] and "10.64.128.0/17" not in left.json["prefixes"]


class Counted(list[tuple[int, int]]):
    """Ranges that count how often one is read."""

    reads = 0

    def __iter__(self) -> Iterator[tuple[int, int]]:
        for item in super().__iter__():
            self.reads += 1
            yield item

    def __getitem__(self, index: Any) -> Any:
        self.reads += 1
        return super().__getitem__(index)


def test_free_prefix_is_found_without_all_ranges_for_each_prefix() -> None:
    start = int(ip.parse4("10.64.0.0"))
    taken = Counted((start + 256 * item, start + 256 * item + 255) for item in range(1000))
    prefixes = [ip.parse_network4(f"{ip.parse4('10.64.0.0') + 256 * item}/24") for item in range(1000)]
    assert subnet_pools._first_free(prefixes, taken, 24) is None
    assert taken.reads < 10_000
    free = ip.parse_network4("10.67.232.0/21")
    assert str(subnet_pools._first_free([*prefixes, free], taken, 24)) == "10.67.232.0/24"
    assert str(subnet_pools._first_free([ip.parse_network4("10.67.224.0/20")], taken, 22)) == "10.67.232.0/22"


def test_pool_of_ipv6_gives_prefixes(api: Api) -> None:
    """The quota of such a pool counts prefixes of 64 bits."""
    api.manager.conf.set_override("project_ranges", ["10.64.0.0/16", "fd00::/16"], "network")
    six = pool(api, "fd00:1::/48", default_prefixlen=64, min_prefixlen=64, default_quota=2)
    v6 = {"ip_version": 6, "subnetpool_id": six["id"]}
    network_id = api.make("/networks", "network")["id"]
    first = api.make("/subnets", "subnet", network_id=network_id, **v6, ipv6_address_mode="slaac")
    assert (first["cidr"], first["subnetpool_id"]) == ("fd00:1::/64", six["id"])
    second = api.make("/subnets", "subnet", network_id=network_id, **v6, cidr="fd00:1:0:7::/64")
    assert (second["cidr"], second["gateway_ip"]) == ("fd00:1:0:7::/64", "fd00:1:0:7::1")
    refused(api, v6, 409, "SubnetPoolQuotaExceeded", "quota")
    assert api("PUT", f"/subnetpools/{six['id']}", {"subnetpool": {"default_quota": None}}).status_code == 200
    refused(api, {**v6, "prefixlen": 48}, 400, "MinPrefixSubnetAllocationError", "minimum allowed prefix is 64")
    refused(api, {**v6, "cidr": "fd00:2::/64"}, 400, "SubnetAllocationError", "not available")
    refused(api, {**v6, "ip_version": 4}, 400, "BadRequest", "has IPv6 prefixes, not IPv4")
    refused(api, {"ip_version": 6, "use_default_subnetpool": True}, 400, "BadRequest", "found for IPv6")
    path = f"/subnetpools/{six['id']}"
    removed = {"prefixes": ["fd00:1:0:7::/64"]}
    api.refused(
        "PUT", f"{path}/remove_prefixes", removed, 400, "IllegalSubnetPoolPrefixUpdate", "has addresses of subnet"
    )
    api.refused("DELETE", path, None, 400, "SubnetPoolInUse", "existing allocations")
    assert api("DELETE", f"/networks/{network_id}").status_code == 204
    assert api("DELETE", path).status_code == 204
