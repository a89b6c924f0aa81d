"""The domains of this host in libvirt: finding them, reading their state, turning them on and off.

Our domains are those whose metadata names this host. All others, of other tools or of other compute daemons with the
same libvirtd, are never touched.
"""

from __future__ import annotations

import logging
import threading
import time
import xml.etree.ElementTree as ET
from typing import Any

import libvirt

from nova_lite.base import exceptions
from nova_lite.base.timing import TIMING, LibvirtTiming
from nova_lite.operations.states import PowerState
from nova_lite.virt.abilities import DomainInfo
from nova_lite.virt.libvirt.connection import BUSY, Connection, LibvirtBusy, LibvirtFailure
from nova_lite.virt.libvirt.domain import guest_xml

LOG = logging.getLogger(__name__)

POLL_SECONDS = 0.5
#: Seconds between two shutdown requests, as in Nova. A guest ignores requests early in its boot.
SHUTDOWN_RETRY_INTERVAL = 10

_POWER_STATES = {
    libvirt.VIR_DOMAIN_NOSTATE: PowerState.NOSTATE,
    libvirt.VIR_DOMAIN_RUNNING: PowerState.RUNNING,
    libvirt.VIR_DOMAIN_BLOCKED: PowerState.RUNNING,
    libvirt.VIR_DOMAIN_PAUSED: PowerState.PAUSED,
    libvirt.VIR_DOMAIN_SHUTDOWN: PowerState.RUNNING,
    libvirt.VIR_DOMAIN_SHUTOFF: PowerState.SHUTDOWN,
    libvirt.VIR_DOMAIN_CRASHED: PowerState.CRASHED,
    libvirt.VIR_DOMAIN_PMSUSPENDED: PowerState.SUSPENDED,
}

_OFF = (PowerState.SHUTDOWN, PowerState.CRASHED)

_UNDEFINE_FLAGS = (
    libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
    | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
    | libvirt.VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA
    # Firmware variables are in the instance's directory, and are kept or removed with it.
    | libvirt.VIR_DOMAIN_UNDEFINE_KEEP_NVRAM
)

_GONE = (libvirt.VIR_ERR_NO_DOMAIN,)
#: libvirt's code for "it is not running" and "it is already running".
_ALREADY = (libvirt.VIR_ERR_OPERATION_INVALID,)
#: No job exists, or the guest is off.
_IDLE = (*_GONE, *_ALREADY)


