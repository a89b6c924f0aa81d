"""Rules of a server's action log."""

from __future__ import annotations

from nova_lite.policies.base import ADMIN, READER, Rules

_actions = Rules("os_compute_api:os-instance-actions")
_ACTIONS = "/servers/{server_id}/os-instance-actions"

LIST = _actions("list", READER, "List a server's actions", f"GET {_ACTIONS}")
SHOW = _actions("show", READER, "Show an action of a server", f"GET {_ACTIONS}/{{request_id}}")
EVENTS = _actions(
    "events", ADMIN, "See the hosts and tracebacks of an action's events", f"GET {_ACTIONS}/{{request_id}}"
)
EVENT_DETAILS = _actions(
    "events:details", ADMIN, "See the failure details of an action's events", f"GET {_ACTIONS}/{{request_id}}"
)
