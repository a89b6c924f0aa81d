"""Parts of a database's URL, for programs outside of the conductor that write one into a file."""

from __future__ import annotations

from typing import NamedTuple


class DatabaseUrl(NamedTuple):
    """Parts of a URL. ``kind`` is sqlite, mysql, mariadb or postgresql; other parts may be missing."""

    kind: str
    user: str | None
    password: str | None
    database: str | None
    host: str | None
    port: int | None


def parse(text: str) -> DatabaseUrl:
    """Split a URL. Raises `ValueError` if it is none.

    SQLAlchemy is imported here only: set-ups of compute hosts, which do not have it, load this module.
    """
    from sqlalchemy import engine, exc

    try:
        url = engine.make_url(text)
    except exc.ArgumentError as error:
        raise ValueError("it is not a database URL") from error
    return DatabaseUrl(url.get_backend_name(), url.username, url.password, url.database, url.host, url.port)
