"""Projects that an image is shared with."""

from __future__ import annotations

from typing import Annotated

from nova_lite.api.http import bodies
from nova_lite.api.http.bodies import Body, checked
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.image import listing, requests, views
from nova_lite.api.image.resource import ImageResource
from nova_lite.api.image.views import View
from nova_lite.base import exceptions
from nova_lite.policies import image_service as policies

_ALL = "/images/{id}/members"
_ONE = f"{_ALL}/{{member_id}}"


class NewMember(Body):
    member: Annotated[str, checked(requests.member_id, maxLength=255)]


class MemberStatus(Body):
    status: Annotated[str, requests.one_of(listing.MEMBER_STATUSES)]


class Members(ImageResource):
    """Projects that an image is shared with."""

    @route("GET", _ALL, policies.MEMBERS)
    def index(self, req: ServiceRequest, id: str) -> View:
        found = self.conductor.image_member_list(req.context, id)
        return {"members": [views.member(item) for item in found], "schema": "/v2/schemas/members"}

    @route("GET", _ONE, policies.MEMBERS)
    def show(self, req: ServiceRequest, id: str, member_id: str) -> View:
        for found in self.conductor.image_member_list(req.context, id):
            if found.member_id == member_id:
                return views.member(found)
        raise exceptions.NotFound(f"{member_id[:64]} not found in the member list of the image {id}.")

    @route("POST", _ALL, policies.ADD_MEMBER, authorizes=True, body=NewMember)
    def create(self, req: ServiceRequest, id: str) -> View:
        image = self.changeable(req, id)
        member_id = bodies.read(NewMember, req.json_object()).member
        return views.member(self.conductor.image_member_add(req.context, image.id, member_id))

    @route("PUT", _ONE, policies.UPDATE_MEMBER, body=MemberStatus)
    def update(self, req: ServiceRequest, id: str, member_id: str) -> View:
        status = bodies.read(MemberStatus, req.json_object()).status
        return views.member(self.conductor.image_member_update(req.context, id, member_id, status))

    @route("DELETE", _ONE, policies.REMOVE_MEMBER, authorizes=True, status=204)
    def delete(self, req: ServiceRequest, id: str, member_id: str) -> None:
        self.conductor.image_member_delete(req.context, self.changeable(req, id).id, member_id)
