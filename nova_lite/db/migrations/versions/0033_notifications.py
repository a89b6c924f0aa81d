"""Outbox of notifications for other systems."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from nova_lite.db.migrations.tables import BIG_ID, TIME, create_table

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_table(
        "notifications",
        sa.Column("id", BIG_ID, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("channel", sa.String(length=64), nullable=False),
        sa.Column("message_id", sa.String(length=36), nullable=False),
        sa.Column("event_type", sa.String(length=64), nullable=False),
        sa.Column("publisher_id", sa.String(length=300), nullable=False),
        sa.Column("priority", sa.String(length=8), nullable=False),
        sa.Column("context", sa.JSON(), nullable=False),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.Column("due_at", TIME, nullable=False),
        sa.Column("lease_owner", sa.String(length=36), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_notifications_channel_id", "notifications", ["channel", "id"])
    op.create_index("ix_notifications_created_at", "notifications", ["created_at"])
