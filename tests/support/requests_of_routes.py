"""Requests derived from the APIs' route tables, so that every new route is attacked automatically.

`every_request` yields, for each route, action and kind of body, a request whose URL names the victim's resources. A
variable that is not in ``KINDS`` is filled with every resource. Bodies follow the schemas of the routes. Services
without schemas have theirs in ``BODIES``; the test reports a route without one.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from nova_lite.api.http import microversions, validation, wsgi
from nova_lite.api.http.router import extension_classes
from nova_lite.api.identity.app import IdentityApp
from nova_lite.api.image.app import ImageApp
from nova_lite.api.join import app as join
from nova_lite.api.network import tags as network_tags
from nova_lite.api.network import views as network_views
from nova_lite.api.network.app import NetworkApp
from nova_lite.api.page import rights
from nova_lite.api.placement.app import PlacementApp
from nova_lite.api.volume.app import VolumeApp
from nova_lite.base import exceptions

#: The services of one table of routes each.
APPS = (
    ("identity", IdentityApp),
    ("image", ImageApp),
    ("volume", VolumeApp),
    ("network", NetworkApp),
    ("placement", PlacementApp),
)
#: Paths of the APIs behind the page, which has them below ``/api/SERVICE``.
BEHIND_PAGE = {
    "compute": "/v2.1",
    "identity": "",
    "image": "/v2",
    "volume": "/v3",
    "network": "/v2.0",
    "placement": "",
}
#: Path of the page's stream, which has no end (tests/unit/api/page/test_events.py).
STREAM = "/events"
#: Kinds of the victim's resources, by the segment before a variable, or by the variable's name.
KINDS = {
    "servers": "server",
    "server_id": "server",
    "flavors": "flavor",
    "flavor_id": "flavor",
    "images": "image",
    "image_id": "image",
    "os-keypairs": "keypair",
    "os-floating-ips": "floating_ip",
    "os-security-groups": "security_group",
    "os-security-group-rules": "security_group_rule",
    "os-server-groups": "server_group",
    "os-backup-policies": "backup_policy",
    "os-server-backups": "server_backup",
    "os-volumes": "volume",
    "volumes": "volume",
    "os-volume_attachments": "volume",
    "os-snapshots": "snapshot",
    "os-assisted-volume-snapshots": "snapshot",
    "snapshots": "snapshot",
    "attachments": "attachment",
    "users": "user",
    "user_id": "user",
    "application_credentials": "application_credential",
    "access_rules": "access_rule",
    "trusts": "trust",
    "domains": "domain",
    "roles": "role",
    "identity_providers": "identity_provider",
    "protocols": "protocol",
    "mappings": "mapping",
    "implies": "role",
    "projects": "project",
    "os-quota-sets": "project",
    "default-types": "project",
    "qos-specs": "qos",
    "backups": "backup",
    "os-simple-tenant-usage": "project",
    "os-interface": "port",
    "networks": "network",
    "subnets": "subnet",
    "ports": "port",
    "security-groups": "security_group",
    "security-group-rules": "security_group_rule",
    "floatingips": "floating_ip",
    "floatingip_id": "forwarded_address",
    "port_forwardings": "port_forwarding",
    "routers": "router",
    "trunks": "trunk",
    "subnetpools": "subnet_pool",
    "address-scopes": "address_scope",
    "address-groups": "address_group",
    "rbac-policies": "rbac_policy",
    "bandwidth_limit_rules": "bandwidth_limit_rule",
    "dscp_marking_rules": "dscp_marking_rule",
    "network-ip-availabilities": "network",
    "quotas": "project",
    "migrations": "migration",
    "resource_providers": "server",
    "allocations": "server",
    "inventories": "label",
    "resource_classes": "label",
    "traits": "label",
    "request_id": "request",
    "namespace": "namespace",
    "tag": "tag",
    "key": "key",
    "label": "label",
    "field": "encryption_field",
    "role": "role",
}
#: Parameters of queries of the Placement API.
PLACEMENT_QUERY = (
    "uuid",
    "resources",
    "required",
    "member_of",
    "in_tree",
    "group_policy",
    "root_required",
    "same_subtree",
    "resources1",
    "consumer_type",
    "associated",
)
#: Kinds of the identity API alone: the volume API has other groups, and shows none.
KINDS_OF_IDENTITY = {
    "groups": "group",
    "OS-EC2": "ec2_credential",
    "credentials": "credential",
    "implies": "role",
    "limits": "limit",
    "policies": "policy",
    "endpoint_groups": "endpoint_group",
    "endpoint_id": "catalog_endpoint",
    "group": "config_group",
    "option": "config_option",
}
#: Kinds of the other APIs alone.
KINDS_OF_OTHERS = {"policies": "qos_policy"}
#: Rule of a mapping that makes all users an admin.
TAKEN = {"local": [{"user": {"name": "admin", "type": "local"}}], "remote": [{"type": "OIDC-sub"}]}
#: Bodies of the services that declare no schemas, by service, method and path.
BODIES: dict[tuple[str, str, str], list[Any]] = {
    ("identity", "POST", "/v3/projects"): [{"project": {"name": "theirs"}}],
    ("identity", "PATCH", "/v3/projects/{id}"): [{"project": {"description": "taken"}}],
    ("identity", "PUT", "/v3/projects/{id}/tags"): [{"tags": ["taken"]}],
    ("identity", "POST", "/v3/users"): [{"user": {"name": "theirs", "password": "taken"}}],
    ("identity", "PATCH", "/v3/users/{id}"): [{"user": {"password": "taken"}}, {"user": {"enabled": False}}],
    ("identity", "POST", "/v3/users/{id}/password"): [{"user": {"password": "taken", "original_password": "guess"}}],
    ("identity", "POST", "/v3/users/{user_id}/application_credentials"): [
        {"application_credential": {"name": "taken"}}
    ],
    ("identity", "POST", "/v3/users/{user_id}/credentials/OS-EC2"): [{"tenant_id": "taken"}],
    ("identity", "POST", "/v3/ec2tokens"): [{"ec2Credentials": {"access": "taken", "signature": "guess"}}],
    ("identity", "POST", "/v3/credentials"): [
        {"credential": {"type": "totp", "blob": "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ", "user_id": "taken"}}
    ],
    ("identity", "PATCH", "/v3/credentials/{id}"): [{"credential": {"blob": "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"}}],
    ("identity", "POST", "/v3/domains"): [{"domain": {"name": "theirs"}}],
    ("identity", "PATCH", "/v3/domains/{id}"): [{"domain": {"name": "theirs", "enabled": False}}],
    ("identity", "PATCH", "/v3/groups/{id}"): [{"group": {"name": "taken"}}],
    ("identity", "POST", "/v3/groups"): [{"group": {"name": "theirs"}}],
    ("identity", "PATCH", "/v3/limits/{id}"): [{"limit": {"resource_limit": 1}}],
    ("identity", "PUT", "/v3/domains/{id}/config"): [{"config": {"ldap": {"url": "ldap://taken"}}}],
    ("identity", "PATCH", "/v3/domains/{id}/config"): [{"config": {"ldap": {"url": "ldap://taken"}}}],
    ("identity", "POST", "/v3/roles"): [{"role": {"name": "theirs"}}],
    ("identity", "PATCH", "/v3/roles/{id}"): [{"role": {"name": "taken"}}],
    **{
        ("identity", method, f"/v3/OS-FEDERATION/{path}"): [body]
        for method in ("PUT", "PATCH")
        for path, body in (
            ("identity_providers/{idp_id}", {"identity_provider": {"remote_ids": ["https://taken.example"]}}),
            ("identity_providers/{idp_id}/protocols/{protocol_id}", {"protocol": {"mapping_id": "taken"}}),
            ("mappings/{mapping_id}", {"mapping": {"rules": [TAKEN]}}),
        )
    },
    ("identity", "POST", "/v3/services"): [{"service": {"type": "theirs"}}],
    ("identity", "PATCH", "/v3/services/{id}"): [{"service": {"type": "theirs"}}],
    ("identity", "PATCH", "/v3/endpoints/{id}"): [{"endpoint": {"url": "http://127.0.0.1:1/taken"}}],
    ("identity", "PATCH", "/v3/regions/{id}"): [{"region": {"description": "taken"}}],
    ("identity", "POST", "/v3/OS-TRUST/trusts"): [
        {"trust": {"trustor_user_id": "x", "trustee_user_id": "y", "project_id": "p", "impersonation": False}}
    ],
    ("image", "PATCH", "/images/{id}"): [
        [{"op": "replace", "path": "/name", "value": "taken"}],
        [{"op": "replace", "path": "/visibility", "value": "private"}],
    ],
    ("image", "POST", "/images/{id}/import"): [{"method": {"name": "glance-direct"}}],
    ("image", "POST", "/images/{id}/members"): [{"member": "taken"}],
    ("image", "PUT", "/images/{id}/members/{member_id}"): [{"status": "accepted"}],
    ("image", "PUT", "/metadefs/namespaces/{namespace}"): [{"description": "taken", "visibility": "public"}],
    ("image", "POST", "/metadefs/namespaces/{namespace}/objects"): [{"name": "taken"}],
    ("image", "POST", "/metadefs/namespaces/{namespace}/tags"): [{"tags": [{"name": "taken"}]}],
    ("volume", "PUT", "/attachments/{id}"): [{"attachment": {"connector": {"host": "taken"}}}],
    ("volume", "POST", "/attachments/{id}/action"): [{"os-complete": {}}],
    ("volume", "PUT", "/backups/{id}"): [{"backup": {"name": "taken"}}],
    ("volume", "POST", "/backups/{id}/restore"): [{"restore": {"name": "taken"}}],
    ("volume", "POST", "/backups/{id}/action"): [
        {"os-reset_status": {"status": "error"}},
        {"os-force_delete": {}},
    ],
    ("volume", "PUT", "/qos-specs/{id}"): [{"qos_specs": {"key": "taken"}}],
    ("volume", "PUT", "/default-types/{project_id}"): [{"default_type": {"volume_type": "local"}}],
    ("volume", "PUT", "/os-quota-class-sets/{name}"): [{"quota_class_set": {"volumes": 1}}],
    ("volume", "POST", "/volume-transfers/{id}/accept"): [{"accept": {"auth_key": "0123456789abcdef"}}],
    ("volume", "PUT", "/os-quota-sets/{id}"): [{"quota_set": {"volumes": 1}}],
    ("volume", "POST", "/os-volume-transfer/{id}/accept"): [{"accept": {"auth_key": "0123456789abcdef"}}],
    ("volume", "PUT", "/volumes/{id}"): [{"volume": {"name": "taken"}}],
    ("volume", "POST", "/volumes/{id}/action"): [
        {"os-extend": {"new_size": 2}},
        {"os-reset_status": {"status": "error"}},
        {"os-set_bootable": {"bootable": True}},
        {"os-force_delete": {}},
        {"os-volume_upload_image": {"image_name": "taken"}},
        {"os-retype": {"new_type": "local"}},
        {"os-show_image_metadata": {}},
        {"os-set_image_metadata": {"metadata": {"key": "taken"}}},
        {"os-unset_image_metadata": {"key": "key"}},
        {"os-unmanage": {}},
        {"os-reserve": {}},
        {"os-unreserve": {}},
        {"os-attach": {"instance_uuid": "5e0c6f0a-0b2c-4c1e-9d55-3a1f0e7b9c42", "mountpoint": "/dev/vdz"}},
        {"os-detach": {}},
    ],
    ("volume", "POST", "/volumes/{id}/metadata"): [{"metadata": {"taken": "yes"}}],
    ("volume", "PUT", "/volumes/{id}/metadata"): [{"metadata": {"taken": "yes"}}],
    ("volume", "PUT", "/volumes/{id}/metadata/{key}"): [{"meta": {"mark": "taken"}}],
    ("volume", "PUT", "/snapshots/{id}/metadata/{key}"): [{"meta": {"mark": "taken"}}],
    ("volume", "PUT", "/snapshots/{id}"): [{"snapshot": {"name": "taken"}}],
    ("volume", "POST", "/snapshots/{id}/action"): [
        {"os-reset_status": {"status": "error"}},
        {"os-update_snapshot_status": {"status": "error"}},
    ],
    ("volume", "POST", "/snapshots/{id}/metadata"): [{"metadata": {"taken": "yes"}}],
    ("volume", "PUT", "/snapshots/{id}/metadata"): [{"metadata": {"taken": "yes"}}],
    ("network", "PUT", "/networks/{id}"): [{"network": {"name": "taken"}}],
    ("network", "PUT", "/subnets/{id}"): [{"subnet": {"name": "taken"}}],
    ("network", "PUT", "/ports/{id}"): [{"port": {"name": "taken"}}, {"port": {"security_groups": []}}],
    ("network", "PUT", "/security-groups/{id}"): [{"security_group": {"name": "taken"}}],
    ("network", "PUT", "/floatingips/{id}"): [{"floatingip": {"port_id": None}}],
    ("network", "PUT", "/routers/{id}"): [
        {"router": {"name": "taken"}},
        {"router": {"external_gateway_info": None}},
    ],
    ("network", "PUT", "/routers/{id}/add_router_interface"): [{"subnet_id": "9d3a4a5c-7e1c-4a86-8bb2-0c1a3c1b9f01"}],
    ("network", "PUT", "/routers/{id}/remove_router_interface"): [
        {"subnet_id": "9d3a4a5c-7e1c-4a86-8bb2-0c1a3c1b9f01"},
    ],
    **{
        ("network", method, f"/{name}/{{id}}/tags"): [{"tags": ["taken"]}]
        for name in network_tags.KINDS
        for method in ("POST", "PUT")
    },
    ("network", "PUT", "/trunks/{id}"): [{"trunk": {"name": "taken"}}],
    ("network", "PUT", "/trunks/{id}/add_subports"): [{"sub_ports": []}],
    ("network", "PUT", "/trunks/{id}/remove_subports"): [{"sub_ports": []}],
    ("network", "PUT", "/subnetpools/{id}"): [{"subnetpool": {"name": "taken"}}],
    ("network", "PUT", "/subnetpools/{id}/add_prefixes"): [{"prefixes": ["10.99.0.0/24"]}],
    ("network", "PUT", "/subnetpools/{id}/remove_prefixes"): [{"prefixes": ["10.99.0.0/24"]}],
    ("network", "PUT", "/address-scopes/{id}"): [{"address_scope": {"name": "taken"}}],
    ("network", "PUT", "/address-groups/{id}"): [{"address_group": {"name": "taken"}}],
    ("network", "PUT", "/address-groups/{id}/add_addresses"): [{"addresses": ["10.99.0.0/24"]}],
    ("network", "PUT", "/address-groups/{id}/remove_addresses"): [{"addresses": ["10.99.0.0/24"]}],
    ("network", "PUT", "/rbac-policies/{id}"): [{"rbac_policy": {"target_tenant": "taken"}}],
    ("network", "PUT", "/qos/policies/{id}"): [{"policy": {"name": "taken"}}],
    **{
        ("network", method, f"/qos/policies/{{policy_id}}/{key}s{rest}"): [{key: values}]
        for key, values in (("bandwidth_limit_rule", {"max_kbps": 1}), ("dscp_marking_rule", {"dscp_mark": 8}))
        for method, rest in (("POST", ""), ("PUT", "/{id}"))
    },
    ("network", "POST", "/floatingips/{floatingip_id}/port_forwardings"): [
        {"port_forwarding": {"internal_port_id": "taken", "protocol": "tcp", "internal_port": 1, "external_port": 1}}
    ],
    ("network", "PUT", "/floatingips/{floatingip_id}/port_forwardings/{id}"): [
        {"port_forwarding": {"description": "taken"}}
    ],
    ("network", "PUT", "/quotas/{project_id}"): [{"quota": {"port": 1}}],
}
#: The key of the victim's metadata, which bodies name, too.
KEY = "mark"
#: Tried in this order for a string of a schema, whatever its format and pattern.
WORDS = (
    "taken",
    "9d3a4a5c-7e1c-4a86-8bb2-0c1a3c1b9f01",
    "10.99.0.77",
    "fe80::1",
    "2031-01-01T00:00:00Z",
    "1",
    "dGFrZW4=",
    "http://127.0.0.1:1/taken",
    "/dev/vdz",
    "novnc",
    "10.99.0.0/24",
    "02:30",
)
LATEST = microversions.MAXIMUM.minor
VARIABLE = re.compile(r"\{(\w+)\}")


#: Queries that routes of single things need, by service and route.
QUERIES = {("network", "/ports/{id}/trace"): "?destination=192.0.2.1"}


class Attempt(NamedTuple):
    """``named``: kind and value of each variable of the URL; ``known``: the kinds are what they name. ``unserved``: the
    route is no service's."""

    service: str
    method: str
    route: str
    path: str
    named: tuple[tuple[str, str], ...]
    body: Any
    version: int | None
    unserved: bool
    known: bool

    def __str__(self) -> str:
        told = f" {self.body}" if self.body is not None else ""
        return f"{self.service} {self.method} {self.path}{told}" + (f" at 2.{self.version}" if self.version else "")


