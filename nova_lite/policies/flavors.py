"""Rules of flavors and their extra specs."""

from __future__ import annotations

from nova_lite.policies.base import ADMIN, ANYONE, READER, rule

INDEX = "os_compute_api:flavors:index"
DETAIL = "os_compute_api:flavors:detail"
SHOW = "os_compute_api:flavors:show"
LIST_PRIVATE = "os_compute_api:flavors:index:private"
CREATE = "os_compute_api:os-flavor-manage:create"
UPDATE = "os_compute_api:os-flavor-manage:update"
DELETE = "os_compute_api:os-flavor-manage:delete"
SPECS_INDEX = "os_compute_api:os-flavor-extra-specs:index"
SPECS_SHOW = "os_compute_api:os-flavor-extra-specs:show"
SPECS_CREATE = "os_compute_api:os-flavor-extra-specs:create"
SPECS_UPDATE = "os_compute_api:os-flavor-extra-specs:update"
SPECS_DELETE = "os_compute_api:os-flavor-extra-specs:delete"
ACCESS = "os_compute_api:os-flavor-access"
ACCESS_ADD = "os_compute_api:os-flavor-access:add_tenant_access"
ACCESS_REMOVE = "os_compute_api:os-flavor-access:remove_tenant_access"

_ACTION = "POST /flavors/{flavor_id}/action"
_SPECS = "/flavors/{flavor_id}/os-extra_specs"

RULES = [
    rule(INDEX, ANYONE, "List flavors", "GET /flavors"),
    rule(DETAIL, ANYONE, "List flavors with details", "GET /flavors/detail"),
    rule(SHOW, ANYONE, "Show a flavor", "GET /flavors/{flavor_id}"),
    rule(LIST_PRIVATE, ADMIN, "List and show flavors that are not public", "GET /flavors", "GET /flavors/detail"),
    rule(CREATE, ADMIN, "Create a flavor", "POST /flavors"),
    rule(UPDATE, ADMIN, "Change a flavor's description", "PUT /flavors/{flavor_id}"),
    rule(DELETE, ADMIN, "Delete a flavor", "DELETE /flavors/{flavor_id}"),
    rule(SPECS_INDEX, READER, "List a flavor's extra specs", f"GET {_SPECS}", "GET /flavors/detail"),
    rule(SPECS_SHOW, READER, "Show an extra spec of a flavor", f"GET {_SPECS}/{{key}}"),
    rule(SPECS_CREATE, ADMIN, "Set extra specs of a flavor", f"POST {_SPECS}"),
    rule(SPECS_UPDATE, ADMIN, "Set one extra spec of a flavor", f"PUT {_SPECS}/{{key}}"),
    rule(SPECS_DELETE, ADMIN, "Delete an extra spec of a flavor", f"DELETE {_SPECS}/{{key}}"),
    rule(ACCESS, ADMIN, "List who may use a private flavor", "GET /flavors/{flavor_id}/os-flavor-access"),
    rule(ACCESS_ADD, ADMIN, "Let a project use a private flavor", f"{_ACTION} (addTenantAccess)"),
    rule(ACCESS_REMOVE, ADMIN, "Take a private flavor from a project", f"{_ACTION} (removeTenantAccess)"),
]
