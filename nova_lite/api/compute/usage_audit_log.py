"""``/os-instance_usage_audit_log``: which hosts have made their usage audits. None has: usage is told by project."""

from __future__ import annotations

import datetime
from typing import Any

from nova_lite.api.http.wsgi import Extension, Request, Response, Route, declares
from nova_lite.base import exceptions
from nova_lite.policies import usage as policies

_PATH = "/os-instance_usage_audit_log"
_COMPUTE = "nova-compute"


class UsageAuditLog(Extension):
    alias = "os-instance-usage-audit-log"
    title = "Usage audits"
    routes = (
        Route("GET", _PATH, "index"),
        Route("GET", _PATH + "/{id}", "show"),
    )

    @declares(policies.AUDIT_LOG_LIST, answer="instance_usage_audit_logs")
    def index(self, req: Request) -> Response:
        now = datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
        return Response({"instance_usage_audit_logs": self._log(req, now)})

    @declares(policies.AUDIT_LOG_SHOW, answer="instance_usage_audit_log")
    def show(self, req: Request, id: str) -> Response:
        """``id``: a time; the month is the last one that was over then."""
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
    """First moments of the last month that was over at ``time``, and of the month after it."""
    ending = time.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    try:
        return (ending - datetime.timedelta(days=1)).replace(day=1), ending
    except OverflowError as error:
        raise exceptions.ValidationError(detail="There is no month before that.") from error
