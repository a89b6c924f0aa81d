"""The Placement API over a real conductor."""

from __future__ import annotations

import email.utils
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jsonschema
import pytest
import webob

from nova_lite.api.http import deploy
from nova_lite.base.context import RequestContext
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.hosts import aggregates, hosts, services
from nova_lite.db.servers import claims, instances
from nova_lite.objects import Aggregate, Selection
from nova_lite.policies import placement_service as policies
from tests.support import make
from tests.support.api_client import ADMIN, MEMBER, make_conf
from tests.support.in_process_api import make_services

HOSTS = ("h1", "h2", "h3")
NEWEST = "1.39"
UNKNOWN = "9d3a4a5c-7e1c-4a86-8bb2-0c1a3c1b9f01"


class Api:
    """Three hosts of 16 vCPUs and 1024 MB. ``server`` is on the first, which is in ``aggregate``."""

    def __init__(self, path: Path) -> None:
        conf = make_conf(
            path,
            f"enabled_apis = placement\nmax_limit = 2\n[database]\nconnection = sqlite:///{path}/db.sqlite\n",
        )
        self.manager, api_services = make_services(conf, path)
        self.app = deploy.load_app("placement", api_services)
        self.policy = api_services.policy
        db = self.manager.db
        for host in HOSTS:
            traits = ["COMPUTE_NODE", *(["CUSTOM_FAST"] if host == "h2" else [])]
            inventory = make.inventory(f"node-{host}", capabilities={"traits": traits})
            db.write(hosts.record, conf, make.report(host, inventories=[inventory]))
        self.aggregate: Aggregate = db.write(aggregates.create, "one")
        db.write(aggregates.add_host, conf, str(self.aggregate.id), "h1")
        self.server: str = db.write(make.instance, project_id="demo", user_id="alice")
        db.write(_claim, self.server)
        shown = self.get("/resource_providers")["resource_providers"]
        self.uuids = {item["name"].removeprefix("node-"): item["uuid"] for item in shown}

    def __call__(
        self, method: str, path: str, version: str | None = NEWEST, token: str | None = ADMIN
    ) -> webob.Response:
        request = webob.Request.blank(path, method=method, base_url="http://cloud:8778")
        if token:
            request.headers["X-Auth-Token"] = token
        if version:
            request.headers["OpenStack-API-Version"] = f"placement {version}"
        return request.get_response(self.app)

    def get(self, path: str, version: str | None = NEWEST, token: str = ADMIN) -> Any:
        response = self("GET", path, version, token)
        assert response.status_code == 200, response.text
        return response.json

    def names(self, query: str, version: str = NEWEST) -> list[str]:
        """Return the hosts of the providers that a query finds."""
        found = self.get(f"/resource_providers?{query}", version)["resource_providers"]
        return sorted(item["name"].removeprefix("node-") for item in found)

    def candidates(self, query: str, version: str = NEWEST) -> list[str]:
        found = self.get(f"/allocation_candidates?{query}", version)["provider_summaries"]
        return sorted(host for host, uuid in self.uuids.items() if uuid in found)

    def refused(self, path: str, text: str, status: int = 400, version: str = NEWEST) -> None:
        response = self("GET", path, version)
        (error,) = response.json["errors"]
        assert (response.status_code, error["status"]) == (status, status)
        assert text in error["detail"]


def _claim(uow: UnitOfWork, uuid: str) -> None:
    row = instances.lock(uow, uuid)
    assert row is not None
    assert claims.claim(uow, row, Selection(host="h1", node="node-h1"))


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """Return an API that no test changes."""
    made = Api(tmp_path_factory.mktemp("placement"))
    yield made
    made.manager.db.close()


# --- versions


def test_version_document_needs_no_token(api: Api) -> None:
    for path in ("", "/"):
        response = api("GET", path, None, token=None)
        assert response.status_code == 200
        (version,) = response.json["versions"]
        assert version == {
            "id": "v1.0",
            "status": "CURRENT",
            "min_version": "1.0",
            "max_version": "1.39",
            "links": [{"rel": "self", "href": ""}],
        }


