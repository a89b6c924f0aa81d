"""A thief has an old backup of a host: its replaced key, its token, and the password of its account."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nova_lite.base import exceptions
from nova_lite.db.hosts import joins
from nova_lite.objects import JoinRequest
from nova_lite.rpc import keys
from tests.support import database
from tests.support.join_site import Site
from tests.support.joining import NewHost

bus, conductor, conf, db = database.bus, database.conductor, database.conf, database.db
empty_database, manager = database.empty_database, database.manager


@pytest.fixture
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    made = Site(*map(request.getfixturevalue, ("conf", "db", "conductor")), tmp_path)
    yield made
    made.stop()


def sent(site: Site, request: JoinRequest) -> str:
    """Send a request, and let the registrar work. Return the state, or why it was refused."""
    try:
        state = site.client.join(request).state
    except exceptions.JoinRefused as error:
        return error.message
    site.registrar.tick()
    return state


def test_thief_with_an_old_backup_of_a_host_does_not_become_the_host(site: Site) -> None:
    old, new, thief = NewHost(), NewHost(), NewHost()
    token = site.token()
    assert sent(site, old.request(token)) == "pending"
    assert sent(site, new.renewal(old.key)) == "pending"
    assert sent(site, new.renewal(old.key)) == "joined"
    trusted = keys.read_trusted(str(site.directory / keys.TRUSTED))
    attempts = [
        thief.renewal(old.key),
        thief.renewal(thief.key),
        old.renewal(old.key),
        old.renewal(old.key, addresses=["192.0.2.66"]),
        thief.renewal(old.key, key=new.body.key),
        old.request(token),
        thief.request(token),
        thief.request(token, old.key),
        thief.request(site.token()),
        old.request(site.token()),
    ]
    for attempt in attempts:
        assert sent(site, attempt) not in ("pending", "joined")
    assert keys.read_trusted(str(site.directory / keys.TRUSTED)) == trusted
    assert site.accounts.hashes == {"h1": new.body.password_hash}
    assert sent(site, new.renewal(new.key)) == "joined"


def test_thief_with_the_token_of_a_removed_host_does_not_join(site: Site) -> None:
    host, thief = NewHost(), NewHost()
    token = site.token()
    assert sent(site, host.request(token)) == "pending"
    site.db.write(lambda uow: joins.remove(uow, "h1"))
    site.registrar.tick()
    for attempt in (host.request(token), thief.request(token), host.renewal(host.key)):
        assert sent(site, attempt) not in ("pending", "joined")
    assert ("compute", "h1") not in site.trusted()
