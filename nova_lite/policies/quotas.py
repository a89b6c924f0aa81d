"""Rules of quotas."""

from __future__ import annotations

from nova_lite.policies.base import ADMIN, ANYONE, READER, rule

SHOW = "os_compute_api:os-quota-sets:show"
DETAIL = "os_compute_api:os-quota-sets:detail"
DEFAULTS = "os_compute_api:os-quota-sets:defaults"
UPDATE = "os_compute_api:os-quota-sets:update"
DELETE = "os_compute_api:os-quota-sets:delete"
CLASS_SHOW = "os_compute_api:os-quota-class-sets:show"
CLASS_UPDATE = "os_compute_api:os-quota-class-sets:update"

_SET = "/os-quota-sets/{project_id}"
_CLASS = "/os-quota-class-sets/{quota_class}"

RULES = [
    rule(SHOW, READER, "Show a project's quotas", f"GET {_SET}"),
    rule(DETAIL, READER, "Show a project's quotas and use", f"GET {_SET}/detail"),
    rule(DEFAULTS, ANYONE, "Show the quotas that projects have by default", f"GET {_SET}/defaults"),
    rule(UPDATE, ADMIN, "Set a project's quotas", f"PUT {_SET}"),
    rule(DELETE, ADMIN, "Give a project the default quotas again", f"DELETE {_SET}"),
    rule(CLASS_SHOW, ADMIN, "Show the default quotas", f"GET {_CLASS}"),
    rule(CLASS_UPDATE, ADMIN, "Set the default quotas", f"PUT {_CLASS}"),
]
