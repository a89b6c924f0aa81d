"""What a server has: interfaces, security groups, volumes; all of it told from the instance itself."""

from __future__ import annotations

from typing import Any

from nova_lite import exception
from nova_lite.api.compute.proxies import default_group
from nova_lite.api.compute.schemas import queries
from nova_lite.api.microversions import Change
from nova_lite.api.wsgi import Answer, Extension, Request, Route, declares
from nova_lite.objects import VIF, Instance
from nova_lite.policies import servers as policies
from nova_lite.states import PowerState

_SERVER = "/servers/{server_id}"


class ServerAttachments(Extension):
    alias = "os-attach-interfaces"
    title = "Interfaces, volumes and security groups of a server"
    routes = (
        Route("GET", _SERVER + "/os-interface", "interfaces"),
        Route("GET", _SERVER + "/os-interface/{port_id}", "interface"),
        Route("GET", _SERVER + "/os-security-groups", "security_groups"),
        Route("GET", _SERVER + "/os-volume_attachments", "volumes"),
    )

    @declares(policies.INTERFACES_LIST, query=queries.NOTHING, answer="interfaceAttachments")
    def interfaces(self, req: Request, server_id: str) -> Answer:
        instance = self.conductor.instance_get(req.context, server_id)
        return Answer({"interfaceAttachments": [_interface(req, instance, vif) for vif in instance.vifs]})

    @declares(policies.INTERFACES_SHOW, query=queries.NOTHING, answer="interfaceAttachment")
    def interface(self, req: Request, server_id: str, port_id: str) -> Answer:
        instance = self.conductor.instance_get(req.context, server_id)
        for vif in instance.vifs:
            if vif.id == port_id:
                return Answer({"interfaceAttachment": _interface(req, instance, vif)})
        raise exception.NotFound(f"Instance {server_id} does not have a port with id {port_id[:64]}")

    @declares(policies.SECURITY_GROUPS, answer="security_groups")
    def security_groups(self, req: Request, server_id: str) -> Answer:
        """A group is an interface's: a server without interfaces has none."""
        instance = self.conductor.instance_get(req.context, server_id)
        return Answer({"security_groups": [default_group(instance.project_id)] if instance.vifs else []})

    @declares(policies.VOLUMES_INDEX, query=queries.VOLUME_ATTACHMENTS, answer="volumeAttachments")
    def volumes(self, req: Request, server_id: str) -> Answer:
        """None: this cloud has no volumes."""
        self.conductor.instance_get(req.context, server_id)
        return Answer({"volumeAttachments": []})


def _interface(req: Request, instance: Instance, vif: VIF) -> dict[str, Any]:
    """A network has one range of addresses, so its id stands for the subnet's, too."""
    shown: dict[str, Any] = {
        "net_id": vif.network.id,
        "port_id": vif.id,
        "mac_addr": vif.mac_address,
        "port_state": "ACTIVE" if instance.power_state == PowerState.RUNNING else "DOWN",
        "fixed_ips": [{"subnet_id": vif.network.id, "ip_address": vif.address}],
    }
    if req.has(Change.INTERFACE_TAGS):
        shown["tag"] = vif.tag
    return shown
