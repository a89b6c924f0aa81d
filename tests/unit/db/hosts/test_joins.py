"""Tokens of new hosts: who may join with one, how often, and what others learn."""

from __future__ import annotations

import datetime
import time

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions, join_requests
from nova_lite.base.join_requests import JoinToken
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.core.models import JoinedHost
from nova_lite.db.core.models import JoinToken as Row
from nova_lite.db.hosts import hosts, joins, services
from nova_lite.objects import JoinRequest, JoinState, TrustList
from tests.support import make
from tests.support.joining import NewHost, make_token, other_signature

INVALID = "The token is not valid."


def join(db: Database, conf: cfg.ConfigOpts, request: JoinRequest) -> JoinState:
    return db.write(lambda uow: joins.join(uow, conf, request))


def refused(db: Database, conf: cfg.ConfigOpts, request: JoinRequest) -> str:
    with pytest.raises((exceptions.Forbidden, exceptions.Conflict, exceptions.Invalid)) as found:
        join(db, conf, request)
    return found.value.message


def age(db: Database, seconds: float) -> None:
    """Make the last change of each joined host older."""

    def change(uow: UnitOfWork) -> None:
        for row in uow.session.scalars(sa.select(JoinedHost)):
            row.updated_at = (row.updated_at or uow.now) - datetime.timedelta(seconds=seconds)

    db.write(change)


def admit(db: Database) -> None:
    (work,) = db.read(joins.pending)
    db.write(lambda uow: joins.finish(uow, work, "{}", "signature", ""))


def test_token_text_is_parsed_back_and_has_no_database_secret(db: Database) -> None:
    token = make_token(db)
    assert JoinToken.parse(f" {token.text()}\n") == token
    stored = db.read(lambda uow: uow.session.scalars(sa.select(Row)).one().public_key)
    assert stored == token.public_key and token.seed.hex() not in stored


@pytest.mark.parametrize("text", ["", "nlj1-", "nlj1-AAAA", "nlj2-AAAA", "nlj1-\u00e9", "nlj1-" + "A" * 2000])
def test_token_text_that_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(exceptions.InvalidInput):
        JoinToken.parse(text)


def test_token_text_that_was_cut_or_changed_is_incomplete() -> None:
    text = make_token().text()
    for broken in (text[:-1], text[:40], text[:30] + ("A" if text[30] != "A" else "B") + text[31:]):
        with pytest.raises(exceptions.InvalidInput, match="the token is incomplete"):
            JoinToken.parse(broken)


@pytest.mark.parametrize("address", ["", "a b:1", "192.0.2.1", "192.0.2.1:0", "x:1\n", "-x:1"])
def test_token_for_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(exceptions.InvalidInput):
        JoinToken.generate(address, bytes(32))


def test_request_is_pending_until_the_registrar_has_admitted_it(db: Database, conf: cfg.ConfigOpts) -> None:
    token, host = make_token(db), NewHost()
    assert join(db, conf, host.request(token)) == JoinState(state="pending")
    assert [(work.host, work.state) for work in db.read(joins.pending)] == [("h1", "pending")]
    admit(db)
    assert join(db, conf, host.request(token)) == JoinState(state="joined", reply="{}", signature="signature")
    assert db.read(joins.pending) == []


def test_strangers_get_the_same_answer_whatever_the_token_is(db: Database, conf: cfg.ConfigOpts) -> None:
    used, expired, revoked, fresh = (make_token(db, lifetime) for lifetime in (3600, 0, 3600, 3600))
    join(db, conf, NewHost("h0").request(used))
    db.write(lambda uow: joins.revoke_token(uow, revoked.id))
    unknown = make_token()
    for token in (used, expired, revoked, fresh, unknown):
        forged = NewHost().request(token, token_signature=other_signature())
        assert refused(db, conf, forged) == INVALID
    assert refused(db, conf, NewHost().request(unknown)) == INVALID
    for token_id in ("", "x" * 16, "' or 1=1 --", "A" * 5000):
        assert refused(db, conf, NewHost().request(fresh, token=token_id)) == INVALID


