"""Requests to each API of one cloud: each route of the route tables enforces a rule, and a body that is no JSON, or not
the JSON that is wanted, is refused with one sentence. The recorded requests of the Cinder CSI plug-in are served.
"""

from __future__ import annotations

import importlib.metadata
import json
from typing import Any

import pytest
import webob

from nova_lite.api.http import deploy
from nova_lite.api.http.rest import PUBLIC, ServiceRoute
from nova_lite.api.identity import authority
from nova_lite.api.join import app as join
from nova_lite.api.page import app as page
from nova_lite.api.page import rights, sessions
from nova_lite.base import exceptions
from tests.support.cinder_csi import CLUSTER, FROM_BACKUP, CinderCsi
from tests.support.every_api import EveryApi
from tests.support.requests_of_routes import APPS, BODIES, VARIABLE, kind_of

_PROTOCOL = "/v3/OS-FEDERATION/identity_providers/{idp_id}/protocols/{protocol_id}"
_SIGNED = "the request is signed by a key, not sent by a user"
#: Routes without a rule, and why.
WITHOUT_RULES = {
    ("identity", "GET", "/"): "versions",
    ("identity", "GET", "/v3"): "versions",
    ("identity", "POST", "/v3/auth/tokens"): "a log-in",
    ("identity", "GET", f"{_PROTOCOL}/auth"): "a log-in by a provider's token",
    ("identity", "POST", f"{_PROTOCOL}/auth"): "a log-in by a provider's token",
    ("join", "GET", "/v1/trust"): "public keys",
    ("join", "POST", "/v1/hosts"): f"a token to join or the host's key: {_SIGNED}",
    ("join", "GET", "/v1/images/{image_id}"): f"a host's key: {_SIGNED}",
    ("join", "PUT", "/v1/images/{image_id}"): f"a host's key: {_SIGNED}",
    ("page", "GET", "/rights"): "the rules that allow the caller something: none, here",
}
#: Other applications without rules, and why. Rules of ``osapi_compute``: tests/unit/policies/test_enforcer.py.
OTHERS = {
    **dict.fromkeys(
        (
            "versions",
            "image_versions",
            "volume_versions",
            "network_versions",
            "placement_versions",
            "dns_versions",
            "load_balancer_versions",
            "key_manager_versions",
        ),
        "versions",
    ),
    "load_balancer": "a wing, with tests of its own: tests/unit/api/load_balancer",
    "key_manager": "a part of the same wing: tests/unit/api/load_balancer",
    "openapi": "the description of the API",
    "metadata": "guests, who are known by their addresses",
    "dns": "a wing: tests/unit/api/dns",
}

#: A request with a body on each API.
REQUESTS = [
    ("compute", "POST", "/servers"),
    ("identity", "POST", "/v3/auth/tokens"),
    ("image", "POST", "/images"),
    ("image", "PATCH", "/images/{image}"),
    ("volume", "POST", "/volumes"),
    ("network", "POST", "/networks"),
]
MALFORMED = {
    "cut": b'{"server": {"name": "x"',
    "no JSON": b"name=x",
    "no UTF-8": b'{"name": "\xff\xfe"}',
    "deep": b"[" * 50_000,
    "deep, whole": b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
    "a list": b"[1, 2]",
    "a number": b"7",
    "null": b"null",
    "infinite": b'{"server": 1e999, "auth": 1e999, "volume": 1e999, "network": 1e999, "name": 1e999}',
    "long number": b'{"server": ' + b"9" * 5_000 + b"}",
    "half a character": b'{"server": "\\ud800", "auth": "\\ud800", "volume": "\\ud800", "network": "\\ud800"}',
    "empty": b"",
}


