"""Tags of the network API's resources, filters by tags, and the attributes that all resources have."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from nova_lite.db.network import builtin_networks
from nova_lite.network import factory
from tests.support.api_client import ADMIN, STRANGER
from tests.unit.api.network.conftest import KINDS, Api, make_one_of_each


@pytest.mark.parametrize("kind", KINDS)
def test_tags_are_replaced_added_and_deleted(api: Api, kind: str) -> None:
    path, key = KINDS[kind]
    made = make_one_of_each(api)
    url = f"{path}/{made[kind]['id']}"
    assert made[kind]["tags"] == []
    response = api("PUT", f"{url}/tags", {"tags": ["blue", "a b ü", "blue"]})
    assert (response.status_code, response.json) == (200, {"tags": ["a b ü", "blue"]})
    shown = api.get(url)[key]
    assert shown["tags"] == ["a b ü", "blue"]
    assert shown["created_at"] == made[kind]["created_at"] is not None
    assert api("PUT", f"{url}/tags/red").status_code == 201
    assert api("PUT", f"{url}/tags/red").status_code == 201
    assert api.get(f"{url}/tags") == {"tags": ["a b ü", "blue", "red"]}
    assert api("GET", f"{url}/tags/{quote('a b ü', safe='')}").status_code == 204
    assert api("DELETE", f"{url}/tags/red").status_code == 204
    api.refused("GET", f"{url}/tags/red", None, 404, "TagNotFound", "red")
    api.refused("DELETE", f"{url}/tags/red", None, 404, "TagNotFound", "red")
    assert [item["id"] for item in api.get(f"{path}?tags=blue")[kind]] == [made[kind]["id"]]
    others = [kind_of for kind_of in KINDS if kind_of not in (kind, "security_group_rules")]
    assert all(item["tags"] == [] for other in others for item in api.get(KINDS[other][0])[other])
    assert api("DELETE", f"{url}/tags").status_code == 204
    assert api.get(f"{url}/tags") == {"tags": []}


def test_tags_of_another_project_are_not_found(api: Api) -> None:
    for kind, made in make_one_of_each(api).items():
        url = f"{KINDS[kind][0]}/{made['id']}"
        assert api("PUT", f"{url}/tags", {"tags": ["mine"]}).status_code == 200
        for method, rest, body in (
            ("GET", "/tags", None),
            ("GET", "/tags/mine", None),
            ("PUT", "/tags", {"tags": []}),
            ("PUT", "/tags/theirs", None),
            ("DELETE", "/tags/mine", None),
            ("DELETE", "/tags", None),
        ):
            assert api(method, url + rest, body, STRANGER).status_code == 404, (method, url, rest)
        assert api.get(f"{url}/tags", ADMIN) == {"tags": ["mine"]}


def test_tags_of_shared_networks_and_pools_are_for_operators(api: Api) -> None:
    url = f"/networks/{api.shared.id}/tags"
    api.refused("PUT", url, {"tags": ["a"]}, 403, "Forbidden", "an admin may change it")
    assert api("PUT", url, {"tags": ["a"]}, ADMIN).status_code == 200
    assert api.get(url) == {"tags": ["a"]}
    for path in (f"/networks/{api.pool.id}", f"/subnets/{api.subnet_of(api.pool.id)}"):
        pool = f"{path}/tags"
        api.refused("PUT", pool, {"tags": ["a"]}, 403, "Forbidden", "pools of floating addresses", ADMIN)


def test_ipv6_subnet_is_not_tagged(api: Api) -> None:
    dual = factory.new_network("dual", "10.1.0.0/24", cidr6="fd00:1::/64", project_id="demo")
    api.manager.db.write(builtin_networks.create, dual)
    url = f"/subnets/{api.subnet_of(dual.id, version=6)}/tags"
    assert api.get(url) == {"tags": []}
    api.refused("PUT", url, {"tags": ["a"]}, 403, "Forbidden", "created and deleted with its network")


@pytest.mark.parametrize(
    ("tags", "kind", "text"),
    [
        (None, "HTTPBadRequest", "a list"),
        ("blue", "HTTPBadRequest", "a list"),
        ([""], "HTTPBadRequest", "1 to 255"),
        (["x" * 256], "HTTPBadRequest", "1 to 255"),
        (["a,b"], "HTTPBadRequest", "without commas"),
        (["a\nb"], "HTTPBadRequest", "printable"),
        ([1], "HTTPBadRequest", "a text"),
        ([str(number) for number in range(51)], "HTTPBadRequest", "at most 50"),
    ],
)
def test_invalid_tags_are_a_400(api: Api, tags: Any, kind: str, text: str) -> None:
    url = f"/ports/{api.port()['id']}/tags"
    api.refused("PUT", url, {"tags": tags}, 400, kind, text)
    assert api.get(url) == {"tags": []}


def test_lists_are_filtered_by_tags(api: Api) -> None:
    names = {}
    for name, tags in (("none", []), ("blue", ["blue"]), ("both", ["blue", "red"])):
        names[api.port(name=name)["id"]] = name
        port = next(id for id, known in names.items() if known == name)
        assert api("PUT", f"/ports/{port}/tags", {"tags": tags}).status_code == 200

    def found(query: str) -> set[str]:
        return {names[port["id"]] for port in api.get(f"/ports?{query}")["ports"]}

    assert found("tags=blue") == {"blue", "both"}
    assert found("tags=blue,red") == {"both"}
    assert found("tags-any=red,green") == {"both"}
    assert found("not-tags=blue,red") == {"none", "blue"}
    assert found("not-tags-any=red,green") == {"none", "blue"}
    assert found("tags=blue&not-tags-any=red&name=blue") == {"blue"}
    assert found("tags=") == {"none", "blue", "both"}
    assert found("tags=blue&limit=1&sort_key=name") == {"blue"}


@pytest.mark.parametrize("kind", ["security_groups", "security_group_rules"])
def test_default_group_without_a_row_is_tagged(api: Api, kind: str) -> None:
    (group,) = api.get("/security-groups?name=default")["security_groups"]
    tagged = group["id"] if kind == "security_groups" else group["security_group_rules"][0]["id"]
    path, key = KINDS[kind]
    assert api("PUT", f"{path}/{tagged}/tags", {"tags": ["blue"]}).status_code == 200
    assert api.get(f"{path}/{tagged}")[key]["tags"] == ["blue"]
    (again,) = api.get("/security-groups?name=default")["security_groups"]
    before, after = ({rule["id"] for rule in shown["security_group_rules"]} for shown in (group, again))
    assert before == after


def test_subnet_that_is_made_again_has_no_tags(api: Api) -> None:
    network = api.make("/networks", "network", name="one")
    body = {"network_id": network["id"], "ip_version": 4, "cidr": "10.64.1.0/24"}
    url = f"/subnets/{api.make('/subnets', 'subnet', **body)['id']}"
    assert api("PUT", f"/networks/{network['id']}/tags", {"tags": ["network"]}).status_code == 200
    assert api("PUT", f"{url}/tags", {"tags": ["subnet"]}).status_code == 200
    assert api.get(f"/networks/{network['id']}/tags") == {"tags": ["network"]}
    assert api("DELETE", url).status_code == 204
    api.refused("PUT", f"{url}/tags", {"tags": []}, 404, "SubnetNotFound", url.rpartition("/")[2])
    assert api.make("/subnets", "subnet", **body)["tags"] == []
    assert api.get(f"/networks/{network['id']}/tags") == {"tags": ["network"]}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "security_group_rules"])
def test_revision_grows_with_each_change(api: Api, kind: str) -> None:
    path, key = KINDS[kind]
    made = make_one_of_each(api)[kind]
    url = f"{path}/{made['id']}"
    changed = api("PUT", url, {key: {"description": "new"}}).json[key]
    tagged = (api("PUT", f"{url}/tags/blue"), api.get(url)[key])[1]
    assert made["revision_number"] <= changed["revision_number"] <= tagged["revision_number"]
    assert made["revision_number"] < tagged["revision_number"]
    assert tagged["updated_at"] >= changed["updated_at"] >= made["created_at"]


def test_pool_has_the_time_of_its_creation(api: Api) -> None:
    shown = api.get(f"/networks/{api.pool.id}")["network"]
    assert (
        shown["created_at"]
        == shown["updated_at"]
        == api.get(f"/subnets/{api.subnet_of(api.pool.id)}", ADMIN)["subnet"]["created_at"]
    )
    assert shown["created_at"].endswith("Z") and shown["revision_number"] == 1


def test_extensions_of_standard_attributes_are_listed(api: Api) -> None:
    known = {item["alias"] for item in api.get("/extensions")["extensions"]}
    assert known >= {f"standard-attr-{name}" for name in ("description", "revisions", "tag", "timestamp")}


@pytest.mark.parametrize("kind", KINDS)
def test_tags_are_added_together(api: Api, kind: str) -> None:
    url = f"{KINDS[kind][0]}/{make_one_of_each(api)[kind]['id']}/tags"
    assert api("PUT", url, {"tags": ["red"]}).status_code == 200
    added = api("POST", url, {"tags": ["blue", "red", "green"]})
    assert (added.status_code, added.json) == (201, {"tags": ["blue", "green", "red"]})
    assert api.get(url) == added.json
    api.refused("POST", url, {"tags": "blue"}, 400, "HTTPBadRequest", "list of texts")
    api.refused("POST", url, {"tags": ["a,b"]}, 400, "HTTPBadRequest", "commas")


@pytest.mark.parametrize("kind", KINDS)
def test_tags_are_given_at_creation(api: Api, kind: str) -> None:
    path, key = KINDS[kind]
    network, group = api.make("/networks", "network"), api.make("/security-groups", "security_group", name="other")
    values: dict[str, Any] = {
        "subnets": {"network_id": network["id"], "ip_version": 4, "cidr": "10.64.9.0/24"},
        "subnetpools": {"prefixes": ["10.64.0.0/17"]},
        "ports": {"network_id": api.shared.id},
        "floatingips": {"floating_network_id": api.pool.id},
        "security_groups": {"name": "one"},
        "security_group_rules": {"security_group_id": group["id"], "direction": "ingress"},
    }
    body = {**values.get(kind, {}), "tags": ["red", "blue", "red"]}
    made = api.make(path, key, **body)
    assert made["tags"] == ["blue", "red"] == api.get(f"{path}/{made['id']}")[key]["tags"]
    api.refused("POST", path, {key: {**body, "tags": ["a,b"]}}, 400, "HTTPBadRequest", "commas")
    many = [str(number) for number in range(51)]
    api.refused("POST", path, {key: {**body, "tags": many}}, 400, "HTTPBadRequest", "at most 50")
