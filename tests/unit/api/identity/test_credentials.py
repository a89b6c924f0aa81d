"""EC2 credentials, tokens for signed requests, and one-time codes as a second factor."""

from __future__ import annotations

import base64
import datetime
import hashlib
import hmac
import json
import time
from typing import Any

import pytest
import webob
from keystoneclient.contrib.ec2.utils import Ec2Signer

from nova_lite.api.identity import credentials, directory, ec2_signature, one_time_codes
from nova_lite.api.identity.ec2_signature import SignedRequest
from tests.support.identity_api import World, error

ALICE, ADMINS = (f"/v3/users/id-of-{name}/credentials/OS-EC2" for name in ("alice", "admin"))
KEY = base64.b32encode(b"12345678901234567890").decode()


@pytest.fixture
def admin(world: World) -> str:
    return world.token("admin")


@pytest.fixture
def alice(world: World) -> str:
    return world.token("alice")


def created(world: World, token: str, path: str = ALICE) -> dict[str, Any]:
    response = world("POST", path, {"tenant_id": world.demo.id}, token)
    assert response.status_code == 201, response.text
    made: dict[str, Any] = response.json["credential"]
    return made


# --- resources


def test_ec2_credential_is_created_listed_shown_and_deleted(world: World, alice: str) -> None:
    made = created(world, alice)
    assert len(made["secret"]) == 64
    assert made | {"secret": ""} == {
        "user_id": "id-of-alice",
        "tenant_id": world.demo.id,
        "access": made["access"],
        "secret": "",
        "trust_id": None,
        "links": {"self": f"http://cloud:5000{ALICE}/{made['access']}"},
    }
    assert world("GET", ALICE, token=alice).json["credentials"] == [made]
    assert world("GET", f"{ALICE}/{made['access']}", token=alice).json == {"credential": made}
    assert world("DELETE", f"{ALICE}/{made['access']}", token=alice).status_code == 204
    for method in ("GET", "DELETE"):
        assert error(world(method, f"{ALICE}/{made['access']}", token=alice), 404)


def test_ec2_secret_is_encrypted_in_its_record(world: World, alice: str) -> None:
    made = created(world, alice)
    stored = json.dumps([record.data for record in world.users._store.read(0).records if record.kind == "credential"])
    assert made["access"] in stored
    assert made["secret"] not in stored


def test_credentials_of_others_are_hidden_and_refused(world: World, admin: str, alice: str) -> None:
    made = created(world, admin, ADMINS)
    id = hashlib.sha256(made["access"].encode()).hexdigest()
    for method, path in (
        ("GET", ADMINS),
        ("GET", f"{ADMINS}/{made['access']}"),
        ("DELETE", f"{ADMINS}/{made['access']}"),
    ):
        assert error(world(method, path, token=alice), 403)
    assert error(world("POST", ADMINS, {"tenant_id": world.demo.id}, alice), 403)
    assert error(world("GET", f"{ALICE}/{made['access']}", token=alice), 404)
    for method in ("GET", "DELETE", "PATCH"):
        body = {"credential": {"blob": KEY}} if method == "PATCH" else None
        assert error(world(method, f"/v3/credentials/{id}", body, alice), 404), method
    body = {"credential": {"type": "totp", "blob": KEY, "user_id": "id-of-admin"}}
    assert error(world("POST", "/v3/credentials", body, alice), 403)
    assert world("GET", "/v3/credentials", token=alice).json["credentials"] == []
    assert [item["id"] for item in world("GET", "/v3/credentials", token=admin).json["credentials"]] == [id]


def test_ec2_credential_needs_a_role_in_its_project(world: World, alice: str) -> None:
    for project in (world.ops.id, "none"):
        assert "Could not find project" in error(world("POST", ALICE, {"tenant_id": project}, alice), 404)
    assert error(world("POST", ALICE, {}, alice), 400)


def test_limited_tokens_cannot_manage_credentials(world: World, alice: str) -> None:
    body = {"application_credential": {"name": "ci", "unrestricted": True}}
    made = world("POST", "/v3/users/id-of-alice/application_credentials", body, alice).json["application_credential"]
    identity = {"methods": ["application_credential"], "application_credential": made}
    limited = world("POST", "/v3/auth/tokens", {"auth": {"identity": identity}}).headers["X-Subject-Token"]
    assert error(world("POST", ALICE, {"tenant_id": world.demo.id}, limited), 403)
    assert error(world("GET", ALICE, token=limited), 403)
    assert error(world("POST", "/v3/credentials", {"credential": {"type": "totp", "blob": KEY}}, limited), 403)
    assert error(world("GET", "/v3/credentials", token=limited), 403)


