"""A small os-brick for daemons of tests, which connects volumes in files of an NFS server that does not exist."""

from __future__ import annotations

from typing import Any


def setup(conf: Any) -> None:
    """Take the configuration, and do nothing with it."""
