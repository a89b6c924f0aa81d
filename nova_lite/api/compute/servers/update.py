"""Conversion of the body of ``PUT /servers/{id}`` or of a rebuild to changes of the instance."""

from __future__ import annotations

from typing import Any

from nova_lite.api.http import validation
from nova_lite.api.http.microversions import Change
from nova_lite.api.http.wsgi import Request


def changes_of_body(req: Request, server: dict[str, Any]) -> dict[str, Any]:
    """Return the changed fields of the instance, by the fields' names."""
    changes: dict[str, Any] = {}
    if "name" in server:
        changes["display_name"] = server["name"].strip()
    if "description" in server:
        changes["display_description"] = server["description"]
    if "accessIPv4" in server:
        changes["access_ip_v4"] = server["accessIPv4"] or None
    if "accessIPv6" in server:
        changes["access_ip_v6"] = validation.canonical_ipv6(server["accessIPv6"])
    if "OS-DCF:diskConfig" in server:
        changes["auto_disk_config"] = server["OS-DCF:diskConfig"] == "AUTO"
    if "hostname" in server and req.has(Change.SERVER_HOSTNAME):
        changes["hostname"] = server["hostname"]
    if "pinned_availability_zone" in server and req.has(Change.ZONE_PINNED_LATER):
        changes["requested_availability_zone"] = server["pinned_availability_zone"]
    return changes