def test_credential_of_type_ec2_is_the_same_over_both_routes(world: World, alice: str) -> None:
    blob = json.dumps({"access": "a" * 32, "secret": "s" * 32})
    body = {"credential": {"type": "ec2", "blob": blob, "project_id": world.demo.id}}
    made = world("POST", "/v3/credentials", body, alice).json["credential"]
    assert made["id"] == hashlib.sha256(b"a" * 32).hexdigest()
    assert json.loads(made["blob"]) == json.loads(blob)
    assert world("GET", f"{ALICE}/{'a' * 32}", token=alice).json["credential"]["secret"] == "s" * 32
    assert error(world("POST", "/v3/credentials", body, alice), 409)
    changed = json.dumps({"access": "a" * 32, "secret": "t" * 32})
    path = f"/v3/credentials/{made['id']}"
    assert world("PATCH", path, {"credential": {"blob": changed}}, alice).json["credential"]["blob"] == changed
    other = json.dumps({"access": "b" * 32, "secret": "t" * 32})
    for fields in ({"blob": changed, "user_id": "id-of-admin"}, {"blob": changed, "type": "totp"}):
        assert error(world("PATCH", path, {"credential": fields}, alice), 400), fields
    assert [item["type"] for item in world("GET", "/v3/credentials?type=ec2", token=alice).json["credentials"]] == [
        "ec2"
    ]
    assert world("GET", "/v3/credentials?type=totp", token=alice).json["credentials"] == []
    assert world("PATCH", path, {"credential": {"blob": other}}, alice).json["credential"]["id"] == made["id"]
    assert error(world("GET", f"{ALICE}/{'a' * 32}", token=alice), 404)
    assert world("GET", f"{ALICE}/{'b' * 32}", token=alice).json["credential"]["secret"] == "t" * 32
    for used in (blob, other):
        again = {"credential": {"type": "ec2", "blob": used, "project_id": world.demo.id}}
        assert error(world("POST", "/v3/credentials", again, alice), 409)
    assert world("DELETE", path, token=alice).status_code == 204
    assert error(world("GET", path, token=alice), 404)


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "a cert", "blob": "x"},
        {"type": "", "blob": "x"},
        {"type": "a" * 65, "blob": "x"},
        {"type": "cert", "blob": ""},
        {"type": "cert", "blob": "x" * 8193},
        {"type": "ec2", "blob": "{}"},
        {"type": "ec2", "blob": "[" * 5000},
        {"type": "ec2", "blob": json.dumps({"access": "a" * 32, "secret": "s" * 32})},
        {"type": "ec2", "blob": json.dumps({"access": "short", "secret": "s" * 32}), "project_id": "x"},
        {"type": "totp", "blob": "not base32!"},
        {"type": "totp", "blob": "MFRGG"},
        {"type": "totp", "blob": 1},
        {"type": "totp"},
    ],
    ids=str,
)
def test_invalid_credential_is_refused(world: World, alice: str, fields: dict[str, Any]) -> None:
    assert error(world("POST", "/v3/credentials", {"credential": fields}, alice), 400)


def test_credentials_end_with_their_user_and_project(world: World, admin: str, alice: str) -> None:
    created(world, alice)
    world("POST", "/v3/credentials", {"credential": {"type": "totp", "blob": KEY}}, alice)
    world.users.change(lambda content: directory.remove_project(content, content.project(world.demo.id)))  # type: ignore[arg-type]
    assert [item.type for item in world.authority.content.credentials] == ["totp"]
    world.users.change(lambda content: directory.remove_user(content, content.user("id-of-alice")))  # type: ignore[arg-type]
    assert world.authority.content.credentials == []


def test_user_has_a_limited_number_of_credentials(world: World, alice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "MAX_CREDENTIALS", 1)
    created(world, alice)
    assert "at most 1" in error(world("POST", ALICE, {"tenant_id": world.demo.id}, alice), 403)


# --- signed requests


