"""Rules of server groups."""

from __future__ import annotations

from nova_lite.policies.base import ADMIN, MEMBER, READER, Rules

_groups = Rules("os_compute_api:os-server-groups")
_ONE = "/os-server-groups/{server_group_id}"

INDEX = _groups("index", READER, "List a project's server groups", "GET /os-server-groups")
INDEX_ALL = _groups(
    "index:all_projects", ADMIN, "List the server groups of all projects", "GET /os-server-groups?all_projects=True"
)
SHOW = _groups("show", READER, "Show a server group", f"GET {_ONE}")
CREATE = _groups("create", MEMBER, "Create a server group", "POST /os-server-groups")
DELETE = _groups("delete", MEMBER, "Delete a server group", f"DELETE {_ONE}")
