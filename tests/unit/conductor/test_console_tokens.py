"""Console tokens: valid once, for a limited time, and for the instance's current generation."""

from __future__ import annotations

import datetime
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.console import tokens
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.core.models import ConsoleAuthToken, Instance
from nova_lite.db.servers import claims, console_tokens
from nova_lite.objects import Console
from nova_lite.rpcapi.conductor import ConductorRPC
from tests.support import make

CONSOLE = Console(console_type="novnc", host="192.0.2.1", port=5900, access_url_base="http://proxy/vnc.html")
TYPES = ["novnc"]


def create(conductor: ConductorRPC, uuid: str, **options: Any) -> str:
    token = tokens.new()
    context = options.get("context", make.context())
    conductor.console_token_create(context, uuid, "h1", tokens.digest(token), options.get("console", CONSOLE))
    return token


def take(conductor: ConductorRPC, token: str) -> Any:
    return conductor.console_token_redeem(make.ADMIN, tokens.digest(token), TYPES)


def change(uow: UnitOfWork, uuid: str, **values: Any) -> None:
    uow.change(sa.update(Instance).where(Instance.uuid == uuid).values(**values))


def age(uow: UnitOfWork, seconds: int) -> None:
    past = uow.now - datetime.timedelta(seconds=seconds)
    uow.change(sa.update(ConsoleAuthToken).values(expires_at=past))


def count(uow: UnitOfWork) -> int:
    return uow.session.scalar(sa.select(sa.func.count()).select_from(ConsoleAuthToken)) or 0


@pytest.fixture
def uuid(db: Database) -> str:
    return db.write(make.instance, host="h1", generation=3, last_generation=3)


def test_a_token_opens_its_console_once(conductor: ConductorRPC, uuid: str) -> None:
    token = create(conductor, uuid)
    shown = conductor.console_token_get(make.ADMIN, tokens.digest(token))
    assert (shown.instance_uuid, shown.compute_host, shown.console) == (uuid, "h1", CONSOLE)
    assert take(conductor, token) == shown
    with pytest.raises(exceptions.ConsoleTokenNotFound):
        take(conductor, token)
    with pytest.raises(exceptions.ConsoleTokenNotFound):
        conductor.console_token_get(make.ADMIN, tokens.digest(token))


def test_spice_token_opens_several_connections_until_its_end(conductor: ConductorRPC, db: Database, uuid: str) -> None:
    """A SPICE client has a connection for each channel."""
    console = Console(
        console_type="spice-html5", host="192.0.2.1", port=0, access_url_base="http://proxy/", tls_port=5901
    )
    digest = tokens.digest(create(conductor, uuid, console=console))
    for _ in range(3):
        assert conductor.console_token_redeem(make.ADMIN, digest, ["spice-html5"]).console == console
    with pytest.raises(exceptions.ConsoleTokenNotFound):
        conductor.console_token_redeem(make.ADMIN, digest, TYPES)
    db.write(age, 0)
    with pytest.raises(exceptions.ConsoleTokenNotFound):
        conductor.console_token_redeem(make.ADMIN, digest, ["spice-html5"])


def test_token_stays_valid_after_a_page_with_the_wrong_scheme(conductor: ConductorRPC, uuid: str) -> None:
    """A page without TLS may be forged. It does not open the console, and the user's own page still does."""
    secure = msgspec.structs.replace(CONSOLE, access_url_base="https://proxy/vnc.html")
    token = create(conductor, uuid, console=secure)
    for _ in range(2):
        with pytest.raises(exceptions.ConsolePageRefused):
            conductor.console_token_redeem(make.ADMIN, tokens.digest(token), TYPES, "http")
    opened = conductor.console_token_redeem(make.ADMIN, tokens.digest(token), TYPES, "https")
    assert opened.console == secure


def test_token_is_stored_as_a_hash(conductor: ConductorRPC, db: Database, uuid: str) -> None:
    token = create(conductor, uuid)

    def rows(uow: UnitOfWork) -> str:
        return str(uow.session.execute(sa.select(*ConsoleAuthToken.__table__.c)).all())

    kept = db.read(rows)
    assert tokens.digest(token) in kept and token not in kept


def test_a_console_of_another_type_is_not_opened_and_its_token_stays(conductor: ConductorRPC, uuid: str) -> None:
    token = create(conductor, uuid)
    with pytest.raises(exceptions.ConsoleTokenNotFound):
        conductor.console_token_redeem(make.ADMIN, tokens.digest(token), ["serial"])
    assert take(conductor, token).console == CONSOLE


def test_a_token_ends_with_its_time(conductor: ConductorRPC, db: Database, conf: cfg.ConfigOpts, uuid: str) -> None:
    conf.set_override("token_ttl", 60, "consoleauth")
    token = create(conductor, uuid)

    def seconds(uow: UnitOfWork) -> float:
        row = uow.session.scalars(sa.select(ConsoleAuthToken)).one()
        return (row.expires_at - row.created_at).total_seconds()

    assert db.read(seconds) == 60
    db.write(age, 0)
    with pytest.raises(exceptions.ConsoleTokenNotFound):
        take(conductor, token)


@pytest.mark.parametrize(
    "values", [{"deleted": True}, {"host": "h2"}, {"host": None}, {"generation": 4}], ids=lambda values: str(values)
)
def test_a_token_is_void_once_its_instance_is_another(
    conductor: ConductorRPC, db: Database, uuid: str, values: dict[str, Any]
) -> None:
    token = create(conductor, uuid)
    db.write(change, uuid, **values)
    with pytest.raises(exceptions.ConsoleTokenNotFound):
        take(conductor, token)


def test_a_rebuild_gives_the_instance_another_generation(db: Database, uuid: str) -> None:
    """The new generation voids the old tokens."""

    def rebuilt(uow: UnitOfWork) -> int:
        row = uow.session.scalars(sa.select(Instance).where(Instance.uuid == uuid)).one()
        claims.renew(uow, row)
        return row.generation

    assert db.write(rebuilt) == 4


def test_instance_that_has_left_the_reporting_host_gets_no_token(
    conductor: ConductorRPC, db: Database, uuid: str
) -> None:
    db.write(change, uuid, host="h2")
    with pytest.raises(exceptions.InstanceNotReady):
        create(conductor, uuid)
    assert db.read(count) == 0


def test_another_projects_instance_is_not_found(conductor: ConductorRPC, uuid: str) -> None:
    with pytest.raises(exceptions.InstanceNotFound):
        create(conductor, uuid, context=make.context(project="p2"))


def test_oldest_tokens_are_void_above_the_limit(
    conductor: ConductorRPC, db: Database, uuid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console_tokens, "TOKENS_PER_INSTANCE", 2)
    other = db.write(make.instance, host="h1")
    elsewhere = create(conductor, other)
    made = [create(conductor, uuid) for _ in range(4)]
    assert db.read(count) == 3
    for token in made[:2]:
        with pytest.raises(exceptions.ConsoleTokenNotFound):
            take(conductor, token)
    for token in (*made[2:], elsewhere):
        take(conductor, token)


def test_expired_tokens_are_removed_in_batches(
    conductor: ConductorRPC, db: Database, uuid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(5):
        create(conductor, uuid)
    monkeypatch.setattr(console_tokens, "BATCH", 2)
    assert db.write(console_tokens.expire) == 0
    db.write(age, 1)
    assert [db.write(console_tokens.expire) for _ in range(4)] == [2, 2, 1, 0]
    assert db.read(count) == 0
