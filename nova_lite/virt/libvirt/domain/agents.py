"""Requests to the guest's own system: passwords through its agent, and interrupts."""

from __future__ import annotations

import libvirt

from nova_lite.base import exceptions
from nova_lite.virt import abilities
from nova_lite.virt.libvirt.connection import LibvirtFailure
from nova_lite.virt.libvirt.context import HostPart

_NO_AGENT = (libvirt.VIR_ERR_AGENT_UNRESPONSIVE, libvirt.VIR_ERR_ARGUMENT_UNSUPPORTED)


class GuestPasswords(HostPart, abilities.Passwords):
    def set(self, instance_uuid: str, user: str, password: str) -> None:
        domain, _ = self._domains.get(instance_uuid)
        try:
            self._connection.call(domain.setUserPassword, user, password, 0)
        except LibvirtFailure as error:
            if error.error_code in _NO_AGENT:
                raise exceptions.GuestAgentUnresponsive(instance_uuid=instance_uuid) from error
            raise


class GuestCrashDumps(HostPart, abilities.CrashDumps):
    def trigger(self, instance_uuid: str) -> None:
        """Inject a non-maskable interrupt. The guest's reaction is its own."""
        domain, _ = self._domains.get(instance_uuid)
        self._connection.call(domain.injectNMI, 0)
