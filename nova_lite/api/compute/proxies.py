"""What old clients (until 2.35) ask here of the network and volume services, as far as there is an answer.

The built-in networks are all networks, every server is in the security group ``default``, which lets through whatever
the network does; floating addresses, volumes and snapshots there are none.
"""

from __future__ import annotations

from typing import Any

from nova_lite import exception
from nova_lite.api.compute import networks
from nova_lite.api.wsgi import Answer, Declaration, Extension, Request, Route, declares
from nova_lite.objects import Network, security_group
from nova_lite.policies import proxies as policies


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
        return Answer({"security_groups": [default_group(req.context.project_id)]})

    @declares(policies.SECURITY_GROUPS_SHOW, answer="security_group")
    def show(self, req: Request, id: str) -> Answer:
        """By its id, and by its name, as old clients ask."""
        if not security_group.is_default(id, req.context.project_id):
            raise exception.NotFound(f"Security group {id[:64]} not found.")
        return Answer({"security_group": default_group(req.context.project_id)})


class _Nothing(Extension):
    """Of things that there are none of: lists, and single ones."""

    def empty(self, req: Request) -> Answer:
        assert req.declared.answer is not None
        return Answer({req.declared.answer[0]: []})

    def missing(self, req: Request, id: str) -> Answer:
        assert req.declared.answer is not None
        raise exception.NotFound(_MISSING[req.declared.answer[0]].format(id[:64]))


_MISSING = {
    "floating_ip": "Floating IP not found for ID {}",
    "volume": "Volume {} could not be found.",
    "snapshot": "Snapshot {} could not be found.",
}


def _empty(path: str, policy: str, key: str) -> Route:
    return Route("GET", path, "empty", until=networks.LAST, declared=Declaration(policy, answer=key))


def _missing(path: str, policy: str, key: str) -> Route:
    return Route("GET", path + "/{id}", "missing", until=networks.LAST, declared=Declaration(policy, answer=key))


class FloatingIps(_Nothing):
    alias = "os-floating-ips"
    title = "Floating addresses"
    routes = (
        _empty("/os-floating-ips", policies.FLOATING_IPS_LIST, "floating_ips"),
        _missing("/os-floating-ips", policies.FLOATING_IPS_SHOW, "floating_ip"),
        _empty("/os-floating-ip-pools", policies.FLOATING_IP_POOLS, "floating_ip_pools"),
    )


class Volumes(_Nothing):
    alias = "os-volumes"
    title = "Volumes and their snapshots"
    routes = (
        _empty("/os-volumes", policies.VOLUMES_LIST, "volumes"),
        _empty("/os-volumes/detail", policies.VOLUMES_DETAIL, "volumes"),
        _missing("/os-volumes", policies.VOLUMES_SHOW, "volume"),
        _empty("/os-snapshots", policies.SNAPSHOTS_LIST, "snapshots"),
        _empty("/os-snapshots/detail", policies.SNAPSHOTS_DETAIL, "snapshots"),
        _missing("/os-snapshots", policies.SNAPSHOTS_SHOW, "snapshot"),
    )


def _network(network: Network) -> dict[str, str]:
    return {"id": network.id, "cidr": network.cidr, "label": network.name}


def default_group(project_id: str | None) -> dict[str, Any]:
    return {
        "id": security_group.default_id(project_id),
        "name": security_group.DEFAULT,
        "description": "Default security group",
        "rules": [],
        "tenant_id": project_id,
    }
