"""Live migration: libvirtd at the source moves a running guest to libvirtd at the destination.

The libvirtds do it peer to peer, so the migration continues if this daemon dies. The next run of the daemon ends it
(`LiveMigrator.settle`) and finds out where the guest is. libvirt removes the guest at the source only after it runs at
the destination.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import Any

import libvirt
from oslo_config import cfg

from nova_lite.base import concurrency, exceptions
from nova_lite.objects import LiveDestination, LiveSource, MigrationControl, MigrationProgress
from nova_lite.virt import images
from nova_lite.virt.libvirt.connection import Connection, LibvirtBusy, one_line
from nova_lite.virt.libvirt.disks import disks, transfer, volume_chains, volumes
from nova_lite.virt.libvirt.domain import consoles, guest_xml, numa_xml, pci_xml

LOG = logging.getLogger(__name__)

#: Files besides disks that a domain's XML names.
KERNEL, RAMDISK = "kernel", "ramdisk"

POLL_SECONDS = 0.25
#: Seconds between two progress reports to the watcher.
REPORT_SECONDS = 1.0
#: Seconds that an aborted migration may take to end.
END_SECONDS = 60.0

_FLAGS = (
    libvirt.VIR_MIGRATE_LIVE
    | libvirt.VIR_MIGRATE_PEER2PEER
    | libvirt.VIR_MIGRATE_PERSIST_DEST
    | libvirt.VIR_MIGRATE_UNDEFINE_SOURCE
    | libvirt.VIR_MIGRATE_ABORT_ON_ERROR
)
_GONE = (libvirt.VIR_ERR_NO_DOMAIN,)
#: No job exists, or libvirt does not know of it yet, or the guest is off.
_IDLE = (*_GONE, libvirt.VIR_ERR_OPERATION_INVALID)
_PAUSED_BY_MIGRATION = (
    libvirt.VIR_DOMAIN_PAUSED_MIGRATION,
    libvirt.VIR_DOMAIN_PAUSED_POSTCOPY,
    libvirt.VIR_DOMAIN_PAUSED_POSTCOPY_FAILED,
)


def describe_source(conf: cfg.ConfigOpts, xml: str, directory: str) -> LiveSource:
    """Return the disks and files of the guest with this XML. A migration does not copy read-only disks."""
    sizes: dict[str, int] = {}
    read_only = []
    for disk in ET.fromstring(xml).iterfind("devices/disk"):  # noqa: S314 libvirt's own
        if volumes.is_shared(disk):
            continue
        source = disk.find("source")
        path = "" if source is None else source.get("file", "")
        name = os.path.basename(path)
        if os.path.dirname(path) != directory or name not in transfer.TRAVELLING:
            raise exceptions.MigrationPreCheckError(reason=f"disk {path or '(no file)'} cannot be migrated")
        if disk.find("readonly") is not None:
            read_only.append(name)
        else:
            sizes[name] = os.path.getsize(path)
    files = transfer.offer(conf, directory, tuple(read_only)) if read_only else None
    return LiveSource(driver=transfer.DRIVER, disks=sizes, files=files)


def destination_xml(xml: str, destination: LiveDestination) -> str:
    """Return the domain's XML for the destination: host name, generation, CPUs, and paths of its files.

    Raises `MigrationPreCheckError` if a file is not ready there.
    """
    root = ET.fromstring(xml)  # noqa: S314 libvirt's own
    owner = root.find(f"metadata/{{{guest_xml.NAMESPACE}}}instance")
    if owner is None:
        raise exceptions.MigrationPreCheckError(reason="the domain has no metadata of ours")
    for child in owner:
        tag = child.tag.rpartition("}")[2]
        if tag in ("host", "generation"):
            child.text = destination.host if tag == "host" else str(destination.generation)
    numa_xml.place(root, destination.numa, destination.shared_cpus)
    pci_xml.replace(root, destination.pci)
    for disk in root.iterfind("devices/disk"):
        _set_files(disk, destination)
    for log in (*root.iterfind("devices/serial/log"), *root.iterfind("devices/console/log")):
        log.set("file", _path(destination, guest_xml.CONSOLE_LOG))
    consoles.set_destination(root, destination)
    for interface in root.iterfind("devices/interface/source"):
        for name in ("portid", "bridge"):
            if interface.get("network") is not None and name in interface.attrib:
                del interface.attrib[name]
    for tag, name in ((KERNEL, KERNEL), ("initrd", RAMDISK), ("nvram", disks.NVRAM)):
        element = root.find(f"os/{tag}")
        if element is not None:
            element.text = _path(destination, name)
    return ET.tostring(root, encoding="unicode")


def _set_files(disk: ET.Element, destination: LiveDestination) -> None:
    """Name the disk's file at the destination, and the files below it. Files of volumes are the same there."""
    source, driver = disk.find("source"), disk.find("driver")
    is_raw = driver is not None and driver.get("type") == "raw"
    below: list[volume_chains.File] | None = [] if is_raw else None
    if source is not None and not volumes.is_volume(disk):
        name = volumes.name_of(disk)
        source.set("name" if volumes.is_shared(disk) else "file", _path(destination, name))
        if name == disks.ROOT:
            below = [volume_chains.File(*file) for file in destination.below]
    elif not is_raw:
        return
    for store in disk.findall("backingStore"):
        disk.remove(store)
    if below is not None:
        guest_xml.add_backing(disk, below)


