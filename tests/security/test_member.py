"""A member of one project tries everything against another project's things: each route of each API that a user
reaches, made of the route tables, with ids, names and addresses of the other's. It finds nothing, it learns nothing,
and nothing changes.
"""

from __future__ import annotations

import base64
import copy
import errno
import hashlib
import itertools
import json
import os
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests

from nova_lite.api.page import sessions
from nova_lite.api.volume import versions
from tests.functional import nursery
from tests.functional.cloud import PASSWORDS, Cloud
from tests.security import forgetful
from tests.support import guest_requests
from tests.support.ports import free_port
from tests.support.requests_of_routes import BEHIND_PAGE, KEY, LATEST, Attempt, every_list, every_request
from tests.support.waiting import wait_for

MARK = f"mark-{uuid.uuid4().hex[:12]}"
KEY_PAIR = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBWv0rXwHdgN2Fj7uI3QcTVhYsDS1tdw1JMXfZ2XDKcF " + MARK
SECRET = base64.b64encode(f"#!/bin/sh\n# {MARK}\n".encode()).decode()
#: Columns that heartbeats and sweeps change.
BEATS = {
    "services": {"last_seen_up", "updated_at", "report_count", "version_since"},
    "compute_nodes": {"updated_at", "inventory", "generation"},
    "instance_actions": {"lease_expires_at", "due_at"},
}
#: Tables that each request leaves a row in.
TRACES = ("taken_messages", "audit_events")
#: Documents of a guest at the metadata service.
DOCUMENTS = ("meta_data.json", "user_data", "network_data.json", "password")
#: Routes that any user may ask about any project, and why.
PUBLIC = {
    ("compute", "/os-quota-sets/{id}/defaults"): "all projects have the same defaults",
    (
        "identity",
        "/v3/OS-FEDERATION/identity_providers/{idp_id}/protocols/{protocol_id}/auth",
    ): "a log-in, which is a 401 without a token of the provider",
}
PUBLIC |= {("page", f"/api/{service}{BEHIND_PAGE[service]}{path}"): why for (service, path), why in PUBLIC.items()}
#: Names that users choose freely, so that the attacker may use the victim's.
WORDS = {"key", "tag", "label", "role", "encryption_field"}


class User:
    def __init__(self, cloud: Cloud, name: str) -> None:
        self.cloud = cloud
        self.name = name
        self.token = cloud.token_of(name)
        self.session = requests.Session()
        self.headers: dict[str, str] = {}
        subject = {"X-Auth-Token": self.token, "X-Subject-Token": self.token}
        found = requests.get(f"{cloud.identity_url}/auth/tokens", headers=subject, timeout=30).json()["token"]
        self.id, self.project = str(found["user"]["id"]), str(found["project"]["id"])

    def __call__(
        self, service: str, method: str, path: str, body: Any = None, version: int | None = None, **more: Any
    ) -> requests.Response:
        root = {
            "compute": f"http://127.0.0.1:{self.cloud.port}/v2.1",
            "identity": self.cloud.identity_url.removesuffix("/v3"),
            "image": f"{self.cloud.image_url}/v2",
            "volume": f"http://127.0.0.1:{self.cloud.volume_port}/v3",
            "network": f"http://127.0.0.1:{self.cloud.network_port}/v2.0",
            "placement": f"http://127.0.0.1:{self.cloud.placement_port}",
            "join": f"http://127.0.0.1:{self.cloud.join_port}",
            "page": f"http://127.0.0.1:{self.cloud.page_port}",
        }[service]
        headers = {"X-Auth-Token": self.token, **self.headers, **more.pop("headers", {})}
        if service == "volume":
            headers["OpenStack-API-Version"] = f"volume 3.{versions.MAXIMUM}"
        elif service == "placement":
            headers["OpenStack-API-Version"] = "placement latest"
        elif service == "page":
            # A token in a cookie, as of a browser. The page takes it from nowhere else.
            headers |= {"X-Auth-Token": "", sessions.MARK: "1", "Cookie": f"nova_lite_session={self.token}"}
            headers[sessions.SESSION] = f"{self.id}/{self.project}"
            headers["OpenStack-API-Version"] = f"compute 2.{version}, placement latest, volume 3.{versions.MAXIMUM}"
        elif version is not None:
            headers["OpenStack-API-Version"] = f"{service} 2.{version}"
        data = None
        if body is not None:
            patch = service == "image" and method == "PATCH"
            headers["Content-Type"] = "application/openstack-images-v2.1-json-patch" if patch else "application/json"
            data = json.dumps(body)
        return self.session.request(method, root + path, data=data, headers=headers, timeout=60, **more)

    def made(self, service: str, path: str, body: Any, version: int | None = None, method: str = "POST") -> Any:
        answer = self(service, method, path, body, version)
        assert answer.status_code < 300, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else {}


def digest(path: Path) -> str:
    """Return a digest of a file's data and their places. Holes, which are most of a volume, are not read."""
    found, end = hashlib.sha256(), 0
    with open(path, "rb") as file:
        while (start := next_data(file.fileno(), end)) is not None:
            end = os.lseek(file.fileno(), start, os.SEEK_HOLE)
            found.update(f"{start} {end} ".encode())
            for place in range(start, end, 2**20):
                found.update(os.pread(file.fileno(), min(2**20, end - place), place))
    return found.hexdigest()


def next_data(file: int, place: int) -> int | None:
    """Return where the next data of a file begin, None if there are no more."""
    try:
        return os.lseek(file, place, os.SEEK_DATA)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return None


