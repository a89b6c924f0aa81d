"""``/os-hosts`` until 2.42: services by host, and what a host's servers take."""

from __future__ import annotations

from nova_lite.api.compute.schemas import hosts as schemas
from nova_lite.api.compute.schemas import queries
from nova_lite.api.compute.views import hosts as views
from nova_lite.api.http.microversions import Change
from nova_lite.api.http.wsgi import Declaration, Extension, Request, Response, Route, declares
from nova_lite.base import exceptions
from nova_lite.objects import ComputeNode, InstanceFilters, Service
from nova_lite.policies import hosts as policies

_LAST = Change.NO_HOSTS - 1
_PATH = "/os-hosts"
_SWITCHES = {"startup": policies.HOSTS_START, "shutdown": policies.HOSTS_SHUTDOWN, "reboot": policies.HOSTS_REBOOT}

_DISABLE = " `openstack compute service set --disable` keeps new servers away."


class Hosts(Extension):
    alias = "os-hosts"
    title = "Hosts"
    routes = (
        Route("GET", _PATH, "index", until=_LAST),
        Route("GET", _PATH + "/{id}", "show", until=_LAST),
        Route("PUT", _PATH + "/{id}", "update", until=_LAST),
        *(
            Route("GET", f"{_PATH}/{{id}}/{verb}", "switch", until=_LAST, declared=Declaration(rule, status=501))
            for verb, rule in _SWITCHES.items()
        ),
    )

    @declares(policies.HOSTS_LIST, query=schemas.HOSTS, answer="hosts")
    def index(self, req: Request) -> Response:
        zone = req.query.one("zone")
        services = self.conductor.service_list(req.context, None, None)
        return Response(
            {"hosts": [views.short(item) for item in services if not zone or item.availability_zone == zone]}
        )

    @declares(policies.HOSTS_SHOW, query=queries.NOTHING, answer="host")
    def show(self, req: Request, id: str) -> Response:
        nodes = self._nodes(req, id)
        filters = InstanceFilters(host=id, with_user_data=False)
        instances = self.conductor.instance_list(req.context, filters, None, None, ["created_at"], ["asc"])
        return Response({"host": views.resources(id, nodes, instances)})

    @declares(policies.HOSTS_UPDATE, body=schemas.HOST_UPDATE, answer=("host", "status"))
    def update(self, req: Request, id: str) -> Response:
        """Maintenance would move the host's servers away, which no driver here can."""
        service = self._service(req, id)
        if req.data.get("maintenance_mode") is not None:
            raise exceptions.NotServed(what="Host maintenance", instead=_DISABLE)
        disabled = req.data["status"] == "disable"
        self.conductor.service_update(req.context, service.uuid, {"disabled": disabled, "disabled_reason": None})
        return Response({"host": id, "status": req.data["status"] + "d"})

    def switch(self, req: Request, id: str) -> Response:
        """No driver here switches its host: always an error, for an unknown host another one."""
        self._service(req, id)
        raise exceptions.NotServed(what="Switching hosts on and off", instead=_DISABLE)

    def _service(self, req: Request, host: str) -> Service:
        services = self.conductor.service_list(req.context, host, "nova-compute")
        if not services:
            raise exceptions.HostNotFound(host=host[:64])
        return services[0]

    def _nodes(self, req: Request, host: str) -> list[ComputeNode]:
        nodes = [node for node in self.conductor.compute_node_list(req.context, None, None, None) if node.host == host]
        if not nodes:
            raise exceptions.HostNotFound(host=host[:64])
        return nodes