def test_list_of_tokens_ends_30_days_after_their_end(db: Database) -> None:
    day = 86400
    shown, _gone = make_token(db, -29 * day), make_token(db, -31 * day)
    assert [token.id for token in db.read(joins.list_tokens)] == [shown.id]


def test_holder_of_a_token_learns_why_it_cannot_be_used(db: Database, conf: cfg.ConfigOpts) -> None:
    used, expired, revoked = (make_token(db, lifetime) for lifetime in (3600, 0, 3600))
    join(db, conf, NewHost("h0").request(used))
    db.write(lambda uow: joins.revoke_token(uow, revoked.id))
    host = NewHost()
    assert "The token was used by host h0 at " in refused(db, conf, host.request(used))
    assert "The token expired at " in refused(db, conf, host.request(expired))
    assert "The token was revoked. Make another" in refused(db, conf, host.request(revoked))


def test_used_token_serves_its_host_alone_and_only_with_its_key(db: Database, conf: cfg.ConfigOpts) -> None:
    token, host, thief = make_token(db), NewHost(), NewHost()
    join(db, conf, host.request(token))
    admit(db)
    assert "was used by host h1" in refused(db, conf, thief.request(token))
    stolen = thief.request(token, key=host.body.key)
    assert "not signed by the host's own key" in refused(db, conf, stolen)
    assert db.read(joins.pending) == []


def test_interrupted_host_goes_on_after_its_token_has_expired(db: Database, conf: cfg.ConfigOpts) -> None:
    token, host = make_token(db), NewHost()
    join(db, conf, host.request(token))
    db.write(lambda uow: uow.change(sa.update(Row).values(expires_at=uow.now)))
    assert join(db, conf, host.request(token)).state == "pending"


def test_host_with_its_key_is_admitted_again_with_another_token(db: Database, conf: cfg.ConfigOpts) -> None:
    first, second, host = make_token(db), make_token(db), NewHost()
    join(db, conf, host.request(first))
    admit(db)
    assert join(db, conf, host.request(first)).state == "joined"
    assert join(db, conf, host.request(second)) == JoinState(state="pending")
    assert "was used by host h1" in refused(db, conf, host.request(first))
    admit(db)
    assert join(db, conf, host.request(second)).state == "joined"
    assert "was used by host h1" in refused(db, conf, NewHost("h2").request(second))


def test_changed_request_of_the_same_host_is_admitted_again(db: Database, conf: cfg.ConfigOpts) -> None:
    token, host = make_token(db), NewHost()
    join(db, conf, host.request(token))
    (old,) = db.read(joins.pending)
    assert join(db, conf, host.request(token, addresses=["192.0.2.12"])).state == "pending"
    db.write(lambda uow: joins.finish(uow, old, "{}", "signature", ""))
    (work,) = db.read(joins.pending)
    assert "192.0.2.12" in work.body


def test_second_host_of_the_same_name_is_refused(db: Database, conf: cfg.ConfigOpts) -> None:
    join(db, conf, NewHost().request(make_token(db)))
    token = make_token(db)
    assert "The cloud has a host h1 already" in refused(db, conf, NewHost().request(token))
    db.write(lambda uow: services.report_alive(uow, "h2", services.COMPUTE, "compute", "1", "nova"))
    assert "host h2 already" in refused(db, conf, NewHost("h2").request(token))
    for name in ("H1", "H2"):  # A certificate for it would be one for the other host.
        assert f"host {name.lower()} already" in refused(db, conf, NewHost(name).request(token))
    assert join(db, conf, NewHost("h3").request(token)).state == "pending"