def test_malformed_body_is_a_400_with_a_sentence(cloud: EveryApi, caplog: pytest.LogCaptureFixture) -> None:
    wrong = []
    for service, method, path in REQUESTS:
        path = path.format(image=cloud.things["image"][0])
        for kind, body in MALFORMED.items():
            response = cloud.send(service, method, path, body)
            text = response.text
            if response.status_code != 400 or "Traceback" in text or not 20 < len(text) < 1000:
                wrong.append((service, method, kind, response.status_code, text[:300]))
    assert wrong == []
    assert "Traceback" not in caplog.text


#: Bodies of routes whose rule is about what the body names.
_BODIES = {
    ("POST", "/v3/credentials"): '{"credential": {"type": "ec2", "blob": "{}", "user_id": "%(own_user)s"}}',
    ("POST", "/v3/OS-TRUST/trusts"): '{"trust": {"trustor_user_id": "%(own_user)s", "trustee_user_id": "%(user)s", '
    '"project_id": "%(own_project)s", "impersonation": true, "roles": [{"name": "admin"}]}}',
}


def _path(route: str, cloud: EveryApi) -> str:
    """Return the route's path with one resource of each kind."""
    values = {}
    for name in VARIABLE.findall(route):
        kind = kind_of(route, name)
        values[name] = cloud.things.get(kind or "", ["nobodys"])[0]
    return route.format(**values)


def _answer(cloud: EveryApi, service: str, route: ServiceRoute) -> webob.Response:
    changes = route.method in ("POST", "PUT", "PATCH") and not route.streams
    (body, *_) = BODIES.get((service, route.method, route.path), [{} if changes else None])
    if (route.method, route.path) in _BODIES:
        things = {kind: values[0] for kind, values in cloud.things.items()}
        body = json.loads(_BODIES[route.method, route.path] % things)
    return cloud.send(service, route.method, _path(route.path, cloud), body)


