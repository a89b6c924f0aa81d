"""Connections, transactions and the database's clock.

`Database.write` runs one function in one transaction and commits it, again from the start when the database asks for
that (a deadlock, a lost connection before the commit). `Database.read` is the same without locks. A database that is
away raises `DatabaseUnavailable`.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import json
import logging
import operator
import random
import threading
import time
from collections.abc import Callable, Hashable
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeAlias, TypeVar

import msgspec
import sqlalchemy as sa
from oslo_config import cfg
from sqlalchemy import exc, orm
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from nova_lite.base import exceptions, failpoints, metrics
from nova_lite.db.errors import is_away
from nova_lite.objects import HostState

LOG = logging.getLogger(__name__)

P = ParamSpec("P")
Q = TypeVar("Q")
T = TypeVar("T")

#: In a condition: a moment, or a parameter of a statement that is made once.
Time: TypeAlias = "datetime.datetime | sa.BindParameter[datetime.datetime]"

MAX_TRIES = 5

#: Seconds for which a connection is not asked whether it is there still after it was used.
IDLE = 1.0

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


@functools.cache
def _with_time(query: Any) -> Any:
    """``query``, which is made once, with the time. To make it again, and to find what was compiled for it before,
    would cost more than to run it."""
    return query.add_columns(utcnow())


_NOW = sa.select(utcnow())

#: Nobody asks a row for a column of the statement, only for a place or a name. SQLAlchemy's session says so, too: else
#: the columns of a statement that is made anew are compared, each time, with those of the one that was compiled.
_BY_NAME = {"_result_disable_adapt_to_context": True}


class ClaimedHost(NamedTuple):
    """A host that something is claimed of: its zone, its nodes' ids by their names, and what its registration is
    called."""

    zone: str
    nodes: dict[str, int]
    admission: str


class UnitOfWork:
    """One transaction: its session, the options, the database's time, and what others have to hear after it.

    ``touched_nodes``: ids of compute nodes that were changed; ``freed_nodes``: of those that got a place back;
    ``deleted_nodes``: the last state of those that are gone; ``tell_at_once``: whoever has changed them counts on it
    that the next create respects that.
    ``hosts``: those that something is claimed of, locked; None for one that is not up. ``after_commit``: functions to
    call once it is committed. ``refiltered_projects``, ``refiltered_instances``: whose security groups, or
    whose interfaces, were changed. ``cinder_news``: ids of rows about which Cinder has to be told something.
    """

    def __init__(self, session: orm.Session | sa.Connection, conf: cfg.ConfigOpts) -> None:
        """A connection gets a session only if one is asked for."""
        self._session = session if isinstance(session, orm.Session) else None
        self._connection = session if isinstance(session, sa.Connection) else None
        self.conf = conf
        self.touched_nodes: set[int] = set()
        self.freed_nodes: set[int] = set()
        self.deleted_nodes: dict[int, HostState] = {}
        self.tell_at_once = False
        self.hosts: dict[str, ClaimedHost | None] = {}
        self.after_commit: list[Callable[[], None]] = []
        self.refiltered_projects: set[str] = set()
        self.refiltered_instances: set[str] = set()
        self.cinder_news: set[str] = set()
        self._now: datetime.datetime | None = None
        self._known: dict[Hashable, Any] = {}

    @property
    def session(self) -> orm.Session:
        if self._session is None:
            self._session = orm.Session(self._connection)
        return self._session

    def close(self) -> None:
        """The session, where one was made of a connection."""
        if self._session is not None and self._connection is not None:
            self._session.close()

    def rows(self, query: Any, values: dict[str, Any] | None = None) -> Any:
        """What ``query`` finds of columns, as the connection has it: a session, which would have to be asked whether it
        has such objects, takes twice as long to say that it has not. What was changed before is written first."""
        if self._connection is not None and self._session is None:
            return self._connection.execute(query, values, execution_options=_BY_NAME)
        self.session.flush()
        return self.session.connection().execute(query, values, execution_options=_BY_NAME)

    @property
    def now(self) -> datetime.datetime:
        """The database's time when it was first asked for, the same to the end of the transaction."""
        if self._now is None:
            self._now = self.rows(_NOW).scalar_one()
        return self._now

    def timed(self, query: sa.Select[T], values: dict[str, Any] | None = None) -> list[T]:
        """All that ``query`` finds. They bring the time along, so that `now` needs no statement of its own. ``values``:
        of its parameters, for one that is made once; `timed_rows`, too."""
        return [row[0] for row in self.timed_rows(query, values)]

    def timed_rows(self, query: Any, values: dict[str, Any] | None = None) -> list[Any]:
        """`timed`, of a query for several things together: a row for each of the first."""
        if self._now is not None:
            return list(self.session.execute(query, values).unique(operator.itemgetter(0)))
        timed = query.add_columns(utcnow()) if values is None else _with_time(query)
        found = self.session.execute(timed, values).unique(operator.itemgetter(0)).all()
        if found:
            self._now = found[0][-1]
        return [row[:-1] for row in found]

    def once(
        self, key: Hashable, ask: Callable[[], T], asker: Hashable = None, is_everybodys: Callable[[T], bool] = bool
    ) -> T:
        """``ask()``, or what it has said for ``key`` earlier in this transaction: for what several that are written
        together all read, and none of them changes. Not for what is locked, or counted. ``asker``: who sees what was
        said; others do if ``is_everybodys`` says so of it."""
        known = next((each for each in ((key, asker), (key, None)) if each in self._known), None)
        if known is None:
            found = ask()
            known = key, None if asker is not None and is_everybodys(found) else asker
            self._known[known] = found
        answer: T = self._known[known]
        return answer

    def change(self, statement: sa.Update | sa.Delete, values: dict[str, Any] | None = None) -> int:
        """Run a conditional update (or delete) and return how many rows it met. ``values``: of its parameters.

        Rows read before are not refreshed, and what was changed of them is not written first: it is not about those.
        """
        return self.session.connection().execute(statement, values).rowcount