def signed(made: dict[str, Any], version: int = 4, **changes: Any) -> dict[str, Any]:
    """Return a request to Heat as its middleware passes it, signed by Keystone's own client library."""
    now = datetime.datetime.now(datetime.UTC) + changes.pop("age", datetime.timedelta())
    given: dict[str, Any] = {
        "access": made["access"],
        "host": "heat:8000",
        "verb": "GET",
        "path": "/v1/",
        "headers": {},
    }
    given |= {"params": {"Action": "DescribeStacks", "a b": "c/d ~*"}, "body_hash": hashlib.sha256(b"").hexdigest()}
    if version == 4:
        date = now.strftime("%Y%m%dT%H%M%SZ")
        scope = f"{made['access']}/{date[:8]}/RegionOne/cloudformation/aws4_request"
        text = f"AWS4-HMAC-SHA256 Credential={scope},SignedHeaders=host;x-amz-date,Signature="
        given["headers"] = {"Host": "heat:8000", "X-Amz-Date": date, "Authorization": text}
    else:
        given["params"] |= {"SignatureVersion": str(version), "Timestamp": now.strftime("%Y-%m-%dT%H:%M:%SZ")}
        given["params"] |= {"SignatureMethod": "HmacSHA256", "AWSAccessKeyId": made["access"]}
    given["signature"] = Ec2Signer(changes.pop("secret", made["secret"])).generate(given)
    return given | changes


def passed_on(world: World, token: str, given: dict[str, Any]) -> webob.Response:
    return world("POST", "/v3/ec2tokens", {"ec2Credentials": given}, token)


@pytest.mark.parametrize("version", [2, 4])
def test_signed_request_gives_a_token_of_its_user(world: World, admin: str, alice: str, version: int) -> None:
    response = passed_on(world, admin, signed(created(world, alice), version))
    assert response.status_code == 200, response.text
    token = response.json["token"]
    assert (token["user"]["id"], token["project"]["id"]) == ("id-of-alice", world.demo.id)
    assert token["methods"] == ["ec2credential"]
    mine = response.headers["X-Subject-Token"]
    assert world("GET", "/v3/auth/projects", token=mine).json["projects"][0]["id"] == world.demo.id


@pytest.mark.parametrize("version", [2, 4])
@pytest.mark.parametrize(
    "changes",
    [
        {"secret": "of somebody else"},
        {"path": "/v1/other"},
        {"verb": "DELETE"},
        {"params": {"Action": "DeleteStack"}},
        {"access": "unknown"},
        {"signature": "x"},
        {"age": datetime.timedelta(hours=-1)},
        {"age": datetime.timedelta(hours=1)},
    ],
    ids=str,
)
def test_changed_or_old_signature_is_refused(
    world: World, admin: str, alice: str, version: int, changes: dict[str, Any]
) -> None:
    given = signed(created(world, alice), version, **dict(changes))
    assert error(passed_on(world, admin, given), 401)


def test_signature_of_another_key_in_the_header_is_refused(world: World, admin: str, alice: str) -> None:
    mine, others = created(world, alice), created(world, admin, ADMINS)
    assert error(passed_on(world, admin, signed(mine) | {"access": others["access"]}), 401)


@pytest.mark.parametrize("replaced", [False, True])
def test_token_ends_with_the_ec2_credential_that_signed_it(
    world: World, admin: str, alice: str, replaced: bool
) -> None:
    made, other = created(world, alice), created(world, alice)
    tokens = [passed_on(world, admin, signed(item)).headers["X-Subject-Token"] for item in (made, other)]
    auth = {"auth": {"identity": {"methods": ["token"], "token": {"id": tokens[0]}}}}
    tokens.append(world("POST", "/v3/auth/tokens", auth).headers["X-Subject-Token"])
    assert all(world("GET", "/v3/auth/projects", token=token).status_code == 200 for token in tokens)
    if replaced:
        identifier = hashlib.sha256(made["access"].encode()).hexdigest()
        blob = json.dumps({"access": made["access"], "secret": "t" * 32})
        body = {"credential": {"blob": blob}}
        assert world("PATCH", f"/v3/credentials/{identifier}", body, alice).status_code == 200
    else:
        assert world("DELETE", f"{ALICE}/{made['access']}", token=alice).status_code == 204
    statuses = [world("GET", "/v3/auth/projects", token=token).status_code for token in tokens]
    assert statuses == [401, 200, 401], "the deleted one's, another's, and a token that was made of the first"


@pytest.mark.parametrize("version", [0, 1])
def test_signatures_of_older_versions_are_refused(world: World, admin: str, alice: str, version: int) -> None:
    assert error(passed_on(world, admin, signed(created(world, alice), version)), 401)


