"""Rules of security groups."""

from __future__ import annotations

from nova_lite.policies.base import MEMBER, READER, Rules

_groups = Rules("os_compute_api:os-security-groups")
_GROUP = "/os-security-groups/{security_group_id}"
_ACTION = "POST /servers/{server_id}/action"

LIST = _groups("get", READER, "List security groups", "GET /os-security-groups")
SHOW = _groups("show", READER, "Show a security group", f"GET {_GROUP}")
CREATE = _groups("create", MEMBER, "Create a security group", "POST /os-security-groups")
UPDATE = _groups("update", MEMBER, "Change a security group's name or description", f"PUT {_GROUP}")
DELETE = _groups("delete", MEMBER, "Delete a security group", f"DELETE {_GROUP}")
RULE_CREATE = _groups("rule:create", MEMBER, "Add a rule to a security group", "POST /os-security-group-rules")
RULE_DELETE = _groups(
    "rule:delete", MEMBER, "Delete a rule of a security group", "DELETE /os-security-group-rules/{rule_id}"
)
SERVER_LIST = _groups("list", READER, "List a server's security groups", "GET /servers/{server_id}/os-security-groups")
SERVER_ADD = _groups("add", MEMBER, "Add a server to a security group (addSecurityGroup)", _ACTION)
SERVER_REMOVE = _groups("remove", MEMBER, "Remove a server from a security group (removeSecurityGroup)", _ACTION)
