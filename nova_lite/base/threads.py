"""Threads, and what they wait for. Other modules make them through this module alone (`tools/seams.py`).

The names are looked up when they are used, so that a scheduler can replace them.
"""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable

Lock = threading.Lock
Event = threading.Event
Thread = threading.Thread
Pool = concurrent.futures.ThreadPoolExecutor


def start(target: Callable[[], object], name: str) -> Thread:
    """Start a thread that does not keep its process from ending."""
    thread = Thread(target=target, name=name, daemon=True)
    thread.start()
    return thread
