"""Routers on this host: networks of a router meet in its realm, and leave through its gateway.

Each host routes for its own guests. To reach a guest of another host, a packet is routed here and then crosses the
tunnel of the guest's network. So a host has the bridges of all networks of its routers that span hosts. It knows the
MAC addresses of their guests. It must not ask for them, since all hosts have the gateway's address.

What passes is decided by the table of each network (`firewall`).
"""

from __future__ import annotations

import logging
import os
import threading

import msgspec

from nova_lite.base import exceptions, files
from nova_lite.objects import HostRouter
from nova_lite.objects.ready import prepare_decoders
from nova_lite.virt.libvirt.net.networks import HostNetworks

LOG = logging.getLogger(__name__)

prepare_decoders(HostRouter)


class HostRouters:
    """Manages the routers. The last ones from the conductor are stored on disk, and stay valid until they are
    replaced."""

    def __init__(self, networks: HostNetworks, host: str, directory: str) -> None:
        self._networks = networks
        self._host = host
        self._path = os.path.join(directory, f"_routers@{host}.json")
        self._lock = threading.Lock()
        self._stored: list[HostRouter] = []
        self._active: list[HostRouter] = []

    @property
    def active(self) -> list[HostRouter]:
        return self._active

    def read(self) -> None:
        """Read the stored routers, so that networks start in the right realms."""
        with self._lock:
            self._stored = self._read()
            self._networks.set_routers(self._stored)

    def prepare(self, needed: bool) -> None:
        """Restore the stored routers. ``needed``: this host has guests."""
        with self._lock:
            self._apply(self._stored if needed else [])

    def set(self, routers: list[HostRouter] | None) -> None:
        """Replace all routers. None: they are unknown, and stay."""
        with self._lock:
            if routers is not None and routers != self._stored:
                files.write_atomically(self._path, msgspec.json.encode(routers), writer=self._host)
                self._stored = routers
            self._apply(self._stored)

    def resume(self) -> None:
        """Carry out the stored routers again, for a new guest."""
        with self._lock:
            if self._active != self._stored:
                self._apply(self._stored)

    def suspend(self) -> None:
        """Carry out no routers, since the last guest is gone."""
        with self._lock:
            if self._active:
                self._apply([])

    def _apply(self, routers: list[HostRouter]) -> None:
        self._networks.set_routers(routers)
        self._active = [self._with_bridges(router) for router in routers]
        self._networks.route(self._active)

    def _with_bridges(self, router: HostRouter) -> HostRouter:
        """Return a router with those of its networks that have a gateway here, which are started."""
        started = []
        for network in router.networks:
            try:
                if self._networks.start(network):
                    started.append(network)
                    continue
                LOG.error("Network %s has a bridge of the operator's: router %s ignores it", network.id, router.id)
            except exceptions.VirtDriverError as error:
                LOG.error("Network %s of router %s cannot be started: %s", network.id, router.id, error.message)
        return msgspec.structs.replace(router, networks=started)

    def _read(self) -> list[HostRouter]:
        try:
            with open(self._path, "rb") as file:
                return msgspec.json.decode(file.read(), type=list[HostRouter])
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            LOG.warning("%s cannot be read and will be queried again: %s", self._path, error)
            return []
