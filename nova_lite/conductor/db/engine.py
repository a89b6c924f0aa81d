"""Connections, transactions and the database's clock.

`Database.write` runs one function in one transaction and commits it, again from the start when the database asks for
that (a deadlock, a lost connection before the commit). `Database.read` is the same without locks. A database that is
away raises `DatabaseUnavailable`.
"""

from __future__ import annotations

import datetime
import logging
import operator
import random
import time
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

import sqlalchemy as sa
from oslo_config import cfg
from sqlalchemy import exc, orm
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from nova_lite import exception, hooks
from nova_lite.objects import HostState

LOG = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

MAX_TRIES = 5

#: Error codes that mean "nothing was done, try again": MariaDB deadlock and lock timeout, PostgreSQL's 40001, 40P01.
_RETRY_CODES = {1205, 1213, "40001", "40P01", "55P03"}


class utcnow(FunctionElement[datetime.datetime]):
    """The database's clock, naive UTC with sub-second digits."""

    inherit_cache = True
    type = sa.DateTime()


@compiles(utcnow, "sqlite")
def _utcnow_sqlite(element: Any, compiler: Any, **kw: Any) -> str:
    return "strftime('%Y-%m-%d %H:%M:%f000', 'now')"


@compiles(utcnow, "mysql")
@compiles(utcnow, "mariadb")
def _utcnow_mysql(element: Any, compiler: Any, **kw: Any) -> str:
    return "UTC_TIMESTAMP(6)"


@compiles(utcnow, "postgresql")
def _utcnow_postgresql(element: Any, compiler: Any, **kw: Any) -> str:
    return "(clock_timestamp() AT TIME ZONE 'utc')"


class later(FunctionElement[datetime.datetime]):
    """The database's clock, so many seconds ahead."""

    inherit_cache = True
    type = sa.DateTime()

    def __init__(self, seconds: float) -> None:
        super().__init__(sa.literal(seconds, sa.Integer if isinstance(seconds, int) else sa.Float))


@compiles(later, "sqlite")
def _later_sqlite(element: Any, compiler: Any, **kw: Any) -> str:
    return f"strftime('%Y-%m-%d %H:%M:%f000', 'now', {compiler.process(element.clauses, **kw)} || ' seconds')"


@compiles(later, "mysql")
@compiles(later, "mariadb")
def _later_mysql(element: Any, compiler: Any, **kw: Any) -> str:
    return f"(UTC_TIMESTAMP(6) + INTERVAL {compiler.process(element.clauses, **kw)} SECOND)"


@compiles(later, "postgresql")
def _later_postgresql(element: Any, compiler: Any, **kw: Any) -> str:
    return f"(clock_timestamp() AT TIME ZONE 'utc' + {compiler.process(element.clauses, **kw)} * interval '1 second')"


class UnitOfWork:
    """One transaction: its session, the options, the database's time, and what others have to hear after it.

    ``touched_nodes``: ids of compute nodes that were changed; ``deleted_nodes``: the last state of those that are gone;
    ``admissions``: of hosts that something was claimed of, what their registration is called. ``after_commit``:
    functions to call once it is committed.
    """

    def __init__(self, session: orm.Session, conf: cfg.ConfigOpts) -> None:
        self.session = session
        self.conf = conf
        self.touched_nodes: set[int] = set()
        self.deleted_nodes: dict[int, HostState] = {}
        self.admissions: dict[str, str] = {}
        self.after_commit: list[Callable[[], None]] = []
        self._now: datetime.datetime | None = None

    @property
    def now(self) -> datetime.datetime:
        """The database's time when it was first asked for, the same to the end of the transaction."""
        if self._now is None:
            self._now = self.session.execute(sa.select(utcnow())).scalar_one()
        return self._now

    def timed(self, query: sa.Select[T]) -> list[T]:
        """All that ``query`` finds. They bring the time along, so that `now` needs no statement of its own."""
        return [row[0] for row in self.timed_rows(query)]

    def timed_rows(self, query: Any) -> list[Any]:
        """`timed`, of a query for several things together: a row for each of the first."""
        if self._now is not None:
            return list(self.session.execute(query).unique(operator.itemgetter(0)))
        found = self.session.execute(query.add_columns(utcnow())).unique(operator.itemgetter(0)).all()
        if found:
            self._now = found[0][-1]
        return [row[:-1] for row in found]

    def change(self, statement: sa.Update | sa.Delete) -> int:
        """Run a conditional update (or delete) and return how many rows it met.

        Rows read before are not refreshed, and what was changed of them is not written first: it is not about those.
        """
        return self.session.connection().execute(statement).rowcount


