"""``/servers/{server_id}/tags``: labels that users attach to a server."""

from __future__ import annotations

from urllib.parse import quote

from nova_lite.api.compute import schema_types as t
from nova_lite.api.http import validation
from nova_lite.api.http.microversions import Change
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, declares
from nova_lite.base import exceptions
from nova_lite.policies import servers as policies

# --- schemas

TAGS_BODY = t.wrapped("tags", t.TAGS)


# --- routes

_PATH = "/servers/{server_id}/tags"


class ServerTags(Extension):
    alias = "os-server-tags"
    title = "Tags of a server"
    routes = (
        Route("GET", _PATH, "index", since=Change.SERVER_TAGS),
        Route("PUT", _PATH, "update_all", since=Change.SERVER_TAGS),
        Route("DELETE", _PATH, "delete_all", since=Change.SERVER_TAGS),
        Route("GET", _PATH + "/{tag}", "show", since=Change.SERVER_TAGS),
        Route("PUT", _PATH + "/{tag}", "update", since=Change.SERVER_TAGS),
        Route("DELETE", _PATH + "/{tag}", "delete", since=Change.SERVER_TAGS),
    )

    @declares(policies.TAGS_INDEX, query=t.NO_PARAMETERS, response="tags")
    def index(self, req: Request, server_id: str) -> Response:
        return Response({"tags": self.conductor.instance_get(req.context, server_id).tags})

    @declares(policies.TAGS_UPDATE_ALL, body=TAGS_BODY, response="tags")
    def update_all(self, req: Request, server_id: str) -> Response:
        tags = req.data["tags"]
        return Response({"tags": self.conductor.instance_tags_replace(req.context, server_id, tags)})

    @declares(policies.TAGS_DELETE_ALL, status=204)
    def delete_all(self, req: Request, server_id: str) -> Response:
        self.conductor.instance_tags_replace(req.context, server_id, [])
        return Response(status=204)

    @declares(policies.TAGS_SHOW, query=t.NO_PARAMETERS, status=204)
    def show(self, req: Request, server_id: str, tag: str) -> Response:
        if tag not in self.conductor.instance_get(req.context, server_id).tags:
            raise exceptions.TagNotFound(instance_id=server_id, tag=tag)
        return Response(status=204)

    @declares(policies.TAGS_UPDATE, status=201, other_statuses=(204,))
    def update(self, req: Request, server_id: str, tag: str) -> Response:
        _check(tag)
        if not self.conductor.instance_tag_add(req.context, server_id, tag):
            return Response(status=204)
        return Response(status=201, headers={"Location": req.link("servers", server_id, "tags", quote(tag, safe=""))})

    @declares(policies.TAGS_DELETE, status=204)
    def delete(self, req: Request, server_id: str, tag: str) -> Response:
        self.conductor.instance_tag_delete(req.context, server_id, tag)
        return Response(status=204)


def _check(tag: str) -> None:
    try:
        validation.validate_body(t.TAG, tag)
    except exceptions.ValidationError as error:
        raise exceptions.ValidationError(
            detail=f"Tag {tag[:64]!r} is invalid: it must have 1 to 60 characters, without '/' and ','."
        ) from error