class Cast(SimpleNamespace):
    """``victim`` and ``attacker``, members of two projects; ``things``: the victim's, by kind; ``own``: the
    attacker's; ``pool``: where floating addresses come from."""

    cloud: Cloud
    victim: User
    attacker: User
    things: dict[str, list[str]]
    own: dict[str, list[str]]
    pool: str

    @property
    def secrets(self) -> set[str]:
        """Return values that no response may contain. Short numbers are no secrets."""
        return {MARK, *(value for values in self.things.values() for value in values if len(value) >= 8)}

    def leaks(self, answer: requests.Response, *sent: Any) -> list[str]:
        told, said = f"{answer.headers} {answer.text}", " ".join(str(item) for item in sent)
        return [secret for secret in self.secrets if secret in told and secret not in said]

    def rows(self) -> dict[str, list[dict[str, Any]]]:
        with sqlite3.connect(f"file:{self.cloud.path}/nova-lite.sqlite?mode=ro", uri=True) as database:
            database.row_factory = sqlite3.Row
            tables = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            return {
                table: [
                    {key: row[key] for key in row.keys() if key not in BEATS.get(table, ())}  # noqa: SIM118
                    for row in database.execute(f"SELECT * FROM {table}")
                ]
                for table in tables
                if not table.startswith("sqlite_") and table not in TRACES
            }

    def of_victim(self) -> dict[str, list[dict[str, Any]]]:
        """Rows that mention the victim, its project, or one of its things."""
        words = self.secrets
        return {
            table: found
            for table, rows in self.rows().items()
            if (found := [row for row in rows if any(word in str(value) for value in row.values() for word in words)])
        }

    def files(self) -> dict[str, tuple[int, str]]:
        """Sizes and digests of the data of images, volumes and backups."""
        shared = Path(self.cloud.path / "shared")
        wanted = [path for path in shared.rglob("*") if path.is_file() and path.name in self.secrets]
        return {str(path): (path.stat().st_size, digest(path)) for path in wanted}

    @contextmanager
    def untouched(self, everything: bool = False) -> Iterator[None]:
        """Check that nothing of the victim's changes; with ``everything``, no row at all."""
        look = self.rows if everything else self.of_victim
        before, files, domains = look(), self.files(), self.cloud.domains()
        yield
        after = look()
        for table in before | after:
            assert after.get(table) == before.get(table), table
        assert self.files() == files
        assert {key: self.cloud.domains()[key] for key in self.things["server"]} == {
            key: domains[key] for key in self.things["server"]
        }


