"""Rules of availability zones."""

from __future__ import annotations

from nova_lite.policies.base import ADMIN, ANYONE, Rules

_zones = Rules("os_compute_api:os-availability-zone")

LIST = _zones("list", ANYONE, "List availability zones", "GET /os-availability-zone")
DETAIL = _zones("detail", ADMIN, "List availability zones with their hosts", "GET /os-availability-zone/detail")