@pytest.mark.parametrize(("seconds", "said"), [(3600, "3600 s ahead of"), (-90, "90 s behind")])
def test_wrong_clock_is_named_with_its_difference(db: Database, conf: cfg.ConfigOpts, seconds: int, said: str) -> None:
    token = make_token(db)
    assert said in refused(db, conf, NewHost().request(token, sent=time.time() + seconds))
    assert db.read(joins.pending) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"host": "../x"},
        {"host": "a\nb"},
        {"host": ""},
        {"host": "192.0.2.11"},
        {"host": "::1"},
        {"addresses": []},
        {"addresses": ["192.0.2.1; reboot"]},
        {"addresses": ["192.0.2.1"] * 17},
        {"password_hash": "short"},
        {"host_key": "no key"},
        {"console_key": "\u00e9"},
        {"version": "x" * 20000},
    ],
)
def test_request_with_values_that_are_unfit_for_other_programs_is_refused(
    db: Database, conf: cfg.ConfigOpts, changes: dict[str, object]
) -> None:
    assert "Invalid input" in refused(db, conf, NewHost().request(make_token(db), **changes))
    assert db.read(joins.pending) == []


def test_host_replaces_its_key_with_its_key(db: Database, conf: cfg.ConfigOpts) -> None:
    old, new = NewHost(), NewHost()
    join(db, conf, old.request(make_token(db)))
    assert "under way" in refused(db, conf, new.renewal(old.key))
    admit(db)
    assert join(db, conf, new.renewal(old.key)).state == "pending"
    assert "under way" in refused(db, conf, NewHost().renewal(new.key))
    assert [work.previous_key for work in db.read(joins.pending)] == [old.body.key]
    admit(db)
    for signer in (old.key, new.key):  # An interrupted host has either of them.
        assert join(db, conf, new.renewal(signer)).state == "joined"
    third = NewHost()
    assert join(db, conf, third.renewal(new.key)).state == "pending"
    admit(db)
    assert refused(db, conf, old.renewal(old.key)) == INVALID


def test_replaced_key_of_a_host_only_repeats_the_request_that_replaced_it(db: Database, conf: cfg.ConfigOpts) -> None:
    old, new, thief = NewHost(), NewHost(), NewHost()
    join(db, conf, old.request(make_token(db)))
    admit(db)
    join(db, conf, new.renewal(old.key))
    assert refused(db, conf, thief.renewal(old.key)) == INVALID
    admit(db)
    for request in (thief.renewal(old.key), old.renewal(old.key), old.renewal(old.key, addresses=["192.0.2.19"])):
        assert refused(db, conf, request) == INVALID
    assert "was replaced" in refused(db, conf, old.renewal(new.key))
    assert "not signed by the host's own key" in refused(db, conf, thief.renewal(old.key, key=new.body.key))
    assert db.read(joins.pending) == []
    assert join(db, conf, new.renewal(old.key)).state == "joined"


def test_replaced_key_of_a_host_ends_after_the_overlap(db: Database, conf: cfg.ConfigOpts) -> None:
    old, new = NewHost(), NewHost()
    join(db, conf, old.request(make_token(db)))
    admit(db)
    join(db, conf, new.renewal(old.key))
    age(db, join_requests.KEY_OVERLAP + 1)
    # The registrar has not admitted the new key yet, so the host continues with its old one.
    assert join(db, conf, new.renewal(old.key)).state == "pending"
    admit(db)
    age(db, join_requests.KEY_OVERLAP - 60)
    assert join(db, conf, new.renewal(old.key)).state == "joined"
    age(db, 120)
    assert refused(db, conf, new.renewal(old.key)) == INVALID
    assert join(db, conf, new.renewal(new.key)).state == "joined"


