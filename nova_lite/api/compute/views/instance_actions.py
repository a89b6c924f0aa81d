"""Actions of a server, and their events."""

from __future__ import annotations

from typing import Any

from nova_lite.api.compute.views import servers as server_views
from nova_lite.api.compute.views import times
from nova_lite.api.http.microversions import Change
from nova_lite.api.http.wsgi import Request
from nova_lite.objects import InstanceAction, InstanceActionEvent
from nova_lite.policies import instance_actions as policies


def short(req: Request, action: InstanceAction) -> dict[str, Any]:
    view: dict[str, Any] = {
        "action": action.action,
        "instance_uuid": action.instance_uuid,
        "request_id": action.request_id,
        "user_id": action.user_id,
        "project_id": action.project_id,
        "start_time": times.micros(action.start_time),
        "message": action.message,
    }
    if req.has(Change.ACTION_PAGING):
        view["updated_at"] = times.micros(action.updated_at)
    return view


def whole(req: Request, action: InstanceAction) -> dict[str, Any]:
    view = short(req, action)
    target = {"project_id": action.project_id, "user_id": action.user_id}
    privileged = req.allows(policies.EVENTS, target)
    if privileged or req.has(Change.ACTION_EVENTS_FOR_OWNER):
        details = req.has(Change.ACTION_EVENT_DETAILS) and req.allows(policies.EVENT_DETAILS, target)
        view["events"] = [_event(req, action, event, privileged, details) for event in action.events]
    return view


def _event(
    req: Request, action: InstanceAction, event: InstanceActionEvent, privileged: bool, with_details: bool
) -> dict[str, Any]:
    view: dict[str, Any] = {
        "event": event.event,
        "start_time": times.micros(event.start_time),
        "finish_time": times.micros(event.finish_time),
        "result": event.result,
    }
    if privileged:
        view["traceback"] = event.traceback
    if req.has(Change.ACTION_EVENT_HOST):
        view["hostId"] = server_views.host_id(action.project_id, event.host)
        if privileged:
            view["host"] = event.host
    if with_details:
        view["details"] = event.details
    return view