@pytest.mark.parametrize(
    ("header", "status", "shown"),
    [
        (None, 200, "placement 1.0"),
        ("placement 1.10", 200, "placement 1.10"),
        ("placement latest", 200, "placement 1.39"),
        ("compute 2.1, placement 1.4", 200, "placement 1.4"),
        ("compute 2.1", 200, "placement 1.0"),
        ("placement 1.40", 406, None),
        ("placement 2.0", 406, None),
        ("placement one", 400, None),
        ("placement 1.٤", 400, None),
    ],
)
def test_version_header_is_read_and_repeated(api: Api, header: str | None, status: int, shown: str | None) -> None:
    request = webob.Request.blank("/resource_providers", base_url="http://cloud:8778")
    request.headers["X-Auth-Token"] = ADMIN
    if header is not None:
        request.environ["HTTP_OPENSTACK_API_VERSION"] = header
    response = request.get_response(api.app)
    assert response.status_code == status
    assert response.headers.get("OpenStack-API-Version") == shown
    if status != 200:
        (error,) = response.json["errors"]
        assert (error["min_version"], error["max_version"]) == ("1.0", "1.39")


def test_errors_have_a_code_since_1_23(api: Api) -> None:
    for version, keys in (("1.22", set()), ("1.23", {"code"})):
        response = api("GET", f"/resource_providers/{UNKNOWN}", version)
        (error,) = response.json["errors"]
        assert set(error) == {"status", "title", "detail", "request_id", *keys}
        assert (response.status_code, error["title"]) == (404, "Not Found")


@pytest.mark.parametrize(
    ("path", "since"),
    [
        ("/resource_providers/{h1}/aggregates", 1),
        ("/resource_classes", 2),
        ("/resource_classes/VCPU", 2),
        ("/traits", 6),
        ("/resource_providers/{h1}/traits", 6),
        ("/usages?project_id=demo", 9),
        ("/allocation_candidates?resources=VCPU:1", 10),
    ],
)
def test_url_exists_since_its_version(api: Api, path: str, since: int) -> None:
    path = path.format(**api.uuids)
    assert api("GET", path, f"1.{since - 1}").status_code == 404
    assert api("GET", path, f"1.{since}").status_code == 200


def test_responses_have_cache_headers_since_1_15(api: Api) -> None:
    assert "Last-Modified" not in api("GET", "/resource_providers", "1.14").headers
    for path in ("/resource_providers", "/traits", f"/allocations/{api.server}", "/traits/COMPUTE_NODE"):
        headers = api("GET", path, "1.15").headers
        assert headers["Cache-Control"] == "no-cache"
        assert email.utils.parsedate_to_datetime(headers["Last-Modified"]).tzinfo is not None


# --- documents, as Placement's reference describes them

_INTEGER, _TEXT, _UUID = {"type": "integer"}, {"type": "string"}, {"type": "string", "pattern": "^[0-9a-f-]{36}$"}
_AMOUNTS = {"type": "object", "additionalProperties": _INTEGER, "minProperties": 1}


def exactly(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": sorted(properties),
        "additionalProperties": False,
    }


