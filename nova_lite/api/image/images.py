"""Images: lists, fields, properties and tags, and the projects that an image is shared with."""

from __future__ import annotations

import functools
import uuid
from typing import Annotated, Any

import msgspec
import webob.exc

from nova_lite.api.http import bodies
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.image import imports, listing, requests, views
from nova_lite.api.image.imports import Imports
from nova_lite.api.image.requests import NewImage
from nova_lite.api.image.resource import ImageResource
from nova_lite.base import exceptions
from nova_lite.image import store
from nova_lite.objects import Image
from nova_lite.policies import image_service as policies

PATCH_TYPES = ("application/openstack-images-v2.1-json-patch", "application/openstack-images-v2.0-json-patch")
_ONE = "/images/{id}"
_MEMBERS = f"{_ONE}/members"
_MEMBER = f"{_MEMBERS}/{{member_id}}"


class Images(ImageResource):
    """Images."""

    @route("GET", "/images", policies.LIST, query=listing.PARAMETERS)
    def index(self, req: ServiceRequest) -> views.View:
        return listing.page(req, functools.partial(self.conductor.image_list, req.context), self.conf.api.max_limit)

    @route("GET", _ONE, policies.SHOW)
    def show(self, req: ServiceRequest, id: str) -> views.View:
        return views.show(self.conductor.image_get(req.context, id))

    @route("POST", "/images", policies.CREATE, body=NewImage, status=201)
    def create(self, req: ServiceRequest) -> Response:
        image = self._new(req, req.json_object())
        self._authorize_visibility(req, image.visibility, image.owner)
        created = self.conductor.image_create(req.context, image)
        headers = {
            "Location": f"{req.base_url}/images/{created.id}",
            "OpenStack-image-import-methods": ",".join(self.app.part(Imports).methods()),
            "OpenStack-image-store-ids": imports.STORE,
        }
        return Response(views.show(created), 201, headers)

    def _new(self, req: ServiceRequest, body: dict[str, Any]) -> Image:
        given = requests.fields({name: value for name, value in body.items() if name in views.FIELDS})
        properties = requests.properties({name: value for name, value in body.items() if name not in views.FIELDS})
        if "id" in given:
            # Compute hosts cache images by id. A user who reuses an old id would replace the image that others get.
            req.authorize(policies.CHOOSE_ID)
        if given.setdefault("owner", req.context.project_id) != req.context.project_id:
            req.authorize(policies.CHANGE_OWNER)
        fields = msgspec.structs.asdict(NewImage(**{"id": str(uuid.uuid4()), **given}))
        return Image(status="queued", properties=properties, **fields)

    @route("PATCH", _ONE, policies.UPDATE, authorizes=True)
    def update(self, req: ServiceRequest, id: str) -> views.View:
        image = self.changeable(req, id)
        if req.content_type not in PATCH_TYPES:
            raise webob.exc.HTTPUnsupportedMediaType(explanation=f"Content-Type must be {PATCH_TYPES[0]}.")
        changes = requests.patch(image, req.json_value)
        if "visibility" in changes:
            self._authorize_visibility(req, changes["visibility"], image.owner)
        if changes.get("owner", image.owner) != image.owner:
            req.authorize(policies.CHANGE_OWNER)
        # An upload may have started meanwhile. Its data are checked for the old format, so the format must not change.
        expected = "queued" if {"disk_format", "container_format"} & changes.keys() else None
        changed = self.conductor.image_update(req.context, image.id, changes, expected) if changes else image
        return views.show(changed)

    @route("DELETE", _ONE, policies.DELETE, authorizes=True, status=204)
    def delete(self, req: ServiceRequest, id: str) -> None:
        image = self.changeable(req, id)
        self.conductor.image_delete(req.context, image.id)
        # An import that runs just now moves the staged data into the store, so these are removed first.
        store.remove(imports.staging_path(self.store_path), image.id)
        store.remove(self.store_path, image.id)

    @route("PUT", f"{_ONE}/tags/{{tag}}", policies.UPDATE, authorizes=True, status=204)
    def add_tag(self, req: ServiceRequest, id: str, tag: str) -> None:
        image = self.changeable(req, id)
        requests.tags([*image.tags, tag])
        if tag not in image.tags:
            self.conductor.image_update(req.context, image.id, {}, None, tags={tag: True})

    @route("DELETE", f"{_ONE}/tags/{{tag}}", policies.UPDATE, authorizes=True, status=204)
    def remove_tag(self, req: ServiceRequest, id: str, tag: str) -> None:
        image = self.changeable(req, id)
        if tag not in image.tags:
            raise exceptions.NotFound(f"Image {image.id} has no tag {tag[:64]}.")
        self.conductor.image_update(req.context, image.id, {}, None, tags={tag: False})

    @route("POST", f"{_ONE}/actions/deactivate", policies.DEACTIVATE, authorizes=True, status=204)
    def deactivate(self, req: ServiceRequest, id: str) -> None:
        """Let only admins read the data of an image, and no user make servers or volumes of it."""
        self._change_status(req, id, "active", "deactivated")

    @route("POST", f"{_ONE}/actions/reactivate", policies.REACTIVATE, authorizes=True, status=204)
    def reactivate(self, req: ServiceRequest, id: str) -> None:
        self._change_status(req, id, "deactivated", "active")

    def _change_status(self, req: ServiceRequest, id: str, old: str, new: str) -> None:
        image = self.changeable(req, id)
        if image.status not in (old, new):
            raise exceptions.Forbidden(f"Image {image.id} is {image.status}: it must be {old} or {new}.")
        if image.status == old:
            self.conductor.image_update(req.context, image.id, {"status": new}, old)

    def _authorize_visibility(self, req: ServiceRequest, visibility: str, owner: str | None) -> None:
        rule = {"public": policies.PUBLICIZE, "community": policies.COMMUNITIZE}.get(visibility)
        if rule is not None:
            req.authorize(rule, {"project_id": owner})


