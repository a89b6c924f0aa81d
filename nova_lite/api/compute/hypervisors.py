"""``/os-hypervisors``: the compute nodes, their resources, and their servers."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

from oslo_utils import strutils

from nova_lite.api.compute import schema_types as t
from nova_lite.api.compute import services
from nova_lite.api.http import validation
from nova_lite.api.http.microversions import Change
from nova_lite.api.http.wsgi import Extension, Query, Request, Response, Route, declares
from nova_lite.base import cpu_sets, exceptions
from nova_lite.objects import ComputeNode, HostedInstance
from nova_lite.policies import hypervisors as policies

# --- schemas

_HYPERVISORS_253: t.Schema = {
    **t.PAGING,
    "hypervisor_hostname_pattern": t.repeatable(t.HOST),
    "with_servers": t.Q_BOOLEAN,
}

HYPERVISORS_QUERY = t.query({}, {Change.HYPERVISOR_PAGING: t.PAGING, Change.UUIDS_OF_SERVICES: _HYPERVISORS_253})

_WITH_SERVERS: t.Schema = {"with_servers": t.Q_BOOLEAN}

HYPERVISOR_QUERY = t.query({}, {Change.UUIDS_OF_SERVICES: _WITH_SERVERS})


# --- routes

_PATH = "/os-hypervisors"
_BEFORE_UUIDS = Change.UUIDS_OF_SERVICES - 1
_BEFORE_2_88 = Change.NO_HYPERVISOR_STATISTICS - 1

ServersByNode = dict[tuple[str, str], list[HostedInstance]]

#: Hosts whose servers one message asks for.
_HOSTS_AT_ONCE = 100


class Hypervisors(Extension):
    alias = "os-hypervisors"
    title = "Hypervisors"
    routes = (
        Route("GET", _PATH, "index"),
        Route("GET", _PATH + "/detail", "detail"),
        Route("GET", _PATH + "/statistics", "statistics", until=_BEFORE_2_88),
        Route("GET", _PATH + "/{id}", "show"),
        Route("GET", _PATH + "/{id}/uptime", "uptime", until=_BEFORE_2_88),
        Route("GET", _PATH + "/{id}/search", "search", until=_BEFORE_UUIDS),
        Route("GET", _PATH + "/{id}/servers", "servers", until=_BEFORE_UUIDS),
    )

    @declares(policies.LIST, query=HYPERVISORS_QUERY, response="hypervisors")
    def index(self, req: Request) -> Response:
        nodes, servers, links = self._list(req)
        return Response({"hypervisors": [_short_view(req, node, servers) for node in nodes], **links})

    @declares(policies.DETAIL, query=HYPERVISORS_QUERY, response="hypervisors")
    def detail(self, req: Request) -> Response:
        nodes, servers, links = self._list(req)
        return Response({"hypervisors": [_detail_view(req, node, servers) for node in nodes], **links})

    @declares(policies.SHOW, query=HYPERVISOR_QUERY, response="hypervisor")
    def show(self, req: Request, id: str) -> Response:
        node = self._get(req, id)
        servers = self._servers(req, [node]) if _with_servers(req.query) else None
        return Response({"hypervisor": _detail_view(req, node, servers)})

    @declares(policies.UPTIME, query=t.NO_PARAMETERS, response="hypervisor")
    def uptime(self, req: Request, id: str) -> Response:
        node = self._get(req, id)
        if not _is_up(node):
            raise exceptions.ValidationError(detail=f"Service of host {node.host} is unavailable: it is down.")
        if node.inventory.uptime is None:
            raise exceptions.NotImplementedByDriver(operation="uptime")
        return Response({"hypervisor": _short_view(req, node, None) | {"uptime": node.inventory.uptime}})

    @declares(policies.STATISTICS, query=t.NO_PARAMETERS, response="hypervisor_statistics")
    def statistics(self, req: Request) -> Response:
        nodes = self.conductor.compute_node_list(req.context, None, None, None)
        return Response({"hypervisor_statistics": _statistics_view(nodes)})

    @declares(policies.SEARCH, response="hypervisors")
    def search(self, req: Request, id: str) -> Response:
        nodes = self._matching(req, id)
        return Response({"hypervisors": [_short_view(req, node, None) for node in nodes]})

    @declares(policies.SERVERS, response="hypervisors")
    def servers(self, req: Request, id: str) -> Response:
        nodes = self._matching(req, id)
        servers = self._servers(req, nodes)
        return Response({"hypervisors": [_short_view(req, node, servers) for node in nodes]})

    def _list(self, req: Request) -> tuple[list[ComputeNode], ServersByNode | None, dict[str, Any]]:
        """Return a page of hypervisors, their servers if requested, and the link to the next page."""
        query = req.query
        pattern = query.one("hypervisor_hostname_pattern")
        if pattern is not None and ("limit" in query or "marker" in query):
            raise exceptions.ValidationError(
                detail="Paging over hypervisors with the hypervisor_hostname_pattern query parameter is not supported."
            )
        limit = query.limit if req.has(Change.HYPERVISOR_PAGING) else None
        nodes = self.conductor.compute_node_list(req.context, pattern, limit, query.marker)
        if pattern is not None and not nodes:
            raise exceptions.NoHypervisorMatches(pattern=pattern)
        servers = self._servers(req, nodes) if _with_servers(query) else None
        if pattern is not None:
            return nodes, servers, {}
        return nodes, servers, req.next_page("hypervisors_links", nodes, limit, lambda node: _identity(req, node))

    def _get(self, req: Request, node_id: str) -> ComputeNode:
        """Return a hypervisor.

        A name instead of an id is a 400 since ids are uuids, because clients then search the list for it. Before, it is
        a 404.
        """
        if req.has(Change.UUIDS_OF_SERVICES):
            if not validation.is_uuid(node_id):
                raise exceptions.ValidationError(detail=f"Invalid uuid {node_id[:64]}")
        elif not node_id.isdecimal():
            raise exceptions.ComputeNodeNotFound(node_id=node_id[:64])
        return self.conductor.compute_node_get(req.context, node_id)

    def _matching(self, req: Request, pattern: str) -> list[ComputeNode]:
        nodes = self.conductor.compute_node_list(req.context, pattern, None, None)
        if not nodes:
            raise exceptions.NoHypervisorMatches(pattern=pattern[:64])
        return nodes

    def _servers(self, req: Request, nodes: list[ComputeNode]) -> ServersByNode:
        """Return the servers of these nodes' hosts, by host and node."""
        servers: ServersByNode = defaultdict(list)
        hosts = sorted({node.host for node in nodes})
        for first in range(0, len(hosts), _HOSTS_AT_ONCE):
            for instance in self.conductor.hosted_instance_list(req.context, hosts[first : first + _HOSTS_AT_ONCE]):
                servers[instance.host, instance.node].append(instance)
        return servers