def furnish(cloud: Cloud, user: User, admin: User, mark: str, cidr: str, cidr6: str) -> dict[str, list[str]]:
    """Create one resource of every kind in the user's project. ``mark`` is part of all names; ``cidr`` and ``cidr6``:
    ranges of the project's network.
    """
    make = user.made
    flavor = {"name": mark, "ram": 64, "vcpus": 1, "disk": 1, "os-flavor-access:is_public": False}
    flavor_id = admin.made("compute", "/flavors", {"flavor": flavor})["flavor"]["id"]
    access = {"addTenantAccess": {"tenant": user.project}}
    admin.made("compute", f"/flavors/{flavor_id}/action", access)
    admin.made("compute", f"/flavors/{flavor_id}/os-extra_specs", {"extra_specs": {KEY: mark}})
    make("compute", "/os-keypairs", {"keypair": {"name": mark, "public_key": KEY_PAIR.replace(MARK, mark)}})
    group = make("compute", "/os-security-groups", {"security_group": {"name": mark, "description": mark}})
    group_id = str(group["security_group"]["id"])
    rule = {"parent_group_id": group_id, "ip_protocol": "tcp", "from_port": 22, "to_port": 22, "cidr": "0.0.0.0/0"}
    rule_id = make("compute", "/os-security-group-rules", {"security_group_rule": rule})["security_group_rule"]["id"]
    servers = make("compute", "/os-server-groups", {"server_group": {"name": mark, "policies": ["affinity"]}})
    image = {"name": mark, "disk_format": "raw", "container_format": "bare", "visibility": "private", "mark": mark}
    image_id = make("image", "/images", image)["id"]
    headers = {"X-Auth-Token": user.token, "Content-Type": "application/octet-stream"}
    url = f"{cloud.image_url}/v2/images/{image_id}/file"
    assert requests.put(url, data=mark.encode() * 100, headers=headers, timeout=60).status_code == 204
    make("image", f"/images/{image_id}/tags/{mark}", None, method="PUT")
    namespace = {"namespace": f"namespace-{mark}", "owner": user.project, "tags": [{"name": KEY}]}
    namespace |= {"objects": [{"name": KEY}], "properties": {KEY: {"title": mark, "type": "string"}}}
    namespace |= {"resource_type_associations": [{"name": KEY}]}
    admin.made("image", "/metadefs/namespaces", namespace)

    def volume() -> str:
        wanted = {"name": mark, "size": 1, "metadata": {KEY: mark}, "description": mark}
        volume_id = str(make("volume", "/volumes", {"volume": wanted})["volume"]["id"])
        wait_for("the volume is there", lambda: shown("volumes", volume_id)["status"] == "available")
        return volume_id

    def shown(collection: str, which: str) -> Any:
        return user("volume", "GET", f"/{collection}/{which}").json()[collection[:-1]]

    def is_now(which: str, status: str) -> None:
        def look() -> Any:
            server = user("compute", "GET", f"/servers/{which}").json()["server"]
            return server["status"] == status and server["OS-EXT-STS:task_state"] is None

        wait_for(f"the server is {status}", look)

    volumes = [volume(), volume()]
    backup = {"backup": {"volume_id": volumes[0], "name": mark, "metadata": {KEY: mark}}}
    backup_id = make("volume", "/backups", backup)["backup"]["id"]
    wait_for("the backup is there", lambda: shown("backups", backup_id)["status"] == "available")
    qos = admin.made("volume", "/qos-specs", {"qos_specs": {"name": f"qos-{mark}", KEY: mark}})["qos_specs"]["id"]
    snapshot = {"snapshot": {"volume_id": volumes[0], "name": mark, "metadata": {KEY: mark}}}
    snapshot_id = make("volume", "/snapshots", snapshot)["snapshot"]["id"]
    wait_for("the snapshot is there", lambda: shown("snapshots", snapshot_id)["status"] == "available")
    server = {
        "name": mark,
        "description": mark,
        "imageRef": cloud.image_id,
        "flavorRef": "1",
        "key_name": mark,
        "metadata": {KEY: mark},
        "tags": [mark],
        "user_data": base64.b64encode(f"# {mark}".encode()).decode(),
        "security_groups": [{"name": mark}],
        "networks": "auto",
    }
    hints = {"group": servers["server_group"]["id"]}
    body = {"server": server, "os:scheduler_hints": hints}
    server_id = make("compute", "/servers", body, 52)["server"]["id"]
    is_now(server_id, "ACTIVE")
    attached = {"volumeAttachment": {"volumeId": volumes[1]}}
    make("compute", f"/servers/{server_id}/os-volume_attachments", attached, LATEST)
    wait_for("the volume is attached", lambda: shown("volumes", volumes[1])["status"] == "in-use")
    attachment = shown("volumes", volumes[1])["attachments"][0]["attachment_id"]
    address = make("compute", "/os-floating-ips", {"pool": "public"})["floating_ip"]
    make("compute", f"/servers/{server_id}/action", {"addFloatingIp": {"address": address["ip"]}})
    make("compute", f"/servers/{server_id}/action", {"resize": {"flavorRef": flavor_id}})
    is_now(server_id, "VERIFY_RESIZE")
    make("compute", f"/servers/{server_id}/action", {"confirmResize": None})
    is_now(server_id, "ACTIVE")
    wanted = {"createImage": {"name": mark, "metadata": {KEY: mark}}}
    answer = user("compute", "POST", f"/servers/{server_id}/action", wanted)
    made = answer.headers["Location"].rsplit("/", 1)[1]
    wait_for("the image is made", lambda: user("image", "GET", f"/images/{made}").json().get("status") == "active")
    is_now(server_id, "ACTIVE")
    wanted = {"name": mark, "schedule": {"every": "day"}, "retention": {"daily": 1}}
    wanted |= {"targets": {"servers": [server_id], "tags": [mark]}}
    backup_policy = make("compute", "/os-backup-policies", {"backup_policy": wanted})["backup_policy"]["id"]
    server_backups = make("compute", f"/os-backup-policies/{backup_policy}/run", None)["server_backups"]
    named = {"name": mark, "description": mark}
    network_id = make("network", "/networks", {"network": named})["network"]["id"]
    body = {"subnet": {**named, "network_id": network_id, "cidr": cidr, "ip_version": 4}}
    first_id = make("network", "/subnets", body)["subnet"]["id"]
    slaac = {"ip_version": 6, "ipv6_ra_mode": "slaac", "ipv6_address_mode": "slaac"}
    body = {"subnet": {**named, "network_id": network_id, "cidr": cidr6, **slaac}}
    subnet6_id = make("network", "/subnets", body)["subnet"]["id"]
    body = {"subnet": {**named, "network_id": network_id, "cidr": cidr.replace("10.98.", "10.98.10"), "ip_version": 4}}
    second_id = make("network", "/subnets", body)["subnet"]["id"]
    port = {**named, "network_id": network_id, "security_groups": [group_id]}
    port_id = make("network", "/ports", {"port": port})["port"]["id"]
    (pool,) = user("network", "GET", "/networks?router:external=true").json()["networks"]
    router = {**named, "external_gateway_info": {"network_id": pool["id"]}}
    router_id = make("network", "/routers", {"router": router})["router"]["id"]
    for subnet_id in (first_id, subnet6_id, second_id):
        added = user("network", "PUT", f"/routers/{router_id}/add_router_interface", {"subnet_id": subnet_id})
        assert added.status_code == 200, added.text
    leads = {"floating_network_id": pool["id"], "port_id": port_id, "description": mark}
    leading = make("network", "/floatingips", {"floatingip": leads})["floatingip"]
    body = {"port": {**named, "network_id": network_id}}
    forward = {"internal_port_id": make("network", "/ports", body)["port"]["id"], "description": mark}
    forward |= {"protocol": "tcp", "internal_port": 22, "external_port": 2222}
    body = {"floatingip": {"floating_network_id": pool["id"], "description": mark}}
    forwarded = make("network", "/floatingips", body)["floatingip"]
    path = f"/floatingips/{forwarded['id']}/port_forwardings"
    forwarding_id = make("network", path, {"port_forwarding": forward})["port_forwarding"]["id"]
    body = {"port": {**named, "network_id": network_id}}
    parent_id, subport_id = (make("network", "/ports", body)["port"]["id"] for _ in range(2))
    subports = [{"port_id": subport_id, "segmentation_type": "vlan", "segmentation_id": 2}]
    trunk_id = make("network", "/trunks", {"trunk": {**named, "port_id": parent_id, "sub_ports": subports}})["trunk"][
        "id"
    ]
    values = {"subnetpool": {"prefixes": ["10.99.0.0/24"]}, "address_group": {"addresses": ["10.99.0.0/24"]}}
    pool_id = make("network", "/subnetpools", {"subnetpool": {**named, **values["subnetpool"]}})["subnetpool"]["id"]
    body = {"address_group": {**named, **values["address_group"]}}
    addresses = make("network", "/address-groups", body)["address_group"]["id"]
    body = {"address_scope": {"name": mark, "ip_version": 4}}
    scope_id = make("network", "/address-scopes", body)["address_scope"]["id"]
    sharing = {"object_type": "network", "object_id": network_id, "action": "access_as_shared"}
    body = {"rbac_policy": {**sharing, "target_tenant": f"nobody-{mark}"}}
    policy_id = make("network", "/rbac-policies", body)["rbac_policy"]["id"]
    body = {"policy": {"name": mark, "project_id": user.project}}
    qos_policy = admin.made("network", "/qos/policies", body)["policy"]
    qos_rules = {
        key: [admin.made("network", f"/qos/policies/{qos_policy['id']}/{key}s", {key: values})[key]["id"]]
        for key, values in (("bandwidth_limit_rule", {"max_kbps": 1000}), ("dscp_marking_rule", {"dscp_mark": 8}))
    }
    for path, tagged in (
        ("networks", network_id),
        ("subnets", first_id),
        ("ports", port_id),
        ("routers", router_id),
        ("subnetpools", pool_id),
        ("subnets", subnet6_id),
        ("subnets", second_id),
        ("floatingips", leading["id"]),
        ("security-groups", group_id),
        ("security-group-rules", rule_id),
    ):
        assert user("network", "PUT", f"/{path}/{tagged}/tags/{mark}").status_code == 201
    assert user("network", "PUT", f"/trunks/{trunk_id}/tags/{mark}").status_code == 201
    assert admin("network", "PUT", f"/qos/policies/{qos_policy['id']}/tags/{mark}").status_code == 201
    ports = user("compute", "GET", f"/servers/{server_id}/os-interface").json()["interfaceAttachments"]
    actions = user("compute", "GET", f"/servers/{server_id}/os-instance-actions").json()["instanceActions"]
    migrations = admin("compute", "GET", "/os-migrations", version=LATEST).json()["migrations"]
    migration = next(item for item in migrations if item["instance_uuid"] == server_id)
    rules = [{"service": "compute", "method": "GET", "path": f"/v2.1/{mark}"}]
    described = {"name": mark, "description": mark, "access_rules": rules}
    path = f"/v3/users/{user.id}/application_credentials"
    credential = make("identity", path, {"application_credential": described})["application_credential"]
    ec2 = make("identity", f"/v3/users/{user.id}/credentials/OS-EC2", {"tenant_id": user.project})["credential"]
    totp = {"credential": {"type": "totp", "blob": "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"}}
    totp_id = make("identity", "/v3/credentials", totp)["credential"]["id"]
    given = {"trustor_user_id": user.id, "trustee_user_id": admin.id, "project_id": user.project}
    given |= {"impersonation": True, "roles": [{"name": "member"}]}
    trust = make("identity", "/v3/OS-TRUST/trusts", {"trust": given})["trust"]
    group = admin.made("identity", "/v3/groups", {"group": {"name": f"group-{mark}"}})["group"]
    admin.made("identity", f"/v3/groups/{group['id']}/users/{user.id}", None, method="PUT")
    domain = admin.made("identity", "/v3/domains", {"domain": {"name": f"domain-{mark}"}})["domain"]
    federation, rule = "/v3/OS-FEDERATION", {"local": [{"user": {"name": mark}}], "remote": [{"type": "OIDC-sub"}]}
    admin.made("identity", f"{federation}/mappings/{mark}", {"mapping": {"rules": [rule]}}, method="PUT")
    provider = f"{federation}/identity_providers/{mark}"
    admin.made("identity", provider, {"identity_provider": {"enabled": True}}, method="PUT")
    admin.made("identity", f"{provider}/protocols/{mark}", {"protocol": {"mapping_id": mark}}, method="PUT")
    service = admin("identity", "GET", "/v3/services").json()["services"][0]["id"]
    admin.made("identity", f"/v3/projects/{user.project}/tags/{mark}", None, method="PUT")
    # Registered limits, and enabled endpoints in the catalog, are shown to every user.
    limit = {"service_id": service, "resource_name": uuid.uuid4().hex}
    registered = {"registered_limits": [limit | {"default_limit": 5}]}
    admin.made("identity", "/v3/registered_limits", registered)
    limits = {"limits": [limit | {"resource_limit": 5, "project_id": user.project, "description": mark}]}
    limit_id = admin.made("identity", "/v3/limits", limits)["limits"][0]["id"]
    policy = {"policy": {"type": "text/plain", "blob": mark}}
    blob_id = admin.made("identity", "/v3/policies", policy)["policy"]["id"]
    config = {"config": {"ldap": {"url": f"ldap://{mark}"}}}
    admin.made("identity", f"/v3/domains/{domain['id']}/config", config, method="PUT")
    selected = {"endpoint_group": {"name": mark, "filters": {"service_id": service}}}
    endpoints = admin.made("identity", "/v3/OS-EP-FILTER/endpoint_groups", selected)["endpoint_group"]["id"]
    described = {"service_id": service, "interface": "public", "url": f"http://{mark}", "enabled": False}
    endpoint = admin.made("identity", "/v3/endpoints", {"endpoint": described})["endpoint"]["id"]
    return {
        "server": [server_id],
        "flavor": [flavor_id],
        "image": [image_id, made],
        "namespace": [f"namespace-{mark}"],
        "keypair": [mark],
        "floating_ip": [str(address["id"]), leading["id"]],
        "forwarded_address": [forwarded["id"]],
        "port_forwarding": [forwarding_id],
        "trunk": [trunk_id],
        "address": [address["ip"], leading["floating_ip_address"], forwarded["floating_ip_address"]],
        "network": [network_id],
        "subnet": [first_id, subnet6_id, second_id],
        "router": [router_id],
        "subnet_pool": [pool_id],
        "address_scope": [scope_id],
        "address_group": [addresses],
        "rbac_policy": [policy_id],
        "qos_policy": [qos_policy["id"]],
        **qos_rules,
        "security_group": [group_id],
        "security_group_rule": [str(rule_id)],
        "server_group": [servers["server_group"]["id"]],
        "backup_policy": [backup_policy],
        "server_backup": [server_backups[0]["id"]],
        "volume": volumes,
        "qos": [qos],
        "backup": [backup_id],
        "snapshot": [snapshot_id],
        "attachment": [attachment],
        "user": [user.id],
        "application_credential": [credential["id"]],
        "ec2_credential": [ec2["access"]],
        "credential": [totp_id],
        "access_rule": [credential["access_rules"][0]["id"]],
        "trust": [trust["id"]],
        "group": [group["id"]],
        "domain": [domain["id"]],
        "identity_provider": [mark],
        "protocol": [mark],
        "mapping": [mark],
        "limit": [limit_id],
        "policy": [blob_id],
        "endpoint_group": [endpoints],
        "catalog_endpoint": [endpoint],
        "config_group": ["ldap"],
        "config_option": ["url"],
        "project": [user.project],
        "port": [ports[0]["port_id"], port_id],
        "migration": [str(migration["id"]), migration["uuid"]],
        "request": [actions[0]["request_id"]],
        "tag": [mark],
        "key": [KEY],
        "label": ["private"],
        "encryption_field": ["encryption_key_id"],
        "role": ["member"],
    }


