"""``[database]``: read by the conductor and by ``nova-lite-manage`` only; no other host needs it in its file."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg

OPTS = [
    cfg.StrOpt(
        "connection",
        secret=True,
        default="sqlite:////var/lib/nova-lite/nova-lite.sqlite",
        help=(
            "SQLAlchemy URL: sqlite:////path (one conductor process), mysql://user:password@host/name "
            "or postgresql+psycopg://user:password@host/name. The driver of mysql:// is mysqlclient, or PyMySQL where "
            "that is not installed. The driver of mysql+pymysql:// is PyMySQL. If the URL has ssl_ca or its like, "
            "mysqlclient verifies the server's name, too."
        ),
    ),
    cfg.IntOpt(
        "pool_size",
        default=32,
        min=1,
        help=(
            "Largest number of database connections of a conductor; they stay open. The database has to "
            "accept this number from each conductor."
        ),
    ),
    cfg.IntOpt(
        "read_timeout",
        default=15,
        min=0,
        help=(
            "Seconds after which the database ends a read of a conductor. The request fails with status 503 and asks "
            "for less. Less than the 20 s for which an API waits. With PostgreSQL it holds for each statement of a "
            "write, too. Raise it if the log reports queries of periodic tasks. 0: no limit."
        ),
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group="database")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"database": OPTS}
