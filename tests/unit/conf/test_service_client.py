"""Requests to other services: what of keystoneauth would hold them up."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from keystoneauth1 import _fair_semaphore
from keystoneauth1.adapter import Adapter
from keystoneauth1.session import Session
from oslo_config import cfg

from nova_lite.api.middleware.keystone import KeystoneAuth
from nova_lite.network.neutron_client import NeutronClient
from nova_lite.policies.enforcer import Policy
from tests.support.api_client import make_conf
from tests.support.neutron import FakeNeutron


def as_a_client(conf: cfg.ConfigOpts) -> None:
    NeutronClient(conf)


def as_keystones_middleware(conf: cfg.ConfigOpts) -> None:
    KeystoneAuth(lambda environ, start_response: [], conf, Policy(conf))


@pytest.mark.parametrize("load", [as_a_client, as_keystones_middleware])
def test_a_clock_that_is_set_back_holds_up_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, load: Callable[[cfg.ConfigOpts], None]
) -> None:
    monkeypatch.setattr(_fair_semaphore, "time", time)  # as keystoneauth has it
    neutron = FakeNeutron()
    try:
        load(make_conf(tmp_path, FakeNeutron.options_of(neutron.url)))
        adapter = Adapter(Session())
        an_hour_ago = time.time() - 3600
        waits: list[float] = []
        monkeypatch.setattr(time, "time", lambda: an_hour_ago)
        monkeypatch.setattr(time, "sleep", waits.append)
        assert adapter.get(f"{neutron.url}/v2.0/ports").json() == {"ports": []}
        assert max(waits, default=0.0) < 1
    finally:
        neutron.stop()
