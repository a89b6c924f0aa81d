"""Keys for the daemons of a test's cloud."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from pathlib import Path

from nova_lite.base import files
from nova_lite.rpc import keys
from nova_lite.rpc.keys import PrivateKey


def make(directory: Path, daemons: Iterable[tuple[str, str]]) -> None:
    """Create a trusted key for each (role, host), valid since a while ago."""
    directory.mkdir(exist_ok=True)
    trusted = []
    for role, host in sorted(set(daemons)):
        key = PrivateKey.generate()
        files.write_atomically(keys.private_path(str(directory), role, host), key.pem(), durable=False)
        trusted.append(key.trusted(role, host, keys.now() - datetime.timedelta(hours=2)))
    keys.write_trusted(str(directory / keys.TRUSTED), trusted)
