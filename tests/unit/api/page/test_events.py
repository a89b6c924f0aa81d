"""The stream of changes: who gets which, when it ends, and what it costs."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Iterator

import pytest

from nova_lite.api.http import transfers
from nova_lite.api.identity import directory
from nova_lite.api.page import events
from nova_lite.api.page.events import LATE, MAX_CHANGES, MAX_OF_USER, OVERLAP, Caller, Feed, Requests, Stream
from nova_lite.base import exceptions
from nova_lite.base.timing import TIMING
from nova_lite.objects import AuditEvent, Instance
from tests.support.control_plane import make_instance
from tests.support.http_site import HttpSite, serving
from tests.support.identity_api import World
from tests.support.waiting import wait_for
from tests.unit.api.page.conftest import PageClient

BEGIN = datetime.datetime(2026, 1, 1)
SECOND = datetime.timedelta(seconds=1)


class Conductor:
    """Conductor and clock of a feed. ``rows``: all servers."""

    def __init__(self) -> None:
        self.rows: dict[str, Instance] = {}
        self.time = 0.0
        self.is_away = False
        self.asked: list[datetime.datetime] = []

    def read(self, since: datetime.datetime) -> list[Instance]:
        if self.is_away:
            raise exceptions.ServiceUnavailable("away")
        self.asked.append(since)
        found = [row for row in self.rows.values() if row.updated_at is not None and row.updated_at >= since]
        return sorted(found, key=lambda row: str(row.updated_at), reverse=True)[:MAX_CHANGES]

    def change(self, uuid: str, project: str = "p1", late: float = 0.0) -> None:
        """Change a server. ``late``: seconds for which the transaction has run."""
        at = datetime.datetime.now(datetime.UTC).replace(tzinfo=None) + (self.time - late) * SECOND
        self.rows[uuid] = make_instance(uuid=uuid, project_id=project, updated_at=at)


@pytest.fixture
def conductor() -> Conductor:
    return Conductor()


@pytest.fixture
def feed(conductor: Conductor, monkeypatch: pytest.MonkeyPatch) -> Feed:
    """Return a feed whose turns the test takes."""
    monkeypatch.setattr(events.threading.Thread, "start", lambda self: None)
    made = Feed(conductor.read, limit=20, interval=0.01, timing=TIMING.api, now=lambda: conductor.time)
    made.turn()
    return made


def caller(project: str = "p1", user: str = "u1", sees_all: bool = False, valid: bool = True) -> Caller:
    return Caller(user, project, sees_all, lambda: valid)


def taken(stream: Stream) -> list[tuple[str, list[str]]]:
    """Return the events that a client gets now."""
    found = []
    for piece in stream:
        if isinstance(piece, transfers.Later):
            break
        if piece.startswith(b"event"):
            name, data = piece.decode().strip().split("\n")
            found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


def opened(feed: Feed, of: Caller) -> Stream:
    stream = feed.open(of)
    assert taken(stream) == [("begin", [])]
    return stream


def test_change_is_told_to_its_project_and_to_who_sees_all(feed: Feed, conductor: Conductor) -> None:
    own, other, admin = (
        opened(feed, item) for item in (caller(), caller("p2", "u2"), caller("p3", "u3", sees_all=True))
    )
    conductor.change("s1")
    feed.turn()
    assert taken(own) == [("servers", ["s1"])]
    assert taken(other) == []
    assert taken(admin) == [("others", ["s1"])]
    feed.turn()
    assert taken(own) == taken(admin) == []


def request(number: int, service: str, project: str = "p1", action: str = "update") -> AuditEvent:
    at = datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
    values = {"action": action, "outcome": "success", "project_id": project}
    return AuditEvent(uuid=str(number), event_time=at, service=service, **values)


def test_change_by_a_request_is_told_once_to_its_project_and_to_who_sees_all(
    conductor: Conductor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events.threading.Thread, "start", lambda self: None)
    stored = [request(0, "image")]
    asked = []
    requests = Requests(lambda since: asked.append(since) or list(stored))  # type: ignore[func-returns-value]
    feed = Feed(conductor.read, 20, 0.01, TIMING.api, lambda: conductor.time, requests)
    feed.turn()
    own, other, admin = (feed.open(item) for item in (caller(), caller("p2"), caller("p3", sees_all=True)))
    assert taken(own) == taken(other) == taken(admin) == [("begin", ["requests"])]
    stored[:0] = [
        request(9, "identity", action="authenticate"),
        request(1, "network"),
        request(2, "volume"),
        request(3, "network"),
        request(4, "image", "p2"),
    ]
    feed.turn()
    assert taken(own) == [("requests", ["network", "volume"])]
    assert taken(other) == [("requests", ["image"])]
    assert taken(admin) == [("requests", ["image", "network", "volume"])]
    feed.turn()
    assert taken(own) == taken(other) == taken(admin) == []
    assert datetime.datetime.now(datetime.UTC).replace(tzinfo=None) - asked[-1] < 2 * LATE


def test_stream_of_a_cloud_without_an_audit_log_tells_of_servers_alone(feed: Feed, conductor: Conductor) -> None:
    stream = feed.open(caller())
    assert taken(stream) == [("begin", [])]
    conductor.change("s1")
    feed.turn()
    assert taken(stream) == [("servers", ["s1"])]


def test_change_that_appears_late_is_told(feed: Feed, conductor: Conductor) -> None:
    """A transaction gets its time at its beginning."""
    stream = opened(feed, caller())
    conductor.change("s1")
    feed.turn()
    conductor.time += 1
    conductor.change("s2", late=OVERLAP - 1)
    feed.turn()
    assert taken(stream) == [("servers", ["s1", "s2"])]


def test_feed_at_rest_reads_no_row_again(feed: Feed, conductor: Conductor) -> None:
    opened(feed, caller())
    conductor.change("s1")
    feed.turn()
    conductor.time += 2 * OVERLAP
    feed.turn()
    feed.turn()
    assert conductor.read(conductor.asked[-1]) == []


def test_more_changes_than_can_be_named_make_pages_read_all(feed: Feed, conductor: Conductor) -> None:
    stream, admin = opened(feed, caller("p2")), opened(feed, caller("p3", "u3", sees_all=True))
    for number in range(MAX_CHANGES):
        conductor.change(f"s{number}")
    feed.turn()
    assert taken(stream) == [("servers", [])]
    assert taken(admin) == [("servers", []), ("others", [])]
    feed.turn()
    assert taken(stream) == []


def test_slow_client_gets_its_changes_together(feed: Feed, conductor: Conductor) -> None:
    stream = opened(feed, caller())
    for number in range(MAX_CHANGES + 5):
        conductor.change(f"s{number}")
        feed.turn()
        if number == 1:
            assert taken(stream) == [("servers", ["s0", "s1"])]
    assert taken(stream) == [("servers", [])]


def test_stream_ends_when_its_token_is_not_valid_any_more(feed: Feed, conductor: Conductor) -> None:
    stream, other = opened(feed, caller(valid=False)), opened(feed, caller(user="u2"))
    conductor.time += TIMING.api.stream_check
    conductor.change("s1")
    feed.turn()
    assert list(stream) == []
    assert taken(other) == [("servers", ["s1"])]


def test_feed_goes_on_when_the_conductor_is_back(feed: Feed, conductor: Conductor) -> None:
    stream = opened(feed, caller())
    conductor.is_away = True
    feed.turn()
    conductor.change("s1")
    conductor.is_away = False
    feed.turn()
    assert taken(stream) == [("servers", ["s1"])]


def test_streams_of_a_user_and_of_a_process_are_limited(feed: Feed) -> None:
    own = [feed.open(caller()) for _ in range(MAX_OF_USER)]
    with pytest.raises(exceptions.TooManyRequests, match=f"You have {MAX_OF_USER} streams"):
        feed.open(caller())
    own[0].close()
    feed.open(caller())
    for number in range(20 - MAX_OF_USER):
        feed.open(caller(user=f"other{number}"))
    with pytest.raises(exceptions.TooManyRequests, match="has 20 streams"):
        feed.open(caller(user="last"))


def test_client_is_woken_by_a_change_once(feed: Feed, conductor: Conductor) -> None:
    stream = opened(feed, caller())
    woken: list[int] = []
    stream.when_ready(lambda: woken.append(1))
    assert woken == []
    conductor.change("s1")
    feed.turn()
    conductor.change("s1", late=-1)
    feed.turn()
    assert woken == [1]
    stream.when_ready(lambda: woken.append(2))
    assert woken == [1, 2]
    stream.close()
    stream.add("servers", frozenset({"s2"}))
    assert woken == [1, 2]


# --- over HTTP


@pytest.fixture
def site(world: World) -> Iterator[HttpSite]:
    world.services.compute.timing = dataclasses.replace(TIMING.api, stream_check=0.0, stream_interval=0.1)
    with serving(world.app("page")) as made:
        yield made


def follow(site: HttpSite, page: PageClient) -> Iterator[str]:
    """Yield what a stream sends, as it comes."""
    with site.connect() as sock:
        head = "GET /events HTTP/1.1\r\nHost: cloud\r\nX-Nova-Lite-Page: 1\r\n"
        sock.sendall(f"{head}X-Nova-Lite-Session: {page.session}\r\nCookie: {page.cookie}\r\n\r\n".encode())
        while data := sock.recv(65536):
            yield data.decode()


def until(stream: Iterator[str], text: str) -> str:
    found = ""
    while text not in found:
        found += next(stream)
    return found


def test_stream_over_http_tells_of_own_changes_alone(
    site: HttpSite, page: PageClient, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    look = Feed._look
    monkeypatch.setattr(Feed, "_look", lambda *args: (look(*args), looks.append(1))[0])
    page.log_in("alice")
    stream = follow(site, page)
    head = until(stream, "event: begin")
    assert "200 OK" in head
    assert "Content-Type: text/event-stream" in head
    assert "Cache-Control: no-store" in head
    wait_for("the feed has begun", lambda: looks, 30)
    world.conductor.instances["other"] = make_instance(uuid="other", project_id=world.ops.id, updated_at=BEGIN)
    world.conductor.instances["mine"] = make_instance(uuid="mine", project_id=world.demo.id, updated_at=BEGIN)
    assert 'data: ["mine"]' in until(stream, "mine")


def test_stream_over_http_ends_after_a_log_out(site: HttpSite, page: PageClient) -> None:
    page.log_in("alice")
    stream = follow(site, page)
    until(stream, "event: begin")
    assert page("DELETE", "/session").status_code == 204
    assert until(stream, "0\r\n\r\n").endswith("0\r\n\r\n")


def test_stream_ends_when_the_roles_of_its_user_change(site: HttpSite, page: PageClient, world: World) -> None:
    page.log_in("alice")
    stream = follow(site, page)
    until(stream, "event: begin")
    with world.users.changing() as content:
        alice = next(user for user in content.users if user.name == "alice")
        directory.grant(alice, world.demo, "admin")
    until(stream, "0\r\n\r\n")


@pytest.mark.parametrize("headers", [{"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}])
def test_stream_for_another_site_is_refused(page: PageClient, headers: dict[str, str]) -> None:
    page.log_in()
    assert page("GET", "/events", **headers).status_code == 403
    assert page("GET", "/events", marked=False).status_code == 403


def test_stream_needs_a_session_and_the_right_to_list_servers(
    page: PageClient, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert page("GET", "/events").status_code == 401
    page.log_in()
    assert page("GET", "/events").status_code == 503  # this way of calling it cannot wait
    assert page("POST", "/events").status_code == 404
    monkeypatch.setattr(type(world.services.policy), "allows", lambda *_: False)
    assert page("GET", "/events").status_code == 403


def test_stream_that_is_turned_off_is_refused(world: World) -> None:
    world.conf.set_override("page_streams", 0, "api")
    page = PageClient(world)
    page.log_in()
    with serving(world.app("page")) as site:
        assert "429 Too Many" in next(follow(site, page))
