"""``/events``: a stream of server-sent events with the ids of changed servers (docs/adr/0038).

An event names servers, or APIs by which requests have changed something, and nothing else: the page reads what it shows
from the API, with its own token. One thread of the process asks the conductor what has changed, for all streams, and
only while there are any. A stream occupies a connection and no thread.
"""

from __future__ import annotations

import datetime
import json
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import webob

from nova_lite.api.audit.wrapper import AUTHENTICATE, REVOKE
from nova_lite.api.http import transfers, wsgi
from nova_lite.api.identity import authority
from nova_lite.base import clock, concurrency, exceptions
from nova_lite.base.context import RequestContext, get_admin_context
from nova_lite.base.timing import ApiTiming
from nova_lite.objects import AuditEvent, AuditQuery, Instance, InstanceFilters
from nova_lite.objects.audit import SUCCESS

LOG = logging.getLogger(__name__)

#: Rule of streams, and rule of changes of other projects.
RULE = "os_compute_api:servers:detail"
RULE_OF_ALL = "os_compute_api:servers:detail:get_all_tenants"

#: Streams of one user, whose page has one in each visible tab.
MAX_OF_USER = 8
#: Changed servers that one look at the conductor returns. If there are more, pages read their whole list again.
MAX_CHANGES = 200
#: Seconds for which a transaction may have run when its change appears, with the time at which it began.
OVERLAP = 5.0
#: Changes by requests that one look returns, and seconds until one of them is in the audit log.
MAX_REQUESTS = 100
LATE = datetime.timedelta(seconds=15)
#: Largest difference between the clocks of API daemon and database.
_CLOCKS = datetime.timedelta(seconds=60)
_TICK = datetime.timedelta(microseconds=1)
_ALIVE = b":\n\n"
#: Marks that the names of the changed servers are not known, or too many.
_MANY: frozenset[str] = frozenset()


class Caller(NamedTuple):
    """User of a stream. ``is_valid``: checks the token, without I/O."""

    user_id: str
    project_id: str
    sees_all: bool
    is_valid: Callable[[], bool]


class _Later(transfers.Later):
    """Says that a stream has no event yet."""

    stream: Stream

    def when_ready(self, notify: Callable[[], None]) -> None:
        self.stream.when_ready(notify)


class Stream:
    """Body of a response: events that wait for a client. A slow client gets them together, so they stay few."""

    def __init__(self, caller: Caller, closed: Callable[[Stream], None], names: frozenset[str] = frozenset()) -> None:
        """Begin with an event that has ``names``: the further kinds of events of this stream."""
        self.caller = caller
        self._closed = closed
        self._lock: Any = concurrency.native("threading").Lock()
        self._waiting: dict[str, frozenset[str]] = {"begin": names}
        self._is_alive = False
        self._is_over = False
        self._notify: Callable[[], None] | None = None
        self._later = _Later()
        self._later.stream = self

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        with self._lock:
            if self._waiting:
                name = next(iter(self._waiting))
                return f"event: {name}\ndata: {json.dumps(sorted(self._waiting.pop(name)))}\n\n".encode()
            if self._is_over:
                raise StopIteration
            if self._is_alive:
                self._is_alive = False
                return _ALIVE
            return self._later

    def when_ready(self, notify: Callable[[], None]) -> None:
        with self._lock:
            self._notify = notify
            if self._waiting or self._is_over or self._is_alive:
                self._wake()

    def add(self, name: str, uuids: frozenset[str]) -> None:
        """Report changed servers to the client. `_MANY`: more than can be named."""
        with self._lock:
            old = self._waiting.get(name)
            both = uuids if old is None else old | uuids
            is_named = uuids and old != _MANY and len(both) <= MAX_CHANGES
            self._waiting[name] = both if is_named else _MANY
            self._wake()

    def keep_alive(self) -> None:
        with self._lock:
            self._is_alive = True
            self._wake()

    def end(self) -> None:
        """End the response after its waiting events."""
        with self._lock:
            self._is_over = True
            self._wake()

    def close(self) -> None:
        """Forget the client. The server calls this at the end of each response."""
        with self._lock:
            self._is_over, self._notify = True, None
        self._closed(self)

    def _wake(self) -> None:
        notify, self._notify = self._notify, None
        if notify is not None:
            notify()


