"""All APIs of one in-process cloud, with one resource of each kind, for tests that send requests to every route."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import webob

from nova_lite.api.http import deploy
from nova_lite.api.http.server import NETWORK
from nova_lite.api.identity import authority, directory, tokens
from nova_lite.api.identity.authority import Scope
from nova_lite.db.network import floating_ips
from tests.support.in_process_cloud import InProcessCloud
from tests.support.waiting import wait_for

PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKotuhLbl9jfEG3+ro7D+5cGG9LmDay91HqOs+RyVskj"
#: The mount points of the services, by name in the paste file.
ROOTS = {
    "osapi_compute": "/v2.1",
    "identity": "",
    "image": "/v2",
    "volume": "/v3",
    "network": "/v2.0",
    "metadata": "",
    "placement": "",
}
#: The names of the services in the tables of `tests.support.requests_of_routes`.
SERVICES = {"compute": "osapi_compute"}
PATCH = "application/openstack-images-v2.1-json-patch"

#: The host sends no heartbeats, so it never counts as down.
_OPTIONS = """
[DEFAULT]
service_down_time = 1000000
wings = trunks
[compute]
hypervisor_timeout = 1000000
[api]
enabled_apis = osapi_compute, identity, image, volume, network, metadata, placement
auth_strategy = standalone
metadata_requests_per_minute = 0
[cors]
allowed_origin = https://page.example
[identity]
users_file = {path}/users.yaml
[network]
project_ranges = 10.64.0.0/10, fd40::/10
networks_per_project = -1
[quota]
instances = 100000
cores = -1
ram = -1
[volume]
quota_volumes = -1
quota_gigabytes = -1
quota_snapshots = -1
[fake]
vcpus = 100000
memory_mb = 100000000
disk_gb = 100000000
"""


class EveryApi(InProcessCloud):
    """Sends requests of an admin. ``things``: ids of resources by kind, as in `tests.support.requests_of_routes`."""

    def __init__(self, path: Path, database: str | None = None) -> None:
        self._path = path
        super().__init__(path, _OPTIONS.format(path=path), database)
        self.apps = {name: deploy.load_app(name, self.services) for name in ROOTS}
        ours = authority.of(self.services)
        with ours.replica.changing() as content:
            tokens.add_key(content, 3)
            self.project = directory.add_project(content, "demo")
            self.user = directory.add_user(content, "admin", directory.new_password(None), self.project)
            directory.grant(self.user, self.project, "admin")
            other = directory.add_project(content, "other")
            user = directory.add_user(content, "other", directory.new_password(None), other)
            directory.grant(user, other, "member")
        self._others = {"user": [user.id], "project": [other.id]}
        self.token = ours.issue(ours.scoped(self.user, Scope(project_id=self.project.id)))[0]
        self.things = self._furnish()

    def send(
        self,
        service: str,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        version: str = "2.96",
    ) -> webob.Response:
        """Send a request and return the response. ``path`` is quoted. ``body``: bytes, or a value for JSON."""
        name = SERVICES.get(service, service)
        request = webob.Request.blank(ROOTS[name] + path, method=method, base_url=f"http://cloud:{len(name)}")
        request.headers["X-Auth-Token"] = self.token
        request.headers["X-Subject-Token"] = self.token
        versions = {"compute": version, "volume": "3.42", "placement": "1.39"}
        request.headers["OpenStack-API-Version"] = ", ".join(f"{name} {value}" for name, value in versions.items())
        if body is not None:
            patch = (service, method) == ("image", "PATCH")
            request.content_type = PATCH if patch else "application/json"
            request.body = body if isinstance(body, bytes) else json.dumps(body).encode()
        elif (service, method) == ("image", "PUT") and path.endswith(("/file", "/stage")):
            request.content_type = "application/octet-stream"
        for header, value in (headers or {}).items():
            request.environ[header] = value
        return request.get_response(self.apps[name])

    def made(self, service: str, path: str, body: Any, method: str = "POST") -> Any:
        response = self.send(service, method, path, body)
        assert response.status_code < 300, f"{method} {path}: {response.status_code} {response.text}"
        return response.json if response.body else {}

    def new_server(self) -> str:
        """Create a server, again while its host is too slow to have it, and return its id once it is ACTIVE."""
        body = {"name": "one", "imageRef": self.image_id, "flavorRef": "1", "networks": "auto", "key_name": "one"}
        body |= {"metadata": {"key": "value"}, "tags": ["tag"]}

        def attempt() -> str | None:
            server_id = str(self.made("compute", "/servers", {"server": body})["server"]["id"])
            return (
                server_id if wait_for("the server is built", lambda: self._built(server_id), 30) == "ACTIVE" else None
            )

        return wait_for("a server is ACTIVE", attempt, 120)

    def renew_server(self) -> None:
        """Replace the server in ``things``, unless it is ACTIVE without a task."""
        server_id = self.things["server"][0]
        if self._built(server_id) != "ACTIVE":
            self.send("compute", "DELETE", f"/servers/{server_id}")
            self.revive_host()
            self.things["server"] = [self.new_server()]

    def revive_host(self) -> None:
        """Undo requests that have disabled the host or forced it down."""
        path = f"/os-services/{self.things['service'][0]}"
        self.send("compute", "PUT", path, {"status": "enabled", "forced_down": False})
        self.compute.registration.register()
        self.compute.registration.serve()

    def _built(self, server_id: str) -> str | None:
        return self._status("compute", "server", server_id)

    def _status(self, service: str, kind: str, id: str) -> str | None:
        response = self.send(service, "GET", f"/{kind}s/{id}")
        if response.status_code == 404:
            return "GONE"
        shown = response.json[kind]
        return None if shown.get("OS-EXT-STS:task_state") else str(shown["status"])

    def _furnish_conformance(self, domain: str) -> dict[str, list[str]]:
        """Create what only the second distribution serves."""
        make = self.made
        policy_id = make("identity", "/v3/policies", {"policy": {"type": "text/plain", "blob": "{}"}})["policy"]["id"]
        body: dict[str, Any] = {"config": {"ldap": {"url": "ldap://cloud"}}}
        make("identity", f"/v3/domains/{domain}/config", body, "PUT")
        body = {"endpoint_group": {"name": "one", "filters": {"interface": "internal"}}}
        endpoints = make("identity", "/v3/OS-EP-FILTER/endpoint_groups", body)["endpoint_group"]["id"]
        return {"policy": [policy_id], "endpoint_group": [endpoints]}

    def _furnish_forwarding(self, pool_id: str) -> dict[str, list[str]]:
        """Create a port forwarding, with a router and a network of its own."""
        make = self.made
        network_id = make("network", "/networks", {"network": {"name": "two"}})["network"]["id"]
        subnet = {"network_id": network_id, "cidr": "10.69.0.0/24", "ip_version": 4}
        subnet_id = make("network", "/subnets", {"subnet": subnet})["subnet"]["id"]
        gateway = {"external_gateway_info": {"network_id": pool_id}}
        router_id = make("network", "/routers", {"router": gateway})["router"]["id"]
        make("network", f"/routers/{router_id}/add_router_interface", {"subnet_id": subnet_id}, "PUT")
        port_id = make("network", "/ports", {"port": {"network_id": network_id}})["port"]["id"]
        body: dict[str, Any] = {"floatingip": {"floating_network_id": pool_id}}
        address_id = make("network", "/floatingips", body)["floatingip"]["id"]
        body = {"internal_port_id": port_id, "protocol": "tcp", "internal_port": 22, "external_port": 2222}
        path = f"/floatingips/{address_id}/port_forwardings"
        made = make("network", path, {"port_forwarding": body})["port_forwarding"]["id"]
        return {"forwarded_address": [address_id], "port_forwarding": [made], "forwarded_port": [port_id]}

    def _furnish_trunk(self, network_id: str) -> dict[str, list[str]]:
        """Create a trunk with a subport, and ports for further ones."""
        make = self.made
        body = {"port": {"network_id": network_id}}
        parent, subport, *free = (make("network", "/ports", body)["port"]["id"] for _ in range(4))
        subports = [{"port_id": subport, "segmentation_type": "vlan", "segmentation_id": 2}]
        made = make("network", "/trunks", {"trunk": {"port_id": parent, "sub_ports": subports}})["trunk"]["id"]
        return {"trunk": [made], "subport": [subport], "free_parent": free[:1], "free_subport": free[1:]}

    def _furnish(self) -> dict[str, list[str]]:
        make = self.made
        self.conductor.db.write(floating_ips.create_pool, "public", "172.24.9.32/28")
        flavor = {"name": "own", "ram": 64, "vcpus": 1, "disk": 1, "os-flavor-access:is_public": False}
        flavor_id = make("compute", "/flavors", {"flavor": flavor})["flavor"]["id"]
        make("compute", f"/flavors/{flavor_id}/action", {"addTenantAccess": {"tenant": self.project.id}})
        make("compute", f"/flavors/{flavor_id}/os-extra_specs", {"extra_specs": {"key": "value"}})
        make("compute", "/os-keypairs", {"keypair": {"name": "one", "public_key": PUBLIC_KEY}})
        aggregate = make("compute", "/os-aggregates", {"aggregate": {"name": "one"}})["aggregate"]["id"]
        policy = {"server_group": {"name": "one", "policy": "affinity"}}
        server_group = make("compute", "/os-server-groups", policy)["server_group"]["id"]
        image = {"name": "one", "disk_format": "raw", "container_format": "bare", "key": "value", "tags": ["tag"]}
        queued = make("image", "/images", image)["id"]
        namespace = {"namespace": "one", "tags": [{"name": "key"}], "objects": [{"name": "key"}]}
        namespace |= {"properties": {"key": {"title": "key", "type": "string"}}}
        make("image", "/metadefs/namespaces", namespace)
        volume_id = make("volume", "/volumes", {"volume": {"size": 1, "metadata": {"key": "value"}}})["volume"]["id"]
        wait_for("the volume is there", lambda: self._status("volume", "volume", volume_id) == "available", 30)
        backup = make("volume", "/backups", {"backup": {"volume_id": volume_id}})["backup"]["id"]
        wait_for("the backup is there", lambda: self._status("volume", "backup", backup) == "available", 30)
        qos = make("volume", "/qos-specs", {"qos_specs": {"name": "one", "key": "value"}})["qos_specs"]["id"]
        snapshot = {"snapshot": {"volume_id": volume_id, "metadata": {"key": "value"}}}
        snapshot_id = make("volume", "/snapshots", snapshot)["snapshot"]["id"]
        group = make("network", "/security-groups", {"security_group": {"name": "one"}})["security_group"]["id"]
        rule = {"security_group_id": group, "direction": "ingress", "protocol": "tcp"}
        rule_id = make("network", "/security-group-rules", {"security_group_rule": rule})["security_group_rule"]["id"]
        network_id = make("network", "/networks", {"network": {"name": "one"}})["network"]["id"]
        subnet = {"network_id": network_id, "cidr": "10.65.0.0/24", "ip_version": 4}
        subnet_id = make("network", "/subnets", {"subnet": subnet})["subnet"]["id"]
        port_id = make("network", "/ports", {"port": {"network_id": network_id}})["port"]["id"]
        (pool,) = self.send("network", "GET", "/networks?router:external=true").json["networks"]
        address = make("network", "/floatingips", {"floatingip": {"floating_network_id": pool["id"]}})["floatingip"]
        rules = [{"service": "compute", "method": "GET", "path": "/v2.1/servers"}]
        body = {"application_credential": {"name": "one", "access_rules": rules}}
        path = f"/v3/users/{self.user.id}/application_credentials"
        credential = make("identity", path, body)["application_credential"]
        ec2 = make("identity", f"/v3/users/{self.user.id}/credentials/OS-EC2", {"tenant_id": self.project.id})
        body = {"credential": {"type": "totp", "blob": "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"}}
        totp = make("identity", "/v3/credentials", body)["credential"]["id"]
        given = {"trustor_user_id": self.user.id, "trustee_user_id": self._others["user"][0], "impersonation": True}
        given |= {"project_id": self.project.id, "roles": [{"name": "admin"}]}
        trust = make("identity", "/v3/OS-TRUST/trusts", {"trust": given})["trust"]["id"]
        domain = make("identity", "/v3/domains", {"domain": {"name": "one"}})["domain"]["id"]
        members = make("identity", "/v3/groups", {"group": {"name": "one"}})["group"]["id"]
        make("identity", "/v3/regions", {"region": {"id": "one"}})
        catalog = make("identity", "/v3/services", {"service": {"type": "one"}})["service"]["id"]
        body = {"endpoint": {"service_id": catalog, "interface": "public", "url": "http://cloud", "region_id": "one"}}
        endpoint = make("identity", "/v3/endpoints", body)["endpoint"]["id"]
        limit = {"service_id": catalog, "resource_name": "things"}
        body = {"registered_limits": [limit | {"default_limit": 5}]}
        registered = make("identity", "/v3/registered_limits", body)["registered_limits"][0]["id"]
        body = {"limits": [limit | {"resource_limit": 5, "domain_id": domain}]}
        limits = make("identity", "/v3/limits", body)["limits"][0]["id"]
        roles = [make("identity", "/v3/roles", {"role": {"name": name}})["role"]["id"] for name in ("one", "two")]
        federation = "/v3/OS-FEDERATION"
        mapped = {"local": [{"user": {"name": "{0}"}}], "remote": [{"type": "OIDC-sub"}]}
        make("identity", f"{federation}/mappings/one", {"mapping": {"rules": [mapped]}}, "PUT")
        make("identity", f"{federation}/identity_providers/one", {"identity_provider": {}}, "PUT")
        body = {"protocol": {"mapping_id": "one"}}
        make("identity", f"{federation}/identity_providers/one/protocols/one", body, "PUT")
        router_id = make("network", "/routers", {"router": {"name": "one"}})["router"]["id"]
        forwarded = self._furnish_forwarding(pool["id"])
        shared = {
            kind: make("network", f"/{path}", {key: values})[key]["id"]
            for kind, path, key, values in (
                ("subnet_pool", "subnetpools", "subnetpool", {"prefixes": ["10.67.0.0/16"]}),
                ("address_scope", "address-scopes", "address_scope", {"ip_version": 4}),
                ("address_group", "address-groups", "address_group", {"addresses": ["10.0.0.0/8"]}),
            )
        }
        values = {"object_type": "network", "object_id": network_id, "action": "access_as_shared"}
        body = {"rbac_policy": {**values, "target_tenant": "other"}}
        shared["rbac_policy"] = make("network", "/rbac-policies", body)["rbac_policy"]["id"]
        policy = make("network", "/qos/policies", {"policy": {"name": "one"}})["policy"]["id"]
        shared["qos_policy"] = policy
        for key, values in (("bandwidth_limit_rule", {"max_kbps": 1000}), ("dscp_marking_rule", {"dscp_mark": 8})):
            shared[key] = make("network", f"/qos/policies/{policy}/{key}s", {key: values})[key]["id"]
        server_id = self.new_server()
        request = self.send("compute", "GET", f"/servers/{server_id}/os-instance-actions").json["instanceActions"][0]
        interfaces = self.send("compute", "GET", f"/servers/{server_id}/os-interface").json["interfaceAttachments"]
        body = {"name": "one", "schedule": {"every": "day"}, "retention": {"daily": 1}, "targets": {"all": True}}
        backup_policy = make("compute", "/os-backup-policies", {"backup_policy": body})["backup_policy"]["id"]
        backups = make("compute", f"/os-backup-policies/{backup_policy}/run", None)["server_backups"]
        self.guest = {"REMOTE_ADDR": interfaces[0]["fixed_ips"][0]["ip_address"], NETWORK: interfaces[0]["net_id"]}
        service = self.send("compute", "GET", "/os-services").json["services"][0]["id"]
        hypervisor = self.send("compute", "GET", "/os-hypervisors").json["hypervisors"][0]["id"]
        return {
            "server": [server_id],
            "flavor": [flavor_id],
            "image": [queued],
            "namespace": ["one"],
            "keypair": ["one"],
            "floating_ip": [address["id"]],
            **forwarded,
            **self._furnish_trunk(network_id),
            "network": [network_id],
            "subnet": [subnet_id],
            "router": [router_id],
            **{kind: [object_id] for kind, object_id in shared.items()},
            "security_group": [group],
            "security_group_rule": [str(rule_id)],
            "server_group": [server_group],
            "backup_policy": [backup_policy],
            "server_backup": [backups[0]["id"]],
            "volume": [volume_id],
            "qos": [qos],
            "backup": [backup],
            "snapshot": [snapshot_id],
            **self._others,
            "application_credential": [credential["id"]],
            "ec2_credential": [ec2["credential"]["access"]],
            "credential": [totp],
            "access_rule": [credential["access_rules"][0]["id"]],
            "domain": [domain],
            "group": [members],
            "trust": [trust],
            "own_user": [self.user.id],
            "own_project": [self.project.id],
            "catalog_service": [catalog],
            "catalog_endpoint": [endpoint],
            "catalog_region": ["one"],
            "port": [interfaces[0]["port_id"]],
            "own_port": [port_id],
            "pool": [pool["id"]],
            "subnet_of_pool": pool["subnets"],
            "request": [request["request_id"]],
            "tag": ["tag"],
            "key": ["key"],
            "label": ["private"],
            "encryption_field": ["encryption_key_id"],
            "role": roles[:1],
            "other_role": roles[1:],
            "identity_provider": ["one"],
            "protocol": ["one"],
            "mapping": ["one"],
            "registered_limit": [registered],
            "config_group": ["ldap"],
            "config_option": ["url"],
            "limit": [limits],
            **self._furnish_conformance(domain),
            "aggregate": [str(aggregate)],
            "service": [service],
            "hypervisor": [hypervisor],
            "resource_class": ["VCPU"],
            "trait": ["COMPUTE_NODE"],
            "host": ["host1"],
            "active_image": [self.image_id],
            "public_flavor": ["1"],
            "public_key": [PUBLIC_KEY],
        }