def check_encryption(conf: cfg.ConfigOpts, source: LiveSource, host: str) -> None:
    """Raise `MigrationPreCheckError` if the source would send plain text to this host, which encrypts."""
    if conf.libvirt.live_migration_tls and not source.encrypts:
        raise exceptions.MigrationPreCheckError(
            reason=f"[libvirt] live_migration_tls is true on host {host} and false on host {source.host}: "
            "set it on both"
        )


def _path(destination: LiveDestination, name: str) -> str:
    try:
        return destination.paths[name]
    except KeyError:
        raise exceptions.MigrationPreCheckError(reason=f"{destination.host} has no {name} ready") from None


def to_progress(stats: dict[str, Any]) -> MigrationProgress:
    return MigrationProgress(
        memory_total=stats.get("memory_total", 0),
        memory_processed=stats.get("memory_processed", 0),
        memory_remaining=stats.get("memory_remaining", 0),
        disk_total=stats.get("disk_total", 0),
        disk_processed=stats.get("disk_processed", 0),
        disk_remaining=stats.get("disk_remaining", 0),
    )


def has_arrived(call: Callable[..., Any], domain: Any) -> bool:
    """Check whether an incoming guest is complete: then libvirt makes it persistent.

    A guest that lost its source during post-copy never completes. libvirt removes any other incomplete guest itself.
    """
    if call(domain.isPersistent):
        return True
    _, reason = call(domain.state, 0)
    if reason == libvirt.VIR_DOMAIN_PAUSED_POSTCOPY_FAILED:
        return False
    raise exceptions.MigrationFailed(instance_uuid=domain.UUIDString(), reason="it is still incoming")


def run_briefly(connection: Connection, domain: Any) -> None:
    """Let a guest that arrived paused run for an instant.

    Until it runs, QEMU treats its disks as the source's. QEMU before 10 ends if such a guest is migrated again
    (assertion `BDRV_O_INACTIVE`).
    """
    state = connection.call(domain.state, 0)[0]
    if state == libvirt.VIR_DOMAIN_PAUSED:
        connection.call_checked(lambda: _runs(connection.call, domain), domain.resume)
    if state in (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_RUNNING):
        connection.call(domain.suspend)


def _runs(call: Callable[..., Any], domain: Any) -> bool:
    return bool(call(domain.state, 0)[0] == libvirt.VIR_DOMAIN_RUNNING)


def uri_of(conf: cfg.ConfigOpts, address: str) -> str:
    """Return the URI of the libvirtd at another host's ``address``."""
    options = conf.libvirt
    default = "qemu+tls://%s/system" if options.live_migration_tls else "qemu+ssh://root@%s/system"
    uri: str = options.live_migration_uri or default
    return uri % (_bracketed(address) if uri.startswith(("qemu+tls:", "qemu+tcp:", "qemu+ssh:")) else address)


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


