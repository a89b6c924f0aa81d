"""Rules of the DNS service, with Designate's names where no other service has them."""

from __future__ import annotations

from nova_lite.policies.base import ADMIN, MEMBER, READER, rule

_ZONE, _RECORDSET = "/v2/zones/{zone_id}", "/v2/zones/{zone_id}/recordsets/{recordset_id}"
_FLOATING = "/v2/reverse/floatingips/{region}:{floatingip_id}"

ZONES = rule("find_zones", READER, "List the zones of the project", "GET /v2/zones")
ZONE_GET = rule("get_zone", READER, "Show a zone", f"GET {_ZONE}")
ZONE_CREATE = rule("create_zone", MEMBER, "Create a zone", "POST /v2/zones")
ZONE_UPDATE = rule("update_zone", MEMBER, "Change a zone", f"PATCH {_ZONE}")
ZONE_DELETE = rule("delete_zone", MEMBER, "Delete a zone", f"DELETE {_ZONE}")
RECORDSETS = rule(
    "find_recordsets", READER, "List record sets", "GET /v2/recordsets", "GET /v2/zones/{zone_id}/recordsets"
)
RECORDSET_GET = rule("get_recordset", READER, "Show a record set", f"GET {_RECORDSET}")
RECORDSET_CREATE = rule("create_recordset", MEMBER, "Create a record set", "POST /v2/zones/{zone_id}/recordsets")
RECORDSET_UPDATE = rule("update_recordset", MEMBER, "Change a record set", f"PUT {_RECORDSET}")
RECORDSET_DELETE = rule("delete_recordset", MEMBER, "Delete a record set", f"DELETE {_RECORDSET}")
FLOATING_GET = rule(
    "dns_find_floatingips",
    READER,
    "See the names of the addresses of floating addresses",
    "GET /v2/reverse/floatingips",
    f"GET {_FLOATING}",
)
FLOATING_UPDATE = rule("dns_update_floatingip", MEMBER, "Name the address of a floating address", f"PATCH {_FLOATING}")
LIMITS = rule("dns_limits", READER, "Show the limits of the service", "GET /v2/limits")
QUOTA_GET = rule(
    "dns_get_quotas",
    "rule:context_is_admin or project_id:%(project_id)s",
    "See a project's quotas of zones",
    "GET /v2/quotas/{project_id}",
)
QUOTA_UPDATE = rule(
    "dns_set_quota",
    ADMIN,
    "Change a project's quotas of zones",
    "PATCH /v2/quotas/{project_id}",
    "DELETE /v2/quotas/{project_id}",
)
EVERYBODY = rule("dns_all_tenants", ADMIN, "List zones and record sets of all projects", "GET /v2/zones")
