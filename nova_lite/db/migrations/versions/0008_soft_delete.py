"""When an instance was soft-deleted, for those that are to be reclaimed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from nova_lite.db.migrations.tables import TIME

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("instances", sa.Column("soft_deleted_at", TIME, nullable=True))
    op.create_index("ix_instances_soft_deleted_at", "instances", ["soft_deleted_at"])
