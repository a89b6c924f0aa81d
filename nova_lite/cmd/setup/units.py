"""Users, directories and units of the daemons on this machine."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from pathlib import Path

import nova_lite
from nova_lite.base import exceptions
from nova_lite.cmd.setup import machine

#: Seconds that a daemon may take to start.
START_SECONDS = 120

#: A file that each installation writes.
PACKAGE = Path(nova_lite.__file__)


def create_users() -> str:
    for directory, program in (("sysusers.d", "systemd-sysusers"), ("tmpfiles.d", "systemd-tmpfiles")):
        path = machine.install_settings(directory)
        machine.run(program, *(["--create"] if program == "systemd-tmpfiles" else []), str(path))
    return "done"


def start(names: Sequence[str], optional: Sequence[str] = ()) -> str:
    """Install, enable and start units, and only install the optional ones.

    A unit that runs is restarted only if it, or its code, has changed since its start, also in an earlier call that was
    interrupted.
    """
    changed = machine.install_units([*names, *optional])
    machine.run("systemctl", "enable", *names)
    started = []
    for name in names:
        if name not in changed and not is_outdated(name):
            continue
        active = machine.succeeds("systemctl", "is-active", "--quiet", name)
        machine.run("systemctl", "restart" if active else "start", "--no-block", name)
        wait_until_active(name)
        started.append(name)
    return f"{len(started)} started" if started else "all run"


def is_outdated(unit: str) -> bool:
    """Check whether a daemon does not run, or was started before its code or its unit was written."""
    names = "ActiveState,ExecMainStartTimestampMonotonic,FragmentPath,ExecStart"
    shown = machine.run("systemctl", "show", f"--property={names}", unit)
    values = dict(line.split("=", 1) for line in shown.splitlines())
    if values["ActiveState"] != "active":
        return True
    running = time.monotonic() - int(values["ExecMainStartTimestampMonotonic"] or 0) / 1e6
    # pip and dpkg set the time of a file's content. Its status changes when it is installed.
    program = re.search(r"\bpath=([^ ;]+)", values.get("ExecStart", ""))
    paths = [PACKAGE, Path(values["FragmentPath"]), *([Path(program[1])] if program else [])]
    written = [os.stat(path).st_ctime for path in paths if path.exists()]
    return time.time() - running <= max(written, default=0.0)


def last_line(name: str) -> str:
    """Return the last line that a unit wrote."""
    log = machine.run("journalctl", "--unit", name, "--lines=20", "--no-pager", "--output=cat").splitlines()
    return next((line for line in reversed(log) if line.strip() and "systemd" not in line), "it wrote nothing")


def wait_until_active(name: str) -> None:
    """Wait until a unit has reported that it is ready. Raises `ConfigurationError` with its last line."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        values = machine.run("systemctl", "show", "--property=ActiveState,SubState,NRestarts", name)
        state = dict(line.split("=", 1) for line in values.splitlines())
        if state["ActiveState"] == "active":
            return
        if time.monotonic() > deadline or state["ActiveState"] == "failed" or int(state["NRestarts"]) > 3:
            raise exceptions.ConfigurationError(reason=f"{name} does not start: {last_line(name)}")
        time.sleep(0.2)
