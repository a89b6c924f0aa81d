"""Failpoints: named points at which a test injects a fault into a daemon. `nova_lite.base.faults` installs them.

A fault kills or delays the daemon, or loses, doubles or refuses a message. Failpoints are off unless
``NOVA_LITE_FAILPOINTS`` names a control file, which only tests do. The file is a JSON list of rules::

    [{"id": "1", "daemon": "conductor", "point": "commit/finish_build/after", "effect": "kill"}]

``daemon`` is a shell pattern for the value of ``NOVA_LITE_FAILPOINTS_DAEMON`` in the process. ``point`` is a shell
pattern for the point. ``effect`` is one of `EFFECTS`; ``seconds`` is its duration. A rule fires once, in the first
process and thread that reaches it. It then makes the file ``<control file>.<id>.fired``, which survives a kill. If the
file ``<control file>.passed`` exists, each point that is reached adds a line to it: daemon, blank, point.

Each point is passed twice, as ``<point>/before`` and, if what it is about succeeds, as ``<point>/after``. ``<x>`` is
the name of the function or RPC method. ``error`` means that the effect is supported at both::

    commit/<x>                       a transaction of the conductor; error: before
    handle/<x>                       an RPC method is served; after: its reply is not sent yet
    send/<x>                         a call or cast is sent; error; of a cast, before: drop, duplicate
    fence                            a compute host writes a revoked generation to disk
    network/<verb>                   a call of the network backend; error
    neutron/<method>/<what>          a request to Neutron (likewise cinder, glance); error
    image/<verb>                     a conductor's call of the image backend; error
    upload                           a compute host uploads an image file; error
    volume/<verb>                    a compute host works on the file of a volume
    snapshot                         a compute host makes an image file, or snapshots of volumes in use
    swap                             the driver replaces a volume
    domain/spawn, domain/destroy     the driver makes or destroys a domain
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

ENVIRONMENT = "NOVA_LITE_FAILPOINTS"
DAEMON = "NOVA_LITE_FAILPOINTS_DAEMON"

#: SIGKILL to the process.
KILL = "kill"
#: The whole process stops for ``seconds``.
PAUSE = "pause"
#: The thread stops for ``seconds``.
DELAY = "delay"
#: A message is not sent.
DROP = "drop"
#: A message is sent twice.
DUPLICATE = "duplicate"
#: The message or the commit is refused, as by a lost broker or a full database.
ERROR = "error"
#: The thread stops until there is a file ``<control file>.<id>.release``, for at most ``seconds``.
HOLD = "hold"
#: `check_disk` fails in this daemon for ``seconds``: no durable file can be written, and no disk of the fake driver.
FULL = "disk full"

EFFECTS = (KILL, PAUSE, DELAY, DROP, DUPLICATE, ERROR, HOLD, FULL)

#: Effects that a test has added in this process, by name. Each is called with its rule.
extra_effects: dict[str, Callable[[dict[str, Any]], None]] = {}

_control = os.environ.get(ENVIRONMENT)
_full_until = 0.0


def are_on() -> bool:
    """Check whether this process runs under a fault test."""
    return _control is not None


def reach(*point: str) -> str | None:
    """Run the fault that a test has armed for this point. Returns DROP, DUPLICATE or ERROR for the caller, or None."""
    if _control is None:
        return None
    name = "/".join(point)
    _note_passed(name)
    rule = _take_rule(name)
    if rule is None:
        return None
    effect: str = rule["effect"]
    if effect == KILL:
        os.kill(os.getpid(), signal.SIGKILL)
    if effect == PAUSE:
        _pause(float(rule["seconds"]))
    if effect == DELAY:
        time.sleep(float(rule["seconds"]))
    if effect == HOLD:
        _hold(rule)
    if effect == FULL:
        _fill_disk(float(rule["seconds"]))
    if effect in extra_effects:
        extra_effects[effect](rule)
    return effect if effect in (DROP, DUPLICATE, ERROR) else None


def check_disk() -> None:
    """Raise the OSError of a full disk while a test simulates one. To be called right before a write."""
    if time.monotonic() < _full_until:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _note_passed(point: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        passed = os.open(f"{_control}.passed", os.O_WRONLY | os.O_APPEND)
        try:
            os.write(passed, f"{os.environ.get(DAEMON, '')} {point}\n".encode())
        finally:
            os.close(passed)


def _take_rule(point: str) -> dict[str, Any] | None:
    """Return the first rule for this daemon and point that has not fired, and mark it as fired."""
    try:
        with open(str(_control)) as file:
            rules = json.load(file)
    except FileNotFoundError:
        return None
    daemon = os.environ.get(DAEMON, "")
    for rule in rules:
        if fnmatch.fnmatch(daemon, rule["daemon"]) and fnmatch.fnmatch(point, rule["point"]):
            with contextlib.suppress(FileExistsError):
                os.close(os.open(f"{_control}.{rule['id']}.fired", os.O_CREAT | os.O_EXCL, 0o600))
                return dict(rule)
    return None


def _pause(seconds: float) -> None:
    """Stop this process with SIGSTOP. A shell process continues it."""
    own = os.getpid()
    subprocess.Popen(["sh", "-c", f"sleep {seconds}; kill -CONT {own}"])
    os.kill(own, signal.SIGSTOP)


def _hold(rule: dict[str, Any]) -> None:
    deadline = time.monotonic() + float(rule["seconds"])
    while time.monotonic() < deadline and not os.path.exists(f"{_control}.{rule['id']}.release"):
        time.sleep(0.02)


def _fill_disk(seconds: float) -> None:
    global _full_until
    _full_until = time.monotonic() + seconds
