"""Rules of services."""

from __future__ import annotations

from nova_lite.policies.base import ADMIN, Rules

_services = Rules("os_compute_api:os-services")

LIST = _services("list", ADMIN, "List services", "GET /os-services")
UPDATE = _services("update", ADMIN, "Enable, disable or force down a service", "PUT /os-services/{service_id}")
DELETE = _services("delete", ADMIN, "Delete a service", "DELETE /os-services/{service_id}")
