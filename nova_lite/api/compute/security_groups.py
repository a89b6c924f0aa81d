"""Security groups: ``/os-security-groups`` and their rules until 2.35, and the security groups of a server."""

from __future__ import annotations

from typing import Any

from oslo_utils import strutils, uuidutils

from nova_lite.api.compute import schema_types as t
from nova_lite.api.http.microversions import LAST_WITH_PROXIES
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, action, declares
from nova_lite.base import exceptions
from nova_lite.objects import SecurityGroup, SecurityGroupRule
from nova_lite.objects.security_group import INGRESS, IPV4, IPV6
from nova_lite.policies import security_groups as policies

# --- schemas

#: A name must contain more than spaces.
_NAME: t.Schema = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": r"\S"}
_DESCRIPTION: t.Schema = {"type": ["string", "null"], "maxLength": 255}
_NUMBER: t.Schema = {"type": ["integer", "string", "null"], "pattern": "^-?[0-9]{1,5}$", "maximum": 99999}
_REFERENCE: t.Schema = {"type": ["string", "null"], "maxLength": 255}

CREATE_BODY = t.wrapped("security_group", t.strict({"name": _NAME, "description": _DESCRIPTION}, ("name",)))
UPDATE_BODY = t.wrapped("security_group", t.strict({"name": _NAME, "description": _DESCRIPTION}))
RULE_BODY = t.wrapped(
    "security_group_rule",
    t.strict(
        {
            "parent_group_id": {"type": "string", "minLength": 1, "maxLength": 255},
            "ip_protocol": {"type": ["string", "null"], "maxLength": 16},
            "from_port": _NUMBER,
            "to_port": _NUMBER,
            "cidr": {"type": ["string", "null"], "maxLength": 64},
            "group_id": _REFERENCE,
        },
        ("parent_group_id",),
    ),
)
_OF_SERVER = t.strict({"name": _NAME}, ("name",))
ADD_BODY = t.wrapped("addSecurityGroup", _OF_SERVER)
REMOVE_BODY = t.wrapped("removeSecurityGroup", _OF_SERVER)
INDEX_QUERY = t.loose_query({"limit": t.Q_LIMIT, "offset": t.Q_LIMIT, "all_tenants": t.Q_ANY})


# --- routes

_PROTOCOLS = ("tcp", "udp", "icmp")

_GROUPS = "/os-security-groups"
_RULES = "/os-security-group-rules"


class SecurityGroups(Extension):
    alias = "os-security-groups"
    title = "Security groups"
    routes = (
        Route("GET", _GROUPS, "index", until=LAST_WITH_PROXIES),
        Route("POST", _GROUPS, "create", until=LAST_WITH_PROXIES),
        Route("GET", _GROUPS + "/{id}", "show", until=LAST_WITH_PROXIES),
        Route("PUT", _GROUPS + "/{id}", "update", until=LAST_WITH_PROXIES),
        Route("DELETE", _GROUPS + "/{id}", "delete", until=LAST_WITH_PROXIES),
    )

    @declares(policies.LIST, query=INDEX_QUERY, response="security_groups")
    def index(self, req: Request) -> Response:
        """List security groups. ``all_tenants`` has an effect for admins only."""
        all_projects = strutils.bool_from_string(req.query.one("all_tenants") or "", default=False)
        limit = req.query.limit or self.conf.api.max_limit
        offset = int(req.query.one("offset") or 0)
        groups = self.conductor.security_group_list(req.context, all_projects, limit, offset)
        return Response({"security_groups": [_group_view(group) for group in groups]})

    @declares(policies.SHOW, response="security_group")
    def show(self, req: Request, id: str) -> Response:
        """Show a security group by its id, or by its name as old clients do."""
        return Response({"security_group": _group_view(self.conductor.security_group_get(req.context, id))})

    @declares(policies.CREATE, body=CREATE_BODY, response="security_group")
    def create(self, req: Request) -> Response:
        body = req.data["security_group"]
        created = self.conductor.security_group_create(req.context, body["name"], body.get("description"))
        return Response({"security_group": _group_view(created)})

    @declares(policies.UPDATE, body=UPDATE_BODY, response="security_group")
    def update(self, req: Request, id: str) -> Response:
        _check_id(id)
        body = req.data["security_group"]
        name = body.get("name")
        created = self.conductor.security_group_update(req.context, id, name, body.get("description"))
        return Response({"security_group": _group_view(created)})

    @declares(policies.DELETE, status=202)
    def delete(self, req: Request, id: str) -> Response:
        _check_id(id)
        self.conductor.security_group_delete(req.context, id)
        return Response(status=202)