def test_signed_requests_are_accepted_from_services_only(world: World, alice: str) -> None:
    given = signed(created(world, alice))
    assert error(passed_on(world, alice, given), 403)
    assert error(world("POST", "/v3/ec2tokens", {"ec2Credentials": given}), 401)


@pytest.mark.parametrize(
    "given", [None, [], {}, {"access": 1}, {"access": "a", "signature": "b", "params": 1}], ids=str
)
def test_malformed_signed_request_is_a_400(world: World, admin: str, given: Any) -> None:
    assert error(passed_on(world, admin, given), 400)


def test_signed_request_of_a_user_without_role_or_disabled_is_refused(world: World, admin: str, alice: str) -> None:
    made = created(world, alice)
    assert passed_on(world, admin, signed(made)).status_code == 200
    world("PATCH", "/v3/users/id-of-alice", {"user": {"enabled": False}}, admin)
    assert error(passed_on(world, admin, signed(made)), 401)


def test_signature_of_the_aws_example_is_right() -> None:
    """The example ``get-vanilla`` of Amazon's test suite for version 4."""
    given = SignedRequest(
        access="AKIDEXAMPLE",
        signature="5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
        verb="GET",
        host="example.amazonaws.com",
        path="/",
        params={},
        headers={
            "host": "example.amazonaws.com",
            "x-amz-date": "20150830T123600Z",
            "authorization": "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
            "SignedHeaders=host;x-amz-date, Signature=",
        },
        body_hash=hashlib.sha256(b"").hexdigest(),
    )
    now = datetime.datetime(2015, 8, 30, 12, 36, tzinfo=datetime.UTC).timestamp()
    secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
    assert ec2_signature.is_right(given, secret, now)
    assert not ec2_signature.is_right(given, secret, now + 901)


# --- one-time codes


