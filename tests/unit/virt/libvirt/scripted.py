"""A libvirtd in memory, whose connections break in the middle of calls as a test requests."""

from __future__ import annotations

import threading
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable
from typing import Any

import libvirt

from nova_lite.virt.libvirt.domain import guest_xml

URI = "qemu:///scripted"
HOST = "one"
BEFORE, AFTER = "before", "after"

_XML = """
<domain><name>instance</name><metadata><n:instance xmlns:n="{namespace}"><n:host>{host}</n:host>
<n:generation>1</n:generation></n:instance></metadata><devices/></domain>
"""
CONFIG_XML = libvirt.VIR_DOMAIN_XML_INACTIVE
_OFF = (libvirt.VIR_DOMAIN_SHUTOFF, libvirt.VIR_DOMAIN_SHUTOFF_DESTROYED)
_RUNNING = (libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_RUNNING_BOOTED)
_PAUSED = (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_USER)


def failure(code: int, origin: int = libvirt.VIR_FROM_QEMU, message: str = "it is so") -> libvirt.libvirtError:
    error = libvirt.libvirtError("x")
    error.err = (code, origin, message, 2, "", "", "", 0, 0)
    return error


def broken_pipe() -> libvirt.libvirtError:
    return failure(libvirt.VIR_ERR_SYSTEM_ERROR, libvirt.VIR_FROM_RPC, "Cannot recv data: Connection reset by peer")


class Calls:
    """The calls of a connection to libvirt that never breaks."""

    def call(self, method: Any, *arguments: Any) -> Any:
        return method(*arguments)

    def call_checked(self, done: Callable[[], bool], method: Any, *arguments: Any) -> Any:
        return method(*arguments)


class Guest:
    """State of one domain. ``effects``: calls that changed it, in order."""

    def __init__(self, uuid: str) -> None:
        self.uuid = uuid
        self.state = _OFF
        self.exists = True
        self.saved = False
        self.frozen = False
        self.migrating = 0
        self.block_size = 1024
        self.effects: list[str] = []
        text = _XML.format(namespace=guest_xml.NAMESPACE, host=HOST)
        self.trees = {where: ET.fromstring(text) for where in (0, CONFIG_XML)}

    def devices(self, where: int) -> ET.Element:
        found = self.trees[where].find("devices")
        assert found is not None
        return found

    def disk(self, device: str) -> ET.Element:
        return next(
            disk for disk in self.devices(0).findall("disk") if disk.find(f"target[@dev='{device}']") is not None
        )

    def require_on(self) -> None:
        if self.state == _OFF:
            raise failure(libvirt.VIR_ERR_OPERATION_INVALID, message="domain is not running")

    # --- what the calls do

    def createWithFlags(self, flags: int) -> None:
        if self.state != _OFF:
            raise failure(libvirt.VIR_ERR_OPERATION_INVALID, message="domain is already running")
        self.state = _PAUSED if flags else _RUNNING

    def destroyFlags(self, flags: int) -> None:
        self.require_on()
        self.state = _OFF

    def undefineFlags(self, flags: int) -> None:
        self.exists = False

    def suspend(self) -> None:
        self.require_on()
        self.state = _PAUSED

    def resume(self) -> None:
        if self.state == _RUNNING:
            raise failure(libvirt.VIR_ERR_OPERATION_INVALID, message="domain is already running")
        self.state = _RUNNING

    def managedSave(self, flags: int) -> None:
        self.require_on()
        self.state, self.saved = _OFF, True

    def managedSaveRemove(self, flags: int) -> None:
        if not self.saved:
            raise failure(libvirt.VIR_ERR_OPERATION_INVALID, message="no managed save image")
        self.saved = False

    def attachDeviceFlags(self, xml: str, where: int) -> None:
        self.devices(CONFIG_XML if where == libvirt.VIR_DOMAIN_AFFECT_CONFIG else 0).append(ET.fromstring(xml))

    def detachDeviceFlags(self, xml: str, where: int) -> None:
        devices = self.devices(CONFIG_XML if where == libvirt.VIR_DOMAIN_AFFECT_CONFIG else 0)
        if not len(devices):
            raise failure(libvirt.VIR_ERR_DEVICE_MISSING, message="no such device")
        devices.remove(devices[0])

    def blockCopy(self, device: str, xml: str, parameters: dict[str, Any], flags: int) -> None:
        if self.disk(device).find("mirror") is not None:
            raise failure(libvirt.VIR_ERR_BLOCK_COPY_ACTIVE, message="a copy is active")
        mirror = ET.SubElement(self.disk(device), "mirror", ready="yes")
        source = ET.fromstring(xml).find("source")
        assert source is not None
        mirror.append(source)

    def blockJobAbort(self, device: str, flags: int) -> None:
        mirror = self.disk(device).find("mirror")
        if mirror is None:
            raise failure(libvirt.VIR_ERR_OPERATION_INVALID, message="no copy is active")
        self.disk(device).remove(mirror)
        if flags:
            for where in (0, CONFIG_XML):
                for disk in self.devices(where).findall("disk"):
                    old, new = disk.find("source"), mirror.find("source")
                    assert old is not None and new is not None
                    old.attrib.update(new.attrib)

    def fsFreeze(self, mounts: None, flags: int) -> None:
        if self.frozen:
            raise failure(libvirt.VIR_ERR_AGENT_UNRESPONSIVE, message="it is frozen already")
        self.frozen = True

    def fsThaw(self, mounts: None, flags: int) -> None:
        self.frozen = False

    def migrateToURI3(self, uri: str, parameters: dict[str, Any], flags: int) -> None:
        self.exists = False

    def shutdownFlags(self, flags: int) -> None:
        self.require_on()
        self.state = _OFF