class Row(NamedTuple):
    """A route in one version. ``schema``: of its body, if the service declares schemas."""

    service: str
    method: str
    path: str
    version: int | None
    bodies: list[Any]
    unserved: bool = False
    schema: Any = None


def every_request(things: Mapping[str, list[str]], first: Mapping[str, list[str]] | None = None) -> Iterator[Attempt]:
    """Yield all requests. ``things``: the victim's, by kind. ``first``: only URLs with two or more variables, the
    first of which names one of these.
    """
    for row in itertools.chain(rows(), other_ways()):
        names = VARIABLE.findall(row.path)
        if not names or (first is not None and len(names) < 2):
            continue
        kinds = [kind_of(row.path, name) for name in names]
        if first is not None and kinds[0] not in first:
            continue
        choices = [_values(things if first is None or index else first, kind) for index, kind in enumerate(kinds)]
        if row.unserved or row.service == "page":  # one is enough of what no user is served, and of another way
            choices = [choice[:1] for choice in choices]
        for named in _combined(choices, kinds):
            values = dict(zip(names, (value for _, value in named), strict=True))
            path = row.path.format(**values) + QUERIES.get((row.service, row.path), "")
            for body in row.bodies:
                known = None not in kinds
                yield Attempt(row.service, row.method, row.path, path, named, body, row.version, row.unserved, known)


