"""``/servers/{server_id}/os-instance-actions``: the log of a server's actions and their events."""

from __future__ import annotations

from typing import Any

from nova_lite.api.compute import schema_types as t
from nova_lite.api.compute import view_helpers
from nova_lite.api.compute.servers.view import host_id
from nova_lite.api.http.microversions import Change, Versioned
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, declares
from nova_lite.objects import InstanceAction, InstanceActionEvent
from nova_lite.policies import instance_actions as policies

# --- schemas

_ACTIONS_258: t.Schema = {**t.PAGING, "changes-since": t.Q_TIME}
_ACTIONS_266: t.Schema = {**_ACTIONS_258, "changes-before": t.Q_TIME}
ACTIONS_QUERY = Versioned(
    {
        1: t.loose_query({}),
        Change.ACTION_PAGING: t.strict(_ACTIONS_258),
        Change.CHANGES_BEFORE: t.strict(_ACTIONS_266),
    }
)


# --- routes

_PATH = "/servers/{server_id}/os-instance-actions"


class InstanceActions(Extension):
    alias = "os-instance-actions"
    title = "Action log of a server"
    routes = (
        Route("GET", _PATH, "index"),
        Route("GET", _PATH + "/{request_id}", "show"),
    )

    @declares(policies.LIST, query=ACTIONS_QUERY, response="instanceActions")
    def index(self, req: Request, server_id: str) -> Response:
        self._check_not_deleted(req, server_id)
        log = self.conductor.action_list(req.context, server_id)
        since, before = req.query.changes()
        actions = [
            action
            for action in log
            if (since is None or (action.updated_at or action.start_time) >= since)
            and (before is None or (action.updated_at or action.start_time) <= before)
        ]
        page = req.query.page(actions, _name)
        links: dict[str, Any] = {}
        if req.has(Change.ACTION_PAGING) and page and page[-1] is not actions[-1]:
            links = req.next_page("links", page, 1, _name)
        return Response({"instanceActions": [_short_view(req, action) for action in page], **links})

    @declares(policies.SHOW, response="instanceAction")
    def show(self, req: Request, server_id: str, request_id: str) -> Response:
        self._check_not_deleted(req, server_id)
        action = self.conductor.action_get(req.context, server_id, request_id)
        return Response({"instanceAction": _detail_view(req, action)})

    def _check_not_deleted(self, req: Request, server_id: str) -> None:
        """Raise `InstanceNotFound` for a deleted server before 2.21, where its log is not readable."""
        if not req.has(Change.ACTIONS_OF_DELETED):
            self.conductor.instance_get(req.context, server_id)


def _name(action: InstanceAction) -> str:
    return action.request_id


# --- views


def _short_view(req: Request, action: InstanceAction) -> dict[str, Any]:
    view: dict[str, Any] = {
        "action": action.action,
        "instance_uuid": action.instance_uuid,
        "request_id": action.request_id,
        "user_id": action.user_id,
        "project_id": action.project_id,
        "start_time": view_helpers.iso_micros(action.start_time),
        "message": action.message,
    }
    if req.has(Change.ACTION_PAGING):
        view["updated_at"] = view_helpers.iso_micros(action.updated_at)
    return view


def _detail_view(req: Request, action: InstanceAction) -> dict[str, Any]:
    view = _short_view(req, action)
    target = {"project_id": action.project_id, "user_id": action.user_id}
    privileged = req.allows(policies.EVENTS, target)
    if privileged or req.has(Change.ACTION_EVENTS_FOR_OWNER):
        details = req.has(Change.ACTION_EVENT_DETAILS) and req.allows(policies.EVENT_DETAILS, target)
        view["events"] = [_event_view(req, action, event, privileged, details) for event in action.events]
    return view


def _event_view(
    req: Request, action: InstanceAction, event: InstanceActionEvent, privileged: bool, with_details: bool
) -> dict[str, Any]:
    view: dict[str, Any] = {
        "event": event.event,
        "start_time": view_helpers.iso_micros(event.start_time),
        "finish_time": view_helpers.iso_micros(event.finish_time),
        "result": event.result,
    }
    if privileged:
        view["traceback"] = event.traceback
    if req.has(Change.ACTION_EVENT_HOST):
        view["hostId"] = host_id(action.project_id, event.host)
        if privileged:
            view["host"] = event.host
    if with_details:
        view["details"] = event.details
    return view
