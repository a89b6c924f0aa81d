"""Repositories of backups, and how much was removed from them since their room was freed."""

from __future__ import annotations

import sqlalchemy as sa

from nova_lite.db.migrations.tables import create_table

revision = "0088"
down_revision = "0087"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_table(
        "backup_repositories",
        sa.Column("project_id", sa.String(255), nullable=False),
        sa.Column("is_made", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("removals", sa.Integer(), nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("project_id", name="pk_backup_repositories"),
        sqlite_with_rowid=False,
    )
