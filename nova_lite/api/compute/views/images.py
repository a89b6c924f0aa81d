"""Images, in the form of the compute API."""

from __future__ import annotations

from typing import Any

from nova_lite.api.compute.views import times
from nova_lite.api.http.wsgi import Request
from nova_lite.objects import Image

#: Status here, and progress in percent.
_STATUSES = {
    "active": ("ACTIVE", 100),
    "queued": ("SAVING", 25),
    "saving": ("SAVING", 50),
    "killed": ("ERROR", 0),
    "deleted": ("DELETED", 0),
    "pending_delete": ("DELETED", 0),
}


def image_statuses(status: str) -> list[str]:
    """The image service's words for a status of the compute API."""
    return [word for word, (shown, _) in _STATUSES.items() if shown == status.upper()]


def short(req: Request, image: Image) -> dict[str, Any]:
    links = [
        *req.links("images", image.id),
        {"rel": "alternate", "type": "application/vnd.openstack.image", "href": req.bookmark("images", image.id)},
    ]
    return {"id": image.id, "name": image.name, "links": links}


def whole(req: Request, image: Image) -> dict[str, Any]:
    status, progress = _STATUSES.get(image.status, ("UNKNOWN", 0))
    return short(req, image) | {
        "status": status,
        "progress": progress,
        "created": times.seconds(image.created_at),
        "updated": times.seconds(image.updated_at or image.created_at),
        "minDisk": image.min_disk,
        "minRam": image.min_ram,
        "metadata": image.properties,
        "OS-EXT-IMG-SIZE:size": image.size,
    }
