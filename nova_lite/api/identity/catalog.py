"""Service catalog: the services in ``[api] enabled_apis``, each with one URL, and the services of operators."""

from __future__ import annotations

import re
import uuid
from typing import Any, NamedTuple

from oslo_config import cfg

from nova_lite.api.identity.content import Content
from nova_lite.api.identity.records import CatalogEndpoint, CatalogRegion, CatalogService, EndpointGroup

INTERFACES = ("public", "internal", "admin")
#: Variables of an endpoint's URL, as ``%(project_id)s`` or ``$(project_id)s``.
VARIABLES = ("project_id", "tenant_id", "user_id")
_VARIABLE = re.compile(r"[%$]\((?P<name>[^()]*)\)s")
_ANY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 - only compared


class BuiltInService(NamedTuple):
    """Entry of the catalog. ``api``: its name in ``[api] enabled_apis``. ``listen``, ``port``: options of ``[api]``."""

    api: str
    type: str
    name: str
    option: str
    listen: str
    port: str
    path: str


_SERVICES = (
    BuiltInService("identity", "identity", "keystone", "identity_endpoint", "identity_listen", "identity_port", "/v3"),
    BuiltInService("osapi_compute", "compute", "nova", "compute_endpoint", "listen", "port", "/v2.1"),
    BuiltInService("image", "image", "glance", "image_endpoint", "image_listen", "image_port", ""),
    BuiltInService("volume", "volumev3", "cinderv3", "volume_endpoint", "volume_listen", "volume_port", "/v3"),
    BuiltInService("volume", "block-storage", "cinder", "volume_endpoint", "volume_listen", "volume_port", "/v3"),
    BuiltInService(
        "placement", "placement", "placement", "placement_endpoint", "placement_listen", "placement_port", ""
    ),
    BuiltInService("network", "network", "neutron", "network_endpoint", "network_listen", "network_port", ""),
    BuiltInService("dns", "dns", "designate", "dns_endpoint", "dns_listen", "dns_port", ""),
    BuiltInService(
        "load_balancer",
        "load-balancer",
        "octavia",
        "load_balancer_endpoint",
        "load_balancer_listen",
        "load_balancer_port",
        "",
    ),
    BuiltInService(
        "key_manager", "key-manager", "barbican", "key_manager_endpoint", "key_manager_listen", "key_manager_port", ""
    ),
)


class Catalog:
    """Catalog of the built-in services and of the services of operators.

    ``services``, ``endpoints``, ``regions``: the built-in ones, in the form of the identity API.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        served = [service for service in _SERVICES if service.api in conf.api.enabled_apis]
        self.region = conf.identity.region
        self.urls = {service.type: _url(conf, service) for service in served}
        self.services: list[dict[str, Any]] = [
            {"id": _id("service", service.type), "type": service.type, "name": service.name, "enabled": True}
            for service in served
        ]
        self.endpoints = [
            {
                "id": _id("endpoint", service["type"], interface),
                "service_id": service["id"],
                "interface": interface,
                "region": self.region,
                "region_id": self.region,
                "url": self.urls[service["type"]],
                "enabled": True,
            }
            for service in self.services
            for interface in INTERFACES
        ]
        self.regions: list[dict[str, Any]] = [{"id": self.region, "description": "", "parent_region_id": None}]

    def all_services(self, content: Content) -> list[dict[str, Any]]:
        return [*self.services, *(service(item) for item in content.services)]

    def all_endpoints(self, content: Content) -> list[dict[str, Any]]:
        return [*self.endpoints, *(endpoint(item) for item in content.endpoints)]

    def all_regions(self, content: Content) -> list[dict[str, Any]]:
        return [*self.regions, *(region(item) for item in content.regions)]

    def entries(self, content: Content, user_id: str, project_id: str | None) -> list[dict[str, Any]]:
        """Return the catalog of a token: enabled services and endpoints, with URLs for its user and project.

        A token without a project has no endpoints with a project in their URL.
        """
        values = {"user_id": user_id}
        if project_id is not None:
            values |= {"project_id": project_id, "tenant_id": project_id}
        by_service: dict[str, list[dict[str, Any]]] = {}
        wanted = self.filtered(content, project_id)
        for item in self.all_endpoints(content):
            if wanted is not None and item["id"] not in wanted:
                continue
            if item["enabled"] and all(match["name"] in values for match in _VARIABLE.finditer(item["url"])):
                shown = {key: value for key, value in item.items() if key not in ("service_id", "enabled")}
                by_service.setdefault(item["service_id"], []).append(shown | {"url": _filled(item["url"], values)})
        return [
            {"id": item["id"], "type": item["type"], "name": item["name"], "endpoints": by_service.get(item["id"], [])}
            for item in self.all_services(content)
            if item["enabled"] and (wanted is None or item["id"] in by_service)
        ]

    def filtered(self, content: Content, project_id: str | None) -> set[str] | None:
        """Return the ids of the endpoints that a project is limited to; None if it has all."""
        project = content.project(project_id) if project_id is not None else None
        if project is None:
            return None
        groups = [group for group in content.endpoint_groups if project.id in group.project_ids]
        if not project.endpoint_ids and not groups:
            return None
        found = set(project.endpoint_ids)
        for group in groups:
            found |= {item["id"] for item in self.in_group(content, group)}
        return found

    def in_group(self, content: Content, group: EndpointGroup) -> list[dict[str, Any]]:
        """Return the endpoints of a group."""
        return [
            item
            for item in self.all_endpoints(content)
            if all(item[name] == value for name, value in group.filters.items())
        ]


def service(item: CatalogService) -> dict[str, Any]:
    shown = {"id": item.id, "type": item.type, "name": item.name, "enabled": item.enabled}
    return shown | ({"description": item.description} if item.description else {})


def endpoint(item: CatalogEndpoint) -> dict[str, Any]:
    return {
        "id": item.id,
        "service_id": item.service_id,
        "interface": item.interface,
        "region": item.region,
        "region_id": item.region,
        "url": item.url,
        "enabled": item.enabled,
    }


def region(item: CatalogRegion) -> dict[str, Any]:
    return {"id": item.id, "description": item.description, "parent_region_id": item.parent}


def unknown_variable(url: str) -> str | None:
    """Return a variable of the URL that tokens have no value for, or a percent sign without a variable."""
    for match in _VARIABLE.finditer(url):
        if match["name"] not in VARIABLES:
            return match.group()
    return "%" if "%" in _VARIABLE.sub("", url) else None


def _filled(url: str, values: dict[str, str]) -> str:
    return _VARIABLE.sub(lambda match: values[match["name"]], url)


def types_of(api: str) -> list[str]:
    """Return the types of an API, by its name in ``[api] enabled_apis``."""
    return [service.type for service in _SERVICES if service.api == api]


def url_of(conf: cfg.ConfigOpts, service_type: str) -> str:
    """Return the URL of the service of this type."""
    return next(_url(conf, service) for service in _SERVICES if service.type == service_type)


def _url(conf: cfg.ConfigOpts, service: BuiltInService) -> str:
    configured = conf.identity[service.option]
    if configured:
        return str(configured).rstrip("/")
    host = conf.api[service.listen]
    if host in _ANY_ADDRESS:
        host = conf.my_ip
    scheme = "https" if service.api in conf.api.enabled_ssl_apis else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{conf.api[service.port]}{service.path}"


def _id(*parts: str) -> str:
    return uuid.uuid5(uuid.NAMESPACE_URL, ":".join(("nova-lite", *parts))).hex
