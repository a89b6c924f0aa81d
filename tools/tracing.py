"""Records the project's own function calls while a cloud in one process carries out a request.

`tools/trace` prints them.
"""

from __future__ import annotations

import argparse
import collections
import logging
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

TOP = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOP))
_OURS = str(TOP / "nova_lite") + "/"


class Call(NamedTuple):
    """A call of a function: its file below the checkout, its qualified name, line, depth, daemon, and thread."""

    path: str
    name: str
    line: int
    depth: int
    daemon: str
    thread: int

    @property
    def function(self) -> tuple[str, str]:
        """File and qualified name, which identify a function."""
        return self.path, self.name


class Recorder:
    """Records the calls of all threads that start after it was installed, while it is on."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._on = False
        self._local = threading.local()

    def install(self) -> None:
        """Watch this thread and all that start later."""
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def uninstall(self) -> None:
        """Stop watching this thread and threads that start later."""
        sys.setprofile(None)
        threading.setprofile(None)

    def record(self, work: Callable[[], Any]) -> list[Call]:
        """Return the calls that were made while ``work`` ran."""
        self.calls = []
        self._on = True
        try:
            work()
        finally:
            self._on = False
        return self.calls

    def _profile(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if not self._on or event != "call" or not code.co_filename.startswith(_OURS) or code.co_name.startswith("<"):
            return
        depth, daemon = self._place(frame)
        path = code.co_filename[len(str(TOP)) + 1 :]
        self.calls.append(Call(path, code.co_qualname, code.co_firstlineno, depth, daemon, threading.get_ident()))

    def _place(self, frame: FrameType) -> tuple[int, str]:
        """Return how many of our functions are above this one in its daemon, and which daemon that is."""
        depth = 0
        above: FrameType | None = frame.f_back
        while above is not None:
            code = above.f_code
            if code.co_filename.endswith("nova_lite/rpc/in_process.py") and code.co_name == "dispatch":
                return depth, str(above.f_locals["endpoint"].topic)
            if code.co_filename.startswith(_OURS) and not code.co_name.startswith("<"):
                depth += 1
                first = code.co_filename[len(_OURS) :].split("/")[0]
            above = above.f_back
        room = first if depth else frame.f_code.co_filename[len(_OURS) :].split("/")[0]
        return depth, room if room in ("conductor", "scheduler", "compute") else "api"


class Scenario(NamedTuple):
    """A traced request: its preparation, the request itself, and the server's status at its end."""

    prepare: tuple[str, ...]
    action: dict[str, Any] | None
    status: str


def _actions() -> dict[str, Scenario]:
    def on(action: str, status: str, *prepare: str) -> Scenario:
        return Scenario(prepare, {action: None}, status)

    return {
        "create": Scenario((), None, "ACTIVE"),
        "pause": on("pause", "PAUSED"),
        "unpause": on("unpause", "ACTIVE", "pause"),
        "suspend": on("suspend", "SUSPENDED"),
        "resume": on("resume", "ACTIVE", "suspend"),
        "stop": on("os-stop", "SHUTOFF"),
        "start": on("os-start", "ACTIVE", "stop"),
        "lock": on("lock", "ACTIVE"),
        "reboot": Scenario((), {"reboot": {"type": "SOFT"}}, "ACTIVE"),
        "delete": Scenario((), {}, "GONE"),
    }


SCENARIOS = _actions()


class Traced(NamedTuple):
    """Calls until the HTTP response, and all until the request's work was recorded.

    Casts are delivered after the response, so the first list has no call of their receivers.
    """

    response: list[Call]
    whole: list[Call]


def trace(name: str, warm: bool = True) -> Traced:
    """Trace one request of ``SCENARIOS`` on a new cloud. ``warm``: another server has gone the same way before."""
    from nova_lite.base import concurrency

    concurrency.setup()
    from tests.support.in_process_cloud import InProcessCloud

    recorder = Recorder()
    recorder.install()
    try:
        with tempfile.TemporaryDirectory() as directory:
            cloud = InProcessCloud(Path(directory))
            try:
                if warm:
                    _run(cloud, name, recorder)
                return _run(cloud, name, recorder)
            finally:
                cloud.close()
    finally:
        recorder.uninstall()


