"""Rules of a server's action log."""

from __future__ import annotations

from nova_lite.policies.base import ADMIN, READER, rule

LIST = "os_compute_api:os-instance-actions:list"
SHOW = "os_compute_api:os-instance-actions:show"
EVENTS = "os_compute_api:os-instance-actions:events"
EVENT_DETAILS = "os_compute_api:os-instance-actions:events:details"

_ACTIONS = "/servers/{server_id}/os-instance-actions"

RULES = [
    rule(LIST, READER, "List a server's actions", f"GET {_ACTIONS}"),
    rule(SHOW, READER, "Show an action of a server", f"GET {_ACTIONS}/{{request_id}}"),
    rule(EVENTS, ADMIN, "See the hosts and tracebacks of an action's events", f"GET {_ACTIONS}/{{request_id}}"),
    rule(EVENT_DETAILS, ADMIN, "See why an action's event failed", f"GET {_ACTIONS}/{{request_id}}"),
]
