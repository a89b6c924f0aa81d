"""``/images`` until 2.35: what the image service knows, for clients that ask the compute API."""

from __future__ import annotations

from typing import Any

from nova_lite.api.compute.schemas import queries
from nova_lite.api.compute.views import images as views
from nova_lite.api.http import validation
from nova_lite.api.http.microversions import Change
from nova_lite.api.http.wsgi import Extension, Query, Request, Response, Route, declares
from nova_lite.base import exceptions
from nova_lite.objects import Image
from nova_lite.policies import images as policies

_LAST = Change.NO_PROXIES - 1


class Images(Extension):
    alias = "images"
    title = "Images"
    routes = (
        Route("GET", "/images", "index", until=_LAST),
        Route("GET", "/images/detail", "detail", until=_LAST),
        Route("GET", "/images/{id}", "show", until=_LAST),
        Route("DELETE", "/images/{id}", "delete", until=_LAST),
    )

    @declares(policies.INDEX, query=queries.IMAGES, answer="images")
    def index(self, req: Request) -> Response:
        images, links = self._list(req)
        return Response({"images": [views.short(req, image) for image in images], **links})

    @declares(policies.DETAIL, query=queries.IMAGES, answer="images")
    def detail(self, req: Request) -> Response:
        images, links = self._list(req)
        return Response({"images": [views.whole(req, image) for image in images], **links})

    @declares(policies.SHOW, answer="image")
    def show(self, req: Request, id: str) -> Response:
        return Response({"image": views.whole(req, self.images.get(req.context, id))})

    @declares(policies.DELETE, status=204)
    def delete(self, req: Request, id: str) -> Response:
        self.images.delete(req.context, id)
        return Response(status=204)

    def _list(self, req: Request) -> tuple[list[Image], dict[str, Any]]:
        """A page of the images that match, and the link to the next one. There are few images: they are filtered
        here."""
        query = req.query
        status = query.one("status")
        statuses = views.image_statuses(status) if status is not None else None
        images = self.images.list_images(req.context, query.one("name"))
        chosen = [image for image in images if _matches(query, statuses, image)]
        page = query.page(chosen, lambda image: image.id)
        return page, req.next_page("images_links", page, query.limit, lambda image: image.id)


def _matches(query: Query, statuses: list[str] | None, image: Image) -> bool:
    since = query.one("changes-since")
    server = (query.one("server") or "").rpartition("/")[2]
    wanted = {
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
        and all(image.properties.get(name) == value for name, value in wanted.items())
    )


def _number(query: Query, name: str) -> int:
    text = query.one(name) or "0"
    if not text.isdecimal():
        raise exceptions.ValidationError(detail=f"Invalid {name} filter [{text[:64]}]")
    return int(text)
