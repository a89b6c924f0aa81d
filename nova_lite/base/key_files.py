"""Checks of files with keys: only root and the daemon's own user can replace them.

Who may write a directory may replace the files in it. So all directories on the way to the file count, too. A symbolic
link has two ways: to the link, and to the file.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator
from typing import Any

from nova_lite.base import exceptions

_WRITABLE = stat.S_IWGRP | stat.S_IWOTH


def check(
    path: str, option: str, *, hidden_from: int = 0, chmod: str = "0644", owners: Collection[int] | None = None
) -> None:
    """Raise `ConfigurationError`, with one line for the operator, unless the file can be trusted.

    ``option`` names it in the error. ``hidden_from``: permissions that the file must not have besides those to write;
    ``chmod``: the mode to advise. ``owners``: accepted owners; default: root and the user of this process.
    """
    accepted = {0, os.geteuid()} if owners is None else {0, *owners}
    try:
        status = os.stat(path)
        ancestors = [(directory, os.stat(directory)) for directory in _directories(path)]
    except OSError as error:
        raise _refusal(option, f"{error.filename}: {error.strerror}") from error
    mode = stat.S_IMODE(status.st_mode)
    if mode & _WRITABLE:
        raise _refusal(option, f"{path} can be written by others (mode {mode:04o}): chmod {chmod}")
    if mode & hidden_from:
        raise _refusal(option, f"{path} can be read by others (mode {mode:04o}): chmod {chmod}")
    if status.st_uid not in accepted:
        raise _refusal(option, f"{path} belongs to user {status.st_uid}: only root or the daemon's user may own it")
    for directory, found in ancestors:
        _check_directory(option, directory, found, accepted)


def check_tls_client(
    options: Any, group: str, authority: str = "cafile", certificate: str = "certfile", key: str = "keyfile"
) -> None:
    """Check the files of a TLS client, as far as they are set. ``options``: the section ``group``.

    Who can replace the authority's certificate can pass for the server.
    """
    for name in (authority, certificate):
        if options[name]:
            check(options[name], f"[{group}] {name}")
    if options[key]:
        check(options[key], f"[{group}] {key}", hidden_from=0o007, chmod="0640")


def owners_of(path: str) -> set[int] | None:
    """Return the accepted owners of a daemon's file that root may also read for the operator. None: the default.

    The daemon's user owns the directory of such a file. A file that root has just made there may still be root's.
    """
    if os.geteuid() != 0:
        return None
    return {os.stat(item).st_uid for item in (path, os.path.dirname(os.path.abspath(path))) if os.path.exists(item)}


def _check_directory(option: str, path: str, status: os.stat_result, accepted: Collection[int]) -> None:
    """Raise unless only the accepted owners can replace what is in the directory. Others cannot if it is sticky."""
    mode = stat.S_IMODE(status.st_mode)
    if mode & _WRITABLE and not mode & stat.S_ISVTX:
        raise _refusal(option, f"directory {path} can be written by others (mode {mode:04o}): chmod go-w")
    if status.st_uid not in accepted:
        raise _refusal(
            option, f"directory {path} belongs to user {status.st_uid}: only root or the daemon's user may own it"
        )


def _directories(path: str) -> Iterator[str]:
    """Yield the directories above the file, as it is named and as it is without symbolic links, each once."""
    seen = set()
    for name in (os.path.abspath(path), os.path.realpath(path)):
        while (name := os.path.dirname(name)) not in seen:
            seen.add(name)
            yield name


def _refusal(option: str, why: str) -> exceptions.ConfigurationError:
    return exceptions.ConfigurationError(reason=f"{option}: {why}")