class Hypervisor:
    """The libvirtd.

    ``breaks``: by the name of a call, when its first execution breaks all connections (`BEFORE` or `AFTER` its effect).
    ``away``: number of connections that fail until libvirtd is back. ``calls``: names of all calls. ``most``: maximum
    number of calls in progress of each connection.
    """

    def __init__(self) -> None:
        self.guests: dict[str, Guest] = {}
        self.breaks: dict[str, str] = {}
        self.away = 0
        self.calls: Counter[str] = Counter()
        self.connects: list[Connect] = []
        self.networks: dict[str, bool] = {}
        self.hooks: dict[str, Callable[[], None]] = {}
        self.most = 0
        self.lock = threading.Lock()

    def open(self, uri: str) -> Connect:
        if self.away:
            self.away -= 1
            raise failure(libvirt.VIR_ERR_SYSTEM_ERROR, libvirt.VIR_FROM_RPC, "Failed to connect socket")
        made = Connect(self)
        self.connects.append(made)
        return made

    def guest(self, uuid: str) -> Guest:
        made = self.guests[uuid] = Guest(uuid)
        return made

    def execute(self, connect: Connect, name: str, effect: Callable[[], Any]) -> Any:
        """Execute one call. It fails on a broken connection."""
        if not connect.alive:
            raise broken_pipe()
        with self.lock:
            self.calls[name] += 1
            connect.calls += 1
            self.most = max(self.most, connect.calls)
        try:
            if name in self.hooks:
                self.hooks[name]()
            when = self.breaks.pop(name, None)
            result = None if when == BEFORE else effect()
            if when is not None:
                for other in self.connects:
                    other.alive = False
                raise broken_pipe()
            return result
        finally:
            with self.lock:
                connect.calls -= 1


class Connect(libvirt.virConnect):  # type: ignore[misc]
    def __init__(self, hypervisor: Hypervisor) -> None:
        self._o = None  # libvirt's own constructor requires an object of its library.
        self.hypervisor = hypervisor
        self.alive = True
        self.calls = 0
        self.callbacks = 0

    def isAlive(self) -> int:
        return int(self.alive)

    def setKeepAlive(self, interval: int, count: int) -> None:
        pass

    def domainEventRegisterAny(self, *_: Any) -> None:
        self.callbacks += 1

    def _execute(self, name: str, effect: Callable[[], Any]) -> Any:
        return self.hypervisor.execute(self, name, effect)

    def getVersion(self) -> int:
        return int(self._execute("getVersion", lambda: 7002000))

    def lookupByUUIDString(self, uuid: str) -> Domain:
        def find() -> Domain:
            if uuid not in self.hypervisor.guests or not self.hypervisor.guests[uuid].exists:
                raise failure(libvirt.VIR_ERR_NO_DOMAIN)
            return Domain(self, uuid)

        found: Domain = self._execute("lookupByUUIDString", find)
        return found

    def listAllDomains(self, flags: int = 0) -> list[Domain]:
        found: list[Domain] = self._execute(
            "listAllDomains",
            lambda: [Domain(self, guest.uuid) for guest in self.hypervisor.guests.values() if guest.exists],
        )
        return found

    def defineXMLFlags(self, xml: str, flags: int) -> Domain:
        def define() -> Domain:
            (uuid,) = self.hypervisor.guests
            self.hypervisor.guests[uuid].effects.append("defineXMLFlags")
            return Domain(self, uuid)

        found: Domain = self._execute("defineXMLFlags", define)
        return found

    def domainListGetStats(self, domains: list[Domain], statistics: int, flags: int) -> list[tuple[Domain, Any]]:
        # libvirt's binding uses the connection of the first domain.
        (domain,) = domains
        found: list[tuple[Domain, Any]] = domain.connect()._execute(
            "domainListGetStats", lambda: [(domain, {"state.state": 1})]
        )
        return found


