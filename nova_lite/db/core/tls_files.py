"""Files that ``[database] connection`` names for TLS: they are there, and no other user can replace or read the
keys."""

from __future__ import annotations

import os
from collections.abc import Iterator

import sqlalchemy as sa

from nova_lite.base import key_files

#: Parameters of MariaDB's and PostgreSQL's drivers that name a file or a directory without secrets, and with secrets.
_PUBLIC = ("ssl_ca", "ssl_cert", "ssl_capath", "sslrootcert", "sslcert", "sslcrl", "sslcrldir")
_SECRET = ("ssl_key", "sslkey", "passfile", "read_default_file")

#: Values of parameters that are no files: libpq then uses the authorities of the machine.
_NO_FILES = {("sslrootcert", "system")}


def check(url: sa.URL) -> None:
    """Raise `ConfigurationError`, with one line for the operator, unless the files of a database URL can be trusted."""
    for name, path in _named(url):
        option, owners = f"[database] connection, {name}", key_files.owners_of(path)
        if name in _SECRET:
            hidden_from, chmod = (0o077, "0600") if _is_own_alone(name, path) else (0o007, "0640")
            key_files.check(path, option, hidden_from=hidden_from, chmod=chmod, owners=owners)
        else:
            key_files.check(path, option, owners=owners)


def _is_own_alone(name: str, path: str) -> bool:
    """Check whether libpq, too, refuses the file if its group can read it. A key of root's it accepts."""
    return name == "passfile" or (name == "sslkey" and os.path.exists(path) and os.stat(path).st_uid != 0)


def _named(url: sa.URL) -> Iterator[tuple[str, str]]:
    """Yield the parameters that name files, with each of their paths."""
    for name in (*_PUBLIC, *_SECRET):
        for path in url.normalized_query.get(name, ()):
            if path and (name, path) not in _NO_FILES:
                yield name, path
