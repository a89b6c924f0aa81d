"""Domains of hosts that are of no server, as after a restore of an older database."""

from __future__ import annotations

import sqlalchemy as sa

from nova_lite.db.migrations.tables import create_table

revision = "0079"
down_revision = "0074"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_table(
        "unknown_domains",
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("uuids", sa.JSON(), nullable=False),
        sa.Column("total", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("host", name="pk_unknown_domains"),
        sqlite_with_rowid=False,
    )
