"""Interfaces of guests that keep running while users change their networks.

The record of an interface on disk is current: after a restart, a daemon guards and serves its guests by these records.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from typing import Protocol

from nova_lite.base import exceptions
from nova_lite.objects import VIF, Network, PortFilters
from nova_lite.virt.libvirt.net import nft
from nova_lite.virt.libvirt.net.anti_spoofing import AntiSpoofing
from nova_lite.virt.libvirt.net.security_groups import PortFirewall
from nova_lite.virt.libvirt.records import Records

LOG = logging.getLogger(__name__)

_LOCKS = 64


class Networks(Protocol):
    """Networks of a host: `HostNetworks`, or those of a driver without libvirt."""

    def managed(self, vifs: list[VIF]) -> set[str]:
        """Return the ids of networks with a gateway of this host."""
        ...

    def restore(self) -> None: ...

    def update(self, network: Network) -> None: ...

    def update_options(self, vif: VIF) -> None: ...


class GuestInterfaces:
    """Records of the interfaces on this host, and how they follow the conductor."""

    def __init__(
        self, records: Records, networks: Networks, anti_spoofing: AntiSpoofing, port_firewall: PortFirewall
    ) -> None:
        self._records = records
        self._networks = networks
        self._anti_spoofing = anti_spoofing
        self._port_firewall = port_firewall
        self._locks = [threading.Lock() for _ in range(_LOCKS)]
        #: Settings that the records have. None after a new interface or a failure.
        self._followed: object = None

    @contextlib.contextmanager
    def lock(self, instance_uuid: str) -> Iterator[None]:
        """Keep `update` from the interfaces of an instance."""
        with self._locks[hash(instance_uuid) % _LOCKS]:
            yield

    def record(self, instance_uuid: str, vifs: list[VIF]) -> None:
        """Write the record of an instance that is being plugged."""
        with self.lock(instance_uuid):
            self._records.write_interfaces(instance_uuid, vifs)
        self._followed = None

    def update(self, filters: PortFilters) -> None:
        """Carry out changed settings of networks and ports.

        A failure is logged, keeps no other guest or network from its changes, and the next call tries again.
        """
        self._networks.restore()
        wanted = (filters.networks, filters.pairs, filters.unfiltered, filters.dhcp_options, filters.further)
        if wanted == self._followed:
            return
        self._followed = wanted
        for instance_uuid in self._anti_spoofing.instances():
            with self._trying(f"instance {instance_uuid}"), self.lock(instance_uuid):
                self._update_one(instance_uuid, filters)
        for network in (filters.networks or {}).values():
            with self._trying(f"network {network.id}"):
                self._networks.update(network)

    @contextlib.contextmanager
    def _trying(self, what: str) -> Iterator[None]:
        try:
            yield
        except exceptions.VirtDriverError as error:
            self._followed = None
            LOG.error("Changes of networks do not reach %s on this host: %s", what, error.message)

    def _update_one(self, instance_uuid: str, filters: PortFilters) -> None:
        before = self._records.read_interfaces(instance_uuid)
        vifs = [_current(vif, filters) for vif in before]
        if vifs != before:
            for vif, former in zip(vifs, before, strict=True):
                if vif.dhcp_options != former.dhcp_options:
                    self._networks.update_options(vif)
            self._records.write_interfaces(instance_uuid, vifs)
            is_filtered = [_filtering(vif) for vif in vifs] != [_filtering(vif) for vif in before]

            def load(text: str) -> None:
                self._port_firewall.plug(instance_uuid, vifs, text)

            served = self._networks.managed(vifs)
            self._anti_spoofing.plug(instance_uuid, vifs, served, load if is_filtered else nft.apply)


def _current(vif: VIF, filters: PortFilters) -> VIF:
    """Return an interface with the settings that the conductor has; one of another network service as it is."""
    return vif if vif.vif_type is not None else filters.current(vif)


def _filtering(vif: VIF) -> tuple[object, ...]:
    """Return what the security groups of an interface depend on."""
    return vif.id, vif.address_pairs, vif.port_security_enabled, vif.more
