"""Runs Alembic's migrations on the connection that `nova_lite.db.migrations.schema` opened."""

from __future__ import annotations

from alembic import context

from nova_lite.db.core.models import Base
from nova_lite.db.migrations.schema import CURRENT

context.configure(
    connection=context.config.attributes["connection"],
    version_table=CURRENT,
    target_metadata=Base.metadata,
)
with context.begin_transaction():
    context.run_migrations()
