"""Priorities of lines that systemd's journal stores: ``<N>`` before each line, as syslog numbers them.

systemd reads the prefix off the lines of stdout and stderr. Without it every line has the priority "info". A stream
that leads elsewhere gets no prefix.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

#: Syslog's priorities by the lowest level of Python that has them, the highest level first.
_PRIORITIES = {logging.CRITICAL: 2, logging.ERROR: 3, logging.WARNING: 4, logging.INFO + 1: 5, logging.INFO: 6}
_DEBUG = 7


def leads_there(stream: Any) -> bool:
    """Check whether the journal reads this stream."""
    device, _, inode = os.environ.get("JOURNAL_STREAM", "").partition(":")
    try:
        status = os.fstat(stream.fileno())
    except (AttributeError, OSError, ValueError):
        return False
    return (device, inode) == (str(status.st_dev), str(status.st_ino))


def priority(level: int) -> int:
    """Return syslog's number of a level of Python."""
    return next((number for lowest, number in _PRIORITIES.items() if level >= lowest), _DEBUG)


def with_priority(text: str, level: int) -> str:
    """Return the text with the priority of ``level`` before each of its lines."""
    return "\n".join(f"<{priority(level)}>{line}" for line in text.split("\n"))


def error(text: str) -> str:
    """Return an error message for stderr, such as the argument of `sys.exit`."""
    return with_priority(text, logging.ERROR) if leads_there(sys.stderr) else text


class PriorityFormatter(logging.Formatter):
    """A formatter that adds priorities to the lines of another one."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self._formatter = formatter

    def format(self, record: logging.LogRecord) -> str:
        return with_priority(self._formatter.format(record), record.levelno)


def add_priorities(logger: logging.Logger) -> None:
    """Let the logger's handlers that write to the journal's streams add priorities."""
    for handler in logger.handlers:
        if isinstance(handler, logging.StreamHandler) and leads_there(handler.stream):
            handler.setFormatter(PriorityFormatter(handler.formatter or logging.Formatter()))
