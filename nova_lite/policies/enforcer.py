"""Enforcement of the policy rules: oslo.policy with the rules of `nova_lite.policies` and the operator's overrides."""

from __future__ import annotations

import operator
import time
from collections.abc import Hashable, Mapping
from typing import Any

from oslo_config import cfg
from oslo_policy import policy

from nova_lite import policies
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext

#: Seconds for which a decision is cached. A change of the operator's file takes effect after at most this time.
CACHE_SECONDS = 1.0

#: Returns the properties of a context that a rule can check.
_caller_properties = operator.attrgetter(*RequestContext(overwrite=False).to_policy_values())


class Policy:
    """Decides whether a rule allows a caller, by ``[oslo_policy] policy_file`` and the rules' defaults.

    ``target`` has the ``project_id`` and ``user_id`` of the object that the rule protects. The default is the caller's
    own project and user. Decisions are cached for `CACHE_SECONDS` by rule, target, and all properties of the caller
    that rules can check.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._decisions: dict[Hashable, bool] = {}
        self._decisions_expire = 0.0
        self._enforcer = policy.Enforcer(conf)
        self._enforcer.register_defaults(policies.list_rules())

    def check_rules(self) -> None:
        """Read the operator's file now. Raise `ConfigurationError` if it is invalid."""
        try:
            self._enforcer.load_rules()
        except Exception as error:
            raise exceptions.ConfigurationError(reason=f"[oslo_policy] policy_file is invalid: {error}") from error

    def authorize(self, context: RequestContext, action: str, target: Mapping[str, Any] | None = None) -> None:
        """Raise `PolicyNotAuthorized` (403) unless the rule ``action`` allows the caller."""
        if not self.allows(context, action, target):
            raise exceptions.PolicyNotAuthorized(action=action)

    def allows(self, context: RequestContext, action: str, target: Mapping[str, Any] | None = None) -> bool:
        """Check whether the rule ``action`` allows the caller."""
        if target is None:
            target = {"project_id": context.project_id, "user_id": context.user_id}
        now = time.monotonic()
        if now >= self._decisions_expire:
            # A new table replaces the old one. A decision that another thread makes meanwhile goes to the old table.
            self._decisions, self._decisions_expire = {}, now + CACHE_SECONDS
        decisions = self._decisions
        caller = tuple(tuple(value) if isinstance(value, list) else value for value in _caller_properties(context))
        key = (action, caller, frozenset(target.items()))
        decision = decisions.get(key)
        if decision is None:
            decision = decisions[key] = self._decide(context, action, target)
        return decision

    def _decide(self, context: RequestContext, action: str, target: Mapping[str, Any]) -> bool:
        try:
            return bool(self._enforcer.authorize(action, dict(target), context))
        except policy.InvalidScope:
            return False

    def is_admin(self, context: RequestContext) -> bool:
        """Check whether the caller's roles make it an admin (the rule ``context_is_admin``)."""
        return self.allows(context, policies.base.CONTEXT_IS_ADMIN)
