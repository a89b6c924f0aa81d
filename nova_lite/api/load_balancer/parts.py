"""Load balancers, listeners, pools, members and health monitors."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import msgspec

from nova_lite.api.http import bodies as structs
from nova_lite.api.http.rest import ServiceRequest, ServiceResource, ServiceRoute, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.load_balancer import bodies, certificates, views
from nova_lite.api.network import listing, requests
from nova_lite.base import exceptions
from nova_lite.load_balancer.objects import STRUCTS, WING, Counters, Kind, Listener, LoadBalancer
from nova_lite.policies import load_balancer as policies

_LBAAS = "/lbaas"
_BALANCERS, _POOLS = f"{_LBAAS}/loadbalancers", f"{_LBAAS}/pools"
_MEMBERS = f"{_POOLS}/{{pool_id}}/members"
_BALANCER_RULES = policies.RULES["loadbalancer"]
_MEMBER_RULES = policies.RULES["member"]
#: Octavia's other way to sort a list: ``KEY:DIRECTION``, several with commas.
_SORT = "sort"


class WingResource(ServiceResource):
    """Resource whose conductor's half is the wing of load balancers."""

    def read(self, req: ServiceRequest, method: str, **arguments: Any) -> Any:
        return self.conductor.wing_read(req.context, WING, method, msgspec.to_builtins(arguments))

    def change(self, req: ServiceRequest, method: str, **arguments: Any) -> Any:
        return self.conductor.wing_change(req.context, WING, method, msgspec.to_builtins(arguments))


