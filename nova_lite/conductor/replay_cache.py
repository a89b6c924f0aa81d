"""Makes sure that all conductors together accept each message only once, also after a restart.

Each conductor has a replay cache in memory (`nova_lite.rpc.signing`). An attacker could still send a captured message
to another conductor, or to a conductor that has just started. So the database keeps the ids of messages that could do
harm when they are repeated, for as long as their signature is valid. The database's clock may jump, so that time is
measured by the conductor.
"""

from __future__ import annotations

import collections
import datetime

from oslo_config import cfg

from nova_lite.base import clock, threads
from nova_lite.base.batching import OVERLAP_AFTER_WRITE, Batcher, BatchLimits
from nova_lite.base.context import DaemonIdentity
from nova_lite.db.core import replay_cache
from nova_lite.db.core.engine import Database, translate
from nova_lite.rpc.client import ECHO
from nova_lite.rpc.contract import contract_of
from nova_lite.rpcapi.conductor import ConductorRPC

LIMITS = BatchLimits(overlap_after=OVERLAP_AFTER_WRITE)

#: Seconds between two deletions of expired ids.
_EXPIRE_INTERVAL = 60.0


class SharedReplayCache:
    """Decides whether a verified message may be accepted. The replay cache of all conductors together.

    Methods that are declared ``replay_safe`` (`nova_lite.rpc.method`) need no entry: they read, or their rows recognise
    a repeated report.
    """

    def __init__(self, db: Database, conf: cfg.ConfigOpts) -> None:
        self._db = db
        self._contract = contract_of(ConductorRPC)
        self._seconds = float(conf.rpc.signature_lifetime + 3 * conf.rpc.clock_skew)
        self._lock = threads.Lock()
        self._last_expiry = clock.monotonic()
        #: Uptime of this conductor and the database's time at that moment, the oldest first.
        self._times: collections.deque[tuple[float, datetime.datetime]] = collections.deque()
        self._batcher: Batcher[str, bool] = Batcher(self._accept, LIMITS)

    def __call__(self, sender: DaemonIdentity, method: str, message_id: str) -> bool:
        """Return False if the message was accepted before. Raises `DatabaseUnavailable`."""
        if method == ECHO or self._contract.is_replay_safe(method):
            return True
        try:
            is_new = self._batcher.submit(message_id)
            if self._is_expiry_due():
                self._expire()
        except Exception as error:
            raise translate(error) from error
        return is_new

    def _accept(self, message_ids: list[str]) -> list[bool]:
        """Store the ids in one transaction, sorted, so that two conductors cannot deadlock on the same ids."""
        in_order = sorted(message_ids)
        new = self._db.write(replay_cache.messages_taken, in_order)
        return list(map(dict(zip(in_order, new, strict=True)).__getitem__, message_ids))

    def _expire(self) -> None:
        """Delete ids that are older than their lifetime, whatever the database's clock did in that time."""
        uptime, now = clock.monotonic(), self._db.read(lambda uow: uow.now)
        with self._lock:
            self._times.append((uptime, now))
            while len(self._times) > 1 and uptime - self._times[1][0] >= self._seconds:
                self._times.popleft()
            is_old = uptime - self._times[0][0] >= self._seconds
            before = min(time for _, time in self._times)
        if is_old:
            self._db.write(replay_cache.expire, before)

    def _is_expiry_due(self) -> bool:
        with self._lock:
            now = clock.monotonic()
            if now - self._last_expiry < _EXPIRE_INTERVAL:
                return False
            self._last_expiry = now
            return True