class NewMember(bodies.Body):
    member: Annotated[str, bodies.checked(requests.member_id, maxLength=255)]


class MemberStatus(bodies.Body):
    status: Annotated[str, requests.one_of(listing.MEMBER_STATUSES)]


class Members(ImageResource):
    """Projects that an image is shared with."""

    @route("GET", _MEMBERS, policies.MEMBERS)
    def index(self, req: ServiceRequest, id: str) -> views.View:
        found = self.conductor.image_member_list(req.context, id)
        return {"members": [views.member(item) for item in found], "schema": "/v2/schemas/members"}

    @route("GET", _MEMBER, policies.MEMBERS)
    def show(self, req: ServiceRequest, id: str, member_id: str) -> views.View:
        for found in self.conductor.image_member_list(req.context, id):
            if found.member_id == member_id:
                return views.member(found)
        raise exceptions.NotFound(f"{member_id[:64]} not found in the member list of the image {id}.")

    @route("POST", _MEMBERS, policies.ADD_MEMBER, authorizes=True, body=NewMember)
    def create(self, req: ServiceRequest, id: str) -> views.View:
        image = self.changeable(req, id)
        member_id = bodies.read(NewMember, req.json_object()).member
        return views.member(self.conductor.image_member_add(req.context, image.id, member_id))

    @route("PUT", _MEMBER, policies.UPDATE_MEMBER, body=MemberStatus)
    def update(self, req: ServiceRequest, id: str, member_id: str) -> views.View:
        status = bodies.read(MemberStatus, req.json_object()).status
        return views.member(self.conductor.image_member_update(req.context, id, member_id, status))

    @route("DELETE", _MEMBER, policies.REMOVE_MEMBER, authorizes=True, status=204)
    def delete(self, req: ServiceRequest, id: str, member_id: str) -> None:
        self.conductor.image_member_delete(req.context, self.changeable(req, id).id, member_id)
