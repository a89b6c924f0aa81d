"""Security groups and their rules."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from nova_lite.api.http.bodies import SAME, Body
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.network import fields, listing, requests, views
from nova_lite.api.network.resource import NetworkResource, lists, shows
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.objects import ListQuery, NetworkResources, SecurityGroup, SecurityGroupRule
from nova_lite.objects.security_group import IPV4, IPV6
from nova_lite.policies import network_service as policies
from nova_lite.rpcapi.conductor import ConductorRPC

_GROUPS, _GROUP, _KEY = "/security-groups", "/security-groups/{id}", "security_group"
_RULES, _RULE, _RULE_KEY = "/security-group-rules", "/security-group-rules/{id}", "security_group_rule"
#: Texts for all protocols.
_ANY = ("", "any", "0", "ip")


def _name(value: Any, name: str) -> str:
    found = "" if value is None else fields.text(value, name)
    if not found.strip():
        raise fields.invalid(name, "A security group needs a name.")
    return found


def _direction(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise fields.missing(name)
    return value


def _ethertype(value: Any, name: str) -> str:
    found = str(value or IPV4)
    return {known.lower(): known for known in (IPV4, IPV6)}.get(found.lower(), found[:16])


def _protocol(value: Any, name: str) -> str | None:
    if str(value).lower() in _ANY:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise fields.invalid(name, "It must be a name or a number.")
    return str(value).lower()[:64]


def _port(value: Any, name: str, **limits: int) -> int:
    try:
        return fields.number(value, name, **limits)
    except exceptions.ValidationError as error:
        raise exceptions.ValidationError(detail=f"Invalid value for port {str(value)[:16]}: {error.message}") from error


def _remote(value: Any, name: str) -> str:
    """Return where a rule's packets come from or go to. An empty text is refused: it would mean all addresses."""
    if value == "":
        raise fields.invalid(name, "Use null, or leave it out, for all.")
    return fields.text(value, name)


GroupName: TypeAlias = Annotated[str, fields.checked(_name, null=True, maxLength=255)]
Direction: TypeAlias = Annotated[str, fields.checked(_direction, required=True)]
EtherType: TypeAlias = Annotated[str, fields.checked(_ethertype)]
Protocol: TypeAlias = Annotated[str | None, fields.checked(_protocol)]
RulePort: TypeAlias = Annotated[int | None, fields.within(0, 65535, _port)]
Remote: TypeAlias = Annotated[str | None, fields.checked(_remote)]


class NewGroup(fields.Owned, kw_only=True):
    name: GroupName
    description: fields.Text = ""
    tags: fields.Tags = []
    stateful: fields.Flag = True


class ChangedGroup(Body):
    name: GroupName = ""
    description: fields.Text = ""
    stateful: fields.Flag = SAME
    project_id: fields.Ignored = SAME
    tenant_id: fields.Ignored = SAME


class NewRule(Body):
    security_group_id: fields.RequiredId
    direction: Direction
    ethertype: EtherType = IPV4
    protocol: Protocol = None
    port_range_min: RulePort = None
    port_range_max: RulePort = None
    remote_ip_prefix: Remote = None
    remote_group_id: Remote = None
    remote_address_group_id: fields.Id = None
    description: fields.OptionalText = None
    tags: fields.Tags = []
    project_id: fields.Ignored = SAME
    tenant_id: fields.Ignored = SAME


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

    @shows(_GROUP, policies.GROUP_GET, _KEY)
    def show(self, req: ServiceRequest, id: str) -> views.View:
        return listing.cut(req, views.security_group(_group(self.conductor, req, id)))

    @route("POST", _GROUPS, policies.GROUP_CREATE, body=NewGroup, key=_KEY, response=_KEY, status=201)
    def create(self, req: ServiceRequest) -> Response | views.View:
        bodies, is_bulk = requests.bulk(req, NewGroup)
        if any(requests.project_of(req, body) != (req.context.project_id or "") for body in bodies):
            raise exceptions.ValidationError(detail="Only the group's own project can create it.")
        wanted = [
            SecurityGroup(**{**requests.common(SecurityGroup, body), "id": "", "tags": body.tags or None})
            for body in bodies
        ]
        return self.created(req, (wanted, is_bulk), self._create, views.security_group)

    def _create(self, context: RequestContext, group: SecurityGroup) -> SecurityGroup:
        if group.tags is None:
            return self.conductor.security_group_create(context, group.name, group.description, group.stateful)
        wanted = NetworkResources(security_groups=[group])
        return self.conductor.network_resources_create(context, wanted).security_groups[0]

    @route("PUT", _GROUP, policies.GROUP_UPDATE, body=ChangedGroup, key=_KEY, response=_KEY)
    def update(self, req: ServiceRequest, id: str) -> views.View:
        changes = requests.changes(req, ChangedGroup)
        values = (changes.get(name) for name in ("name", "description", "stateful"))
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

    @route("POST", _RULES, policies.RULE_CREATE, body=NewRule, key=_RULE_KEY, response=_RULE_KEY, status=201)
    def create(self, req: ServiceRequest) -> Response | views.View:
        bodies, is_bulk = requests.bulk(req, NewRule)
        ids = dict.fromkeys(body.security_group_id for body in bodies)
        groups = {id: _group(self.conductor, req, id) for id in ids}
        wanted = [
            SecurityGroupRule(**{**requests.common(SecurityGroupRule, body), "id": "", "tags": body.tags or None})
            for body in bodies
        ]
        return self.created(
            req,
            (wanted, is_bulk),
            self.conductor.security_group_rule_create,
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
