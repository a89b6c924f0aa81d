"""Health of compute hosts' machines."""

from __future__ import annotations

import sqlalchemy as sa

from nova_lite.db.migrations.tables import create_table

revision = "0082"
down_revision = "0079"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_table(
        "host_health",
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("problems", sa.JSON(), nullable=False),
        sa.Column("acted", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("cold", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("host", name="pk_host_health"),
        sqlite_with_rowid=False,
    )
