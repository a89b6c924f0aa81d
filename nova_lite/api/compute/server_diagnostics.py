"""``/servers/{server_id}/diagnostics`` and ``topology``: what is known of a server on its host."""

from __future__ import annotations

import datetime
from typing import Any

import msgspec

from nova_lite.api.compute import schema_types as t
from nova_lite.api.http.microversions import Change
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, declares
from nova_lite.objects import Diagnostics, Instance, InstanceNUMACell
from nova_lite.policies import servers as policies


class ServerDiagnostics(Extension):
    alias = "os-server-diagnostics"
    title = "Diagnostics and topology of a server"
    routes = (
        Route("GET", "/servers/{server_id}/diagnostics", "show"),
        Route("GET", "/servers/{server_id}/topology", "topology", since=Change.TOPOLOGY),
    )

    @declares(policies.DIAGNOSTICS, query=t.NO_PARAMETERS, response=("memory", "memory_details"), faults=(409,))
    def show(self, req: Request, server_id: str) -> Response:
        instance, found = self.compute.get_diagnostics(req.context, server_id)
        if req.has(Change.STANDARD_DIAGNOSTICS):
            return Response(_standard_view(instance, found))
        return Response(_free_form_view(found))

    @declares(policies.TOPOLOGY, query=t.NO_PARAMETERS, response=("nodes", "pagesize_kb"))
    def topology(self, req: Request, server_id: str) -> Response:
        """A guest that is bound to no NUMA nodes of its host has an empty list."""
        instance = self.conductor.instance_get(req.context, server_id)
        target = {"project_id": instance.project_id, "user_id": instance.user_id}
        return Response(_topology_view(instance, with_host=req.allows(policies.TOPOLOGY_HOST, target)))


# --- views

_KIB_PER_MIB = 1024


def _topology_view(instance: Instance, with_host: bool) -> dict[str, Any]:
    """Its NUMA nodes, and where in its host they are if the caller may know."""
    if instance.numa is None:
        return {"nodes": [], "pagesize_kb": None}
    return {
        "nodes": [_node_view(cell, with_host) for cell in instance.numa.cells],
        "pagesize_kb": instance.numa.cells[0].page_kb,
    }


def _node_view(cell: InstanceNUMACell, with_host: bool) -> dict[str, Any]:
    view: dict[str, Any] = {"memory_mb": cell.memory_mb, "siblings": [], "vcpu_set": cell.cpus}
    if with_host:
        pins = dict(zip(map(str, cell.cpus), cell.pins, strict=False))
        view |= {"host_node": cell.cell, "cpu_pinning": pins}
    return view


def _standard_view(instance: Instance, found: Diagnostics) -> dict[str, Any]:
    """From 2.48 on. ``uptime``: seconds since the server was built, as nobody notes when its guest was last started."""
    return {
        "state": "running",
        "driver": found.driver,
        "hypervisor": found.hypervisor,
        "hypervisor_os": found.hypervisor_os,
        "uptime": _seconds_since(instance.launched_at),
        "config_drive": found.config_drive,
        "num_cpus": len(found.cpus),
        "num_nics": len(found.nics),
        "num_disks": len(found.disks),
        "cpu_details": [msgspec.to_builtins(cpu) for cpu in found.cpus],
        "nic_details": [_unnamed(nic) for nic in found.nics],
        "disk_details": [_unnamed(disk) for disk in found.disks],
        "memory_details": {"maximum": found.memory_maximum, "used": found.memory_used},
    }


def _free_form_view(found: Diagnostics) -> dict[str, int]:
    """Before 2.48: numbers by the names that libvirt's guests had; memory in KiB. What is not known is left out."""
    numbers: dict[str, int | None] = {f"cpu{cpu.id}_time": cpu.time for cpu in found.cpus}
    for disk in found.disks:
        numbers |= {
            f"{disk.name}_read_req": disk.read_requests,
            f"{disk.name}_read": disk.read_bytes,
            f"{disk.name}_write_req": disk.write_requests,
            f"{disk.name}_write": disk.write_bytes,
            f"{disk.name}_errors": disk.errors_count,
        }
    for nic in found.nics:
        for way in ("rx", "tx"):
            numbers |= {
                f"{nic.name}_{way}": getattr(nic, f"{way}_octets"),
                f"{nic.name}_{way}_packets": getattr(nic, f"{way}_packets"),
                f"{nic.name}_{way}_errors": getattr(nic, f"{way}_errors"),
                f"{nic.name}_{way}_drop": getattr(nic, f"{way}_drop"),
            }
    numbers |= {"memory": _kib(found.memory_maximum), "memory-rss": _kib(found.memory_used)}
    return {name: number for name, number in numbers.items() if number is not None}


def _unnamed(item: msgspec.Struct) -> dict[str, Any]:
    shown: dict[str, Any] = msgspec.to_builtins(item)
    del shown["name"]
    return shown


def _kib(mib: int | None) -> int | None:
    return None if mib is None else mib * _KIB_PER_MIB


def _seconds_since(time: datetime.datetime | None) -> int | None:
    if time is None:
        return None
    return int((datetime.datetime.now(datetime.UTC).replace(tzinfo=None) - time).total_seconds())