def each(value: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": value, "minProperties": 1}


def array(item: Any) -> dict[str, Any]:
    return {"type": "array", "items": item, "minItems": 1}


_LINKS = array(exactly(rel=_TEXT, href={"type": "string", "pattern": "^/"}))
_TREE = {"parent_provider_uuid": {"type": "null"}, "root_provider_uuid": _UUID}
_PROVIDER = {"uuid": _UUID, "name": _TEXT, "generation": _INTEGER, "links": _LINKS}
_INVENTORY = {
    **dict.fromkeys(("total", "reserved", "min_unit", "max_unit", "step_size"), _INTEGER),
    "allocation_ratio": {"type": "number"},
}
_GENERATION = {"resource_provider_generation": _INTEGER}
_CONSUMER = {"project_id": _TEXT, "user_id": _TEXT}
_ALLOCATION = each(exactly(resources=_AMOUNTS, generation=_INTEGER))
_SUMMARY = {"resources": each(exactly(capacity=_INTEGER, used=_INTEGER))}
_CANDIDATE = {"allocations": each(exactly(resources=_AMOUNTS))}
_LISTED = exactly(resource_provider=exactly(uuid=_UUID), resources=_AMOUNTS)

DOCUMENTS = [
    ("/resource_providers", "1.0", exactly(resource_providers=array(exactly(**_PROVIDER)))),
    ("/resource_providers", "1.39", exactly(resource_providers=array(exactly(**_PROVIDER, **_TREE)))),
    ("/resource_providers/{h1}", "1.14", exactly(**_PROVIDER, **_TREE)),
    ("/resource_providers/{h1}/inventories", "1.0", exactly(inventories=each(exactly(**_INVENTORY)), **_GENERATION)),
    ("/resource_providers/{h1}/inventories/VCPU", "1.0", exactly(**_INVENTORY, **_GENERATION)),
    ("/resource_providers/{h1}/usages", "1.0", exactly(usages=_AMOUNTS, **_GENERATION)),
    ("/resource_providers/{h1}/aggregates", "1.1", exactly(aggregates=array(_UUID))),
    ("/resource_providers/{h1}/aggregates", "1.19", exactly(aggregates=array(_UUID), **_GENERATION)),
    ("/resource_providers/{h1}/traits", "1.6", exactly(traits=array(_TEXT), **_GENERATION)),
    (
        "/resource_providers/{h1}/allocations",
        "1.0",
        exactly(allocations=each(exactly(resources=_AMOUNTS)), **_GENERATION),
    ),
    (
        "/resource_providers/{h1}/allocations",
        "1.28",
        exactly(allocations=each(exactly(resources=_AMOUNTS, consumer_generation=_INTEGER)), **_GENERATION),
    ),
    ("/allocations/{server}", "1.0", exactly(allocations=_ALLOCATION)),
    ("/allocations/{server}", "1.12", exactly(allocations=_ALLOCATION, **_CONSUMER)),
    ("/allocations/{server}", "1.28", exactly(allocations=_ALLOCATION, **_CONSUMER, consumer_generation=_INTEGER)),
    (
        "/allocations/{server}",
        "1.38",
        exactly(allocations=_ALLOCATION, **_CONSUMER, consumer_generation=_INTEGER, consumer_type=_TEXT),
    ),
    ("/usages?project_id=demo", "1.9", exactly(usages=_AMOUNTS)),
    ("/usages?project_id=demo", "1.38", exactly(usages=each(_AMOUNTS))),
    ("/resource_classes", "1.2", exactly(resource_classes=array(exactly(name=_TEXT, links=_LINKS)))),
    ("/resource_classes/VCPU", "1.2", exactly(name=_TEXT, links=_LINKS)),
    ("/traits", "1.6", exactly(traits=array(_TEXT))),
    (
        "/allocation_candidates?resources=VCPU:1",
        "1.10",
        exactly(
            allocation_requests=array(exactly(allocations=array(_LISTED))),
            provider_summaries=each(exactly(**_SUMMARY)),
        ),
    ),
    (
        "/allocation_candidates?resources=VCPU:1",
        "1.12",
        exactly(allocation_requests=array(exactly(**_CANDIDATE)), provider_summaries=each(exactly(**_SUMMARY))),
    ),
    (
        "/allocation_candidates?resources=VCPU:1",
        "1.17",
        exactly(
            allocation_requests=array(exactly(**_CANDIDATE)),
            provider_summaries=each(exactly(**_SUMMARY, traits=array(_TEXT))),
        ),
    ),
    (
        "/allocation_candidates?resources=VCPU:1",
        "1.39",
        exactly(
            allocation_requests=array(exactly(**_CANDIDATE, mappings=each(array(_UUID)))),
            provider_summaries=each(exactly(**_SUMMARY, traits=array(_TEXT), **_TREE)),
        ),
    ),
]


@pytest.mark.parametrize(("path", "version", "schema"), DOCUMENTS, ids=[f"{path}-{at}" for path, at, _ in DOCUMENTS])
def test_document_has_the_form_of_its_version(api: Api, path: str, version: str, schema: dict[str, Any]) -> None:
    jsonschema.validate(api.get(path.format(server=api.server, **api.uuids), version), schema)


def test_inventory_and_usage_are_those_of_the_host(api: Api) -> None:
    url = f"/resource_providers/{api.uuids['h1']}"
    inventories = api.get(f"{url}/inventories")["inventories"]
    assert inventories["VCPU"] == {
        "total": 4,
        "reserved": 0,
        "min_unit": 1,
        "max_unit": 16,
        "step_size": 1,
        "allocation_ratio": 4.0,
    }
    assert api.get(f"{url}/usages")["usages"] == {"VCPU": 1, "MEMORY_MB": 64, "DISK_GB": 1}
    resources = {"VCPU": 1, "MEMORY_MB": 64, "DISK_GB": 1}
    assert api.get(f"{url}/allocations")["allocations"] == {
        api.server: {"resources": resources, "consumer_generation": 1}
    }
    shown = api.get(f"/allocations/{api.server}")
    assert shown["allocations"][api.uuids["h1"]]["resources"] == resources
    assert (shown["project_id"], shown["user_id"], shown["consumer_type"]) == ("demo", "alice", "INSTANCE")
    api.refused(f"{url}/inventories/VGPU", "No inventory of class VGPU", 404)


def test_unknown_consumer_has_no_allocations(api: Api) -> None:
    assert api.get(f"/allocations/{UNKNOWN}") == {"allocations": {}}


def test_usages_are_summed_by_project_and_user(api: Api) -> None:
    used = {"VCPU": 1, "MEMORY_MB": 64, "DISK_GB": 1}
    assert api.get("/usages?project_id=demo", "1.37") == {"usages": used}
    assert api.get("/usages?project_id=demo&user_id=bob", "1.37") == {"usages": {}}
    assert api.get("/usages?project_id=demo") == {"usages": {"INSTANCE": {**used, "consumer_count": 1}}}
    assert api.get("/usages?project_id=demo&consumer_type=all")["usages"].keys() == {"all"}
    assert api.get("/usages?project_id=demo&consumer_type=MIGRATION") == {"usages": {}}
    api.refused("/usages", "'project_id' is a required property")
    api.refused("/usages?project_id=demo&consumer_type=all", "'consumer_type' was unexpected", version="1.37")


# --- filters


def test_providers_are_filtered(api: Api) -> None:
    one, group = api.uuids["h1"], api.aggregate.uuid
    assert api.names("") == ["h1", "h2", "h3"]
    assert api.names(f"uuid={one}") == api.names(f"in_tree={one}") == api.names("name=node-h1") == ["h1"]
    assert api.names(f"uuid={UNKNOWN}") == api.names("name=nobody") == []
    assert api.names(f"uuid={one}&in_tree={api.uuids['h2']}") == []
    assert api.names("resources=VCPU:16") == ["h2", "h3"]
    assert api.names("resources=VCPU:15,MEMORY_MB:1") == ["h1", "h2", "h3"]
    assert api.names("resources=VGPU:1") == []
    assert api.names("required=CUSTOM_FAST") == ["h2"]
    assert api.names("required=!CUSTOM_FAST,COMPUTE_NODE") == ["h1", "h3"]
    assert api.names("required=in:CUSTOM_FAST,HW_CPU_X86_VMX&required=COMPUTE_NODE") == ["h2"]
    assert api.names("required=COMPUTE_NODE&required=HW_CPU_X86_VMX") == []
    assert api.names("required=HW_CPU_X86_VMX&required=COMPUTE_NODE", "1.38") == ["h1", "h2", "h3"]
    assert api.names(f"member_of={group}") == api.names(f"member_of=in:{UNKNOWN},{group}") == ["h1"]
    assert api.names(f"member_of=!{group}") == api.names(f"member_of=!in:{group},{UNKNOWN}") == ["h2", "h3"]
    assert api.names(f"member_of={group}&member_of={UNKNOWN}") == []


def test_candidates_have_room_for_all_groups_together(api: Api) -> None:
    assert api.candidates("resources=VCPU:15") == ["h1", "h2", "h3"]
    assert api.candidates("resources=VCPU:16") == ["h2", "h3"]
    assert api.candidates("resources=VCPU:8&resources1=VCPU:8") == ["h2", "h3"]
    assert api.candidates("resources_A=VCPU:8&resources_B=VCPU:8&group_policy=none") == ["h2", "h3"]
    assert api.candidates("resources_A=VCPU:1&resources_B=VCPU:1&group_policy=isolate") == []
    assert api.candidates("resources=VCPU:1&required=CUSTOM_FAST") == ["h2"]
    assert api.candidates("resources=VCPU:1&root_required=!CUSTOM_FAST") == ["h1", "h3"]
    assert api.candidates(f"resources=VCPU:1&member_of={api.aggregate.uuid}") == ["h1"]
    assert api.candidates(f"resources=VCPU:1&in_tree={api.uuids['h3']}") == ["h3"]
    assert api.candidates("resources=VCPU:1&required_A=CUSTOM_FAST&same_subtree=_A") == ["h2"]
    assert api.candidates("resources=VCPU:17") == []
    assert len(api.get("/allocation_candidates?resources=VCPU:1&limit=2")["allocation_requests"]) == 2


def test_candidate_is_what_the_request_asked(api: Api) -> None:
    shown = api.get(f"/allocation_candidates?resources=VCPU:2&resources1=VCPU:1&in_tree={api.uuids['h1']}")
    uuid = api.uuids["h1"]
    (request,) = shown["allocation_requests"]
    assert request == {"allocations": {uuid: {"resources": {"VCPU": 3}}}, "mappings": {"": [uuid], "1": [uuid]}}
    assert shown["provider_summaries"][uuid]["resources"]["VCPU"] == {"capacity": 16, "used": 1}
    assert set(shown["provider_summaries"][uuid]["resources"]) == {"VCPU", "MEMORY_MB", "DISK_GB"}
    older = api.get("/allocation_candidates?resources=VCPU:2", "1.26")
    assert {tuple(item["resources"]) for item in older["provider_summaries"].values()} == {("VCPU",)}


def test_host_that_is_down_is_no_candidate(tmp_path: Path) -> None:
    api = Api(tmp_path)
    (service,) = [item for item in api.manager.db.read(services.list_) if item.host == "h2"]
    api.manager.db.write(services.update, service.uuid, {"forced_down": True})
    assert api.candidates("resources=VCPU:1") == ["h1", "h3"]
    assert api.names("resources=VCPU:1") == ["h1", "h2", "h3"]
    api.manager.db.close()


def test_traits_are_listed_and_found(api: Api) -> None:
    every = api.get("/traits")["traits"]
    assert every == sorted(every)
    assert {"CUSTOM_FAST", "COMPUTE_NODE", "HW_CPU_X86_VMX", "COMPUTE_STATUS_DISABLED"} <= set(every)
    assert api.get("/traits?associated=true")["traits"] == ["COMPUTE_NODE", "CUSTOM_FAST"]
    own = [
        "CUSTOM_FAST",
        "CUSTOM_INSTANT_CLONES",
        "CUSTOM_MACHINE_MICROVM",
        "CUSTOM_NETWORK_REALMS",
        "CUSTOM_SNAPSHOT_POINTS",
    ]
    assert api.get("/traits?name=startswith:CUSTOM")["traits"] == own
    assert api.get("/traits?name=in:COMPUTE_NODE,NOBODY")["traits"] == ["COMPUTE_NODE"]
    assert api("GET", "/traits/CUSTOM_FAST").status_code == 204
    api.refused("/traits/CUSTOM_SLOW", "CUSTOM_SLOW", 404)
    api.refused("/traits?associated=maybe", '"true" or "false"')
    api.refused("/traits?name=CUSTOM", "in|startswith")


def test_resource_classes_are_listed_and_found(api: Api) -> None:
    names = [item["name"] for item in api.get("/resource_classes")["resource_classes"]]
    assert {"VCPU", "PCPU", "MEMORY_MB", "DISK_GB", "VGPU"} <= set(names)
    api.refused("/resource_classes/CUSTOM_GOLD", "CUSTOM_GOLD", 404)


@pytest.mark.parametrize(
    ("query", "version", "text"),
    [
        ("colour=blue", NEWEST, "'colour' was unexpected"),
        ("uuid=one", NEWEST, "'one' is not a 'uuid'"),
        ("in_tree=one", NEWEST, "'one' is not a 'uuid'"),
        ("resources=VCPU:1", "1.3", "'resources' was unexpected"),
        ("member_of=x", "1.2", "'member_of' was unexpected"),
        ("required=COMPUTE_NODE", "1.17", "'required' was unexpected"),
        ("resources=", NEWEST, "empty string"),
        ("resources=VCPU", NEWEST, "VCPU:2,MEMORY_MB:1024"),
        ("resources=VCPU:one", NEWEST, "expected positive integer amount. Got: one"),
        ("resources=VCPU:-1", NEWEST, "expected positive integer amount. Got: -1"),
        ("resources=VCPU:٤", NEWEST, "expected positive integer amount"),
        ("resources=VCPU:0", NEWEST, "requires amount >= 1"),
        ("resources=CPU:1", NEWEST, "No such resource class CPU"),
        ("required=", NEWEST, "an empty trait"),
        ("required=!CUSTOM_FAST", "1.21", "HW_CPU_X86_VMX,CUSTOM_MAGIC"),
        ("required=in:CUSTOM_FAST", "1.38", "since microversion 1.39"),
        ("required=CUSTOM_FAST,!CUSTOM_FAST", NEWEST, "Conflicting required and forbidden traits"),
        ("required=CUSTOM_SLOW", NEWEST, "No such trait(s): CUSTOM_SLOW"),
        ("member_of=one", NEWEST, "valid UUID(s). Got: one"),
        (f"member_of={UNKNOWN},{UNKNOWN}", NEWEST, "'in:'"),
        (f"member_of=!{UNKNOWN}", "1.31", "not supported in the specified microversion"),
        (f"member_of={UNKNOWN}&member_of={UNKNOWN}", "1.23", "Multiple member_of parameters"),
    ],
)
def test_wrong_filter_of_providers_is_refused(api: Api, query: str, version: str, text: str) -> None:
    api.refused(f"/resource_providers?{quote(query, safe='=&:,!')}", text, version=version)


@pytest.mark.parametrize(
    ("query", "version", "text"),
    [
        ("", NEWEST, "At least one request group"),
        ("limit=0&resources=VCPU:1", NEWEST, "value of limit"),
        ("limit=1&resources=VCPU:1", "1.15", "'limit' was unexpected"),
        ("resources=VCPU:1&required=COMPUTE_NODE", "1.16", "'required' was unexpected"),
        ("resources1=VCPU:1", "1.24", "'resources1' was unexpected"),
        ("resources_A=VCPU:1", "1.32", "'resources_A' was unexpected"),
        ("resources0=VCPU:1", "1.32", "'resources0' was unexpected"),
        ("resources$=VCPU:1", NEWEST, "'resources$' was unexpected"),
        ("resources1=VCPU:1&resources2=VCPU:1", NEWEST, '"group_policy" parameter is required'),
        ("resources=VCPU:1&group_policy=some", NEWEST, "'none', 'isolate'"),
        ("resources=VCPU:1&required1=COMPUTE_NODE", NEWEST, "resources1 is missing"),
        ("resources=VCPU:1&same_subtree=_A", NEWEST, "'_A' is not one"),
        ("resources=VCPU:1&same_subtree=", NEWEST, "Empty string"),
        ("resources=VCPU:1&root_required=A&root_required=B", NEWEST, "only once"),
        ("resources=VCPU:1&root_required=CUSTOM_FAST,!CUSTOM_FAST", NEWEST, "root_required: (CUSTOM_FAST)"),
        ("resources=VCPU:1&nobody=1", NEWEST, "'nobody' was unexpected"),
    ],
)
def test_wrong_query_of_candidates_is_refused(api: Api, query: str, version: str, text: str) -> None:
    api.refused(f"/allocation_candidates?{quote(query, safe='=&:,!')}", text, version=version)


# --- who may do what


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/resource_providers"),
        ("PUT", "/resource_providers/{h1}/inventories"),
        ("DELETE", "/resource_providers/{h1}"),
        ("PUT", "/allocations/{server}"),
        ("POST", "/allocations"),
        ("POST", "/reshaper"),
        ("PATCH", "/nowhere"),
    ],
)
def test_changes_are_refused_with_the_reason(api: Api, method: str, path: str) -> None:
    response = api(method, path.format(server=api.server, **api.uuids))
    assert (response.status_code, response.headers["Allow"]) == (405, "GET")
    assert "This cloud places servers itself" in response.json["errors"][0]["detail"]