@pytest.fixture
def asked(cloud: EveryApi, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Close all rules. Return the rules that are asked."""
    found: list[str] = []
    monkeypatch.setattr(cloud.services.policy, "allows", lambda context, rule, target=None: found.append(rule))
    return found


@pytest.mark.parametrize("service", ["compute", "identity", "image", "volume", "network", "placement"])
@pytest.mark.parametrize(
    ("error", "code", "seconds"),
    [
        (exceptions.ServiceUnavailable(), 503, "2"),
        (exceptions.ServiceUnavailable("busy", retry_after=7), 503, "7"),
        (exceptions.TooManyRequests(limit=1), 429, "60"),
        (exceptions.TooManyFailures(seconds=9), 429, "9"),
    ],
)
def test_each_api_says_when_to_try_again(
    cloud: EveryApi,
    monkeypatch: pytest.MonkeyPatch,
    service: str,
    error: exceptions.NovaLiteException,
    code: int,
    seconds: str,
) -> None:
    def refuse(*arguments: Any) -> None:
        raise error

    monkeypatch.setattr(cloud.services.policy, "allows", refuse)
    monkeypatch.setattr(cloud.services.policy, "authorize", refuse, raising=False)
    paths = {"compute": "/servers", "identity": "/v3/projects", "placement": "/resource_providers"}
    refused = cloud.send(service, "GET", paths.get(service, f"/{service}s"))
    assert (refused.status_code, refused.headers.get("Retry-After")) == (code, seconds)


def test_every_route_of_each_service_enforces_its_rule(cloud: EveryApi, asked: list[str]) -> None:
    wrong, without = [], set()
    for service, app in APPS:
        for route in app.routes:
            asked.clear()
            if route.policy == PUBLIC:
                without.add((service, route.method, route.path))
                continue
            response = _answer(cloud, service, route)
            if response.status_code != 403 or route.policy not in asked:
                wrong.append((service, route.method, route.path, route.policy, response.status_code, list(asked)))
    assert wrong == []
    assert without == {route for route in WITHOUT_RULES if route[0] in dict(APPS)}


#: Headers that scripts of other origins may read always.
READABLE = {"cache-control", "content-length", "content-type", "last-modified", "vary"}


def test_every_header_of_each_api_can_be_read_by_scripts_of_an_allowed_origin(cloud: EveryApi) -> None:
    origin = {"HTTP_ORIGIN": "https://page.example"}
    hidden, seen = set(), set()
    for service, method, path, body in [
        *((service, "GET", _path(route.path, cloud), None) for service, app in APPS for route in app.routes),
        ("image", "POST", "/images", {"name": "x"}),
        ("volume", "PATCH", "/volumes", None),
        ("compute", "GET", "/servers", None),
    ]:
        response = cloud.send(service, method, path, body, origin)
        names = {name.lower() for name in response.headers if not name.startswith("Access-Control-")}
        exposed = response.headers["Access-Control-Expose-Headers"].lower().split(",")
        seen |= names
        hidden |= {(service, path, name) for name in names - READABLE - set(exposed)}
    assert hidden == set()
    expected = {"x-subject-token", "x-openstack-request-id", "openstack-api-version", "location", "allow"}
    assert expected <= seen, "otherwise the test looks at too few responses"
    stranger = cloud.send("identity", "GET", "/v3/projects", None, {"HTTP_ORIGIN": "https://evil.example"})
    assert "Access-Control-Allow-Origin" not in stranger.headers


@pytest.mark.parametrize("service", ["compute", "identity", "image", "volume", "network", "placement"])
def test_each_api_lets_an_allowed_origin_send_its_headers(cloud: EveryApi, service: str) -> None:
    wanted = ("x-auth-token", "x-subject-token", "openstack-api-version", "if-match", "range", "content-range")
    wanted += ("authorization", "idempotency-key", "content-type")
    asks = {"HTTP_ORIGIN": "https://page.example", "HTTP_ACCESS_CONTROL_REQUEST_METHOD": "PATCH"}
    asks["HTTP_ACCESS_CONTROL_REQUEST_HEADERS"] = ",".join(wanted)
    allowed = cloud.send(service, "OPTIONS", "/", None, asks)
    assert allowed.headers["Access-Control-Allow-Origin"] == "https://page.example"
    assert set(wanted) <= set(allowed.headers["Access-Control-Allow-Headers"].lower().split(","))
    assert "PATCH" in allowed.headers["Access-Control-Allow-Methods"]


def test_every_path_of_the_page_enforces_a_rule_or_leads_to_an_api(cloud: EveryApi, asked: list[str]) -> None:
    apis = {short: cloud.apps[name] for short, name in page.APIS.items() if name in cloud.apps}
    own = deploy.load_app("page_rights", cloud.services)
    served = page.PageApp(apis, own, authority.of(cloud.services), {}, [])

    def get(path: str, token: str) -> webob.Response:
        headers = {sessions.MARK: "1", "Cookie": f"nova_lite_session={token}"}
        headers[sessions.SESSION] = f"{cloud.user.id}/{cloud.project.id}"
        return webob.Request.blank(path, headers=headers).get_response(served)

    without = {("page", "GET", path) for path in rights.ROUTES if get(path, cloud.token).status_code != 403}
    assert without == {route for route in WITHOUT_RULES if route[0] == "page"}
    assert get("/rights", cloud.token).json["rules"] == []
    for path in (*rights.ROUTES, "/api/compute/v2.1/servers", "/api/volume/v3/volumes", "/api/network/v2.0/ports"):
        assert get(path, "").status_code == 401, path
    assert get("/api/compute/v2.1/servers", cloud.token).status_code == 403


def test_every_route_of_the_join_api_refuses_who_signs_nothing(cloud: EveryApi) -> None:
    served = deploy.load_app("join", cloud.services)
    routes = {("join", method, path) for path, methods in join.ROUTES.items() for method in methods}
    assert routes == {route for route in WITHOUT_RULES if route[0] == "join"}
    answers = {}
    for service, method, path in routes:
        body = b"{}" if method in ("POST", "PUT") else None
        request = webob.Request.blank(_path(path, cloud), method=method, body=body)
        answers[service, method, path] = request.get_response(served).status_code
    assert {status for route, status in answers.items() if "signed" in WITHOUT_RULES[route]} <= {400, 401}


def test_every_application_is_tested_for_its_rules() -> None:
    points = importlib.metadata.entry_points(group="paste.app_factory")
    ours = {point.name for point in points if point.value.startswith("nova_lite.")}
    assert ours == {"osapi_compute", "join", "page", "page_rights", *dict(APPS), *OTHERS}


def test_recorded_requests_of_the_cinder_csi_plug_in_are_served(cloud: EveryApi) -> None:
    def send(service: str, method: str, path: str, body: Any, version: str) -> webob.Response:
        return cloud.send(service, method, path, body, {"HTTP_OPENSTACK_API_VERSION": version or "compute 2.1"})

    csi, node = CinderCsi(send), cloud.things["server"][0]
    described = cloud.send("metadata", "GET", "/openstack/latest/meta_data.json", None, cloud.guest)
    assert (described.json["uuid"], described.json["availability_zone"]) == (node, "nova")
    before = csi.call("volume", "GET", "/limits")["limits"]["absolute"]["totalVolumesUsed"]
    volume_id = csi.create_volume("pvc-1", 1, availability_zone="nova", volume_type="local")["id"]
    assert csi.create_volume("pvc-1", 1)["id"] == volume_id
    assert csi.settle(volume_id, "available")["metadata"][CLUSTER] == "kubernetes"
    csi.expand(volume_id, 2)
    device = csi.publish(node, volume_id)
    assert csi.publish(node, volume_id) == device
    assert device.startswith("/dev/vd")
    csi.expand(volume_id, 3)
    assert csi.status("volume", "POST", "/snapshots", {"snapshot": {"name": "s", "volume_id": volume_id}}) == 400
    forced = csi.create_snapshot("snapshot-forced", volume_id, force=True)
    csi.unpublish(node, volume_id)
    csi.unpublish(node, volume_id)
    csi.settle(volume_id, "available")
    snapshot_id = csi.create_snapshot("snapshot-1", volume_id)
    assert csi.create_snapshot("snapshot-1", volume_id) == snapshot_id
    listed = csi.call("volume", "GET", f"/snapshots?volume_id={volume_id}&status=available&limit=1")
    assert len(listed["snapshots"]) == 1
    assert [link["rel"] for link in listed["snapshots_links"]] == ["next"]
    made = [
        csi.create_volume("pvc-2", 3, snapshot_id=snapshot_id)["id"],
        csi.create_volume("pvc-3", 3, source_volid=volume_id)["id"],
    ]
    backup_id = csi.create_backup("snapshot-2", volume_id)
    made.append(csi.create_volume("pvc-4", 3, FROM_BACKUP, backup_id=backup_id)["id"])
    for which in made:
        csi.settle(which, "available")
    pages = csi.list_volumes(2)
    assert {volume_id, *made} <= {which for page in pages for which in page}
    assert max(len(page) for page in pages) == 2
    for which in (forced, snapshot_id, backup_id):
        csi.delete_snapshot(which)
    for which in (volume_id, *made):
        csi.delete_volume(which)
    assert csi.status("volume", "DELETE", f"/volumes/{volume_id}") == 404
    assert csi.call("volume", "GET", "/limits")["limits"]["absolute"]["totalVolumesUsed"] == before


def test_cinder_csi_plug_in_gets_413_above_the_quota(cloud: EveryApi) -> None:
    path = f"/os-quota-sets/{cloud.project.id}"
    cloud.made("volume", path, {"quota_set": {"volumes": 0}}, "PUT")
    refused = cloud.send("volume", "POST", "/volumes", {"volume": {"name": "pvc", "size": 1}})
    cloud.made("volume", path, {"quota_set": {"volumes": -1}}, "PUT")
    assert refused.status_code == 413
