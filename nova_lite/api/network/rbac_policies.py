"""RBAC policies: they let other projects use a network, subnet pool, address scope or address group."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from nova_lite.api.http.bodies import Body
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.network import requests, views
from nova_lite.api.network.objects import Kind, NetworkObjects
from nova_lite.api.network.requests import Owned, RequiredId, Text
from nova_lite.api.network.resource import lists, shows
from nova_lite.base import exceptions
from nova_lite.objects import RbacPolicy
from nova_lite.objects.network_api_resources import EVERYBODY, EXTERNAL, SHARED
from nova_lite.policies import network_service as policies

_GET, _CREATE, _UPDATE, _DELETE = policies.RBAC
_PATH, _KEY = "/rbac-policies", "rbac_policy"
_TYPES = ("network", "subnetpool", "address_scope", "address_group")


def _type(fields: dict[str, Any], name: str) -> str:
    found = requests.text(fields, name)
    if found not in _TYPES:
        raise exceptions.ValidationError(detail=f"Invalid input for {name}. It must be one of {', '.join(_TYPES)}.")
    return found


Type: TypeAlias = Annotated[str, requests.checked(_type, enum=_TYPES)]


class NewRbacPolicy(Owned, kw_only=True):
    object_type: Type
    object_id: RequiredId
    action: Text = ""
    target_tenant: Text = ""
    target_project_id: Text = ""


class ChangedRbacPolicy(Body):
    target_tenant: Text = ""
    target_project_id: Text = ""


class RbacPolicies(NetworkObjects[RbacPolicy]):
    """RBAC policies."""

    kind = Kind("rbac_policies", RbacPolicy, views.rbac_policy, lambda id: exceptions.RbacPolicyNotFound(policy_id=id))

    @lists(_PATH, _GET, "rbac_policies")
    def index(self, req: ServiceRequest) -> Response:
        return self.listed_objects(req)

    @shows(f"{_PATH}/{{id}}", _GET, _KEY)
    def show(self, req: ServiceRequest, id: str) -> views.View:
        return self.shown(req, id)

    @route("POST", _PATH, _CREATE, body=NewRbacPolicy, key=_KEY, response=_KEY, status=201)
    def create(self, req: ServiceRequest) -> views.View:
        body = requests.read(req, NewRbacPolicy)
        actions = (SHARED, EXTERNAL) if body.object_type == "network" else (SHARED,)
        if body.action not in actions:
            raise exceptions.ValidationError(
                detail=f"Invalid input for action. It must be {' or '.join(actions)} for a {body.object_type}."
            )
        target = _target(req, body.target_tenant or body.target_project_id, policies.RBAC_CREATE_EVERYBODY)
        return self.make(req, requests.new(req, RbacPolicy, body, target=target))

    @route("PUT", f"{_PATH}/{{id}}", _UPDATE, body=ChangedRbacPolicy, key=_KEY, response=_KEY)
    def update(self, req: ServiceRequest, id: str) -> views.View:
        sent = requests.changes(req, ChangedRbacPolicy)
        policy = self.find(req, id)
        target = sent.get("target_tenant") or sent.get("target_project_id")
        changes = {"target": _target(req, target, policies.RBAC_UPDATE_EVERYBODY)} if sent else {}
        return self.changed(req, policy, changes)

    @route("DELETE", f"{_PATH}/{{id}}", _DELETE, status=204)
    def delete(self, req: ServiceRequest, id: str) -> None:
        self.deleted(req, id)


def _target(req: ServiceRequest, target: str | None, rule: str) -> str:
    if not target:
        raise exceptions.ValidationError(
            detail="Invalid input for target_tenant. It must be the id of a project, or '*' for all projects."
        )
    if target == EVERYBODY:
        req.authorize(rule)
    return target
