"""Users, directories and units of the daemons on this machine."""

from __future__ import annotations

import time
from collections.abc import Sequence

from nova_lite.base import exceptions
from nova_lite.cmd.setup import machine

#: Seconds that a daemon may take to start.
START_SECONDS = 120


def create_users() -> str:
    for directory, program in (("sysusers.d", "systemd-sysusers"), ("tmpfiles.d", "systemd-tmpfiles")):
        path = machine.install_settings(directory)
        machine.run(program, *(["--create"] if program == "systemd-tmpfiles" else []), str(path))
    return "done"


def start(names: Sequence[str]) -> str:
    """Install, enable and start units. A unit that runs is restarted only if it has changed."""
    changed = machine.install_units(names)
    machine.run("systemctl", "enable", *names)
    started = []
    for name in names:
        active = machine.succeeds("systemctl", "is-active", "--quiet", name)
        if active and name not in changed:
            continue
        machine.run("systemctl", "restart" if active else "start", "--no-block", name)
        wait_until_active(name)
        started.append(name)
    return f"{len(started)} started" if started else "all run"


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
