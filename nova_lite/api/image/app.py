"""The image API: the part of Glance's v2 API that clients need.

Image metadata are rows of the conductor's database. Image data are files on this machine.
"""

from __future__ import annotations

import functools
import logging
import os
import uuid
from collections.abc import Callable
from typing import Any

import webob
import webob.exc
from webob.static import BLOCK_SIZE, FileIter

from nova_lite.api.http import deploy, transfers, wsgi
from nova_lite.api.http.rest import ServiceRequest, ServiceRoute
from nova_lite.api.http.wsgi import Response
from nova_lite.api.image import imports, listing, metadefs, pieces, requests, uploads, views
from nova_lite.base import directory_users, exceptions
from nova_lite.image import store
from nova_lite.image.store import file_path
from nova_lite.objects import Image, ImageQuery
from nova_lite.policies import image_service as policies

LOG = logging.getLogger(__name__)

DATA_TYPE = "application/octet-stream"
PATCH_TYPES = ("application/openstack-images-v2.1-json-patch", "application/openstack-images-v2.0-json-patch")
_MIB = 1024 * 1024

_STORE = {"id": imports.STORE, "description": "Files on the image service's machine", "default": "true"}

_MEMBERS = "/images/{id}/members"
_MEMBER = "/images/{id}/members/{member_id}"


def app_factory(global_conf: dict[str, str], **local_conf: str) -> ImageApp:
    del global_conf, local_conf
    services = deploy.services()
    if services.conf.image.backend != "local":
        raise exceptions.ConfigurationError(
            reason=f"[api] enabled_apis: image needs [image] backend = local, which is {services.conf.image.backend}."
        )
    try:
        directory_users.register(services.conf.image.store_path, services.conf.host)
        store.sweep(services.conf.image.store_path)
        imports.sweep(services.conf.image.store_path)
    except OSError as error:
        raise exceptions.ConfigurationError(
            reason=f"[image] store_path = {services.conf.image.store_path}: {error.strerror}."
        ) from error
    return ImageApp(services)


def _json_fault(body: str, status: str, title: str, environ: dict[str, Any]) -> dict[str, str]:
    """Return Glance's form of an error in JSON, without the markup that its messages have there."""
    del environ
    return {"message": body.removesuffix(_MARKUP), "code": status, "title": title}


#: End of the body of an error for JSON, in the WSGI library.
_MARKUP = "<br /><br />\n\n\n"


