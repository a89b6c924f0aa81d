"""Leases of hosts that fence themselves, results of fencing, and servers that are to run again elsewhere."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from nova_lite.db.migrations.tables import TIME, create_table

revision = "0062"
down_revision = "0069"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_table(
        "host_leases",
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("boot_id", sa.String(36), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("guests", sa.JSON(), nullable=False),
        sa.Column("fenced", sa.String(16), nullable=False),
        sa.Column("fenced_at", TIME, nullable=True),
        sa.Column("fenced_by", sa.String(255), nullable=True),
        sa.Column("checked_at", TIME, nullable=True),
        sa.Column("checks", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("host", name="pk_host_leases"),
        sqlite_with_rowid=False,
    )
    create_table(
        "restarts",
        sa.Column("instance_uuid", sa.String(36), nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("due_at", TIME, nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("instance_uuid", name="pk_restarts"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_restarts_due_at", "restarts", ["due_at"])
