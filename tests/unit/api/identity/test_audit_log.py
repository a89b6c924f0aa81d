"""Events of the audit log that requests to the APIs leave: who, what, when, from where, and the outcome."""

from __future__ import annotations

import base64
from pathlib import Path

from nova_lite.api.audit import recorder
from nova_lite.api.audit.recorder import Recorder
from nova_lite.api.audit.wrapper import AuditWrapper
from nova_lite.objects import AuditEvent
from tests.support.api_client import ADMIN, MEMBER, make_client, make_conf
from tests.support.identity_api import World


def events(world: World) -> list[AuditEvent]:
    return recorder.of(world.conf, world.services.compute).waiting


def last(world: World) -> AuditEvent:
    return events(world)[-1]


def test_change_leaves_an_event_with_caller_target_and_client(world: World) -> None:
    token = world.token("admin")
    response = world(
        "POST",
        "/v3/projects",
        {"project": {"name": "lab", "description": "hidden"}},
        token,
        User_Agent="openstack\x01sdk",
    )
    event = last(world)
    assert (event.service, event.action, event.outcome, event.reason_code) == ("identity", "create", "success", 201)
    assert (event.user_id, event.project_id) == ("id-of-admin", world.demo.id)
    assert (event.target_type, event.target_id) == ("service/identity/projects", response.json["project"]["id"])
    assert (event.path, event.agent, event.observer) == ("/v3/projects", "openstack?sdk", world.conf.host)
    assert event.request_id == response.headers["X-OpenStack-Request-Id"]
    assert "hidden" not in repr(event)


def test_reads_leave_no_event_unless_they_are_denied(world: World) -> None:
    admin, alice = world.token("admin"), world.token("alice")
    before = len(events(world))
    assert world("GET", "/v3/users", token=admin).status_code == 200
    assert world("GET", "/v3/users/nobody", token=admin).status_code == 404
    assert world("POST", "/v3/no-such-thing", {}, token=admin).status_code == 404
    assert world("GET", "/v3/users").status_code == 401
    assert len(events(world)) == before
    assert world("GET", "/v3/users?name=secret", token=alice).status_code == 403
    event = last(world)
    assert (event.action, event.outcome, event.reason_code) == ("read", "failure", 403)
    assert (event.user_id, event.path) == ("id-of-alice", "/v3/users")


def test_log_ins_are_recorded_without_passwords_and_unknown_names(world: World) -> None:
    assert world.log_in("alice").status_code == 201
    event = last(world)
    assert (event.action, event.outcome, event.user_id) == ("authenticate", "success", "id-of-alice")
    assert world.log_in("alice", "guess-1").status_code == 401
    event = last(world)
    assert (event.action, event.outcome, event.reason_code) == ("authenticate", "failure", 401)
    assert event.user_id == "id-of-alice"
    assert world.log_in("password-as-a-name", "guess-2").status_code == 401
    assert last(world).user_id == ""
    assert not any(word in repr(events(world)) for word in ("guess", "password-as-a-name", "alice's"))


def test_revoked_token_is_not_in_its_event(world: World) -> None:
    token = world.token("alice")
    assert world("DELETE", "/v3/auth/tokens", token=token, X_Subject_Token=token).status_code == 204
    event = last(world)
    assert (event.action, event.outcome, event.user_id) == ("revoke", "success", "id-of-alice")
    assert token not in repr(event)


def test_application_credential_of_the_caller_is_recorded(world: World) -> None:
    token = world.token("alice")
    path = "/v3/users/id-of-alice/application_credentials"
    body = {"application_credential": {"name": "ci", "unrestricted": True}}
    credential = world("POST", path, body, token).json["application_credential"]
    assert last(world).target_id == "id-of-alice"
    assert credential["secret"] not in repr(last(world))
    identity = {"methods": ["application_credential"], "application_credential": credential}
    response = world("POST", "/v3/auth/tokens", {"auth": {"identity": identity}})
    assert last(world).user_id == "id-of-alice"
    limited = response.headers["X-Subject-Token"]
    assert world("DELETE", f"{path}/{credential['id']}", token=limited).status_code == 204
    assert last(world).credential == f"application_credential/{credential['id']}"


def test_wrong_basic_password_is_a_failed_log_in(tmp_path: Path, hashes: dict[str, str]) -> None:
    world = World(tmp_path, hashes, "auth_strategy = http_basic\n")
    given = base64.b64encode(b"alice:guess").decode()
    for app in ("osapi_compute", "identity"):
        path = "/v2.1/servers" if app == "osapi_compute" else "/v3/users"
        assert world("GET", path, app=app, Authorization=f"Basic {given}").status_code == 401
        event = last(world)
        assert (event.action, event.outcome, event.user_id) == ("authenticate", "failure", "id-of-alice"), app


def test_compute_action_is_named_and_its_console_token_hidden(tmp_path: Path) -> None:
    client = make_client(make_conf(tmp_path))
    log: Recorder = client.app.recorder
    client("POST", "/servers/some-id/action", {"pause": None}, token=MEMBER)
    event = log.waiting[-1]
    assert (event.service, event.action, event.target_type) == ("compute", "update/pause", "service/compute/servers")
    assert (event.target_id, event.outcome, event.reason_code) == ("some-id", "failure", 404)
    assert event.path == "/v2.1/servers/some-id/action"
    client("GET", "/os-console-auth-tokens/the-secret", token=MEMBER, version="2.31")
    event = log.waiting[-1]
    assert (event.action, event.reason_code, event.target_id) == ("read", 403, "")
    assert event.path == "/v2.1/os-console-auth-tokens/***"


def test_audit_list_is_for_admins_and_has_cadf_fields(tmp_path: Path) -> None:
    client = make_client(make_conf(tmp_path))
    log: Recorder = client.app.recorder
    for name in ("one", "two"):
        client.json("POST", "/os-aggregates", {"aggregate": {"name": name}}, token=ADMIN)
    assert client("GET", "/os-audit-events", token=MEMBER).status_code == 403
    log.start()
    log.stop()
    page = client.json("GET", "/os-audit-events?limit=1&action=create", token=ADMIN)
    (event,) = page["audit_events"]
    assert event["typeURI"] == "http://schemas.dmtf.org/cloud/audit/1.0/event"
    assert (event["eventType"], event["action"], event["outcome"]) == ("activity", "create", "success")
    assert event["reason"] == {"reasonType": "HTTP", "reasonCode": "200"}
    assert event["initiator"]["id"] == "admin"
    assert event["initiator"]["project_id"] == "demo"
    assert event["target"] == {"typeURI": "service/compute/os-aggregates", "id": "2"}
    assert event["requestPath"] == "/v2.1/os-aggregates"
    (link,) = page["audit_events_links"]
    (older,) = client.json("GET", link["href"].partition("/v2.1")[2], token=ADMIN)["audit_events"]
    assert older["target"]["id"] == "1"
    (denied,) = client.json("GET", "/os-audit-events?outcome=failure&user_id=alice", token=ADMIN)["audit_events"]
    assert (denied["action"], denied["reason"]["reasonCode"]) == ("read", "403")
    for query in ("?since=yesterday", "?agent=x", "?marker=none", "?limit=-1", "?outcome=maybe"):
        assert client("GET", f"/os-audit-events{query}", token=ADMIN).status_code == 400, query


def test_audit_turned_off_leaves_applications_alone(tmp_path: Path) -> None:
    client = make_client(make_conf(tmp_path, "[audit]\nenabled = false\n"))
    assert not isinstance(client.app, AuditWrapper)
