"""Service catalog: the services in ``[api] enabled_apis``, each with one URL."""

from __future__ import annotations

import uuid
from typing import Any, NamedTuple

from oslo_config import cfg

_INTERFACES = ("public", "internal", "admin")
_ANY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 - only compared


class CatalogService(NamedTuple):
    """Entry of the catalog. ``api``: its name in ``[api] enabled_apis``. ``listen``, ``port``: options of ``[api]``."""

    api: str
    type: str
    name: str
    option: str
    listen: str
    port: str
    path: str


_SERVICES = (
    CatalogService("identity", "identity", "keystone", "identity_endpoint", "identity_listen", "identity_port", "/v3"),
    CatalogService("osapi_compute", "compute", "nova", "compute_endpoint", "listen", "port", "/v2.1"),
    CatalogService("image", "image", "glance", "image_endpoint", "image_listen", "image_port", ""),
    CatalogService("volume", "volumev3", "cinderv3", "volume_endpoint", "volume_listen", "volume_port", "/v3"),
    CatalogService("volume", "block-storage", "cinder", "volume_endpoint", "volume_listen", "volume_port", "/v3"),
    CatalogService("network", "network", "neutron", "network_endpoint", "network_listen", "network_port", ""),
)


class Catalog:
    """``services`` and ``endpoints``: for ``/v3/services`` and ``/v3/endpoints``. ``entries``: for tokens."""

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
            for interface in _INTERFACES
        ]
        self.entries: list[dict[str, Any]] = [
            {
                "id": service["id"],
                "type": service["type"],
                "name": service["name"],
                "endpoints": [
                    {key: value for key, value in endpoint.items() if key not in ("service_id", "enabled")}
                    for endpoint in self.endpoints
                    if endpoint["service_id"] == service["id"]
                ],
            }
            for service in self.services
        ]


def url_of(conf: cfg.ConfigOpts, service_type: str) -> str:
    """Return the URL of the service of this type."""
    return next(_url(conf, service) for service in _SERVICES if service.type == service_type)


def _url(conf: cfg.ConfigOpts, service: CatalogService) -> str:
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
