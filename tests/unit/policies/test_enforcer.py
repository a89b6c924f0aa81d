"""Policy rules by role, over the complete application, and the operator's overrides."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from nova_lite import operations, policies
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.policies.enforcer import CACHE_SECONDS, Policy
from tests.support.api_client import ADMIN, MEMBER, fault, make_client, make_conf

NAMES = [rule.name for rule in policies.list_rules()]


def context(role: str, project: str = "demo") -> RequestContext:
    roles = {"admin": ["admin", "member", "reader"], "member": ["member", "reader"], "reader": ["reader"]}[role]
    return RequestContext(user_id="u", project_id=project, roles=roles, is_admin=role == "admin", overwrite=False)


@pytest.fixture
def policy(tmp_path: Path) -> Policy:
    return Policy(make_conf(tmp_path))


def test_rule_names_are_unique_and_documented() -> None:
    assert len(NAMES) == len(set(NAMES))
    for rule in policies.list_rules():
        assert rule.description
        if rule.name.startswith(("os_compute_api:", "compute:")):
            assert rule.operations
            assert rule.scope_types == ["project"]


#: rule: who may (admin, member, reader) in their own project
EXPECTED = {
    policies.servers.CREATE: (True, True, False),
    policies.servers.SHOW: (True, True, True),
    policies.servers.DELETE: (True, True, False),
    operations.START.rule: (True, True, False),
    policies.consoles.CONSOLE_OUTPUT: (True, True, False),
    policies.servers.INDEX_ALL: (True, False, False),
    policies.servers.FORCED_HOST: (True, False, False),
    policies.servers.EXTENDED_ATTRIBUTES: (True, False, False),
    policies.flavors.INDEX: (True, True, True),
    policies.flavors.CREATE: (True, False, False),
    policies.flavors.SPECS_INDEX: (True, True, True),
    policies.flavors.SPECS_CREATE: (True, False, False),
    policies.keypairs.CREATE: (True, True, True),
    policies.services.LIST: (True, False, False),
    policies.hypervisors.LIST: (True, False, False),
    policies.availability_zone.LIST: (True, True, True),
    policies.availability_zone.DETAIL: (True, False, False),
    policies.instance_actions.SHOW: (True, True, True),
    policies.instance_actions.EVENTS: (True, False, False),
    policies.quotas.LIMITS: (True, True, True),
    policies.quotas.LIMITS_OTHER: (True, False, False),
}


@pytest.mark.parametrize("rule", EXPECTED)
def test_rule_defaults_by_role(policy: Policy, rule: str) -> None:
    assert tuple(policy.allows(context(role), rule) for role in ("admin", "member", "reader")) == EXPECTED[rule]


def test_rules_refuse_other_projects_and_users(policy: Policy) -> None:
    other = {"project_id": "other", "user_id": "other"}
    assert not policy.allows(context("member"), policies.servers.SHOW, other)
    assert policy.allows(context("admin"), policies.servers.SHOW, other)
    assert not policy.allows(context("member"), policies.keypairs.SHOW, other)
    assert policy.allows(context("admin"), policies.keypairs.SHOW, other)


def test_refusal_names_the_rule(policy: Policy) -> None:
    with pytest.raises(exceptions.PolicyNotAuthorized) as raised:
        policy.authorize(context("member"), policies.hypervisors.LIST)
    assert raised.value.message == "Policy doesn't allow os_compute_api:os-hypervisors:list to be performed."


def write_policy(tmp_path: Path, text: str) -> Any:
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    return make_conf(tmp_path, f"[oslo_policy]\npolicy_file = {file}\n")


def test_operator_can_override_a_rule(tmp_path: Path) -> None:
    policy = Policy(write_policy(tmp_path, f'"{policies.hypervisors.LIST}": "role:reader"\n'))
    assert policy.allows(context("reader"), policies.hypervisors.LIST)


def test_changed_policy_file_takes_effect_within_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("nova_lite.policies.enforcer.time.monotonic", lambda: now[0])
    policy = Policy(write_policy(tmp_path, f'"{policies.servers.SHOW}": "role:member"\n'))
    assert policy.allows(context("member"), policies.servers.SHOW)
    write_policy(tmp_path, f'"{policies.servers.SHOW}": "role:nobody"\n')
    os.utime(tmp_path / "policy.yaml", (2**32, 2**32))
    now[0] += CACHE_SECONDS
    assert not policy.allows(context("member"), policies.servers.SHOW)


def test_decision_is_cached_for_a_second(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    now, calls = [1000.0], []
    authorize = policy._enforcer.authorize
    monkeypatch.setattr("nova_lite.policies.enforcer.time.monotonic", lambda: now[0])
    monkeypatch.setattr(policy._enforcer, "authorize", lambda *args: [calls.append(args), authorize(*args)][1])
    for _ in range(3):
        assert policy.allows(context("member"), policies.servers.SHOW)
        assert not policy.allows(context("reader"), policies.servers.CREATE)
    assert len(calls) == 2
    now[0] += CACHE_SECONDS
    assert policy.allows(context("member"), policies.servers.SHOW)
    assert len(calls) == 3


@pytest.mark.parametrize(
    ("rule", "other"),
    [
        ("role:member", {"roles": ["reader"]}),
        ("user_id:u", {"user_id": "v"}),
        ("project_id:demo", {"project_id": "other"}),
        ("user_domain_id:None", {"user_domain_id": "d"}),
        ("project_domain_id:None", {"project_domain_id": "d"}),
        ("role:member", {"system_scope": "all"}),
        ("role:member", {"domain_id": "d"}),
        ("service_project_id:None", {"service_project_id": "p"}),
        ("is_admin_project:True", {"is_admin_project": False}),
    ],
)
def test_decisions_are_cached_by_all_checked_properties_of_the_caller(
    tmp_path: Path, rule: str, other: dict[str, Any]
) -> None:
    policy = Policy(write_policy(tmp_path, f'"{policies.servers.SHOW}": "{rule}"\n'))
    values = {"user_id": "u", "project_id": "demo", "roles": ["member"], "overwrite": False}
    assert policy.allows(RequestContext(**values), policies.servers.SHOW, {})
    assert not policy.allows(RequestContext(**values | other), policies.servers.SHOW, {})
    assert policy.allows(RequestContext(**values), policies.servers.SHOW, {})


def test_decisions_are_cached_by_all_checked_properties_of_the_target(tmp_path: Path) -> None:
    policy = Policy(write_policy(tmp_path, f'"{policies.servers.SHOW}": "project_id:%(owner)s"\n'))
    for _ in range(2):
        assert policy.allows(context("member"), policies.servers.SHOW, {"owner": "demo"})
        assert not policy.allows(context("member"), policies.servers.SHOW, {"owner": "other"})
        assert not policy.allows(context("member"), policies.servers.SHOW, {"other": "demo"})


def test_broken_policy_file_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(exceptions.ConfigurationError, match="policy_file is invalid"):
        Policy(write_policy(tmp_path, "{nonsense")).check_rules()


# --- over the application

ADMIN_ONLY = [
    ("GET", "/os-services"),
    ("GET", "/os-hypervisors"),
    ("GET", "/os-hypervisors/detail"),
    ("GET", "/os-hypervisors/statistics"),
    ("GET", "/os-hypervisors/7"),
    ("GET", "/os-hypervisors/7/uptime"),
    ("GET", "/os-hypervisors/x/search"),
    ("GET", "/os-hypervisors/x/servers"),
    ("GET", "/os-aggregates"),
    ("GET", "/os-availability-zone/detail"),
    ("POST", "/flavors"),
    ("DELETE", "/flavors/1"),
    ("POST", "/flavors/1/os-extra_specs"),
    ("PUT", "/flavors/1/os-extra_specs/a"),
    ("DELETE", "/flavors/1/os-extra_specs/a"),
    ("PUT", "/os-services/enable"),
    ("DELETE", "/os-services/3"),
]


@pytest.mark.parametrize(("method", "path"), ADMIN_ONLY)
def test_admin_rules_refuse_members(tmp_path: Path, method: str, path: str) -> None:
    api = make_client(make_conf(tmp_path))
    assert "Policy doesn't allow" in fault(api(method, path, token=MEMBER), "forbidden", 403)
    assert api.conductor.calls == []
    assert api(method, path, token=ADMIN).status_code != 403


def test_every_route_enforces_a_rule(tmp_path: Path) -> None:
    """Closed rules make each route return 403. Routes that are not served return 501 or 410."""
    closed = "".join(f'"{name}": "!"\n' for name in NAMES if name.startswith(("os_compute_api", "compute:")))
    api = make_client(write_policy(tmp_path, closed))
    instance = api.conductor.add()
    bodies = {"POST /os-keypairs": {"keypair": {"name": "k"}}}
    from nova_lite.api.http import router

    for extension in router.extension_classes():
        for route in extension.routes:
            path = route.path.replace("{id}", instance.uuid).replace("{server_id}", instance.uuid)
            for name in ("flavor_id", "key", "name", "tag", "label", "request_id", "aggregate_id", "port_id"):
                path = path.replace(f"{{{name}}}", "1")
            version = f"2.{route.until or max(91, route.since)}"
            body = {route.action: None} if route.action else bodies.get(f"{route.method} {route.path}")
            response = api(route.method, path, body, version=version)
            expected = {"refuse": 501, "gone": 410}.get(route.handler, 403)
            assert response.status_code == expected, (route, response.text)
    assert api.conductor.calls == []
