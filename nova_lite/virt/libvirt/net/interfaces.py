"""Interfaces that are attached to and detached from a domain, in the running guest and in its definition."""

from __future__ import annotations

import functools
import logging
import time
import xml.etree.ElementTree as ET
from typing import Any

import libvirt

from nova_lite.base import exceptions
from nova_lite.objects import VIF
from nova_lite.objects.pci import HOSTDEV_PHYSICAL
from nova_lite.virt.libvirt.connection import BUSY, Connection, LibvirtFailure
from nova_lite.virt.libvirt.domain import guest_xml, pci_xml

LOG = logging.getLogger(__name__)

POLL_SECONDS = 0.2

#: The device is gone already, or being detached already.
_UNDER_WAY = (libvirt.VIR_ERR_DEVICE_MISSING, libvirt.VIR_ERR_OPERATION_FAILED, libvirt.VIR_ERR_OPERATION_INVALID)

_LIVE, _CONFIG = libvirt.VIR_DOMAIN_AFFECT_LIVE, libvirt.VIR_DOMAIN_AFFECT_CONFIG


class InterfaceDevices:
    """Attaches and detaches interfaces. ``timeout``: seconds that a guest has to release a device."""

    def __init__(self, connection: Connection, timeout: float) -> None:
        self._connection = connection
        self._timeout = timeout

    def attach(self, domain: Any, vif: VIF) -> None:
        """Attach an interface, first to the running guest: if that fails, the definition stays unchanged."""
        xml = guest_xml.interface_xml(vif)
        for flag in self._where(domain):
            if not self._has(domain, vif, flag):
                self._connection.call_filtering(
                    domain.attachDeviceFlags, xml, flag, done=functools.partial(self._has, domain, vif, flag)
                )

    def detach(self, domain: Any, vif: VIF) -> None:
        xml = guest_xml.interface_xml(vif)
        for flag in self._where(domain):
            if flag == _LIVE:
                self._detach_live(domain, vif, xml)
            elif self._has(domain, vif, flag):
                self._detach(domain, vif, xml, flag, (libvirt.VIR_ERR_DEVICE_MISSING,))

    def _detach(self, domain: Any, vif: VIF, xml: str, flag: int, expected: tuple[int, ...]) -> None:
        """Detach an interface, or request the running guest to release it. Errors with ``expected`` codes are
        ignored."""
        try:
            self._connection.call_checked(lambda: not self._has(domain, vif, flag), domain.detachDeviceFlags, xml, flag)
        except LibvirtFailure as error:
            if error.error_code not in expected:
                raise

    def _detach_live(self, domain: Any, vif: VIF, xml: str) -> None:
        """Request the guest to release the device, repeatedly, and wait for it."""
        started, ask_at = time.monotonic(), 0.0
        while self._has(domain, vif, _LIVE):
            now = time.monotonic()
            if now >= started + self._timeout:
                raise exceptions.VirtDriverError(
                    reason=f"the guest did not release interface {vif.mac_address} within {self._timeout:g} s"
                )
            if now >= ask_at:
                self._detach(domain, vif, xml, _LIVE, (*_UNDER_WAY, *BUSY))
                ask_at = now + self._connection.timing.ask_again
            time.sleep(POLL_SECONDS)

    def _where(self, domain: Any) -> list[int]:
        return [_LIVE, _CONFIG] if self._connection.call(domain.isActive) else [_CONFIG]

    def _has(self, domain: Any, vif: VIF, flag: int) -> bool:
        if flag == _LIVE and not self._connection.call(domain.isActive):
            return False
        xml = self._connection.call(domain.XMLDesc, libvirt.VIR_DOMAIN_XML_INACTIVE if flag == _CONFIG else 0)
        root = ET.fromstring(xml)  # noqa: S314 libvirt's own
        if vif.vif_type == HOSTDEV_PHYSICAL and vif.device is not None:
            return pci_xml.has_whole(root, vif.device)
        found = root.iterfind("devices/interface/mac")
        return vif.mac_address.lower() in (str(element.get("address")).lower() for element in found)
