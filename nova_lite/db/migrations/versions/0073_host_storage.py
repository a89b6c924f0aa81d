"""Directories of disks that hosts share, and the hosts that have the disks of evacuated servers."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from nova_lite.db.migrations.tables import TIME, create_table

revision = "0073"
down_revision = "0062"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_table(
        "host_storage",
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("marks", sa.JSON(), nullable=False),
        sa.Column("seen", sa.JSON(), nullable=False),
        sa.Column("live", sa.JSON(), nullable=False),
        sa.Column("shares", sa.JSON(), nullable=False),
        sa.Column("updated_at", TIME, nullable=True),
        sa.PrimaryKeyConstraint("host", name="pk_host_storage"),
        sqlite_with_rowid=False,
    )
    op.add_column("instances", sa.Column("disks_at", sa.JSON(), nullable=True))
