"""RBAC policies: they let other projects use a network, subnet pool, address scope or address group."""

from __future__ import annotations

import uuid
from typing import Any

from nova_lite.api.http.rest import ServiceRequest
from nova_lite.api.http.wsgi import Response
from nova_lite.api.network import listing, requests, views
from nova_lite.api.network.objects import ObjectResource
from nova_lite.base import exceptions
from nova_lite.objects import RbacPolicy
from nova_lite.objects.network_api_resources import EVERYBODY, EXTERNAL, SHARED
from nova_lite.policies import network_service as policies

_TYPES = ("network", "subnetpool", "address_scope", "address_group")
_CHANGES = ("target_tenant", "target_project_id")
_NEW = ("object_type", "object_id", "action", "project_id", "tenant_id", *_CHANGES)


class RbacPolicyResource(ObjectResource):
    """Handlers of ``/rbac-policies``."""

    def rbac_policies(self, req: ServiceRequest) -> Response:
        return self.listed_objects(req, "rbac_policies", views.rbac_policy)

    def rbac_policy(self, req: ServiceRequest, id: str) -> Response:
        return listing.shown(req, "rbac_policy", views.rbac_policy(self._policy(req, id)))

    def _policy(self, req: ServiceRequest, id: str) -> RbacPolicy:
        missing = exceptions.RbacPolicyNotFound(policy_id=id[:64])
        return self.find_object(req, ("rbac_policies", id), RbacPolicy, missing)

    def create_rbac_policy(self, req: ServiceRequest) -> Response:
        fields = requests.body(req, "rbac_policy", _NEW, ())
        kind, action = requests.text(fields, "object_type"), requests.text(fields, "action")
        if kind not in _TYPES:
            raise exceptions.ValidationError(
                detail=f"Invalid input for object_type. It must be one of {', '.join(_TYPES)}."
            )
        actions = (SHARED, EXTERNAL) if kind == "network" else (SHARED,)
        if action is None or action not in actions:
            raise exceptions.ValidationError(
                detail=f"Invalid input for action. It must be {' or '.join(actions)} for a {kind}."
            )
        policy = RbacPolicy(
            id=str(uuid.uuid4()),
            project_id=requests.project(req, fields),
            object_type=kind,
            object_id=requests.required_id(fields, "object_id"),
            target=_target(req, fields, policies.RBAC_CREATE_EVERYBODY),
            action=action,
        )
        created = self.conductor.network_object_create(req.context, policy)
        return Response({"rbac_policy": views.rbac_policy(created)}, 201)

    def update_rbac_policy(self, req: ServiceRequest, id: str) -> Response:
        fields = requests.body(req, "rbac_policy", _CHANGES, ())
        policy = self._policy(req, id)
        changes: dict[str, Any] = {}
        if fields:
            changes["target"] = _target(req, fields, policies.RBAC_UPDATE_EVERYBODY)
        updated = self.conductor.network_object_update(req.context, "rbac_policies", policy.id, changes)
        return Response({"rbac_policy": views.rbac_policy(updated)})

    def delete_rbac_policy(self, req: ServiceRequest, id: str) -> Response:
        self.conductor.network_object_delete(req.context, "rbac_policies", self._policy(req, id).id)
        return Response(status=204)


def _target(req: ServiceRequest, fields: dict[str, Any], rule: str) -> str:
    target = requests.text(fields, "target_tenant") or requests.text(fields, "target_project_id")
    if not target:
        raise exceptions.ValidationError(
            detail="Invalid input for target_tenant. It must be the id of a project, or '*' for all projects."
        )
    if target == EVERYBODY:
        req.authorize(rule)
    return target
