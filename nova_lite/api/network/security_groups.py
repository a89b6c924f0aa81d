"""Security groups and their rules."""

from __future__ import annotations

import functools
from typing import Any

from nova_lite.api.http.rest import ServiceRequest
from nova_lite.api.http.wsgi import Response
from nova_lite.api.network import listing, requests, views
from nova_lite.api.network.resource import Resource
from nova_lite.base import exceptions
from nova_lite.objects import ListQuery, NetworkResources, SecurityGroup, SecurityGroupRule
from nova_lite.objects.security_group import IPV4, IPV6

_GROUP = ("name", "description", "project_id", "tenant_id")
_NEW_GROUP = (*_GROUP, "tags")
_GROUP_ONLY_DEFAULT = ("stateful",)
_RULE = (
    "security_group_id", "direction", "ethertype", "protocol", "port_range_min", "port_range_max", "remote_ip_prefix",
    "remote_group_id", "remote_address_group_id", "description", "project_id", "tenant_id", "tags",
)  # fmt: skip

#: Texts for all protocols.
_ANY = ("", "any", "0", "ip")


class SecurityGroupResource(Resource):
    """Handlers of ``/security-groups`` and ``/security-group-rules``."""

    def security_groups(self, req: ServiceRequest) -> Response:
        """List the groups of the project, including its default group. An admin gets the groups of all projects."""
        whole = bool(req.context.is_admin)
        source = listing.Source(
            lambda query: self.conductor.security_group_list(req.context, whole, None, 0, query),
            lambda group: [views.security_group(group)],
            {"id": "id", "name": "name", "project_id": "project_id", "tenant_id": "project_id"},
        )
        return self.listed(req, "security_groups", source)

    def security_group(self, req: ServiceRequest, id: str) -> Response:
        return listing.shown(req, "security_group", views.security_group(self._group(req, id)))

    def _group(self, req: ServiceRequest, id: str) -> SecurityGroup:
        """Return a group by its id. The conductor also accepts names, which this API does not."""
        group = self.conductor.security_group_get(req.context, id)
        if group.id != id:
            raise exceptions.SecurityGroupNotFound(group_id=id[:64])
        return group

    def create_security_group(self, req: ServiceRequest) -> Response:
        bodies, is_bulk = requests.bodies(req, "security_group", _NEW_GROUP, _GROUP_ONLY_DEFAULT)
        for fields in bodies:
            _require_own(req, fields)
        wanted = [
            SecurityGroup(
                id="",
                name=_name(fields),
                description=requests.text(fields, "description") or "",
                tags=requests.tags(fields) or None,
            )
            for fields in bodies
        ]
        return self.created(
            req,
            "security_group",
            (wanted, is_bulk),
            functools.partial(self._create_group, req),
            views.security_group,
        )

    def _create_group(self, req: ServiceRequest, group: SecurityGroup) -> SecurityGroup:
        if group.tags is None:
            return self.conductor.security_group_create(req.context, group.name, group.description)
        wanted = NetworkResources(security_groups=[group])
        return self.conductor.network_resources_create(req.context, wanted).security_groups[0]

    def update_security_group(self, req: ServiceRequest, id: str) -> Response:
        fields = requests.body(req, "security_group", _GROUP, _GROUP_ONLY_DEFAULT)
        name = _name(fields) if "name" in fields else None
        description = requests.texts(fields, "description").get("description")
        updated = self.conductor.security_group_update(req.context, self._group(req, id).id, name, description)
        return Response({"security_group": views.security_group(updated)})

    def delete_security_group(self, req: ServiceRequest, id: str) -> Response:
        self.conductor.security_group_delete(req.context, self._group(req, id).id)
        return Response(status=204)

    # --- rules

    def security_group_rules(self, req: ServiceRequest) -> Response:
        names = ("id", "security_group_id", "remote_group_id", "direction", "ethertype", "project_id")
        source = listing.Source(
            lambda query: self.conductor.security_group_rule_list(req.context, query),
            lambda rule: [views.rule(rule, rule.project_id)],
            {**{name: name for name in names}, "tenant_id": "project_id"},
        )
        return self.listed(req, "security_group_rules", source)

    def security_group_rule(self, req: ServiceRequest, id: str) -> Response:
        for rule in self.conductor.security_group_rule_list(req.context, ListQuery(filters={"id": [id]})):
            if rule.id == id:
                return listing.shown(req, "security_group_rule", views.rule(rule, rule.project_id))
        raise exceptions.SecurityGroupRuleNotFound(rule_id=id[:64])

    def create_security_group_rule(self, req: ServiceRequest) -> Response:
        bodies, is_bulk = requests.bodies(req, "security_group_rule", _RULE, ())
        ids = [requests.required_id(fields, "security_group_id") for fields in bodies]
        groups = {id: self._group(req, id) for id in dict.fromkeys(ids)}
        wanted = [_rule(fields, id) for fields, id in zip(bodies, ids, strict=True)]
        return self.created(
            req,
            "security_group_rule",
            (wanted, is_bulk),
            functools.partial(self.conductor.security_group_rule_create, req.context),
            lambda rule: views.rule(rule, groups[rule.security_group_id].project_id),
        )

    def delete_security_group_rule(self, req: ServiceRequest, id: str) -> Response:
        self.conductor.security_group_rule_delete(req.context, id)
        return Response(status=204)


def _require_own(req: ServiceRequest, fields: dict[str, Any]) -> None:
    if requests.project(req, fields) != (req.context.project_id or ""):
        raise exceptions.ValidationError(detail="Only the group's own project can create it.")


def _name(fields: dict[str, Any]) -> str:
    name = requests.text(fields, "name")
    if not name or not name.strip():
        raise exceptions.ValidationError(detail="Invalid input for name. A security group needs a name.")
    return name


def _rule(fields: dict[str, Any], group_id: str) -> SecurityGroupRule:
    direction, ethertype = fields.get("direction"), fields.get("ethertype") or IPV4
    if not isinstance(direction, str):
        raise exceptions.ValidationError(detail="Failed to parse request. Required attribute 'direction' not specified")
    known = {ethertype.lower(): ethertype for ethertype in (IPV4, IPV6)}
    return SecurityGroupRule(
        id="",
        security_group_id=group_id,
        direction=direction,
        ethertype=known.get(str(ethertype).lower(), str(ethertype)[:16]),
        protocol=_protocol(fields.get("protocol")),
        port_range_min=_port(fields, "port_range_min"),
        port_range_max=_port(fields, "port_range_max"),
        remote_ip_prefix=_source(fields, "remote_ip_prefix"),
        remote_group_id=_source(fields, "remote_group_id"),
        remote_address_group_id=requests.an_id(fields, "remote_address_group_id"),
        description=requests.text(fields, "description"),
        tags=requests.tags(fields) or None,
    )


def _source(fields: dict[str, Any], name: str) -> str | None:
    """Return where a rule's packets come from or go to. An empty text is refused: it would mean all addresses."""
    found = requests.text(fields, name)
    if found == "":
        raise exceptions.ValidationError(detail=f"Invalid input for {name}. Use null, or leave it out, for all.")
    return found


def _port(fields: dict[str, Any], name: str) -> int | None:
    try:
        return requests.number(fields, name, 0, 65535)
    except exceptions.ValidationError as error:
        raise exceptions.ValidationError(
            detail=f"Invalid value for port {str(fields[name])[:16]}: {error.message}"
        ) from error


def _protocol(value: Any) -> str | None:
    if value is None or str(value).lower() in _ANY:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise exceptions.ValidationError(detail="Invalid input for protocol. It must be a name or a number.")
    return str(value).lower()[:64]
