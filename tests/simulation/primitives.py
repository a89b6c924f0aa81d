"""The standard library's clocks, threads, random numbers, files and SQLite, made of the scheduler.

`install` replaces them in this process before anything else is imported, as eventlet does. So the product's code runs
as it is. Without a running scheduler they work for one thread.
"""

from __future__ import annotations

import datetime
import fcntl
import functools
import os
import queue
import random
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import Any, TextIO

from tests.simulation.scheduler import EPOCH, Process, Scheduler, Task

#: Text of the error of a conflict.
CONFLICT = "another transaction was faster"
#: Codes of statements that lose, of MariaDB as numbers and of PostgreSQL as texts. The first ones wait in vain.
_WAITS: tuple[int | str, ...] = (1205, "55P03")
_LOSSES = (*_WAITS, "40001", "40P01", 1213)
#: PostgreSQL's state of a commit that cannot be serialized, and how SQLAlchemy knows a broken connection of SQLite.
_SERIALIZATION, _DISCONNECTED = "40001", "Cannot operate on a closed database."
#: Virtual seconds of a wait for a lock that ends without it, and how much more often a commit fails than a statement.
_LOCK_WAIT, _COMMITS = 2.0, 5.0
_NOW = "now"
#: Part of the paths of guests' files, and most virtual seconds of a write to their disk if it is slow.
_GUESTS, _SLOW_WRITE = "/instances/", 10.0
_MAIN = threading.get_ident()


class _World:
    """State of the replaced functions. ``sim``: None before a run."""

    def __init__(self) -> None:
        self.sim: Scheduler | None = None
        self.entropy = random.Random(0)
        self.conflicts = 0.0
        self.writing: dict[str, Process] = {}
        self.on_sync: Callable[[int], None] = lambda descriptor: None

    def clock(self) -> float:
        """Return the monotonic clock of all machines."""
        return 1000.0 + (0.0 if self.sim is None else self.sim.now)


WORLD = _World()


def process() -> Process | None:
    """Return the process of the running task."""
    task = _task()
    return None if task is None else task.process


def _task() -> Task | None:
    return None if WORLD.sim is None else WORLD.sim.current


def point() -> None:
    if WORLD.sim is not None:
        WORLD.sim.point()


# --- clocks


def _wall() -> float:
    own = process()
    return EPOCH + WORLD.clock() + (0.0 if own is None else own.wall)


def _sleep(seconds: float) -> None:
    if WORLD.sim is not None and WORLD.sim.current is not None:
        WORLD.sim.sleep(seconds)


def strftime(form: str, moment: str, change: str = "0 seconds") -> str:
    """Do what SQLite's function of this name does, for the forms that the product uses, with the virtual clock."""
    assert moment == _NOW, moment
    return _formatted(form, WORLD.clock(), change)


@functools.lru_cache(maxsize=64)
def _formatted(form: str, clock: float, change: str) -> str:
    """Return a moment as text. The rows of a statement, and statements without a switch between them, share it."""
    number, unit = change.split()
    assert unit == "seconds", change
    at = datetime.datetime.fromtimestamp(EPOCH + clock + float(number), datetime.UTC)
    return at.strftime(form.replace("%f", f"%S.{at.microsecond // 1000:03}"))


# --- threads


