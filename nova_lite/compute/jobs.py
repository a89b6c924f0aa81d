"""Work in progress: threads, one lock per instance, and the list that heartbeats report."""

from __future__ import annotations

import contextlib
import errno
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

from nova_lite.base import exceptions, structured_logs
from nova_lite.base.context import RequestContext
from nova_lite.compute.reports import Stopping

LOG = logging.getLogger(__name__)


#: Errors of a disk that is full or read-only. Without a working disk nothing can be revoked, so nothing is reported.
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)

#: Instance uuid, generation or action id, sequence number.
Key = tuple[str, int, int]


class InstanceLocks:
    """Locks by instance uuid. A lock exists only while a thread holds it or waits for it."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._locks: dict[str, tuple[threading.Lock, int]] = {}

    @contextlib.contextmanager
    def hold(self, instance_uuid: str, timeout: float = -1) -> Iterator[None]:
        """Hold the instance's lock. Raise `ServiceUnavailable` if it is not free within ``timeout`` seconds (-1: no
        limit)."""
        with self._mutex:
            lock, users = self._locks.get(instance_uuid, (threading.Lock(), 0))
            self._locks[instance_uuid] = (lock, users + 1)
        try:
            if not lock.acquire(timeout=timeout):
                raise exceptions.ServiceUnavailable(f"Instance {instance_uuid} is still busy after {timeout:.0f} s.")
            try:
                yield
            finally:
                lock.release()
        finally:
            with self._mutex:
                lock, users = self._locks[instance_uuid]
                if users == 1:
                    del self._locks[instance_uuid]
                else:
                    self._locks[instance_uuid] = (lock, users - 1)


class Jobs:
    """Builds and actions in progress, from their acceptance until their report is delivered.

    A job's key is its instance with the generation of a build, or with the action and sequence number of a command. A
    job that is in progress is not started again.
    """

    def __init__(self) -> None:
        self.locks = InstanceLocks()
        self._changed = threading.Condition()
        self._builds: set[Key] = set()
        self._actions: set[Key] = set()
        self._busy: Counter[str] = Counter()
        self._watches: list[set[str]] = []

    def start_build(self, context: RequestContext, uuid: str, generation: int, work: Callable[[], None]) -> bool:
        """Run ``work`` in a separate thread. Return False if this build is in progress already."""
        return self._start(self._builds, context, (uuid, generation, 0), work)

    def start_action(
        self, context: RequestContext, uuid: str, action_id: int, work: Callable[[], None], sequence: int = 0
    ) -> bool:
        """Run ``work`` in a separate thread. Return False if this command is in progress already."""
        return self._start(self._actions, context, (uuid, action_id, sequence), work)

    def building(self) -> dict[str, int]:
        """Return the (highest) generation that is being built or reported, by instance uuid."""
        with self._changed:
            return {uuid: generation for uuid, generation, _ in sorted(self._builds)}

    def acting(self) -> list[int]:
        """Return the ids of the actions in progress."""
        with self._changed:
            return sorted({action_id for _, action_id, _ in self._actions})

    def is_building(self, instance_uuid: str) -> bool:
        with self._changed:
            return any(uuid == instance_uuid for uuid, _, _ in self._builds)

    def is_busy(self, instance_uuid: str) -> bool:
        """Check whether the instance has a job. Takes no lock, so that any thread may call it."""
        return instance_uuid in self._busy

    @contextlib.contextmanager
    def watch(self) -> Iterator[set[str]]:
        """Yield the uuids that have had a job at any time since entry. The set grows inside the context.

        For code that lists domains, queries the conductor and then acts: its view of these instances may be outdated.
        """
        with self._changed:
            touched = set(self._busy)
            self._watches.append(touched)
        try:
            yield touched
        finally:
            with self._changed:
                self._watches = [watch for watch in self._watches if watch is not touched]

    def wait_idle(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds until no job is left. Return whether that happened."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while self._builds or self._actions:
                left = deadline - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    return not (self._builds or self._actions)
            return True

    def _start(self, jobs: set[Key], context: RequestContext, key: Key, work: Callable[[], None]) -> bool:
        uuid = key[0]
        with self._changed:
            if key in jobs:
                return False
            jobs.add(key)
            self._busy[uuid] += 1
            for watch in self._watches:
                watch.add(uuid)
        thread = threading.Thread(target=self._run, args=(jobs, key, context, work), name=f"job-{uuid}", daemon=True)
        try:
            thread.start()
        except BaseException:
            self._end(jobs, key)
            raise
        return True

    def _run(self, jobs: set[Key], key: Key, context: RequestContext, work: Callable[[], None]) -> None:
        context.update_store()
        try:
            with structured_logs.about(key[0]):
                disk_error = self._do(key, work)
            if disk_error:  # Outside of the except block: oslo.log would append the exception to the line.
                LOG.warning(
                    "Instance %s: this host's disk fails, so the conductor has to repeat the command: %s",
                    key[0],
                    disk_error,
                )
        finally:
            self._end(jobs, key)

    @staticmethod
    def _do(key: Key, work: Callable[[], None]) -> str:
        """Do the work. Return the error of a disk that did not accept a write; empty otherwise."""
        try:
            work()
        except Stopping as error:
            LOG.info("%s is not done, because the daemon stops", error)
        except Exception as error:
            if isinstance(error, OSError) and error.errno in _DISK:
                return str(error)
            LOG.exception("Instance %s: the job ended without a report; its lease will lapse", key[0])
        return ""

    def _end(self, jobs: set[Key], key: Key) -> None:
        with self._changed:
            jobs.discard(key)
            self._busy[key[0]] -= 1
            if not self._busy[key[0]]:
                del self._busy[key[0]]
            self._changed.notify_all()
