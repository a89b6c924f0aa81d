"""Rules of the identity service, with Keystone's names."""

from __future__ import annotations

from typing import NamedTuple

from nova_lite.policies.base import ADMIN, ANYONE, OWNER, SERVICE, Rules

#: Admins, and readers of the system, see everything.
READER = "rule:context_is_admin or (role:reader and system_scope:all)"
#: The same, and the user that something is of.
OWNER_OR_READER = f"{READER} or user_id:%(user_id)s"

_identity = Rules("identity", ("system", "domain", "project"))
_TOKENS = "/v3/auth/tokens"
_TARGETS = tuple(
    f"{target}/{holder}/roles"
    for target in ("projects/{project_id}", "domains/{domain_id}")
    for holder in ("users/{user_id}", "groups/{group_id}")
)
_GRANTS = (
    *(f"/v3/{target}/{{role_id}}" for target in _TARGETS),
    *(f"/v3/OS-INHERIT/{target}/{{role_id}}/inherited_to_projects" for target in _TARGETS),
)

CATALOG = _identity("get_auth_catalog", ANYONE, "Show the catalog", "GET /v3/auth/catalog")
OWN_PROJECTS = _identity(
    "get_auth_projects", ANYONE, "List the projects in which the caller has a role", "GET /v3/auth/projects"
)
VALIDATE = _identity(
    "validate_token",
    OWNER_OR_READER,
    "Validate a token; admins may validate any token",
    f"GET {_TOKENS}",
    f"HEAD {_TOKENS}",
)
REVOKE = _identity("revoke_token", OWNER, "Revoke a token; admins may revoke any token", f"DELETE {_TOKENS}")
PROJECTS_LIST = _identity("list_projects", READER, "List all projects", "GET /v3/projects")
PROJECTS_SHOW = _identity(
    "get_project",
    f"{READER} or project_id:%(project_id)s",
    "Show the project of the caller's token; admins may show any project",
    "GET /v3/projects/{project_id}",
)
USER_PROJECTS = _identity(
    "list_user_projects", OWNER_OR_READER, "List a user's projects", "GET /v3/users/{user_id}/projects"
)
USERS_LIST = _identity("list_users", READER, "List all users", "GET /v3/users")
USERS_SHOW = _identity("get_user", OWNER_OR_READER, "Show a user", "GET /v3/users/{user_id}")
PROJECTS_CREATE = _identity("create_project", ADMIN, "Create a project", "POST /v3/projects")
PROJECTS_UPDATE = _identity("update_project", ADMIN, "Change a project", "PATCH /v3/projects/{project_id}")
PROJECTS_DELETE = _identity("delete_project", ADMIN, "Delete a project", "DELETE /v3/projects/{project_id}")
_TAGS = "/v3/projects/{project_id}/tags"
_OWN_TAGS = f"{READER} or project_id:%(project_id)s"
TAGS_LIST = _identity("list_project_tags", _OWN_TAGS, "List the tags of a project", f"GET {_TAGS}")
TAGS_UPDATE = _identity("update_project_tags", ADMIN, "Replace the tags of a project", f"PUT {_TAGS}")
TAGS_DELETE = _identity("delete_project_tags", ADMIN, "Delete the tags of a project", f"DELETE {_TAGS}")
TAG_SHOW = _identity("get_project_tag", _OWN_TAGS, "Check a tag of a project", f"GET {_TAGS}/{{value}}")
TAG_CREATE = _identity("create_project_tag", ADMIN, "Add a tag to a project", f"PUT {_TAGS}/{{value}}")
TAG_DELETE = _identity("delete_project_tag", ADMIN, "Delete a tag of a project", f"DELETE {_TAGS}/{{value}}")
USERS_CREATE = _identity("create_user", ADMIN, "Create a user", "POST /v3/users")
USERS_UPDATE = _identity("update_user", ADMIN, "Change a user", "PATCH /v3/users/{user_id}")
CHANGE_PASSWORD = _identity(
    "change_password", OWNER, "Change the caller's password", "POST /v3/users/{user_id}/password"
)
USERS_DELETE = _identity("delete_user", ADMIN, "Delete a user", "DELETE /v3/users/{user_id}")


