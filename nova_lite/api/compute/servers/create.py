"""Conversion of the body of ``POST /servers`` to a `CreateRequest`, with the checks that a schema cannot express."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from oslo_utils import strutils

from nova_lite.api.compute.servers import block_devices
from nova_lite.api.http import validation
from nova_lite.api.http.microversions import Change
from nova_lite.api.http.wsgi import Request
from nova_lite.base import exceptions
from nova_lite.objects import CreateRequest, NetworkRequest, RequestedDestination
from nova_lite.policies import servers as policies

_IDEMPOTENCY_KEY = re.compile(r"[\x20-\x7e]{1,255}")


def request_of(req: Request, password: str) -> CreateRequest:
    """Return the create request. Raises `ValidationError`, and `PolicyNotAuthorized` for parameters of admins."""
    server = req.data["server"]
    minimum = int(server.get("min_count", 1))
    maximum = int(server.get("max_count", minimum))
    if minimum > maximum:
        raise exceptions.ValidationError(detail="min_count must be <= max_count")
    if minimum > (limit := req.services.conf.api.max_servers_per_request):
        raise exceptions.ValidationError(
            detail=f"min_count must be at most {limit}: one request creates no more servers here."
        )
    maximum = min(maximum, limit)
    zone, host, node = _split_zone(server.get("availability_zone"))
    if host or node:
        req.authorize(policies.FORCED_HOST)
    hints = req.data.get("os:scheduler_hints") or req.data.get("OS-SCH-HNT:scheduler_hints") or {}
    if server.get("trusted_image_certificates"):
        raise exceptions.ValidationError(detail="Image signature verification is not supported here.")
    image_ref, devices = block_devices.of_server(server)
    return CreateRequest(
        name=server["name"].strip(),
        may_have_zero_disk=req.allows(policies.ZERO_DISK),
        flavor_id=str(server["flavorRef"]),
        image_ref=image_ref,
        names_image=bool(server.get("imageRef")),
        block_devices=devices,
        multiattach=req.has(Change.MULTIATTACH),
        min_count=minimum,
        max_count=maximum,
        # Versions without descriptions use the name as the description.
        description=server.get("description") if req.has(Change.SERVER_DESCRIPTION) else server["name"].strip(),
        hostname=server.get("hostname"),
        networks=networks_of(req, server, maximum),
        availability_zone=zone,
        forced_host=host,
        forced_node=node,
        requested_destination=_requested_destination(req, server, forced=bool(host or node)),
        metadata=server.get("metadata", {}),
        tags=list(dict.fromkeys(server.get("tags", []))),
        key_name=server.get("key_name"),
        security_groups=list(dict.fromkeys(group["name"] for group in server.get("security_groups", []) if group)),
        user_data=server.get("user_data"),
        config_drive=strutils.bool_from_string(server.get("config_drive") or False, strict=True),
        auto_disk_config=server.get("OS-DCF:diskConfig") == "AUTO",
        admin_password=password,
        access_ip_v4=server.get("accessIPv4") or None,
        access_ip_v6=validation.canonical_ipv6(server.get("accessIPv6")),
        scheduler_hints={
            key: [str(item) for item in value] if isinstance(value, list) else str(value)
            for key, value in hints.items()
            if value is not None
        },
        injected_files={item["path"]: item.get("contents", "") for item in server.get("personality", [])},
        idempotency_key=_idempotency_key(req),
        fingerprint=_fingerprint(req.data),
    )


def _idempotency_key(req: Request) -> str | None:
    """Return the ``Idempotency-Key`` header, as in the IETF's draft.

    A client that does not know whether a create was accepted repeats it with the same key, and gets the same servers.
    """
    key: str | None = req.headers.get("Idempotency-Key")
    if key is not None and not _IDEMPOTENCY_KEY.fullmatch(key):
        raise exceptions.ValidationError(detail="Idempotency-Key must be 1 to 255 printable ASCII characters.")
    return key


def _fingerprint(body: dict[str, Any]) -> str:
    """Return a hash of the request without its secret. It detects another request with the same key."""
    server = {key: value for key, value in body["server"].items() if key != "adminPass"}
    text = json.dumps({**body, "server": server}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _requested_destination(req: Request, server: dict[str, Any], forced: bool) -> RequestedDestination | None:
    """Return the ``host`` and ``hypervisor_hostname`` of the request, which admins may use since 2.74.

    Unlike ``zone:host:node`` they bypass no filter of the scheduler.
    """
    if "host" not in server and "hypervisor_hostname" not in server:
        return None
    if forced:
        raise exceptions.ValidationError(
            detail="Unable to specify both a host in the availability zone and a requested destination."
        )
    req.authorize(policies.REQUESTED_DESTINATION)
    return RequestedDestination(host=server.get("host"), node=server.get("hypervisor_hostname"))


def _split_zone(text: str | None) -> tuple[str | None, str | None, str | None]:
    if text is None or ":" not in text:
        return text, None, None
    parts = text.split(":")
    if len(parts) > 3:
        raise exceptions.ValidationError(detail="Unable to parse availability_zone: expected ZONE[:HOST[:NODE]].")
    zone, host, node = (*parts, "")[:3] if len(parts) == 2 else parts
    return zone or None, host or None, node or None


def networks_of(req: Request, server: dict[str, Any], count: int) -> str | list[NetworkRequest]:
    """Return the requested interfaces of each of ``count`` servers. Raises `ValidationError`."""
    networks = server.get("networks")
    if isinstance(networks, str):
        return networks
    if not networks:
        return "none" if networks == [] and req.has(Change.NETWORKS_REQUIRED) else "auto"
    return [_network(network, count) for network in networks]


def _network(network: dict[str, Any], count: int) -> NetworkRequest:
    port, uuid, address = network.get("port"), network.get("uuid"), network.get("fixed_ip")
    if port is None:
        if uuid is None or not validation.is_uuid(uuid):
            raise exceptions.ValidationError(
                detail=f"Bad networks format: network uuid is not in proper format ({uuid})"
            )
    elif address is not None:
        raise exceptions.ValidationError(
            detail=f"Specified Fixed IP '{address}' cannot be used with port '{port}': the two cannot be specified "
            "together."
        )
    if count > 1 and (port is not None or address is not None):
        what = "port ID" if port is not None else "fixed IP"
        raise exceptions.ValidationError(
            detail=f"Unable to launch multiple instances with a single configured {what}. Please launch your instance "
            "one by one."
        )
    return NetworkRequest(network_id=uuid, port_id=port, fixed_ip=address, tag=network.get("tag"))
