"""Facts about the API itself: stores, the use of the quota, schemas, and the tasks that it does not have."""

from __future__ import annotations

from collections.abc import Iterator

from webob.static import BLOCK_SIZE

from nova_lite.api.http.rest import ServiceRequest, ServiceRoute, route
from nova_lite.api.image import imports, views
from nova_lite.api.image.resource import ImageResource
from nova_lite.base import exceptions
from nova_lite.objects import ImageQuery
from nova_lite.policies import image_service as policies

_MIB = 1024 * 1024
_STORE = {"id": imports.STORE, "description": "Files on the image service's machine", "default": "true"}


class Info(ImageResource):
    """Stores and quota."""

    @route("GET", "/info/stores", policies.SCHEMAS, response="stores")
    def stores(self, req: ServiceRequest) -> list[views.View]:
        """List the stores of data: the one directory."""
        return [_STORE]

    @route("GET", "/info/stores/detail", policies.STORES, response="stores")
    def stores_detail(self, req: ServiceRequest) -> list[views.View]:
        properties = {"data_dir": self.store_path, "chunk_size": BLOCK_SIZE, "thin_provisioning": False}
        return [_STORE | {"type": "file", "weight": 0, "properties": properties}]

    @route("GET", "/info/usage", policies.LIST, response="usage")
    def usage(self, req: ServiceRequest) -> views.View:
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
        return {name: {"usage": usage, "limit": limit} for name, (usage, limit) in used.items()}


class Tasks(ImageResource):
    """Tasks: none. An import shows in the status of its image."""

    @route("GET", "/tasks", policies.TASKS)
    def index(self, req: ServiceRequest) -> views.View:
        return {"tasks": [], "first": "/v2/tasks", "schema": "/v2/schemas/tasks"}

    @route("GET", "/images/{id}/tasks", policies.SHOW, response="tasks")
    def of_image(self, req: ServiceRequest, id: str) -> list[views.View]:
        self.conductor.image_get(req.context, id)
        return []

    @route("GET", "/tasks/{id}", policies.TASKS)
    def show(self, req: ServiceRequest, id: str) -> None:
        raise exceptions.NotFound(f"Task {id[:64]} could not be found.")

    @route("POST", "/tasks", policies.TASKS)
    def refuse(self, req: ServiceRequest) -> None:
        raise exceptions.NotServed(what="A task", instead=" Create an image, and upload or import its data.")


class Schemas(ImageResource):
    """Schemas of images and members."""

    @classmethod
    def declared_routes(cls) -> Iterator[ServiceRoute]:
        for made in super().declared_routes():
            for name in views.SCHEMAS:
                yield made._replace(path=made.path + name)

    @route("GET", "/schemas/", policies.SCHEMAS)
    def show(self, req: ServiceRequest) -> views.View:
        return views.SCHEMAS[req.service_route.path.rpartition("/")[2]]