class ImageApp(imports.Imports, metadefs.Metadefs):
    """WSGI application, mounted at ``/v2``."""

    strict_slashes = True

    routes = (
        ServiceRoute("GET", "/images", "index", policies.LIST),
        ServiceRoute("POST", "/images", "create", policies.CREATE),
        ServiceRoute("GET", "/images/{id}", "show", policies.SHOW),
        ServiceRoute("PATCH", "/images/{id}", "update", policies.UPDATE, authorizes=True),
        ServiceRoute("DELETE", "/images/{id}", "delete", policies.DELETE, authorizes=True),
        ServiceRoute("PUT", "/images/{id}/tags/{tag}", "add_tag", policies.UPDATE, authorizes=True),
        ServiceRoute("DELETE", "/images/{id}/tags/{tag}", "remove_tag", policies.UPDATE, authorizes=True),
        ServiceRoute("PUT", "/images/{id}/file", "upload", policies.UPLOAD, authorizes=True, streams=True),
        ServiceRoute("GET", "/images/{id}/file", "download", policies.DOWNLOAD),
        ServiceRoute("PUT", "/images/{id}/stage", "stage", policies.UPLOAD, authorizes=True, streams=True),
        ServiceRoute("POST", "/images/{id}/import", "start_import", policies.UPLOAD, authorizes=True),
        ServiceRoute("POST", "/images/{id}/actions/deactivate", "deactivate", policies.DEACTIVATE, authorizes=True),
        ServiceRoute("POST", "/images/{id}/actions/reactivate", "reactivate", policies.REACTIVATE, authorizes=True),
        ServiceRoute("GET", "/images/{id}/tasks", "tasks", policies.SHOW),
        ServiceRoute("GET", _MEMBERS, "members", policies.MEMBERS),
        ServiceRoute("POST", _MEMBERS, "add_member", policies.ADD_MEMBER, authorizes=True),
        ServiceRoute("GET", _MEMBER, "member", policies.MEMBERS),
        ServiceRoute("PUT", _MEMBER, "update_member", policies.UPDATE_MEMBER),
        ServiceRoute("DELETE", _MEMBER, "remove_member", policies.REMOVE_MEMBER, authorizes=True),
        ServiceRoute("GET", "/info/import", "import_info", policies.SCHEMAS),
        ServiceRoute("GET", "/info/stores", "stores", policies.SCHEMAS),
        ServiceRoute("GET", "/info/stores/detail", "stores_detail", policies.STORES),
        ServiceRoute("GET", "/info/usage", "usage", policies.LIST),
        ServiceRoute("GET", "/tasks", "all_tasks", policies.TASKS),
        ServiceRoute("POST", "/tasks", "refuse", policies.TASKS),
        ServiceRoute("GET", "/tasks/{id}", "task", policies.TASKS),
        *metadefs.Metadefs.metadef_routes,
        ServiceRoute("GET", "/schemas/image", "schema", policies.SCHEMAS),
        ServiceRoute("GET", "/schemas/images", "list_schema", policies.SCHEMAS),
        ServiceRoute("GET", "/schemas/member", "member_schema", policies.SCHEMAS),
        ServiceRoute("GET", "/schemas/members", "members_schema", policies.SCHEMAS),
    )

    def __init__(self, services: wsgi.ApiServices) -> None:
        super().__init__(services)
        self.store_path = self.conf.image.store_path

    def fault(self, req: ServiceRequest, code: int, message: str) -> webob.Response:
        """Return the error in Glance's form: HTML, or JSON for a client that prefers that."""
        wanted = req.accept.acceptable_offers(["text/html", "application/json"])
        template = webob.exc.WSGIHTTPException.body_template_obj.template
        error = webob.exc.status_map[code](explanation=message, body_template=template, json_formatter=_json_fault)
        accept = wanted[0][0] if wanted else "text/html"
        return webob.Request.blank("/", headers={"Accept": accept}).get_response(error)

    # --- metadata

    def index(self, req: ServiceRequest) -> Response:
        def fetch(query: ImageQuery) -> list[Image]:
            return self.conductor.image_list(req.context, query)

        return Response(listing.page(req, fetch, self.conf.api.max_limit))

    def show(self, req: ServiceRequest, id: str) -> Response:
        return Response(views.show(self.conductor.image_get(req.context, id)))

    def tasks(self, req: ServiceRequest, id: str) -> Response:
        """List the tasks of an image: none. An import shows in the status of its image."""
        self.conductor.image_get(req.context, id)
        return Response({"tasks": []})

    def create(self, req: ServiceRequest) -> Response:
        image = self._new(req, req.json_object())
        self._authorize_visibility(req, image.visibility, image.owner)
        created = self.conductor.image_create(req.context, image)
        headers = {
            "Location": f"{req.base_url}/images/{created.id}",
            "OpenStack-image-import-methods": ",".join(self.methods()),
            "OpenStack-image-store-ids": imports.STORE,
        }
        return Response(views.show(created), 201, headers)

    def _new(self, req: ServiceRequest, body: dict[str, Any]) -> Image:
        fields = {name: requests.field(name, value) for name, value in body.items() if name in views.FIELDS}
        properties = requests.properties({name: value for name, value in body.items() if name not in views.FIELDS})
        if "os_hidden" in fields:
            fields["hidden"] = fields.pop("os_hidden")
        if "id" in fields:
            # Compute hosts cache images by id. A user who reuses an old id would replace the image that others get.
            req.authorize(policies.CHOOSE_ID)
        if fields.setdefault("owner", req.context.project_id) != req.context.project_id:
            req.authorize(policies.CHANGE_OWNER)
        defaults = {
            "id": str(uuid.uuid4()),
            "name": "",
            "visibility": "shared",
            "disk_format": "",
            "container_format": "",
        }
        return Image(status="queued", properties=properties, **{**defaults, **fields})

    def update(self, req: ServiceRequest, id: str) -> Response:
        image = self._changeable(req, id)
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
        return Response(views.show(changed))

    def delete(self, req: ServiceRequest, id: str) -> Response:
        image = self._changeable(req, id)
        self.conductor.image_delete(req.context, image.id)
        # An import that runs just now moves the staged data into the store, so these are removed first.
        store.remove(imports.staging_path(self.store_path), image.id)
        store.remove(self.store_path, image.id)
        return Response(status=204)

    def add_tag(self, req: ServiceRequest, id: str, tag: str) -> Response:
        image = self._changeable(req, id)
        requests.tags([*image.tags, tag])
        if tag not in image.tags:
            self.conductor.image_update(req.context, image.id, {}, None, tags={tag: True})
        return Response(status=204)

    def remove_tag(self, req: ServiceRequest, id: str, tag: str) -> Response:
        image = self._changeable(req, id)
        if tag not in image.tags:
            raise exceptions.NotFound(f"Image {image.id} has no tag {tag[:64]}.")
        self.conductor.image_update(req.context, image.id, {}, None, tags={tag: False})
        return Response(status=204)

    def deactivate(self, req: ServiceRequest, id: str) -> Response:
        """Let only admins read the data of an image, and no user make servers or volumes of it."""
        return self._change_status(req, id, "active", "deactivated")

    def reactivate(self, req: ServiceRequest, id: str) -> Response:
        return self._change_status(req, id, "deactivated", "active")

    def _change_status(self, req: ServiceRequest, id: str, old: str, new: str) -> Response:
        image = self._changeable(req, id)
        if image.status not in (old, new):
            raise exceptions.Forbidden(f"Image {image.id} is {image.status}: it must be {old} or {new}.")
        if image.status == old:
            self.conductor.image_update(req.context, image.id, {"status": new}, old)
        return Response(status=204)

    def _changeable(self, req: ServiceRequest, id: str) -> Image:
        """Return an image that the caller may change. Raises a 404 if the caller may not see it, else a 403."""
        image = self.conductor.image_get(req.context, id)
        req.authorize(req.declared.policy, {"project_id": image.owner})
        return image

    def _authorize_visibility(self, req: ServiceRequest, visibility: str, owner: str | None) -> None:
        rule = {"public": policies.PUBLICIZE, "community": policies.COMMUNITIZE}.get(visibility)
        if rule is not None:
            req.authorize(rule, {"project_id": owner})

    # --- data

    def upload(self, req: ServiceRequest, id: str) -> webob.Response:
        """Receive the data of a queued image.

        The image is ``saving`` during the upload, so a second upload at the same time is refused. After a failure it is
        ``queued`` again. Its size is reserved in the quota meanwhile: the announced length, or growing steps. A large
        body arrives after this method has returned (`nova_lite.api.http.transfers`).
        """
        return self._receive(req, self._changeable(req, id), uploads.Upload, self.store_path)

    def stage(self, req: ServiceRequest, id: str) -> webob.Response:
        """Receive data that wait for their import. It continues like an upload, but the image is ``uploading`` then.

        With ``Content-Range`` it receives one piece of them (`nova_lite.api.image.pieces`).
        """
        image = self._changeable(req, id)
        try:
            directory = store.prepare_below(self.store_path, imports.STAGING)
        except OSError as error:
            LOG.error("Data cannot be staged: %s", error)
            raise exceptions.ServiceUnavailable("The image's data cannot be stored now.") from error
        header = req.headers.get("Content-Range")
        if header is None:
            return self._receive(req, image, imports.StagedUpload, directory)
        piece = pieces.parse(header, req.content_length)
        return self._receive(req, image, functools.partial(pieces.StagedPiece, piece), directory, piece)

    def start_import(self, req: ServiceRequest, id: str) -> Response:
        return self.import_data(req, self._changeable(req, id))

    def _receive(
        self,
        req: ServiceRequest,
        image: Image,
        make: Callable[..., uploads.Upload],
        directory: str,
        piece: pieces.Piece | None = None,
    ) -> webob.Response:
        if req.content_type != DATA_TYPE:
            raise webob.exc.HTTPUnsupportedMediaType(explanation=f"Content-Type must be {DATA_TYPE}.")
        if not image.disk_format or not image.container_format:
            raise exceptions.Conflict("Properties disk_format, container_format must be set prior to saving data.")
        limit, floor = self.conf.image.max_upload_mb * _MIB, self.conf.image.min_free_mb * _MIB
        receive = req.environ.get(transfers.RECEIVE)
        is_chunked = req.content_length is None and (receive is not None or req.headers.get("Transfer-Encoding"))
        length = None if is_chunked else req.content_length or 0
        total = piece.total if piece else length
        uploads.check_length(total, limit)
        self.sweep_if_due()
        expected = pieces.status_before(image, piece, directory) if piece else "queued"
        self._require_room((total or 0) - (piece.first if piece else 0), floor)
        fault_of = self._fault_of_upload(req)
        upload = make(self.conductor, req.context, directory, image, limit, floor, fault_of)
        if receive is not None:
            receive(upload, req.context.project_id)
        # Its formats cannot change while it is saving.
        reserved = {"status": "saving", "size": uploads.first_reservation(total, limit)}
        upload.image = self.conductor.image_update(req.context, image.id, reserved, expected)
        if receive is not None:
            return webob.Response(status=202)
        return uploads.receive_now(upload, req.environ["wsgi.input"], length)

    def _require_room(self, length: int, floor: int) -> None:
        try:
            store.require_room(self.store_path, length, floor)
        except OSError as error:
            LOG.error("An upload is refused: %s", error)
            raise exceptions.ServiceUnavailable("The image's data cannot be stored now.") from error

    def _fault_of_upload(self, req: ServiceRequest) -> Callable[[Exception], webob.Response]:
        return lambda error: self._fault_of(req, error)

    def download(self, req: ServiceRequest, id: str) -> webob.Response:
        image = self.conductor.image_get(req.context, id)
        if image.status == "deactivated" and not req.context.is_admin:
            raise exceptions.Forbidden(f"Image {image.id} is deactivated: only admins may download its data.")
        if image.status not in views.WITH_DATA:
            return wsgi.to_response(Response(status=204))
        try:
            file = open(file_path(self.store_path, image.id), "rb")  # noqa: SIM115 - the response closes it
        except OSError as error:
            LOG.error("The file of image %s cannot be read: %s", image.id, error)
            raise exceptions.NotFound(f"Image {image.id} has no data.") from error
        # The base class of responses serves ranges of the data.
        response = webob.Response(status=200, content_type=DATA_TYPE, charset=None, conditional_response=True)
        response.accept_ranges = "bytes"
        if image.md5 and req.range is None:
            response.headers["Content-MD5"] = image.md5
        response.app_iter = FileIter(file)
        response.content_length = os.fstat(file.fileno()).st_size
        return response

    # --- projects that an image is shared with

    def members(self, req: ServiceRequest, id: str) -> Response:
        found = self.conductor.image_member_list(req.context, id)
        return Response({"members": [views.member(item) for item in found], "schema": "/v2/schemas/members"})

    def member(self, req: ServiceRequest, id: str, member_id: str) -> Response:
        for found in self.conductor.image_member_list(req.context, id):
            if found.member_id == member_id:
                return Response(views.member(found))
        raise exceptions.NotFound(f"{member_id[:64]} not found in the member list of the image {id}.")

    def add_member(self, req: ServiceRequest, id: str) -> Response:
        image = self._changeable(req, id)
        member_id = requests.member_id(req.json_object().get("member"))
        return Response(views.member(self.conductor.image_member_add(req.context, image.id, member_id)))

    def update_member(self, req: ServiceRequest, id: str, member_id: str) -> Response:
        status = requests.member_status(req.json_object().get("status"))
        return Response(views.member(self.conductor.image_member_update(req.context, id, member_id, status)))

    def remove_member(self, req: ServiceRequest, id: str, member_id: str) -> Response:
        image = self._changeable(req, id)
        self.conductor.image_member_delete(req.context, image.id, member_id)
        return Response(status=204)

    # --- what this service does not have

    def stores(self, req: ServiceRequest) -> Response:
        """List the stores of data: the one directory."""
        return Response({"stores": [_STORE]})

    def stores_detail(self, req: ServiceRequest) -> Response:
        properties = {"data_dir": self.store_path, "chunk_size": BLOCK_SIZE, "thin_provisioning": False}
        return Response({"stores": [_STORE | {"type": "file", "weight": 0, "properties": properties}]})

    def usage(self, req: ServiceRequest) -> Response:
        """Show what the caller's project uses of its quota, with Glance's names. Sizes are in MiB."""
        options, project_id = self.conf.image, req.context.project_id
        query = ImageQuery(filters={"owner": [project_id]} if project_id else {"id": []})
        own = self.conductor.image_list(req.context, query)
        staged = [image for image in own if image.status == imports.STAGED]
        arriving = [image for image in own if image.status in ("saving", imports.STAGED)]
        used = {
            "image_size_total": (sum(image.size for image in own) // _MIB, options.image_size_total),
            "image_stage_total": (sum(image.size for image in staged) // _MIB, -1),
            "image_count_total": (len(own), options.image_count_total),
            "image_count_uploading": (len(arriving), options.uploads_per_project),
        }
        return Response({"usage": {name: {"usage": usage, "limit": limit} for name, (usage, limit) in used.items()}})

    def all_tasks(self, req: ServiceRequest) -> Response:
        """List the tasks: none. An import shows in the status of its image."""
        return Response({"tasks": [], "first": "/v2/tasks", "schema": "/v2/schemas/tasks"})

    def task(self, req: ServiceRequest, id: str) -> Response:
        raise exceptions.NotFound(f"Task {id[:64]} could not be found.")

    def refuse(self, req: ServiceRequest) -> Response:
        raise exceptions.NotServed(what="A task", instead=" Create an image, and upload or import its data.")

    def schema(self, req: ServiceRequest) -> Response:
        return Response(views.SCHEMA)

    def list_schema(self, req: ServiceRequest) -> Response:
        return Response(views.LIST_SCHEMA)

    def member_schema(self, req: ServiceRequest) -> Response:
        return Response(views.MEMBER_SCHEMA)

    def members_schema(self, req: ServiceRequest) -> Response:
        return Response(views.MEMBERS_SCHEMA)
