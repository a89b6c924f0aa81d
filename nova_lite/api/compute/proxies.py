"""What old clients (until 2.35) ask here of the network and volume services, as far as there is an answer.

The built-in networks are all networks, every server is in the security group ``default``, which lets through whatever
the network does; floating addresses, volumes and snapshots there are none.
"""

from __future__ import annotations

from typing import Any

from nova_lite import exception
from nova_lite.api.compute import networks
from nova_lite.api.wsgi import Answer, Extension, Request, Route, declares
from nova_lite.objects import Network
from nova_lite.policies import proxies as policies

DEFAULT_GROUP = "default"


class TenantNetworks(Extension):
    alias = "os-tenant-networks"
    title = "Networks of a project"
    routes = (
        Route("GET", "/os-tenant-networks", "index", until=networks.LAST),
        Route("GET", "/os-tenant-networks/{id}", "show", until=networks.LAST),
    )

    @declares(policies.TENANT_NETWORKS_LIST, answer="networks")
    def index(self, req: Request) -> Answer:
        return Answer({"networks": [_network(network) for network in self.conductor.network_list(req.context)]})

    @declares(policies.TENANT_NETWORKS_SHOW, answer="network")
    def show(self, req: Request, id: str) -> Answer:
        return Answer({"network": _network(networks.find(self.conductor.network_list(req.context), id))})


class SecurityGroups(Extension):
    alias = "os-security-groups"
    title = "Security groups"
    routes = (
        Route("GET", "/os-security-groups", "index", until=networks.LAST),
        Route("GET", "/os-security-groups/{id}", "show", until=networks.LAST),
    )

    @declares(policies.SECURITY_GROUPS_LIST, answer="security_groups")
    def index(self, req: Request) -> Answer:
        return Answer({"security_groups": [_default_group(req)]})

    @declares(policies.SECURITY_GROUPS_SHOW, answer="security_group")
    def show(self, req: Request, id: str) -> Answer:
        """A group's name is its id, too."""
        if id != DEFAULT_GROUP:
            raise exception.NotFound(f"Security group {id[:64]} not found.")
        return Answer({"security_group": _default_group(req)})


class FloatingIps(Extension):
    alias = "os-floating-ips"
    title = "Floating addresses"
    includes = ("os-floating-ip-pools",)
    routes = (
        Route("GET", "/os-floating-ips", "index", until=networks.LAST),
        Route("GET", "/os-floating-ips/{id}", "show", until=networks.LAST),
        Route("GET", "/os-floating-ip-pools", "pools", until=networks.LAST),
    )

    @declares(policies.FLOATING_IPS_LIST, answer="floating_ips")
    def index(self, req: Request) -> Answer:
        return Answer({"floating_ips": []})

    @declares(policies.FLOATING_IPS_SHOW, answer="floating_ip")
    def show(self, req: Request, id: str) -> Answer:
        raise exception.NotFound(f"Floating IP not found for ID {id[:64]}")

    @declares(policies.FLOATING_IP_POOLS, answer="floating_ip_pools")
    def pools(self, req: Request) -> Answer:
        return Answer({"floating_ip_pools": []})


class Volumes(Extension):
    alias = "os-volumes"
    title = "Volumes and their snapshots"
    routes = (
        Route("GET", "/os-volumes", "index", until=networks.LAST),
        Route("GET", "/os-volumes/detail", "detail", until=networks.LAST),
        Route("GET", "/os-volumes/{id}", "show", until=networks.LAST),
        Route("GET", "/os-snapshots", "snapshots", until=networks.LAST),
        Route("GET", "/os-snapshots/detail", "snapshots_detail", until=networks.LAST),
        Route("GET", "/os-snapshots/{id}", "snapshot", until=networks.LAST),
    )

    @declares(policies.VOLUMES_LIST, answer="volumes")
    def index(self, req: Request) -> Answer:
        return Answer({"volumes": []})

    @declares(policies.VOLUMES_DETAIL, answer="volumes")
    def detail(self, req: Request) -> Answer:
        return Answer({"volumes": []})

    @declares(policies.VOLUMES_SHOW, answer="volume")
    def show(self, req: Request, id: str) -> Answer:
        raise exception.NotFound(f"Volume {id[:64]} could not be found.")

    @declares(policies.SNAPSHOTS_LIST, answer="snapshots")
    def snapshots(self, req: Request) -> Answer:
        return Answer({"snapshots": []})

    @declares(policies.SNAPSHOTS_DETAIL, answer="snapshots")
    def snapshots_detail(self, req: Request) -> Answer:
        return Answer({"snapshots": []})

    @declares(policies.SNAPSHOTS_SHOW, answer="snapshot")
    def snapshot(self, req: Request, id: str) -> Answer:
        raise exception.NotFound(f"Snapshot {id[:64]} could not be found.")


def _network(network: Network) -> dict[str, str]:
    return {"id": network.id, "cidr": network.cidr, "label": network.name}


def _default_group(req: Request) -> dict[str, Any]:
    project = req.context.project_id
    return {"id": DEFAULT_GROUP, "name": DEFAULT_GROUP, "description": "", "rules": [], "tenant_id": project}