@pytest.mark.parametrize(
    ("moment", "code"), [(59, "287082"), (1111111109, "081804"), (1234567890, "005924"), (20000000000, "353130")]
)
def test_codes_are_those_of_rfc_6238(moment: int, code: str) -> None:
    key = one_time_codes.key_of(KEY)
    assert one_time_codes.code(key, moment // 30) == code
    assert one_time_codes.step_of(key, code, moment) == moment // 30
    assert one_time_codes.step_of(key, code, moment + 30) == moment // 30
    assert one_time_codes.step_of(key, code, moment + 60) is None
    assert one_time_codes.step_of(key, "\u0661" * 6, moment) is None


@pytest.fixture
def protected(world: World, admin: str, alice: str) -> None:
    """Give Alice a key of one-time codes, and demand them of her."""
    response = world("POST", "/v3/credentials", {"credential": {"type": "totp", "blob": KEY}}, alice)
    assert response.status_code == 201, response.text
    options = {"multi_factor_auth_enabled": True, "multi_factor_auth_rules": [["password", "totp"]]}
    shown = world("PATCH", "/v3/users/id-of-alice", {"user": {"options": options}}, admin).json["user"]
    assert shown["options"] == options


def log_in(world: World, code: str, user: str = "alice", password: str = "alice's") -> webob.Response:
    named = {"name": "alice", "domain": {"id": "default"}}
    identity = {
        "methods": ["password", "totp"],
        "password": {"user": named | {"password": password}},
        "totp": {"user": named | {"name": user, "passcode": code}},
    }
    return world("POST", "/v3/auth/tokens", {"auth": {"identity": identity}})


def code_of(steps: int = 0) -> str:
    return one_time_codes.code(one_time_codes.key_of(KEY), int(time.time() // 30) + steps)


def test_option_of_log_ins_by_several_methods_is_kept_when_it_is_false(world: World, admin: str) -> None:
    def set_to(value: bool | None) -> dict[str, Any]:
        body = {"user": {"options": {"multi_factor_auth_enabled": value}}}
        assert world("PATCH", "/v3/users/id-of-alice", body, admin).status_code == 200
        shown: dict[str, Any] = world("GET", "/v3/users/id-of-alice", None, admin).json["user"]["options"]
        return shown

    for value in (False, True, False):
        assert set_to(value) == {"multi_factor_auth_enabled": value}
    assert set_to(None) == {}


@pytest.mark.usefixtures("protected")
def test_rule_of_log_in_that_begins_ends_the_tokens_of_the_user(world: World, admin: str, alice: str) -> None:
    assert error(world("GET", "/v3/auth/projects", token=alice), 401)
    token = log_in(world, code_of()).headers["X-Subject-Token"]
    body = {"user": {"options": {"multi_factor_auth_enabled": True}}}
    assert world("PATCH", "/v3/users/id-of-alice", body, admin).status_code == 200
    assert world("GET", "/v3/auth/projects", token=token).status_code == 200, "the rule was there already"


@pytest.mark.usefixtures("protected")
def test_log_in_with_password_and_code_is_accepted_once(world: World) -> None:
    assert error(world.log_in("alice"), 401)
    code = code_of()
    response = log_in(world, code)
    assert response.status_code == 201, response.text
    assert response.json["token"]["methods"] == ["password", "totp"]
    assert error(log_in(world, code), 401), "a code is accepted once"
    assert error(log_in(world, code_of(-1)), 401), "an earlier code is not accepted after a later one"


@pytest.mark.usefixtures("protected")
def test_log_in_with_wrong_password_or_code_is_refused(world: World) -> None:
    assert error(log_in(world, code_of(), password="guess"), 401)
    assert error(log_in(world, code_of(-10)), 401)
    assert error(log_in(world, code_of(), user="admin"), 401)
    assert log_in(world, code_of()).status_code == 201, "no refused log-in has used the code up"


@pytest.mark.usefixtures("protected")
def test_codes_cannot_be_guessed_quickly(world: World) -> None:
    codes = [log_in(world, f"{number:06d}").status_code for number in range(6)]
    assert codes == [401] * 5 + [429]


@pytest.mark.usefixtures("protected")
def test_code_alone_is_no_log_in(world: World) -> None:
    user = {"id": "id-of-alice", "passcode": code_of()}
    body = {"auth": {"identity": {"methods": ["totp"], "totp": {"user": user}}}}
    assert "together with password" in error(world("POST", "/v3/auth/tokens", body), 401)


def test_user_without_rules_may_still_use_a_code(world: World, alice: str) -> None:
    world("POST", "/v3/credentials", {"credential": {"type": "totp", "blob": KEY}}, alice)
    assert world.log_in("alice").status_code == 201
    assert log_in(world, code_of()).status_code == 201


@pytest.mark.parametrize(
    "options",
    [
        1,
        {"nobodys_option": True},
        {"multi_factor_auth_enabled": "yes"},
        {"multi_factor_auth_rules": ["password"]},
        {"multi_factor_auth_rules": [["totp"]]},
        {"multi_factor_auth_rules": [["password", "fingerprint"]]},
        {"multi_factor_auth_rules": [["password"]] * 11},
    ],
    ids=str,
)
def test_invalid_options_of_a_user_are_refused(world: World, admin: str, options: Any) -> None:
    assert error(world("PATCH", "/v3/users/id-of-alice", {"user": {"options": options}}, admin), 400)


def test_credential_of_another_type_is_kept_encrypted(world: World, alice: str) -> None:
    made = world("POST", "/v3/credentials", {"credential": {"type": "cert", "blob": "a secret text"}}, alice)
    assert made.status_code == 201, made.text
    path = f"/v3/credentials/{made.json['credential']['id']}"
    assert world("GET", path, token=alice).json["credential"]["blob"] == "a secret text"
    (stored,) = world.users.content.credentials
    assert "secret" not in stored.sealed
    assert world("PATCH", path, {"credential": {"blob": "other"}}, alice).json["credential"]["blob"] == "other"
    assert error(world("PATCH", path, {"credential": {"blob": ""}}, alice), 400)


def test_admin_names_a_project_without_roles_and_its_credential_gives_no_token(world: World, alice: str) -> None:
    blob = json.dumps({"access": "a" * 32, "secret": "s" * 32})
    fields = {"type": "ec2", "blob": blob, "project_id": world.ops.id, "user_id": "id-of-alice"}
    assert error(world("POST", "/v3/credentials", {"credential": fields}, alice), 404)
    admin = world.token("admin")
    assert world("POST", "/v3/credentials", {"credential": fields}, admin).status_code == 201
    text = b"a text"
    signature = base64.b64encode(hmac.digest(b"s" * 32, text, "sha1")).decode()
    signed = {"access": "a" * 32, "signature": signature, "token": base64.b64encode(text).decode()}
    assert error(world("POST", "/v3/s3tokens", {"credentials": signed}, admin), 401)
