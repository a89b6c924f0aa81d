"""Events of the audit log, with the fields of DMTF's CADF."""

from __future__ import annotations

import datetime

import msgspec


class AuditEvent(msgspec.Struct, kw_only=True):
    """Activity of a user, as an API saw it. Texts that are not known are empty.

    ``uuid``: of the event, which is stored once. ``event_time``: UTC. ``service``: the API. ``action``: create,
    update, update/<name>, delete, read, authenticate or revoke. ``outcome``: success or failure. ``reason_code``: the
    HTTP status. ``credential``: what limits the caller, as ``application_credential/<id>`` or ``trust/<id>``.
    ``address``, ``agent``: of the client. ``target_type``, ``target_id``: the resource. ``path``: of the request,
    without its query. ``observer``: the host of the API. ``count``: the number of requests that the event stands for.
    """

    uuid: str
    event_time: datetime.datetime
    service: str
    action: str
    outcome: str
    reason_code: int = 0
    request_id: str = ""
    user_id: str = ""
    project_id: str = ""
    credential: str = ""
    address: str = ""
    agent: str = ""
    target_type: str = ""
    target_id: str = ""
    path: str = ""
    observer: str = ""
    count: int = 1


class AuditQuery(msgspec.Struct, kw_only=True):
    """Events of a list, the newest first.

    ``filters``: values by the name of a field, of `FILTERS`. ``since`` (inclusive), ``until`` (exclusive): UTC.
    ``marker``: uuid of the last event that the caller has. ``limit``: the number of events.
    """

    limit: int
    filters: dict[str, str] = msgspec.field(default_factory=dict)
    since: datetime.datetime | None = None
    until: datetime.datetime | None = None
    marker: str | None = None


#: Fields that a list can be filtered by. Each has an index.
FILTERS = ("target_id", "user_id", "project_id", "action", "outcome")

SUCCESS, FAILURE = "success", "failure"