class Parts(WingResource):
    """Routes that all kinds have. ``kind``: the key of a body; lists have its plural."""

    kind: Kind
    path: str
    new: type[structs.Body]
    changed: type[structs.Body]

    @classmethod
    def declared_routes(cls) -> Iterator[ServiceRoute]:
        one, key = f"{cls.path}/{{id}}", cls.kind.value
        read, create, change, delete = policies.RULES[key]
        query = (*listing.parameters(views.ATTRIBUTES[cls.kind]), _SORT, *views.OWNERS)
        made = (
            ServiceRoute("GET", cls.path, "index", read, query=query, response=f"{key}s"),
            ServiceRoute("POST", cls.path, "create", create, body=cls.new, key=key, response=key, status=201),
            ServiceRoute("GET", one, "show", read, query=("fields",), response=key),
            ServiceRoute("PUT", one, "update", change, body=cls.changed, key=key, response=key),
            ServiceRoute("DELETE", one, "delete", delete, query=("cascade",), status=204),
        )
        yield from (route._replace(resource=cls) for route in made)
        yield from super().declared_routes()

    def balancers(self, req: ServiceRequest, ids: list[str] | None = None) -> list[LoadBalancer]:
        return msgspec.convert(self.read(req, "list", ids=ids), list[LoadBalancer])

    def found(self, req: ServiceRequest, pool_id: str | None = None) -> list[views.View]:
        """Return all that the caller may see. ``pool_id``: only what is in this pool."""
        shown = []
        for balancer in self.balancers(req, None if pool_id is None else [pool_id]):
            if self.kind is Kind.LOAD_BALANCER:
                shown.append(views.part(balancer, balancer) | views.owners(balancer, None, balancer))
            for kind, part, pool in balancer.parts():
                if kind is self.kind and (pool_id is None or (pool is not None and pool.id == pool_id)):
                    shown.append(views.part(balancer, part) | views.owners(balancer, pool, part))
        return shown

    def index(self, req: ServiceRequest, **of: str) -> Response:
        for text in filter(None, req.GET.pop(_SORT, "").split(",")):
            name, _, direction = text.partition(":")
            req.GET.add("sort_key", name)
            req.GET.add("sort_dir", direction or "asc")
        if "sort_key" not in req.GET:
            req.GET.add("sort_key", "created_at")
        key = f"{self.kind}s"
        # Ids in the order of creation: times of creation have whole seconds.
        shown = [listing.Shown(f"{number:06}", view) for number, view in enumerate(self.found(req, **of))]
        source = listing.Source(lambda query: shown, lambda item: [item.view], hidden=views.OWNERS)
        return listing.listed(req, key, source, views.ATTRIBUTES[self.kind], self.conf.api.max_limit)

    def show(self, req: ServiceRequest, id: str, **of: str) -> views.View:
        for balancer in self.balancers(req, [id]):
            if "pool_id" not in of or balancer.pool(of["pool_id"]) is not None:
                return listing.cut(req, self.view_of(balancer, id))
        raise self.missing(id)

    def view_of(self, balancer: LoadBalancer, id: str) -> views.View:
        if self.kind is Kind.LOAD_BALANCER and balancer.id == id:
            return views.part(balancer, balancer)
        for kind, part, _ in balancer.parts():
            if kind is self.kind and part.id == id:
                return views.part(balancer, part)
        raise self.missing(id)

    def missing(self, id: str) -> exceptions.NotFound:
        return exceptions.NotFound(f"{self.kind} {id[:64]} not found.")

    def create(self, req: ServiceRequest, **of: str) -> views.View:
        body: Any = requests.read(req, self.new)
        part = requests.common(STRUCTS[self.kind], body) | {"id": str(uuid.uuid4())}
        part.pop("project_id", None)
        boxes = self.certificates(req, part)
        parent = self.parent(body, **of)
        made = self.change(req, "add", kind=self.kind, parent=parent, part=part, certificates=boxes)
        return self.view_of(msgspec.convert(made, LoadBalancer), part["id"])

    def parent(self, body: Any, **of: str) -> tuple[Kind, str]:
        """Return kind and id of what a new part is in."""
        raise NotImplementedError

    def certificates(self, req: ServiceRequest, part: dict[str, Any]) -> dict[str, str]:
        """Return the sealed certificates of a new part, or of a change, which has the part's id."""
        return {}

    def update(self, req: ServiceRequest, id: str, **of: str) -> views.View:
        self.show(req, id, **of)
        changes = requests.changes(req, self.changed)
        boxes = self.certificates(req, changes | {"id": id})
        made = self.change(req, "update", kind=self.kind, id=id, changes=changes, certificates=boxes)
        return self.view_of(msgspec.convert(made, LoadBalancer), id)

    def delete(self, req: ServiceRequest, id: str, **of: str) -> None:
        self.show(req, id, **of)
        cascade = req.GET.get("cascade", "").lower() in ("true", "1")
        self.change(req, "remove", kind=self.kind, id=id, cascade=cascade)


class LoadBalancers(Parts):
    """Load balancers."""

    kind, path = Kind.LOAD_BALANCER, _BALANCERS
    new, changed = bodies.NewLoadBalancer, bodies.ChangedLoadBalancer

    def create(self, req: ServiceRequest, **of: str) -> views.View:
        body = requests.read(req, bodies.NewLoadBalancer)
        if not (body.vip_port_id or body.vip_subnet_id or body.vip_network_id):
            raise exceptions.ValidationError(
                detail="VIP must contain one of: vip_port_id, vip_network_id, vip_subnet_id."
            )
        wanted = {name: value for name, value in requests.common(LoadBalancer, body).items() if value is not None}
        own: dict[str, Any] = {"listeners": [], "pools": [], "id": str(uuid.uuid4())}
        made = LoadBalancer(**wanted | own | {"project_id": requests.project_of(req, body)})
        bodies.add_parts(made, body)
        boxes = certificates.sealed(self.conductor, req, made.listeners)
        made = msgspec.convert(self.change(req, "create", balancer=made, certificates=boxes), LoadBalancer)
        return views.part(made, made)

    @route("GET", f"{_BALANCERS}/{{id}}/status", _BALANCER_RULES[0], response="statuses")
    @route("GET", f"{_BALANCERS}/{{id}}/statuses", _BALANCER_RULES[0], response="statuses")
    def status(self, req: ServiceRequest, id: str) -> views.View:
        for balancer in self.balancers(req, [id]):
            if balancer.id == id:
                return views.tree(balancer)
        raise self.missing(id)

    @route("GET", f"{_BALANCERS}/{{id}}/stats", _BALANCER_RULES[0], response="stats")
    def stats(self, req: ServiceRequest, id: str) -> Counters:
        return msgspec.convert(self.read(req, "statistics", kind=self.kind, id=id), Counters)

    @route("PUT", f"{_BALANCERS}/{{id}}/failover", policies.FAILOVER, status=202)
    def failover(self, req: ServiceRequest, id: str) -> Response:
        self.show(req, id)
        self.change(req, "failover", id=id)
        return Response(None, 202)


