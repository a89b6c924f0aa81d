"""Rules of the compute API's proxies of the network service (until 2.35)."""

from __future__ import annotations

from nova_lite.policies.base import READER, Rules

_networks = Rules("os_compute_api:os-networks")

LIST = _networks("list", READER, "List networks", "GET /os-networks")
SHOW = _networks("show", READER, "Show a network", "GET /os-networks/{network_id}")
