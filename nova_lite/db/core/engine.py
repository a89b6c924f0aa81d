"""Connections, transactions, and the database's clock.

`Database.write` runs one function in one transaction and commits it. It starts again on a deadlock or a connection lost
before the commit. `Database.read` does the same without locks. An unreachable database raises `DatabaseUnavailable`.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import json
import logging
import random
import threading
import time
from collections.abc import Callable, Container, Hashable, Set
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, TypeAlias, TypeVar

import msgspec
import sqlalchemy as sa
from oslo_config import cfg
from sqlalchemy import exc, orm
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from nova_lite.base import exceptions, faults, metrics, tracing
from nova_lite.base.batching import send_isolated
from nova_lite.base.timing import TIMING, DatabaseTiming
from nova_lite.db.core import autocommit, drivers, plans, sessions, time_limit, tls_files
from nova_lite.db.core.action_changes import ActionChange, Change
from nova_lite.db.core.errors import is_away

if TYPE_CHECKING:
    from nova_lite.db.core.models import InstanceAction
    from nova_lite.operations import Step

LOG = logging.getLogger(__name__)

P = ParamSpec("P")
Q = TypeVar("Q")
T = TypeVar("T")

#: A time in a condition, or a parameter of a prepared statement.
Time: TypeAlias = "datetime.datetime | sa.BindParameter[datetime.datetime]"

#: A function at the end of a transaction that published certain events.
Subscriber: TypeAlias = "Callable[[UnitOfWork], None]"

MAX_TRIES = 5

#: Characters of a slow statement in the log.
_SHOWN = 500

#: Error codes that mean "nothing was done, try again": MariaDB deadlock and lock timeout, PostgreSQL's 40001, 40P01.
_RETRY_CODES = {1205, 1213, "40001", "40P01", "55P03"}

#: A write of PostgreSQL that took too long, mostly for a lock.
_RETRY_CODES_OF_WRITES = {*_RETRY_CODES, "57014"}


class utcnow(FunctionElement[datetime.datetime]):
    """Clock of the database: naive UTC with sub-second digits."""

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
    """Clock of the database, some seconds ahead."""

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
    """Add the database's time to a prepared query. Building the query again, and finding its compiled form, costs more
    than running it.
    """
    return query.add_columns(utcnow())


_NOW = sa.select(utcnow())

#: Rows are read by position or name only, as in SQLAlchemy's session. Otherwise SQLAlchemy would compare the columns of
#: each new statement with those of the compiled one.
_BY_NAME = {"_result_disable_adapt_to_context": True}


class UnitOfWork:
    """A transaction: its session, the options, the database's time, and the events that it publishes.

    ``subscribed``: the kinds of events that have a subscriber. ``may_be_done``: an earlier try may have been committed.
    """

    def __init__(
        self,
        session: orm.Session | sa.Connection,
        conf: cfg.ConfigOpts,
        subscribed: Set[type] = frozenset(),
        may_be_done: bool = False,
    ) -> None:
        """Wrap a session, or a connection that gets a session only on demand."""
        self._session = session if isinstance(session, orm.Session) else None
        self._connection = session if isinstance(session, sa.Connection) else None
        self._owns_session = self._session is None
        self.conf = conf
        self.may_be_done = may_be_done
        self._subscribed = subscribed
        self._events: dict[type, list[Any]] = {}
        self._after_commit: list[Callable[[], None]] = []
        self._now: datetime.datetime | None = None
        self._known: dict[Hashable, Any] = {}

    @property
    def session(self) -> orm.Session:
        if self._session is None:
            self._session = orm.Session(self._connection)
        return self._session

    def close(self) -> None:
        """Close the session that was made for a connection."""
        if self._session is not None and self._owns_session:
            self._session.close()

    @property
    def connection(self) -> sa.Connection:
        """The transaction's connection. A session's way to it takes as long as some statements."""
        if self._connection is None:
            self._connection = self.session.connection()
        return self._connection

    def rows(self, query: Any, values: dict[str, Any] | None = None) -> Any:
        """Run a query for columns on the connection, after flushing pending changes. This skips the session's identity
        map, which takes as long as the query. ``values``: parameters of a prepared query, which gets a plan.
        """
        if self._session is not None:
            self._session.flush()
        if values is not None:
            return self.run(query, values)
        return self.connection.execute(query, execution_options=_BY_NAME)

    def run(self, statement: Any, values: dict[str, Any]) -> Any:
        """Run a prepared statement and return its rows. Pending changes are not flushed first."""
        return plans.plan(statement, self.connection.dialect).run(self.connection, values)

    def found(self, query: Any, values: dict[str, Any]) -> list[Any]:
        """Return the rows of a prepared query for rows of the ORM, and perhaps columns. ``values``: its parameters."""
        if self.session.autoflush:
            self.session.flush()
        return plans.row_plan(query, self.connection.dialect).run(self.session, self.connection, values)

    def publish(self, *events: object) -> None:
        """Publish events to the subscribers of their kinds."""
        for event in events:
            self._events.setdefault(type(event), []).append(event)

    def published(self, kind: type[T]) -> list[T]:
        """Return the events of a kind so far, in their order."""
        return self._events.get(kind, [])

    def wants(self, kind: type) -> bool:
        """Check whether events of a kind have a subscriber. Ask it for events that are costly to make."""
        return kind in self._subscribed

    def publishes(self, kinds: Set[type]) -> bool:
        """Check whether an event of one of these kinds is published."""
        return not kinds.isdisjoint(self._events)

    def after_commit(self, hook: Callable[[], None]) -> None:
        """Call ``hook`` after the commit."""
        self._after_commit.append(hook)

    def committed(self) -> None:
        """Call what waits for the commit."""
        for hook in self._after_commit:
            hook()

    def part(self, kind: Callable[[], T]) -> T:
        """Return the transaction's own object of a class, made at its first use."""
        if kind not in self._known:
            self._known[kind] = kind()
        made: T = self._known[kind]
        return made

    def note_change(
        self, action: InstanceAction, change: Change, step: Step | None = None, cause: str | None = None
    ) -> None:
        """Publish a change of an action, if other systems are notified."""
        if self.wants(ActionChange):
            self.publish(ActionChange(action, change, action.host, step, cause or ""))

    @property
    def now(self) -> datetime.datetime:
        """The database's time at first use; constant within the transaction."""
        if self._now is None:
            self._now = self.rows(_NOW, {}).scalar_one()
        return self._now

    def timed(self, query: sa.Select[T], values: dict[str, Any]) -> list[T]:
        """Return the rows of a prepared query. They carry the time, so that `now` needs no statement of its own."""
        return [row[0] for row in self.timed_rows(query, values)]

    def timed_rows(self, query: Any, values: dict[str, Any]) -> list[Any]:
        """Return the rows of a query for several columns, with the time as `timed` does."""
        if self._now is not None:
            return self.found(query, values)
        found = self.found(_with_time(query), values)
        if found:
            self._now = found[0][-1]
        return [row[:-1] for row in found]

    def once(
        self, key: Hashable, ask: Callable[[], T], asker: Hashable = None, is_everybodys: Callable[[T], bool] = bool
    ) -> T:
        """Return the result of ``ask()``, cached by ``key`` for this transaction.

        For data that several writes of one transaction share and none changes; not for locked or counted rows.
        ``asker``: who may see the result; others share it if ``is_everybodys`` accepts it.
        """
        known = next((item for item in ((key, asker), (key, None)) if item in self._known), None)
        if known is None:
            found = ask()
            known = key, None if asker is not None and is_everybodys(found) else asker
            self._known[known] = found
        answer: T = self._known[known]
        return answer

    def change(self, statement: sa.Update | sa.Delete | sa.Insert, values: dict[str, Any] | None = None) -> int:
        """Run a change and return the number of its rows. ``values``: parameters of a prepared one, which gets a plan.

        Rows that were read before are not refreshed, and their pending changes are not flushed first.
        """
        if values is not None:
            return plans.plan(statement, self.connection.dialect).change(self.connection, values)
        return self.connection.execute(statement).rowcount