@pytest.fixture(scope="module")
def cast(broker: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cast]:
    del broker
    path, join_port, page_port = tmp_path_factory.mktemp("member"), free_port(), free_port()
    config = f"""
[DEFAULT]
wings = trunks
[api]
enabled_apis = osapi_compute, identity, image, volume, network, placement, metadata, join, page
join_port = {join_port}
page_port = {page_port}
[network]
metadata_service = true
metadata_directory = {path}/sockets
[server_backups]
interval = 86400
"""
    cloud = Cloud(path, computes=2, standalone=True, extra_config=config)
    cloud.join_port, cloud.page_port = join_port, page_port  # type: ignore[attr-defined]
    try:
        cloud.make()
        cloud.start_all()
        cloud.manage("floating-pool", "create", "public", "172.24.9.32/28")
        admin, victim, attacker = (User(cloud, name) for name in ("admin", "demo", "other"))
        # The first address of a pool is public, as its start.
        admin.made("compute", "/os-floating-ips", {"pool": "public"})
        things = furnish(cloud, victim, admin, MARK, "10.98.1.0/24", "fd98:1::/64")
        own = furnish(cloud, attacker, admin, "mine", "10.98.1.0/24", "fd98:1::/64")
        (pool,) = attacker("network", "GET", "/networks?router:external=true").json()["networks"]
        whose = {"victim": victim, "attacker": attacker, "things": things, "own": own}
        yield Cast(cloud=cloud, pool=pool["id"], **whose)
    finally:
        cloud.destroy()