class Requests:
    """Successful changes by requests to any API. ``read``: the events of the audit log since a time, newest first."""

    def __init__(self, read: Callable[[datetime.datetime], list[AuditEvent]]) -> None:
        self._read = read
        self._known: set[str] | None = None

    def look(self) -> list[AuditEvent]:
        """Return the changes since the last look. API processes store them a little later."""
        found = self._read(_wall() - LATE)
        known, self._known = self._known, {event.uuid for event in found}
        return [] if known is None else [event for event in found if event.uuid not in known]

    def forget(self) -> None:
        """Start again after a time without looks."""
        self._known = None


class Feed:
    """Streams of a process, and the thread that serves them.

    ``read``: returns the servers that have changed since a time, newest change first, at most `MAX_CHANGES`.
    ``requests``: changes of all kinds of things; None: there is no audit log.
    """

    def __init__(
        self,
        read: Callable[[datetime.datetime], list[Instance]],
        limit: int,
        interval: float,
        timing: ApiTiming,
        now: Callable[[], float] = clock.monotonic,
        requests: Requests | None = None,
    ) -> None:
        self._requests = requests
        self._read = read
        self._limit = limit
        self._interval = interval
        self._timing = timing
        self._now = now
        self._lock: Any = concurrency.native("threading").Lock()
        self._streams: list[Stream] = []
        self._runs = False
        self._since: datetime.datetime | None = None
        self._newest_at = 0.0
        self._known: dict[str, datetime.datetime] = {}
        self._checked = self._alive = self._now()
        self._is_away = False

    @property
    def streams(self) -> int:
        return len(self._streams)

    def open(self, caller: Caller) -> Stream:
        """Return a new stream. Raises `TooManyRequests`."""
        stream = Stream(caller, self._forget, frozenset() if self._requests is None else frozenset({"requests"}))
        with self._lock:
            if len(self._streams) >= self._limit:
                raise exceptions.TooManyRequests(f"This API daemon has {self._limit} streams already.")
            if Counter(item.caller.user_id for item in self._streams)[caller.user_id] >= MAX_OF_USER:
                raise exceptions.TooManyRequests(f"You have {MAX_OF_USER} streams already.")
            self._streams.append(stream)
            begins, self._runs = not self._runs, True
        if begins:
            threading.Thread(target=self._run, name="page-events", daemon=True).start()
        return stream

    def _forget(self, stream: Stream) -> None:
        with self._lock:
            if stream in self._streams:
                self._streams.remove(stream)

    def _run(self) -> None:
        """Serve the streams until there is none."""
        self._since = None
        if self._requests is not None:
            self._requests.forget()
        while True:
            with self._lock:
                if not self._streams:
                    self._runs = False
                    return
            try:
                self.turn()
            except Exception:
                LOG.exception("Streams of the page: a turn failed")
            clock.sleep(self._interval)

    def turn(self) -> None:
        """Look for changes once, and for streams that have to end."""
        now = self._now()
        requests: list[AuditEvent] = []
        try:
            found = self._look(now)
            requests = self._requests.look() if self._requests is not None else []
            if self._is_away:
                LOG.info("Streams of the page continue")
            self._is_away = False
        except exceptions.ServiceUnavailable as error:
            found = []
            if not self._is_away:
                LOG.warning("Streams of the page wait for a conductor: %s", error.message)
            self._is_away = True
        is_alive = now - self._alive >= self._timing.stream_alive
        is_check = now - self._checked >= self._timing.stream_check
        self._alive = now if is_alive else self._alive
        self._checked = now if is_check else self._checked
        for stream in list(self._streams):
            if is_check and not stream.caller.is_valid():
                stream.end()
                continue
            _publish(stream, found)
            _publish_requests(stream, requests)
            if is_alive:
                stream.keep_alive()

    def _look(self, now: float) -> list[Instance] | None:
        """Return the servers that changed since the last look. None: more than can be named."""
        if self._since is None:
            self._since = _wall() - _CLOCKS
            self._known = {row.uuid: _changed_at(row) for row in self._read(self._since)}
            self._newest_at = now
            return []
        # A transaction gets its time at its beginning, and its changes appear at its end.
        found = self._read(self._since)
        changed = [row for row in found if self._known.get(row.uuid) != _changed_at(row)]
        is_full = len(found) >= MAX_CHANGES
        if changed:
            self._newest_at = now
        self._known = {row.uuid: _changed_at(row) for row in found}
        newest = max(self._known.values(), default=None)
        if newest is not None and (is_full or now - self._newest_at > OVERLAP):
            self._since = newest + _TICK
        elif newest is not None:
            self._since = max(self._since, newest - datetime.timedelta(seconds=OVERLAP))
        return None if is_full and changed else changed


