"""Content of a new cloud, from a YAML file. It is made by requests to the cloud's own APIs, which check it.

Only shared networks and pools of floating addresses are written into the database, as ``nova-lite-manage`` does it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from typing import Any

import msgspec
import webob
import yaml

from nova_lite.api.http.deploy import App
from nova_lite.base import exceptions, ip
from nova_lite.base.context import get_admin_context
from nova_lite.db.core.engine import Database
from nova_lite.db.network import builtin_networks, floating_ips
from nova_lite.db.network import networks as api_networks
from nova_lite.network import factory

LOG = logging.getLogger(__name__)

#: The user whose requests make the content, and that user's project.
ADMIN = "admin"

#: Newest microversion of servers that the requests here need: ``networks: auto``, tags.
_MICROVERSION = "2.90"

#: Seconds for which the start of the cloud waits for the servers of its content.
_SERVERS_TIMEOUT = 60.0
_POLL = 0.02


class SeedProject(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    description: str = ""


class SeedUser(msgspec.Struct, forbid_unknown_fields=True):
    """``password``: default: the cloud's. ``roles``: in the user's project."""

    name: str
    project: str
    password: str | None = None
    roles: list[str] = msgspec.field(default_factory=lambda: ["member"])


class SeedFlavor(msgspec.Struct, forbid_unknown_fields=True):
    """``projects``: may use it; default: all projects."""

    name: str
    ram: int
    vcpus: int
    disk: int
    id: str | None = None
    ephemeral: int = 0
    swap: int = 0
    extra_specs: dict[str, str] = msgspec.field(default_factory=dict)
    projects: list[str] = msgspec.field(default_factory=list)


class SeedImage(msgspec.Struct, forbid_unknown_fields=True):
    """``file``: path, relative to the seed file; ``content``: the data themselves. Without ``id`` it is derived from
    the data.
    """

    name: str
    file: str | None = None
    content: str | None = None
    id: str | None = None
    project: str = ADMIN
    disk_format: str = "raw"
    container_format: str = "bare"
    visibility: str = "public"
    min_disk: int = 0
    min_ram: int = 0
    properties: dict[str, str] = msgspec.field(default_factory=dict)


class SeedNetwork(msgspec.Struct, forbid_unknown_fields=True):
    """Network of a ``project``, or one of all projects. ``default``: servers that name no network get it."""

    name: str
    cidr: str
    project: str | None = None
    bridge: str | None = None
    default: bool = False
    dns: list[str] = msgspec.field(default_factory=list)


class SeedPool(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    cidr: str


class SeedServer(msgspec.Struct, forbid_unknown_fields=True):
    """``flavor``, ``image``, ``networks``: names. Without networks it gets one as by ``networks: auto``."""

    name: str
    flavor: str
    image: str
    project: str = ADMIN
    count: int = 1
    networks: list[str] = msgspec.field(default_factory=list)
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    tags: list[str] = msgspec.field(default_factory=list)


class SeedHost(msgspec.Struct, forbid_unknown_fields=True):
    """Behaviour of a host, as in `nova_lite.virt.fake_hypervisor.Control`. None: as configured."""

    spawn_delay: float | None = None
    destroy_delay: float | None = None
    power_delay: float | None = None
    live_migration_delay: float | None = None
    fail_at: list[str] | None = None
    fail_count: int | None = None
    vcpus: int | None = None
    memory_mb: int | None = None
    disk_gb: int | None = None


class Seed(msgspec.Struct, forbid_unknown_fields=True):
    """Content of a seed file. ``quotas``: limits by project. ``hosts``: by name."""

    projects: list[SeedProject] = msgspec.field(default_factory=list)
    users: list[SeedUser] = msgspec.field(default_factory=list)
    flavors: list[SeedFlavor] = msgspec.field(default_factory=list)
    images: list[SeedImage] = msgspec.field(default_factory=list)
    networks: list[SeedNetwork] = msgspec.field(default_factory=list)
    floating_pools: list[SeedPool] = msgspec.field(default_factory=list)
    servers: list[SeedServer] = msgspec.field(default_factory=list)
    quotas: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)
    hosts: dict[str, SeedHost] = msgspec.field(default_factory=dict)


def load(path: str) -> Seed:
    """Read a seed file, with the data of its images. Raises `ConfigurationError` with the place of a mistake."""
    try:
        with open(path, encoding="utf-8") as file:
            value = yaml.load(file, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe
        seed = msgspec.convert({} if value is None else value, Seed)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, msgspec.ValidationError) as error:
        raise exceptions.ConfigurationError(reason=f"seed file {path}: {' '.join(str(error).split())}") from error
    for image in seed.images:
        if (image.file is None) == (image.content is None):
            raise exceptions.ConfigurationError(
                reason=f"seed file {path}: image {image.name} needs either a file or content."
            )
        if image.file is not None:
            image.file = os.path.join(os.path.dirname(os.path.abspath(path)), image.file)
    return seed


class Seeder:
    """Makes content by requests of the user admin. ``app``: the cloud's APIs, below ``/compute``, ``/identity`` …."""

    def __init__(self, app: App, db: Database, password: str) -> None:
        self._app = app
        self._db = db
        self._password = password
        self._tokens: dict[str, str] = {}
        self._ids: dict[tuple[str, str], str] = {}
        self._servers: list[tuple[str, str]] = []

    def add(self, seed: Seed) -> None:
        """Make the content. Raises `ConfigurationError` with the API's sentence if a request is refused."""
        for network in seed.networks:
            if network.project is None:
                self._add_shared_network(network)
        for pool in seed.floating_pools:
            self._db.write(floating_ips.create_pool, pool.name, pool.cidr)
        for project in seed.projects:
            self._add_project(project)
        for user in seed.users:
            self._add_user(user)
        for name, limits in seed.quotas.items():
            project_id = self._project(name)
            self._send("PUT", f"/compute/v2.1/os-quota-sets/{project_id}", {"quota_set": limits}, f"quotas of {name}")
        for flavor in seed.flavors:
            self._add_flavor(flavor)
        for image in seed.images:
            self._add_image(image)
        for network in seed.networks:
            if network.project is not None:
                self._add_network(network, network.project)
        for server in seed.servers:
            self._add_server(server)

    def wait_for_servers(self) -> None:
        """Wait until each server is built or has failed."""
        deadline = time.monotonic() + _SERVERS_TIMEOUT
        for project, server_id in self._servers:
            while time.monotonic() < deadline:
                shown = self._send("GET", f"/compute/v2.1/servers/{server_id}", None, "server", project)["server"]
                if shown["status"] != "BUILD":
                    break
                time.sleep(_POLL)
            else:
                LOG.warning("Not all servers of the seed file were built after %.0f s", _SERVERS_TIMEOUT)
                return

    # --- kinds

    def _add_shared_network(self, network: SeedNetwork) -> None:
        made = factory.new_network(
            network.name, network.cidr, dns=network.dns, bridge=network.bridge, is_default=network.default
        )
        for other in self._db.read(api_networks.list_, get_admin_context()):
            if other.name == network.name or (
                other.cidr and ip.parse_network(made.cidr).overlaps(ip.parse_network(other.cidr))
            ):
                raise exceptions.ConfigurationError(
                    reason=f"network {network.name}, {network.cidr}, has the name or addresses of {other.name}, "
                    f"{other.cidr}."
                )
        self._ids["network", network.name] = self._db.write(builtin_networks.create, made).id

    def _add_project(self, project: SeedProject) -> None:
        body = {"project": {"name": project.name, "description": project.description}}
        made = self._send("POST", "/identity/v3/projects", body, f"project {project.name}")
        self._ids["project", project.name] = made["project"]["id"]
        self._grant(ADMIN, project.name, ADMIN)

    def _add_user(self, user: SeedUser) -> None:
        values = {
            "name": user.name,
            "password": user.password or self._password,
            "default_project_id": self._project(user.project),
        }
        made = self._send("POST", "/identity/v3/users", {"user": values}, f"user {user.name}")
        self._ids["user", user.name] = made["user"]["id"]
        for role in user.roles:
            self._grant(user.name, user.project, role)

    def _grant(self, user: str, project: str, role: str) -> None:
        place = f"/identity/v3/projects/{self._project(project)}/users/{self._id('user', user)}/roles"
        self._send("PUT", f"{place}/{self._id('role', role)}", None, f"role {role} of {user}")

    def _add_flavor(self, flavor: SeedFlavor) -> None:
        what = f"flavor {flavor.name}"
        values = {name: getattr(flavor, name) for name in ("name", "ram", "vcpus", "disk", "swap")}
        values |= {"OS-FLV-EXT-DATA:ephemeral": flavor.ephemeral, "id": flavor.id or "auto"}
        values["os-flavor-access:is_public"] = not flavor.projects
        flavor_id = self._send("POST", "/compute/v2.1/flavors", {"flavor": values}, what)["flavor"]["id"]
        self._ids["flavor", flavor.name] = flavor_id
        if flavor.extra_specs:
            body: dict[str, Any] = {"extra_specs": flavor.extra_specs}
            self._send("POST", f"/compute/v2.1/flavors/{flavor_id}/os-extra_specs", body, what)
        for project in flavor.projects:
            body = {"addTenantAccess": {"tenant": self._project(project)}}
            self._send("POST", f"/compute/v2.1/flavors/{flavor_id}/action", body, what)

    def _add_image(self, image: SeedImage) -> None:
        what, data = f"image {image.name}", _data(image)
        values: dict[str, Any] = {"id": image.id or image_id(data), **image.properties}
        fields = ("name", "disk_format", "container_format", "visibility", "min_disk", "min_ram")
        values |= {name: getattr(image, name) for name in fields}
        made = self._send("POST", "/image/v2/images", values, what, image.project)["id"]
        self._send("PUT", f"/image/v2/images/{made}/file", data, what, image.project)
        self._ids["image", image.name] = made

    def _add_network(self, network: SeedNetwork, project: str) -> None:
        what = f"network {network.name}"
        made = self._send("POST", "/network/v2.0/networks", {"network": {"name": network.name}}, what, project)
        network_id = self._ids["network", network.name] = made["network"]["id"]
        subnet = {"network_id": network_id, "cidr": network.cidr, "ip_version": 4, "dns_nameservers": network.dns}
        subnet["name"] = network.name
        self._send("POST", "/network/v2.0/subnets", {"subnet": subnet}, what, project)

    def _add_server(self, server: SeedServer) -> None:
        values: dict[str, Any] = {
            "name": server.name,
            "flavorRef": self._id("flavor", server.flavor),
            "imageRef": self._id("image", server.image),
            "networks": [{"uuid": self._id("network", name)} for name in server.networks] or "auto",
            "metadata": server.metadata,
            "tags": server.tags,
        }
        for number in range(server.count):
            name = server.name if server.count == 1 else f"{server.name}-{number + 1}"
            body = {"server": {**values, "name": name}}
            made = self._send("POST", "/compute/v2.1/servers", body, f"server {name}", server.project)
            self._servers.append((server.project, made["server"]["id"]))

    # --- names and requests

    def _project(self, name: str) -> str:
        return self._id("project", name)

    def _id(self, kind: str, name: str) -> str:
        """Return the id of the object with this name in the cloud. Raises `ConfigurationError` if there is none."""
        if (kind, name) not in self._ids and kind in ("project", "user", "role"):
            for item in self._send("GET", f"/identity/v3/{kind}s", None, f"{kind} {name}")[f"{kind}s"]:
                self._ids[kind, item["name"]] = item["id"]
        if (kind, name) not in self._ids:
            raise exceptions.ConfigurationError(reason=f"the seed names a {kind} that is not there: {name}.")
        return self._ids[kind, name]

    def _send(self, method: str, path: str, body: Any, what: str, project: str = ADMIN) -> Any:
        token = self._tokens.get(project) or self._log_in(project)
        headers = {"X-Auth-Token": token, "OpenStack-API-Version": f"compute {_MICROVERSION}"}
        response = self._respond(method, path, body, headers)
        if response.status_code >= 400:
            raise exceptions.ConfigurationError(reason=f"{what} cannot be made: {_sentence(response)}")
        return response.json if response.body else None

    def _log_in(self, project: str) -> str:
        """Return a token for the project, and remember it."""
        domain = {"id": "default"}
        user = {"name": ADMIN, "domain": domain, "password": self._password}
        scope = {"project": {"name": project, "domain": domain}}
        auth = {"auth": {"identity": {"methods": ["password"], "password": {"user": user}}, "scope": scope}}
        response = self._respond("POST", "/identity/v3/auth/tokens?nocatalog", auth, {})
        if response.status_code != 201:
            raise exceptions.ConfigurationError(reason=f"the seed names a project that is not there: {project}.")
        token: str = response.headers["X-Subject-Token"]
        self._tokens[project] = token
        return token

    def _respond(self, method: str, path: str, body: Any, headers: dict[str, str]) -> webob.Response:
        request = webob.Request.blank(path, method=method, headers=headers, base_url="http://127.0.0.1")
        request.environ["REMOTE_ADDR"] = "127.0.0.1"
        if isinstance(body, bytes):
            request.content_type, request.body = "application/octet-stream", body
        elif body is not None:
            request.content_type, request.body = "application/json", json.dumps(body).encode()
        return request.get_response(self._app)


def image_id(data: bytes) -> str:
    """Return the id that devstack gives an image with these data."""
    digest = hashlib.sha256(data).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-4{digest[13:16]}-8{digest[17:20]}-{digest[20:32]}"


def _data(image: SeedImage) -> bytes:
    if image.content is not None:
        return image.content.encode()
    assert image.file is not None
    try:
        with open(image.file, "rb") as file:
            return file.read()
    except OSError as error:
        raise exceptions.ConfigurationError(reason=f"image {image.name}: {image.file}: {error.strerror}.") from error


def _sentence(response: webob.Response) -> str:
    """Return the message of an API's error, whatever its form."""
    try:
        value = response.json
    except ValueError:
        return str(response.status)
    while isinstance(value, dict) and value:
        value = value.get("message") or next((item for item in value.values() if isinstance(item, dict)), None)
    return str(value or response.status)