#: Kinds that no list contains, except as part of another resource.
HIDDEN = (
    "policy",
    "endpoint_group",
    "catalog_endpoint",
    "user",
    "application_credential",
    "access_rule",
    "trust",
    "group",
    "domain",
    "ec2_credential",
    "credential",
    "migration",
    "request",
    "label",
    "role",
    "qos",
    "identity_provider",
    "protocol",
    "mapping",
    "encryption_field",
)


def found(attempt: Attempt, answer: requests.Response) -> bool:
    if attempt.unserved:
        return answer.status_code < 400
    # The join API knows no user: each request that no host has signed is a 401. The page has parts of no project, too.
    refused = {"join": (401,), "page": (403, 404, 410, 501)}
    return answer.status_code not in refused.get(attempt.service, (403, 404))


def attacked(cast: Cast, attacker: User, attempt: Attempt) -> list[str]:
    """Return what is wrong with the response."""
    answer, wrong = attacker(attempt.service, attempt.method, attempt.path, attempt.body, attempt.version), []
    if (attempt.service, attempt.route) not in PUBLIC and found(attempt, answer):
        wrong.append(f"{attempt}: {answer.status_code} {answer.text[:200]}")
    if leaked := cast.leaks(answer, attempt):
        wrong.append(f"{attempt} tells {leaked}: {answer.text[:200]}")
    return wrong


def test_no_route_finds_what_is_anothers(cast: Cast) -> None:
    wrong, count = [], 0
    with cast.untouched(everything=True):
        for attempt in every_request(cast.things):
            count += 1
            wrong += attacked(cast, cast.attacker, attempt)
        assert not wrong, "\n".join(wrong)
        assert count > 500


def test_missing_ownership_check_is_found(cast: Cast) -> None:
    """A control: at an API of which some routes do not ask, the attack finds these, and no others."""
    other = copy.copy(cast.cloud)
    text = (other.path / "api.conf").read_text()
    apis = ("identity", "image", "volume", "network", "placement", "join", "page")
    for name in ("port", *(f"{api}_port" for api in apis)):
        setattr(other, name, free_port())
        text = text.replace(f"port = {getattr(cast.cloud, name)}\n", f"port = {getattr(other, name)}\n")
    config, log = other.path / "forgetful.conf", other.path / "forgetful.log"
    config.write_text(text)
    arguments = ["tests.security.forgetful", "nova_lite.cmd.api", "--config-file", str(config)]
    daemon = nursery.start(arguments, log, dict(os.environ))
    try:
        wait_for("the API answers", lambda: answers(other.identity_url), 60)
        attacker = User(other, "other")
        every = (item for item in every_request(cast.things) if item.service not in ("join", "page"))
        asked = [item for item in every if item.method == "GET" and not item.unserved]
        seen = {(item.service, item.route) for item in asked if attacked(cast, attacker, item)}
        lists = {(service, path): attacker(service, "GET", path, None, at) for service, path, at, _ in every_list()}
        seen |= {route for route, answer in lists.items() if cast.leaks(answer, route)}
        assert seen == forgetful.FORGETS.keys()
    finally:
        daemon.kill()
        daemon.wait(30)


def answers(url: str) -> bool:
    try:
        return requests.get(url, timeout=10).status_code < 500
    except requests.ConnectionError:
        return False


def test_own_resources_do_not_lead_to_other_projects(cast: Cast) -> None:
    """An example is ``/servers/MINE/os-interface/THEIRS``."""
    first = {"server": cast.own["server"], "flavor": cast.own["flavor"], "image": cast.own["image"][:1]}
    first["user"] = cast.own["user"]
    wrong, count = [], 0
    with cast.untouched():
        for attempt in every_request(cast.things, first):
            answer = cast.attacker(attempt.service, attempt.method, attempt.path, attempt.body, attempt.version)
            count += 1
            free = attempt.named[-1][0] in WORDS
            if (not free and answer.status_code < 400) or answer.status_code in (500, 503):
                wrong.append(f"{attempt}: {answer.status_code} {answer.text[:200]}")
            if leaked := cast.leaks(answer, attempt):
                wrong.append(f"{attempt} tells {leaked}: {answer.text[:200]}")
        assert not wrong, "\n".join(wrong)
        assert count > 20


def test_no_list_tells_of_what_is_anothers(cast: Cast) -> None:
    """The list is requested with every filter."""
    wrong = []
    words = [MARK, cast.victim.project, cast.things["server"][0]]
    with cast.untouched(everything=True):
        for service, path, version, names in every_list():
            queries: list[dict[str, Any]] = [{}, {"all_tenants": "1"}, {"all_projects": "True"}]
            if service == "network":  # any of several values of one parameter
                queries += [{name: words} for name in names]
            else:
                queries += [{name: word} for name in names for word in words if (service, name) != ("compute", "limit")]
            queries += [{"all_tenants": "1", name: cast.victim.project} for name in ("project_id", "tenant_id")]
            for query in queries:
                answer = cast.attacker(service, "GET", path, None, version, params=query)
                if answer.status_code >= 500 and answer.status_code != 501:
                    wrong.append(f"{service} {path} {query}: {answer.status_code}")
                if leaked := cast.leaks(answer, path, query):
                    wrong.append(f"{service} {path} {query} tells {leaked}: {answer.text[:200]}")
        assert not wrong, "\n".join(wrong)


