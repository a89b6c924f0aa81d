"""Rules of the Placement API, with Placement's names. There are none for changes, which no user may make."""

from __future__ import annotations

from nova_lite.policies.base import SERVICE, Rules

#: Other services, and readers of the system.
READER = f"{SERVICE} or (role:reader and system_scope:all)"
_SCOPES = ("system", "project")

_placement = Rules("placement", _SCOPES)
_providers = Rules("placement:resource_providers", _SCOPES)

_ONE = "GET /resource_providers/{uuid}"

PROVIDERS = _providers("list", READER, "List resource providers", "GET /resource_providers")
PROVIDER = _providers("show", READER, "Show a resource provider", _ONE)
INVENTORIES = _providers("inventories:list", READER, "List inventories of a provider", f"{_ONE}/inventories")
INVENTORY = _providers(
    "inventories:show", READER, "Show an inventory of a provider", f"{_ONE}/inventories/{{resource_class}}"
)
PROVIDER_USAGES = _providers("usages", READER, "Show usages of a provider", f"{_ONE}/usages")
PROVIDER_ALLOCATIONS = _providers(
    "allocations:list", READER, "List the allocations of a provider, of all projects", f"{_ONE}/allocations"
)
PROVIDER_TRAITS = _providers("traits:list", READER, "List traits of a provider", f"{_ONE}/traits")
PROVIDER_AGGREGATES = _providers("aggregates:list", READER, "List aggregates of a provider", f"{_ONE}/aggregates")
ALLOCATIONS = _placement(
    "allocations:list", READER, "List the allocations of a server", "GET /allocations/{consumer_uuid}"
)
CANDIDATES = _placement(
    "allocation_candidates:list", READER, "List hosts with room for a server", "GET /allocation_candidates"
)
USAGES = _placement(
    "usages",
    f"{READER} or rule:project_reader_or_admin",
    "Show the usages of a project, with its id as ``project_id``",
    "GET /usages",
)
CLASSES = _placement("resource_classes:list", READER, "List resource classes", "GET /resource_classes")
CLASS = _placement("resource_classes:show", READER, "Show a resource class", "GET /resource_classes/{name}")
TRAITS = _placement("traits:list", READER, "List traits", "GET /traits")
TRAIT = _placement("traits:show", READER, "Check that a trait exists", "GET /traits/{name}")