class Domains:
    def __init__(self, connection: Connection, host: str, timing: LibvirtTiming = TIMING.libvirt) -> None:
        self._connection = connection
        self._host = host
        self._shutdown_poll = timing.shutdown_poll

    # --- find

    def all(self) -> list[DomainInfo]:
        domains = self._connection.connect_call("listAllDomains", 0)
        return [info for info in (self._info(domain) for domain in domains) if info is not None]

    def get(self, instance_uuid: str) -> tuple[Any, DomainInfo]:
        """Return libvirt's object and our description. Raises `DomainNotFound` also for a domain that is not ours."""
        domain = self._lookup(instance_uuid)
        info = None if domain is None else self._info(domain)
        if info is None:
            raise exceptions.DomainNotFound(instance_uuid=instance_uuid)
        return domain, info

    def is_foreign(self, instance_uuid: str) -> bool:
        """Check whether a domain that is not ours has this uuid."""
        domain = self._lookup(instance_uuid)
        return domain is not None and self._info(domain) is None

    def has(self, instance_uuid: str) -> bool:
        """Check whether any domain has this uuid, ours or not."""
        return self._lookup(instance_uuid) is not None

    def _lookup(self, instance_uuid: str) -> Any:
        return self._connection.call_unless(_GONE, self._connection.get().lookupByUUIDString, instance_uuid)

    def owner(self, domain: Any) -> guest_xml.Owner | None:
        """Return to whom a domain belongs. None if it is not ours, or has vanished meanwhile."""
        metadata = self._connection.call_unless(
            (*_GONE, libvirt.VIR_ERR_NO_DOMAIN_METADATA),
            domain.metadata,
            libvirt.VIR_DOMAIN_METADATA_ELEMENT,
            guest_xml.NAMESPACE,
            0,
        )
        owner = guest_xml.parse_owner(metadata) if metadata else None
        return owner if owner is not None and owner.host == self._host else None

    def _info(self, domain: Any) -> DomainInfo | None:
        """Describe a domain. Return None if it is not ours, or has vanished meanwhile."""
        owner = self.owner(domain)
        if owner is None:
            return None
        state = self._connection.call_unless(_GONE, domain.state, 0)
        if state is None:
            return None
        return DomainInfo(
            uuid=domain.UUIDString(),
            generation=owner.generation,
            power_state=_POWER_STATES.get(state[0], PowerState.NOSTATE),
            crashed=tuple(state) == (libvirt.VIR_DOMAIN_SHUTOFF, libvirt.VIR_DOMAIN_SHUTOFF_CRASHED),
            halted=tuple(state) == (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_WATCHDOG),
        )

    def taps(self, instance_uuid: str) -> list[str]:
        """Return the names of a domain's tap devices, running or not. Empty if the domain is missing or not ours."""
        try:
            domain, _ = self.get(instance_uuid)
        except exceptions.DomainNotFound:
            return []
        targets = ET.fromstring(self._connection.call(domain.XMLDesc, 0)).iterfind(  # noqa: S314 libvirt's own
            "devices/interface/target"
        )
        return [name for target in targets if (name := target.get("dev"))]

    def disk_files(self) -> dict[str, list[str]]:
        """Return the paths of files that our domains have as disks, with those below them as far as libvirt knows."""
        found = {}
        for domain in self._connection.connect_call("listAllDomains", 0):
            if self.owner(domain) is not None and (xml := self._connection.call_unless(_GONE, domain.XMLDesc, 0)):
                sources = ET.fromstring(xml).iterfind("devices/disk//source[@file]")  # noqa: S314 libvirt's own
                found[domain.UUIDString()] = [source.get("file", "") for source in sources]
        return found

    # --- create and remove

    def define(self, xml: str) -> Any:
        return self._connection.connect_call("defineXMLFlags", xml, libvirt.VIR_DOMAIN_DEFINE_VALIDATE)

    def remove(self, instance_uuid: str) -> str:
        """Cut the domain's power, undefine it, and return its XML. Return nothing if it is missing or not ours."""
        domain = self._lookup(instance_uuid)
        if domain is None or self.owner(domain) is None:
            return ""
        xml = self._connection.call_unless(_GONE, domain.XMLDesc, libvirt.VIR_DOMAIN_XML_INACTIVE)
        self.cut_power(domain)
        self._connection.call_unless(_GONE, domain.undefineFlags, _UNDEFINE_FLAGS)
        return str(xml or "")

    # --- power

    def description(self, domain: Any) -> str:
        """Return the XML of a domain's next start, with secrets."""
        flags = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE
        return str(self._connection.call(domain.XMLDesc, flags))

    def start(
        self,
        domain: Any,
        instance_uuid: str,
        timeout: float,
        paused: bool = False,
        memory: tuple[str, str] | None = None,
    ) -> None:
        """Start the domain, or let it continue, and wait until it runs, or is paused. ``memory``: file and definition.

        Raises `InstancePowerOnFailure`.

        A start whose connection broke may still continue in libvirtd, which then refuses another one.
        """
        target = PowerState.PAUSED if paused else PowerState.RUNNING
        method, arguments = domain.createWithFlags, [libvirt.VIR_DOMAIN_START_PAUSED if paused else 0]
        if memory is not None:
            method, arguments = self._connection.get().restoreFlags, [*memory, libvirt.VIR_DOMAIN_SAVE_RUNNING]
        try:
            self._connection.call_filtering(method, *arguments, done=lambda: self.state(instance_uuid) not in _OFF)
        except LibvirtFailure as error:
            if error.error_code not in (*_ALREADY, *BUSY) or self.state(instance_uuid) in _OFF:
                raise exceptions.InstancePowerOnFailure(
                    instance_uuid=instance_uuid, reason=error.kwargs["reason"]
                ) from error
        deadline = time.monotonic() + timeout
        while (state := self.state(instance_uuid)) != target:
            if state in _OFF:
                raise exceptions.InstancePowerOnFailure(
                    instance_uuid=instance_uuid, reason="it stopped as soon as it was started"
                )
            if time.monotonic() >= deadline:
                raise exceptions.InstancePowerOnFailure(
                    instance_uuid=instance_uuid, reason=f"it did not run within {timeout:g} s"
                )
            time.sleep(POLL_SECONDS)

    def state(self, instance_uuid: str) -> PowerState:
        return self.get(instance_uuid)[1].power_state

    def shut_down(self, domain: Any, instance_uuid: str, timeout: float, changed: threading.Event) -> bool:
        """Press the guest's power button repeatedly for up to ``timeout`` seconds. Return whether it is off.

        ``changed`` wakes the wait as soon as the power state changes.
        """
        deadline = time.monotonic() + timeout
        ask_at = time.monotonic()
        while self.state(instance_uuid) not in _OFF:
            now = time.monotonic()
            if now >= deadline:
                return False
            if now >= ask_at:
                self._press_power_button(domain)
                ask_at = now + SHUTDOWN_RETRY_INTERVAL
            changed.wait(min(self._shutdown_poll, deadline - now))
            changed.clear()
        return True

    def _press_power_button(self, domain: Any) -> None:
        """Press the power button. Errors are ignored: the caller checks the state of the guest."""
        try:
            self._connection.call(domain.shutdownFlags, libvirt.VIR_DOMAIN_SHUTDOWN_ACPI_POWER_BTN)
        except LibvirtFailure as error:
            LOG.info("Domain %s did not receive a shutdown request: %s", domain.UUIDString(), error.message)

    def resume(self, domain: Any) -> None:
        """Let a paused guest run."""
        uuid = domain.UUIDString()
        self._connection.call_checked(lambda: self.state(uuid) == PowerState.RUNNING, domain.resume)

    def save_memory(self, domain: Any) -> None:
        """Turn a guest off and save its memory to libvirt's own file. If the connection breaks, libvirtd continues."""
        self._connection.call_checked(lambda: self._is_saved(domain), domain.managedSave, 0)

    def _is_saved(self, domain: Any) -> bool:
        self.wait_for_job(domain)
        return bool(self._connection.call(domain.hasManagedSaveImage, 0))

    def wait_for_job(self, domain: Any) -> None:
        """Wait until the domain has no job that libvirtd continues after its caller's connection broke."""
        while self._has_job(domain):
            time.sleep(POLL_SECONDS)

    def _has_job(self, domain: Any) -> bool:
        try:
            stats = self._connection.call_unless(_IDLE, domain.jobStats) or {}
        except LibvirtBusy:
            return True
        return bool(stats.get("type", libvirt.VIR_DOMAIN_JOB_NONE) != libvirt.VIR_DOMAIN_JOB_NONE)

    def cut_power(self, domain: Any) -> None:
        self._connection.call_unless((*_GONE, *_ALREADY), domain.destroyFlags, 0)
