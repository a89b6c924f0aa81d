"""Load of hosts, plans of moves that relieve them, and these moves."""

from __future__ import annotations

import sqlalchemy as sa

from nova_lite.db.migrations.tables import BIG_ID, TIME, create_table

revision = "0061"
down_revision = "0072"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_table(
        "host_loads",
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("reported_at", TIME, nullable=False),
        sa.Column("hot", sa.Boolean(), nullable=False),
        sa.Column("load", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("host", name="pk_host_loads"),
        sqlite_with_rowid=False,
    )
    create_table(
        "balance_runs",
        sa.Column("id", BIG_ID, nullable=False, autoincrement=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("begun_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_balance_runs"),
    )
    create_table(
        "balance_moves",
        sa.Column("id", BIG_ID, nullable=False),
        sa.Column("instance_uuid", sa.String(36), nullable=False),
        sa.Column("source", sa.String(255), nullable=False),
        sa.Column("target", sa.String(255), nullable=False),
        sa.Column("action_id", sa.BigInteger(), nullable=False),
        sa.Column("begun_at", TIME, nullable=False),
        sa.Column("ended_at", TIME, nullable=True),
        sa.Column("result", sa.String(16), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_balance_moves"),
        sa.Index("ix_balance_moves_begun_at", "begun_at"),
        sa.Index("ix_balance_moves_ended_at", "ended_at"),
    )