class Domain(libvirt.virDomain):  # type: ignore[misc]
    def __init__(self, connect: Connect, uuid: str) -> None:
        self._o, self._conn = None, connect
        self.uuid = uuid

    def UUIDString(self) -> str:
        return self.uuid

    @property
    def _guest(self) -> Guest:
        return self.connect().hypervisor.guests[self.uuid]  # type: ignore[no-any-return]

    def _read(self, name: str, read: Callable[[Guest], Any]) -> Any:
        return self.connect()._execute(name, lambda: read(self._guest))

    def XMLDesc(self, flags: int) -> str:
        where = CONFIG_XML if flags & CONFIG_XML else 0
        return str(self._read("XMLDesc", lambda guest: ET.tostring(guest.trees[where], encoding="unicode")))

    def state(self, flags: int) -> Any:
        return self._read("state", lambda guest: guest.state)

    def isActive(self) -> int:
        return int(self._read("isActive", lambda guest: guest.state != _OFF))

    def metadata(self, kind: int, uri: str, flags: int) -> str:
        def read(guest: Guest) -> str:
            element = guest.trees[0].find("metadata")
            assert element is not None
            return ET.tostring(element[0], encoding="unicode")

        return str(self._read("metadata", read))

    def hasManagedSaveImage(self, flags: int) -> int:
        return int(self._read("hasManagedSaveImage", lambda guest: guest.saved))

    def jobStats(self) -> dict[str, Any]:
        def read(guest: Guest) -> dict[str, Any]:
            guest.require_on()
            guest.migrating -= guest.migrating > 0
            kind = libvirt.VIR_DOMAIN_JOB_UNBOUNDED if guest.migrating else libvirt.VIR_DOMAIN_JOB_NONE
            return {"type": kind, "operation": libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_OUT}

        found: dict[str, Any] = self._read("jobStats", read)
        return found

    def blockJobInfo(self, device: str, flags: int) -> dict[str, int]:
        found: dict[str, int] = self._read("blockJobInfo", lambda guest: {"cur": 1, "end": 1})
        return found

    def blockInfo(self, device: str, flags: int) -> list[int]:
        found: list[int] = self._read("blockInfo", lambda guest: [guest.block_size] * 3)
        return found


def _method(name: str) -> Callable[..., Any]:
    def call(self: Domain, *args: Any) -> Any:
        def effect() -> Any:
            result = getattr(self._guest, name)(*args)
            self._guest.effects.append(name)
            return result

        return self.connect()._execute(name, effect)

    call.__name__ = name
    return call


for _name in (
    "createWithFlags",
    "destroyFlags",
    "undefineFlags",
    "suspend",
    "resume",
    "managedSave",
    "managedSaveRemove",
    "attachDeviceFlags",
    "detachDeviceFlags",
    "blockCopy",
    "blockJobAbort",
    "fsFreeze",
    "fsThaw",
    "migrateToURI3",
    "shutdownFlags",
):
    setattr(Domain, _name, _method(_name))
for _name in ("blockResize", "setUserPassword", "injectNMI", "updateDeviceFlags", "abortJob", "migrateSetMaxDowntime"):
    setattr(Guest, _name, lambda self, *args: None)
    setattr(Domain, _name, _method(_name))
