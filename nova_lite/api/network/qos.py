"""QoS policies, and their rules: limits of the bandwidth of ports and floating addresses, and marks of packets."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Iterator
from typing import Annotated, Any, TypeAlias

from nova_lite.api.http.bodies import Body
from nova_lite.api.http.rest import ServiceRequest, ServiceRoute, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.network import fields, listing, requests, views
from nova_lite.api.network.objects import NetworkObjects
from nova_lite.api.network.resource import NetworkResource
from nova_lite.base import exceptions
from nova_lite.objects import NetworkObject, QosPolicy
from nova_lite.objects.network_api_resources import BANDWIDTH_LIMIT, DSCP_MARKING, QOS_RULES
from nova_lite.objects.security_group import EGRESS, INGRESS
from nova_lite.policies import network_service as policies

_, _CREATE, _UPDATE, _ = policies.QOS_POLICY
_PATH, _KEY = "/qos/policies", "policy"
_MAX_KBPS = 2**31 - 1
_DIRECTIONS = (EGRESS, INGRESS)
#: Marks of RFC 2474, 2597, 3246 and 5865, as in Neutron.
_MARKS = (0, *range(8, 39, 2), 40, 46, 48, 56)


def _one_of(value: Any, name: str, allowed: tuple[Any, ...]) -> Any:
    if isinstance(value, str) and value.isascii() and value.isdecimal():
        value = int(value[:9])
    if value not in allowed or isinstance(value, bool):
        raise fields.invalid(name, f"It must be one of {', '.join(map(str, allowed))}.")
    return value


_RATE = functools.partial(fields.number, lowest=1, highest=_MAX_KBPS)
Rate: TypeAlias = Annotated[int, fields.checked(_RATE, required=True, minimum=1, maximum=_MAX_KBPS)]
Burst: TypeAlias = Annotated[int, fields.within(0, _MAX_KBPS)]
Direction: TypeAlias = Annotated[
    str, fields.checked(functools.partial(_one_of, allowed=_DIRECTIONS), enum=list(_DIRECTIONS))
]
Mark: TypeAlias = Annotated[
    int, fields.checked(functools.partial(_one_of, allowed=_MARKS), required=True, enum=list(_MARKS))
]


class _Policy(fields.Named):
    is_default: fields.Flag = False
    shared: fields.Flag = False


class NewQosPolicy(_Policy):
    tags: fields.Tags = []
    project_id: fields.Text = ""
    tenant_id: fields.Text = ""


class ChangedQosPolicy(_Policy):
    pass


class _BandwidthLimit(Body, kw_only=True):
    max_burst_kbps: Burst = 0
    direction: Direction = EGRESS


class NewBandwidthLimit(_BandwidthLimit, kw_only=True):
    max_kbps: Rate


class ChangedBandwidthLimit(_BandwidthLimit, kw_only=True):
    max_kbps: Rate = 1


class NewMark(Body, kw_only=True):
    dscp_mark: Mark


class ChangedMark(Body):
    dscp_mark: Mark = 0


#: Bodies of new and changed rules, by type.
_BODIES: dict[str, tuple[type[Body], type[Body]]] = {
    BANDWIDTH_LIMIT: (NewBandwidthLimit, ChangedBandwidthLimit),
    DSCP_MARKING: (NewMark, ChangedMark),
}


class QosPolicies(NetworkObjects[QosPolicy]):
    """QoS policies."""

    path, kind, key = _PATH, "policies", _KEY
    record, rules = QosPolicy, policies.QOS_POLICY

    def view(self, found: NetworkObject) -> views.View:
        return views.qos_policy(found)

    def missing(self, id: str) -> exceptions.NotFound:
        return exceptions.QosPolicyNotFound(policy_id=id)

    @route("POST", _PATH, _CREATE, body=NewQosPolicy, key=_KEY, response=_KEY, status=201)
    def create(self, req: ServiceRequest) -> views.View:
        return self.make(req, requests.new(req, QosPolicy, requests.read(req, NewQosPolicy)))

    @route("PUT", f"{_PATH}/{{id}}", _UPDATE, body=ChangedQosPolicy, key=_KEY, response=_KEY)
    def update(self, req: ServiceRequest, id: str) -> views.View:
        return self.changed(req, self.find(req, id), requests.changes(req, ChangedQosPolicy))


class QosRules(NetworkResource):
    """Rules of QoS policies. The routes exist for each type."""

    @classmethod
    def declared_routes(cls) -> Iterator[ServiceRoute]:
        for kind, (new, changed) in _BODIES.items():
            path, key = f"{_PATH}/{{policy_id}}/{kind}_rules", f"{kind}_rule"
            one, (get, create, update, delete) = f"{path}/{{id}}", policies.QOS_RULES[kind]
            query = listing.parameters(views.ATTRIBUTES[f"{key}s"])
            made = functools.partial(ServiceRoute, key=key, response=key, resource=cls)
            yield ServiceRoute("GET", path, "index", get, query=query, response=f"{key}s", resource=cls)
            yield ServiceRoute("GET", one, "show", get, query=("fields",), response=key, resource=cls)
            yield made("POST", path, "create", create, body=new, status=201)
            yield made("PUT", one, "update", update, body=changed)
            yield ServiceRoute("DELETE", one, "delete", delete, status=204, resource=cls)

    def index(self, req: ServiceRequest, policy_id: str) -> Response:
        rules = [rule for rule in self._policy(req, policy_id).rules if rule["type"] == _kind(req)]
        return self.listed(req, listing.constant([views.qos_rule(rule) for rule in rules]))

    def show(self, req: ServiceRequest, policy_id: str, id: str) -> views.View:
        return listing.cut(req, views.qos_rule(self._rule(req, self._policy(req, policy_id), id)))

    def create(self, req: ServiceRequest, policy_id: str) -> views.View:
        kind = _kind(req)
        body = requests.read(req, _BODIES[kind][0])
        rule = {"id": str(uuid.uuid4()), "type": kind} | {name: getattr(body, name) for name in QOS_RULES[kind]}
        self._change(req, self._policy(req, policy_id), {"add_rule": rule})
        return views.qos_rule(rule)

    def update(self, req: ServiceRequest, policy_id: str, id: str) -> views.View:
        changes = requests.changes(req, _BODIES[_kind(req)][1])
        policy = self._policy(req, policy_id)
        change = {"id": self._rule(req, policy, id)["id"], **changes}
        return views.qos_rule(self._rule(req, self._change(req, policy, {"change_rule": change}), id))

    def delete(self, req: ServiceRequest, policy_id: str, id: str) -> None:
        policy = self._policy(req, policy_id)
        self._change(req, policy, {"remove_rule": self._rule(req, policy, id)["id"]})

    def _change(self, req: ServiceRequest, policy: QosPolicy, changes: dict[str, Any]) -> QosPolicy:
        return views.as_kind(
            QosPolicy, self.conductor.network_object_update(req.context, QosPolicies.kind, policy.id, changes)
        )

    def _policy(self, req: ServiceRequest, policy_id: str) -> QosPolicy:
        return self.app.part(QosPolicies).find(req, policy_id)

    @staticmethod
    def _rule(req: ServiceRequest, policy: QosPolicy, id: str) -> dict[str, Any]:
        for rule in policy.rules:
            if (rule["id"], rule["type"]) == (id, _kind(req)):
                return rule
        raise exceptions.QosRuleNotFound(rule_id=id[:64], policy_id=policy.id)


def _kind(req: ServiceRequest) -> str:
    """Return the type of the rules that a request is about."""
    return req.service_route.path.split("/")[4].removesuffix("_rules")


class QosRuleTypes(NetworkResource):
    """Types of rules that hosts enforce."""

    _QUERY = ("all_rules", "all_supported_rules", "type", "fields", "sort_key", "sort_dir", "limit", "marker")

    @route("GET", "/qos/rule-types", policies.QOS_RULE_TYPE_GET, query=_QUERY, response="rule_types")
    def index(self, req: ServiceRequest) -> list[views.View]:
        """List the types. Each host enforces all of them."""
        wanted = req.GET.getall("type")
        return [{"type": kind} for kind in _BODIES if not wanted or kind in wanted]

    @route("GET", "/qos/rule-types/{type}", policies.QOS_RULE_TYPE_GET, query=("fields",), response="rule_type")
    def show(self, req: ServiceRequest, type: str) -> views.View:
        """Show the parameters that rules of a type have."""
        if type not in _BODIES:
            raise exceptions.NotFound(f"Rule type {type[:64]} could not be found.")
        return {"type": type, "drivers": [{"name": "hosts", "supported_parameters": _PARAMETERS[type]}]}


def _range(name: str, start: int) -> views.View:
    values = {"start": start, "end": _MAX_KBPS}
    return {"parameter_name": name, "parameter_type": "range", "parameter_values": values}


def _choices(name: str, values: tuple[Any, ...]) -> views.View:
    return {"parameter_name": name, "parameter_type": "choices", "parameter_values": list(values)}


_PARAMETERS = {
    BANDWIDTH_LIMIT: [_range("max_kbps", 1), _range("max_burst_kbps", 0), _choices("direction", _DIRECTIONS)],
    DSCP_MARKING: [_choices("dscp_mark", _MARKS)],
}