class Lock:
    """A lock. Whoever waits for it is woken in an order of the seed. A lock of no process is released by a death."""

    def __init__(self) -> None:
        self._is_locked = False
        self._waiters: list[Task] = []
        self._owner: Task | None = None
        self._is_global = _task() is None

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        sim = WORLD.sim
        task = None if sim is None else sim.current
        if self._is_locked:
            if not blocking or timeout == 0:
                return False
            assert sim is not None and task is not None, "no task could release the lock"
            deadline = None if timeout < 0 else sim.now + timeout
            while self._is_locked:
                if deadline is not None and sim.now >= deadline:
                    return False
                self._waiters.append(task)
                sim.wait(deadline)
                if task in self._waiters:
                    self._waiters.remove(task)
        self._is_locked = True
        if self._is_global and task is not None:
            self._owner = task
            task.held[self] = None
        return True

    def release(self) -> None:
        if not self._is_locked:
            raise RuntimeError("release unlocked lock")
        self._is_locked = False
        if self._owner is not None:
            self._owner.held.pop(self, None)
            self._owner = None
        if self._waiters:
            assert WORLD.sim is not None
            waiters = self._waiters = [task for task in self._waiters if not task.process.is_dead]
            if waiters:
                WORLD.sim.wake(waiters.pop(int(WORLD.sim.choices.random() * len(waiters))))

    def locked(self) -> bool:
        return self._is_locked

    def _at_fork_reinit(self) -> None:
        self._is_locked = False

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()


def _get_ident() -> int:
    sim = WORLD.sim
    task = None if sim is None else sim.current
    return _MAIN if task is None else task.number


def _set_sentinel() -> Lock:
    """Return the lock that the end of the running thread releases."""
    lock, task = Lock(), _task()
    if task is not None:
        task.at_end.append(lock)
    return lock


class _ThreadHandle:
    """Handle of a thread, as Python 3.13 and later keep it, in place of the lock that its end releases."""

    def __init__(self) -> None:
        self.ident: int | None = None
        self._running: Lock | None = None

    def begin(self) -> None:
        """Note the running thread as this one."""
        self._running = _set_sentinel()
        self._running.acquire()

    def is_done(self) -> bool:
        return self.ident is not None and (self._running is None or not self._running.locked())

    def join(self, timeout: float | None = None) -> None:
        if self._running is not None and self._running.acquire(timeout=-1 if timeout is None else max(0, timeout)):
            self._running.release()

    def _set_done(self) -> None:
        self._running = None


def _start_joinable_thread(function: Callable[[], object], handle: _ThreadHandle, daemon: bool = True) -> None:
    def run() -> None:
        handle.begin()
        function()

    handle.ident = _start_new_thread(run, (), thread=getattr(function, "__self__", None))


def _start_new_thread(
    function: Callable[..., object], args: tuple[Any, ...], kwargs: Any = None, thread: Any = None
) -> int:
    sim = WORLD.sim
    assert sim is not None, "a thread needs a run"
    owner = process()
    name = getattr(thread or getattr(function, "__self__", None), "name", "thread")
    assert owner is not None, f"{name} has no process"
    return sim.spawn(owner, lambda: function(*args, **(kwargs or {})), name).number


# --- random numbers


class _SeededRandom(random.Random):
    """`random.Random` whose seed, if none is given, is the simulation's."""

    def __init__(self, seed: Any = None) -> None:
        super().__init__(WORLD.entropy.getrandbits(64) if seed is None else seed)


def _urandom(size: int) -> bytes:
    return WORLD.entropy.randbytes(size)


# --- database and disks


class Connection(sqlite3.Connection):
    """A connection to SQLite. Each statement is a point, and may lose a conflict, as MariaDB and PostgreSQL have them.

    A statement waits too long for a lock, is the victim of a deadlock, or meets a row that another transaction has
    changed. A commit cannot be serialized, or is done although its connection breaks before the reply.
    """

    def cursor(self, *args: Any, **kwargs: Any) -> Any:
        point()
        if _loses(1.0):
            assert WORLD.sim is not None
            code = _LOSSES[int(WORLD.sim.choices.random() * len(_LOSSES))]
            if code in _WAITS:
                _sleep(_LOCK_WAIT)
            raise sqlite3.OperationalError(code, CONFLICT)
        return super().cursor(*args, **kwargs)

    def commit(self) -> None:
        if not _loses(_COMMITS):
            super().commit()
        elif _loses_half():
            self.rollback()
            raise sqlite3.OperationalError(_SERIALIZATION, CONFLICT)
        else:
            super().commit()
            raise sqlite3.ProgrammingError(f"{_DISCONNECTED} ({CONFLICT})")


