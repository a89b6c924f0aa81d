"""``/servers/{server_id}/os-clones``: new servers on the frozen disks of servers."""

from __future__ import annotations

from nova_lite.api.compute import schema_types as t
from nova_lite.api.compute.servers import create, schemas, view
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, declares
from nova_lite.objects import CreateRequest, NetworkRequest
from nova_lite.policies import servers as policies

# --- schemas

CLONE_BODY = t.wrapped(
    "clone",
    t.strict(
        {
            "name": t.NAME,
            "description": t.DESCRIPTION,
            "hostname": schemas.FQDN,
            "metadata": t.METADATA,
            "networks": schemas.NETWORKS,
            "key_name": t.TEXT,
            "user_data": {"type": "string", "format": "base64", "maxLength": t.MAX_USER_DATA},
        },
        ("name",),
    ),
)


# --- routes


class Clones(Extension):
    alias = "os-clones"
    title = "Clones of a server"
    routes = (Route("POST", "/servers/{server_id}/os-clones", "create"),)

    @declares(policies.CLONES_CREATE, body=CLONE_BODY, status=202, response="server", faults=(409,))
    def create(self, req: Request, server_id: str) -> Response:
        """Create a clone of a server: a new server whose disk has the content of this one's, and shares its blocks.

        It boots, and has the flavor, image and security groups of its source, and an interface on each network of its
        source. ``networks``, ``key_name`` and ``user_data`` are as for a new server.
        """
        source = self.conductor.instance_get(req.context, server_id)
        body = req.data["clone"]
        networks: str | list[NetworkRequest] = [NetworkRequest(network_id=vif.network.id) for vif in source.vifs]
        if "networks" in body:
            networks = create.networks_of(req, body, 1)
        request = CreateRequest(
            name=body["name"].strip(),
            flavor_id=source.flavor.flavorid,
            description=body.get("description"),
            hostname=body.get("hostname"),
            metadata=body.get("metadata", {}),
            networks=networks or "none",
            key_name=body.get("key_name"),
            user_data=body.get("user_data"),
            security_groups=source.security_groups,
            config_drive=source.config_drive,
            auto_disk_config=source.auto_disk_config,
            clone_of=source.uuid,
        )
        clone = self.compute.clone(req.context, request)
        return Response({"server": view.created(req, clone, None)}, 202, {"Location": req.link("servers", clone.uuid)})
