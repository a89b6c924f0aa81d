"""vCPUs and memory of running guests."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import libvirt

from nova_lite.base import exceptions
from nova_lite.virt import abilities
from nova_lite.virt.abilities import SpawnSpec
from nova_lite.virt.libvirt.connection import LibvirtFailure
from nova_lite.virt.libvirt.context import HostPart
from nova_lite.virt.libvirt.domain import hotplug_xml

POLL_SECONDS = 0.2

#: Interval between two requests to unplug vCPUs. libvirt may miss that a guest releases one during a further request.
_ASK_AGAIN = 30.0

#: Linux takes memory in parts of this size, so that the last part may be missing.
_PART_KB = 4096


@dataclasses.dataclass(eq=False)
class GuestHotplug(HostPart, abilities.Hotplug):
    _definitions: abilities.Definitions

    def resize(self, spec: SpawnSpec) -> None:
        """Change the definition first: the next start has the size that was requested last, whatever the guest does."""
        domain, _ = self._domains.get(spec.instance.uuid)
        if not self._connection.call(domain.isActive):
            self._definitions.renew(spec)
            return
        flavor = spec.instance.flavor
        base_kb = self._size(domain).base_kb
        self._domains.define(hotplug_xml.resized(self._domains.description(domain), flavor, base_kb))
        found = [
            self._set_memory(domain, flavor.memory_mb * 1024, spec.still_wanted),
            self._set_vcpus(domain, flavor.vcpus, spec.still_wanted),
        ]
        if refusals := [text for text in found if text]:
            raise exceptions.GuestSizeRefused(instance_uuid=spec.instance.uuid, reason="; ".join(refusals))

    def _set_memory(self, domain: Any, wanted_kb: int, check: Callable[[], None]) -> str:
        """Let the guest take or release memory. Return why it has not done so, empty if it has."""
        size = self._size(domain)
        requested = wanted_kb - size.base_kb
        if not size.base_kb <= wanted_kb <= size.most_kb:
            return f"it has started with {size.base_kb // 1024} MB of memory, and can have {size.most_kb // 1024}"
        if size.device and requested != size.requested_kb:
            xml = hotplug_xml.requesting(size.device, requested)
            self._connection.call(domain.updateDeviceFlags, xml, libvirt.VIR_DOMAIN_AFFECT_LIVE)
        has = self._wait(
            lambda: self._size(domain).current_kb, lambda current: abs(current - requested) < _PART_KB, check
        )
        return "" if has is None else f"it has {(size.base_kb + has) // 1024} of {wanted_kb // 1024} MB of memory"

    def _set_vcpus(self, domain: Any, wanted: int, check: Callable[[], None]) -> str:
        """Plug or unplug vCPUs. Return why that has failed, empty if it has not."""
        errors = [""]

        def request() -> None:
            try:
                self._connection.call_checked(
                    lambda: self._size(domain).vcpus == wanted,
                    domain.setVcpusFlags,
                    wanted,
                    libvirt.VIR_DOMAIN_AFFECT_LIVE,
                )
            except LibvirtFailure as error:  # such as a guest that still boots, and ignores the request
                errors[0] = f" ({error.kwargs['reason']})"

        has = self._wait(lambda: self._size(domain).vcpus, lambda vcpus: vcpus == wanted, check, request)
        return "" if has is None else f"it has {has} of {wanted} vCPUs{errors[0]}"

    def _wait(
        self,
        read: Callable[[], int],
        is_enough: Callable[[int], bool],
        check: Callable[[], None],
        request: Callable[[], None] = lambda: None,
    ) -> int | None:
        """Wait as long as the guest makes progress. Return its last number, None if that is enough.

        ``check`` raises to end that. ``request`` is called again and again.
        """
        timeout, ask_at = self._conf.libvirt.device_detach_timeout, 0.0
        has, changed = read(), time.monotonic()
        while not is_enough(has):
            check()
            now = time.monotonic()
            if now >= changed + timeout:
                return has
            if now >= ask_at:
                request()
                ask_at = now + _ASK_AGAIN
            time.sleep(POLL_SECONDS)
            before, has = has, read()
            if has != before:
                changed = time.monotonic()
        return None

    def _size(self, domain: Any) -> hotplug_xml.Size:
        return hotplug_xml.size(self._connection.call(domain.XMLDesc, 0))
