"""Disks of servers' backups, and whether policies back attached volumes up."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0087"
down_revision = "0086"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("server_backups", sa.Column("disks", sa.JSON(none_as_null=True), nullable=True))
    op.add_column("backup_policies", sa.Column("volumes", sa.Boolean(), nullable=False, server_default=sa.false()))
