"""Networks of the network service, as clients of old versions see them."""

from __future__ import annotations

import pytest

from tests.support.api_client import Client, fault
from tests.support.control_plane import NETWORK_ID

NETWORK = {"id": NETWORK_ID, "cidr": "10.0.0.0/24", "label": "private"}
#: Response of each URL.
RESPONSES = {
    "/os-tenant-networks": {"networks": [NETWORK]},
    f"/os-tenant-networks/{NETWORK_ID}": {"network": NETWORK},
}


@pytest.mark.parametrize("path", RESPONSES)
def test_tenant_networks_are_shown(api: Client, path: str) -> None:
    assert api.json("GET", path, version="2.35") == RESPONSES[path]
    assert api.json("GET", path, base="/v2") == RESPONSES[path]
    fault(api("GET", path, version="2.36"), "itemNotFound", 404)


def test_unknown_tenant_network_is_404(api: Client) -> None:
    fault(api("GET", "/os-tenant-networks/nosuch"), "itemNotFound", 404)
