"""Rules of servers and their actions."""

from __future__ import annotations

from nova_lite.operations import OPERATIONS
from nova_lite.policies.base import ADMIN, MEMBER, READER, Rules, rule

_servers = Rules("os_compute_api:servers")
_ips = Rules("os_compute_api:ips")
_metadata = Rules("os_compute_api:server-metadata")
_tags = Rules("os_compute_api:os-server-tags")
_lock = Rules("os_compute_api:os-lock-server")
_shelve = Rules("os_compute_api:os-shelve")
_admin = Rules("os_compute_api:os-admin-actions")
_interfaces = Rules("os_compute_api:os-attach-interfaces")
_password = Rules("os_compute_api:os-server-password")
_shares = Rules("os_compute_api:os-server-shares")
_points = Rules("os_compute_api:os-snapshot-points")
_clones = Rules("os_compute_api:os-clones")
_LISTS = ("GET /servers", "GET /servers/detail")
_VIEWS = ("GET /servers/{server_id}", "GET /servers/detail", "PUT /servers/{server_id}")
_ACTION = "POST /servers/{server_id}/action"

INDEX = _servers("index", READER, "List servers", "GET /servers")
DETAIL = _servers("detail", READER, "List servers with details", "GET /servers/detail")
INDEX_ALL = _servers("index:get_all_tenants", ADMIN, "List servers of all projects", "GET /servers")
DETAIL_ALL = _servers(
    "detail:get_all_tenants", ADMIN, "List servers of all projects with details", "GET /servers/detail"
)
ALL_FILTERS = _servers(
    "allow_all_filters", ADMIN, "Filter and sort servers by all parameters, including hosts", *_LISTS
)
SHOW = _servers("show", READER, "Show a server", "GET /servers/{server_id}")
HOST_STATUS = _servers("show:host_status", ADMIN, "See whether a server's host is up", *_VIEWS)
FLAVOR_EXTRA_SPECS = _servers("show:flavor-extra-specs", READER, "See the extra specs of a server's flavor", *_VIEWS)
EXTENDED_ATTRIBUTES = rule(
    "os_compute_api:os-extended-server-attributes", ADMIN, "See a server's host and the attributes for admins", *_VIEWS
)
CREATE = _servers("create", MEMBER, "Create servers", "POST /servers")
FORCED_HOST = _servers(
    "create:forced_host", ADMIN, "Create a server on a given host, bypassing the scheduler", "POST /servers"
)
REQUESTED_DESTINATION = rule(
    "compute:servers:create:requested_destination",
    ADMIN,
    "Create a server on a given host that passes the scheduler's filters",
    "POST /servers",
)
ZERO_DISK = _servers(
    "create:zero_disk_flavor",
    ADMIN,
    "Create a server from an image with a flavor whose root disk is 0 GiB, so that the image determines its size",
    "POST /servers",
)
UPDATE = _servers("update", MEMBER, "Change a server's name, description or addresses", "PUT /servers/{server_id}")
DELETE = _servers("delete", MEMBER, "Delete a server", "DELETE /servers/{server_id}")
FORCE_DELETE = rule(
    "os_compute_api:os-deferred-delete:force", MEMBER, "Delete a server immediately (forceDelete)", _ACTION
)
EVACUATE = rule(
    "os_compute_api:os-evacuate", ADMIN, "Rebuild a server of a failed host on another host (evacuate)", _ACTION
)
REBUILD = _servers("rebuild", MEMBER, "Rebuild a server (rebuild)", _ACTION)
CREATE_IMAGE = _servers("create_image", MEMBER, "Create an image of a server (createImage)", _ACTION)
CREATE_BACKUP = rule(
    "os_compute_api:os-create-backup", MEMBER, "Create a backup image of a server, in rotation (createBackup)", _ACTION
)
SHELVE = _shelve("shelve", MEMBER, "Shelve a server (shelve)", _ACTION)
SHELVE_OFFLOAD = _shelve("shelve_offload", ADMIN, "Remove a shelved server from its host (shelveOffload)", _ACTION)
UNSHELVE = _shelve("unshelve", MEMBER, "Restore a shelved server (unshelve)", _ACTION)
UNSHELVE_TO_HOST = _shelve("unshelve_to_host", ADMIN, "Restore a shelved server on a given host (unshelve)", _ACTION)
IPS_INDEX = _ips("index", READER, "List a server's addresses", "GET /servers/{server_id}/ips")
IPS_SHOW = _ips("show", READER, "Show a server's addresses on a network", "GET /servers/{server_id}/ips/{network}")
METADATA_INDEX = _metadata("index", READER, "List a server's metadata", "GET /servers/{server_id}/metadata")
METADATA_SHOW = _metadata(
    "show", READER, "Show an item of a server's metadata", "GET /servers/{server_id}/metadata/{key}"
)
METADATA_CREATE = _metadata("create", MEMBER, "Add items to a server's metadata", "POST /servers/{server_id}/metadata")
METADATA_UPDATE_ALL = _metadata(
    "update_all", MEMBER, "Replace a server's metadata", "PUT /servers/{server_id}/metadata"
)
METADATA_UPDATE = _metadata(
    "update", MEMBER, "Set an item of a server's metadata", "PUT /servers/{server_id}/metadata/{key}"
)
METADATA_DELETE = _metadata(
    "delete", MEMBER, "Delete an item of a server's metadata", "DELETE /servers/{server_id}/metadata/{key}"
)
TAGS_INDEX = _tags("index", READER, "List a server's tags", "GET /servers/{server_id}/tags")
TAGS_SHOW = _tags("show", READER, "Check whether a server has a tag", "GET /servers/{server_id}/tags/{tag}")
TAGS_UPDATE_ALL = _tags("update_all", MEMBER, "Replace a server's tags", "PUT /servers/{server_id}/tags")
TAGS_UPDATE = _tags("update", MEMBER, "Add a tag to a server", "PUT /servers/{server_id}/tags/{tag}")
TAGS_DELETE_ALL = _tags("delete_all", MEMBER, "Delete all tags of a server", "DELETE /servers/{server_id}/tags")
TAGS_DELETE = _tags("delete", MEMBER, "Delete a tag of a server", "DELETE /servers/{server_id}/tags/{tag}")
LOCK = _lock("lock", MEMBER, "Lock a server (lock)", _ACTION)
UNLOCK = _lock("unlock", MEMBER, "Unlock a server (unlock)", _ACTION)
RESET_STATE = _admin("reset_state", ADMIN, "Set a server's state (os-resetState)", _ACTION)
INJECT_NETWORK_INFO = _admin(
    "inject_network_info", ADMIN, "Inject network information into a server (injectNetworkInfo; no effect)", _ACTION
)
UNLOCK_OVERRIDE = _lock("unlock:unlock_override", ADMIN, "Unlock a server that an admin locked (unlock)", _ACTION)
INTERFACES_LIST = _interfaces("list", READER, "List a server's interfaces", "GET /servers/{server_id}/os-interface")
INTERFACES_SHOW = _interfaces("show", READER, "Show an interface", "GET /servers/{server_id}/os-interface/{port_id}")
INTERFACES_CREATE = _interfaces("create", MEMBER, "Attach an interface", "POST /servers/{server_id}/os-interface")
INTERFACES_DELETE = _interfaces(
    "delete", MEMBER, "Detach an interface", "DELETE /servers/{server_id}/os-interface/{port_id}"
)
_multinic = Rules("os_compute_api:os-multinic")
ADD_FIXED_IP = _multinic("add", MEMBER, "Add a fixed address to a server (addFixedIp)", _ACTION)
REMOVE_FIXED_IP = _multinic("remove", MEMBER, "Remove a fixed address from a server (removeFixedIp)", _ACTION)
_attachments = Rules("os_compute_api:os-volumes-attachments")
_ATTACHMENTS = "/servers/{server_id}/os-volume_attachments"
VOLUMES_INDEX = _attachments("index", READER, "List a server's volumes", f"GET {_ATTACHMENTS}")
VOLUMES_SHOW = _attachments("show", READER, "Show a server's volume", f"GET {_ATTACHMENTS}/{{volume_id}}")
VOLUMES_CREATE = _attachments("create", MEMBER, "Attach a volume to a server", f"POST {_ATTACHMENTS}")
VOLUMES_UPDATE = _attachments(
    "update", MEMBER, "Change whether a volume is deleted with its server", f"PUT {_ATTACHMENTS}/{{volume_id}}"
)
VOLUMES_SWAP = _attachments(
    "swap",
    ADMIN,
    "Replace a server's volume by another one, with its data",
    f"PUT {_ATTACHMENTS}/{{volume_id}}",
)
VOLUMES_DELETE = _attachments("delete", MEMBER, "Detach a volume from a server", f"DELETE {_ATTACHMENTS}/{{volume_id}}")
DIAGNOSTICS = rule(
    "os_compute_api:os-server-diagnostics",
    ADMIN,
    "Show a running server's diagnostics",
    "GET /servers/{server_id}/diagnostics",
)
PASSWORD_SHOW = _password(
    "show", READER, "Show the encrypted password that a guest posted", "GET /servers/{server_id}/os-server-password"
)
PASSWORD_CLEAR = _password(
    "clear", MEMBER, "Clear the password that a guest posted", "DELETE /servers/{server_id}/os-server-password"
)
TOPOLOGY = rule(
    "compute:server:topology:index", READER, "Show a server's NUMA topology", "GET /servers/{server_id}/topology"
)
TOPOLOGY_HOST = rule(
    "compute:server:topology:host:index",
    ADMIN,
    "Show the host NUMA cells and CPUs of a server",
    "GET /servers/{server_id}/topology",
)
SERVER_MIGRATIONS = _servers(
    "migrations:index", ADMIN, "List a server's migrations", "GET /servers/{server_id}/migrations"
)
SERVER_MIGRATION = _servers(
    "migrations:show", ADMIN, "Show a server's migration", "GET /servers/{server_id}/migrations/{id}"
)
MIGRATION_ABORT = _servers(
    "migrations:delete", ADMIN, "Abort a live migration", "DELETE /servers/{server_id}/migrations/{migration_id}"
)
MIGRATION_FORCE_COMPLETE = _servers(
    "migrations:force_complete",
    ADMIN,
    "Force a live migration to complete",
    "POST /servers/{server_id}/migrations/{migration_id}/action",
)
MIGRATIONS = rule("os_compute_api:os-migrations:index", ADMIN, "List migrations", "GET /os-migrations")

