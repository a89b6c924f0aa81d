"""Rules of quotas and limits."""

from __future__ import annotations

from nova_lite.policies.base import ADMIN, ANYONE, READER, Rules, rule

_quotas = Rules("os_compute_api:os-quota-sets")
_classes = Rules("os_compute_api:os-quota-class-sets")
_SET = "/os-quota-sets/{project_id}"
_CLASS = "/os-quota-class-sets/{quota_class}"

SHOW = _quotas("show", READER, "Show a project's quotas", f"GET {_SET}")
DETAIL = _quotas("detail", READER, "Show a project's quotas and usage", f"GET {_SET}/detail")
DEFAULTS = _quotas("defaults", ANYONE, "Show the default quotas of projects", f"GET {_SET}/defaults")
UPDATE = _quotas("update", ADMIN, "Set a project's quotas", f"PUT {_SET}")
DELETE = _quotas("delete", ADMIN, "Reset a project to the default quotas", f"DELETE {_SET}")
CLASS_SHOW = _classes("show", ADMIN, "Show the default quotas", f"GET {_CLASS}")
CLASS_UPDATE = _classes("update", ADMIN, "Set the default quotas", f"PUT {_CLASS}")
LIMITS = rule("os_compute_api:limits", ANYONE, "Show the limits of the caller's project", "GET /limits")
LIMITS_OTHER = rule("os_compute_api:limits:other_project", ADMIN, "Show another project's limits", "GET /limits")
