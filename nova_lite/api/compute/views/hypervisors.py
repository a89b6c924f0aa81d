"""Hypervisors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from nova_lite.api.compute.views import services as service_views
from nova_lite.api.http.microversions import Change
from nova_lite.api.http.wsgi import Request
from nova_lite.base import cpu_sets
from nova_lite.objects import ComputeNode, Instance

Servers = Mapping[tuple[str | None, str | None], list[Instance]]


def identity(req: Request, node: ComputeNode) -> str:
    return node.uuid if req.has(Change.UUIDS_OF_SERVICES) else str(node.id)


def is_up(node: ComputeNode) -> bool:
    """Whether what the host last told of itself may be believed to be so now."""
    return service_views.state(node.service) == "up"


def short(req: Request, node: ComputeNode, servers: Servers | None) -> dict[str, Any]:
    """``servers`` by host and node: None when they were not asked for."""
    view: dict[str, Any] = {
        "id": node.uuid if req.has(Change.UUIDS_OF_SERVICES) else node.id,
        "hypervisor_hostname": node.node,
        "state": service_views.state(node.service),
        "status": service_views.status(node.service),
    }
    if servers is not None:
        here = [{"uuid": item.uuid, "name": item.name} for item in servers.get((node.host, node.node), [])]
        if here or req.has(Change.STRICT_QUERIES):
            view["servers"] = here
    return view


def whole(req: Request, node: ComputeNode, servers: Servers | None) -> dict[str, Any]:
    service = node.service
    view = short(req, node, servers) | {
        "hypervisor_type": node.inventory.hypervisor_type,
        "hypervisor_version": node.inventory.hypervisor_version,
        "host_ip": node.inventory.host_ip,
        "service": {
            "id": service.uuid if req.has(Change.UUIDS_OF_SERVICES) else service.id,
            "host": node.host,
            "disabled_reason": service.disabled_reason,
        },
    }
    if req.has(Change.NO_HYPERVISOR_STATISTICS):
        return view | {"uptime": node.inventory.uptime if is_up(node) else None}
    cpu_info = node.inventory.cpu_info
    view["cpu_info"] = cpu_info if req.has(Change.CPU_INFO_OBJECT) else json.dumps(cpu_info)
    return view | _amounts(node)


def statistics(nodes: list[ComputeNode]) -> dict[str, int]:
    total = {"count": len(nodes), **dict.fromkeys(_AMOUNTS, 0)}
    for node in nodes:
        for name, amount in _amounts(node).items():
            total[name] += amount or 0
    return total


_AMOUNTS = (
    *("vcpus", "vcpus_used", "memory_mb", "memory_mb_used", "local_gb", "local_gb_used", "free_ram_mb"),
    *("free_disk_gb", "disk_available_least", "current_workload", "running_vms"),
)


def _amounts(node: ComputeNode) -> dict[str, int | None]:
    has = node.inventory
    return {
        "vcpus": has.vcpus + sum(len(cpu_sets.parse(cell.dedicated_cpus)) for cell in has.numa),
        "vcpus_used": node.vcpus_used + sum(len(used.cpus) for used in node.numa_used.values()),
        "memory_mb": has.memory_mb,
        "memory_mb_used": node.memory_mb_used,
        "local_gb": has.disk_gb,
        "local_gb_used": node.disk_gb_used,
        "free_ram_mb": has.memory_mb - node.memory_mb_used,
        "free_disk_gb": has.disk_gb - node.disk_gb_used,
        "disk_available_least": has.disk_available_least,
        "current_workload": node.current_workload,
        "running_vms": node.running_vms,
    }
