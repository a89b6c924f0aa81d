"""Rules of server groups."""

from __future__ import annotations

from nova_lite.policies.base import ADMIN, MEMBER, READER, rule

INDEX = "os_compute_api:os-server-groups:index"
INDEX_ALL = "os_compute_api:os-server-groups:index:all_projects"
SHOW = "os_compute_api:os-server-groups:show"
CREATE = "os_compute_api:os-server-groups:create"
DELETE = "os_compute_api:os-server-groups:delete"

_ONE = "/os-server-groups/{server_group_id}"

RULES = [
    rule(INDEX, READER, "List a project's server groups", "GET /os-server-groups"),
    rule(INDEX_ALL, ADMIN, "List the server groups of all projects", "GET /os-server-groups?all_projects=True"),
    rule(SHOW, READER, "Show a server group", f"GET {_ONE}"),
    rule(CREATE, MEMBER, "Create a server group", "POST /os-server-groups"),
    rule(DELETE, MEMBER, "Delete a server group", f"DELETE {_ONE}"),
]
