"""``/images`` until 2.35: the image service's images, for clients that use the compute API."""

from __future__ import annotations

import itertools
from typing import Any

from nova_lite.api.compute import schema_types as t
from nova_lite.api.compute import view_helpers
from nova_lite.api.http import validation
from nova_lite.api.http.microversions import LAST_WITH_PROXIES
from nova_lite.api.http.wsgi import Extension, Query, Request, Response, Route, declares
from nova_lite.base import exceptions
from nova_lite.objects import Image
from nova_lite.policies import images as policies

# --- schemas

_IMAGES: t.Schema = {
    **t.PAGING,
    "changes-since": t.Q_TIME,
    **dict.fromkeys(("name", "status", "server", "type", "minRam", "minDisk"), t.Q_ANY),
}
IMAGES_QUERY: t.Schema = {**t.loose_query(_IMAGES), "patternProperties": {"^property-": t.Q_ANY}}


# --- routes


class Images(Extension):
    alias = "images"
    title = "Images"
    routes = (
        Route("GET", "/images", "index", until=LAST_WITH_PROXIES),
        Route("GET", "/images/detail", "detail", until=LAST_WITH_PROXIES),
        Route("GET", "/images/{id}", "show", until=LAST_WITH_PROXIES),
        Route("DELETE", "/images/{id}", "delete", until=LAST_WITH_PROXIES),
    )

    @declares(policies.INDEX, query=IMAGES_QUERY, response="images")
    def index(self, req: Request) -> Response:
        images, links = self._list(req)
        return Response({"images": [_short_view(req, image) for image in images], **links})

    @declares(policies.DETAIL, query=IMAGES_QUERY, response="images")
    def detail(self, req: Request) -> Response:
        images, links = self._list(req)
        return Response({"images": [_detail_view(req, image) for image in images], **links})

    @declares(policies.SHOW, response="image")
    def show(self, req: Request, id: str) -> Response:
        return Response({"image": _detail_view(req, self.images.get(req.context, id))})

    @declares(policies.DELETE, status=204)
    def delete(self, req: Request, id: str) -> Response:
        self.images.delete(req.context, id)
        return Response(status=204)

    def _list(self, req: Request) -> tuple[list[Image], dict[str, Any]]:
        """Return a page of the matching images, and the link to the next page."""
        query = req.query
        status = query.one("status")
        statuses = _image_statuses(status) if status is not None else None
        images = self.images.list_images(req.context, query.one("name"), query.marker)
        page = list(itertools.islice((image for image in images if _matches(query, statuses, image)), query.limit))
        return page, req.next_page("images_links", page, query.limit, lambda image: image.id)


def _matches(query: Query, statuses: list[str] | None, image: Image) -> bool:
    since = query.one("changes-since")
    server = (query.one("server") or "").rpartition("/")[2]
    properties = {
        **{name.removeprefix("property-"): query.one(name) for name in query if name.startswith("property-")},
        **({"image_type": query.one("type")} if "type" in query else {}),
        **({"instance_uuid": server} if server else {}),
    }
    changed = image.updated_at or image.created_at
    return (
        (statuses is None or image.status in statuses)
        and (since is None or (changed is not None and changed >= validation.parse_time(since)))
        and image.min_ram >= _number(query, "minRam")
        and image.min_disk >= _number(query, "minDisk")
        and all(image.properties.get(name) == value for name, value in properties.items())
    )


def _number(query: Query, name: str) -> int:
    text = query.one(name) or "0"
    if not text.isdecimal():
        raise exceptions.ValidationError(detail=f"Invalid {name} filter [{text[:64]}]")
    return int(text)


# --- views

#: The compute API's status and progress (percent) of each status of the image service.
_STATUSES = {
    "active": ("ACTIVE", 100),
    "queued": ("SAVING", 25),
    "saving": ("SAVING", 50),
    "killed": ("ERROR", 0),
    "deleted": ("DELETED", 0),
    "pending_delete": ("DELETED", 0),
}


def _image_statuses(status: str) -> list[str]:
    """Return the image service's statuses for a status of the compute API."""
    return [name for name, (shown, _) in _STATUSES.items() if shown == status.upper()]


def _short_view(req: Request, image: Image) -> dict[str, Any]:
    links = [
        *req.links("images", image.id),
        {"rel": "alternate", "type": "application/vnd.openstack.image", "href": req.bookmark("images", image.id)},
    ]
    return {"id": image.id, "name": image.name, "links": links}


def _detail_view(req: Request, image: Image) -> dict[str, Any]:
    status, progress = _STATUSES.get(image.status, ("UNKNOWN", 0))
    return _short_view(req, image) | {
        "status": status,
        "progress": progress,
        "created": view_helpers.iso_seconds(image.created_at),
        "updated": view_helpers.iso_seconds(image.updated_at or image.created_at),
        "minDisk": image.min_disk,
        "minRam": image.min_ram,
        "metadata": image.properties,
        "OS-EXT-IMG-SIZE:size": image.size,
    }
