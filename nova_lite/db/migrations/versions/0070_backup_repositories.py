"""Backups of servers in a repository, with the backups that they are increments of."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0070"
down_revision = "0073"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for column in (
        sa.Column("engine", sa.String(16), nullable=False, server_default="images"),
        sa.Column("generation", sa.Integer(), nullable=True),
        sa.Column("base_id", sa.String(36), nullable=True),
        sa.Column("increments", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("disk_size", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("snapshot", sa.String(64), nullable=True),
        sa.Column("digest", sa.String(64), nullable=True),
        sa.Column("has_image", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("restored_image_id", sa.String(36), nullable=True),
        sa.Column("restore_status", sa.String(16), nullable=True),
        sa.Column("restore_reason", sa.Text(), nullable=True),
    ):
        op.add_column("server_backups", column)
    op.create_index("ix_server_backups_base_id", "server_backups", ["base_id"])