def _run(cloud: Any, name: str, recorder: Recorder) -> Traced:
    scenario = SCENARIOS[name]
    server_id = "" if scenario.action is None else cloud.create()
    for step in scenario.prepare:
        _send(cloud, server_id, SCENARIOS[step].action)
        _settle(cloud, server_id, SCENARIOS[step].status)
    until_response = 0
    recorder.calls = []

    def work() -> None:
        nonlocal until_response
        cloud.bus.hold_casts = True
        made = cloud.send_create() if scenario.action is None else _send(cloud, server_id, scenario.action)
        until_response = len(recorder.calls)
        cloud.bus.hold_casts = False
        cloud.bus.deliver()
        _wait_until_recorded(cloud, made or server_id)

    calls = recorder.record(work)
    main = threading.get_ident()
    response = [call for call in calls[:until_response] if call.thread == main]
    if scenario.action is None:
        _settle(cloud, cloud.last_created, scenario.status)
    else:
        _settle(cloud, server_id, scenario.status)
    return Traced(response, calls)


def _send(cloud: Any, server_id: str, action: dict[str, Any] | None) -> None:
    if action:
        response = cloud.request("POST", f"/servers/{server_id}/action", action)
    else:
        response = cloud.request("DELETE", f"/servers/{server_id}")
    assert response.status_code in (202, 204), response.text


def _settle(cloud: Any, server_id: str, status: str) -> None:
    from tests.support.waiting import wait_for

    wait_for(f"the server is {status}", lambda: cloud.settled(server_id) == status, 30)


def _wait_until_recorded(cloud: Any, server_id: str) -> None:
    """Wait until the server's newest action is finished, without a call of ours."""
    from tests.support.waiting import wait_for

    wait_for("the action is finished", lambda: cloud.is_finished(server_id), 30)


def functions(calls: list[Call]) -> set[tuple[str, str]]:
    """Return the distinct functions among ``calls``."""
    return {call.function for call in calls}


def files(calls: list[Call]) -> set[str]:
    """Return the distinct files among ``calls``."""
    return {call.path for call in calls}


def until(calls: list[Call], name: str) -> list[Call]:
    """Return the calls up to the first one of a function whose qualified name ends in ``name``."""
    for index, call in enumerate(calls):
        if call.name.endswith(name):
            return calls[: index + 1]
    return calls


def collapsed(calls: list[Call]) -> Iterator[tuple[Call, int]]:
    """Yield each run of equal calls once, with its length."""
    previous: Call | None = None
    count = 0
    for call in calls:
        if previous is not None and call.function == previous.function and call.depth == previous.depth:
            count += 1
            continue
        if previous is not None:
            yield previous, count
        previous, count = call, 1
    if previous is not None:
        yield previous, count


def main() -> int:
    """Print the trace of the request that the command line names."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    logging.disable(logging.WARNING)
    parser = argparse.ArgumentParser(prog="tools/trace", description="Print a request's path through the code.")
    parser.add_argument("request", choices=sorted(SCENARIOS), help="the request to follow")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--all", action="store_true", help="print every call, not only the first of each function")
    how.add_argument("--files", action="store_true", help="print only the files")
    how.add_argument("--summary", action="store_true", help="print only the counts")
    arguments = parser.parse_args()
    traced = trace(arguments.request)
    if arguments.summary:
        _print_summary(traced)
    elif arguments.files:
        _print_files(traced.whole)
    else:
        _print_calls(traced.whole, arguments.all)
    return 0


def _print_calls(calls: list[Call], every: bool) -> None:
    seen: set[tuple[str, str]] = set()
    daemon = ""
    for call, count in collapsed(calls):
        if not every and call.function in seen:
            continue
        seen.add(call.function)
        if call.daemon != daemon:
            daemon = call.daemon
            print(f"\n[{daemon}]")
        times = f"  x{count}" if count > 1 and every else ""
        place = f"{call.path}:{call.line}"
        print(f"{place:<62} {'  ' * min(call.depth, 24)}{call.name}{times}")


def _print_files(calls: list[Call]) -> None:
    daemon = ""
    seen: set[tuple[str, str]] = set()
    for call in calls:
        if (call.daemon, call.path) in seen:
            continue
        seen.add((call.daemon, call.path))
        if call.daemon != daemon:
            daemon = call.daemon
            print(f"\n[{daemon}]")
        print(call.path)


def _print_summary(traced: Traced) -> None:
    by_daemon: dict[str, list[Call]] = collections.defaultdict(list)
    for call in traced.whole:
        by_daemon[call.daemon].append(call)
    rows = [("until the response", traced.response), *by_daemon.items(), ("until recorded", traced.whole)]
    print(f"{'':<20} {'calls':>7} {'functions':>10} {'files':>6}")
    for name, calls in rows:
        print(f"{name:<20} {len(calls):>7} {len(functions(calls)):>10} {len(files(calls)):>6}")