class _Subscription(NamedTuple):
    subscriber: Subscriber
    kinds: frozenset[type]
    is_always: bool


class Database:
    """The database, and the subscribers of its transactions' events. ``read_seconds``: limit of each read (None: no
    limit); beyond it, `translate` makes `QueryTooSlow` of the error.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        timing: DatabaseTiming = TIMING.database,
        read_seconds: int | None = None,
    ) -> None:
        self.conf = conf
        self.engine = create_engine(conf, timing, read_seconds)
        self.sessions = orm.sessionmaker(self.engine, class_=sessions.Session, expire_on_commit=False)
        self.subscriptions: list[_Subscription] = []
        self._subscribed: frozenset[type] = frozenset()
        # SQLite has one writer. A writer that finds it busy sleeps and retries; this lock wakes the next one instead.
        self._writer: contextlib.AbstractContextManager[Any] = (
            threading.Lock() if self.is_sqlite else contextlib.nullcontext()
        )
        faults.transactions(self, _refused_commit)
        tracing.transactions(self)

    @property
    def is_sqlite(self) -> bool:
        return self.engine.dialect.name == "sqlite"

    def subscribe(self, subscriber: Subscriber, *kinds: type, always: bool = False) -> None:
        """Call ``subscriber(uow)`` at the end of each write that publishes an event of these kinds, inside its
        transaction. ``always``: at the end of the other writes, too.
        """
        self.subscriptions.append(_Subscription(subscriber, frozenset(kinds), always))
        self._subscribed |= frozenset(kinds)

    def announce(self, uow: UnitOfWork) -> None:
        """Call the subscribers of what the transaction has published."""
        for subscription in self.subscriptions:
            uow.session.flush()
            if subscription.is_always or uow.publishes(subscription.kinds):
                subscription.subscriber(uow)

    def write(self, func: Callable[Concatenate[UnitOfWork, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``func(uow, *args, **kwargs)`` in one transaction. It may run more than once, so it must do nothing but
        SQL.
        """

        def attempt(may_be_done: bool) -> T:
            with self._writer, self.sessions() as session, session.begin():
                uow = UnitOfWork(session, self.conf, self._subscribed, may_be_done)
                result = func(uow, *args, **kwargs)
                self.announce(uow)
            uow.committed()
            return result

        return self._retrying(attempt, _RETRY_CODES_OF_WRITES)

    def write_together(self, func: Callable[[UnitOfWork, list[Q]], list[T]], items: list[Q]) -> list[T]:
        """Run ``func(uow, items)`` in one transaction and return one result per item. If it fails, run each item in its
        own transaction.

        The first failure is raised after the last item. An unreachable database is not retried item by item.
        """

        def send(batch: list[Q]) -> list[tuple[T]]:
            return [(result,) for result in self.write(func, batch)]  # a result may be an exception itself

        results: list[T] = []
        failures: list[Exception] = []
        for outcome in send_isolated(send, items, is_isolated):
            if isinstance(outcome, Exception):
                failures.append(outcome)
            else:
                results.append(outcome[0])
        if failures:
            raise failures[0]
        return results

    def write_each(
        self, func: Callable[[UnitOfWork, list[Q]], list[T | Exception]], items: list[Q]
    ) -> list[T | Exception]:
        """Do `write_together`, and return the failure of an item as its result."""
        return send_isolated(lambda batch: self.write(func, batch), items, is_isolated)

    def write_once_more(self, func: Callable[Concatenate[UnitOfWork, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `write`, and run it once more if a concurrent writer took the same unique key. The second run reads the
        other's row.
        """
        try:
            return self.write(func, *args, **kwargs)
        except exc.IntegrityError:
            return self.write(func, *args, **kwargs)

    def read(self, func: Callable[Concatenate[UnitOfWork, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``func(uow, *args, **kwargs)`` without a write lock. On SQLite, all its statements have one snapshot. On
        others, each has its own.
        """

        def attempt(_: bool) -> T:
            with self.engine.connect() as connection:
                uow = UnitOfWork(connection.execution_options(**{time_limit.READ_ONLY: True}), self.conf)
                with contextlib.closing(uow):
                    return func(uow, *args, **kwargs)

        return self._retrying(attempt)

    def _retrying(self, attempt: Callable[[bool], T], codes: Container[object] = _RETRY_CODES) -> T:
        """Call ``attempt`` until it succeeds. Its argument: an earlier one has lost its connection."""
        tries, is_lost = 0, False
        while True:
            tries += 1
            try:
                return attempt(is_lost)
            except exc.DBAPIError as error:
                if tries >= MAX_TRIES or not (code_of(error) in codes or error.connection_invalidated):
                    raise
                is_lost = is_lost or error.connection_invalidated
                metrics.TRANSACTION_RETRIES.inc()
                LOG.info("Transaction is run again (%d of %d): %s", tries, MAX_TRIES, error.orig)
                time.sleep(random.uniform(0.01, 0.05) * 2**tries)

    def ping(self) -> None:
        """Raise `DatabaseUnavailable` when the database cannot be reached."""

        def attempt(_: bool) -> None:
            with self.engine.connect().execution_options(**{time_limit.READ_ONLY: True}) as connection:
                connection.execute(sa.select(sa.literal(1)))

        try:
            self._retrying(attempt)
        except exc.SQLAlchemyError as error:
            raise unavailable(error) from error

    def close(self) -> None:
        self.engine.dispose()


def _refused_commit(name: str) -> exc.OperationalError:
    return exc.OperationalError(f"COMMIT of {name}", None, Exception("a test refuses it"))


class _Pool(sa.pool.QueuePool):
    """Connection pool that measures the waits for a connection."""

    def _do_get(self) -> Any:
        with metrics.timed(metrics.POOL_WAITS):
            return super()._do_get()


def create_engine(
    conf: cfg.ConfigOpts, timing: DatabaseTiming = TIMING.database, read_seconds: int | None = None
) -> sa.Engine:
    """Return an engine for ``[database] connection`` with the settings of its kind of database.

    ``read_seconds``: as `Database` has it.
    """
    # Errors show the statement without its parameters: these contain passwords and user data.
    options: dict[str, Any] = {
        "pool_reset_on_return": None,
        "hide_parameters": True,
        "json_deserializer": _from_json,
    }
    try:
        url = drivers.choose(sa.make_url(conf.database.connection))
    except exc.ArgumentError as error:
        raise exceptions.ConfigurationError(
            reason="[database] connection is not a database URL (sqlite:////path, mysql://user:password@host/name "
            "or postgresql+psycopg://user:password@host/name)."
        ) from error
    tls_files.check(url)
    kind = url.get_backend_name()
    # Opening a connection costs more than most queries, with TLS especially, so all connections stay open.
    options.update(pool_size=conf.database.pool_size, max_overflow=0, pool_use_lifo=True)
    if kind == "sqlite":
        options["connect_args"] = {"timeout": timing.lock_wait, "check_same_thread": False}
    else:
        options["pool_recycle"] = 1800
        options["isolation_level"] = "AUTOCOMMIT"
        if kind in ("mysql", "mariadb"):
            options["connect_args"] = {
                "connect_timeout": 5,
                # MariaDB cuts concatenated strings at this limit, so it is set to the maximum.
                "init_command": f"SET innodb_lock_wait_timeout={timing.lock_wait}, group_concat_max_len=1073741824",
                **drivers.arguments(url),
            }
        elif kind == "postgresql":
            options["connect_args"] = {
                "connect_timeout": 5,
                "options": f"-c lock_timeout={timing.lock_wait}s"
                + (time_limit.postgresql_options(read_seconds) if read_seconds else ""),
            }
    try:
        engine = sa.create_engine(url, poolclass=_Pool, **options)
    except (exc.ArgumentError, exc.NoSuchModuleError, ImportError) as error:
        raise exceptions.ConfigurationError(reason=f"[database] connection cannot be used: {error}") from error
    _reset_quietly(engine)
    if read_seconds:
        time_limit.install(engine, read_seconds)
    if kind == "sqlite":
        _set_up_sqlite(engine)
        return engine
    autocommit.install(engine)
    _ask_the_idle(engine, timing.idle_before_ping)
    if kind == "postgresql":
        _tell_no_rows(engine)
    return engine


def _from_json(text: str | bytes) -> Any:
    """Decode a JSON column; an instance has eight. Python's own decoder is the fallback for values that only it
    accepts: lone surrogates and NaN.
    """
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return json.loads(text)


def _reset_quietly(engine: sa.Engine) -> None:
    """Roll back a connection that returns to the pool. A broken one is dropped with one log line instead of the pool's
    traceback; its next user gets the error anyway.
    """

    @sa.event.listens_for(engine, "reset")
    def on_reset(connection: Any, record: Any, state: Any) -> None:
        if state.transaction_was_reset:
            return
        try:
            autocommit.roll_back(connection, record.record_info)
        except engine.dialect.loaded_dbapi.Error as error:
            LOG.warning("A connection to the database broke: %s", " ".join(str(error).split()))
            record.invalidate(error)


def _ask_the_idle(engine: sa.Engine, seconds: float) -> None:
    """Ping a connection before a transaction if it was idle for ``seconds``. A connection that breaks within that time
    breaks its transaction, which is retried. Pinging each time would add a fifth to the traffic.
    """

    @sa.event.listens_for(engine, "checkin")
    def on_checkin(connection: Any, record: Any) -> None:
        record.info["used"] = time.monotonic()

    @sa.event.listens_for(engine, "checkout")
    def on_checkout(connection: Any, record: Any, fairy: Any) -> None:
        used = record.info.get("used")
        if used is None or time.monotonic() - used < seconds:
            return
        try:
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as error:
            raise exc.InvalidatePoolError from error


def _tell_no_rows(engine: sa.Engine) -> None:
    """Drop the DETAIL line of PostgreSQL's errors, which contains the values of a whole row."""

    @sa.event.listens_for(engine, "handle_error")
    def on_error(context: sa.ExceptionContext) -> None:
        for error in (context.original_exception, context.sqlalchemy_exception):
            if error is not None:
                error.args = tuple(_without_detail(arg) for arg in error.args)


def _without_detail(value: Any) -> Any:
    return value.partition("\nDETAIL:")[0] if isinstance(value, str) else value


def _set_up_sqlite(engine: sa.Engine) -> None:
    """Configure SQLite: WAL, real foreign keys, and write transactions that take the write lock at their start."""

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
        readonly = connection.get_execution_options().get(time_limit.READ_ONLY, False)
        connection.exec_driver_sql("BEGIN" if readonly else "BEGIN IMMEDIATE")


def unavailable(error: Exception) -> exceptions.DatabaseUnavailable:
    """Return our error for an unreachable database. One log line has the cause, without the statement's parameters."""
    cause = getattr(error, "orig", None) or error
    LOG.warning("The database is unavailable: %s", " ".join(str(cause).split()))
    return exceptions.DatabaseUnavailable()


def is_isolated(error: Exception) -> bool:
    """Check whether the error may come from one item of a batch, and not from a database that is unavailable."""
    return not isinstance(translate(error), exceptions.DatabaseUnavailable)


def translate(error: Exception) -> Exception:
    """Translate errors for `rpc.Endpoint`. An unreachable database becomes `DatabaseUnavailable`, a read that took too
    long `QueryTooSlow`, and a value that does not fit `InvalidInput`. Other errors stay as they are.
    """
    if time_limit.is_exceeded(error):
        LOG.warning("A query took longer than [database] read_timeout, and was ended: %s", statement_of(error))
        return exceptions.QueryTooSlow()
    if isinstance(error, exc.TimeoutError | exc.DisconnectionError):
        return unavailable(error)
    if isinstance(error, exc.DBAPIError) and is_away(error):
        return unavailable(error)
    if isinstance(error, exc.DataError | UnicodeEncodeError | OverflowError):
        return exceptions.InvalidInput(reason="a value is too long, too large or has characters that cannot be stored")
    return error


def log_failure(log: logging.Logger, said: str, error: Exception) -> None:
    """Log that work in the background has failed: with one line if the cause is known, else with a traceback."""
    known = translate(error)
    if isinstance(known, exceptions.NovaLiteException):
        log.warning("%s: %s", said, known.message)
    else:
        log.error(said, exc_info=error)


def statement_of(error: Exception) -> str:
    """Return a failed statement from its first table on, without its values, cut at some length."""
    text = " ".join(str(getattr(error, "statement", None) or "").split())
    text = text[max(text.find(" FROM "), 0) :].strip()
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def code_of(error: exc.DBAPIError) -> Any:
    """Return the database's own code: MariaDB's number, PostgreSQL's SQLSTATE, or None. PyMySQL also has an SQLSTATE,
    which is less precise.
    """
    original = error.orig
    first = original.args[0] if original is not None and original.args else None
    return first if isinstance(first, int) else getattr(original, "sqlstate", None) or first
