"""Interfaces of instances where another service has them, and those that it was asked for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from nova_lite.db.migrations.tables import TIME, create_table

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("instances", sa.Column("network_info", sa.JSON(none_as_null=True), nullable=True))
    create_table(
        "pending_attaches",
        sa.Column("instance_uuid", sa.String(length=36), nullable=False),
        sa.Column("request_id", sa.String(length=255), nullable=False),
        sa.Column("port_id", sa.String(length=36), nullable=True),
        sa.Column("until", TIME, nullable=False),
        sa.PrimaryKeyConstraint("instance_uuid", "request_id", name="pk_pending_attaches"),
        sa.Index("ix_pending_attaches_until", "until"),
    )
