"""Flavors."""

from __future__ import annotations

from typing import Any

from nova_lite.api.http.microversions import Change
from nova_lite.api.http.wsgi import Request
from nova_lite.objects import Flavor
from nova_lite.policies import flavors as policies


def index(req: Request, flavors: list[Flavor]) -> list[dict[str, Any]]:
    return [_short(req, flavor) for flavor in flavors]


def detail(req: Request, flavors: list[Flavor]) -> list[dict[str, Any]]:
    with_specs = req.has(Change.FLAVOR_EXTRA_SPECS) and req.allows(policies.SPECS_INDEX)
    return [_whole(req, flavor, with_specs) for flavor in flavors]


def show(req: Request, flavor: Flavor) -> dict[str, Any]:
    return detail(req, [flavor])[0]


def embedded(flavor: Flavor, with_specs: bool) -> dict[str, Any]:
    """As a server shows the flavor it was made with, since 2.47."""
    view: dict[str, Any] = {
        "vcpus": flavor.vcpus,
        "ram": flavor.memory_mb,
        "disk": flavor.root_gb,
        "ephemeral": flavor.ephemeral_gb,
        "swap": flavor.swap,
        "original_name": flavor.name,
    }
    if with_specs:
        view["extra_specs"] = flavor.extra_specs
    return view


def _short(req: Request, flavor: Flavor) -> dict[str, Any]:
    view: dict[str, Any] = {"id": flavor.flavorid, "name": flavor.name, "links": req.links("flavors", flavor.flavorid)}
    if req.has(Change.FLAVOR_DESCRIPTION):
        view["description"] = flavor.description
    return view


def _whole(req: Request, flavor: Flavor, with_specs: bool) -> dict[str, Any]:
    no_swap: Any = 0 if req.has(Change.STRICT_QUERIES) else ""
    view = _short(req, flavor) | {
        "ram": flavor.memory_mb,
        "disk": flavor.root_gb,
        "swap": flavor.swap or no_swap,
        "OS-FLV-EXT-DATA:ephemeral": flavor.ephemeral_gb,
        "vcpus": flavor.vcpus,
        "os-flavor-access:is_public": flavor.is_public,
    }
    if not req.has(Change.NO_UNKNOWN_QUERIES):
        view |= {"OS-FLV-DISABLED:disabled": flavor.disabled, "rxtx_factor": flavor.rxtx_factor}
    if with_specs:
        view["extra_specs"] = flavor.extra_specs
    return view
