"""The tests of tests/unit/db/hosts/test_pci.py, on each kind of database."""

from tests.unit.db.hosts.test_pci import *  # noqa: F403
