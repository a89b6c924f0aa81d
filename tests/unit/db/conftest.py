"""Fixtures of a real database and a real conductor, without a broker."""

from tests.support.contracts import contracts
from tests.support.database import bus, conductor, conf, db, empty_database, manager

__all__ = ["bus", "conductor", "conf", "contracts", "db", "empty_database", "manager"]