def _loses(factor: float) -> bool:
    sim, share = WORLD.sim, WORLD.conflicts
    return bool(share) and sim is not None and sim.choices.random() < share * factor


def _loses_half() -> bool:
    return WORLD.sim is not None and WORLD.sim.choices.random() < 0.5


def _connect(*args: Any, **kwargs: Any) -> Connection:
    made: Connection = _real_connect(*args, **{**kwargs, "factory": Connection})
    made.create_function("strftime", -1, strftime)
    owner = process()
    if owner is not None:
        owner.at_death.append(made.close)
    return made


def _with_point(function: Callable[..., Any]) -> Callable[..., Any]:
    def changed(*args: Any, **kwargs: Any) -> Any:
        point()
        return function(*args, **kwargs)

    return changed


def _written(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that names a file, with a point before. It takes long for a guest's file on a slow disk."""

    def changed(source: str, target: str, **kwargs: Any) -> Any:
        point()
        sim, owner = WORLD.sim, process()
        is_slow = owner is not None and owner.slow_disk and _GUESTS in str(target)
        if sim is not None and owner is not None and is_slow and sim.choices.random() < owner.slow_disk:
            WORLD.writing[str(source)] = owner
            sim.sleep(sim.choices.random() * _SLOW_WRITE)
            del WORLD.writing[str(source)]
        return function(source, target, **kwargs)

    return changed


def _fsync(descriptor: int) -> None:
    """Write a file or a directory to the simulated disk. The process may die before."""
    point()
    WORLD.on_sync(descriptor)


def _flock(descriptor: int, operation: int) -> None:
    """Lock a file until the process dies, whose descriptors the machine would close."""
    _real_flock(descriptor, operation)
    owner = process()
    if owner is not None and operation & fcntl.LOCK_EX:
        owner.at_death.append(lambda: _real_flock(descriptor, fcntl.LOCK_UN))


_real_connect = sqlite3.connect
_real_flock = fcntl.flock


def begin(seed: int, log: TextIO | None = None) -> Scheduler:
    """Begin a run, and return its scheduler."""
    WORLD.sim = Scheduler(seed, log)
    WORLD.entropy = random.Random(f"entropy {seed}")
    random.seed(f"product {seed}")
    WORLD.conflicts, WORLD.writing = 0.0, {}
    WORLD.on_sync = lambda descriptor: None
    return WORLD.sim


def install() -> None:
    """Replace the functions. Only the main module of a process of simulations does it, first of all."""
    clocks: Any = time
    clocks.monotonic = clocks.perf_counter = WORLD.clock
    clocks.monotonic_ns = lambda: int(WORLD.clock() * 1e9)
    clocks.time = _wall
    clocks.time_ns = lambda: int(_wall() * 1e9)
    clocks.clock_gettime = lambda clock: WORLD.clock()
    clocks.sleep = _sleep
    names: Any = threading
    names.Lock = names._allocate_lock = Lock
    names.RLock = names._PyRLock
    names.get_ident = _get_ident
    names._set_sentinel = _set_sentinel
    if hasattr(names, "_ThreadHandle"):
        names._ThreadHandle, names._start_joinable_thread = _ThreadHandle, _start_joinable_thread
    names._start_new_thread = _start_new_thread
    names._time = WORLD.clock
    import _threading_local  # it takes its lock from threading

    names.local = _threading_local.local
    queues: Any = queue
    queues.time = WORLD.clock
    queues.SimpleQueue = queues._PySimpleQueue
    numbers: Any = random
    numbers._urandom = _urandom
    numbers.Random = _SeededRandom
    databases: Any = sqlite3
    databases.connect = databases.dbapi2.connect = _connect
    locks: Any = fcntl
    locks.flock = _flock
    disks: Any = os
    disks.urandom = _urandom
    disks.fsync = disks.fdatasync = _fsync
    disks.rename, disks.replace, disks.unlink = _written(os.rename), _written(os.replace), _with_point(os.unlink)
