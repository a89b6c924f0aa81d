"""Conversion of the query string of a server list to `InstanceFilters` and a sort order."""

from __future__ import annotations

from typing import Any

import msgspec
from oslo_utils import strutils

from nova_lite.api.compute.servers import view
from nova_lite.api.http import validation
from nova_lite.api.http.microversions import Change
from nova_lite.api.http.wsgi import Query, Request
from nova_lite.base import exceptions
from nova_lite.objects import InstanceFilters
from nova_lite.operations import states
from nova_lite.policies import servers as policies

#: Parameters whose text becomes the value of a filter, and the filter's name.
_TEXTS = {
    "name": "name",
    "display_name": "name",
    "ip": "ip",
    "ip6": "ip6",
    "image": "image_ref",
    "image_ref": "image_ref",
    "flavor": "flavorid",
    "reservation_id": "reservation_id",
    "user_id": "user_id",
    "host": "host",
    "node": "node",
    "hypervisor_hostname": "node",
    "availability_zone": "availability_zone",
    "key_name": "key_name",
    "description": "description",
    "display_description": "description",
}
_LISTS = {"uuid": "uuids", "vm_state": "vm_states", "task_state": "task_states"}
_TAGS = {"tags": "tags", "tags-any": "tags_any", "not-tags": "not_tags", "not-tags-any": "not_tags_any"}
_TIMES = {
    "changes-since": "changes_since",
    "created_at": "created_at",
    "launched_at": "launched_at",
    "terminated_at": "terminated_at",
}
_NUMBERS = ("power_state", "progress")

#: Filters for all callers, and their first version. Other filters of unprivileged callers are ignored.
_FOR_ALL = {
    **dict.fromkeys(("reservation_id", "name", "status", "image", "flavor", "ip", "changes-since", "all_tenants"), 1),
    "ip6": Change.FILTER_IP6,
    **dict.fromkeys(_TAGS, Change.SERVER_TAGS),
    "changes-before": Change.CHANGES_BEFORE,
    "locked": Change.LOCKED_REASON,
    **dict.fromkeys(
        ("availability_zone", "config_drive", "key_name", "created_at", "launched_at", "terminated_at"),
        Change.USER_FILTERS,
    ),
    **dict.fromkeys(("power_state", "task_state", "vm_state", "progress", "user_id"), Change.USER_FILTERS),
}
_SORT_KEYS_FOR_ADMINS = {"host", "node"}


def filters_of_query(req: Request, all_rule: str) -> InstanceFilters | None:
    """Return the filters, or None if they cannot match any server.

    Raises `ValidationError` for invalid values, and `Forbidden` for filters that the caller may not use.
    """
    query, privileged = req.query, req.allows(policies.ALL_FILTERS)
    allowed = {name for name in query if privileged or (name in _FOR_ALL and req.version.minor >= _FOR_ALL[name])}
    values: dict[str, Any] = {}
    for parameters, convert in (
        (_TEXTS, query.one),
        (_LISTS, query.get),
        (_TAGS, lambda name: (query.one(name) or "").split(",")),
        (_TIMES, lambda name: validation.parse_time(query.one(name) or "")),
        ({"changes-before": "changes_before"}, query.until),
        (dict(zip(_NUMBERS, _NUMBERS, strict=True)), lambda name: int(query.one(name) or 0)),
    ):
        for parameter, name in parameters.items():
            if parameter in allowed:
                values[name] = convert(parameter)
    if {"changes-since", "changes-before"} <= allowed:
        query.changes()
    for name in ("locked", "config_drive", "deleted", "soft_deleted"):
        if name in allowed:
            values[name] = _truth(query, name)
    values["project_id"] = _project(req, all_rule)
    filters = msgspec.convert(values, InstanceFilters)
    return _with_status(req, filters) if "status" in allowed else filters


def order_of(req: Request) -> tuple[list[str], list[str]]:
    """Return the sort keys and as many directions. The default is the newest server first."""
    keys = req.query.get("sort_key") or ["created_at"]
    if not req.allows(policies.ALL_FILTERS) and _SORT_KEYS_FOR_ADMINS & set(keys):
        raise exceptions.Forbidden("Only administrators can sort servers by host or node.")
    dirs = req.query.get("sort_dir") or ["desc"]
    if len(dirs) > len(keys):
        raise exceptions.ValidationError(detail="Sort direction size exceeds sort key size")
    return keys, [*dirs, *[dirs[0]] * (len(keys) - len(dirs))]


def _truth(query: Query, name: str) -> bool:
    text = query.one(name) or ""
    try:
        return strutils.bool_from_string(text, strict=True)
    except ValueError as error:
        raise exceptions.ValidationError(detail=f"Invalid filter value {text[:64]!r} of {name}.") from error


def _project(req: Request, all_rule: str) -> str | None:
    """Return the project to list, or None for all projects. The default is the caller's own project.

    ``all_tenants`` is for admins. With it, ``project_id`` selects a project.
    """
    text = req.query.one("all_tenants")
    try:
        all_projects = text is not None and strutils.bool_from_string(text or "yes", strict=True)
    except ValueError as error:
        raise exceptions.ValidationError(detail=f"Invalid all_tenants value {str(text)[:64]!r}.") from error
    if not all_projects:
        return str(req.context.project_id)
    req.authorize(all_rule)
    return req.query.one("project_id") or req.query.one("tenant_id")


def _with_status(req: Request, filters: InstanceFilters) -> InstanceFilters | None:
    vm_states, task_states = view.states_of(req.query["status"])
    if not vm_states:
        if req.has(Change.STATUS_CHECKED):
            raise exceptions.ValidationError(detail="Invalid status value")
        return None
    if vm_states == [states.DELETED]:
        if not req.allows(policies.ALL_FILTERS):
            raise exceptions.Forbidden("Only administrators may list deleted instances")
        return msgspec.structs.replace(filters, deleted=True)
    changes: dict[str, Any] = {"vm_states": vm_states}
    if task_states:
        changes["task_states"] = task_states
    return msgspec.structs.replace(filters, **changes)
