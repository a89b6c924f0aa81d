"""Other programs that operators' tools run. Their arguments are validated by the caller, and never pass a shell."""

from __future__ import annotations

import subprocess
from collections.abc import Collection
from typing import Any

from nova_lite.base import exceptions


def run(*command: str, given: str = "", seconds: float | None, accepted: Collection[int] = (0,), **options: Any) -> str:
    """Run a program with ``given`` as its input, and return its output. ``options``: further ones of `subprocess.run`.

    Raises `ConfigurationError` with the last line of its errors, unless its exit status is an ``accepted`` one.
    """
    try:
        done = subprocess.run(
            command,
            input=given,
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
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise exceptions.ConfigurationError(reason=f"{command[0]} failed: {lines[-1] if lines else done.returncode}")
    return str(done.stdout)
