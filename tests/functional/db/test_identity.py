"""The tests of tests/unit/db/identity/test_identity.py, on each kind of database, and concurrent changes."""

from concurrent.futures import ThreadPoolExecutor

from nova_lite.api.identity.content import Content
from nova_lite.api.identity.records import Project
from nova_lite.db.core.engine import Database
from nova_lite.db.identity.identity_records import DatabaseStore
from tests.support.identity_records import fresh_replica
from tests.unit.db.identity.test_identity import *  # noqa: F403


def test_concurrent_changes_are_all_stored(db: Database) -> None:
    def add(number: int) -> None:
        def change(content: Content) -> None:
            assert not [project for project in content.projects if project.name == f"p{number}"]
            content.projects.append(Project(id=f"{number}", name=f"p{number}"))

        fresh_replica(DatabaseStore(db)).change(change)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(12)))
    content = fresh_replica(DatabaseStore(db)).content
    assert {project.name for project in content.projects} == {f"p{number}" for number in range(12)}
