"""The tests of tests/unit/db/backups/test_backup_policies.py, on each kind of database."""

from tests.unit.db.backups.test_backup_policies import *  # noqa: F403
