"""The rule of the API's extensions."""

from __future__ import annotations

from nova_lite.policies.base import ANYONE, rule

EXTENSIONS = rule(
    "os_compute_api:extensions", ANYONE, "List the API's extensions", "GET /extensions", "GET /extensions/{alias}"
)
