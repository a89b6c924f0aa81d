"""Rules of quotas and limits."""

from __future__ import annotations

from nova_lite.policies.base import ADMIN, ANYONE, READER, Rules, rule

_quotas = Rules("os_compute_api:os-quota-sets")
_classes = Rules("os_compute_api:os-quota-class-sets")
_SET = "/os-quota-sets/{project_id}"
_CLASS = "/os-quota-class-sets/{quota_class}"

SHOW = _quotas("show", READER, "Show a project's quotas", f"GET {_SET}")
DETAIL = _quotas("detail", READER, "Show a project's quotas and use", f"GET {_SET}/detail")
DEFAULTS = _quotas("defaults", ANYONE, "Show the quotas that projects have by default", f"GET {_SET}/defaults")
UPDATE = _quotas("update", ADMIN, "Set a project's quotas", f"PUT {_SET}")
DELETE = _quotas("delete", ADMIN, "Give a project the default quotas again", f"DELETE {_SET}")
CLASS_SHOW = _classes("show", ADMIN, "Show the default quotas", f"GET {_CLASS}")
CLASS_UPDATE = _classes("update", ADMIN, "Set the default quotas", f"PUT {_CLASS}")
LIMITS = rule("os_compute_api:limits", ANYONE, "Show one's own project's limits", "GET /limits")
LIMITS_OTHER = rule("os_compute_api:limits:other_project", ADMIN, "Show another project's limits", "GET /limits")
