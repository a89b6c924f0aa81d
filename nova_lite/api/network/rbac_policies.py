"""RBAC policies: they let other projects use a network or another resource of its owner."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from nova_lite.api.http.bodies import Body
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.network import fields, requests, views
from nova_lite.api.network.objects import NetworkObjects
from nova_lite.base import exceptions
from nova_lite.objects import NetworkObject, RbacPolicy
from nova_lite.objects.network_api_resources import EVERYBODY, EXTERNAL, SHARED
from nova_lite.policies import network_service as policies

_, _CREATE, _UPDATE, _ = policies.RBAC
_PATH, _KEY = "/rbac-policies", "rbac_policy"
_TYPES = ("network", "subnetpool", "address_scope", "address_group", "qos_policy", "security_group")


def _type(value: Any, name: str) -> str:
    if value not in _TYPES:
        raise fields.invalid(name, f"It must be one of {', '.join(_TYPES)}.")
    return str(value)


Type: TypeAlias = Annotated[str, fields.checked(_type, null=True, enum=_TYPES)]


class NewRbacPolicy(fields.Owned, kw_only=True):
    object_type: Type
    object_id: fields.RequiredId
    action: fields.Text = ""
    target_tenant: fields.Text = ""
    target_project_id: fields.Text = ""


class ChangedRbacPolicy(Body):
    target_tenant: fields.Text = ""
    target_project_id: fields.Text = ""


class RbacPolicies(NetworkObjects[RbacPolicy]):
    """RBAC policies."""

    path, kind, key = _PATH, "rbac_policies", _KEY
    record, rules = RbacPolicy, policies.RBAC

    def view(self, found: NetworkObject) -> views.View:
        return views.rbac_policy(found)

    def missing(self, id: str) -> exceptions.NotFound:
        return exceptions.RbacPolicyNotFound(policy_id=id)

    @route("POST", _PATH, _CREATE, body=NewRbacPolicy, key=_KEY, response=_KEY, status=201)
    def create(self, req: ServiceRequest) -> views.View:
        body = requests.read(req, NewRbacPolicy)
        actions = (SHARED, EXTERNAL) if body.object_type == "network" else (SHARED,)
        if body.action not in actions:
            raise fields.invalid("action", f"It must be {' or '.join(actions)} for a {body.object_type}.")
        target = _target(req, body.target_tenant or body.target_project_id, policies.RBAC_CREATE_EVERYBODY)
        return self.make(req, requests.new(req, RbacPolicy, body, target=target))

    @route("PUT", f"{_PATH}/{{id}}", _UPDATE, body=ChangedRbacPolicy, key=_KEY, response=_KEY)
    def update(self, req: ServiceRequest, id: str) -> views.View:
        sent = requests.changes(req, ChangedRbacPolicy)
        policy = self.find(req, id)
        target = sent.get("target_tenant") or sent.get("target_project_id")
        changes = {"target": _target(req, target, policies.RBAC_UPDATE_EVERYBODY)} if sent else {}
        return self.changed(req, policy, changes)


def _target(req: ServiceRequest, target: str | None, rule: str) -> str:
    if not target:
        raise fields.invalid("target_tenant", "It must be the id of a project, or '*' for all projects.")
    if target == EVERYBODY:
        req.authorize(rule)
    return target
