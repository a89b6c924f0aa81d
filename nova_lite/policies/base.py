"""The roles that rules are made of, the list of all rules, and `rule`, which defines one."""

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

#: All rules.
RULES: list[policy.RuleDefault] = [
    policy.RuleDefault(CONTEXT_IS_ADMIN, "role:admin", "Admins of the cloud."),
    policy.RuleDefault(
        "project_member_or_admin",
        "rule:context_is_admin or (role:member and project_id:%(project_id)s)",
        "Callers that may change a project's resources.",
    ),
    policy.RuleDefault(
        "project_reader_or_admin",
        "rule:context_is_admin or ((role:reader or role:member) and project_id:%(project_id)s)",
        "Callers that may see a project's resources.",
    ),
    policy.RuleDefault(
        "owner_or_admin",
        "rule:context_is_admin or user_id:%(user_id)s",
        "Callers that may manage a user's own resources.",
    ),
]


def rule(name: str, check: str, description: str, *operations: str, scopes: tuple[str, ...] = ("project",)) -> str:
    """Add a rule for REST ``operations``, each ``"METHOD /path"``, to `RULES`. Return the rule's name.

    ``check`` is the default, in the language of oslo.policy. ``scopes``: what a token may be for.
    """
    pairs = [operation.partition(" ") for operation in operations]
    documented: list[Any] = [{"method": method, "path": path} for method, _, path in pairs]
    RULES.append(policy.DocumentedRuleDefault(name, check, description, documented, scope_types=list(scopes)))
    return name


class Rules:
    """Defines rules whose names have a common prefix."""

    def __init__(self, prefix: str, scopes: tuple[str, ...] = ("project",)) -> None:
        self._prefix = prefix
        self._scopes = scopes

    def __call__(self, name: str, check: str, description: str, *operations: str) -> str:
        return rule(f"{self._prefix}:{name}", check, description, *operations, scopes=self._scopes)
