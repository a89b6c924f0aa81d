"""Rules of host aggregates."""

from __future__ import annotations

from nova_lite.policies.base import ADMIN, rule

INDEX = "os_compute_api:os-aggregates:index"
SHOW = "os_compute_api:os-aggregates:show"
CREATE = "os_compute_api:os-aggregates:create"
UPDATE = "os_compute_api:os-aggregates:update"
DELETE = "os_compute_api:os-aggregates:delete"
ADD_HOST = "os_compute_api:os-aggregates:add_host"
REMOVE_HOST = "os_compute_api:os-aggregates:remove_host"
SET_METADATA = "os_compute_api:os-aggregates:set_metadata"
IMAGES = "compute:aggregates:images"

_ONE = "/os-aggregates/{aggregate_id}"

RULES = [
    rule(INDEX, ADMIN, "List host aggregates", "GET /os-aggregates"),
    rule(SHOW, ADMIN, "Show a host aggregate", f"GET {_ONE}"),
    rule(CREATE, ADMIN, "Create a host aggregate", "POST /os-aggregates"),
    rule(UPDATE, ADMIN, "Change name or zone of a host aggregate", f"PUT {_ONE}"),
    rule(DELETE, ADMIN, "Delete a host aggregate", f"DELETE {_ONE}"),
    rule(ADD_HOST, ADMIN, "Put a host into an aggregate", f"POST {_ONE}/action (add_host)"),
    rule(REMOVE_HOST, ADMIN, "Take a host out of an aggregate", f"POST {_ONE}/action (remove_host)"),
    rule(SET_METADATA, ADMIN, "Change an aggregate's metadata", f"POST {_ONE}/action (set_metadata)"),
    rule(IMAGES, ADMIN, "Have an aggregate's hosts cache images", f"POST {_ONE}/images"),
]
