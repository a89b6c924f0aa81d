"""Protected servers whose guests have crashed, and are to be started again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from nova_lite.db.migrations.tables import TIME, create_table

revision = "0078"
down_revision = "0061"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_table(
        "crash_restarts",
        sa.Column("instance_uuid", sa.String(36), nullable=False),
        sa.Column("action_id", sa.BigInteger(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("started", sa.Boolean(), nullable=False),
        sa.Column("due_at", TIME, nullable=True),
        sa.Column("updated_at", TIME, nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("instance_uuid", name="pk_crash_restarts"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_crash_restarts_due_at", "crash_restarts", ["due_at"])
