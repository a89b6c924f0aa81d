"""Wings of a host: parts that ``[DEFAULT] wings`` loads (`nova_lite.rpcapi.conductor.wings`)."""

from __future__ import annotations

import threading
from importlib import metadata
from typing import Any

from oslo_config import cfg

from nova_lite.base import plugins
from nova_lite.base.context import get_admin_context
from nova_lite.rpcapi.conductor import ConductorRPC
from nova_lite.virt.driver import ComputeDriver

#: Group of entry points, each a subclass of `HostWing`.
NAMESPACE = "nova_lite.wings.compute"

#: Seconds to wait for the reply to a report.
REPLY_TIMEOUT = 10.0


class HostWing:
    """Host's half of a wing. ``name``: its own. A thread calls `tick` again and again."""

    def __init__(
        self, name: str, conf: cfg.ConfigOpts, host: str, driver: ComputeDriver, conductor: ConductorRPC
    ) -> None:
        self.name = name
        self.conf = conf
        self.host = host
        self.driver = driver
        self._conductor = conductor
        self.woken = threading.Event()

    def tick(self, timeout: float) -> None:
        """Wait up to ``timeout`` seconds for a wake-up, then do what is due."""
        raise NotImplementedError

    def send(self, report: Any) -> Any:
        return self._conductor.wing_report(get_admin_context(), self.host, self.name, report, timeout=REPLY_TIMEOUT)


def load(conf: cfg.ConfigOpts, host: str, driver: ComputeDriver, conductor: ConductorRPC) -> dict[str, HostWing]:
    """Return the wings of ``[DEFAULT] wings`` that have a half on hosts, by name. Raises `ConfigurationError`."""
    names = [name for name in conf.wings if name in metadata.entry_points(group=NAMESPACE).names]
    kinds = plugins.load(NAMESPACE, names, "[DEFAULT] wings")
    return {name: kind(name, conf, host, driver, conductor) for name, kind in zip(names, kinds, strict=True)}