class Database:
    """``before_commit(uow)`` is called at the end of each write, inside its transaction (see `manager`)."""

    def __init__(self, conf: cfg.ConfigOpts, before_commit: Callable[[UnitOfWork], None] | None = None) -> None:
        self.conf = conf
        self.engine = create_engine(conf)
        self.sessions = orm.sessionmaker(self.engine, expire_on_commit=False)
        self.before_commit = before_commit
        # SQLite has one writer, and who finds it taken sleeps and tries again; here who has waited is woken.
        self._writer: contextlib.AbstractContextManager[Any] = (
            threading.Lock() if self.is_sqlite else contextlib.nullcontext()
        )

    @property
    def is_sqlite(self) -> bool:
        return self.engine.dialect.name == "sqlite"

    def write(self, func: Callable[Concatenate[UnitOfWork, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """``func(uow, *args, **kwargs)`` in one transaction. It may run more than once, so all it does is SQL."""

        name = getattr(func, "__name__", "").lstrip("_")

        def attempt() -> T:
            with self._writer, self.sessions() as session, session.begin():
                uow = UnitOfWork(session, self.conf)
                result = func(uow, *args, **kwargs)
                if self.before_commit is not None:
                    session.flush()
                    self.before_commit(uow)
                if failpoints.reach("commit", name, "before") == failpoints.ERROR:
                    raise exc.OperationalError(f"COMMIT of {name}", None, Exception("a test refuses it"))
            failpoints.reach("commit", name, "after")
            for hook in uow.after_commit:
                hook()
            return result

        return self._retrying(attempt)

    def write_together(self, func: Callable[[UnitOfWork, list[Q]], list[T]], items: list[Q]) -> list[T]:
        """``func(uow, items)``, an answer to each, in one transaction. If that fails, each in its own; the first
        failure is raised then, after the last one's turn. Not tried again: what fails as the database is away."""
        try:
            return self.write(func, items)
        except Exception as error:
            if len(items) < 2 or isinstance(translate(error), exceptions.DatabaseUnavailable):
                raise
            LOG.info("What came together is written one by one: %s", " ".join(str(error).split()))
        done: list[T] = []
        failures: list[Exception] = []
        for item in items:
            try:
                done += self.write(func, [item])
            except Exception as error:
                failures.append(error)
        if failures:
            raise failures[0]
        return done

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
                uow = UnitOfWork(connection.execution_options(nova_lite_readonly=True), self.conf)
                with contextlib.closing(uow):
                    return func(uow, *args, **kwargs)

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
                metrics.TRANSACTIONS_AGAIN.inc()
                LOG.info("Transaction is run again (%d of %d): %s", tries, MAX_TRIES, error.orig)
                time.sleep(random.uniform(0.01, 0.05) * 2**tries)

    def ping(self) -> None:
        """Raises `DatabaseUnavailable` when the database cannot be reached."""

        def attempt() -> None:
            with self.engine.connect() as connection:
                connection.execute(sa.select(sa.literal(1)))

        try:
            self._retrying(attempt)
        except exc.SQLAlchemyError as error:
            raise unavailable(error) from error

    def close(self) -> None:
        self.engine.dispose()


class _Pool(sa.pool.QueuePool):
    """Measures how long each waits for a connection, or for a new one to be opened."""

    def _do_get(self) -> Any:
        with metrics.timed(metrics.POOL_WAITS):
            return super()._do_get()


def create_engine(conf: cfg.ConfigOpts) -> sa.Engine:
    """An engine for ``[database] connection``, with the settings each kind of database needs here."""
    # An error names the statement and not what it was given: passwords and user data are among that.
    options: dict[str, Any] = {
        "pool_reset_on_return": None,
        "hide_parameters": True,
        "json_deserializer": _from_json,
    }
    try:
        url = sa.make_url(conf.database.connection)
    except exc.ArgumentError as error:
        raise exceptions.ConfigurationError(
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
                # Strings that are joined have no end by themselves: what is longer than the limit would be cut.
                "init_command": f"SET innodb_lock_wait_timeout={conf.database.busy_timeout}, "
                "group_concat_max_len=1073741824",
            }
        elif kind == "postgresql":
            options["connect_args"] = {
                "connect_timeout": 5,
                "options": f"-c lock_timeout={conf.database.busy_timeout}s",
            }
    try:
        engine = sa.create_engine(url, poolclass=_Pool, **options)
    except (exc.ArgumentError, exc.NoSuchModuleError, ImportError) as error:
        raise exceptions.ConfigurationError(reason=f"[database] connection cannot be used: {error}") from error
    _reset_quietly(engine)
    if kind == "sqlite":
        _set_up_sqlite(engine)
        return engine
    _ask_the_idle(engine)
    if kind == "postgresql":
        _tell_no_rows(engine)
    return engine


def _from_json(text: str | bytes) -> Any:
    """The value of a column, eight of which an instance has. What only Python's own reader takes, it has written: half
    of a character, a number that is none."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return json.loads(text)


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


def _ask_the_idle(engine: sa.Engine) -> None:
    """Ask a connection that nobody has used for a moment whether it is there still, before a transaction begins. One
    that breaks in that moment breaks the transaction, which is run again as any is whose connection broke. To ask each
    time would be a fifth of what a conductor sends to its database."""

    @sa.event.listens_for(engine, "checkin")
    def on_checkin(connection: Any, record: Any) -> None:
        record.info["used"] = time.monotonic()

    @sa.event.listens_for(engine, "checkout")
    def on_checkout(connection: Any, record: Any, fairy: Any) -> None:
        used = record.info.get("used")
        if used is None or time.monotonic() - used < IDLE:
            return
        try:
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as error:
            raise exc.InvalidatePoolError from error


def _tell_no_rows(engine: sa.Engine) -> None:
    """PostgreSQL adds a line DETAIL to its errors, which has the values of a whole row."""

    @sa.event.listens_for(engine, "handle_error")
    def on_error(context: sa.ExceptionContext) -> None:
        for error in (context.original_exception, context.sqlalchemy_exception):
            if error is not None:
                error.args = tuple(_without_detail(each) for each in error.args)


def _without_detail(value: Any) -> Any:
    return value.partition("\nDETAIL:")[0] if isinstance(value, str) else value


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


def unavailable(error: Exception) -> exceptions.DatabaseUnavailable:
    """Ours for a lost database; the cause is logged in one line, without the statement's parameters."""
    cause = getattr(error, "orig", None) or error
    LOG.warning("The database is unavailable: %s", " ".join(str(cause).split()))
    return exceptions.DatabaseUnavailable()


def translate(error: Exception) -> Exception:
    """For `rpc.Endpoint`: errors that mean "the database is away" become `DatabaseUnavailable`, and those that mean
    "this value does not fit" `InvalidInput`. What a statement of ours does wrong stays what it is."""
    if isinstance(error, exc.TimeoutError | exc.DisconnectionError):
        return unavailable(error)
    if isinstance(error, exc.DBAPIError) and is_away(error):
        return unavailable(error)
    if isinstance(error, exc.DataError | UnicodeEncodeError | OverflowError):
        return exceptions.InvalidInput(reason="a value is too long, too large or has characters that cannot be stored")
    return error


def code_of(error: exc.DBAPIError) -> Any:
    """The database's own: MariaDB's number (newer PyMySQL has an SQLSTATE as well, which says less), PostgreSQL's
    SQLSTATE; None if it tells none."""
    original = error.orig
    first = original.args[0] if original is not None and original.args else None
    return first if isinstance(first, int) else getattr(original, "sqlstate", None) or first