class SecurityGroupRules(Extension):
    alias = "os-security-group-rules"
    title = "Rules of security groups"
    routes = (
        Route("POST", _RULES, "create", until=LAST_WITH_PROXIES),
        Route("DELETE", _RULES + "/{id}", "delete", until=LAST_WITH_PROXIES),
    )

    @declares(policies.RULE_CREATE, body=RULE_BODY, response="security_group_rule")
    def create(self, req: Request) -> Response:
        body = req.data["security_group_rule"]
        _check_id(body["parent_group_id"])
        created = self.conductor.security_group_rule_create(req.context, _rule(body))
        return Response({"security_group_rule": _rule_view(created, req.context.project_id or "")})

    @declares(policies.RULE_DELETE, status=202)
    def delete(self, req: Request, id: str) -> Response:
        _check_id(id)
        self.conductor.security_group_rule_delete(req.context, id)
        return Response(status=202)


class ServerSecurityGroups(Extension):
    alias = "os-server-security-groups"
    title = "Security groups of a server"
    routes = (
        Route("GET", "/servers/{server_id}/os-security-groups", "index"),
        action("servers", "addSecurityGroup", "add"),
        action("servers", "removeSecurityGroup", "remove"),
    )

    @declares(policies.SERVER_LIST, response="security_groups")
    def index(self, req: Request, server_id: str) -> Response:
        groups = self.conductor.instance_security_groups(req.context, server_id)
        return Response({"security_groups": [_group_view(group) for group in groups]})

    @declares(policies.SERVER_ADD, body=ADD_BODY, status=202)
    def add(self, req: Request, id: str) -> Response:
        self.conductor.instance_security_group_add(req.context, id, req.data["addSecurityGroup"]["name"])
        return Response(status=202)

    @declares(policies.SERVER_REMOVE, body=REMOVE_BODY, status=202)
    def remove(self, req: Request, id: str) -> Response:
        self.conductor.instance_security_group_remove(req.context, id, req.data["removeSecurityGroup"]["name"])
        return Response(status=202)


def _check_id(text: str) -> None:
    if not uuidutils.is_uuid_like(text):
        raise exceptions.InvalidInput(reason=f"Security group id should be uuid, and {text[:64]} is none")


def _rule(body: dict[str, Any]) -> SecurityGroupRule:
    """Return the rule of a request, with the compute API's defaults.

    Without ports the rule is for all ports of its protocol, without a source for all sources. A rule without a source
    group must name a protocol.
    """
    protocol, group_id = (body.get("ip_protocol") or "").lower() or None, body.get("group_id")
    if group_id == "":
        raise exceptions.SecurityGroupRuleInvalid(reason="group_id is empty, and names no security group.")
    if protocol not in (None, *_PROTOCOLS):
        raise exceptions.SecurityGroupRuleInvalid(
            reason=f"Invalid IP protocol {protocol}: it is one of {', '.join(_PROTOCOLS)} in this API."
        )
    low, high = (_number(body.get(key)) for key in ("from_port", "to_port"))
    if protocol is None:
        low, high = (None if port == -1 else port for port in (low, high))
    if group_id is None and (protocol is None or low is None or high is None):
        raise exceptions.SecurityGroupRuleInvalid(reason="Not enough parameters to build a valid rule.")
    if group_id is not None and protocol in ("tcp", "udp") and low is None and high is None:
        low, high = 1, 65535
    if protocol == "icmp":
        low, high = (None if port == -1 else port for port in (low, high))
    cidr = None if group_id is not None else (body.get("cidr") or "0.0.0.0/0")
    return SecurityGroupRule(
        id="",
        security_group_id=body["parent_group_id"],
        ethertype=IPV6 if cidr is not None and ":" in cidr else IPV4,
        protocol=protocol,
        port_range_min=low,
        port_range_max=high,
        remote_ip_prefix=cidr,
        remote_group_id=group_id,
    )


def _number(value: int | str | None) -> int | None:
    return None if value is None else int(value)


# --- views

_ALL_PORTS = (1, 65535)
_NONE = (-1, -1)


def _group_view(group: SecurityGroup) -> dict[str, Any]:
    return {
        "id": group.id,
        "name": group.name,
        "description": group.description or "",
        "tenant_id": group.project_id,
        "rules": [_rule_view(rule, group.project_id) for rule in group.rules if rule.direction == INGRESS],
    }


def _rule_view(rule: SecurityGroupRule, project_id: str) -> dict[str, Any]:
    low, high = _ports(rule)
    all_addresses = "0.0.0.0/0" if rule.ethertype == IPV4 else "::/0"
    by_group = rule.remote_group_id is not None
    return {
        "id": rule.id,
        "parent_group_id": rule.security_group_id,
        "ip_protocol": rule.protocol,
        "from_port": low,
        "to_port": high,
        "group": {"name": rule.remote_group_name, "tenant_id": project_id} if by_group else {},
        "ip_range": {} if by_group else {"cidr": rule.remote_ip_prefix or all_addresses},
    }


def _ports(rule: SecurityGroupRule) -> tuple[int, int]:
    low, high = rule.port_range_min, rule.port_range_max
    if rule.protocol in ("tcp", "udp") and low is None:
        return _ALL_PORTS
    return _NONE if low is None else (low, -1 if high is None else high)
