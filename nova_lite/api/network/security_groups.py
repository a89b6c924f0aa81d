"""Security groups and their rules."""

from __future__ import annotations

import functools
from typing import Annotated, Any, TypeAlias

from nova_lite.api.http.bodies import SAME, Body
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.network import listing, requests, views
from nova_lite.api.network.requests import Id, Ignored, OptionalText, Owned, RequiredId, Tags, Text
from nova_lite.api.network.resource import NetworkResource, lists, shows
from nova_lite.base import exceptions
from nova_lite.objects import ListQuery, NetworkResources, SecurityGroup, SecurityGroupRule
from nova_lite.objects.security_group import IPV4, IPV6
from nova_lite.policies import network_service as policies
from nova_lite.rpcapi.conductor import ConductorRPC

_GROUPS, _GROUP, _GROUP_KEY = "/security-groups", "/security-groups/{id}", "security_group"
_RULES, _RULE, _RULE_KEY = "/security-group-rules", "/security-group-rules/{id}", "security_group_rule"
#: Texts for all protocols.
_ANY = ("", "any", "0", "ip")


def _name(fields: dict[str, Any], name: str) -> str:
    found = requests.text(fields, name)
    if not found or not found.strip():
        raise exceptions.ValidationError(detail=f"Invalid input for {name}. A security group needs a name.")
    return found


def _direction(fields: dict[str, Any], name: str) -> str:
    found = fields.get(name)
    if not isinstance(found, str):
        raise exceptions.ValidationError(detail=f"Failed to parse request. Required attribute '{name}' not specified")
    return found


def _ethertype(fields: dict[str, Any], name: str) -> str:
    found = str(fields[name] or IPV4)
    return {known.lower(): known for known in (IPV4, IPV6)}.get(found.lower(), found[:16])


def _protocol(fields: dict[str, Any], name: str) -> str | None:
    found = fields[name]
    if found is None or str(found).lower() in _ANY:
        return None
    if isinstance(found, bool) or not isinstance(found, str | int):
        raise exceptions.ValidationError(detail=f"Invalid input for {name}. It must be a name or a number.")
    return str(found).lower()[:64]


def _port(fields: dict[str, Any], name: str, **limits: int) -> int | None:
    try:
        return requests.number(fields, name, **limits)
    except exceptions.ValidationError as error:
        raise exceptions.ValidationError(
            detail=f"Invalid value for port {str(fields[name])[:16]}: {error.message}"
        ) from error


def _remote(fields: dict[str, Any], name: str) -> str | None:
    """Return where a rule's packets come from or go to. An empty text is refused: it would mean all addresses."""
    found = requests.text(fields, name)
    if found == "":
        raise exceptions.ValidationError(detail=f"Invalid input for {name}. Use null, or leave it out, for all.")
    return found


GroupName: TypeAlias = Annotated[str, requests.checked(_name, maxLength=255)]
OnlyStateful: TypeAlias = Annotated[Any, requests.only(True, why="Security groups of this cloud are always stateful")]
Direction: TypeAlias = Annotated[str, requests.checked(_direction)]
EtherType: TypeAlias = Annotated[str, requests.checked(_ethertype)]
Protocol: TypeAlias = Annotated[str | None, requests.checked(_protocol)]
RulePort: TypeAlias = Annotated[int | None, requests.within(0, 65535, _port)]
Remote: TypeAlias = Annotated[str | None, requests.checked(_remote)]


class NewSecurityGroup(Owned, kw_only=True):
    name: GroupName
    description: Text = ""
    tags: Tags = []
    stateful: OnlyStateful = SAME


class ChangedSecurityGroup(Body):
    name: GroupName = ""
    description: Text = ""
    stateful: OnlyStateful = SAME
    project_id: Ignored = SAME
    tenant_id: Ignored = SAME


class NewSecurityGroupRule(Body):
    security_group_id: RequiredId
    direction: Direction
    ethertype: EtherType = IPV4
    protocol: Protocol = None
    port_range_min: RulePort = None
    port_range_max: RulePort = None
    remote_ip_prefix: Remote = None
    remote_group_id: Remote = None
    remote_address_group_id: Id = None
    description: OptionalText = None
    tags: Tags = []
    project_id: Ignored = SAME
    tenant_id: Ignored = SAME


