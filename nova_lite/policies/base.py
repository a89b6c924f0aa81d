"""The roles that rules are built of."""

from __future__ import annotations

from typing import Any

from oslo_policy import policy

CONTEXT_IS_ADMIN = "context_is_admin"

ADMIN = "rule:context_is_admin"
MEMBER = "rule:project_member_or_admin"
READER = "rule:project_reader_or_admin"
SERVICE = "role:service or rule:context_is_admin"
OWNER = "rule:owner_or_admin"
ANYONE = "@"

#: Every rule there is.
RULES: list[policy.RuleDefault] = [
    policy.RuleDefault(CONTEXT_IS_ADMIN, "role:admin", "Who counts as an admin of the cloud."),
    policy.RuleDefault(
        "project_member_or_admin",
        "rule:context_is_admin or (role:member and project_id:%(project_id)s)",
        "Who may change a project's things.",
    ),
    policy.RuleDefault(
        "project_reader_or_admin",
        "rule:context_is_admin or ((role:reader or role:member) and project_id:%(project_id)s)",
        "Who may see a project's things.",
    ),
    policy.RuleDefault(
        "owner_or_admin",
        "rule:context_is_admin or user_id:%(user_id)s",
        "Who may handle a user's own things.",
    ),
]


def rule(name: str, check: str, description: str, *operations: str) -> str:
    """Add a rule for REST ``operations``, each ``"METHOD /path"``, to `RULES`; returns its name."""
    rows = [operation.partition(" ") for operation in operations]
    documented: list[Any] = [{"method": method, "path": path} for method, _, path in rows]
    RULES.append(policy.DocumentedRuleDefault(name, check, description, documented, scope_types=["project"]))
    return name


class Rules:
    """`rule` for names that begin with the same words."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def __call__(self, name: str, check: str, description: str, *operations: str) -> str:
        return rule(f"{self._prefix}:{name}", check, description, *operations)