def every_list() -> Iterator[tuple[str, str, int | None, list[str]]]:
    """Yield service, path, version and query parameters of each GET without variables."""
    common = ["project_id", "tenant_id", "user_id", "owner", "all_tenants", "id", "name", "marker", "volume_id"]
    for extension in extension_classes():
        for route in extension.routes:
            if route.method == "GET" and not VARIABLE.search(route.path):
                declared = route.declaration(extension)
                version = min(route.until or LATEST, LATEST)
                query = declared.query.at(microversions.Version(2, version)) if declared.query else {}
                yield "compute", route.path, version, sorted(query.get("properties", {}))
    for service, app in APPS:
        for row in app.routes:
            if row.method == "GET" and not VARIABLE.search(row.path):
                names = common
                if service == "network":
                    known = network_views.ATTRIBUTES.get(row.path.strip("/").replace("-", "_"), ())
                    names = sorted({*known, "marker", "fields", "sort_key", "nobodys"})
                if service == "placement":
                    names = [*names, *PLACEMENT_QUERY]
                yield service, row.path, None, names
    for path in rights.ROUTES:
        if path != STREAM:
            yield "page", path, None, common


def rows() -> Iterator[Row]:
    """Yield all routes, and those with schemas in their first and last version."""
    for extension in extension_classes():
        for route in extension.routes:
            declared = route.declaration(extension)
            unserved = declared.policy == wsgi.NOT_SERVED
            newest = min(route.until or LATEST, LATEST)
            for version in sorted({newest} if declared.body is None or unserved else {route.since, newest}):
                bodies = [_body(route, declared, version)]
                schema = declared.body.at(microversions.Version(2, version)) if declared.body else None
                yield Row("compute", route.method, route.path, version, bodies, unserved, schema)
    for service, app in APPS:
        for row in app.routes:
            changes = row.method in ("POST", "PUT", "PATCH") and not row.streams
            bodies = BODIES.get((service, row.method, row.path), [{} if changes else None])
            yield Row(service, row.method, row.path, None, bodies, row.handler == "refuse")