def borrowings(cast: Cast) -> Iterator[tuple[str, str, Any, int | None, str]]:
    """Yield requests that would use the victim's resources for one's own: service, path, body, version, method."""
    theirs, mine = {kind: values[0] for kind, values in cast.things.items()}, cast.own["server"][0]
    server = {"name": "mine", "flavorRef": "1", "imageRef": cast.cloud.image_id, "networks": "auto"}

    def create(hints: dict[str, Any] | None = None, **changes: Any) -> tuple[str, str, Any, int, str]:
        made = {key: value for key, value in {**server, **changes}.items() if value is not None}
        body = {"server": made} | ({"os:scheduler_hints": hints} if hints else {})
        return "compute", "/servers", body, LATEST, "POST"

    def disk(**values: Any) -> list[dict[str, Any]]:
        return [{"boot_index": 0, "destination_type": "volume", "delete_on_termination": True, **values}]

    def act(version: int = LATEST, **action: Any) -> tuple[str, str, Any, int, str]:
        return "compute", f"/servers/{mine}/action", action, version, "POST"

    def volume(**values: Any) -> tuple[str, str, Any, None, str]:
        return "volume", "/volumes", {"volume": {"name": "mine", "size": 1, **values}}, None, "POST"

    yield create(imageRef=theirs["image"])
    yield create(flavorRef=theirs["flavor"])
    yield create(key_name=theirs["keypair"])
    yield create(security_groups=[{"name": theirs["security_group"]}])
    yield create(security_groups=[{"name": MARK}])
    yield create(networks=[{"port": theirs["port"]}])
    yield create(hints={"group": theirs["server_group"]})
    yield create(imageRef=None, block_device_mapping_v2=disk(uuid=theirs["volume"], source_type="volume"))
    yield create(imageRef=None, block_device_mapping_v2=disk(uuid=theirs["snapshot"], source_type="snapshot"))
    image = disk(uuid=theirs["image"], source_type="image", volume_size=1)
    yield create(imageRef=None, block_device_mapping_v2=image)
    yield act(rebuild={"imageRef": theirs["image"]})
    yield act(rebuild={"imageRef": cast.cloud.image_id, "key_name": theirs["keypair"]})
    wanted = {"name": "mine", "schedule": {"every": "day"}, "retention": {"daily": 1}}
    wanted |= {"targets": {"servers": [theirs["server"]]}}
    yield "compute", "/os-backup-policies", {"backup_policy": wanted}, LATEST, "POST"
    path = f"/os-backup-policies/{cast.own['backup_policy'][0]}"
    yield "compute", path, {"backup_policy": {"targets": {"servers": [theirs["server"]]}}}, LATEST, "PUT"
    yield act(rescue={"rescue_image_ref": theirs["image"]})
    yield act(resize={"flavorRef": theirs["flavor"]})
    yield act(addSecurityGroup={"name": theirs["security_group"]})
    yield act(addSecurityGroup={"name": MARK})
    yield act(removeSecurityGroup={"name": MARK})
    yield act(1, addFloatingIp={"address": theirs["address"]})
    yield act(1, removeFloatingIp={"address": theirs["address"]})
    attachments = f"/servers/{mine}/os-volume_attachments"
    for which in cast.things["volume"]:
        yield "compute", attachments, {"volumeAttachment": {"volumeId": which}}, LATEST, "POST"
        body = {"volumeAttachment": {"volumeId": which}}
        yield "compute", f"{attachments}/{cast.own['volume'][1]}", body, LATEST, "PUT"
    yield (
        "compute",
        f"/servers/{mine}/os-interface",
        {"interfaceAttachment": {"port_id": theirs["port"]}},
        LATEST,
        "POST",
    )
    rule: dict[str, Any] = {"ip_protocol": "tcp", "from_port": 1, "to_port": 2}
    for parent, source in (
        (theirs["security_group"], {"cidr": "0.0.0.0/0"}),
        (cast.own["security_group"][0], {"group_id": theirs["security_group"]}),
    ):
        body = {"security_group_rule": {"parent_group_id": parent, **rule, **source}}
        yield "compute", "/os-security-group-rules", body, 1, "POST"
    yield from network_borrowings(cast)
    yield create(networks=[{"uuid": theirs["network"]}])
    for which in cast.things["port"]:
        yield create(networks=[{"port": which}])
    action = {"os-attach": {"instance_uuid": theirs["server"], "mountpoint": "/dev/vdz"}}
    yield "volume", f"/volumes/{cast.own['volume'][0]}/action", action, None, "POST"
    yield volume(snapshot_id=theirs["snapshot"])
    yield volume(backup_id=theirs["backup"])
    snapshot = {"volume_id": cast.own["volume"][0], "snapshot_id": theirs["snapshot"], "name": "mine"}
    yield "volume", "/backups", {"backup": snapshot}, None, "POST"
    for which in cast.things["volume"]:
        path = f"/backups/{cast.own['backup'][0]}/restore"
        yield "volume", path, {"restore": {"volume_id": which}}, None, "POST"
    for which in cast.things["volume"]:
        yield volume(source_volid=which)
        yield "volume", "/attachments", {"attachment": {"volume_uuid": which}}, None, "POST"
        yield "volume", "/backups", {"backup": {"volume_id": which, "name": "mine", "force": True}}, None, "POST"
        yield "volume", "/snapshots", {"snapshot": {"volume_id": which, "name": "mine", "force": True}}, None, "POST"
    yield volume(imageRef=theirs["image"])
    events = [{"name": "network-changed", "server_uuid": theirs["server"]}]
    yield "compute", "/os-server-external-events", {"events": events}, LATEST, "POST"
    new_file = {"snapshot_id": theirs["snapshot"], "type": "qcow2", "new_file": "x"}
    assisted = {"snapshot": {"volume_id": theirs["volume"], "create_info": new_file}}
    yield "compute", "/os-assisted-volume-snapshots", assisted, LATEST, "POST"
    yield "image", "/images", {"name": "mine", "owner": theirs["project"]}, None, "POST"
    yield "image", "/images", {"name": "mine", "id": theirs["image"]}, None, "POST"
    patch = [{"op": "replace", "path": "/owner", "value": theirs["project"]}]
    yield "image", f"/images/{cast.own['image'][0]}", patch, None, "PATCH"


