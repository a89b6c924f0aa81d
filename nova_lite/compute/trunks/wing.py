"""Reports the subports of this host to the conductor, and connects the subports in its reply.

A subport is plugged as an interface of a guest is: with an address of DHCP, anti-spoofing and security groups. Its
device is made when the guest has its interface, and again whenever the guest gets a new one, as by a restart.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable

import msgspec
from oslo_config import cfg

from nova_lite.base import clock, exceptions, files
from nova_lite.compute.trunks import devices
from nova_lite.compute.wings import HostWing
from nova_lite.network.trunks import FAILED, UP, Assignment, Assignments, HostReport
from nova_lite.objects import Flavor, Instance
from nova_lite.operations import states
from nova_lite.rpcapi.conductor import ConductorRPC
from nova_lite.virt.driver import ComputeDriver

LOG = logging.getLogger(__name__)

#: Seconds until the next report: usually, while a server moves, and after a failure.
INTERVAL, MOVING, RETRY_PAUSE = 30.0, 1.0, 2.0
#: Drivers without packets, on which each subport works.
_FAKE = ("fake", "fake-rules")
_REAL = "libvirt"


class HostTrunks(HostWing):
    """The subports of a host. A file has the plugged ones, so that a restart of the daemon forgets none."""

    def __init__(
        self, name: str, conf: cfg.ConfigOpts, host: str, driver: ComputeDriver, conductor: ConductorRPC
    ) -> None:
        super().__init__(name, conf, host, driver, conductor)
        directory = files.private_directory(os.path.join(conf.state_path, "trunks"))
        self._path = os.path.join(directory, f"{os.path.basename(host)}.json")
        self._events = devices.LinkEvents()
        self._taps: set[str] = set()
        self._plugged: dict[str, Assignment] = {}
        with contextlib.suppress(FileNotFoundError), open(self._path, "rb") as file:
            self._plugged = msgspec.json.decode(file.read(), type=dict[str, Assignment])
        #: Subports that this daemon has plugged, and subports that it could not connect.
        self._ready: set[str] = set()
        self._failed: set[str] = set()
        self._reported: dict[str, str] | None = None
        self._due = 0.0

    def tick(self, timeout: float) -> None:
        is_due = self.woken.wait(timeout) or clock.monotonic() >= self._due
        if self._events.any():
            taps = devices.taps()
            is_due |= not taps <= self._taps  # a guest has started, perhaps one with a trunk
            self._taps = taps
        elif not is_due:
            return
        found = self._states()
        if is_due or found != self._reported:
            self._report(found)

    def _report(self, found: dict[str, str]) -> None:
        self.woken.clear()
        self._due = clock.monotonic() + RETRY_PAUSE
        reply = self.send(msgspec.to_builtins(HostReport(states=found)))
        self._reported = found
        assignments = msgspec.convert(reply, Assignments, str_keys=True)
        self._failed.clear()
        self._apply({item.vif.id: item for item in assignments.subports})
        pause = RETRY_PAUSE if self._failed else MOVING if assignments.is_moving else INTERVAL
        self._due = clock.monotonic() + pause
        if self._states() != found:
            self.woken.set()  # the conductor waits for it

    def _states(self) -> dict[str, str]:
        """Connect the plugged subports whose guests have interfaces. Return the states of all that are known."""
        for port_id in self._ready:
            self._try(self._plugged[port_id], devices.connect)
        found = {}
        for port_id, item in self._plugged.items():
            if port_id in self._failed:
                found[port_id] = FAILED
            elif self.conf.compute_driver in _FAKE or devices.is_connected(item):
                found[port_id] = UP
        return found

    def _apply(self, wanted: dict[str, Assignment]) -> None:
        """Plug these subports, and no others. A failed one is tried again with the next report."""
        for port_id, item in list(self._plugged.items()):
            if port_id not in wanted or wanted[port_id].place() != item.place():
                self._try(item, self._unplug)
        for port_id, item in wanted.items():
            if port_id not in self._plugged:
                self._plugged[port_id] = item
                self._store()  # first: whatever follows has to be undone
            if port_id not in self._ready:
                self._try(item, self._plug)

    def _try(self, item: Assignment, change: Callable[[Assignment], object]) -> None:
        try:
            change(item)
        except (exceptions.NovaLiteException, OSError, ValueError) as error:
            self._failed.add(item.vif.id)
            self._due = min(self._due, clock.monotonic() + RETRY_PAUSE)
            LOG.error("Subport %s is not connected: %s", item.vif.id, error)

    def _plug(self, item: Assignment) -> None:
        if self.conf.compute_driver in _FAKE:
            return
        if self.conf.compute_driver != _REAL:
            raise exceptions.NotImplementedByDriver(operation="trunks")
        self.driver.networks.plug(_as_instance(item), [item.vif])
        self._ready.add(item.vif.id)

    def _unplug(self, item: Assignment) -> None:
        if self.conf.compute_driver == _REAL:
            devices.disconnect(item.vif)
            self.driver.networks.unplug(item.vif.id)
        self._ready.discard(item.vif.id)
        del self._plugged[item.vif.id]
        self._store()

    def _store(self) -> None:
        files.write_atomically(self._path, msgspec.json.encode(self._plugged))


def _as_instance(item: Assignment) -> Instance:
    """Return what the host's networks know a subport by: its port. It has no host name."""
    return Instance(
        uuid=item.vif.id,
        project_id=item.project_id,
        user_id="",
        display_name="",
        hostname="",
        vm_state=states.ACTIVE,
        flavor=Flavor(flavorid="", name="", vcpus=0, memory_mb=0, root_gb=0),
    )