def test_unknown_url_is_a_404(api: Api) -> None:
    api.refused("/nowhere", "could not be found", 404)


def test_member_sees_only_the_usages_of_the_own_project(api: Api) -> None:
    for path in ("/resource_providers", f"/allocations/{api.server}", "/traits", "/resource_classes"):
        assert api("GET", path, token=MEMBER).status_code == 403
    assert api("GET", "/allocation_candidates?resources=VCPU:1", token=MEMBER).status_code == 403
    assert api.get("/usages?project_id=demo", token=MEMBER)["usages"]["INSTANCE"]["VCPU"] == 1
    assert api("GET", "/usages?project_id=other", token=MEMBER).status_code == 403
    assert api("GET", "/usages", token=MEMBER).status_code == 403


@pytest.mark.parametrize(
    ("caller", "allowed"),
    [
        ({"roles": ["admin"], "project_id": "demo"}, True),
        ({"roles": ["service"], "project_id": "services"}, True),
        ({"roles": ["reader"], "system_scope": "all"}, True),
        ({"roles": ["reader"], "project_id": "demo"}, False),
        ({"roles": ["member"], "system_scope": "all"}, False),
    ],
)
def test_rules_allow_admins_services_and_readers_of_the_system(api: Api, caller: dict[str, Any], allowed: bool) -> None:
    context = RequestContext(user_id="alice", overwrite=False, **caller)
    for rule in (policies.PROVIDERS, policies.ALLOCATIONS, policies.CANDIDATES):
        assert api.policy.allows(context, rule) is allowed
    assert api.policy.allows(context, policies.USAGES, {"project_id": "other"}) is allowed
