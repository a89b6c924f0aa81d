"""Usage of projects in a period (``/os-simple-tenant-usage``), and usage audits, which do not exist here."""

from __future__ import annotations

import datetime
import itertools
from typing import Any

from oslo_utils import timeutils

from nova_lite.api.compute import schema_types as t
from nova_lite.api.compute import view_helpers
from nova_lite.api.http.microversions import Change
from nova_lite.api.http.wsgi import Extension, Query, Request, Response, Route, declares
from nova_lite.base import exceptions
from nova_lite.objects import InstanceUsage
from nova_lite.policies import usage as policies

# --- schemas

_USAGE_21: t.Schema = {"start": t.Q_TIME, "end": t.Q_TIME, "detailed": t.Q_ANY}
_USAGE_240: t.Schema = {**_USAGE_21, **t.PAGING}
USAGE_QUERY = t.query(_USAGE_21, {Change.USAGE_PAGING: _USAGE_240})


# --- routes

_PATH = "/os-simple-tenant-usage"


class TenantUsage(Extension):
    """Usage by project. ``start`` and ``end`` default to the current time.

    A page (since 2.40) contains a number of servers, so the next page may continue the same project.
    """

    alias = "os-simple-tenant-usage"
    title = "Usage by project"
    routes = (
        Route("GET", _PATH, "index"),
        Route("GET", _PATH + "/{id}", "show"),
    )

    @declares(policies.LIST, query=USAGE_QUERY, response="tenant_usages")
    def index(self, req: Request) -> Response:
        start, end = _period(req.query)
        used, links = self._list(req, "tenant_usages_links", None, start, end)
        by_project = itertools.groupby(used, key=lambda usage: usage.project_id)
        detailed = req.query.one("detailed") == "1"
        usages = [_project_view(name, list(servers), start, end, detailed) for name, servers in by_project]
        return Response({"tenant_usages": usages, **links})

    @declares(policies.SHOW, target={"project_id": "id"}, query=USAGE_QUERY, response="tenant_usage")
    def show(self, req: Request, id: str) -> Response:
        start, end = _period(req.query)
        used, links = self._list(req, "tenant_usage_links", id, start, end)
        view = _project_view(id, used, start, end, detailed=True) if used else {}
        return Response({"tenant_usage": view, **links})

    def _list(
        self, req: Request, key: str, project_id: str | None, start: datetime.datetime, end: datetime.datetime
    ) -> tuple[list[InstanceUsage], dict[str, Any]]:
        limit = (req.query.limit or self.conf.api.max_limit) if req.has(Change.USAGE_PAGING) else None
        used = self.conductor.usage_list(req.context, project_id, start, end, limit, req.query.marker)
        return used, req.next_page(key, used, limit, lambda usage: usage.uuid)


def _period(query: Query) -> tuple[datetime.datetime, datetime.datetime]:
    now = timeutils.utcnow()
    start, end = query.time("start") or now, query.time("end") or now
    if start > end:
        raise exceptions.ValidationError(detail="Invalid start time. The start time cannot occur after the end time.")
    return start, end


_AUDIT_LOG = "/os-instance_usage_audit_log"
_COMPUTE = "nova-compute"


class UsageAuditLog(Extension):
    alias = "os-instance-usage-audit-log"
    title = "Usage audits"
    routes = (
        Route("GET", _AUDIT_LOG, "index"),
        Route("GET", _AUDIT_LOG + "/{id}", "show"),
    )

    @declares(policies.AUDIT_LOG_LIST, response="instance_usage_audit_logs")
    def index(self, req: Request) -> Response:
        now = datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
        return Response({"instance_usage_audit_logs": self._log(req, now)})

    @declares(policies.AUDIT_LOG_SHOW, response="instance_usage_audit_log")
    def show(self, req: Request, id: str) -> Response:
        """Show the audits of the last complete month before the time ``id``."""
        return Response({"instance_usage_audit_log": self._log(req, _time(id))})

    def _log(self, req: Request, before: datetime.datetime) -> dict[str, Any]:
        hosts = sorted(service.host for service in self.conductor.service_list(req.context, None, _COMPUTE))
        beginning, ending = _month_before(before)
        return {
            "hosts_not_run": hosts,
            "log": {},
            "num_hosts": len(hosts),
            "num_hosts_done": 0,
            "num_hosts_not_run": len(hosts),
            "num_hosts_running": 0,
            "overall_status": f"0 of {len(hosts)} hosts done. 0 errors.",
            "period_beginning": str(beginning),
            "period_ending": str(ending),
            "total_errors": 0,
            "total_instances": 0,
        }


def _time(text: str) -> datetime.datetime:
    try:
        return datetime.datetime.strptime(text, "%Y-%m-%d %H:%M:%S.%f" if "." in text else "%Y-%m-%d %H:%M:%S")
    except ValueError as error:
        raise exceptions.ValidationError(detail=f"Invalid timestamp for date {text[:64]}") from error


def _month_before(time: datetime.datetime) -> tuple[datetime.datetime, datetime.datetime]:
    """Return the start of the last complete month before ``time``, and its end."""
    ending = time.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    try:
        return (ending - datetime.timedelta(days=1)).replace(day=1), ending
    except OverflowError as error:
        raise exceptions.ValidationError(detail="There is no earlier month.") from error


# --- views


def _project_view(
    project_id: str, used: list[InstanceUsage], start: datetime.datetime, end: datetime.datetime, detailed: bool
) -> dict[str, Any]:
    view: dict[str, Any] = {
        "tenant_id": project_id,
        "start": view_helpers.iso_micros(start),
        "stop": view_helpers.iso_micros(end),
        "total_hours": sum(usage.hours for usage in used),
        "total_vcpus_usage": sum(usage.vcpus * usage.hours for usage in used),
        "total_memory_mb_usage": sum(usage.memory_mb * usage.hours for usage in used),
        "total_local_gb_usage": sum(usage.local_gb * usage.hours for usage in used),
    }
    if detailed:
        view["server_usages"] = [_server_view(usage) for usage in used]
    return view


def _server_view(usage: InstanceUsage) -> dict[str, Any]:
    return {
        "instance_id": usage.uuid,
        "name": usage.name,
        "tenant_id": usage.project_id,
        "flavor": usage.flavor,
        "vcpus": usage.vcpus,
        "memory_mb": usage.memory_mb,
        "local_gb": usage.local_gb,
        "hours": usage.hours,
        "state": usage.vm_state if usage.ended_at is None else "terminated",
        "started_at": view_helpers.iso_micros(usage.started_at),
        "ended_at": view_helpers.iso_micros(usage.ended_at),
        "uptime": usage.uptime,
    }
