"""``/servers/{server_id}/os-usage-history``, and that of a hypervisor: use over an hour, a day or a week."""

from __future__ import annotations

import datetime
from typing import Any

from nova_lite.api.compute import schema_types as t
from nova_lite.api.compute import services
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, declares
from nova_lite.base import exceptions
from nova_lite.objects import USAGE_SPANS, UsageHistory, UsageSample
from nova_lite.policies import hypervisors, servers

# --- schemas

QUERY = t.query({"span": t.repeatable({"type": "string", "enum": list(USAGE_SPANS)})})


# --- routes


class UsageHistories(Extension):
    alias = "os-usage-history"
    title = "History of use"
    routes = (
        Route("GET", "/servers/{server_id}/os-usage-history", "server"),
        Route("GET", "/os-hypervisors/{hypervisor_id}/os-usage-history", "hypervisor"),
    )

    @declares(servers.USAGE_HISTORY, query=QUERY, response="usage_history", faults=(409,))
    def server(self, req: Request, server_id: str) -> Response:
        """Show what a server has used on its present host. ``span``: ``hour`` (the default), ``day`` or ``week``."""
        instance, history = self.compute.get_usage_history(req.context, server_id, _span(req))
        return Response(_view(history, instance.flavor.vcpus, instance.flavor.memory_mb))

    @declares(hypervisors.USAGE_HISTORY, query=QUERY, response="usage_history")
    def hypervisor(self, req: Request, hypervisor_id: str) -> Response:
        """Show what a hypervisor's host has used, with all that runs on it. ``span``: as of a server."""
        node = self.conductor.compute_node_get(req.context, hypervisor_id)
        if services.state(node.service) != "up":
            raise exceptions.ComputeHostUnavailable(host=node.host)
        history = self.compute.get_host_usage_history(req.context, node.host, _span(req))
        return Response(_view(history, node.inventory.vcpus, node.inventory.memory_mb))


def _span(req: Request) -> str:
    return req.query.one("span") or "hour"


# --- views


def _view(history: UsageHistory, vcpus: int, memory_mb: int) -> dict[str, Any]:
    """Return a history, with what there is at most: CPUs and memory of the flavor or host. None: not measured."""
    start = datetime.datetime.fromtimestamp(history.start, datetime.UTC)
    return {
        "usage_history": {
            "start": start.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "step": history.step,
            "vcpus": vcpus,
            "memory_mb": memory_mb,
            "series": {name: [_value(sample, name) for sample in history.samples] for name in _FIELDS},
        }
    }


_FIELDS = UsageSample.__struct_fields__


def _value(sample: UsageSample | None, name: str) -> float | None:
    value = None if sample is None else getattr(sample, name)
    return None if value is None else round(value, 3 if name == "cpu" else 0)