def network_borrowings(cast: Cast) -> Iterator[tuple[str, str, Any, None, str]]:
    theirs, mine = ({kind: values[-1] for kind, values in item.items()} for item in (cast.things, cast.own))

    def ask(kind: str, values: dict[str, Any], which: str = "", path: str = "") -> tuple[str, str, Any, None, str]:
        url = "/" + (path or f"{kind}s").replace("_", "-") + (f"/{which}" if which else "")
        return "network", url, {kind: values}, None, "PUT" if which else "POST"

    whose = {"project_id": theirs["project"]}
    on_mine = {"network_id": mine["network"]}
    yield ask("network", {"name": "mine", **whose})
    yield ask("subnet", {"network_id": theirs["network"], "cidr": "10.98.7.0/24", "ip_version": 4})
    yield ask("subnet", {"network_id": theirs["network"], "cidr": "fd98:7::/64", "ip_version": 6})
    yield ask("subnet", {"network_id": theirs["subnet"], "cidr": "10.98.7.0/24", "ip_version": 4})
    for which in ("network", "subnet"):
        yield ask("port", {"network_id": theirs[which]})
    yield ask("port", {**on_mine, "fixed_ips": [{"subnet_id": theirs["subnet"]}]})
    yield ask("port", {"fixed_ips": [{"subnet_id": theirs["subnet"]}]}, mine["port"])
    for which in cast.things["subnet"]:
        path = f"/routers/{mine['router']}/add_router_interface"
        yield "network", path, {"subnet_id": which}, None, "PUT"
    yield ask("port", {**on_mine, **whose})
    yield ask("port", {**on_mine, "fixed_ips": [{"subnet_id": theirs["network"]}]})
    yield ask("port", {**on_mine, "security_groups": [theirs["security_group"]]})
    yield ask("port", {**on_mine, "device_id": theirs["server"]})
    yield ask("port", {"security_groups": [theirs["security_group"]]}, mine["port"])
    yield ask("port", {"fixed_ips": [{"subnet_id": theirs["network"]}]}, mine["port"])
    yield ask("port", {"network_id": theirs["network"]}, mine["port"])
    yield ask("port", {"device_id": theirs["server"]}, mine["port"])
    yield ask("security_group", {"name": "mine", **whose})
    rule = {"direction": "ingress", "protocol": "tcp", "port_range_min": 1, "port_range_max": 2}
    yield ask("security_group_rule", {**rule, "security_group_id": theirs["security_group"]})
    remote = {"security_group_id": mine["security_group"], "remote_group_id": theirs["security_group"]}
    yield ask("security_group_rule", {**rule, **remote})
    yield ask("floatingip", {"floating_network_id": theirs["network"]})
    yield ask("floatingip", {"floating_network_id": cast.pool, **whose})
    for which in cast.things["port"]:
        yield ask("floatingip", {"floating_network_id": cast.pool, "port_id": which})
        yield ask("floatingip", {"port_id": which}, mine["floating_ip"])
    forward = {"protocol": "tcp", "internal_port": 80, "external_port": 80}
    for which in cast.things["port"]:
        path, body = (
            f"/floatingips/{mine['forwarded_address']}/port_forwardings",
            {**forward, "internal_port_id": which},
        )
        yield "network", path, {"port_forwarding": body}, None, "POST"
        yield (
            "network",
            f"{path}/{mine['port_forwarding']}",
            {"port_forwarding": {"internal_port_id": which}},
            None,
            "PUT",
        )
    for which in cast.things["port"]:
        subports = [{"port_id": which, "segmentation_type": "vlan", "segmentation_id": 3}]
        yield "network", "/trunks", {"trunk": {"port_id": which}}, None, "POST"
        yield "network", f"/trunks/{mine['trunk']}/add_subports", {"sub_ports": subports}, None, "PUT"
    limited = {"qos_policy_id": theirs["qos_policy"]}
    yield ask("network", limited)
    yield ask("floatingip", {"floating_network_id": cast.pool, **limited})
    for kind, which in (("network", "network"), ("port", "port"), ("floatingip", "floating_ip")):
        yield ask(kind, limited, mine[which])
    yield ask("quota", {"port": 1}, theirs["project"])
    yield ask("subnetpool", {"prefixes": ["10.98.0.0/24"], **whose})
    yield ask("subnetpool", {"prefixes": ["10.98.0.0/24"], "address_scope_id": theirs["address_scope"]})
    yield ask("subnetpool", {"address_scope_id": theirs["address_scope"]}, mine["subnet_pool"])
    yield ask(
        "security_group_rule",
        {**rule, "security_group_id": mine["security_group"], "remote_address_group_id": theirs["address_group"]},
    )
    share = {"action": "access_as_shared", "target_tenant": cast.attacker.project}
    for kind, which in (
        ("network", "network"),
        ("subnetpool", "subnet_pool"),
        ("address_scope", "address_scope"),
        ("address_group", "address_group"),
        ("qos_policy", "qos_policy"),
    ):
        object_id = {"object_type": kind, "object_id": theirs[which]}
        yield ask("rbac_policy", {**share, **object_id}, path="rbac-policies")
    everybody = {**share, "target_tenant": "*", "object_type": "network", "object_id": mine["network"]}
    yield ask("rbac_policy", everybody, path="rbac-policies")


