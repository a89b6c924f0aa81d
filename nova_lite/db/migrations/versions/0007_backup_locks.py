"""Locks of backups, and the days for which policies lock them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from nova_lite.db.migrations.tables import TIME

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("backup_policies", sa.Column("locked_days", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("server_backups", sa.Column("locked_until", TIME))
