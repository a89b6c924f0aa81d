"""Freezes of guests' file systems, and pauses of guests, which end although the daemon is killed.

::

    <instances_path>/_frozen/<host>/<uuid>           an empty file: the guest may be frozen
    <instances_path>/_frozen/<host>/<uuid>.paused    an empty file: the guest may be paused

The file is made before the freeze and removed after the thaw. So a daemon that starts knows which guests to thaw,
without a call to the agent of each guest. A frozen agent refuses a further freeze, so a failed freeze is followed by a
thaw, too.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Iterator
from typing import Any

import libvirt

from nova_lite.base import exceptions, files
from nova_lite.operations.states import PowerState
from nova_lite.virt.libvirt import records
from nova_lite.virt.libvirt.connection import Connection, LibvirtFailure
from nova_lite.virt.libvirt.domain import guest_xml
from nova_lite.virt.libvirt.domain.domains import Domains

LOG = logging.getLogger(__name__)

FROZEN = "_frozen"
#: Ending of the marks of paused guests.
PAUSED = ".paused"
#: libvirt's code for a guest that has no agent by its definition.
_NO_AGENT = libvirt.VIR_ERR_ARGUMENT_UNSUPPORTED


class Freezer:
    def __init__(self, connection: Connection, domains: Domains, instances_path: str, host: str) -> None:
        self._connection = connection
        self._domains = domains
        self._directory = os.path.join(instances_path, FROZEN, os.path.basename(host))
        #: Thaws since the start, by instance.
        self._thaws: dict[str, threading.Event] = {}

    def thaw_left(self) -> None:
        """Begin to resume and thaw the guests that a killed daemon may have left paused or frozen.

        Each has a thread, because an agent may never answer. Further freezes of the guest wait for it.
        """
        for instance_uuid in self._marked():
            done = self._thaws[instance_uuid] = threading.Event()
            arguments = (instance_uuid, done)
            threading.Thread(target=self._thaw_left, args=arguments, name=f"thaw-{instance_uuid}", daemon=True).start()

    @contextlib.contextmanager
    def frozen(self, domain: Any) -> Iterator[None]:
        """Freeze the guest's file systems inside the context, if its agent supports it."""
        instance_uuid = domain.UUIDString()
        if (thaw := self._thaws.get(instance_uuid)) is not None:
            thaw.wait()
        was_marked = os.path.exists(self._mark(instance_uuid))
        self._set_mark(self._mark(instance_uuid))
        try:
            self._freeze(domain)
        except LibvirtFailure as error:
            if not was_marked:
                files.remove(self._mark(instance_uuid))
            if self._requires_quiesce(domain):
                raise exceptions.VirtDriverError(
                    reason="its image has os_require_quiesce, and its guest agent does not freeze its file systems: "
                    f"{error.kwargs['reason']}"
                ) from error
            LOG.info("Domain %s cannot be quiesced: %s", instance_uuid, error.kwargs["reason"])
            yield
            return
        try:
            yield
        finally:
            self._connection.call(domain.fsThaw, None, 0)
            files.remove(self._mark(instance_uuid))

    @contextlib.contextmanager
    def suspended(self, domain: Any) -> Iterator[None]:
        """Pause the guest inside the context, if it runs."""
        instance_uuid = domain.UUIDString()
        if self._domains.get(instance_uuid)[1].power_state != PowerState.RUNNING:
            yield
            return
        mark = self._mark(instance_uuid) + PAUSED
        self._set_mark(mark)
        try:
            self._connection.call(domain.suspend)
            yield
        finally:
            self._domains.resume(domain)
            files.remove(mark)

    def _freeze(self, domain: Any) -> None:
        """Freeze, once more after a thaw if that fails: an earlier freeze may have been left. A failure leaves none."""
        try:
            self._try_to_freeze(domain)
        except LibvirtFailure as error:
            if error.error_code == _NO_AGENT:
                raise
            LOG.info("Domain %s is thawed, because a freeze has failed: %s", domain.UUIDString(), error.message)
            self._thaw(domain)
            try:
                self._try_to_freeze(domain)
            except LibvirtFailure:
                self._thaw(domain)
                raise

    def _try_to_freeze(self, domain: Any) -> None:
        self._connection.call_checked(lambda: self._thaw(domain), domain.fsFreeze, None, 0)

    def _thaw(self, domain: Any) -> bool:
        """End a freeze of file systems. Return False, so that an interrupted freeze is repeated."""
        self._connection.call(domain.fsThaw, None, 0)
        return False

    def _requires_quiesce(self, domain: Any) -> bool:
        metadata = self._connection.call(
            domain.metadata, libvirt.VIR_DOMAIN_METADATA_ELEMENT, guest_xml.NAMESPACE, libvirt.VIR_DOMAIN_AFFECT_CURRENT
        )
        return guest_xml.needs_quiesce(metadata)

    # --- guests of a killed daemon

    def _thaw_left(self, instance_uuid: str, done: threading.Event) -> None:
        try:
            with contextlib.suppress(exceptions.DomainNotFound):
                domain, info = self._domains.get(instance_uuid)
                is_marked = os.path.exists(self._mark(instance_uuid))
                if os.path.exists(self._mark(instance_uuid) + PAUSED) and info.power_state == PowerState.PAUSED:
                    # The agent of a paused guest does not answer, so the thaw comes afterwards.
                    self._domains.resume(domain)
                    LOG.info("Domain %s is resumed: an earlier daemon has left it paused", instance_uuid)
                if is_marked and info.power_state not in (PowerState.SHUTDOWN, PowerState.CRASHED):
                    self._thaw(domain)
                    LOG.info("Domain %s is thawed: an earlier daemon may have left it frozen", instance_uuid)
            files.remove(self._mark(instance_uuid))
            files.remove(self._mark(instance_uuid) + PAUSED)
        except (exceptions.NovaLiteException, OSError) as error:
            LOG.warning("Domain %s may be paused or frozen, and cannot be continued: %s", instance_uuid, error)
        finally:
            done.set()

    def _marked(self) -> list[str]:
        try:
            names = os.listdir(self._directory)
        except FileNotFoundError:
            return []
        found = {name.removesuffix(PAUSED) for name in names}
        return sorted(name for name in found if records.uuid_of(name) == name)

    def _mark(self, instance_uuid: str) -> str:
        return os.path.join(self._directory, instance_uuid)

    def _set_mark(self, mark: str) -> None:
        """Make the mark. It need not survive a power cut, which ends the guest as well."""
        try:
            files.private_directory(self._directory)
            with open(mark, "wb", opener=files.private_opener):
                pass
        except OSError as error:
            raise exceptions.VirtDriverError(
                reason=f"a freeze or pause cannot be recorded: {error.strerror}"
            ) from error
