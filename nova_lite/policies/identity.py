"""Rules of the identity service, with Keystone's names."""

from __future__ import annotations

from nova_lite.policies.base import ADMIN, ANYONE, OWNER, rule

CATALOG = "identity:get_auth_catalog"
OWN_PROJECTS = "identity:get_auth_projects"
VALIDATE = "identity:validate_token"
REVOKE = "identity:revoke_token"
PROJECTS_LIST = "identity:list_projects"
PROJECTS_SHOW = "identity:get_project"
USER_PROJECTS = "identity:list_user_projects"
USERS_LIST = "identity:list_users"
USERS_SHOW = "identity:get_user"
PROJECTS_CREATE = "identity:create_project"
PROJECTS_DELETE = "identity:delete_project"
USERS_CREATE = "identity:create_user"
USERS_DELETE = "identity:delete_user"
ROLES_GRANT = "identity:create_grant"
ROLES_REVOKE = "identity:revoke_grant"
DOMAINS_LIST = "identity:list_domains"
DOMAINS_SHOW = "identity:get_domain"
ROLES_LIST = "identity:list_roles"
ROLES_SHOW = "identity:get_role"
ASSIGNMENTS_LIST = "identity:list_role_assignments"
SERVICES_LIST = "identity:list_services"
SERVICES_SHOW = "identity:get_service"
ENDPOINTS_LIST = "identity:list_endpoints"
ENDPOINTS_SHOW = "identity:get_endpoint"
REGIONS_LIST = "identity:list_regions"
REGIONS_SHOW = "identity:get_region"

_TOKENS = "/v3/auth/tokens"
_GRANT = "/v3/projects/{project_id}/users/{user_id}/roles/{role_id}"

RULES = [
    rule(CATALOG, ANYONE, "Show the catalog", "GET /v3/auth/catalog"),
    rule(OWN_PROJECTS, ANYONE, "List the projects one has a role in", "GET /v3/auth/projects"),
    rule(VALIDATE, OWNER, "Validate a token, one's own or as an admin any", f"GET {_TOKENS}", f"HEAD {_TOKENS}"),
    rule(REVOKE, OWNER, "Revoke a token, one's own or as an admin any", f"DELETE {_TOKENS}"),
    rule(PROJECTS_LIST, ADMIN, "List all projects", "GET /v3/projects"),
    rule(
        PROJECTS_SHOW,
        "rule:context_is_admin or project_id:%(project_id)s",
        "Show a project, the one of one's token or as an admin any",
        "GET /v3/projects/{project_id}",
    ),
    rule(USER_PROJECTS, OWNER, "List a user's projects", "GET /v3/users/{user_id}/projects"),
    rule(USERS_LIST, ADMIN, "List all users", "GET /v3/users"),
    rule(USERS_SHOW, OWNER, "Show a user", "GET /v3/users/{user_id}"),
    rule(PROJECTS_CREATE, ADMIN, "Create a project", "POST /v3/projects"),
    rule(PROJECTS_DELETE, ADMIN, "Delete a project", "DELETE /v3/projects/{project_id}"),
    rule(USERS_CREATE, ADMIN, "Create a user", "POST /v3/users"),
    rule(USERS_DELETE, ADMIN, "Delete a user", "DELETE /v3/users/{user_id}"),
    rule(ROLES_GRANT, ADMIN, "Give a user a role in a project", f"PUT {_GRANT}"),
    rule(ROLES_REVOKE, ADMIN, "Take a role in a project from a user", f"DELETE {_GRANT}"),
    rule(DOMAINS_LIST, ADMIN, "List domains", "GET /v3/domains"),
    rule(DOMAINS_SHOW, ANYONE, "Show a domain", "GET /v3/domains/{domain_id}"),
    rule(ROLES_LIST, ADMIN, "List roles", "GET /v3/roles"),
    rule(ROLES_SHOW, ADMIN, "Show a role", "GET /v3/roles/{role_id}"),
    rule(ASSIGNMENTS_LIST, ADMIN, "List who has which role in which project", "GET /v3/role_assignments"),
    rule(SERVICES_LIST, ADMIN, "List the services of the catalog", "GET /v3/services"),
    rule(SERVICES_SHOW, ADMIN, "Show a service of the catalog", "GET /v3/services/{service_id}"),
    rule(ENDPOINTS_LIST, ADMIN, "List the endpoints of the catalog", "GET /v3/endpoints"),
    rule(ENDPOINTS_SHOW, ADMIN, "Show an endpoint of the catalog", "GET /v3/endpoints/{endpoint_id}"),
    rule(REGIONS_LIST, ANYONE, "List regions", "GET /v3/regions"),
    rule(REGIONS_SHOW, ANYONE, "Show a region", "GET /v3/regions/{region_id}"),
]
