"""Rules of host aggregates."""

from __future__ import annotations

from nova_lite.policies.base import ADMIN, Rules, rule

_aggregates = Rules("os_compute_api:os-aggregates")
_ONE = "/os-aggregates/{aggregate_id}"

INDEX = _aggregates("index", ADMIN, "List host aggregates", "GET /os-aggregates")
SHOW = _aggregates("show", ADMIN, "Show a host aggregate", f"GET {_ONE}")
CREATE = _aggregates("create", ADMIN, "Create a host aggregate", "POST /os-aggregates")
UPDATE = _aggregates("update", ADMIN, "Change the name or zone of a host aggregate", f"PUT {_ONE}")
DELETE = _aggregates("delete", ADMIN, "Delete a host aggregate", f"DELETE {_ONE}")
ADD_HOST = _aggregates("add_host", ADMIN, "Add a host to an aggregate", f"POST {_ONE}/action (add_host)")
REMOVE_HOST = _aggregates("remove_host", ADMIN, "Remove a host from an aggregate", f"POST {_ONE}/action (remove_host)")
SET_METADATA = _aggregates(
    "set_metadata", ADMIN, "Change an aggregate's metadata", f"POST {_ONE}/action (set_metadata)"
)
IMAGES = rule("compute:aggregates:images", ADMIN, "Cache images on an aggregate's hosts", f"POST {_ONE}/images")