def other_ways() -> Iterator[Row]:
    """Yield the join API, and through the page the route of each API that shows one resource."""
    for path, methods in join.ROUTES.items():
        for method in methods:
            yield Row("join", method, path, None, [None if method == "GET" else {}])
    newest = {row[:3]: row.version for row in rows() if row.method == "GET" and not row.unserved}
    for (service, method, path), version in newest.items():
        if path.endswith("}") and len(VARIABLE.findall(path)) == 1:
            yield Row("page", method, f"/api/{service}{BEHIND_PAGE[service]}{path}", version, [None])


def kind_of(path: str, name: str) -> str | None:
    """Return the kind of resource that a variable of a path names, None if it is not known."""
    before = path.split("{" + name + "}")[0].rstrip("/").rpartition("/")[2]
    own = KINDS_OF_IDENTITY if path.startswith(("/v3/", "/api/identity/v3/")) else KINDS_OF_OTHERS
    return KINDS.get(name) or KINDS.get(before) or own.get(before) or own.get(name)


def _combined(choices: list[list[tuple[str, str]]], kinds: list[str | None]) -> Iterator[tuple[tuple[str, str], ...]]:
    """Yield all combinations, but with one value for all variables of unknown kinds: they would be thousands."""
    unknown = [index for index, kind in enumerate(kinds) if kind is None]
    for named in itertools.product(*choices):
        if len({named[index] for index in unknown}) <= 1:
            yield named