class Listeners(Parts):
    """Listeners."""

    kind, path = Kind.LISTENER, f"{_LBAAS}/listeners"
    new, changed = bodies.NewListener, bodies.ChangedListener

    def parent(self, body: Any, **of: str) -> tuple[Kind, str]:
        return Kind.LOAD_BALANCER, body.loadbalancer_id

    def certificates(self, req: ServiceRequest, part: dict[str, Any]) -> dict[str, str]:
        named = part.keys() & {"default_tls_container_ref", "sni_container_refs"}
        if not named:
            return {}
        present = [one for balancer in self.balancers(req, [part["id"]]) for one in balancer.listeners]
        found = next((one for one in present if one.id == part["id"]), Listener(id="", protocol="", protocol_port=0))
        wanted = {name: part[name] for name in named} | {"id": part["id"]}
        return certificates.sealed(self.conductor, req, [msgspec.structs.replace(found, **wanted)])

    @route("GET", f"{_LBAAS}/listeners/{{id}}/stats", policies.RULES["listener"][0], response="stats")
    def stats(self, req: ServiceRequest, id: str) -> Counters:
        return msgspec.convert(self.read(req, "statistics", kind=self.kind, id=id), Counters)


class Pools(Parts):
    """Pools."""

    kind, path = Kind.POOL, _POOLS
    new, changed = bodies.NewPool, bodies.ChangedPool

    def parent(self, body: Any, **of: str) -> tuple[Kind, str]:
        if body.listener_id:
            return Kind.LISTENER, body.listener_id
        if not body.loadbalancer_id:
            raise exceptions.ValidationError(detail="Must provide at least one of: loadbalancer_id, listener_id.")
        return Kind.LOAD_BALANCER, body.loadbalancer_id


class Members(Parts):
    """Members of pools."""

    kind, path = Kind.MEMBER, _MEMBERS
    new, changed = bodies.NewMember, bodies.ChangedMember

    def index(self, req: ServiceRequest, **of: str) -> Response:
        self.app.part(Pools).show(req, of["pool_id"])
        return super().index(req, **of)

    def parent(self, body: Any, **of: str) -> tuple[Kind, str]:
        return Kind.POOL, of["pool_id"]

    @route("PUT", _MEMBERS, _MEMBER_RULES[1], body=bodies.AllMembers, query=("additive_only",), status=202)
    def replace(self, req: ServiceRequest, pool_id: str) -> Response:
        """Replace all members of a pool."""
        wanted = [bodies.member(item) for item in requests.read(req, bodies.AllMembers).members]
        additive = req.GET.get("additive_only", "").lower() in ("true", "1")
        self.change(req, "set_members", pool_id=pool_id, members=wanted, additive=additive)
        return Response(None, 202)


class HealthMonitors(Parts):
    """Health monitors."""

    kind, path = Kind.MONITOR, f"{_LBAAS}/healthmonitors"
    new, changed = bodies.NewMonitor, bodies.ChangedMonitor

    def parent(self, body: Any, **of: str) -> tuple[Kind, str]:
        return Kind.POOL, body.pool_id
