"""Servers with a replica at another site."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from nova_lite.db.migrations.tables import TIME, create_table

revision = "0084"
down_revision = "0082"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("instances", sa.Column("site_role", sa.String(16), nullable=True))
    create_table(
        "replicated_servers",
        sa.Column("instance_uuid", sa.String(36), nullable=False),
        sa.Column("server_id", sa.String(36), nullable=False),
        sa.Column("policy_id", sa.String(36), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("backups", sa.JSON(), nullable=False),
        sa.Column("image_id", sa.String(36), nullable=True),
        sa.Column("action_id", sa.BigInteger(), nullable=True),
        sa.Column("backup_id", sa.String(36), nullable=True),
        sa.Column("published", sa.String(36), nullable=True),
        sa.Column("since", TIME, nullable=True),
        sa.Column("updated_at", TIME, nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("instance_uuid", name="pk_replicated_servers"),
        sa.UniqueConstraint("server_id", name="uq_replicated_servers_server_id"),
        sqlite_with_rowid=False,
    )
