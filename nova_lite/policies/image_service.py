"""Rules of the image service: Glance's names after ``image:``. A target's project is the image's owner."""

from __future__ import annotations

from nova_lite.policies.base import ADMIN, ANYONE, MEMBER, rule

LIST = "image:get_images"
SHOW = "image:get_image"
CREATE = "image:add_image"
UPDATE = "image:modify_image"
DELETE = "image:delete_image"
UPLOAD = "image:upload_image"
DOWNLOAD = "image:download_image"
PUBLICIZE = "image:publicize_image"
COMMUNITIZE = "image:communitize_image"
CHANGE_OWNER = "image:change_owner"
CHOOSE_ID = "image:choose_id"
SCHEMAS = "image:get_schemas"

_ONE = "/v2/images/{image_id}"

RULES = [
    rule(LIST, ANYONE, "List the images one may see", "GET /v2/images"),
    rule(SHOW, ANYONE, "Show an image that one may see", f"GET {_ONE}"),
    rule(CREATE, MEMBER, "Create an image", "POST /v2/images"),
    rule(UPDATE, MEMBER, "Change one's project's image", f"PATCH {_ONE}"),
    rule(DELETE, MEMBER, "Delete one's project's image", f"DELETE {_ONE}"),
    rule(UPLOAD, MEMBER, "Upload the data of one's project's image", f"PUT {_ONE}/file"),
    rule(DOWNLOAD, ANYONE, "Download the data of an image that one may see", f"GET {_ONE}/file"),
    rule(PUBLICIZE, ADMIN, "Make an image public", "POST /v2/images", f"PATCH {_ONE}"),
    rule(COMMUNITIZE, MEMBER, "Make an image usable by all who know it", "POST /v2/images", f"PATCH {_ONE}"),
    rule(CHANGE_OWNER, ADMIN, "Give an image to another project", "POST /v2/images", f"PATCH {_ONE}"),
    rule(
        CHOOSE_ID, ADMIN, "Give a new image an id; one that was in use before must not be used again", "POST /v2/images"
    ),
    rule(SCHEMAS, ANYONE, "Show the schemas", "GET /v2/schemas/images", "GET /v2/schemas/image"),
]
