"""Rules of the identity service, with Keystone's names."""

from __future__ import annotations

from nova_lite.policies.base import ADMIN, ANYONE, OWNER, Rules

_identity = Rules("identity")
_TOKENS = "/v3/auth/tokens"
_GRANT = "/v3/projects/{project_id}/users/{user_id}/roles/{role_id}"

CATALOG = _identity("get_auth_catalog", ANYONE, "Show the catalog", "GET /v3/auth/catalog")
OWN_PROJECTS = _identity(
    "get_auth_projects", ANYONE, "List the projects in which the caller has a role", "GET /v3/auth/projects"
)
VALIDATE = _identity(
    "validate_token", OWNER, "Validate a token; admins may validate any token", f"GET {_TOKENS}", f"HEAD {_TOKENS}"
)
REVOKE = _identity("revoke_token", OWNER, "Revoke a token; admins may revoke any token", f"DELETE {_TOKENS}")
PROJECTS_LIST = _identity("list_projects", ADMIN, "List all projects", "GET /v3/projects")
PROJECTS_SHOW = _identity(
    "get_project",
    "rule:context_is_admin or project_id:%(project_id)s",
    "Show the project of the caller's token; admins may show any project",
    "GET /v3/projects/{project_id}",
)
USER_PROJECTS = _identity("list_user_projects", OWNER, "List a user's projects", "GET /v3/users/{user_id}/projects")
USERS_LIST = _identity("list_users", ADMIN, "List all users", "GET /v3/users")
USERS_SHOW = _identity("get_user", OWNER, "Show a user", "GET /v3/users/{user_id}")
PROJECTS_CREATE = _identity("create_project", ADMIN, "Create a project", "POST /v3/projects")
PROJECTS_UPDATE = _identity("update_project", ADMIN, "Change a project", "PATCH /v3/projects/{project_id}")
PROJECTS_DELETE = _identity("delete_project", ADMIN, "Delete a project", "DELETE /v3/projects/{project_id}")
USERS_CREATE = _identity("create_user", ADMIN, "Create a user", "POST /v3/users")
USERS_UPDATE = _identity("update_user", ADMIN, "Change a user", "PATCH /v3/users/{user_id}")
CHANGE_PASSWORD = _identity(
    "change_password", OWNER, "Change the caller's password", "POST /v3/users/{user_id}/password"
)
USERS_DELETE = _identity("delete_user", ADMIN, "Delete a user", "DELETE /v3/users/{user_id}")
ROLES_GRANT = _identity("create_grant", ADMIN, "Grant a user a role in a project", f"PUT {_GRANT}")
ROLES_REVOKE = _identity("revoke_grant", ADMIN, "Revoke a user's role in a project", f"DELETE {_GRANT}")
DOMAINS_LIST = _identity("list_domains", ADMIN, "List domains", "GET /v3/domains")
DOMAINS_SHOW = _identity("get_domain", ANYONE, "Show a domain", "GET /v3/domains/{domain_id}")
ROLES_LIST = _identity("list_roles", ADMIN, "List roles", "GET /v3/roles")
ROLES_SHOW = _identity("get_role", ADMIN, "Show a role", "GET /v3/roles/{role_id}")
ASSIGNMENTS_LIST = _identity("list_role_assignments", ADMIN, "List role assignments", "GET /v3/role_assignments")
SERVICES_LIST = _identity("list_services", ADMIN, "List the services of the catalog", "GET /v3/services")
SERVICES_SHOW = _identity("get_service", ADMIN, "Show a service of the catalog", "GET /v3/services/{service_id}")
ENDPOINTS_LIST = _identity("list_endpoints", ADMIN, "List the endpoints of the catalog", "GET /v3/endpoints")
ENDPOINTS_SHOW = _identity("get_endpoint", ADMIN, "Show an endpoint of the catalog", "GET /v3/endpoints/{endpoint_id}")
REGIONS_LIST = _identity("list_regions", ANYONE, "List regions", "GET /v3/regions")
REGIONS_SHOW = _identity("get_region", ANYONE, "Show a region", "GET /v3/regions/{region_id}")
