"""Fixtures of a real database and a real conductor, without a broker."""

from tests.support.database import bus, conductor, conf, db, empty_database, manager
from tests.support.made_up_schemas import contracts, next_migration

__all__ = ["bus", "conductor", "conf", "contracts", "db", "empty_database", "manager", "next_migration"]