class Database:
    """``before_commit(uow)`` is called at the end of each write, inside its transaction (see `manager`)."""

    def __init__(self, conf: cfg.ConfigOpts, before_commit: Callable[[UnitOfWork], None] | None = None) -> None:
        self.conf = conf
        self.engine = create_engine(conf)
        self.sessions = orm.sessionmaker(self.engine, expire_on_commit=False)
        self.before_commit = before_commit

    @property
    def is_sqlite(self) -> bool:
        return self.engine.dialect.name == "sqlite"

    def write(self, func: Callable[Concatenate[UnitOfWork, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """``func(uow, *args, **kwargs)`` in one transaction. It may run more than once, so all it does is SQL."""

        name = getattr(func, "__name__", "").lstrip("_")

        def attempt() -> T:
            with self.sessions() as session, session.begin():
                uow = UnitOfWork(session, self.conf)
                result = func(uow, *args, **kwargs)
                if self.before_commit is not None:
                    session.flush()
                    self.before_commit(uow)
                if hooks.reach("commit", name, "before") == hooks.ERROR:
                    raise exc.OperationalError(f"COMMIT of {name}", None, Exception("a test refuses it"))
            hooks.reach("commit", name, "after")
            for hook in uow.after_commit:
                hook()
            return result

        return self._retrying(attempt)

    def write_once_more(self, func: Callable[Concatenate[UnitOfWork, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`write`; what finds that somebody else was writing the same at the same time reads it the second time."""
        try:
            return self.write(func, *args, **kwargs)
        except exc.IntegrityError:
            return self.write(func, *args, **kwargs)

    def read(self, func: Callable[Concatenate[UnitOfWork, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """``func(uow, *args, **kwargs)`` on one consistent snapshot, taking no write lock."""

        def attempt() -> T:
            with self.engine.connect() as connection:
                connection = connection.execution_options(nova_lite_readonly=True)
                with orm.Session(connection) as session:
                    return func(UnitOfWork(session, self.conf), *args, **kwargs)

        return self._retrying(attempt)

    def _retrying(self, attempt: Callable[[], T]) -> T:
        tries = 0
        while True:
            tries += 1
            try:
                return attempt()
            except exc.DBAPIError as error:
                if tries >= MAX_TRIES or not (code_of(error) in _RETRY_CODES or error.connection_invalidated):
                    raise
                LOG.info("Transaction is run again (%d of %d): %s", tries, MAX_TRIES, error.orig)
                time.sleep(random.uniform(0.01, 0.05) * 2**tries)

    def ping(self) -> None:
        """Raises `DatabaseUnavailable` when the database cannot be reached."""
        try:
            with self.engine.connect() as connection:
                connection.execute(sa.select(sa.literal(1)))
        except exc.SQLAlchemyError as error:
            raise unavailable(error) from error

    def close(self) -> None:
        self.engine.dispose()


def create_engine(conf: cfg.ConfigOpts) -> sa.Engine:
    """An engine for ``[database] connection``, with the settings each kind of database needs here."""
    # An error names the statement and not what it was given: passwords and user data are among that.
    options: dict[str, Any] = {"pool_pre_ping": True, "pool_reset_on_return": None, "hide_parameters": True}
    try:
        url = sa.make_url(conf.database.connection)
    except exc.ArgumentError as error:
        raise exception.ConfigurationError(
            reason="[database] connection is not a database URL (sqlite:////path, mysql+pymysql://user:password@host/"
            "name or postgresql+psycopg://user:password@host/name)."
        ) from error
    kind = url.get_backend_name()
    # Opening one costs more than most of what is asked of it (20 ms of CPU with TLS), so none is opened for one use.
    options.update(pool_size=conf.database.pool_size, max_overflow=0, pool_use_lifo=True)
    if kind == "sqlite":
        options["connect_args"] = {"timeout": conf.database.busy_timeout, "check_same_thread": False}
    else:
        options["pool_recycle"] = 1800
        options["isolation_level"] = "READ COMMITTED"
        if kind in ("mysql", "mariadb"):
            options["connect_args"] = {
                "connect_timeout": 5,
                "init_command": f"SET innodb_lock_wait_timeout={conf.database.busy_timeout}",
            }
        elif kind == "postgresql":
            options["connect_args"] = {
                "connect_timeout": 5,
                "options": f"-c lock_timeout={conf.database.busy_timeout}s",
            }
    try:
        engine = sa.create_engine(url, **options)
    except (exc.ArgumentError, exc.NoSuchModuleError, ImportError) as error:
        raise exception.ConfigurationError(reason=f"[database] connection cannot be used: {error}") from error
    _reset_quietly(engine)
    if kind == "sqlite":
        _set_up_sqlite(engine)
    return engine


def _reset_quietly(engine: sa.Engine) -> None:
    """Roll back a connection that returns to the pool; one that broke meanwhile is dropped with one line (the pool
    itself would log a traceback, and whoever needs a connection next is told anyway)."""

    @sa.event.listens_for(engine, "reset")
    def on_reset(connection: Any, record: Any, state: Any) -> None:
        if state.transaction_was_reset:
            return
        try:
            connection.rollback()
        except engine.dialect.loaded_dbapi.Error as error:
            LOG.warning("A connection to the database broke: %s", " ".join(str(error).split()))
            record.invalidate(error)


def _set_up_sqlite(engine: sa.Engine) -> None:
    """WAL, real foreign keys, and transactions that take the write lock at their start (readers: no lock)."""

    @sa.event.listens_for(engine, "connect")
    def on_connect(connection: Any, record: Any) -> None:
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.close()

    @sa.event.listens_for(engine, "begin")
    def on_begin(connection: sa.Connection) -> None:
        readonly = connection.get_execution_options().get("nova_lite_readonly", False)
        connection.exec_driver_sql("BEGIN" if readonly else "BEGIN IMMEDIATE")


def unavailable(error: Exception) -> exception.DatabaseUnavailable:
    """Ours for a lost database; the cause is logged in one line, without the statement's parameters."""
    cause = getattr(error, "orig", None) or error
    LOG.warning("The database is unavailable: %s", " ".join(str(cause).split()))
    return exception.DatabaseUnavailable()


def translate(error: Exception) -> Exception:
    """For `rpc.Endpoint`: errors that mean "the database is away" become `DatabaseUnavailable`, and those that mean
    "this value does not fit" `InvalidInput`."""
    if isinstance(error, exc.InterfaceError | exc.OperationalError | exc.TimeoutError | exc.DisconnectionError):
        return unavailable(error)
    if isinstance(error, exc.DBAPIError) and error.connection_invalidated:
        return unavailable(error)
    if isinstance(error, exc.DataError | UnicodeEncodeError | OverflowError):
        return exception.InvalidInput(reason="a value is too long, too large or has characters that cannot be stored")
    return error


def code_of(error: exc.DBAPIError) -> Any:
    """The database's own: MariaDB's number (newer PyMySQL has an SQLSTATE as well, which says less), PostgreSQL's
    SQLSTATE; None if it tells none."""
    original = error.orig
    first = original.args[0] if original is not None and original.args else None
    return first if isinstance(first, int) else getattr(original, "sqlstate", None) or first
