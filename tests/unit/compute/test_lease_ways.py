"""Daemon of a host that fences itself: it requests leases by several connections."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from oslo_config import cfg

from nova_lite import conf as configuration
from nova_lite.cmd.compute import ComputeDaemon
from nova_lite.compute.lease_ways import FURTHER_WAYS
from nova_lite.compute.manager import ComputeManager
from tests.support.compute_host import DEADLINE
from tests.support.waiting import wait_for


class Fencing:
    """Self-fencing whose lease is overdue. ``used``: conductors that got a request; None: the usual way."""

    def __init__(self, enabled: bool) -> None:
        self.enabled = enabled
        self.used: list[Any] = []

    def is_late(self) -> bool:
        return True

    def renew(self, conductor: Any = None) -> None:
        self.used.append(conductor)


@pytest.mark.parametrize("enabled", [True, False], ids=["fences itself", "does not fence itself"])
def test_lease_of_a_host_is_requested_by_each_connection(enabled: bool) -> None:
    conf = cfg.ConfigOpts()
    configuration.register_opts(conf)
    conf([], default_config_files=[])
    conf.set_override("self_fencing_lease", 30, "compute")
    connections: list[object] = []

    def connect(_conf: Any, _role: str) -> Any:
        connections.append(object())
        return connections[-1]

    daemon = ComputeDaemon(conf, cast(Any, connect))
    fencing = Fencing(enabled)
    try:
        daemon._renew_leases(cast(ComputeManager, SimpleNamespace(self_fencing=fencing)))
        wait_for(
            "every way is used",
            lambda: not enabled or len({id(way) for way in fencing.used}) == FURTHER_WAYS + 1,
            DEADLINE,
        )
        assert len(connections) == (FURTHER_WAYS if enabled else 0)
        assert (None in fencing.used) is enabled
    finally:
        for periodic in daemon.periodics:
            periodic.stop()
