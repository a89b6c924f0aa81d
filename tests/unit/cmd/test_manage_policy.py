"""``nova-lite-manage policy`` and ``api``."""

from __future__ import annotations

import json

import pytest

from nova_lite import policies
from nova_lite.api.http import openapi, operations_page, reference
from nova_lite.policies import servers
from tests.support.manage import Tool

ALICE = ("--user", "alice", "--project", "demo")


def verdict(tool: Tool, *arguments: str, status: int) -> str:
    rows = tool.json("policy", "check", *arguments, status=status)
    assert len(rows) == 1
    return rows[0]["verdict"]


def test_every_rule_is_listed(tool: Tool) -> None:
    rows = {row["rule"]: row for row in tool.json("policy", "list")}
    assert list(rows) == [rule.name for rule in policies.list_rules()]
    assert rows[servers.CREATE] == {
        "rule": servers.CREATE,
        "default": "rule:project_member_or_admin",
        "scope": ["project"],
        "operations": ["POST /servers"],
    }
    assert servers.CREATE in tool("policy", "list")


@pytest.mark.parametrize(
    ("rule", "roles", "allowed"),
    [
        (servers.CREATE, "member", True),
        (servers.CREATE, "reader", False),
        (servers.SHOW, "reader", True),
        (servers.FORCED_HOST, "member,reader", False),
        (servers.FORCED_HOST, "admin", True),
    ],
)
def test_policy_check_by_role(tool: Tool, rule: str, roles: str, allowed: bool) -> None:
    found = verdict(tool, rule, *ALICE, "--roles", roles, status=0 if allowed else 1)
    assert found == ("allowed" if allowed else "denied")


def test_policy_check_of_another_project(tool: Tool) -> None:
    others = ("--target", "project_id=other")
    assert verdict(tool, servers.SHOW, *ALICE, "--roles", "member", *others, status=1) == "denied"
    assert verdict(tool, servers.SHOW, *ALICE, "--roles", "admin", *others, status=0) == "allowed"


def test_all_rules(tool: Tool) -> None:
    rows = tool.json("policy", "check", "--all", *ALICE, "--roles", "member", status=1)
    assert {row["verdict"] for row in rows} == {"allowed", "denied"}
    assert len(rows) == len(policies.list_rules())
    rows = tool.json("policy", "check", "--all", *ALICE, "--roles", "admin", status=1)
    # An admin, too, gives only trusts of their own.
    assert [row["rule"] for row in rows if row["verdict"] == "denied"] == ["identity:create_trust"]


def test_policy_check_uses_the_operators_file(tool: Tool) -> None:
    path = tool.path / "policy.yaml"
    path.write_text(f'"{servers.CREATE}": "role:builder"\n')
    with tool.config.open("a") as file:
        file.write(f"[oslo_policy]\npolicy_file = {path}\n")
    assert verdict(tool, servers.CREATE, *ALICE, "--roles", "member", status=1) == "denied"
    assert verdict(tool, servers.CREATE, *ALICE, "--roles", "builder", status=0) == "allowed"
    path.write_text("nonsense: [")
    assert "policy_file is invalid" in tool.fails("policy", "check", servers.CREATE)


def test_an_unknown_rule(tool: Tool) -> None:
    assert "There is no rule nonsense" in tool.fails("policy", "check", "nonsense")


@pytest.mark.parametrize("arguments", [[], ["--all", "x"], ["x", "--target", "project"]])
def test_wrong_usage(tool: Tool, arguments: list[str]) -> None:
    tool("policy", "check", *arguments, status=2)


def test_documents_of_the_api(tool: Tool) -> None:
    assert json.loads(tool("api", "openapi")) == json.loads(json.dumps(openapi.document()))
    assert tool("api", "reference") == reference.markdown().strip()
    assert tool("api", "operations") == operations_page.page().strip()
