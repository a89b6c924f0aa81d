"""Audits of the use of servers: for which periods ``instance.exists`` was sent, and how far."""

from __future__ import annotations

import sqlalchemy as sa

from nova_lite.db.migrations.tables import BIG_ID, TIME, create_table

revision = "0056"
down_revision = "0055"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_table(
        "usage_audits",
        sa.Column("id", BIG_ID, nullable=False),
        sa.Column("beginning", TIME, nullable=False),
        sa.Column("ending", TIME, nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("servers", sa.Integer(), nullable=False),
        sa.Column("finished_at", TIME, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_usage_audits"),
        sa.UniqueConstraint("beginning", "ending", name="uq_usage_audits_beginning_ending"),
    )