class SecurityGroups(NetworkResource):
    """Security groups."""

    @lists(_GROUPS, policies.GROUP_GET, "security_groups")
    def index(self, req: ServiceRequest) -> Response:
        """List the groups of the project, including its default group. An admin gets the groups of all projects."""
        whole = bool(req.context.is_admin)
        source = listing.Source(
            lambda query: self.conductor.security_group_list(req.context, whole, None, 0, query),
            lambda group: [views.security_group(group)],
            {"id": "id", "name": "name", "project_id": "project_id", "tenant_id": "project_id"},
        )
        return self.listed(req, source)

    @shows(_GROUP, policies.GROUP_GET, _GROUP_KEY)
    def show(self, req: ServiceRequest, id: str) -> views.View:
        return listing.cut(req, views.security_group(_group(self.conductor, req, id)))

    @route(
        "POST", _GROUPS, policies.GROUP_CREATE, body=NewSecurityGroup, key=_GROUP_KEY, response=_GROUP_KEY, status=201
    )
    def create(self, req: ServiceRequest) -> Response | views.View:
        bodies, is_bulk = requests.bulk(req, NewSecurityGroup)
        if any(requests.project_of(req, body) != (req.context.project_id or "") for body in bodies):
            raise exceptions.ValidationError(detail="Only the group's own project can create it.")
        wanted = [
            SecurityGroup(id="", name=body.name, description=body.description, tags=body.tags or None)
            for body in bodies
        ]
        return self.created(req, (wanted, is_bulk), functools.partial(self._create, req), views.security_group)

    def _create(self, req: ServiceRequest, group: SecurityGroup) -> SecurityGroup:
        if group.tags is None:
            return self.conductor.security_group_create(req.context, group.name, group.description)
        wanted = NetworkResources(security_groups=[group])
        return self.conductor.network_resources_create(req.context, wanted).security_groups[0]

    @route("PUT", _GROUP, policies.GROUP_UPDATE, body=ChangedSecurityGroup, key=_GROUP_KEY, response=_GROUP_KEY)
    def update(self, req: ServiceRequest, id: str) -> views.View:
        changes = requests.changes(req, ChangedSecurityGroup)
        values = (changes.get(name) for name in ("name", "description"))
        group = _group(self.conductor, req, id)
        return views.security_group(self.conductor.security_group_update(req.context, group.id, *values))

    @route("DELETE", _GROUP, policies.GROUP_DELETE, status=204)
    def delete(self, req: ServiceRequest, id: str) -> None:
        self.conductor.security_group_delete(req.context, _group(self.conductor, req, id).id)


class SecurityGroupRules(NetworkResource):
    """Security group rules."""

    @lists(_RULES, policies.RULE_GET, "security_group_rules")
    def index(self, req: ServiceRequest) -> Response:
        names = ("id", "security_group_id", "remote_group_id", "direction", "ethertype", "project_id")
        source = listing.Source(
            lambda query: self.conductor.security_group_rule_list(req.context, query),
            lambda rule: [views.rule(rule, rule.project_id)],
            {**{name: name for name in names}, "tenant_id": "project_id"},
        )
        return self.listed(req, source)

    @shows(_RULE, policies.RULE_GET, _RULE_KEY)
    def show(self, req: ServiceRequest, id: str) -> views.View:
        for rule in self.conductor.security_group_rule_list(req.context, ListQuery(filters={"id": [id]})):
            if rule.id == id:
                return listing.cut(req, views.rule(rule, rule.project_id))
        raise exceptions.SecurityGroupRuleNotFound(rule_id=id[:64])

    @route(
        "POST", _RULES, policies.RULE_CREATE, body=NewSecurityGroupRule, key=_RULE_KEY, response=_RULE_KEY, status=201
    )
    def create(self, req: ServiceRequest) -> Response | views.View:
        bodies, is_bulk = requests.bulk(req, NewSecurityGroupRule)
        ids = dict.fromkeys(body.security_group_id for body in bodies)
        groups = {id: _group(self.conductor, req, id) for id in ids}
        wanted = [
            SecurityGroupRule(**{**requests.common(SecurityGroupRule, body), "id": "", "tags": body.tags or None})
            for body in bodies
        ]
        return self.created(
            req,
            (wanted, is_bulk),
            functools.partial(self.conductor.security_group_rule_create, req.context),
            lambda rule: views.rule(rule, groups[rule.security_group_id].project_id),
        )

    @route("DELETE", _RULE, policies.RULE_DELETE, status=204)
    def delete(self, req: ServiceRequest, id: str) -> None:
        self.conductor.security_group_rule_delete(req.context, id)


def _group(conductor: ConductorRPC, req: ServiceRequest, id: str) -> SecurityGroup:
    """Return a group by its id. The conductor also accepts names, which this API does not."""
    group = conductor.security_group_get(req.context, id)
    if group.id != id:
        raise exceptions.SecurityGroupNotFound(group_id=id[:64])
    return group
