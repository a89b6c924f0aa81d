"""Moves: generations that are never given twice, what quota counts while a resize is open, and the migrations."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from nova_lite.db.migrations.tables import BIG_ID, TIME, create_table

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name in ("last_generation", "extra_vcpus", "extra_memory_mb"):
        op.add_column("instances", sa.Column(name, sa.Integer(), server_default=sa.text("0"), nullable=False))
    create_table(
        "migrations",
        sa.Column("id", BIG_ID, nullable=False),
        sa.Column("uuid", sa.String(length=36), nullable=False),
        sa.Column("instance_uuid", sa.String(length=36), nullable=False),
        sa.Column("migration_type", sa.String(length=32), nullable=False),
        sa.Column("status", sa.String(length=32), nullable=False),
        sa.Column("user_id", sa.String(length=255), nullable=True),
        sa.Column("project_id", sa.String(length=255), nullable=True),
        sa.Column("source", sa.JSON(), nullable=False),
        sa.Column("destination", sa.JSON(), nullable=True),
        sa.Column("source_host", sa.String(length=255), nullable=False),
        sa.Column("destination_host", sa.String(length=255), nullable=True),
        sa.Column("destination_ip", sa.String(length=64), nullable=True),
        sa.Column("old_flavor", sa.JSON(), nullable=False),
        sa.Column("new_flavor", sa.JSON(), nullable=False),
        sa.Column("vm_state", sa.String(length=32), nullable=False),
        sa.Column("progress", sa.JSON(), nullable=True),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_migrations"),
        sa.UniqueConstraint("uuid", name="uq_migrations_uuid"),
    )
    op.create_index("ix_migrations_instance_uuid_id", "migrations", ["instance_uuid", "id"], unique=False)
    op.create_index("ix_migrations_status_updated_at", "migrations", ["status", "updated_at"], unique=False)
    op.create_index("ix_migrations_created_at", "migrations", ["created_at"], unique=False)
    op.create_index("ix_migrations_source_host", "migrations", ["source_host"], unique=False)
    op.create_index("ix_migrations_destination_host", "migrations", ["destination_host"], unique=False)
