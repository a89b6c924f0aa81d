"""Rules of flavors and their extra specs."""

from __future__ import annotations

from nova_lite.policies.base import ADMIN, ANYONE, READER, Rules, rule

_flavors = Rules("os_compute_api:flavors")
_manage = Rules("os_compute_api:os-flavor-manage")
_specs = Rules("os_compute_api:os-flavor-extra-specs")
_access = Rules("os_compute_api:os-flavor-access")
_ACTION = "POST /flavors/{flavor_id}/action"
_SPECS = "/flavors/{flavor_id}/os-extra_specs"

INDEX = _flavors("index", ANYONE, "List flavors", "GET /flavors")
DETAIL = _flavors("detail", ANYONE, "List flavors with details", "GET /flavors/detail")
SHOW = _flavors("show", ANYONE, "Show a flavor", "GET /flavors/{flavor_id}")
LIST_PRIVATE = _flavors(
    "index:private", ADMIN, "List and show flavors that are not public", "GET /flavors", "GET /flavors/detail"
)
CREATE = _manage("create", ADMIN, "Create a flavor", "POST /flavors")
UPDATE = _manage("update", ADMIN, "Change a flavor's description", "PUT /flavors/{flavor_id}")
DELETE = _manage("delete", ADMIN, "Delete a flavor", "DELETE /flavors/{flavor_id}")
SPECS_INDEX = _specs("index", READER, "List a flavor's extra specs", f"GET {_SPECS}", "GET /flavors/detail")
SPECS_SHOW = _specs("show", READER, "Show an extra spec of a flavor", f"GET {_SPECS}/{{key}}")
SPECS_CREATE = _specs("create", ADMIN, "Set extra specs of a flavor", f"POST {_SPECS}")
SPECS_UPDATE = _specs("update", ADMIN, "Set one extra spec of a flavor", f"PUT {_SPECS}/{{key}}")
SPECS_DELETE = _specs("delete", ADMIN, "Delete an extra spec of a flavor", f"DELETE {_SPECS}/{{key}}")
ACCESS = rule(
    "os_compute_api:os-flavor-access",
    ADMIN,
    "List projects with access to a private flavor",
    "GET /flavors/{flavor_id}/os-flavor-access",
)
ACCESS_ADD = _access(
    "add_tenant_access", ADMIN, "Grant a project access to a private flavor", f"{_ACTION} (addTenantAccess)"
)
ACCESS_REMOVE = _access(
    "remove_tenant_access", ADMIN, "Revoke a project's access to a private flavor", f"{_ACTION} (removeTenantAccess)"
)
