"""``/os-audit-events``: the audit log of all APIs, for admins."""

from __future__ import annotations

from typing import Any

from nova_lite.api.compute import schema_types as t
from nova_lite.api.compute import view_helpers
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, declares
from nova_lite.objects import AuditEvent, AuditQuery
from nova_lite.objects.audit import FILTERS
from nova_lite.policies import audit_events as policies

_TEXT: t.Schema = t.repeatable({"type": "string", "maxLength": 255})

_OUTCOME: t.Schema = t.repeatable(t.one_of("success", "failure"))

AUDIT_QUERY = t.strict(
    {**dict.fromkeys(FILTERS, _TEXT), "outcome": _OUTCOME, **t.PAGING, "since": t.Q_TIME, "until": t.Q_TIME}
)

#: URI of CADF's events.
_EVENT = "http://schemas.dmtf.org/cloud/audit/1.0/event"


class AuditEvents(Extension):
    alias = "os-audit-events"
    title = "Audit log"
    routes = (Route("GET", "/os-audit-events", "index"),)

    @declares(policies.LIST, query=AUDIT_QUERY, response=("audit_events", "audit_events_links"))
    def index(self, req: Request) -> Response:
        """List changes, log-ins and denied requests of all APIs, the newest first, with the fields of CADF.

        Filters are ``target_id``, ``user_id``, ``project_id``, ``action``, ``outcome``, ``since`` (inclusive) and
        ``until`` (exclusive). ``marker`` is the id of the last event of the previous page.
        """
        query = AuditQuery(
            limit=req.query.limit,
            filters={name: value for name in FILTERS if (value := req.query.one(name)) is not None},
            since=req.query.time("since"),
            until=req.query.time("until"),
            marker=req.query.marker,
        )
        events = self.conductor.audit_list(req.context, query)
        links = req.next_page("audit_events_links", events, req.query.limit, lambda event: event.uuid)
        return Response({"audit_events": [_view(event) for event in events], **links})


def _view(event: AuditEvent) -> dict[str, Any]:
    view: dict[str, Any] = {
        "typeURI": _EVENT,
        "eventType": "activity",
        "id": event.uuid,
        "eventTime": f"{view_helpers.iso_micros(event.event_time)}+00:00",
        "action": event.action,
        "outcome": event.outcome,
        "reason": {"reasonType": "HTTP", "reasonCode": str(event.reason_code)},
        "initiator": {
            "typeURI": "service/security/account/user",
            "id": event.user_id or "unknown",
            "project_id": event.project_id or None,
            "credential": event.credential or None,
            "host": {"address": event.address or None, "agent": event.agent or None},
            "request_id": event.request_id or None,
        },
        "target": {"typeURI": event.target_type or f"service/{event.service}", "id": event.target_id or "unknown"},
        "observer": {"typeURI": f"service/{event.service}", "id": event.observer},
        "requestPath": event.path or None,
        "count": event.count,
    }
    return view