class GrantRules(NamedTuple):
    """Rules about the roles of users or groups in a target."""

    list_: str
    check: str
    grant: str
    revoke: str


def _grant_rules(names: tuple[str, str, str, str], what: str, paths: tuple[str, ...]) -> GrantRules:
    """Define the rules with these names. ``paths``: of one role."""
    lists = tuple(path.replace("/{role_id}", "") for path in paths)
    return GrantRules(
        _identity(names[0], READER, f"List the roles of {what}", *(f"GET {path}" for path in lists)),
        _identity(
            names[1],
            READER,
            f"Check a role of {what}",
            *(f"{method} {path}" for path in paths for method in ("GET", "HEAD")),
        ),
        _identity(names[2], ADMIN, f"Grant a role to {what}", *(f"PUT {path}" for path in paths)),
        _identity(names[3], ADMIN, f"Revoke a role of {what}", *(f"DELETE {path}" for path in paths)),
    )


ROLES_OF_HOLDER = _grant_rules(
    ("list_grants", "check_grant", "create_grant", "revoke_grant"), "a user or group in a project or domain", _GRANTS
)
SYSTEM_ROLES_OF_USER = _grant_rules(
    (
        "list_system_grants_for_user",
        "check_system_grant_for_user",
        "create_system_grant_for_user",
        "revoke_system_grant_for_user",
    ),
    "a user in the system",
    ("/v3/system/users/{user_id}/roles/{role_id}",),
)
SYSTEM_ROLES_OF_GROUP = _grant_rules(
    (
        "list_system_grants_for_group",
        "check_system_grant_for_group",
        "create_system_grant_for_group",
        "revoke_system_grant_for_group",
    ),
    "a group in the system",
    ("/v3/system/groups/{group_id}/roles/{role_id}",),
)
INFERENCES_LIST = _identity(
    "list_role_inference_rules", READER, "List which roles imply others", "GET /v3/role_inferences"
)
IMPLIED_LIST = _identity(
    "list_implied_roles", READER, "List the roles that a role implies", "GET /v3/roles/{prior_role_id}/implies"
)
IMPLIED_SHOW = _identity(
    "get_implied_role",
    READER,
    "Check whether a role implies another",
    "GET /v3/roles/{prior_role_id}/implies/{implied_role_id}",
)
_GROUP, _MEMBER = "/v3/groups/{group_id}", "/v3/groups/{group_id}/users/{user_id}"
GROUPS_LIST = _identity("list_groups", READER, "List all groups", "GET /v3/groups")
GROUPS_SHOW = _identity("get_group", READER, "Show a group", f"GET {_GROUP}")
GROUPS_CREATE = _identity("create_group", ADMIN, "Create a group", "POST /v3/groups")
GROUPS_UPDATE = _identity("update_group", ADMIN, "Change a group", f"PATCH {_GROUP}")
GROUPS_DELETE = _identity("delete_group", ADMIN, "Delete a group", f"DELETE {_GROUP}")
MEMBERS_LIST = _identity("list_users_in_group", READER, "List the users of a group", f"GET {_GROUP}/users")
MEMBERS_CHECK = _identity("check_user_in_group", READER, "Check whether a user is in a group", f"GET {_MEMBER}")
MEMBERS_ADD = _identity("add_user_to_group", ADMIN, "Add a user to a group", f"PUT {_MEMBER}")
MEMBERS_REMOVE = _identity("remove_user_from_group", ADMIN, "Remove a user from a group", f"DELETE {_MEMBER}")
USER_GROUPS = _identity(
    "list_groups_for_user", OWNER_OR_READER, "List a user's groups", "GET /v3/users/{user_id}/groups"
)
_CREDENTIALS = "/v3/users/{user_id}/application_credentials"
_RULES = "/v3/users/{user_id}/access_rules"
CREDENTIALS_LIST = _identity(
    "list_application_credentials", OWNER_OR_READER, "List a user's application credentials", f"GET {_CREDENTIALS}"
)
CREDENTIALS_SHOW = _identity(
    "get_application_credential",
    OWNER_OR_READER,
    "Show an application credential",
    f"GET {_CREDENTIALS}/{{application_credential_id}}",
)
CREDENTIALS_CREATE = _identity(
    "create_application_credential",
    "user_id:%(user_id)s",
    "Create an application credential for the caller",
    f"POST {_CREDENTIALS}",
)
CREDENTIALS_DELETE = _identity(
    "delete_application_credential",
    OWNER,
    "Delete an application credential",
    f"DELETE {_CREDENTIALS}/{{application_credential_id}}",
)
ACCESS_RULES_LIST = _identity("list_access_rules", OWNER_OR_READER, "List a user's access rules", f"GET {_RULES}")
ACCESS_RULES_SHOW = _identity(
    "get_access_rule", OWNER_OR_READER, "Show an access rule", f"GET {_RULES}/{{access_rule_id}}"
)
ACCESS_RULES_DELETE = _identity(
    "delete_access_rule", OWNER, "Delete an access rule that is not in use", f"DELETE {_RULES}/{{access_rule_id}}"
)
_EC2 = "/v3/users/{user_id}/credentials/OS-EC2"
EC2_LIST = _identity("ec2_list_credentials", OWNER, "List a user's EC2 credentials", f"GET {_EC2}")
EC2_SHOW = _identity("ec2_get_credential", OWNER, "Show an EC2 credential", f"GET {_EC2}/{{credential_id}}")
EC2_CREATE = _identity("ec2_create_credential", OWNER, "Create an EC2 credential", f"POST {_EC2}")
EC2_DELETE = _identity("ec2_delete_credential", OWNER, "Delete an EC2 credential", f"DELETE {_EC2}/{{credential_id}}")
EC2_TOKENS = _identity(
    "ec2tokens_validate", SERVICE, "Get the token of a user who signed a request to a service", "POST /v3/ec2tokens"
)
S3_TOKENS = _identity(
    "s3tokens_validate", SERVICE, "Get the token of a user who signed a request to an object store", "POST /v3/s3tokens"
)
_SECRETS = "/v3/credentials"
SECRETS_LIST = _identity("list_credentials", OWNER, "List the caller's credentials; admins list all", f"GET {_SECRETS}")
SECRETS_SHOW = _identity("get_credential", OWNER, "Show a credential", f"GET {_SECRETS}/{{credential_id}}")
SECRETS_CREATE = _identity("create_credential", OWNER, "Create a credential of a user", f"POST {_SECRETS}")
SECRETS_UPDATE = _identity(
    "update_credential", OWNER, "Change the secret of a credential", f"PATCH {_SECRETS}/{{credential_id}}"
)
SECRETS_DELETE = _identity("delete_credential", OWNER, "Delete a credential", f"DELETE {_SECRETS}/{{credential_id}}")
_TRUST = "/v3/OS-TRUST/trusts/{trust_id}"
_TRUSTOR = "rule:context_is_admin or user_id:%(trustor_user_id)s"
_TRUSTEE = "rule:context_is_admin or user_id:%(trustee_user_id)s"
_PARTY = f"{READER} or {_TRUSTOR} or user_id:%(trustee_user_id)s"
TRUSTS_LIST = _identity("list_trusts", READER, "List all trusts", "GET /v3/OS-TRUST/trusts")
TRUSTS_OF_TRUSTOR = _identity(
    "list_trusts_for_trustor",
    _TRUSTOR,
    "List the trusts that a user gave",
    "GET /v3/OS-TRUST/trusts?trustor_user_id={trustor_user_id}",
)
TRUSTS_OF_TRUSTEE = _identity(
    "list_trusts_for_trustee",
    _TRUSTEE,
    "List the trusts that a user got",
    "GET /v3/OS-TRUST/trusts?trustee_user_id={trustee_user_id}",
)
TRUSTS_CREATE = _identity(
    "create_trust", "user_id:%(trustor_user_id)s", "Give another user a trust", "POST /v3/OS-TRUST/trusts"
)
TRUSTS_SHOW = _identity("get_trust", _PARTY, "Show a trust", f"GET {_TRUST}")
TRUSTS_DELETE = _identity("delete_trust", _TRUSTOR, "Delete a trust", f"DELETE {_TRUST}")
TRUST_ROLES_LIST = _identity("list_roles_for_trust", _PARTY, "List the roles of a trust", f"GET {_TRUST}/roles")
TRUST_ROLES_SHOW = _identity("get_role_for_trust", _PARTY, "Check a role of a trust", f"GET {_TRUST}/roles/{{role_id}}")
DOMAINS_CREATE = _identity("create_domain", ADMIN, "Create a domain", "POST /v3/domains")
DOMAINS_UPDATE = _identity("update_domain", ADMIN, "Change a domain", "PATCH /v3/domains/{domain_id}")
DOMAINS_DELETE = _identity("delete_domain", ADMIN, "Delete a domain", "DELETE /v3/domains/{domain_id}")
DOMAINS_LIST = _identity("list_domains", READER, "List domains", "GET /v3/domains")
DOMAINS_SHOW = _identity(
    "get_domain",
    f"{READER} or user_domain_id:%(domain_id)s or project_domain_id:%(domain_id)s",
    "Show the domain of the caller or of the project of the caller's token; admins may show any domain",
    "GET /v3/domains/{domain_id}",
)
ROLES_LIST = _identity("list_roles", READER, "List roles", "GET /v3/roles")
ROLES_SHOW = _identity("get_role", READER, "Show a role", "GET /v3/roles/{role_id}")
_ROLE, _IMPLIES = "/v3/roles/{role_id}", "/v3/roles/{prior_role_id}/implies/{implied_role_id}"
ROLES_CREATE = _identity("create_role", ADMIN, "Create a role", "POST /v3/roles")
ROLES_UPDATE = _identity("update_role", ADMIN, "Change a role", f"PATCH {_ROLE}")
ROLES_DELETE = _identity("delete_role", ADMIN, "Delete a role", f"DELETE {_ROLE}")
IMPLIED_CREATE = _identity("create_implied_role", ADMIN, "Let a role imply another", f"PUT {_IMPLIES}")
IMPLIED_DELETE = _identity("delete_implied_role", ADMIN, "Let a role no longer imply another", f"DELETE {_IMPLIES}")
ASSIGNMENTS_LIST = _identity("list_role_assignments", READER, "List role assignments", "GET /v3/role_assignments")
SERVICES_LIST = _identity("list_services", READER, "List the services of the catalog", "GET /v3/services")
SERVICES_SHOW = _identity("get_service", READER, "Show a service of the catalog", "GET /v3/services/{service_id}")
ENDPOINTS_LIST = _identity("list_endpoints", READER, "List the endpoints of the catalog", "GET /v3/endpoints")
ENDPOINTS_SHOW = _identity("get_endpoint", READER, "Show an endpoint of the catalog", "GET /v3/endpoints/{endpoint_id}")
SERVICES_CREATE = _identity("create_service", ADMIN, "Add a service to the catalog", "POST /v3/services")
SERVICES_UPDATE = _identity("update_service", ADMIN, "Change a service", "PATCH /v3/services/{service_id}")
SERVICES_DELETE = _identity("delete_service", ADMIN, "Delete a service", "DELETE /v3/services/{service_id}")
ENDPOINTS_CREATE = _identity("create_endpoint", ADMIN, "Add an endpoint to the catalog", "POST /v3/endpoints")
ENDPOINTS_UPDATE = _identity("update_endpoint", ADMIN, "Change an endpoint", "PATCH /v3/endpoints/{endpoint_id}")
ENDPOINTS_DELETE = _identity("delete_endpoint", ADMIN, "Delete an endpoint", "DELETE /v3/endpoints/{endpoint_id}")
REGIONS_CREATE = _identity("create_region", ADMIN, "Create a region", "POST /v3/regions", "PUT /v3/regions/{region_id}")
REGIONS_UPDATE = _identity("update_region", ADMIN, "Change a region", "PATCH /v3/regions/{region_id}")
REGIONS_DELETE = _identity("delete_region", ADMIN, "Delete a region", "DELETE /v3/regions/{region_id}")
REGIONS_LIST = _identity("list_regions", ANYONE, "List regions", "GET /v3/regions")
REGIONS_SHOW = _identity("get_region", ANYONE, "Show a region", "GET /v3/regions/{region_id}")
_FEDERATION = "/v3/OS-FEDERATION"
_PROVIDER, _PROTOCOL = f"{_FEDERATION}/identity_providers/{{idp_id}}", "protocols/{protocol_id}"
_MAPPING = f"{_FEDERATION}/mappings/{{mapping_id}}"
PROVIDERS_LIST = _identity(
    "list_identity_providers", READER, "List identity providers", f"GET {_FEDERATION}/identity_providers"
)
PROVIDERS_SHOW = _identity("get_identity_provider", READER, "Show an identity provider", f"GET {_PROVIDER}")
PROVIDERS_CREATE = _identity("create_identity_provider", ADMIN, "Create an identity provider", f"PUT {_PROVIDER}")
PROVIDERS_UPDATE = _identity("update_identity_provider", ADMIN, "Change an identity provider", f"PATCH {_PROVIDER}")
PROVIDERS_DELETE = _identity(
    "delete_identity_provider", ADMIN, "Delete an identity provider with its users", f"DELETE {_PROVIDER}"
)
PROTOCOLS_LIST = _identity(
    "list_protocols", READER, "List the protocols of an identity provider", f"GET {_PROVIDER}/protocols"
)
PROTOCOLS_SHOW = _identity(
    "get_protocol", READER, "Show a protocol of an identity provider", f"GET {_PROVIDER}/{_PROTOCOL}"
)
PROTOCOLS_CREATE = _identity(
    "create_protocol", ADMIN, "Add a protocol to an identity provider", f"PUT {_PROVIDER}/{_PROTOCOL}"
)
PROTOCOLS_UPDATE = _identity("update_protocol", ADMIN, "Change a protocol", f"PATCH {_PROVIDER}/{_PROTOCOL}")
PROTOCOLS_DELETE = _identity("delete_protocol", ADMIN, "Delete a protocol", f"DELETE {_PROVIDER}/{_PROTOCOL}")
MAPPINGS_LIST = _identity("list_mappings", READER, "List mappings of claims", f"GET {_FEDERATION}/mappings")
MAPPINGS_SHOW = _identity("get_mapping", READER, "Show a mapping of claims", f"GET {_MAPPING}")
MAPPINGS_CREATE = _identity("create_mapping", ADMIN, "Create a mapping of claims", f"PUT {_MAPPING}")
MAPPINGS_UPDATE = _identity("update_mapping", ADMIN, "Change a mapping of claims", f"PATCH {_MAPPING}")
MAPPINGS_DELETE = _identity("delete_mapping", ADMIN, "Delete a mapping of claims", f"DELETE {_MAPPING}")
_REGISTERED, _LIMIT = "/v3/registered_limits", "/v3/limits"
REGISTERED_LIST = _identity("list_registered_limits", ANYONE, "List registered limits", f"GET {_REGISTERED}")
REGISTERED_SHOW = _identity(
    "get_registered_limit", ANYONE, "Show a registered limit", f"GET {_REGISTERED}/{{registered_limit_id}}"
)
REGISTERED_CREATE = _identity("create_registered_limits", ADMIN, "Register limits", f"POST {_REGISTERED}")
REGISTERED_UPDATE = _identity(
    "update_registered_limit", ADMIN, "Change a registered limit", f"PATCH {_REGISTERED}/{{registered_limit_id}}"
)
REGISTERED_DELETE = _identity(
    "delete_registered_limit", ADMIN, "Delete a registered limit", f"DELETE {_REGISTERED}/{{registered_limit_id}}"
)
LIMIT_MODEL = _identity("get_limit_model", ANYONE, "Show the model of limits", f"GET {_LIMIT}/model")
LIMITS_LIST = _identity("list_limits", ANYONE, "List the limits that the caller may see", f"GET {_LIMIT}")
LIMITS_SHOW = _identity(
    "get_limit",
    f"{READER} or project_id:%(project_id)s or domain_id:%(domain_id)s",
    "Show a limit of the project or domain of the caller's token; admins may show any limit",
    f"GET {_LIMIT}/{{limit_id}}",
)
LIMITS_CREATE = _identity("create_limits", ADMIN, "Create limits of projects or domains", f"POST {_LIMIT}")
LIMITS_UPDATE = _identity("update_limit", ADMIN, "Change a limit", f"PATCH {_LIMIT}/{{limit_id}}")
LIMITS_DELETE = _identity("delete_limit", ADMIN, "Delete a limit", f"DELETE {_LIMIT}/{{limit_id}}")
