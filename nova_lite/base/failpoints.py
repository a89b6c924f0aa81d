"""Named points at which a test can have a daemon killed, held up, or its message lost, doubled or refused.

Nothing happens unless ``NOVA_LITE_HOOKS`` names a control file, which only tests do. The file is a JSON list of rules::

    [{"id": "1", "daemon": "conductor", "point": "commit/finish_build/after", "effect": "kill"}]

``daemon``: what ``NOVA_LITE_HOOKS_DAEMON`` says of the process, and ``point``, are shell patterns; ``effect``: one of
`EFFECTS`; ``seconds``: for those that last. A rule fires once, in whichever process and thread comes first; that it did
is the file ``<control file>.<id>.fired``, which outlives the kill. While there is a file ``<control file>.passed``,
each point that is passed becomes a line there: daemon, a blank, point.

Points (``<x>``: the name of the function or RPC method)::

    commit/<x>/before, commit/<x>/after     a transaction of the conductor; before: error
    handle/<x>/before, handle/<x>/after     an RPC method is carried out; after: before its answer is sent
    send/<x>/before, send/<x>/after         a call or cast leaves; before: drop, duplicate, error
    fence/before, fence/after               a compute host writes one of its promises to disk
    network/<verb>/before, network/<verb>/after    a call to the network service; after: it has done it; either: error
    cinder/<method>/<what>/before, …/after, neutron/<method>/<what>/before, …/after    a request to Cinder, to Neutron
                                                   (``cinder/post/attachments``); after: it has done it; either: error
    image/<verb>/before, image/<verb>/after        the image backend is told; after: it has done it; either: error
    snapshot/before, snapshot/after, upload/after  a compute host makes an image file; it has uploaded it
    domain/spawn/after, domain/destroy/before, domain/destroy/after
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

ENVIRONMENT = "NOVA_LITE_HOOKS"
DAEMON = "NOVA_LITE_HOOKS_DAEMON"

KILL = "kill"
PAUSE = "pause"
DELAY = "delay"
DROP = "drop"
DUPLICATE = "duplicate"
ERROR = "error"
HOLD = "hold"
FULL = "disk full"

#: kill: SIGKILL to the own process. pause: the whole process stands still for some seconds (a zombie that comes back).
#: delay: only this thread does; hold: until there is a file ``<control file>.<id>.release``, or ``seconds`` are over.
#: drop, duplicate: a message. error: the message or the commit is refused, as by a lost broker or a full database. disk
#: full: for ``seconds``, nothing can be written by this daemon where it asks `check_disk`.
EFFECTS = (KILL, PAUSE, DELAY, DROP, DUPLICATE, ERROR, HOLD, FULL)

#: Effects that a test has added in this process: what is to be done with the rule.
added: dict[str, Callable[[dict[str, Any]], None]] = {}

_control = os.environ.get(ENVIRONMENT)
_full_until = 0.0


def reach(*point: str) -> str | None:
    """Come to a point; returns DROP, DUPLICATE or ERROR for the caller to act on, else None."""
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
    if effect in added:
        added[effect](rule)
    return effect if effect in (DROP, DUPLICATE, ERROR) else None


def check_disk() -> None:
    """Right before something is written: raises OSError as a full disk does, while a test says that it is."""
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
    """The first rule for this daemon and point that has not fired, marked as fired."""
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
                found: dict[str, Any] = rule
                return found
    return None


def _pause(seconds: float) -> None:
    """Stop this process as a whole; another one wakes it up again."""
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
