"""Rules of the image service, with Glance's names after ``image:``. The target's project is the image's owner."""

from __future__ import annotations

from nova_lite.policies.base import ADMIN, ANYONE, MEMBER, Rules

_image = Rules("image")
_ONE = "/v2/images/{image_id}"

LIST = _image("get_images", ANYONE, "List the visible images", "GET /v2/images")
SHOW = _image("get_image", ANYONE, "Show a visible image", f"GET {_ONE}")
CREATE = _image("add_image", MEMBER, "Create an image", "POST /v2/images")
UPDATE = _image("modify_image", MEMBER, "Change an image of the caller's project", f"PATCH {_ONE}")
DELETE = _image("delete_image", MEMBER, "Delete an image of the caller's project", f"DELETE {_ONE}")
UPLOAD = _image(
    "upload_image",
    MEMBER,
    "Upload or import the data of an image of the caller's project",
    f"PUT {_ONE}/file",
    f"PUT {_ONE}/stage",
    f"POST {_ONE}/import",
)
DOWNLOAD = _image("download_image", ANYONE, "Download the data of a visible image", f"GET {_ONE}/file")
DEACTIVATE = _image(
    "deactivate",
    MEMBER,
    "Let only admins use an image of the caller's project",
    f"POST {_ONE}/actions/deactivate",
)
REACTIVATE = _image("reactivate", MEMBER, "Let a deactivated image be used again", f"POST {_ONE}/actions/reactivate")
PUBLICIZE = _image("publicize_image", ADMIN, "Make an image public", "POST /v2/images", f"PATCH {_ONE}")
COMMUNITIZE = _image("communitize_image", MEMBER, "Make an image a community image", "POST /v2/images", f"PATCH {_ONE}")
CHANGE_OWNER = _image("change_owner", ADMIN, "Change the owner of an image", "POST /v2/images", f"PATCH {_ONE}")
CHOOSE_ID = _image(
    "choose_id", ADMIN, "Choose a new image's id, which must never have been used before", "POST /v2/images"
)
SCHEMAS = _image("get_schemas", ANYONE, "Show the schemas", "GET /v2/schemas/images", "GET /v2/schemas/image")
_NAMESPACES = "/v2/metadefs/namespaces"
METADEFS = _image(
    "get_metadefs",
    ANYONE,
    "List and show metadata definitions",
    f"GET {_NAMESPACES}",
    "GET /v2/metadefs/resource_types",
)
CHANGE_METADEFS = _image(
    "modify_metadefs",
    ADMIN,
    "Create, change and delete metadata definitions",
    f"POST {_NAMESPACES}",
    f"PUT {_NAMESPACES}/{{namespace}}",
    f"DELETE {_NAMESPACES}/{{namespace}}",
)
STORES = _image("stores_info_detail", ADMIN, "Show the store with its settings", "GET /v2/info/stores/detail")
TASKS = _image("get_tasks", ADMIN, "List the tasks (always empty)", "GET /v2/tasks")
MEMBERS = _image(
    "get_members", ANYONE, "List the members of a visible image", f"GET {_ONE}/members", f"GET {_ONE}/members/{{id}}"
)
ADD_MEMBER = _image("add_member", MEMBER, "Share an image of the caller's project", f"POST {_ONE}/members")
UPDATE_MEMBER = _image(
    "modify_member", ANYONE, "Accept or reject a shared image, as its member", f"PUT {_ONE}/members/{{id}}"
)
REMOVE_MEMBER = _image(
    "delete_member", MEMBER, "Stop sharing an image of the caller's project", f"DELETE {_ONE}/members/{{id}}"
)
