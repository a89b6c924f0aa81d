"""What changes something is taken once by all conductors together, and once only after each restart.

A conductor remembers in memory what it has taken itself (`nova_lite.rpc.signing`). A captured message could still be
sent to another one, or to one that has just started: for the methods of which that would do harm its id is kept in the
database for as long as its time lets it be taken at all.
"""

from __future__ import annotations

import threading
import time

from oslo_config import cfg

from nova_lite.base.batching import Batcher
from nova_lite.conductor.rpcapi import ConductorRPC
from nova_lite.db import replay_cache
from nova_lite.db.engine import Database, translate
from nova_lite.rpc.client import ECHO
from nova_lite.rpc.contract import contract_of
from nova_lite.rpc.keys import Peer

#: Seconds between two looks for what may be forgotten.
_EXPIRE_EVERY = 60.0


class SharedReplayCache:
    """Called with each verified message: whether it may be taken. Raises `DatabaseUnavailable`.

    Methods that are declared ``replay_safe`` (`nova_lite.rpc.method`) need no entry: they read, or their rows recognise
    a repeated report.
    """

    def __init__(self, db: Database, conf: cfg.ConfigOpts) -> None:
        self._db = db
        self._contract = contract_of(ConductorRPC)
        self._seconds = float(conf.rpc.signature_lifetime + 3 * conf.rpc.clock_skew)
        self._lock = threading.Lock()
        self._expired = time.monotonic()
        self._line: Batcher[str, bool] = Batcher(self._take, writes=True)

    def __call__(self, sender: Peer, method: str, message_id: str) -> bool:
        if method == ECHO or self._contract.is_replay_safe(method):
            return True
        try:
            first = self._line.ask(message_id)
            if self._is_time():
                self._db.write(replay_cache.expire, self._seconds)
        except Exception as error:
            raise translate(error) from error
        return first

    def _take(self, message_ids: list[str]) -> list[bool]:
        """Those that came together, by one transaction; in one order, as it locks what another conductor may take."""
        in_order = sorted(message_ids)
        taken = self._db.write(replay_cache.messages_taken, in_order)
        return list(map(dict(zip(in_order, taken, strict=True)).__getitem__, message_ids))

    def _is_time(self) -> bool:
        with self._lock:
            now = time.monotonic()
            if now - self._expired < _EXPIRE_EVERY:
                return False
            self._expired = now
            return True
