"""Policies of other services, as texts that the identity API keeps for them. nova_lite itself uses none of them.

`nova-lite-manage policy list` shows the rules of nova_lite.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, TypeVar

from nova_lite.api.http.rest import ServiceRequest, ServiceRoute
from nova_lite.api.http.wsgi import Response
from nova_lite.api.identity import listing, requests, views
from nova_lite.api.identity.authority import Authority
from nova_lite.api.identity.content import Content
from nova_lite.api.identity.records import PolicyBlob
from nova_lite.base import exceptions
from nova_lite.policies import identity as policies

T = TypeVar("T")

#: Each API process has all of them in memory.
MAX_POLICIES, MAX_BLOB, MAX_TYPE = 100, 65535, 255

_POLICIES = "/v3/policies"
_FIELDS = ("id", "type", "blob", "links")


class IdentityPolicies:
    """Mixin of `IdentityApp`: the handlers of such texts."""

    authority: Authority
    routes: tuple[ServiceRoute, ...] = (
        ServiceRoute("GET", _POLICIES, "list_policies", policies.BLOBS_LIST),
        ServiceRoute("POST", _POLICIES, "create_policy", policies.BLOBS_CREATE),
        ServiceRoute("GET", f"{_POLICIES}/{{id}}", "show_policy", policies.BLOBS_SHOW),
        ServiceRoute("PATCH", f"{_POLICIES}/{{id}}", "update_policy", policies.BLOBS_UPDATE),
        ServiceRoute("DELETE", f"{_POLICIES}/{{id}}", "delete_policy", policies.BLOBS_DELETE),
    )

    def list_policies(self, req: ServiceRequest) -> Response:
        return listing.listed(
            req, "policies", [_policy_view(item, req.base_url) for item in self.authority.content.policies]
        )

    def create_policy(self, req: ServiceRequest) -> Response:
        body = requests.body_object(req, "policy")
        made = PolicyBlob(id=uuid.uuid4().hex, type="", blob="")
        _set(req, made, {"type": None, "blob": None} | body)

        def create(content: Content) -> None:
            if len(content.policies) >= MAX_POLICIES:
                raise exceptions.Forbidden(f"There are at most {MAX_POLICIES} policies. Delete the unused ones.")
            content.policies.append(made)

        self._change(create)
        return Response({"policy": _policy_view(made, req.base_url)}, 201)

    def show_policy(self, req: ServiceRequest, id: str) -> Response:
        return Response({"policy": _policy_view(_found(self.authority.content, id), req.base_url)})

    def update_policy(self, req: ServiceRequest, id: str) -> Response:
        body = requests.body_object(req, "policy")

        def update(content: Content) -> PolicyBlob:
            found = _found(content, id)
            _set(req, found, body)
            return found

        return Response({"policy": _policy_view(self._change(update), req.base_url)})

    def delete_policy(self, req: ServiceRequest, id: str) -> Response:
        self._change(lambda content: content.policies.remove(_found(content, id)))
        return Response(status=204)

    def _change(self, function: Callable[[Content], T]) -> T:
        return self.authority.replica.change(function)


def _found(content: Content, id: str) -> PolicyBlob:
    return requests.require("policy", id, content.find(PolicyBlob, id))


def _set(req: ServiceRequest, changed: PolicyBlob, body: dict[str, Any]) -> None:
    for name, longest in (("type", MAX_TYPE), ("blob", MAX_BLOB)):
        if name in body:
            value = requests.text_field(body, name)
            if not 0 < len(value) <= longest:
                raise exceptions.ValidationError(detail=f"The {name} of a policy has 1 to {longest} characters.")
            setattr(changed, name, value)
    changed.extra = requests.attributes(req, "policy", _FIELDS, changed.extra)


def _policy_view(item: PolicyBlob, base_url: str) -> dict[str, Any]:
    shown = requests.attribute_values(item.extra) | {"id": item.id, "type": item.type, "blob": item.blob}
    return views.linked(shown, base_url, "policies")
