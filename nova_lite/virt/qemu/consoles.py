"""Consoles of guests: the log of the serial port, and the addresses at which qemu listens."""

from __future__ import annotations

import re
from typing import Any

from nova_lite.base import exceptions
from nova_lite.virt import abilities
from nova_lite.virt.abilities import ConsoleAddress
from nova_lite.virt.libvirt.domain import console_log
from nova_lite.virt.libvirt.records import file_errors
from nova_lite.virt.qemu.console_logs import CONSOLE_LOG
from nova_lite.virt.qemu.host import Part

#: qemu's description of a listening socket: address and port, with or without a client.
_LISTENS = re.compile(r"(?:disconnected:)?tcp:\S+?:(\d+)(?:,server=on| <-> ).*")


class GuestConsoles(Part, abilities.Consoles):
    @file_errors()
    def output(self, instance_uuid: str, length: int | None) -> str:
        self._host.definitions.get(instance_uuid)
        return console_log.tail(self._host.definitions.path(instance_uuid, CONSOLE_LOG), length)

    def vnc(self, instance_uuid: str) -> ConsoleAddress:
        reply = self._query(instance_uuid, "query-vnc", "novnc")
        if not reply["enabled"]:
            raise exceptions.ConsoleTypeUnavailable(console_type="novnc")
        return ConsoleAddress(self._host.conf.vnc.server_proxyclient_address, int(reply["service"]))

    def serial(self, instance_uuid: str) -> ConsoleAddress:
        for device in self._query(instance_uuid, "query-chardev", "serial"):
            if device["label"] == "serial0" and (match := _LISTENS.fullmatch(device["filename"])):
                return ConsoleAddress(self._host.conf.serial_console.proxyclient_address, int(match[1]))
        raise exceptions.ConsoleTypeUnavailable(console_type="serial")

    def spice(self, instance_uuid: str) -> ConsoleAddress:
        self._host.definitions.get(instance_uuid)
        raise exceptions.ConsoleTypeUnavailable(console_type="spice-html5")

    def _query(self, instance_uuid: str, command: str, console_type: str) -> Any:
        guest = self._host.definitions.get(instance_uuid)
        if not self._host.is_on(guest):
            raise exceptions.ConsoleTypeUnavailable(console_type=console_type)
        with self._host.monitor(guest) as monitor:
            return monitor.execute(command)
