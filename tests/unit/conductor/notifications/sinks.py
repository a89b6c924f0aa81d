"""Channels for tests of what is recorded."""

from __future__ import annotations

from nova_lite.db.core.outbox import Waiting


class Sink:
    """A channel that delivers nothing."""

    max_attempts = None

    def __init__(self, name: str, versioned: bool) -> None:
        self.name = self.label = name
        self.versioned = versioned

    def send(self, notification: Waiting) -> None:
        raise AssertionError("nothing is sent in these tests")

    def close(self) -> None:
        pass


CHANNELS = (Sink("versioned", True), Sink("unversioned", False))
