"""Who may do what: oslo.policy with the rules of `nova_lite.policies`, which the operator's file may override."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oslo_config import cfg
from oslo_policy import policy

from nova_lite import exception, policies
from nova_lite.context import RequestContext


class Policy:
    """Decides by ``[oslo_policy] policy_file`` and the rules' defaults.

    ``target`` is what the rule is about: its ``project_id`` and ``user_id``; by default the asker's own.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._enforcer = policy.Enforcer(conf)
        self._enforcer.register_defaults(policies.list_rules())

    def check_rules(self) -> None:
        """Read the operator's file now; raises `ConfigurationError` if it cannot be used."""
        try:
            self._enforcer.load_rules()
        except Exception as error:
            raise exception.ConfigurationError(reason=f"[oslo_policy] policy_file cannot be used: {error}") from error

    def authorize(self, context: RequestContext, action: str, target: Mapping[str, Any] | None = None) -> None:
        """Raises `PolicyNotAuthorized` (403) unless the rule ``action`` allows it."""
        if not self.allows(context, action, target):
            raise exception.PolicyNotAuthorized(action=action)

    def allows(self, context: RequestContext, action: str, target: Mapping[str, Any] | None = None) -> bool:
        if target is None:
            target = {"project_id": context.project_id, "user_id": context.user_id}
        try:
            return bool(self._enforcer.authorize(action, dict(target), context))
        except policy.InvalidScope:
            return False

    def is_admin(self, context: RequestContext) -> bool:
        """Whether the context's roles make it an admin (the rule ``context_is_admin``)."""
        return self.allows(context, policies.base.CONTEXT_IS_ADMIN)
