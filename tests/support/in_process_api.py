"""An API's parts over a real conductor in this process, with a migrated database."""

from __future__ import annotations

from pathlib import Path

from oslo_config import cfg

from nova_lite import rpc
from nova_lite.api.http import wsgi
from nova_lite.compute.api import API
from nova_lite.conductor.manager import ConductorManager
from nova_lite.image.driver import load_backend
from nova_lite.policies.enforcer import Policy
from nova_lite.rpcapi.compute import ComputeRPC
from nova_lite.rpcapi.conductor import ConductorRPC
from nova_lite.rpcapi.scheduler import SchedulerRPC
from tests.support.migrated import migrate


def make_services(conf: cfg.ConfigOpts, path: Path) -> tuple[ConductorManager, wsgi.ApiServices]:
    """Return a conductor, and what applications need to call it. ``path``: the daemons' state directory."""
    conf.set_override("state_path", str(path))
    migrate(conf)
    bus = rpc.InProcess(conf)
    conductor = rpc.proxy(ConductorRPC, bus)
    manager = ConductorManager(conf, rpc.proxy(SchedulerRPC, bus), rpc.proxy(ComputeRPC, bus), conductor)
    bus.serve(manager.endpoint)
    compute = API()
    compute.connect(conductor, rpc.proxy(ComputeRPC, bus), load_backend(conf, conductor))
    return manager, wsgi.ApiServices(conf, Policy(conf), compute)