def test_changed_request_after_a_rotation_replaces_no_key(db: Database, conf: cfg.ConfigOpts) -> None:
    old, new = NewHost(), NewHost()
    join(db, conf, old.request(make_token(db)))
    admit(db)
    join(db, conf, new.renewal(old.key))
    admit(db)
    assert join(db, conf, new.renewal(new.key, addresses=["192.0.2.19"])).state == "pending"
    assert [work.previous_key for work in db.read(joins.pending)] == [None]
    admit(db)
    assert refused(db, conf, new.renewal(old.key)) == INVALID


def test_key_of_a_host_is_replaced_by_nobody_else(db: Database, conf: cfg.ConfigOpts) -> None:
    host, other, thief = NewHost(), NewHost("h2"), NewHost()
    for joining in (host, other):
        join(db, conf, joining.request(make_token(db)))
        admit(db)
    assert refused(db, conf, thief.renewal(thief.key)) == INVALID
    assert refused(db, conf, thief.renewal(other.key)) == INVALID
    assert refused(db, conf, NewHost("h9").renewal(thief.key)) == INVALID
    assert refused(db, conf, thief.renewal(host.key, host="..")) == INVALID
    assert "not signed by the host's own key" in refused(db, conf, thief.renewal(host.key, key=other.body.key))
    assert db.read(joins.pending) == []


def test_removed_host_needs_another_token(db: Database, conf: cfg.ConfigOpts) -> None:
    token, host = make_token(db), NewHost()
    join(db, conf, host.request(token))
    admit(db)
    db.write(lambda uow: joins.remove(uow, "h1"))
    assert "is being removed" in refused(db, conf, host.request(token))
    (work,) = db.read(joins.pending)
    db.write(lambda uow: joins.finish(uow, work, "", "", "the broker is away"))
    assert db.read(lambda uow: joins.removal(uow, "h1", "compute")) == "the broker is away"
    db.write(lambda uow: joins.finish(uow, work, "", "", ""))
    assert db.read(lambda uow: joins.removal(uow, "h1", "compute")) is None
    assert "was used by host h1" in refused(db, conf, host.request(token))
    assert join(db, conf, NewHost().request(make_token(db))).state == "pending"


def test_unknown_host_is_not_removed(db: Database) -> None:
    with pytest.raises(exceptions.JoinedHostNotFound):
        db.write(lambda uow: joins.remove(uow, "h9"))


def test_older_list_of_keys_does_not_replace_a_newer_one(db: Database) -> None:
    for serial in (5, 4):
        trust = TrustList(serial=serial, content=str(serial), signature="s", authority="a")
        db.write(lambda uow, trust=trust: joins.publish(uow, trust))
    found = db.read(joins.published)
    assert found is not None and (found.serial, found.content) == (5, "5")


def test_address_of_another_host_is_refused_whoever_signs(db: Database, conf: cfg.ConfigOpts) -> None:
    first, second = NewHost("h1"), NewHost("h2")
    join(db, conf, first.request(make_token(db)))
    taken = "Address 192.0.2.11 is that of host h1. If that host is gone, remove it first"
    token = make_token(db)
    assert taken in refused(db, conf, second.request(token, addresses=["192.0.2.12", "192.0.2.11"]))
    join(db, conf, second.request(token))
    assert taken in refused(db, conf, second.request(token, addresses=["192.0.2.11"]))
    admit_all(db)
    assert taken in refused(db, conf, second.renewal(second.key, addresses=["192.0.2.11"]))
    assert join(db, conf, second.renewal(second.key, addresses=["192.0.2.13"])).state == "pending"


def test_address_that_a_host_reports_is_refused_to_another(db: Database, conf: cfg.ConfigOpts) -> None:
    node = make.inventory("h9", host_ip="192.0.2.11")
    db.write(hosts.register_host, conf, make.report("h9", inventories=[node]))
    assert "Address 192.0.2.11 is that of host h9." in refused(db, conf, NewHost("h1").request(make_token(db)))


def admit_all(db: Database) -> None:
    for work in db.read(joins.pending):
        db.write(joins.finish, work, "{}", "signature", "")
