"""``/servers/{server_id}/os-instance-actions``: what was asked of a server, and what became of it."""

from __future__ import annotations

import datetime
from typing import Any

from nova_lite import exception
from nova_lite.api import validation
from nova_lite.api.compute.schemas import queries
from nova_lite.api.compute.views import instance_actions as views
from nova_lite.api.microversions import Change
from nova_lite.api.wsgi import Answer, Extension, Query, Request, Route, declares
from nova_lite.objects import InstanceAction
from nova_lite.policies import instance_actions as policies

_PATH = "/servers/{server_id}/os-instance-actions"


class InstanceActions(Extension):
    alias = "os-instance-actions"
    title = "Action log of a server"
    routes = (
        Route("GET", _PATH, "index"),
        Route("GET", _PATH + "/{request_id}", "show"),
    )

    @declares(policies.LIST, query=queries.ACTIONS, answer="instanceActions")
    def index(self, req: Request, server_id: str) -> Answer:
        query = req.query
        self._check_not_deleted(req, server_id)
        page, more = _page(_changed(self.conductor.action_list(req.context, server_id), query), query)
        body: dict[str, Any] = {"instanceActions": [views.short(req, action) for action in page]}
        if more and req.has(Change.ACTION_PAGING):
            marker = page[-1].request_id
            body["links"] = req.next_links(page, 1, marker, "servers", server_id, "os-instance-actions")
        return Answer(body)

    @declares(policies.SHOW, answer="instanceAction")
    def show(self, req: Request, server_id: str, request_id: str) -> Answer:
        self._check_not_deleted(req, server_id)
        action = self.conductor.action_get(req.context, server_id, request_id)
        return Answer({"instanceAction": views.whole(req, action)})

    def _check_not_deleted(self, req: Request, server_id: str) -> None:
        """Before 2.21 a deleted server's log was gone with it."""
        if not req.has(Change.ACTIONS_OF_DELETED):
            self.conductor.instance_get(req.context, server_id)


def _changed(actions: list[InstanceAction], query: Query) -> list[InstanceAction]:
    since, before = _time(query, "changes-since"), _time(query, "changes-before")
    if since is not None and before is not None and since > before:
        raise exception.ValidationError(
            detail="The value of changes-since must be less than or equal to changes-before."
        )
    return [
        action
        for action in actions
        if (since is None or (action.updated_at or action.start_time) >= since)
        and (before is None or (action.updated_at or action.start_time) <= before)
    ]


def _time(query: Query, name: str) -> datetime.datetime | None:
    text = query.one(name)
    return validation.parse_time(text) if text is not None else None


def _page(actions: list[InstanceAction], query: Query) -> tuple[list[InstanceAction], bool]:
    """The page after the marker (a request id), and whether there is more."""
    start = 0
    if query.marker is not None:
        ids = [action.request_id for action in actions]
        if query.marker not in ids:
            raise exception.MarkerNotFound(marker=query.marker)
        start = ids.index(query.marker) + 1
    end = start + query.limit
    return actions[start:end], end < len(actions) and end > start