def _publish(stream: Stream, found: list[Instance] | None) -> None:
    """Report changes to a client: of its own project, and of others if it may list them."""
    if found is None:
        stream.add("servers", _MANY)
        if stream.caller.sees_all:
            stream.add("others", _MANY)
        return
    own = frozenset(row.uuid for row in found if row.project_id == stream.caller.project_id)
    if own:
        stream.add("servers", own)
    others = frozenset(row.uuid for row in found) - own
    if others and stream.caller.sees_all:
        stream.add("others", others)


def _publish_requests(stream: Stream, events: list[AuditEvent]) -> None:
    """Report by which APIs the client's project has changed something, or any project if it may list all."""
    caller = stream.caller
    changes = [event for event in events if event.action not in (AUTHENTICATE, REVOKE)]
    names = frozenset(event.service for event in changes if caller.sees_all or event.project_id == caller.project_id)
    if names:
        stream.add("requests", names)


def _wall() -> datetime.datetime:
    return datetime.datetime.fromtimestamp(clock.wall(), datetime.UTC).replace(tzinfo=None)


def _changed_at(row: Instance) -> datetime.datetime:
    found = row.updated_at or row.created_at
    assert found is not None
    return found


class EventsApp:
    """WSGI application of ``/events``, behind authentication."""

    def __init__(self, services: wsgi.ApiServices) -> None:
        self._services = services
        conf = services.conf
        timing = services.compute.timing
        requests = Requests(self._read_requests) if conf.audit.enabled else None
        self.feed = Feed(self._read, conf.api.page_streams, timing.stream_interval, timing, requests=requests)

    def _read_requests(self, since: datetime.datetime) -> list[AuditEvent]:
        query = AuditQuery(limit=MAX_REQUESTS, filters={"outcome": SUCCESS}, since=since)
        return self._services.conductor.audit_list(get_admin_context(), query)

    def _read(self, since: datetime.datetime) -> list[Instance]:
        filters = InstanceFilters(changes_since=since, with_user_data=False)
        return self._services.conductor.instance_list(
            get_admin_context(), filters, MAX_CHANGES, None, ["updated_at"], ["desc"]
        )

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        context: RequestContext = environ[wsgi.CONTEXT]
        try:
            stream = self._open(environ, context)
        except exceptions.NovaLiteException as error:
            return wsgi.fault(error.code, error.message)(environ, start_response)
        response = webob.Response(content_type="text/event-stream", charset="utf-8")
        response.headers["X-Accel-Buffering"] = "no"  # nginx would collect the events
        start_response(response.status, [item for item in response.headerlist if item[0] != "Content-Length"])
        return stream

    def _open(self, environ: dict[str, Any], context: RequestContext) -> Stream:
        if environ.get("REQUEST_METHOD") != "GET":
            raise exceptions.NotFound("Events are read with GET.")
        self._services.policy.authorize(context, RULE)
        if not environ.get(transfers.WAITS):
            raise exceptions.ServiceUnavailable("This server cannot keep streams.")
        sees_all = self._services.policy.allows(context, RULE_OF_ALL)
        caller = Caller(context.user_id or "", context.project_id or "", sees_all, self._validity(context))
        return self.feed.open(caller)

    def _validity(self, context: RequestContext) -> Callable[[], bool]:
        """Return a function that checks whether the token is still the same caller's, with the same roles."""
        users, token, roles = authority.of(self._services), context.auth_token or "", sorted(context.roles)

        def is_valid() -> bool:
            try:
                _, identity = users.by_token(token)
            except exceptions.Unauthorized:
                return False
            return sorted(identity.role_names) == roles

        return is_valid
