"""Cheap comparison of a host's domains with the database: a digest that is sent with a heartbeat."""

from __future__ import annotations

import contextlib
from collections.abc import Set as AbstractSet


class ConsistencyCheck:
    """A digest that the conductor compares with the database.

    ``digest``: see `nova_lite.objects.digest_of_domains`. ``touched``: instances that have had a job since the digest
    was made; it grows until ``watch`` is closed. The digest may be outdated for them. ``agrees``: the conductor's
    reply, None until it arrives.
    """

    def __init__(self, digest: str, touched: AbstractSet[str], watch: contextlib.ExitStack) -> None:
        self.digest = digest
        self.agrees: bool | None = None
        self._touched = touched
        self._watch = watch
        self._closed = False

    @property
    def is_open(self) -> bool:
        return self.agrees is None and not self._touched and not self._closed

    def close(self) -> None:
        """Stop waiting for the reply."""
        self._closed = True
        self._watch.close()
