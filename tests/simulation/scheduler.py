"""Tasks in virtual time. One runs at a time, by choice of the seed.

A *point* is a place where a task may give way to others, and where its process may die. The clock stands still while
tasks are ready, but for `STEP` at each switch. Otherwise it jumps to the next time for which a task waits.
"""

from __future__ import annotations

import hashlib
import heapq
import random
from collections.abc import Callable
from typing import Any, TextIO

import greenlet

#: Virtual seconds of a switch, so that a task which polls a clock comes to an end.
STEP = 0.00002
#: Share of points at which a task gives way.
GIVES_WAY = 0.1
#: Wall clock at the start of each run, in seconds since 1970.
EPOCH = 1_800_000_000.0


class Stuck(Exception):
    """No task can run any more, or the run takes too long."""


class Process:
    """A daemon, or a client: tasks that die together.

    ``fuse``: points until it is killed; 0: it lives on. ``wall``: seconds by which its wall clock is wrong.
    ``slow_disk``: share of writes of guests' files that take long.
    ``at_death``: what the machine does for it then.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_dead = False
        self.fuse = 0
        self.points = 0
        self.wall = 0.0
        self.slow_disk = 0.0
        self.tasks: list[Task] = []
        self.at_death: list[Callable[[], None]] = []


class Task:
    """A thread of a process. ``ticket`` changes with each wait, so that a late timer wakes no task.

    ``at_end``: locks that its end releases. ``held``: locks of the whole simulation that it holds.
    """

    __slots__ = ("at_end", "held", "is_waiting", "let", "name", "number", "process", "ticket")

    def __init__(self, process: Process, name: str, number: int) -> None:
        self.process = process
        self.name = name
        self.number = number
        self.ticket = 0
        self.is_waiting = False
        self.at_end: list[Any] = []
        self.held: dict[Any, None] = {}
        self.let: greenlet.greenlet


class Scheduler:
    """Runs tasks until one calls `finish`. ``log``: gets a line for each switch and note.

    ``stop_at``: number of the line at which the debugger takes over.
    """

    def __init__(self, seed: int, log: TextIO | None = None) -> None:
        self.choices = random.Random(seed)
        self.now = 0.0
        self.current: Task | None = None
        self.switches = 0
        self.stop_at = 0
        self.on_death: Callable[[Process], None] = lambda process: None
        self._ready: list[Task] = []
        self._timers: list[tuple[float, int, Task | None, Any]] = []
        self._count = 0
        self._hub = greenlet.getcurrent()
        self._hash = hashlib.blake2b(digest_size=16)
        self._log = log
        self._is_finished = False
        self._lines = 0
        self._dead: list[Task] = []

    # --- for tasks

    def spawn(self, process: Process, function: Callable[[], object], name: str) -> Task:
        """Start a task. Its failure ends the run."""
        self._count += 1
        task = Task(process, f"{process.name}/{name}", self._count)
        task.let = greenlet.greenlet(lambda: self._main(task, function), self._hub)
        process.tasks.append(task)
        if process.is_dead:
            self._dead.append(task)
        else:
            self._ready.append(task)
        return task

    def wait(self, until: float | None = None) -> None:
        """Let the current task wait for `wake`, or a time."""
        task = self.current
        assert task is not None, "only tasks wait"
        task.ticket += 1
        task.is_waiting = True
        if until is not None:
            self._push(until, task, task.ticket)
        self._hub.switch()

    def wake(self, task: Task) -> None:
        if task.is_waiting and not task.process.is_dead:
            task.is_waiting = False
            task.ticket += 1
            self._ready.append(task)

    def sleep(self, seconds: float) -> None:
        self.wait(self.now + max(seconds, 0.0))

    def point(self) -> None:
        """Give way by chance. The task's process may die here."""
        task = self.current
        if task is None:
            return
        process = task.process
        process.points += 1
        if process.fuse:
            process.fuse -= 1
            if not process.fuse:
                self.kill(process)
                self._hub.switch()
        if self.choices.random() < GIVES_WAY:
            self._ready.append(task)
            self._hub.switch()

    def after(self, seconds: float, function: Callable[[], None]) -> None:
        """Call a function later. It may not wait."""
        self._push(self.now + seconds, None, function)

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        line = f"{self.now:.6f} {text}\n"
        self._hash.update(line.encode())
        self._lines += 1
        if self._lines == self.stop_at:
            breakpoint()  # noqa: T100 - the purpose of the number
        if self._log is not None:
            self._log.write(line)

    def kill(self, process: Process) -> None:
        """End a process at once: no task of it does anything any more."""
        self.note(f"{process.name} dies")
        process.is_dead = True
        self._ready = [task for task in self._ready if task.process is not process]
        self._dead += process.tasks  # a greenlet without references would run its finally blocks
        for task in process.tasks:
            for lock in list(task.held):
                lock.release()
        for function in process.at_death:
            function()
        self.on_death(process)

    def finish(self) -> None:
        self._is_finished = True

    # --- for the owner

    @property
    def trace(self) -> str:
        """Return the hash of all switches and notes."""
        return self._hash.hexdigest()

    def run(self, seconds: float) -> None:
        """Run until a task has called `finish`. Raises `Stuck` after so many virtual seconds."""
        ready, timers, choose = self._ready, self._timers, self.choices.random
        while not self._is_finished:
            ready = self._ready
            while timers and timers[0][0] <= self.now:
                self._fire()
            if not ready:
                if not timers:
                    raise Stuck("no task waits for a time")
                self.now = max(self.now, timers[0][0])
                if self.now > seconds:
                    raise Stuck(f"the run has not ended after {seconds:g} s")
                continue
            index = int(choose() * len(ready))
            task = ready[index]
            ready[index] = ready[-1]
            ready.pop()
            self.now += STEP
            self.switches += 1
            self.note(task.name)
            self.current = task
            task.let.switch()
            self.current = None

    def _fire(self) -> None:
        _, _, task, what = heapq.heappop(self._timers)
        if task is None:
            what()
        elif task.ticket == what and task.is_waiting and not task.process.is_dead:
            task.is_waiting = False
            self._ready.append(task)

    def _push(self, when: float, task: Task | None, what: Any) -> None:
        self._count += 1
        heapq.heappush(self._timers, (when, self._count, task, what))

    def _main(self, task: Task, function: Callable[[], object]) -> None:
        function()
        task.process.tasks.remove(task)
        for lock in task.at_end:
            lock.release()
