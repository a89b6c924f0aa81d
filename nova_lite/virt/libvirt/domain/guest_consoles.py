"""The consoles of guests, by instance."""

from __future__ import annotations

import dataclasses
import os

from nova_lite.virt import abilities
from nova_lite.virt.abilities import ConsoleAddress
from nova_lite.virt.libvirt.context import HostPart
from nova_lite.virt.libvirt.domain import console_log, guest_xml
from nova_lite.virt.libvirt.domain.consoles import Consoles
from nova_lite.virt.libvirt.records import file_errors


@dataclasses.dataclass(eq=False)
class GuestConsoles(HostPart, abilities.Consoles):
    _consoles: Consoles

    def output(self, instance_uuid: str, length: int | None) -> str:
        self._domains.get(instance_uuid)
        path = os.path.join(self._records.directory(instance_uuid), guest_xml.CONSOLE_LOG)
        with file_errors():
            return console_log.tail(path, length)

    def vnc(self, instance_uuid: str) -> ConsoleAddress:
        return self._consoles.vnc(self._xml(instance_uuid))

    def serial(self, instance_uuid: str) -> ConsoleAddress:
        return self._consoles.serial(self._xml(instance_uuid))

    def spice(self, instance_uuid: str) -> ConsoleAddress:
        return self._consoles.spice(self._xml(instance_uuid))

    def _xml(self, instance_uuid: str) -> str:
        domain, _ = self._domains.get(instance_uuid)
        xml: str = self._connection.call(domain.XMLDesc, 0)
        return xml
