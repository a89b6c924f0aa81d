"""The interface of a fence agent, and what agents share."""

from __future__ import annotations

import abc
import enum
import os
import re
import stat
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from nova_lite.base import exceptions

#: Names and addresses that may be arguments of programs. None begins with a hyphen.
WORD = r"[A-Za-z0-9_.:\[\]%][A-Za-z0-9_.:\[\]%@-]{0,253}"


class Power(enum.StrEnum):
    """Power of a host, as its agent reads it."""

    ON = "on"
    OFF = "off"


class FenceAgent(abc.ABC):
    """A way to switch one host off. ``settings``: its own part of the file of fencing.

    ``OPTIONS``: names of settings, each with the pattern of its values. ``REQUIRED``: names of needed settings.

    Both calls take at most about ``seconds``. They raise `FenceFailed` if the agent or its device fails.
    """

    OPTIONS: ClassVar[dict[str, str]] = {}
    REQUIRED: ClassVar[tuple[str, ...]] = ()

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Check the settings. Raises `ConfigurationError`."""
        name = type(self).__name__
        unknown = sorted(set(settings) - set(self.OPTIONS))
        if unknown:
            known = ", ".join(sorted(self.OPTIONS))
            raise exceptions.ConfigurationError(reason=f"{name} has no setting {unknown[0]}. Known are {known}.")
        missing = sorted(set(self.REQUIRED) - set(settings))
        if missing:
            raise exceptions.ConfigurationError(reason=f"{name} needs the setting {missing[0]}.")
        for key, value in settings.items():
            if re.fullmatch(self.OPTIONS[key], str(value)) is None:
                raise exceptions.ConfigurationError(reason=f"{name}: the value of {key} is wrong.")
        self.settings = {key: str(value) for key, value in settings.items()}

    @abc.abstractmethod
    def off(self, seconds: float) -> None:
        """Cut the power. Its return proves nothing."""

    @abc.abstractmethod
    def power(self, seconds: float) -> Power:
        """Read the power from the device."""


def secret(path: str) -> str:
    """Return the first line of a file that only its owner may read. Raises `ConfigurationError`."""
    return private_text(path).partition("\n")[0]


def private_text(path: str) -> str:
    """Return the content of a file that others may not read. Raises `ConfigurationError`."""
    check_private(path)
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except PermissionError as error:
        raise exceptions.ConfigurationError(
            reason=f"{path} cannot be read by this user: set its owner to root, its group to that of the conductor "
            "(nova-lite-conductor), and its mode to 0640."
        ) from error
    except (OSError, ValueError) as error:
        raise exceptions.ConfigurationError(reason=f"{path} cannot be read: {error}") from error


def check_private(path: str) -> None:
    """Raise `ConfigurationError` unless a file belongs to root or this user, and others may neither read nor change
    it."""
    try:
        found = os.stat(path)
    except OSError as error:
        raise exceptions.ConfigurationError(reason=f"{path} cannot be read: {error.strerror}") from error
    if found.st_uid not in (0, os.geteuid()) or stat.S_IMODE(found.st_mode) & 0o037:
        raise exceptions.ConfigurationError(
            reason=f"{path} has power over hosts, and others may read or change it: set its owner to root, its group "
            "to that of the conductor (nova-lite-conductor), and its mode to 0640."
        )


def run(command: Sequence[str], seconds: float, environment: Mapping[str, str] | None = None) -> str:
    """Run a program, and return its output. Raises `FenceFailed` with the last line of its errors."""
    try:
        done = subprocess.run(
            list(command),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **(environment or {})},
        )
    except FileNotFoundError as error:
        raise exceptions.FenceFailed(reason=f"the program {command[0]} is missing on this machine") from error
    except PermissionError as error:
        raise exceptions.FenceFailed(reason=f"the program {command[0]} cannot be run") from error
    except subprocess.TimeoutExpired as error:
        raise exceptions.FenceFailed(reason=f"{command[0]} did not end within {seconds:.0f} s") from error
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise exceptions.FenceFailed(reason=f"{command[0]} failed: {lines[-1] if lines else done.returncode}")
    return done.stdout
