"""Usage by project."""

from __future__ import annotations

import datetime
from typing import Any

from nova_lite.api.compute.views import times
from nova_lite.objects import InstanceUsage


def project(
    project_id: str, used: list[InstanceUsage], start: datetime.datetime, end: datetime.datetime, detailed: bool
) -> dict[str, Any]:
    view: dict[str, Any] = {
        "tenant_id": project_id,
        "start": times.micros(start),
        "stop": times.micros(end),
        "total_hours": sum(each.hours for each in used),
        "total_vcpus_usage": sum(each.vcpus * each.hours for each in used),
        "total_memory_mb_usage": sum(each.memory_mb * each.hours for each in used),
        "total_local_gb_usage": sum(each.local_gb * each.hours for each in used),
    }
    if detailed:
        view["server_usages"] = [_server(each) for each in used]
    return view


def _server(usage: InstanceUsage) -> dict[str, Any]:
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
        "started_at": times.micros(usage.started_at),
        "ended_at": times.micros(usage.ended_at),
        "uptime": usage.uptime,
    }