def test_other_projects_resources_cannot_be_used(cast: Cast) -> None:
    wrong = []
    with cast.untouched():
        for service, path, body, version, method in borrowings(cast):
            answer = cast.attacker(service, method, path, body, version)
            if answer.status_code not in (400, 403, 404, 501):
                wrong.append(f"{service} {method} {path} {body}: {answer.status_code} {answer.text[:200]}")
            if leaked := cast.leaks(answer, path, body):
                wrong.append(f"{service} {path} {body} tells {leaked}: {answer.text[:200]}")
        assert not wrong, "\n".join(wrong)


def test_no_server_is_placed_by_where_anothers_is(cast: Cast) -> None:
    """Placement, or its failure, would disclose the host of another project's server."""
    for hint in ("same_host", "different_host"):
        answers = []
        for which in (cast.things["server"][0], str(uuid.uuid4())):
            server = {"name": "mine", "flavorRef": "1", "imageRef": cast.cloud.image_id, "networks": "auto"}
            body = {"server": server, "os:scheduler_hints": {hint: which}}
            answer = cast.attacker("compute", "POST", "/servers", body, LATEST)
            answers.append((answer.status_code, answer.text.replace(which, "") if answer.status_code >= 400 else ""))
            if answer.status_code < 300:
                server_id = answer.json()["server"]["id"]

                def settled(server_id: str = server_id) -> Any:
                    shown = cast.attacker("compute", "GET", f"/servers/{server_id}").json()["server"]
                    return shown["status"] if shown["status"] != "BUILD" else None

                answers[-1] = (202, str(wait_for("it is built or not", settled)))
                assert cast.attacker("compute", "DELETE", f"/servers/{server_id}").status_code == 204
        assert answers[0] == answers[1], hint


def test_identity_headers_of_a_client_are_ignored(cast: Cast) -> None:
    theirs, server_id = cast.victim.project, cast.things["server"][0]
    said = {
        "X-Project-Id": theirs,
        "X-Tenant-Id": theirs,
        "X-User-Id": cast.victim.id,
        "X-Roles": "admin",
        "X-Role": "admin",
        "X-Is-Admin-Project": "True",
        "X-Identity-Status": "Confirmed",
        "X-Service-Identity-Status": "Confirmed",
        "X-Service-Roles": "admin,service",
    }
    ways: list[tuple[str, str]] = [("compute", f"/servers/{server_id}"), ("compute", "/servers/detail?all_tenants=1")]
    ways += [("compute", f"/{theirs}/servers/detail"), ("volume", f"/{theirs}/volumes/detail"), ("image", "/images")]
    ways += [("image", f"/images/{cast.things['image'][0]}"), ("volume", f"/volumes/{cast.things['volume'][0]}")]
    for service, path in ways:
        for headers in ({}, said):
            answer = cast.attacker(service, "GET", path, headers=headers)
            assert not cast.leaks(answer, path), (path, answer.text)
            assert answer.status_code < 500, answer.text
    assert cast.attacker("compute", "GET", f"/servers/{server_id}", headers=said).status_code == 404


def test_no_token_for_anothers_project(cast: Cast) -> None:
    domain = {"id": "default"}
    user = {"name": "other", "domain": domain, "password": PASSWORDS["other"]}
    identities = (
        {"methods": ["password"], "password": {"user": user}},
        {"methods": ["token"], "token": {"id": cast.attacker.token}},
    )
    for identity in identities:
        for project in ({"id": cast.victim.project}, {"name": "demo", "domain": domain}):
            body = {"auth": {"identity": identity, "scope": {"project": project}}}
            assert cast.attacker("identity", "POST", "/v3/auth/tokens", body).status_code == 401
    for method in ("GET", "HEAD", "DELETE"):
        headers = {"X-Subject-Token": cast.victim.token}
        answer = cast.attacker("identity", method, "/v3/auth/tokens", headers=headers)
        assert answer.status_code in (403, 404), answer.text
        assert not cast.leaks(answer, cast.victim.token)
    assert cast.victim("compute", "GET", "/servers").status_code == 200


def test_the_metadata_service_takes_no_ones_word(cast: Cast) -> None:
    """Network and source address identify the server. This client is on each network, with an address of no server."""
    ports = cast.victim("compute", "GET", f"/servers/{cast.things['server'][0]}/os-interface").json()
    address = ports["interfaceAttachments"][0]["fixed_ips"][0]["ip_address"]
    said = {
        "X-Forwarded-For": address,
        "X-Instance-ID": cast.things["server"][0],
        "X-Tenant-ID": cast.victim.project,
        "X-Instance-ID-Signature": "0" * 64,
        "X-Real-IP": address,
        "Forwarded": f"for={address}",
    }
    places = [
        place
        for host in cast.cloud.computes
        for place in guest_requests.listening(cast.cloud.path / "sockets", host).values()
    ]
    assert places
    documents = ("latest/meta-data", "latest/user-data", "openstack/latest/meta_data.json", "openstack/latest/password")
    for place, path, content in itertools.product(places, documents, (None, b"x")):
        answer = guest_requests.ask(place, "127.0.0.1", f"/{path}", content, said)
        assert answer.status_code in (403, 404, 405), (path, answer.status_code)
        assert not cast.leaks(answer, said)


def test_attack_targets_exist(cast: Cast) -> None:
    """The owner sees all of it, or a refusal because of its state, so "not found" proves something."""
    answers: dict[tuple[str, str], list[str]] = {}
    for attempt in every_request(cast.things):
        is_public = (attempt.service, attempt.route) in PUBLIC
        served = not attempt.unserved and attempt.service != "join"
        if attempt.method == "GET" and attempt.known and served and not is_public:
            answer = cast.victim(attempt.service, "GET", attempt.path, None, attempt.version)
            shown = answer.status_code in (200, 204, 403, 409)
            told = "" if shown else f"{attempt}: {answer.status_code} {answer.text}"
            answers.setdefault((attempt.service, attempt.route), []).append(told)
    # Some pairs of resources do not belong together.
    assert [told for told in answers.values() if all(told)] == []
    lists = [cast.victim(service, "GET", path, None, version).text for service, path, version, _ in every_list()]
    hidden = {value for kind in HIDDEN for value in cast.things[kind]}
    assert [secret for secret in cast.secrets - hidden if secret not in str(lists)] == []
