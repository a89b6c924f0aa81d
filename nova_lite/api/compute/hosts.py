"""``/os-hosts`` until 2.42: services by host, and the resources that a host's servers use."""

from __future__ import annotations

from typing import Any

from nova_lite.api.compute import schema_types as t
from nova_lite.api.http.microversions import Change
from nova_lite.api.http.wsgi import Declaration, Extension, Request, Response, Route, declares
from nova_lite.base import exceptions
from nova_lite.objects import ComputeNode, Instance, InstanceFilters, Service
from nova_lite.policies import hosts as policies

# --- schemas

HOSTS_QUERY = t.loose_query({"zone": t.Q_ANY})
HOST_UPDATE_BODY = t.strict(
    {
        "status": t.one_of("enable", "disable"),
        "maintenance_mode": t.one_of("enable", "disable"),
    },
    minProperties=1,
)


# --- routes

_LAST = Change.NO_HOSTS - 1
_PATH = "/os-hosts"
_SWITCHES = {"startup": policies.START, "shutdown": policies.SHUTDOWN, "reboot": policies.REBOOT}

_INSTEAD = " `openstack compute service set --disable` keeps new servers away."


class Hosts(Extension):
    alias = "os-hosts"
    title = "Hosts"
    routes = (
        Route("GET", _PATH, "index", until=_LAST),
        Route("GET", _PATH + "/{id}", "show", until=_LAST),
        Route("PUT", _PATH + "/{id}", "update", until=_LAST),
        *(
            Route("GET", f"{_PATH}/{{id}}/{verb}", "refuse_power", until=_LAST, declared=Declaration(rule, status=501))
            for verb, rule in _SWITCHES.items()
        ),
    )

    @declares(policies.LIST, query=HOSTS_QUERY, response="hosts")
    def index(self, req: Request) -> Response:
        zone = req.query.one("zone")
        services = self.conductor.service_list(req.context, None, None)
        return Response(
            {"hosts": [_short_view(item) for item in services if not zone or item.availability_zone == zone]}
        )

    @declares(policies.SHOW, query=t.NO_PARAMETERS, response="host")
    def show(self, req: Request, id: str) -> Response:
        nodes = self._nodes(req, id)
        filters = InstanceFilters(host=id, with_user_data=False)
        instances = self.conductor.instance_list(req.context, filters, None, None, ["created_at"], ["asc"])
        return Response({"host": _resources_view(id, nodes, instances)})

    @declares(policies.UPDATE, body=HOST_UPDATE_BODY, response=("host", "status"))
    def update(self, req: Request, id: str) -> Response:
        """Enable or disable a host. Maintenance mode, which would move its servers away, is not supported."""
        service = self._service(req, id)
        if req.data.get("maintenance_mode") is not None:
            raise exceptions.NotServed(what="Host maintenance", instead=_INSTEAD)
        disabled = req.data["status"] == "disable"
        self.conductor.service_update(req.context, service.uuid, {"disabled": disabled, "disabled_reason": None})
        return Response({"host": id, "status": req.data["status"] + "d"})

    def refuse_power(self, req: Request, id: str) -> Response:
        """Refuse to power a host on or off, which no driver supports. An unknown host is a 404."""
        self._service(req, id)
        raise exceptions.NotServed(what="Switching hosts on and off", instead=_INSTEAD)

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


# --- views

Amounts = tuple[int, int, int]  # vCPUs, MB of memory, GB of disk


def _short_view(service: Service) -> dict[str, Any]:
    return {
        "host_name": service.host,
        "service": service.binary.removeprefix("nova-"),
        "zone": service.availability_zone,
    }


def _resources_view(host: str, nodes: list[ComputeNode], instances: list[Instance]) -> list[dict[str, Any]]:
    """Return the resources of a host and their use, in total and by project.

    ``used_now``: the claimed resources. ``used_max``: the resources of all servers on the host.
    """
    total = _sum([(node.inventory.vcpus, node.inventory.memory_mb, node.inventory.disk_gb) for node in nodes])
    used = _sum([(node.vcpus_used, node.memory_mb_used, node.disk_gb_used) for node in nodes])
    projects = sorted({instance.project_id for instance in instances})
    amounts = {"(total)": total, "(used_now)": used, "(used_max)": _sum([_amounts(item) for item in instances])}
    for project in projects:
        amounts[project] = _sum([_amounts(item) for item in instances if item.project_id == project])
    return [
        {"resource": {"host": host, "project": project, "cpu": cpu, "memory_mb": memory_mb, "disk_gb": disk_gb}}
        for project, (cpu, memory_mb, disk_gb) in amounts.items()
    ]


def _amounts(instance: Instance) -> Amounts:
    return instance.flavor.vcpus, instance.flavor.memory_mb, instance.flavor.disk_gb


def _sum(amounts: list[Amounts]) -> Amounts:
    return sum(item[0] for item in amounts), sum(item[1] for item in amounts), sum(item[2] for item in amounts)
