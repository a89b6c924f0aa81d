"""Hosts: their services, and what they have and give, in all and by project."""

from __future__ import annotations

from typing import Any

from nova_lite.objects import ComputeNode, Instance, Service

Amounts = tuple[int, int, int]  # vCPUs, MB of memory, GB of disk


def short(service: Service) -> dict[str, Any]:
    return {
        "host_name": service.host,
        "service": service.binary.removeprefix("nova-"),
        "zone": service.availability_zone,
    }


def resources(host: str, nodes: list[ComputeNode], instances: list[Instance]) -> list[dict[str, Any]]:
    """``used_now`` is what is claimed, ``used_max`` what the host's servers may take."""
    total = _sum([(node.inventory.vcpus, node.inventory.memory_mb, node.inventory.disk_gb) for node in nodes])
    used = _sum([(node.vcpus_used, node.memory_mb_used, node.disk_gb_used) for node in nodes])
    projects = sorted({instance.project_id for instance in instances})
    rows = {"(total)": total, "(used_now)": used, "(used_max)": _sum([_amounts(item) for item in instances])}
    for project in projects:
        rows[project] = _sum([_amounts(item) for item in instances if item.project_id == project])
    return [
        {"resource": {"host": host, "project": project, "cpu": cpu, "memory_mb": memory_mb, "disk_gb": disk_gb}}
        for project, (cpu, memory_mb, disk_gb) in rows.items()
    ]


def _amounts(instance: Instance) -> Amounts:
    return instance.flavor.vcpus, instance.flavor.memory_mb, instance.flavor.disk_gb


def _sum(amounts: list[Amounts]) -> Amounts:
    return sum(item[0] for item in amounts), sum(item[1] for item in amounts), sum(item[2] for item in amounts)
