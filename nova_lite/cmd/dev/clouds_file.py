"""A ``clouds.yaml`` with the accounts of a cloud, for OpenStack's clients."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from typing import Any

import yaml

from nova_lite.base import exceptions, files
from nova_lite.cmd.dev.cloud import Account

#: Name of the cloud in which the user is admin. The names of others follow after a hyphen.
CLOUD = "nova-lite-dev"

_MARK = "# Written by nova-lite dev, which removes it at its end.\n"


def settings(url: str, accounts: Iterable[Account]) -> dict[str, dict[str, Any]]:
    """Return the settings of each account by the name of its cloud, the first account's first."""
    clouds: dict[str, dict[str, Any]] = {}
    for account in accounts:
        clouds[f"{CLOUD}-{account.user}" if clouds else CLOUD] = {
            "region_name": "RegionOne",
            "auth": {
                "auth_url": f"{url}/identity/v3",
                "username": account.user,
                "password": account.password,
                "project_name": account.project,
                "user_domain_id": "default",
                "project_domain_id": "default",
            },
        }
    return clouds


def check(path: str) -> None:
    """Raise `ConfigurationError` if the file is there and `write` did not make it."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            is_ours = file.readline() == _MARK
    except FileNotFoundError:
        return
    except OSError as error:
        raise exceptions.ConfigurationError(reason=f"{path} cannot be read: {error.strerror}.") from error
    if not is_ours:
        raise exceptions.ConfigurationError(reason=f"{path} exists and is not from nova-lite dev: name another file.")


def write(path: str, url: str, accounts: Iterable[Account]) -> None:
    """Write the file, readable by its owner only."""
    text = _MARK + yaml.safe_dump({"clouds": settings(url, accounts)}, sort_keys=False)
    try:
        directory, name = os.path.split(os.path.abspath(path))
        files.remove_unfinished(directory, name)
        files.write_atomically(os.path.join(directory, name), text.encode(), durable=False, writer=name)
    except OSError as error:
        raise exceptions.ConfigurationError(reason=f"{path} cannot be written: {error.strerror}.") from error


def remove(path: str) -> None:
    """Remove the file, unless another process has replaced it."""
    with contextlib.suppress(exceptions.ConfigurationError):
        check(path)
        files.remove(path)
