"""``/servers/{server_id}/diagnostics`` and ``topology``: a server's counters and its NUMA nodes."""

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
        instance, diagnostics = self.compute.get_diagnostics(req.context, server_id)
        if req.has(Change.STANDARD_DIAGNOSTICS):
            return Response(_standard_view(instance, diagnostics))
        return Response(_free_form_view(diagnostics))

    @declares(policies.TOPOLOGY, query=t.NO_PARAMETERS, response=("nodes", "pagesize_kb"))
    def topology(self, req: Request, server_id: str) -> Response:
        """Show the NUMA nodes of a server. The list is empty if the guest is not bound to NUMA nodes."""
        instance = self.conductor.instance_get(req.context, server_id)
        target = {"project_id": instance.project_id, "user_id": instance.user_id}
        return Response(_topology_view(instance, with_host=req.allows(policies.TOPOLOGY_HOST, target)))


# --- views

_KIB_PER_MIB = 1024


def _topology_view(instance: Instance, with_host: bool) -> dict[str, Any]:
    """Return a server's NUMA nodes, and their places on the host if the caller may see them."""
    if instance.numa is None:
        return {"nodes": [], "pagesize_kb": None}
    return {
        "nodes": [_node_view(cell, with_host) for cell in instance.numa.cells],
        "pagesize_kb": instance.numa.cells[0].page_kb,
    }


def _node_view(cell: InstanceNUMACell, with_host: bool) -> dict[str, Any]:
    view: dict[str, Any] = {"memory_mb": cell.memory_mb, "siblings": [], "vcpu_set": cell.cpus}
    if with_host:
        pins = {str(vcpu): cpu for vcpu, cpu in cell.pinning.items()}
        view |= {"host_node": cell.cell, "cpu_pinning": pins}
    return view


def _standard_view(instance: Instance, diagnostics: Diagnostics) -> dict[str, Any]:
    """Return the diagnostics since 2.48.

    ``uptime`` is in seconds since the creation of the server. The last start of the guest is not recorded.
    """
    return {
        "state": "running",
        "driver": diagnostics.driver,
        "hypervisor": diagnostics.hypervisor,
        "hypervisor_os": diagnostics.hypervisor_os,
        "uptime": _seconds_since(instance.launched_at),
        "config_drive": diagnostics.config_drive,
        "num_cpus": len(diagnostics.cpus),
        "num_nics": len(diagnostics.nics),
        "num_disks": len(diagnostics.disks),
        "cpu_details": [msgspec.to_builtins(cpu) for cpu in diagnostics.cpus],
        "nic_details": [_unnamed(nic) for nic in diagnostics.nics],
        "disk_details": [_unnamed(disk) for disk in diagnostics.disks],
        "memory_details": {"maximum": diagnostics.memory_maximum, "used": diagnostics.memory_used},
    }


def _free_form_view(diagnostics: Diagnostics) -> dict[str, int]:
    """Return the diagnostics before 2.48, with the names of libvirt's statistics.

    Memory is in KiB. Unknown values are left out.
    """
    numbers: dict[str, int | None] = {f"cpu{cpu.id}_time": cpu.time for cpu in diagnostics.cpus}
    for disk in diagnostics.disks:
        numbers |= {
            f"{disk.name}_read_req": disk.read_requests,
            f"{disk.name}_read": disk.read_bytes,
            f"{disk.name}_write_req": disk.write_requests,
            f"{disk.name}_write": disk.write_bytes,
            f"{disk.name}_errors": disk.errors_count,
        }
    for nic in diagnostics.nics:
        for way in ("rx", "tx"):
            numbers |= {
                f"{nic.name}_{way}": getattr(nic, f"{way}_octets"),
                f"{nic.name}_{way}_packets": getattr(nic, f"{way}_packets"),
                f"{nic.name}_{way}_errors": getattr(nic, f"{way}_errors"),
                f"{nic.name}_{way}_drop": getattr(nic, f"{way}_drop"),
            }
    numbers |= {"memory": _kib(diagnostics.memory_maximum), "memory-rss": _kib(diagnostics.memory_used)}
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
