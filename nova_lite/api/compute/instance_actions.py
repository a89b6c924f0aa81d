"""``/servers/{server_id}/os-instance-actions``: what was asked of a server, and what became of it."""

from __future__ import annotations

from typing import Any

from nova_lite.api.compute.schemas import queries
from nova_lite.api.compute.views import instance_actions as views
from nova_lite.api.http.microversions import Change
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, declares
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
    def index(self, req: Request, server_id: str) -> Response:
        self._check_not_deleted(req, server_id)
        every = self.conductor.action_list(req.context, server_id)
        since, before = req.query.changes()
        actions = [
            action
            for action in every
            if (since is None or (action.updated_at or action.start_time) >= since)
            and (before is None or (action.updated_at or action.start_time) <= before)
        ]
        page = req.query.page(actions, _name)
        links: dict[str, Any] = {}
        if req.has(Change.ACTION_PAGING) and page and page[-1] is not actions[-1]:
            links = req.next_page("links", page, 1, _name)
        return Response({"instanceActions": [views.short(req, action) for action in page], **links})

    @declares(policies.SHOW, answer="instanceAction")
    def show(self, req: Request, server_id: str, request_id: str) -> Response:
        self._check_not_deleted(req, server_id)
        action = self.conductor.action_get(req.context, server_id, request_id)
        return Response({"instanceAction": views.whole(req, action)})

    def _check_not_deleted(self, req: Request, server_id: str) -> None:
        """Before 2.21 a deleted server's log was gone with it."""
        if not req.has(Change.ACTIONS_OF_DELETED):
            self.conductor.instance_get(req.context, server_id)


def _name(action: InstanceAction) -> str:
    return action.request_id
