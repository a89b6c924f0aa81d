"""Policies of other services, as texts that the identity API keeps for them. nova_lite itself uses none of them.

`nova-lite-manage policy list` shows the rules of nova_lite.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from nova_lite.api.http.bodies import changed, checked
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.identity import requests, views
from nova_lite.api.identity.content import Content
from nova_lite.api.identity.records import PolicyBlob
from nova_lite.api.identity.requests import Extensible, sized
from nova_lite.api.identity.resource import IdentityResource
from nova_lite.api.identity.views import View
from nova_lite.base import exceptions
from nova_lite_conformance import policies

#: Each API process has all of them in memory.
MAX_POLICIES, MAX_BLOB, MAX_TYPE = 100, 65535, 255

_POLICIES = "/v3/policies"
_FORM = "The {} of a policy"
_Type: TypeAlias = Annotated[str, checked(sized(MAX_TYPE, _FORM), maxLength=MAX_TYPE)]
_Blob: TypeAlias = Annotated[str, checked(sized(MAX_BLOB, _FORM), maxLength=MAX_BLOB)]


class NewPolicy(Extensible):
    type: _Type
    blob: _Blob


class Policies(IdentityResource):
    """Policies of other services."""

    @route("GET", _POLICIES, policies.BLOBS_LIST, response="policies")
    def index(self, req: ServiceRequest) -> Response:
        return self.listed(req, [_policy_view(item, req.base_url) for item in self.content.policies])

    @route("POST", _POLICIES, policies.BLOBS_CREATE, body=NewPolicy, key="policy", status=201)
    def create(self, req: ServiceRequest) -> View:
        made = requests.new(req, PolicyBlob, requests.read(req, NewPolicy))

        def create(content: Content) -> None:
            if len(content.policies) >= MAX_POLICIES:
                raise exceptions.Forbidden(f"There are at most {MAX_POLICIES} policies. Delete the unused ones.")
            content.policies.append(made)

        self.change(create)
        return _policy_view(made, req.base_url)

    @route("GET", f"{_POLICIES}/{{id}}", policies.BLOBS_SHOW, response="policy")
    def show(self, req: ServiceRequest, id: str) -> View:
        return _policy_view(_found(self.content, id), req.base_url)

    @route("PATCH", f"{_POLICIES}/{{id}}", policies.BLOBS_UPDATE, body=changed(NewPolicy), key="policy")
    def update(self, req: ServiceRequest, id: str) -> View:
        return _policy_view(self.updated(req, lambda content: _found(content, id)), req.base_url)

    @route("DELETE", f"{_POLICIES}/{{id}}", policies.BLOBS_DELETE, status=204)
    def delete(self, req: ServiceRequest, id: str) -> None:
        self.change(lambda content: content.policies.remove(_found(content, id)))


def _found(content: Content, id: str) -> PolicyBlob:
    return requests.require("policy", id, content.find(PolicyBlob, id))


def _policy_view(item: PolicyBlob, base_url: str) -> dict[str, Any]:
    shown = requests.attribute_values(item.extra) | {"id": item.id, "type": item.type, "blob": item.blob}
    return views.linked(shown, base_url, "policies")
