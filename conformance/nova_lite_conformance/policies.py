"""Policy rules of the routes of this package, with the names that Keystone and Nova use.

An entry point in the group ``nova_lite.policies`` adds them to the rules of nova_lite.
"""

from __future__ import annotations

from nova_lite.policies.base import ADMIN, Rules
from nova_lite.policies.base import READER as PROJECT_READER
from nova_lite.policies.identity import READER

_tenant_networks = Rules("os_compute_api:os-tenant-networks")

TENANT_NETWORKS_LIST = _tenant_networks("list", PROJECT_READER, "List a project's networks", "GET /os-tenant-networks")
TENANT_NETWORKS_SHOW = _tenant_networks(
    "show", PROJECT_READER, "Show a network of a project", "GET /os-tenant-networks/{network_id}"
)

_identity = Rules("identity", ("system", "domain", "project"))
_BLOBS = "/v3/policies"
BLOBS_LIST = _identity("list_policies", READER, "List policies of other services", f"GET {_BLOBS}")
BLOBS_SHOW = _identity("get_policy", READER, "Show a policy of another service", f"GET {_BLOBS}/{{policy_id}}")
BLOBS_CREATE = _identity("create_policy", ADMIN, "Keep a policy of another service", f"POST {_BLOBS}")
BLOBS_UPDATE = _identity("update_policy", ADMIN, "Change a policy of another service", f"PATCH {_BLOBS}/{{policy_id}}")
BLOBS_DELETE = _identity("delete_policy", ADMIN, "Delete a policy of another service", f"DELETE {_BLOBS}/{{policy_id}}")
_CONFIGS = tuple(f"/v3/domains/{{domain_id}}/config{path}" for path in ("", "/{group}", "/{group}/{option}"))
_CONFIG_DEFAULTS = tuple(
    f"/v3/domains/config{path}" for path in ("/default", "/{group}/default", "/{group}/{option}/default")
)
CONFIG_CREATE = _identity("create_domain_config", ADMIN, "Set the configuration of a domain", f"PUT {_CONFIGS[0]}")
CONFIG_SHOW = _identity(
    "get_domain_config", READER, "Show the configuration of a domain", *(f"GET {path}" for path in _CONFIGS)
)
CONFIG_UPDATE = _identity(
    "update_domain_config", ADMIN, "Change the configuration of a domain", *(f"PATCH {path}" for path in _CONFIGS)
)
CONFIG_DELETE = _identity(
    "delete_domain_config", ADMIN, "Delete the configuration of a domain", *(f"DELETE {path}" for path in _CONFIGS)
)
CONFIG_DEFAULT = _identity(
    "get_domain_config_default",
    READER,
    "Show the default configuration of domains",
    *(f"GET {path}" for path in _CONFIG_DEFAULTS),
)
_FILTER = "/v3/OS-EP-FILTER"
_EP_GROUPS, _EP_PROJECT = f"{_FILTER}/endpoint_groups", f"{_FILTER}/projects/{{project_id}}/endpoints"
_EP_GROUP = f"{_EP_GROUPS}/{{endpoint_group_id}}"
EP_GROUPS_LIST = _identity("list_endpoint_groups", READER, "List endpoint groups", f"GET {_EP_GROUPS}")
EP_GROUPS_SHOW = _identity("get_endpoint_group", READER, "Show an endpoint group", f"GET {_EP_GROUP}")
EP_GROUPS_CREATE = _identity("create_endpoint_group", ADMIN, "Create an endpoint group", f"POST {_EP_GROUPS}")
EP_GROUPS_UPDATE = _identity("update_endpoint_group", ADMIN, "Change an endpoint group", f"PATCH {_EP_GROUP}")
EP_GROUPS_DELETE = _identity("delete_endpoint_group", ADMIN, "Delete an endpoint group", f"DELETE {_EP_GROUP}")
EP_OF_GROUP = _identity(
    "list_endpoints_associated_with_endpoint_group",
    READER,
    "List the endpoints of an endpoint group",
    f"GET {_EP_GROUP}/endpoints",
)
EP_PROJECTS_OF_GROUP = _identity(
    "list_projects_associated_with_endpoint_group",
    READER,
    "List the projects of an endpoint group",
    f"GET {_EP_GROUP}/projects",
)
EP_GROUPS_OF_PROJECT = _identity(
    "list_endpoint_groups_for_project",
    READER,
    "List the endpoint groups of a project",
    f"GET {_FILTER}/projects/{{project_id}}/endpoint_groups",
)
EP_GROUP_CHECK = _identity(
    "get_endpoint_group_in_project",
    READER,
    "Check whether a project has an endpoint group",
    f"GET {_EP_GROUP}/projects/{{project_id}}",
)
EP_GROUP_ADD = _identity(
    "add_endpoint_group_to_project",
    ADMIN,
    "Give a project an endpoint group",
    f"PUT {_EP_GROUP}/projects/{{project_id}}",
)
EP_GROUP_REMOVE = _identity(
    "remove_endpoint_group_from_project",
    ADMIN,
    "Take an endpoint group from a project",
    f"DELETE {_EP_GROUP}/projects/{{project_id}}",
)
EP_OF_PROJECT = _identity("list_endpoints_for_project", READER, "List a project's endpoints", f"GET {_EP_PROJECT}")
EP_PROJECTS = _identity(
    "list_projects_for_endpoint",
    READER,
    "List the projects of an endpoint",
    f"GET {_FILTER}/endpoints/{{endpoint_id}}/projects",
)
EP_CHECK = _identity(
    "check_endpoint_in_project",
    READER,
    "Check whether a project has an endpoint",
    f"GET {_EP_PROJECT}/{{endpoint_id}}",
)
EP_ADD = _identity("add_endpoint_to_project", ADMIN, "Give a project an endpoint", f"PUT {_EP_PROJECT}/{{endpoint_id}}")
EP_REMOVE = _identity(
    "remove_endpoint_from_project", ADMIN, "Take an endpoint from a project", f"DELETE {_EP_PROJECT}/{{endpoint_id}}"
)
