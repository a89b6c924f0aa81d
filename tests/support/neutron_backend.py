"""The backend ``neutron`` on a simulated Neutron."""

from __future__ import annotations

from pathlib import Path

from nova_lite.network.driver import load_backend
from nova_lite.network.neutron import NeutronNetworks
from tests.support.api_client import make_conf
from tests.support.neutron import FakeNeutron


def backend_of(path: Path, url: str, more: str = "", timeout: int = 5) -> NeutronNetworks:
    text = FakeNeutron.options_of(url, timeout) + more
    backend = load_backend(make_conf(path, text))
    assert isinstance(backend, NeutronNetworks)
    return backend