def _with_servers(query: Query) -> bool:
    return strutils.bool_from_string(query.one("with_servers") or "false", strict=True)


# --- views


def _identity(req: Request, node: ComputeNode) -> str:
    return node.uuid if req.has(Change.UUIDS_OF_SERVICES) else str(node.id)


def _is_up(node: ComputeNode) -> bool:
    """Check whether the host's last report is current."""
    return services.state(node.service) == "up"


def _short_view(req: Request, node: ComputeNode, servers: ServersByNode | None) -> dict[str, Any]:
    """Return the short view. ``servers``: servers by host and node, or None if they were not requested."""
    view: dict[str, Any] = {
        "id": node.uuid if req.has(Change.UUIDS_OF_SERVICES) else node.id,
        "hypervisor_hostname": node.node,
        "state": services.state(node.service),
        "status": services.status(node.service),
    }
    if servers is not None:
        here = [{"uuid": item.uuid, "name": item.name} for item in servers.get((node.host, node.node), [])]
        if here or req.has(Change.STRICT_QUERIES):
            view["servers"] = here
    return view


def _detail_view(req: Request, node: ComputeNode, servers: ServersByNode | None) -> dict[str, Any]:
    service = node.service
    view = _short_view(req, node, servers) | {
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
        return view | {"uptime": node.inventory.uptime if _is_up(node) else None}
    cpu_info = node.inventory.cpu_info
    view["cpu_info"] = cpu_info if req.has(Change.CPU_INFO_OBJECT) else json.dumps(cpu_info)
    return view | _amounts(node)


def _statistics_view(nodes: list[ComputeNode]) -> dict[str, int]:
    total = {"count": len(nodes), **dict.fromkeys(_AMOUNTS, 0)}
    for node in nodes:
        for name, amount in _amounts(node).items():
            total[name] += amount or 0
    return total


_AMOUNTS = (
    "vcpus", "vcpus_used", "memory_mb", "memory_mb_used", "local_gb", "local_gb_used", "free_ram_mb", "free_disk_gb",
    "disk_available_least", "current_workload", "running_vms",
)  # fmt: skip


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
