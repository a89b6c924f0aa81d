"""Work on volume files that a conductor has accepted: one thread per work item, reported until the conductor accepts
it.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import threading
from collections.abc import Mapping

from nova_lite.base import exceptions
from nova_lite.base.context import get_admin_context
from nova_lite.compute.host import LocalHost
from nova_lite.compute.reports import Stopping, exception_message
from nova_lite.objects import VolumeVerb, VolumeWork

LOG = logging.getLogger(__name__)

LATE = "Volume %s: a late command of %s is ignored"

GIB = 1024**3

#: Number of files that are copied concurrently.
MAX_CONCURRENT = 2
#: Number of ended tasks that are remembered.
MAX_ENDED = 1000
#: Work that does no harm when its command comes after its end: it only reads files. A volume whose deletion has failed
#: may be used again, so deletions are not among it.
HARMLESS = frozenset({VolumeVerb.VERIFY_BACKUP})
#: Work that makes data under a name.
MAKING = frozenset({VolumeVerb.CREATE, VolumeVerb.RESTORE, VolumeVerb.SNAPSHOT, VolumeVerb.BACKUP})


class VolumeWorker:
    def __init__(self, host: LocalHost) -> None:
        self._host = host
        self._slots = threading.BoundedSemaphore(MAX_CONCURRENT)
        self._mutex = threading.Lock()
        self._in_progress: set[int] = set()
        #: Ids of tasks that the conductor knows to have ended.
        self._ended: collections.deque[int] = collections.deque(maxlen=MAX_ENDED)

    def start(self, work: VolumeWork) -> None:
        """Start the work in a separate thread. Duplicates of work in progress are ignored: the conductor repeats its
        casts. A late duplicate is ignored, too: a server may have the volume by then, or no server its file.
        """
        with self._mutex:
            if work.id in self._in_progress:
                return
            if work.id in self._ended:
                LOG.info(LATE, work.volume_id, work.verb)
                return
            self._in_progress.add(work.id)
        threading.Thread(target=self._run, args=(work,), name=f"volume-{work.volume_id}", daemon=True).start()

    def _run(self, work: VolumeWork) -> None:
        try:
            with contextlib.suppress(Stopping):
                with self._slots:
                    if not self._is_wanted(work):
                        LOG.info(LATE, work.volume_id, work.verb)
                        return
                    error = self._do(work)
                if work.verb in MAKING:
                    what = f"Volume {work.volume_id}: removal of unneeded data"
                    self._host.retrier.call_until_done(what, lambda: self._remove_unneeded(work))
                self._report(work, error)
                if work.verb not in HARMLESS:
                    with self._mutex:
                        self._ended.append(work.id)
        finally:
            with self._mutex:
                self._in_progress.discard(work.id)

    def _is_wanted(self, work: VolumeWork) -> bool:
        """Ask the conductor, for as long as necessary, whether it waits for this work of this host.

        The command may have waited while this host was off or busy. By then another host may have done the work, or an
        admin has reset the state of a volume. A file that is made after its volume, snapshot or backup was deleted
        would stay forever.
        """
        host = self._host
        if work.verb in HARMLESS:
            return True
        return host.retrier.call(
            f"Volume {work.volume_id}: query whether {work.verb} is wanted",
            lambda: host.conductor.is_volume_work_open(get_admin_context(), host.name, work.id, work.volume_id),
            lambda: None,
        )

    def _do(self, work: VolumeWork) -> str | None:
        """Do the work. Return None, or the error."""
        try:
            if work.instance_uuid is None:
                self._perform(work)
            else:
                with self._host.jobs.locks.hold(work.instance_uuid):
                    self._perform(work)
        except Exception as error:
            expected = isinstance(error, exceptions.NovaLiteException | OSError)
            LOG.warning("Volume %s: %s failed: %s", work.volume_id, work.verb, error, exc_info=not expected)
            return exception_message(error, self._host.name)
        return None

    def _remove_unneeded(self, work: VolumeWork) -> None:
        """Remove the data that the work has made, if their volume, snapshot or backup was deleted meanwhile.

        Another host may have had the work since. Its data were deleted, and these got their name afterwards.
        """
        host, backend = self._host, self._host.volumes
        made = {VolumeVerb.SNAPSHOT: work.snapshot_id, VolumeVerb.BACKUP: work.backup_id}
        made_id = made.get(work.verb) or work.volume_id
        if host.conductor.is_volume_data_needed(get_admin_context(), host.name, work.verb, made_id):
            return
        LOG.warning(
            "Volume %s: what %s has made is removed, because it was deleted meanwhile", work.volume_id, work.verb
        )
        if work.verb is VolumeVerb.SNAPSHOT:
            backend.delete_snapshot(made_id)
        elif work.verb is VolumeVerb.BACKUP:
            backend.delete_backup(made_id)
        else:
            backend.delete(made_id)

    def _perform(self, work: VolumeWork) -> None:
        backend = self._host.volumes
        if work.verb is VolumeVerb.CREATE:
            backend.create(work)
        elif work.verb is VolumeVerb.DELETE:
            backend.delete(work.volume_id)
        elif work.verb is VolumeVerb.SNAPSHOT:
            self._snapshot(work)
        elif work.verb is VolumeVerb.DELETE_SNAPSHOT:
            backend.delete_snapshot(str(work.snapshot_id))
        elif work.verb in (VolumeVerb.BACKUP, VolumeVerb.DELETE_BACKUP, VolumeVerb.VERIFY_BACKUP, VolumeVerb.RESTORE):
            self._work_on_backup(work)
        elif work.verb is VolumeVerb.UPLOAD:
            assert work.image is not None
            with backend.exported(work.volume_id, work.image.disk_format) as path:
                self._host.images.upload(work.image, path, self._host.name, lambda _: None)
        else:
            backend.extend(work.volume_id, work.size)
            volumes = self._host.driver.volumes
            if work.instance_uuid is not None and volumes:
                volumes.extend(work.instance_uuid, work.volume_id, work.size * GIB)

    def _snapshot(self, work: VolumeWork) -> None:
        """Snapshot a volume. If a guest has it, the guest must be here: only its host knows the current content."""
        if work.instance_uuid is None:
            self._host.volumes.create_snapshot(work.volume_id, str(work.snapshot_id))
            return
        driver, uuid = self._host.driver, work.instance_uuid
        copy, held = driver.volume_copies.copy, driver.volume_copies.held
        driver.guests.get(uuid)
        self._host.volumes.create_snapshots_in_use(
            {work.volume_id: str(work.snapshot_id)},
            lambda parts: copy(uuid, self._sources(parts), lambda: None),
            lambda volume_ids: held(uuid, volume_ids),
        )

    def _work_on_backup(self, work: VolumeWork) -> None:
        backend = self._host.volumes
        if work.verb is VolumeVerb.DELETE_BACKUP:
            backend.delete_backup(str(work.data_id))
        elif work.verb is VolumeVerb.VERIFY_BACKUP:
            backend.verify_backup(str(work.data_id))
        elif work.verb is VolumeVerb.RESTORE:
            backend.restore_backup(work)
        elif work.instance_uuid is None:
            backend.create_backup(work)
        else:
            driver, uuid = self._host.driver, work.instance_uuid
            copy, held = driver.volume_copies.copy, driver.volume_copies.held
            driver.guests.get(uuid)
            backend.create_backup_in_use(
                work,
                lambda parts: copy(uuid, self._sources(parts), lambda: None),
                lambda volume_ids: held(uuid, volume_ids),
            )

    def _sources(self, parts: Mapping[str, str]) -> dict[str, tuple[str, str]]:
        return {volume_id: (self._host.volume_file(volume_id), part) for volume_id, part in parts.items()}

    def _report(self, work: VolumeWork, error: str | None) -> None:
        host = self._host
        host.retrier.call(
            f"Volume {work.volume_id}: report of {work.verb}",
            lambda: host.conductor.finish_volume_work(get_admin_context(), host.name, work.id, error),
            lambda: None,
        )
