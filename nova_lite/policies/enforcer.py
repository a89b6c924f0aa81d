"""Who may do what: oslo.policy with the rules of `nova_lite.policies`, which the operator's file may override."""

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

#: Seconds for which a decision holds: so long a change of the operator's file may go unseen.
KEPT = 1.0

#: All that a rule may ask of a context.
_asker = operator.attrgetter(*RequestContext(overwrite=False).to_policy_values())


class Policy:
    """Decides by ``[oslo_policy] policy_file`` and the rules' defaults.

    ``target`` is what the rule is about: its ``project_id`` and ``user_id``; by default the asker's own. The same
    question, by all that a rule may see of asker and target, is decided once in `KEPT` seconds.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._decided: dict[Hashable, bool] = {}
        self._decided_until = 0.0
        self._enforcer = policy.Enforcer(conf)
        self._enforcer.register_defaults(policies.list_rules())

    def check_rules(self) -> None:
        """Read the operator's file now; raises `ConfigurationError` if it cannot be used."""
        try:
            self._enforcer.load_rules()
        except Exception as error:
            raise exceptions.ConfigurationError(reason=f"[oslo_policy] policy_file cannot be used: {error}") from error

    def authorize(self, context: RequestContext, action: str, target: Mapping[str, Any] | None = None) -> None:
        """Raises `PolicyNotAuthorized` (403) unless the rule ``action`` allows it."""
        if not self.allows(context, action, target):
            raise exceptions.PolicyNotAuthorized(action=action)

    def allows(self, context: RequestContext, action: str, target: Mapping[str, Any] | None = None) -> bool:
        if target is None:
            target = {"project_id": context.project_id, "user_id": context.user_id}
        decided = self._decisions()
        asker = tuple(tuple(value) if isinstance(value, list) else value for value in _asker(context))
        question = (action, asker, frozenset(target.items()))
        found = decided.get(question)
        if found is None:
            found = decided[question] = self._decide(context, action, target)
        return found

    def _decide(self, context: RequestContext, action: str, target: Mapping[str, Any]) -> bool:
        try:
            return bool(self._enforcer.authorize(action, dict(target), context))
        except policy.InvalidScope:
            return False

    def _decisions(self) -> dict[Hashable, bool]:
        """Those that hold now. A new table takes the place of the old one, so that what is being decided while it is
        replaced goes with it."""
        now = time.monotonic()
        if now >= self._decided_until:
            self._decided, self._decided_until = {}, now + KEPT
        return self._decided

    def is_admin(self, context: RequestContext) -> bool:
        """Whether the context's roles make it an admin (the rule ``context_is_admin``)."""
        return self.allows(context, policies.base.CONTEXT_IS_ADMIN)
