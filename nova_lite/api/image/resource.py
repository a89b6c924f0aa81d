"""Base of the image API's resources."""

from __future__ import annotations

from nova_lite.api.http.rest import ServiceRequest, ServiceResource
from nova_lite.objects import Image


class ImageResource(ServiceResource):
    """Resource of the image API. Data of images are files below the store's path."""

    @property
    def store_path(self) -> str:
        return str(self.conf.image.store_path)

    def changeable(self, req: ServiceRequest, id: str) -> Image:
        """Return an image that the caller may change. Raises a 404 if the caller may not see it, else a 403."""
        image = self.conductor.image_get(req.context, id)
        req.authorize(req.declared.policy, {"project_id": image.owner})
        return image
