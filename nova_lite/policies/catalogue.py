"""Rules of what is there to be used: images, networks, limits, the API's extensions."""

from __future__ import annotations

from nova_lite.policies.base import ADMIN, ANYONE, MEMBER, READER, rule

IMAGES_INDEX = "os_compute_api:images:index"
IMAGES_DETAIL = "os_compute_api:images:detail"
IMAGES_SHOW = "os_compute_api:images:show"
IMAGE_METADATA_SHOW = "os_compute_api:image-metadata:show"
IMAGE_METADATA_CHANGE = "os_compute_api:image-metadata:update"
NETWORKS_LIST = "os_compute_api:os-networks:list"
NETWORKS_SHOW = "os_compute_api:os-networks:show"
LIMITS = "os_compute_api:limits"
LIMITS_OTHER = "os_compute_api:limits:other_project"
EXTENSIONS = "os_compute_api:extensions"

RULES = [
    rule(IMAGES_INDEX, ANYONE, "List images", "GET /images"),
    rule(IMAGES_DETAIL, ANYONE, "List images with details", "GET /images/detail"),
    rule(IMAGES_SHOW, ANYONE, "Show an image", "GET /images/{image_id}"),
    rule(
        IMAGE_METADATA_SHOW,
        ANYONE,
        "Show an image's metadata",
        "GET /images/{image_id}/metadata",
        "GET /images/{image_id}/metadata/{key}",
    ),
    rule(
        IMAGE_METADATA_CHANGE,
        MEMBER,
        "Change the metadata of one's own image",
        "POST /images/{image_id}/metadata",
        "PUT /images/{image_id}/metadata",
        "PUT /images/{image_id}/metadata/{key}",
        "DELETE /images/{image_id}/metadata/{key}",
    ),
    rule(NETWORKS_LIST, READER, "List networks", "GET /os-networks"),
    rule(NETWORKS_SHOW, READER, "Show a network", "GET /os-networks/{network_id}"),
    rule(LIMITS, ANYONE, "Show one's own project's limits", "GET /limits"),
    rule(LIMITS_OTHER, ADMIN, "Show another project's limits", "GET /limits"),
    rule(EXTENSIONS, ANYONE, "List the API's extensions", "GET /extensions", "GET /extensions/{alias}"),
]
