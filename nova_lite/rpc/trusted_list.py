"""Changes of the list of trusted keys, on its machine: by ``nova-lite-manage keys``, and by the registrar."""

from __future__ import annotations

import base64
import contextlib
import datetime
import os
from collections.abc import Iterator, Sequence

from nova_lite.base import exceptions, files, join_requests
from nova_lite.rpc import keys
from nova_lite.rpc.keys import TrustedKey

#: Seconds for which a replaced key stays trusted, because its messages may be on their way.
OVERLAP = join_requests.KEY_OVERLAP


def trust_host(directory: str, role: str, host: str, public: str, previous: str | None = None) -> None:
    """Trust a daemon's key that was made on its machine. ``public``: in base64. May be repeated.

    ``previous``: the key that it replaces, which ends after `OVERLAP`. Raises `ConfigurationError` while a third key of
    that daemon is trusted.
    """
    raw = base64.b64decode(public)
    entry = TrustedKey(id=keys.key_id(raw), role=role, host=host, key=public, not_before=keys.now())
    with changing(directory) as trusted:
        now = keys.now()
        trusted[:] = [item for item in trusted if item.host != host or item.is_valid(now.timestamp())]
        others = [
            item.id
            for item in trusted
            if (item.role, item.host) == (role, host) and item.key not in (public, previous) and item.not_after is None
        ]
        if others:
            raise exceptions.ConfigurationError(
                reason=f"another key of {entry.peer} is trusted: nova-lite-manage keys revoke {others[0]}"
            )
        if all(item.id != entry.id for item in trusted):
            trusted.append(entry)
        for item in trusted:
            if item.key == previous and item.not_after is None:
                item.not_after = now + datetime.timedelta(seconds=OVERLAP)


def distrust_host(directory: str, roles: Sequence[str], host: str) -> None:
    """Revoke the keys of a host's daemons. May be repeated."""
    with changing(directory) as trusted:
        trusted[:] = [item for item in trusted if item.host != host or item.role not in roles]


def read(directory: str) -> list[TrustedKey]:
    path = os.path.join(directory, keys.TRUSTED)
    try:
        is_there = files.exists(path)
    except OSError as error:
        raise exceptions.ConfigurationError(reason=f"{path}: {error.strerror}") from error
    return keys.read_trusted(path) if is_there else []


@contextlib.contextmanager
def changing(directory: str) -> Iterator[list[TrustedKey]]:
    """Lock the list for changes and yield it. It is written if the block succeeds."""
    os.makedirs(directory, mode=0o755, exist_ok=True)
    with files.locked_directory(directory):
        trusted = read(directory)
        yield trusted
        keys.write_trusted(os.path.join(directory, keys.TRUSTED), trusted)