def _values(things: Mapping[str, list[str]], kind: str | None) -> list[tuple[str, str]]:
    if kind is not None:
        return [(kind, value) for value in things[kind]]
    return [(name, value) for name, values in things.items() for value in values]


# --- bodies of schemas


def _body(route: wsgi.Route, declared: wsgi.Declaration, version: int) -> Any:
    """Return a minimal body for the declared schema."""
    if route.method not in ("POST", "PUT", "PATCH"):
        return None
    if declared.body is None:
        return {route.action: None} if route.action else {}
    schema = declared.body.at(microversions.Version(2, version))
    body = least(schema)
    try:
        validation.validate_body(schema, body)
    except exceptions.ValidationError as error:
        raise AssertionError(f"{route.method} {route.path} {route.action or ''}: a body is needed: {error}") from error
    return body


def least(schema: Any) -> Any:
    """Return a minimal value for ``schema``: its required parts, or else one part to change."""
    if not isinstance(schema, dict):
        return "taken"
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return next(value for value in schema["enum"] if value is not None)
    for name in ("oneOf", "anyOf"):
        if name in schema and "properties" not in schema:
            rest = {key: value for key, value in schema.items() if key != name}
            for item in schema[name]:
                if _fits(value := least({**rest, **item}), schema):
                    return value
    kinds = schema.get("type", "object" if "properties" in schema or "required" in schema else "string")
    kind = kinds if isinstance(kinds, str) else next((item for item in kinds if item != "null"), "null")
    match kind:
        case "object":
            return _object(schema)
        case "array":
            return [least(schema.get("items", {})) for _ in range(schema.get("minItems", 0))]
        case "integer" | "number":
            return max(schema.get("minimum", 1), 1)
        case "boolean":
            return True
        case "null":
            return None
    return next((word for word in WORDS if _fits(word, schema)), "taken")


def _object(schema: dict[str, Any]) -> dict[str, Any]:
    properties, needed = schema.get("properties", {}), list(schema.get("required", []))
    for alternatives in (schema.get("anyOf", []), schema.get("oneOf", [])):
        needed += alternatives[0].get("required", []) if alternatives else []
    made = {name: least(properties.get(name, {})) for name in needed}
    others = dict(list(properties.items())[:1])
    others = others or {KEY: next(iter(schema.get("patternProperties", {}).values()), {})}
    if not made and _fits(more := {name: least(item) for name, item in others.items()}, schema):
        return more
    return made


def _fits(value: Any, schema: dict[str, Any]) -> bool:
    try:
        validation.validate_body(schema, value)
    except exceptions.ValidationError:
        return False
    return True
