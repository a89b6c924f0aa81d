"""Security groups and their rules."""

from __future__ import annotations

from typing import Any

from nova_lite.api.http.rest import ServiceRequest
from nova_lite.api.http.wsgi import Response
from nova_lite.api.network import listing, requests, views
from nova_lite.api.network.resource import Resource
from nova_lite.base import exceptions
from nova_lite.objects import SecurityGroup, SecurityGroupRule
from nova_lite.objects.security_group import IPV4, IPV6

_GROUP = ("name", "description", "project_id", "tenant_id")
_GROUP_FIXED = ("stateful", "tags")
_RULE = (
    *("security_group_id", "direction", "ethertype", "protocol", "port_range_min", "port_range_max"),
    *("remote_ip_prefix", "remote_group_id", "description", "project_id", "tenant_id"),
)
_RULE_FIXED = ("remote_address_group_id", "tags")

#: Numbers and other names of the protocols that rules know.
_PROTOCOLS = {"1": "icmp", "6": "tcp", "17": "udp", "58": "icmp", "icmpv6": "icmp", "ipv6-icmp": "icmp"}
_ANY = ("", "any", "0")


class SecurityGroupResource(Resource):
    def security_groups(self, req: ServiceRequest) -> Response:
        return self.listed(req, "security_groups", [views.security_group(each) for each in self._groups(req)])

    def _groups(self, req: ServiceRequest) -> list[SecurityGroup]:
        """The project's own, its default one in any case; and to an admin, everybody's."""
        found = {group.id: group for group in self.conductor.security_group_list(req.context, False, None, 0)}
        if req.context.is_admin:
            everybodys = self.conductor.security_group_list(req.context, True, None, 0)
            found = {group.id: group for group in everybodys} | found
        return list(found.values())

    def security_group(self, req: ServiceRequest, id: str) -> Response:
        return listing.shown(req, "security_group", views.security_group(self._group(req, id)))

    def _group(self, req: ServiceRequest, id: str) -> SecurityGroup:
        """By its id alone, although the conductor knows it by name, too."""
        found = self.conductor.security_group_get(req.context, id)
        if found.id != id:
            raise exceptions.SecurityGroupNotFound(group_id=id[:64])
        return found

    def create_security_group(self, req: ServiceRequest) -> Response:
        wanted = requests.body(req, "security_group", _GROUP, _GROUP_FIXED)
        _require_own(req, wanted)
        name = _name(wanted)
        made = self.conductor.security_group_create(req.context, name, requests.text(wanted, "description") or "")
        return Response({"security_group": views.security_group(made)}, 201)

    def update_security_group(self, req: ServiceRequest, id: str) -> Response:
        wanted = requests.body(req, "security_group", _GROUP, _GROUP_FIXED)
        name = _name(wanted) if "name" in wanted else None
        description = requests.texts(wanted, "description").get("description")
        made = self.conductor.security_group_update(req.context, self._group(req, id).id, name, description)
        return Response({"security_group": views.security_group(made)})

    def delete_security_group(self, req: ServiceRequest, id: str) -> Response:
        self.conductor.security_group_delete(req.context, self._group(req, id).id)
        return Response(status=204)

    # --- rules

    def security_group_rules(self, req: ServiceRequest) -> Response:
        shown = [views.rule(each, group.project_id) for group in self._groups(req) for each in group.rules]
        return self.listed(req, "security_group_rules", shown)

    def security_group_rule(self, req: ServiceRequest, id: str) -> Response:
        for group in self._groups(req):
            for each in group.rules:
                if each.id == id:
                    return listing.shown(req, "security_group_rule", views.rule(each, group.project_id))
        raise exceptions.SecurityGroupRuleNotFound(rule_id=id[:64])

    def create_security_group_rule(self, req: ServiceRequest) -> Response:
        wanted = requests.body(req, "security_group_rule", _RULE, _RULE_FIXED)
        group = self._group(req, requests.needed_id(wanted, "security_group_id"))
        made = self.conductor.security_group_rule_create(req.context, _rule(wanted, group.id))
        return Response({"security_group_rule": views.rule(made, group.project_id)}, 201)

    def delete_security_group_rule(self, req: ServiceRequest, id: str) -> Response:
        self.conductor.security_group_rule_delete(req.context, id)
        return Response(status=204)


def _require_own(req: ServiceRequest, wanted: dict[str, Any]) -> None:
    if requests.project(req, wanted) != (req.context.project_id or ""):
        raise exceptions.ValidationError(detail="A security group is made by its own project here.")


def _name(wanted: dict[str, Any]) -> str:
    found = requests.text(wanted, "name")
    if not found or not found.strip():
        raise exceptions.ValidationError(detail="Invalid input for name. A security group is known by its name here.")
    return found


def _rule(wanted: dict[str, Any], group_id: str) -> SecurityGroupRule:
    direction, ethertype = wanted.get("direction"), wanted.get("ethertype") or IPV4
    if not isinstance(direction, str):
        raise exceptions.ValidationError(detail="Failed to parse request. Required attribute 'direction' not specified")
    known = {each.lower(): each for each in (IPV4, IPV6)}
    return SecurityGroupRule(
        id="",
        security_group_id=group_id,
        direction=direction,
        ethertype=known.get(str(ethertype).lower(), str(ethertype)[:16]),
        protocol=_protocol(wanted.get("protocol")),
        port_range_min=requests.number(wanted, "port_range_min", 0, 65535),
        port_range_max=requests.number(wanted, "port_range_max", 0, 65535),
        remote_ip_prefix=requests.text(wanted, "remote_ip_prefix") or None,
        remote_group_id=requests.an_id(wanted, "remote_group_id"),
        description=requests.text(wanted, "description"),
    )


def _protocol(said: Any) -> str | None:
    if said is None or str(said).lower() in _ANY:
        return None
    name = str(said).lower()[:64]
    return _PROTOCOLS.get(name, name)