for _operation in OPERATIONS.values():
    if _operation.action and _operation.rule:
        _default = ADMIN if _operation.admin else MEMBER
        rule(_operation.rule, _default, f"{_operation.summary} ({_operation.action})", _ACTION)
_SHARES = "/servers/{server_id}/shares"
SHARES_INDEX = _shares("index", READER, "List a server's shares", f"GET {_SHARES}")
SHARES_SHOW = _shares("show", READER, "Show a share of a server", f"GET {_SHARES}/{{share_id}}")
SHARES_CREATE = _shares("create", MEMBER, "Attach a share to a server", f"POST {_SHARES}")
SHARES_DELETE = _shares("delete", MEMBER, "Detach a share from a server", f"DELETE {_SHARES}/{{share_id}}")
_POINTS = "/servers/{server_id}/os-snapshot-points"
_POINT = f"{_POINTS}/{{point_id}}"
POINTS_INDEX = _points("index", READER, "List a server's snapshot points", f"GET {_POINTS}")
POINTS_SHOW = _points("show", READER, "Show a snapshot point of a server", f"GET {_POINT}")
POINTS_CREATE = _points("create", MEMBER, "Create a snapshot point of a server", f"POST {_POINTS}")
POINTS_DELETE = _points("delete", MEMBER, "Delete a snapshot point of a server", f"DELETE {_POINT}")
POINTS_REVERT = _points("revert", MEMBER, "Revert a server to a snapshot point", f"POST {_POINT}/revert")
USAGE_HISTORY = rule(
    "os_compute_api:os-usage-history:server",
    READER,
    "Show what a server has used in the last hour, day or week",
    "GET /servers/{server_id}/os-usage-history",
)
CLONES_CREATE = _clones("create", MEMBER, "Create a clone of a server", "POST /servers/{server_id}/os-clones")
