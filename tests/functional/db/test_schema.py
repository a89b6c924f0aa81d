"""The schema that migrations make, on each kind of database."""

from tests.unit.conductor.test_migration import test_migrations_make_the_models, test_second_sync_changes_nothing

__all__ = ["test_migrations_make_the_models", "test_second_sync_changes_nothing"]
