"""Runs Alembic's migrations on the connection that `nova_lite.db.migration` opened."""

from __future__ import annotations

from alembic import context

from nova_lite.db.migration import CURRENT
from nova_lite.db.models import Base

context.configure(
    connection=context.config.attributes["connection"],
    version_table=CURRENT,
    target_metadata=Base.metadata,
)
with context.begin_transaction():
    context.run_migrations()
