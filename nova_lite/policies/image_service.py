"""Rules of the image service: Glance's names after ``image:``. A target's project is the image's owner."""

from __future__ import annotations

from nova_lite.policies.base import ADMIN, ANYONE, MEMBER, Rules

_image = Rules("image")
_ONE = "/v2/images/{image_id}"

LIST = _image("get_images", ANYONE, "List the images one may see", "GET /v2/images")
SHOW = _image("get_image", ANYONE, "Show an image that one may see", f"GET {_ONE}")
CREATE = _image("add_image", MEMBER, "Create an image", "POST /v2/images")
UPDATE = _image("modify_image", MEMBER, "Change one's project's image", f"PATCH {_ONE}")
DELETE = _image("delete_image", MEMBER, "Delete one's project's image", f"DELETE {_ONE}")
UPLOAD = _image("upload_image", MEMBER, "Upload the data of one's project's image", f"PUT {_ONE}/file")
DOWNLOAD = _image("download_image", ANYONE, "Download the data of an image that one may see", f"GET {_ONE}/file")
PUBLICIZE = _image("publicize_image", ADMIN, "Make an image public", "POST /v2/images", f"PATCH {_ONE}")
COMMUNITIZE = _image(
    "communitize_image", MEMBER, "Make an image usable by all who know it", "POST /v2/images", f"PATCH {_ONE}"
)
CHANGE_OWNER = _image("change_owner", ADMIN, "Give an image to another project", "POST /v2/images", f"PATCH {_ONE}")
CHOOSE_ID = _image(
    "choose_id", ADMIN, "Give a new image an id; one that was in use before must not be used again", "POST /v2/images"
)
SCHEMAS = _image("get_schemas", ANYONE, "Show the schemas", "GET /v2/schemas/images", "GET /v2/schemas/image")
