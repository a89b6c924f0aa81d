"""Rules of what is read of a server besides the server itself."""

from __future__ import annotations

from nova_lite.policies.base import ADMIN, MEMBER, READER, rule

INTERFACES_LIST = "os_compute_api:os-attach-interfaces:list"
INTERFACES_SHOW = "os_compute_api:os-attach-interfaces:show"
SECURITY_GROUPS = "os_compute_api:os-security-groups:list"
VOLUMES_INDEX = "os_compute_api:os-volumes-attachments:index"
TOPOLOGY = "compute:server:topology:index"
SERVER_MIGRATIONS = "os_compute_api:servers:migrations:index"
MIGRATIONS = "os_compute_api:os-migrations:index"
DIAGNOSTICS = "os_compute_api:os-server-diagnostics"
PASSWORD_SHOW = "os_compute_api:os-server-password:show"  # noqa: S105 a rule
PASSWORD_CLEAR = "os_compute_api:os-server-password:clear"  # noqa: S105 a rule

RULES = [
    rule(INTERFACES_LIST, READER, "List a server's interfaces", "GET /servers/{server_id}/os-interface"),
    rule(INTERFACES_SHOW, READER, "Show an interface", "GET /servers/{server_id}/os-interface/{port_id}"),
    rule(SECURITY_GROUPS, READER, "List a server's security groups", "GET /servers/{server_id}/os-security-groups"),
    rule(VOLUMES_INDEX, READER, "List a server's volumes", "GET /servers/{server_id}/os-volume_attachments"),
    rule(DIAGNOSTICS, ADMIN, "Show a running server's counters", "GET /servers/{server_id}/diagnostics"),
    rule(PASSWORD_SHOW, READER, "Show the password that a guest posted", "GET /servers/{server_id}/os-server-password"),
    rule(PASSWORD_CLEAR, MEMBER, "Forget that password", "DELETE /servers/{server_id}/os-server-password"),
    rule(TOPOLOGY, READER, "Show a server's NUMA topology", "GET /servers/{server_id}/topology"),
    rule(SERVER_MIGRATIONS, ADMIN, "List a server's migrations", "GET /servers/{server_id}/migrations"),
    rule(MIGRATIONS, ADMIN, "List migrations", "GET /os-migrations"),
]