class LiveMigrator:
    """Live migration of one guest away from this host."""

    def __init__(
        self, conf: cfg.ConfigOpts, connection: Connection, instance_uuid: str, destination: LiveDestination
    ) -> None:
        self._conf = conf.libvirt
        self._connection = connection
        self._uuid = instance_uuid
        self._destination = destination
        self._uri = uri_of(conf, destination.address)
        self._aborted = ""
        self._forced = False

    # --- migrate

    def run(self, domain: Any, watch: Callable[[MigrationProgress], MigrationControl]) -> None:
        """Migrate the guest. On return it is at the destination.

        Raises `MigrationFailed` or `MigrationAborted` if it is still here.
        """
        failures: list[exceptions.VirtDriverError] = []
        if not self._conf.live_migration_tls:
            LOG.warning(
                "Live migration of %s to %s sends the guest's memory in plain text "
                "([libvirt] live_migration_tls is off)",
                self._uuid,
                self._destination.host,
            )
        paused = self._connection.call(domain.state, 0)[0] == libvirt.VIR_DOMAIN_PAUSED
        arguments = self._arguments(domain)

        def migrate() -> None:
            try:
                self._connection.call_checked(lambda: self._has_ended(domain), domain.migrateToURI3, *arguments)
            except exceptions.VirtDriverError as error:
                failures.append(error)

        thread = threading.Thread(target=migrate, name=f"migration-{self._uuid}", daemon=True)
        started = time.monotonic()
        thread.start()
        self._watch(domain, thread, watch, started)
        if not failures:
            return
        LOG.warning("Live migration of %s to %s: %s", self._uuid, self._destination.host, failures[0].message)
        if self.settle(resume=not paused):
            return
        if self._aborted:
            raise exceptions.MigrationAborted(instance_uuid=self._uuid, reason=self._aborted)
        raise exceptions.MigrationFailed(instance_uuid=self._uuid, reason=failures[0].kwargs["reason"])

    def _has_ended(self, domain: Any) -> bool:
        """Wait for the end of a migration whose caller's connection broke, and check whether the guest has moved.

        The libvirtds continue it without the caller. Raises `MigrationAborted` if it was aborted meanwhile.
        """
        while self._is_migrating(domain):
            time.sleep(POLL_SECONDS)
        if self._aborted:
            raise exceptions.MigrationAborted(instance_uuid=self._uuid, reason=self._aborted)
        return self._connection.call_unless(_GONE, self._connection.get().lookupByUUIDString, self._uuid) is None

    def _is_migrating(self, domain: Any) -> bool:
        try:
            stats = self._connection.call_unless(_IDLE, domain.jobStats)
        except LibvirtBusy:
            return True
        if not stats or stats.get("operation") not in (libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_OUT, None):
            return False
        return stats.get("type") not in (None, libvirt.VIR_DOMAIN_JOB_NONE)

    def _arguments(self, domain: Any) -> tuple[str, dict[str, Any], int]:
        xml = self._connection.call(domain.XMLDesc, libvirt.VIR_DOMAIN_XML_MIGRATABLE | libvirt.VIR_DOMAIN_XML_SECURE)
        there = destination_xml(xml, self._destination)
        address = self._destination.address
        parameters: dict[str, Any] = {
            libvirt.VIR_MIGRATE_PARAM_DEST_XML: there,
            libvirt.VIR_MIGRATE_PARAM_PERSIST_XML: there,
            libvirt.VIR_MIGRATE_PARAM_URI: f"tcp://{_bracketed(address)}",
            libvirt.VIR_MIGRATE_PARAM_LISTEN_ADDRESS: address,
        }
        if self._conf.live_migration_bandwidth:
            parameters[libvirt.VIR_MIGRATE_PARAM_BANDWIDTH] = self._conf.live_migration_bandwidth
        flags = _FLAGS
        if self._conf.live_migration_tls:
            flags |= libvirt.VIR_MIGRATE_TLS
            parameters[libvirt.VIR_MIGRATE_PARAM_TLS_DESTINATION] = address
        local, has_volumes = volumes.local_targets(xml)
        if has_volumes:
            parameters[libvirt.VIR_MIGRATE_PARAM_MIGRATE_DISKS] = local
            if volumes.all_direct(
                xml
            ):  # The destination has checked the files. libvirt knows only some shared file systems.
                flags |= libvirt.VIR_MIGRATE_UNSAFE
        if local or not has_volumes:
            whole = self._destination.whole
            flags |= libvirt.VIR_MIGRATE_NON_SHARED_DISK if whole else libvirt.VIR_MIGRATE_NON_SHARED_INC
        if self._conf.live_migration_permit_auto_converge:
            flags |= libvirt.VIR_MIGRATE_AUTO_CONVERGE
        if self._conf.live_migration_permit_post_copy:
            flags |= libvirt.VIR_MIGRATE_POSTCOPY
        return self._uri, parameters, flags

    def _watch(
        self,
        domain: Any,
        thread: threading.Thread,
        watch: Callable[[MigrationProgress], MigrationControl],
        started: float,
    ) -> None:
        """Report the migration's progress, and execute requests, until it ends.

        A poll or a request that libvirtd does not answer is repeated: the migration continues without it.
        """
        reported_at = 0.0
        prepared = False
        stats: dict[str, Any] = {}
        while thread.is_alive():
            thread.join(POLL_SECONDS)
            if not thread.is_alive() or time.monotonic() - reported_at < REPORT_SECONDS:
                continue
            reported_at = time.monotonic()
            stats = self._try(domain.jobStats) or stats
            if stats and not prepared:
                prepared = self._try(domain.migrateSetMaxDowntime, self._conf.live_migration_downtime) is not None
            progress = to_progress(stats)
            self._execute(domain, watch(progress), "as requested")
            if self._is_late(progress, started):
                action = self._conf.live_migration_timeout_action
                self._execute(domain, MigrationControl(action), "it has taken too long")

    def _try(self, method: Callable[..., Any], *args: Any) -> Any:
        """Call a method of the domain. Return None if there is no migration, or libvirtd does not answer this time."""
        try:
            return self._connection.call_unless(_IDLE, method, *args)
        except (LibvirtBusy, exceptions.HypervisorUnavailable) as error:
            LOG.info(
                "Live migration of %s: libvirtd did not answer, and is called again: %s", self._uuid, error.message
            )
            return None

    def _is_late(self, progress: MigrationProgress, started: float) -> bool:
        size = max(2, (progress.memory_total + progress.disk_total) // images.GIB)
        allowed = self._conf.live_migration_completion_timeout * size
        return bool(allowed) and time.monotonic() - started > allowed

    def _execute(self, domain: Any, wish: MigrationControl, why: str) -> None:
        """Execute a request. It is repeated each time, because libvirt ignores a request that comes too early."""
        if wish is MigrationControl.ABORT:
            self._aborted = why
            self._try(domain.abortJob)
        elif wish is MigrationControl.FORCE_COMPLETE and not self._forced:
            self._forced = True
            if self._conf.live_migration_permit_post_copy:
                self._connection.call_unless(_IDLE, domain.migrateStartPostCopy, 0)
            else:
                self._connection.call_unless(_IDLE, domain.suspend)

    # --- find the guest

    def settle(self, resume: bool = True) -> bool:
        """End a migration that still runs. Return whether the guest has moved.

        A guest that is here, and that the migration has left paused, is resumed.
        """
        domain = self._connection.call_unless(_GONE, self._connection.get().lookupByUUIDString, self._uuid)
        if domain is None:
            return True
        self._end(domain)
        state = self._connection.call_unless(_GONE, domain.state, 0)
        if state is None:
            return True
        number, reason = state
        doubtful = number == libvirt.VIR_DOMAIN_PAUSED and reason in _PAUSED_BY_MIGRATION
        if (number == libvirt.VIR_DOMAIN_SHUTOFF or doubtful) and self._has_arrived_there():
            return True
        if resume and (doubtful or (self._forced and number == libvirt.VIR_DOMAIN_PAUSED)):
            self._connection.call_checked(lambda: _runs(self._connection.call, domain), domain.resume)
        return False

    def _end(self, domain: Any) -> None:
        deadline = time.monotonic() + END_SECONDS
        while self._is_migrating(domain):
            self._try(domain.abortJob)
            if time.monotonic() > deadline:
                raise exceptions.MigrationFailed(instance_uuid=self._uuid, reason="its job does not end")
            time.sleep(POLL_SECONDS)

    def _has_arrived_there(self) -> bool:
        """Query the destination's libvirtd whether the guest has arrived. It may be off by now, but it ran there.

        Raises `HypervisorUnavailable`, or `MigrationFailed` while it is still incoming.
        """
        try:
            connection = concurrency.call_blocking(libvirt.open, self._uri)
        except libvirt.libvirtError as error:
            raise exceptions.HypervisorUnavailable(host=self._destination.host, reason=one_line(error)) from error
        try:
            domain = concurrency.call_blocking(connection.lookupByUUIDString, self._uuid)
            return has_arrived(concurrency.call_blocking, domain)
        except libvirt.libvirtError as error:
            if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:
                raise exceptions.HypervisorUnavailable(host=self._destination.host, reason=one_line(error)) from error
            return False
        finally:
            connection.close()
