"""Rules of the compute API's images (until 2.38). The rules of the image service are in `image_service`."""

from __future__ import annotations

from nova_lite.policies.base import ANYONE, MEMBER, Rules

_images = Rules("os_compute_api:images")
_metadata = Rules("os_compute_api:image-metadata")

INDEX = _images("index", ANYONE, "List images", "GET /images")
DETAIL = _images("detail", ANYONE, "List images with details", "GET /images/detail")
SHOW = _images("show", ANYONE, "Show an image", "GET /images/{image_id}")
DELETE = _images("delete", MEMBER, "Delete an image of the caller's project", "DELETE /images/{image_id}")
METADATA_SHOW = _metadata(
    "show",
    ANYONE,
    "Show an image's metadata",
    "GET /images/{image_id}/metadata",
    "GET /images/{image_id}/metadata/{key}",
)
METADATA_CHANGE = _metadata(
    "update",
    MEMBER,
    "Change the metadata of an image of the caller's project",
    "POST /images/{image_id}/metadata",
    "PUT /images/{image_id}/metadata",
    "PUT /images/{image_id}/metadata/{key}",
    "DELETE /images/{image_id}/metadata/{key}",
)
