"""Rules of servers and their actions."""

from __future__ import annotations

from nova_lite.policies.base import ADMIN, MEMBER, READER, rule

INDEX = "os_compute_api:servers:index"
DETAIL = "os_compute_api:servers:detail"
INDEX_ALL = "os_compute_api:servers:index:get_all_tenants"
DETAIL_ALL = "os_compute_api:servers:detail:get_all_tenants"
ALL_FILTERS = "os_compute_api:servers:allow_all_filters"
SHOW = "os_compute_api:servers:show"
HOST_STATUS = "os_compute_api:servers:show:host_status"
FLAVOR_EXTRA_SPECS = "os_compute_api:servers:show:flavor-extra-specs"
EXTENDED_ATTRIBUTES = "os_compute_api:os-extended-server-attributes"
CREATE = "os_compute_api:servers:create"
FORCED_HOST = "os_compute_api:servers:create:forced_host"
REQUESTED_DESTINATION = "compute:servers:create:requested_destination"
UPDATE = "os_compute_api:servers:update"
DELETE = "os_compute_api:servers:delete"
FORCE_DELETE = "os_compute_api:os-deferred-delete:force"
START = "os_compute_api:servers:start"
STOP = "os_compute_api:servers:stop"
REBOOT = "os_compute_api:servers:reboot"
EVACUATE = "os_compute_api:os-evacuate"
CONSOLE_OUTPUT = "os_compute_api:os-console-output"
IPS_INDEX = "os_compute_api:ips:index"
IPS_SHOW = "os_compute_api:ips:show"
METADATA_INDEX = "os_compute_api:server-metadata:index"
METADATA_SHOW = "os_compute_api:server-metadata:show"
METADATA_CREATE = "os_compute_api:server-metadata:create"
METADATA_UPDATE_ALL = "os_compute_api:server-metadata:update_all"
METADATA_UPDATE = "os_compute_api:server-metadata:update"
METADATA_DELETE = "os_compute_api:server-metadata:delete"
TAGS_INDEX = "os_compute_api:os-server-tags:index"
TAGS_SHOW = "os_compute_api:os-server-tags:show"
TAGS_UPDATE_ALL = "os_compute_api:os-server-tags:update_all"
TAGS_UPDATE = "os_compute_api:os-server-tags:update"
TAGS_DELETE_ALL = "os_compute_api:os-server-tags:delete_all"
TAGS_DELETE = "os_compute_api:os-server-tags:delete"
LOCK = "os_compute_api:os-lock-server:lock"
UNLOCK = "os_compute_api:os-lock-server:unlock"
RESET_STATE = "os_compute_api:os-admin-actions:reset_state"
INJECT_NETWORK_INFO = "os_compute_api:os-admin-actions:inject_network_info"
UNLOCK_OVERRIDE = "os_compute_api:os-lock-server:unlock:unlock_override"

_LISTS = ("GET /servers", "GET /servers/detail")
_VIEWS = ("GET /servers/{server_id}", "GET /servers/detail", "PUT /servers/{server_id}")
_ACTION = "POST /servers/{server_id}/action"

RULES = [
    rule(INDEX, READER, "List servers", "GET /servers"),
    rule(DETAIL, READER, "List servers with details", "GET /servers/detail"),
    rule(INDEX_ALL, ADMIN, "List servers of all projects", "GET /servers"),
    rule(DETAIL_ALL, ADMIN, "List servers of all projects with details", "GET /servers/detail"),
    rule(ALL_FILTERS, ADMIN, "Filter and sort servers by anything, hosts included", *_LISTS),
    rule(SHOW, READER, "Show a server", "GET /servers/{server_id}"),
    rule(HOST_STATUS, ADMIN, "See whether a server's host is up", *_VIEWS),
    rule(FLAVOR_EXTRA_SPECS, READER, "See the extra specs of a server's flavor", *_VIEWS),
    rule(EXTENDED_ATTRIBUTES, ADMIN, "See a server's host and the attributes for admins", *_VIEWS),
    rule(CREATE, MEMBER, "Create servers", "POST /servers"),
    rule(FORCED_HOST, ADMIN, "Create a server on a given host, past the scheduler", "POST /servers"),
    rule(REQUESTED_DESTINATION, ADMIN, "Create a server on a given host, if it fits there", "POST /servers"),
    rule(UPDATE, MEMBER, "Change a server's name, description or addresses", "PUT /servers/{server_id}"),
    rule(DELETE, MEMBER, "Delete a server", "DELETE /servers/{server_id}"),
    rule(FORCE_DELETE, MEMBER, "Delete a server at once (forceDelete)", _ACTION),
    rule(START, MEMBER, "Start a server (os-start)", _ACTION),
    rule(STOP, MEMBER, "Stop a server (os-stop)", _ACTION),
    rule(REBOOT, MEMBER, "Reboot a server (reboot)", _ACTION),
    rule(EVACUATE, ADMIN, "Build a server of a lost host anew on another one (evacuate)", _ACTION),
    rule(CONSOLE_OUTPUT, MEMBER, "Read a server's console (os-getConsoleOutput)", _ACTION),
    rule(IPS_INDEX, READER, "List a server's addresses", "GET /servers/{server_id}/ips"),
    rule(IPS_SHOW, READER, "Show a server's addresses on a network", "GET /servers/{server_id}/ips/{network}"),
    rule(METADATA_INDEX, READER, "List a server's metadata", "GET /servers/{server_id}/metadata"),
    rule(METADATA_SHOW, READER, "Show an item of a server's metadata", "GET /servers/{server_id}/metadata/{key}"),
    rule(METADATA_CREATE, MEMBER, "Add items to a server's metadata", "POST /servers/{server_id}/metadata"),
    rule(METADATA_UPDATE_ALL, MEMBER, "Replace a server's metadata", "PUT /servers/{server_id}/metadata"),
    rule(METADATA_UPDATE, MEMBER, "Set an item of a server's metadata", "PUT /servers/{server_id}/metadata/{key}"),
    rule(METADATA_DELETE, MEMBER, "Delete an item of it", "DELETE /servers/{server_id}/metadata/{key}"),
    rule(TAGS_INDEX, READER, "List a server's tags", "GET /servers/{server_id}/tags"),
    rule(TAGS_SHOW, READER, "Check whether a server has a tag", "GET /servers/{server_id}/tags/{tag}"),
    rule(TAGS_UPDATE_ALL, MEMBER, "Replace a server's tags", "PUT /servers/{server_id}/tags"),
    rule(TAGS_UPDATE, MEMBER, "Add a tag to a server", "PUT /servers/{server_id}/tags/{tag}"),
    rule(TAGS_DELETE_ALL, MEMBER, "Delete all tags of a server", "DELETE /servers/{server_id}/tags"),
    rule(TAGS_DELETE, MEMBER, "Delete a tag of a server", "DELETE /servers/{server_id}/tags/{tag}"),
    rule(LOCK, MEMBER, "Lock a server (lock)", _ACTION),
    rule(UNLOCK, MEMBER, "Unlock a server (unlock)", _ACTION),
    rule(RESET_STATE, ADMIN, "Set a server's state by hand (os-resetState)", _ACTION),
    rule(INJECT_NETWORK_INFO, ADMIN, "Tell a server its addresses again (injectNetworkInfo)", _ACTION),
    rule(UNLOCK_OVERRIDE, ADMIN, "Unlock a server whoever locked it (unlock)", _ACTION),
]
