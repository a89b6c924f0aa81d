"""Private flavors are there for the projects that were given access, and for no others."""

from __future__ import annotations

import pytest

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.db.core.engine import Database
from nova_lite.db.servers import flavor_access, flavors
from tests.support import make

ME, OTHER = make.context("p1"), make.context("p2")


@pytest.fixture
def private(db: Database) -> str:
    db.write(flavors.create, make.flavor())
    return db.write(flavors.create, make.flavor(flavorid="2", name="m2", is_public=False)).flavorid


def listed(db: Database, context: RequestContext, is_public: bool | None = True) -> list[str]:
    return [flavor.flavorid for flavor in db.read(flavors.list_, context, is_public)]


def test_private_flavor_is_visible_with_access_only(db: Database, private: str) -> None:
    with pytest.raises(exceptions.FlavorNotFound):
        db.read(flavors.get, ME, private)
    assert db.write(flavor_access.add, make.ADMIN, private, "p1", False) == ["p1"]
    assert db.read(flavors.get, ME, private).flavorid == private
    with pytest.raises(exceptions.FlavorNotFound):
        db.read(flavors.get, OTHER, private)
    assert (listed(db, ME), listed(db, OTHER)) == (["1", "2"], ["1"])
    assert listed(db, ME, False) == ["1", "2"]
    assert (listed(db, make.ADMIN), listed(db, make.ADMIN, False), listed(db, make.ADMIN, None)) == (
        ["1"],
        ["2"],
        ["1", "2"],
    )
    assert db.write(flavor_access.remove, make.ADMIN, private, "p1") == []
    assert listed(db, ME) == ["1"]


def test_refusals(db: Database, private: str) -> None:
    db.write(flavor_access.add, make.ADMIN, private, "p1", False)
    with pytest.raises(exceptions.FlavorAccessExists):
        db.write(flavor_access.add, make.ADMIN, private, "p1", False)
    with pytest.raises(exceptions.FlavorAccessNotFound):
        db.write(flavor_access.remove, make.ADMIN, private, "p2")
    with pytest.raises(exceptions.FlavorIsPublic):
        db.write(flavor_access.add, make.ADMIN, "1", "p1", False)
    assert db.write(flavor_access.add, make.ADMIN, "1", "p1", True) == ["p1"]
    with pytest.raises(exceptions.FlavorAccessNotKept):
        db.read(flavor_access.list_, make.ADMIN, "1")
    with pytest.raises(exceptions.FlavorNotFound):
        db.read(flavor_access.list_, make.ADMIN, "nonsense")
    assert db.read(flavor_access.list_, make.ADMIN, private) == ["p1"]


def test_a_deleted_flavor_takes_its_access_along(db: Database, private: str) -> None:
    db.write(flavor_access.add, make.ADMIN, private, "p1", False)
    db.write(flavors.delete, make.ADMIN, private)
    db.write(flavors.create, make.flavor(flavorid="2", name="m2", is_public=False))
    assert db.read(flavor_access.list_, make.ADMIN, "2") == []
