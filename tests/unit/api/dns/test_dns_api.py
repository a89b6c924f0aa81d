"""Zones and record sets by Designate's v2 API."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nova_lite.api.dns.app import DnsApp
from tests.support.api_client import ADMIN
from tests.support.dns_api import NAME_SERVER, DnsApi

OTHER = "eve:other"


@pytest.fixture
def api(tmp_path: Path) -> Iterator[DnsApi]:
    made = DnsApi(tmp_path)
    yield made
    made.manager.close()


def test_version_document_names_the_url_of_version_2(api: DnsApi) -> None:
    for path in ("/", "/v2"):
        (version,) = api("GET", path).json["versions"]["values"]
        assert (version["id"], version["links"][0]["href"]) == ("v2", "http://cloud:9001/v2")
    assert api("GET", "/v3").status_code == 404


def test_zone_is_created_changed_and_deleted(api: DnsApi) -> None:
    made = api.zone("Example.ORG.", description="d")
    assert (made["name"], made["ttl"], made["status"], made["action"]) == ("example.org.", 3600, "PENDING", "CREATE")
    path = f"/zones/{made['id']}"
    assert made["links"]["self"] == f"http://cloud:9001/v2{path}"
    api.wing.transfer()
    found = api.done("GET", path, status=200)
    assert (found["status"], found["action"], found["serial"]) == ("ACTIVE", "NONE", made["serial"])
    changed = api.done("PATCH", path, {"ttl": 60, "email": "b@example.org"})
    assert (changed["ttl"], changed["email"], changed["description"]) == (60, "b@example.org", "d")
    assert changed["serial"] > made["serial"]
    kinds = {item["type"]: item["records"] for item in api.listed(f"{path}/recordsets")}
    assert kinds == {
        "NS": [NAME_SERVER],
        "SOA": [f"{NAME_SERVER} b.example.org. {changed['serial']} 3600 600 86400 60"],
    }
    assert api.done("DELETE", path)["action"] == "DELETE"
    api.refused("PATCH", path, {"ttl": 61}, 409, "duplicate_zone", "is being deleted")
    api.wing.transfer()
    api.refused("GET", path, None, 404, "zone_not_found", "Could not find Zone")


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"name": "example.org"}, "a dot at the end"),
        ({"name": "org."}, "More than one label is required"),
        ({"name": "a..org."}, "not a valid name"),
        ({"name": "-a.org."}, "not a valid name"),
        ({"email": "nobody"}, "not an e-mail address"),
        ({"ttl": 0}, "Invalid input for ttl"),
        ({"ttl": "60"}, "Invalid input for ttl"),
        ({"type": "SECONDARY"}, "Zones are of the type PRIMARY"),
        ({"masters": ["192.0.2.1"]}, "Invalid input for masters"),
        ({"color": "red"}, "Unrecognized attribute(s) 'color'"),
    ],
)
def test_invalid_zone_is_refused(api: DnsApi, values: dict[str, Any], text: str) -> None:
    body = {"name": "a.org.", "email": "a@example.org", **values}
    api.refused("POST", "/zones", body, 400, "invalid_object", text)


def test_name_of_a_zone_is_required(api: DnsApi) -> None:
    api.refused("POST", "/zones", {"email": "a@example.org"}, 400, "invalid_object", "'name' not specified")


def test_zones_of_two_projects_are_not_in_each_other(api: DnsApi) -> None:
    api.zone("a.example.org.")
    for name, text in (
        ("a.example.org.", "Duplicate Zone"),
        ("b.a.example.org.", "is in a zone of another project"),
        ("example.org.", "has zones of another project"),
    ):
        body = {"name": name, "email": "a@example.org"}
        api.refused("POST", "/zones", body, 409, "duplicate_zone", text, token=OTHER)
    api.zone("other-a.example.org.", token=OTHER)
    api.zone("b.a.example.org.")


def test_other_projects_zone_does_not_exist(api: DnsApi) -> None:
    zone = api.zone()
    made = api.records(zone, "www.example.org.", "A", "192.0.2.1")
    path = f"/zones/{zone['id']}"
    for method, suffix, body in (
        ("GET", "", None),
        ("PATCH", "", {"ttl": 60}),
        ("DELETE", "", None),
        ("GET", "/recordsets", None),
        ("POST", "/recordsets", {"name": "x.example.org.", "type": "A", "records": ["192.0.2.1"]}),
        ("PUT", f"/recordsets/{made['id']}", {"records": ["192.0.2.2"]}),
        ("DELETE", f"/recordsets/{made['id']}", None),
    ):
        assert api(method, f"/v2{path}{suffix}", body, token=OTHER).status_code == 404
    assert api.listed("/zones", "zones", token=OTHER) == api.listed("/recordsets", token=OTHER) == []
    assert api("GET", "/v2/zones", token=OTHER, X_Auth_All_Projects="true").status_code == 403
    everybody = api.listed("/zones", "zones", token=ADMIN, X_Auth_All_Projects="true")
    assert [item["id"] for item in everybody] == [zone["id"]]


@pytest.mark.parametrize(
    ("kind", "records"),
    [
        ("A", ["192.0.2.1", "192.0.2.2"]),
        ("AAAA", ["2001:db8::1"]),
        ("CNAME", ["www.other.org."]),
        ("MX", ["10 mail.example.org."]),
        ("TXT", ['"v=spf1 -all"']),
        ("SRV", ["10 0 5060 sip.example.org."]),
        ("NS", ["ns1.other.org."]),
        ("PTR", ["host.example.org."]),
        ("CAA", ['0 issue "ca.example.org"']),
    ],
)
def test_record_set_of_each_type_is_kept_as_sent(api: DnsApi, kind: str, records: list[str]) -> None:
    zone = api.zone()
    made = api.records(zone, "x.example.org.", kind, *records, ttl=60)
    assert (made["type"], made["records"], made["ttl"], made["status"]) == (kind, records, 60, "PENDING")
    api.wing.transfer()
    shown = api.done("GET", f"/zones/{zone['id']}/recordsets/{made['id']}", status=200)
    assert (shown["records"], shown["status"], shown["zone_name"]) == (records, "ACTIVE", "example.org.")


@pytest.mark.parametrize(
    ("name", "kind", "records", "text"),
    [
        ("x.example.org.", "A", ["x"], "is not a valid A record"),
        ("x.example.org.", "A", ["2001:db8::1"], "is not a valid A record"),
        ("x.example.org.", "AAAA", ["192.0.2.1"], "is not a valid AAAA record"),
        ("x.example.org.", "MX", ["mail.example.org."], "is not a valid MX record"),
        ("x.example.org.", "MX", ["10 mail"], "needs a dot at its end"),
        ("x.example.org.", "CNAME", ["other.org"], "needs a dot at its end"),
        ("x.example.org.", "CNAME", ["a.org.", "b.org."], "has one record"),
        ("x.example.org.", "A", [], "has records, and each of them once"),
        ("x.example.org.", "A", ["192.0.2.1", "192.0.2.1"], "has records, and each of them once"),
        ("x.example.org.", "SPF", ["x"], "is not one of"),
        ("x.example.org.", "SOA", ["x"], "SOA recordsets cannot be managed"),
        ("example.org.", "CNAME", ["a.org."], "may not be created at the zone apex"),
        ("example.org.", "NS", ["a.org."], "may not be created at the zone apex"),
        ("x.other.org.", "A", ["192.0.2.1"], "is not contained within its parent zone"),
        ("xexample.org.", "A", ["192.0.2.1"], "is not contained within its parent zone"),
        ("x.*.example.org.", "A", ["192.0.2.1"], "not a valid name"),
        ("x.example.org.", "TXT", ["a\nb"], "printable texts"),
        ("host.sub.example.org.", "A", ["192.0.2.1"], "belongs in a child zone: sub.example.org."),
        ("www.example.org.", "CNAME", ["a.org."], "has a CNAME record, and then no others"),
    ],
)
def test_invalid_record_set_is_refused(api: DnsApi, name: str, kind: str, records: list[str], text: str) -> None:
    zone = api.zone()
    api.zone("sub.example.org.")
    api.records(zone, "www.example.org.", "A", "192.0.2.1")
    body = {"name": name, "type": kind, "records": records}
    api.refused("POST", f"/zones/{zone['id']}/recordsets", body, 400, "invalid_object", text)


def test_record_set_changes_and_goes(api: DnsApi) -> None:
    zone = api.zone()
    made = api.records(zone, "*.example.org.", "A", "192.0.2.1")
    path = f"/zones/{zone['id']}/recordsets"
    again = {"name": "*.example.org.", "type": "A", "records": ["192.0.2.9"]}
    api.refused("POST", path, again, 409, "duplicate_recordset", "has records of type A")
    api.wing.transfer()
    changed = api.done("PUT", f"{path}/{made['id']}", {"records": ["192.0.2.2"], "ttl": 60, "description": "d"})
    assert (changed["records"], changed["ttl"], changed["action"]) == (["192.0.2.2"], 60, "UPDATE")
    kept = api.done("PUT", f"{path}/{made['id']}", {"records": ["192.0.2.3"], "name": "*.example.org.", "type": "A"})
    assert (kept["ttl"], kept["description"]) == (60, "d")
    api.refused("PUT", f"{path}/{made['id']}", {"type": "TXT"}, 400, "invalid_object", "type. It cannot be changed")
    assert api.done("DELETE", f"{path}/{made['id']}")["status"] == "PENDING"
    api.wing.transfer()
    api.refused("GET", f"{path}/{made['id']}", None, 404, "recordset_not_found", "Could not find RecordSet")
    (soa,) = api.listed(f"{path}?type=SOA")
    api.refused("DELETE", f"{path}/{soa['id']}", None, 400, "invalid_object", "Managed records")


def test_lists_are_filtered_sorted_and_in_pages(api: DnsApi) -> None:
    zone, other = api.zone(), api.zone("other.org.")
    for number in (3, 1, 2):
        api.records(zone, f"h{number}.example.org.", "A", f"192.0.2.{number}")
    api.records(other, "h1.other.org.", "A", "192.0.2.1")
    names = [item["name"] for item in api.listed("/recordsets?name=h*&sort_key=name&sort_dir=desc")]
    assert names == ["h3.example.org.", "h2.example.org.", "h1.other.org.", "h1.example.org."]
    assert [item["name"] for item in api.listed("/recordsets?data=192.0.2.2")] == ["h2.example.org."]
    assert [item["name"] for item in api.listed(f"/zones/{other['id']}/recordsets?type=A")] == ["h1.other.org."]
    first = api.done("GET", f"/zones/{zone['id']}/recordsets?type=A&sort_key=name&limit=2", status=200)
    assert first["metadata"] == {"total_count": 3}
    following = first["links"]["next"].removeprefix("http://cloud:9001/v2")
    last = api.done("GET", following, status=200)
    assert [item["name"] for item in last["recordsets"]] == ["h3.example.org."] and "next" not in last["links"]
    assert [item["name"] for item in api.listed("/zones?name=ex*", "zones")] == ["example.org."]
    for query in ("sort_key=color", "sort_dir=up", "limit=x", "color=red", "marker=none"):
        assert api("GET", f"/v2/zones?{query}").status_code == 400, query


def test_quota_bounds_zones_and_records(api: DnsApi) -> None:
    project = api.zone()["project_id"]
    path = f"/quotas/{project}"
    assert api.done("GET", path, status=200)["zones"] == 10
    assert api.done("PATCH", path, {"zones": 1, "recordset_records": 1}, 200, token=ADMIN)["zones"] == 1
    assert api("PATCH", f"/v2{path}", {"zones": 9}).status_code == 403
    assert api("GET", f"/v2{path}", token=OTHER).status_code == 403
    body = {"name": "b.org.", "email": "a@example.org"}
    api.refused("POST", "/zones", body, 413, "over_quota", "Quota exceeded for zones")
    (zone,) = api.listed("/zones", "zones")
    many = {"name": "x.example.org.", "type": "A", "records": ["192.0.2.1", "192.0.2.2"]}
    api.refused("POST", f"/zones/{zone['id']}/recordsets", many, 413, "over_quota", "recordset_records")
    assert api.done("GET", "/limits", status=200)["max_zones"] == 1
    assert api("DELETE", f"/v2{path}", token=ADMIN).status_code == 204
    assert api.done("GET", path, status=200)["zones"] == 10


def test_named_floating_address_has_a_record_while_it_exists(api: DnsApi) -> None:
    zone = api.zone()
    path = f"/zones/{zone['id']}/recordsets?type=A"
    first, second = (api.floating_ip(dns_name="www", dns_domain="example.org.") for _ in range(2))
    api.floating_ip(dns_name="elsewhere", dns_domain="unknown.org.")
    api.wing.transfer()
    (found,) = api.listed(path)
    assert (found["name"], found["status"]) == ("www.example.org.", "ACTIVE")
    assert sorted(found["records"]) == sorted(item["floating_ip_address"] for item in (first, second))
    one = f"/zones/{zone['id']}/recordsets/{found['id']}"
    api.refused("DELETE", one, None, 400, "invalid_object", "Managed records may not be")
    for item, left in ((first, [second["floating_ip_address"]]), (second, [])):
        assert api("DELETE", f"/v2.0/floatingips/{item['id']}", app=api.network).status_code == 204
        api.wing.transfer()
        assert [record for found in api.listed(path) for record in found["records"]] == left


def test_floating_address_leaves_a_users_record_and_another_projects_zone_alone(api: DnsApi) -> None:
    zone, theirs = api.zone(), api.zone("theirs.org.", token=OTHER)
    api.records(zone, "www.example.org.", "A", "198.51.100.1")
    api.floating_ip(dns_name="www", dns_domain="example.org.")
    api.floating_ip(dns_name="www", dns_domain="theirs.org.")
    api.wing.transfer()
    assert [item["records"] for item in api.listed(f"/zones/{zone['id']}/recordsets?type=A")] == [["198.51.100.1"]]
    assert api.listed(f"/zones/{theirs['id']}/recordsets?type=A", token=OTHER) == []


def test_address_of_a_floating_address_has_a_name(api: DnsApi) -> None:
    made = api.floating_ip()
    key = f"/reverse/floatingips/RegionOne:{made['id']}"
    shown = api.done("GET", key, status=200)
    assert (shown["address"], shown["ptrdname"]) == (made["floating_ip_address"], None)
    named = api.done("PATCH", key, {"ptrdname": "www.example.org.", "ttl": 60})
    assert (named["ptrdname"], named["ttl"], named["status"]) == ("www.example.org.", 60, "PENDING")
    api.wing.transfer()
    assert [item["ptrdname"] for item in api.listed("/reverse/floatingips", "floatingips")] == ["www.example.org."]
    assert api.listed("/recordsets") == []
    api.refused("PATCH", key, {"ptrdname": "no dot"}, 400, "invalid_object", "not a valid name")
    assert api("GET", f"/v2{key}", token=OTHER).status_code == 404
    assert api("GET", f"/v2/reverse/floatingips/Elsewhere:{made['id']}").status_code == 404
    assert api.done("PATCH", key, {"ptrdname": None})["ptrdname"] is None


def test_every_route_enforces_its_rule(api: DnsApi, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(api.services.policy, "allows", lambda context, rule, target=None: asked.append(rule))
    for route in DnsApp.routes:
        asked.clear()
        body = {} if route.method in ("POST", "PUT", "PATCH") else None
        response = api(route.method, "/v2" + re.sub(r"\{\w+\}", "x", route.path), body)
        assert (response.status_code, response.json["type"], asked) == (403, "forbidden", [route.policy]), route


def test_requests_of_terraform_are_accepted(api: DnsApi) -> None:
    """The bodies are those of the provider's resources, as Gophercloud sends them."""
    wanted = {"attributes": {}, "description": "d", "email": "a@example.org", "masters": [], "name": "t.example.org."}
    zone = api.done("POST", "/zones", {**wanted, "ttl": 3000, "type": "PRIMARY"})
    path = f"/zones/{zone['id']}"
    api.done("PATCH", path, {"email": "b@example.org", "ttl": 6000, "description": "e", "masters": []})
    body = {"name": "rs.t.example.org.", "description": "d", "records": ["10.0.0.1"], "ttl": 3000, "type": "A"}
    made = api.done("POST", f"{path}/recordsets", body)
    one = f"{path}/recordsets/{made['id']}"
    assert api.done("PUT", one, {"records": ["10.0.0.2"], "ttl": 60, "description": ""})["description"] == ""
    api.wing.transfer()
    assert api.done("GET", one, status=200)["status"] == api.done("GET", path, status=200)["status"] == "ACTIVE"
    for item in (one, path):
        api.done("DELETE", item)
        api.wing.transfer()
        assert api("GET", f"/v2{item}").status_code == 404


def test_cloud_without_the_wing_loads_none_of_its_code(tmp_path: Path) -> None:
    import subprocess
    import sys

    code = (
        "import sys; from tests.support.api_client import make_conf; from pathlib import Path\n"
        "from tests.support.in_process_api import make_services\n"
        f"path = Path({str(tmp_path)!r})\n"
        "conf = make_conf(path, f'enabled_apis = network\\n[database]\\nconnection = sqlite:///{path}/db.sqlite\\n')\n"
        "manager, services = make_services(conf, path)\n"
        "from nova_lite.api.http import deploy; deploy.load_app('network', services); manager.close()\n"
        "names = ('nova_lite.dns', 'nova_lite.api.dns', 'nova_lite.db.dns', 'nova_lite.conductor.dns')\n"
        "assert not [name for name in sys.modules if name.startswith(names)]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
