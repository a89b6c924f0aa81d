"""Security groups: ``/os-security-groups`` and their rules until 2.35, and which ones a server is in."""

from __future__ import annotations

from typing import Any

from oslo_utils import strutils, uuidutils

from nova_lite.api.compute import networks
from nova_lite.api.compute.schemas import security_groups as schemas
from nova_lite.api.compute.views import security_groups as views
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, action, declares
from nova_lite.base import exceptions
from nova_lite.objects import SecurityGroupRule
from nova_lite.objects.security_group import IPV4, IPV6
from nova_lite.policies import security_groups as policies

_GROUPS = "/os-security-groups"
_RULES = "/os-security-group-rules"


class SecurityGroups(Extension):
    alias = "os-security-groups"
    title = "Security groups"
    routes = (
        Route("GET", _GROUPS, "index", until=networks.LAST),
        Route("POST", _GROUPS, "create", until=networks.LAST),
        Route("GET", _GROUPS + "/{id}", "show", until=networks.LAST),
        Route("PUT", _GROUPS + "/{id}", "update", until=networks.LAST),
        Route("DELETE", _GROUPS + "/{id}", "delete", until=networks.LAST),
    )

    @declares(policies.LIST, query=schemas.INDEX, answer="security_groups")
    def index(self, req: Request) -> Response:
        """``all_tenants`` counts for admins."""
        everybody = strutils.bool_from_string(req.query.one("all_tenants") or "", default=False)
        limit = req.query.limit or self.conf.api.max_limit
        offset = int(req.query.one("offset") or 0)
        found = self.conductor.security_group_list(req.context, everybody, limit, offset)
        return Response({"security_groups": [views.group(each) for each in found]})

    @declares(policies.SHOW, answer="security_group")
    def show(self, req: Request, id: str) -> Response:
        """By its id, and by its name, as old clients ask."""
        return Response({"security_group": views.group(self.conductor.security_group_get(req.context, id))})

    @declares(policies.CREATE, body=schemas.CREATE, answer="security_group")
    def create(self, req: Request) -> Response:
        wanted = req.data["security_group"]
        made = self.conductor.security_group_create(req.context, wanted["name"], wanted.get("description"))
        return Response({"security_group": views.group(made)})

    @declares(policies.UPDATE, body=schemas.UPDATE, answer="security_group")
    def update(self, req: Request, id: str) -> Response:
        _check_id(id)
        wanted = req.data["security_group"]
        name = wanted.get("name")
        made = self.conductor.security_group_update(req.context, id, name, wanted.get("description"))
        return Response({"security_group": views.group(made)})

    @declares(policies.DELETE, status=202)
    def delete(self, req: Request, id: str) -> Response:
        _check_id(id)
        self.conductor.security_group_delete(req.context, id)
        return Response(status=202)


class SecurityGroupRules(Extension):
    alias = "os-security-group-rules"
    title = "Rules of security groups"
    routes = (
        Route("POST", _RULES, "create", until=networks.LAST),
        Route("DELETE", _RULES + "/{id}", "delete", until=networks.LAST),
    )

    @declares(policies.RULE_CREATE, body=schemas.RULE, answer="security_group_rule")
    def create(self, req: Request) -> Response:
        wanted = req.data["security_group_rule"]
        _check_id(wanted["parent_group_id"])
        made = self.conductor.security_group_rule_create(req.context, _rule(wanted))
        return Response({"security_group_rule": views.rule(made, req.context.project_id or "")})

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

    @declares(policies.SERVER_LIST, answer="security_groups")
    def index(self, req: Request, server_id: str) -> Response:
        found = self.conductor.instance_security_groups(req.context, server_id)
        return Response({"security_groups": [views.group(each) for each in found]})

    @declares(policies.SERVER_ADD, body=schemas.ADD, status=202)
    def add(self, req: Request, id: str) -> Response:
        self.conductor.instance_security_group_add(req.context, id, req.data["addSecurityGroup"]["name"])
        return Response(status=202)

    @declares(policies.SERVER_REMOVE, body=schemas.REMOVE, status=202)
    def remove(self, req: Request, id: str) -> Response:
        self.conductor.instance_security_group_remove(req.context, id, req.data["removeSecurityGroup"]["name"])
        return Response(status=202)


def _check_id(text: str) -> None:
    if not uuidutils.is_uuid_like(text):
        raise exceptions.InvalidInput(reason=f"Security group id should be uuid, and {text[:64]} is none")


def _rule(wanted: dict[str, Any]) -> SecurityGroupRule:
    """What the compute API means by it: all ports of a protocol if none are said, everybody if nobody is; but whoever
    names no group has to name a protocol."""
    protocol, group_id = (wanted.get("ip_protocol") or "").lower() or None, wanted.get("group_id") or None
    low, high = (_number(wanted.get(key)) for key in ("from_port", "to_port"))
    if protocol is None:
        low, high = (None if each == -1 else each for each in (low, high))
    if group_id is None and (protocol is None or low is None or high is None):
        raise exceptions.SecurityGroupRuleInvalid(reason="Not enough parameters to build a valid rule.")
    if group_id is not None and protocol in ("tcp", "udp") and low is None and high is None:
        low, high = 1, 65535
    if protocol == "icmp":
        low, high = (None if each == -1 else each for each in (low, high))
    cidr = None if group_id is not None else (wanted.get("cidr") or "0.0.0.0/0")
    return SecurityGroupRule(
        id="",
        security_group_id=wanted["parent_group_id"],
        ethertype=IPV6 if cidr is not None and ":" in cidr else IPV4,
        protocol=protocol,
        port_range_min=low,
        port_range_max=high,
        remote_ip_prefix=cidr,
        remote_group_id=group_id,
    )


def _number(value: int | str | None) -> int | None:
    return None if value is None else int(value)
