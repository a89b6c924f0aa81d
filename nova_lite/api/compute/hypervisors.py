"""``/os-hypervisors``."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from oslo_utils import strutils

from nova_lite.api.compute.schemas import hosts as schemas
from nova_lite.api.compute.schemas import queries
from nova_lite.api.compute.views import hypervisors as views
from nova_lite.api.http import validation
from nova_lite.api.http.microversions import Change
from nova_lite.api.http.wsgi import Extension, Query, Request, Response, Route, declares
from nova_lite.base import exceptions
from nova_lite.objects import ComputeNode, Instance, InstanceFilters
from nova_lite.policies import hosts as policies

_PATH = "/os-hypervisors"
_BEFORE_UUIDS = Change.UUIDS_OF_SERVICES - 1
_BEFORE_2_88 = Change.NO_HYPERVISOR_STATISTICS - 1

Servers = dict[tuple[str | None, str | None], list[Instance]]


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

    @declares(policies.HYPERVISORS_LIST, query=schemas.HYPERVISORS, answer="hypervisors")
    def index(self, req: Request) -> Response:
        nodes, servers, links = self._list(req)
        return Response({"hypervisors": [views.short(req, node, servers) for node in nodes], **links})

    @declares(policies.HYPERVISORS_DETAIL, query=schemas.HYPERVISORS, answer="hypervisors")
    def detail(self, req: Request) -> Response:
        nodes, servers, links = self._list(req)
        return Response({"hypervisors": [views.whole(req, node, servers) for node in nodes], **links})

    @declares(policies.HYPERVISORS_SHOW, query=schemas.HYPERVISOR, answer="hypervisor")
    def show(self, req: Request, id: str) -> Response:
        node = self._get(req, id)
        servers = self._servers(req) if _with_servers(req.query) else None
        return Response({"hypervisor": views.whole(req, node, servers)})

    @declares(policies.HYPERVISORS_UPTIME, query=queries.NOTHING, answer="hypervisor")
    def uptime(self, req: Request, id: str) -> Response:
        node = self._get(req, id)
        if not views.is_up(node):
            raise exceptions.ValidationError(detail=f"Service of host {node.host} is unavailable: it is down.")
        if node.inventory.uptime is None:
            raise exceptions.NotImplementedByDriver(operation="telling its uptime")
        return Response({"hypervisor": views.short(req, node, None) | {"uptime": node.inventory.uptime}})

    @declares(policies.HYPERVISORS_STATISTICS, query=queries.NOTHING, answer="hypervisor_statistics")
    def statistics(self, req: Request) -> Response:
        nodes = self.conductor.compute_node_list(req.context, None, None, None)
        return Response({"hypervisor_statistics": views.statistics(nodes)})

    @declares(policies.HYPERVISORS_SEARCH, answer="hypervisors")
    def search(self, req: Request, id: str) -> Response:
        nodes = self._matching(req, id)
        return Response({"hypervisors": [views.short(req, node, None) for node in nodes]})

    @declares(policies.HYPERVISORS_SERVERS, answer="hypervisors")
    def servers(self, req: Request, id: str) -> Response:
        nodes, servers = self._matching(req, id), self._servers(req)
        return Response({"hypervisors": [views.short(req, node, servers) for node in nodes]})

    def _list(self, req: Request) -> tuple[list[ComputeNode], Servers | None, dict[str, Any]]:
        """A page of hypervisors, their servers if asked for, and the link to the next page."""
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
        servers = self._servers(req) if _with_servers(query) else None
        if pattern is not None:
            return nodes, servers, {}
        return nodes, servers, req.next_page("hypervisors_links", nodes, limit, lambda node: views.identity(req, node))

    def _get(self, req: Request, node_id: str) -> ComputeNode:
        """A name in place of an id is 400 since ids are uuids (clients then look it up in the list), 404 before."""
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

    def _servers(self, req: Request) -> Servers:
        """All servers, by the host and node they are on."""
        servers: Servers = defaultdict(list)
        everything = InstanceFilters(with_user_data=False)
        for instance in self.conductor.instance_list(req.context, everything, None, None, ["created_at"], ["asc"]):
            servers[instance.host, instance.node].append(instance)
        return servers


def _with_servers(query: Query) -> bool:
    return strutils.bool_from_string(query.one("with_servers") or "false", strict=True)
