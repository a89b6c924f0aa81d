"""Other programs that operators' tools run. Their arguments are validated by the caller, and never pass a shell."""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Collection
from typing import Any

from nova_lite.base import exceptions

#: Path by which a program opens its input.
INPUT = "/dev/stdin"


def run(*command: str, given: str = "", seconds: float | None, accepted: Collection[int] = (0,), **options: Any) -> str:
    """Run a program with ``given`` as its input, and return its output. ``options``: further ones of `subprocess.run`.

    The input is a file in memory, so that any user's program can open it as `INPUT`.
    Raises `ConfigurationError` with the cause that it printed, unless its exit status is an ``accepted`` one.
    """
    try:
        with open(os.memfd_create("input"), "w+", encoding="utf-8") as file:
            file.write(given)
            file.seek(0)
            done = subprocess.run(
                command,
                stdin=file,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=seconds,
                check=False,
                **options,
            )
    except FileNotFoundError as error:
        raise exceptions.ConfigurationError(reason=f"the program {command[0]} is missing on this machine.") from error
    except subprocess.TimeoutExpired as error:
        raise exceptions.ConfigurationError(reason=f"{command[0]} did not end within {seconds:.0f} s.") from error
    if done.returncode not in accepted:
        cause = _cause(done.stderr) or _cause(done.stdout) or f"status {done.returncode}"
        raise exceptions.ConfigurationError(reason=f"{command[0]} failed: {cause}")
    return str(done.stdout)


def _cause(text: str) -> str:
    """Return the cause in a program's output as one line: by default the last one.

    rabbitmqctl begins with the cause, and ends with its own name and the hash of its cookie. It cannot reach the broker
    for reasons that it lists below DIAGNOSTICS.
    """
    lines = [line.strip() for line in text.strip().splitlines()]
    first = next((number for number, line in enumerate(lines) if line.startswith("Error")), None)
    if first is None:
        return lines[-1] if lines else ""
    cause = itertools.takewhile(bool, lines[first:])
    found = itertools.takewhile(
        lambda line: not line.startswith("Current node details"),
        itertools.dropwhile(lambda line: line != "DIAGNOSTICS", lines),
    )
    return " ".join([*cause, *(line for line in found if line.startswith("* "))])
