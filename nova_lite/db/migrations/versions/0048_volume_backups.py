"""Backups of volumes."""

from __future__ import annotations

import sqlalchemy as sa

from nova_lite.db.migrations.tables import TIME, create_table

revision = "0048"
down_revision = "0036"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_table(
        "volume_backups",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("data_id", sa.String(length=36), nullable=False),
        sa.Column("volume_id", sa.String(length=36), nullable=False),
        sa.Column("snapshot_id", sa.String(length=36), nullable=True),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("user_id", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("description", sa.String(length=255), nullable=True),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(length=32), nullable=False),
        sa.Column("fail_reason", sa.Text(), nullable=True),
        sa.Column("metadata", sa.JSON(), nullable=False),
        sa.Column("volume", sa.JSON(), nullable=False),
        sa.Column("data_timestamp", TIME, nullable=True),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.Index("ix_volume_backups_project_id_created_at", "project_id", "created_at"),
        sa.Index("ix_volume_backups_data_id", "data_id"),
    )
