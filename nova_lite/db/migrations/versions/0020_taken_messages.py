"""Ids of messages that changed something."""

from __future__ import annotations

import sqlalchemy as sa

from nova_lite.db.migrations.tables import TIME, create_table

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_table(
        "taken_messages",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("taken_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_taken_messages"),
        sa.Index("ix_taken_messages_taken_at", "taken_at"),
        sqlite_with_rowid=False,
    )
