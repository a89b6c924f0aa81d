"""Records of the identity service in messages."""

from __future__ import annotations

import pytest

from nova_lite import rpc
from nova_lite.api.identity.conductor_store import ConductorStore
from nova_lite.base import exceptions, sealing
from nova_lite.conductor.identity import IdentityEndpoints
from nova_lite.db.core.engine import Database
from nova_lite.db.identity import identity_records
from nova_lite.objects import IdentityRecord
from nova_lite.rpcapi.conductor import ConductorRPC
from tests.support import make


class Wire(IdentityEndpoints):
    """A conductor whose messages are recorded."""

    def __init__(self, db: Database) -> None:
        super().__init__(db)
        self.texts: list[str] = []

    def identity_read(self, *arguments: object) -> object:  # type: ignore[override]
        found = super().identity_read(*arguments)  # type: ignore[arg-type]
        self.texts += [str(arguments), str(found)]
        return found

    def identity_change(self, *arguments: object) -> int:  # type: ignore[override]
        self.texts.append(str(arguments))
        return super().identity_change(*arguments)  # type: ignore[arg-type]


def test_records_are_not_readable_in_messages(db: Database) -> None:
    wire = Wire(db)
    store = ConductorStore(lambda: wire)  # type: ignore[arg-type,return-value]
    assert store.read(0).records == []
    record = IdentityRecord(kind="key", id="1", data={"key": "the secret"})
    assert store.change(0, [record]) == 1
    found = store.read(0)
    assert (found.version, found.complete, found.records) == (1, True, [record])
    assert store.read(1).records == []
    assert "secret" not in "".join(wire.texts)
    assert "kind" not in "".join(wire.texts)


def test_change_is_readable_for_every_conductor(db: Database, conductor: ConductorRPC) -> None:
    wire = IdentityEndpoints(db)
    store = ConductorStore(lambda: wire)  # type: ignore[arg-type,return-value]
    store.read(0)
    other = ConductorStore(lambda: conductor)
    other.read(0)
    other.change(0, [IdentityRecord(kind="user", id="a", data={})])
    assert store.change(1, [IdentityRecord(kind="user", id="b", data={})]) == 2
    assert db.write(identity_records.private_key) == db.write(identity_records.private_key)


def test_change_for_the_key_of_another_database_is_refused_until_the_next_read(db: Database) -> None:
    wire = IdentityEndpoints(db)
    store = ConductorStore(lambda: wire)  # type: ignore[arg-type,return-value]
    record = IdentityRecord(kind="user", id="a", data={})
    with pytest.raises(exceptions.IdentityChanged):
        store.change(None, [record])
    store.read(0)
    with db.engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE identity_versions SET private_key = '{sealing.new_private_key()}'")
    wire._private_key = ""
    with pytest.raises(exceptions.IdentityChanged):
        store.change(None, [record])
    store.read(0)
    assert store.change(None, [record]) == 1


def test_reader_without_a_key_gets_no_records(db: Database) -> None:
    wire = IdentityEndpoints(db)
    db.write(identity_records.change, 0, [IdentityRecord(kind="user", id="a", data={})])
    with pytest.raises(exceptions.InvalidInput):
        wire.identity_read(make.context("p"), 0, "")


def test_records_are_for_api_daemons_alone() -> None:
    methods = rpc.contract_of(ConductorRPC).methods
    for name in ("identity_read", "identity_change"):
        assert methods[name].access.roles == {rpc.API}
