"""Volumes, their snapshots, the work on their files, and the block devices of instances."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from nova_lite.db.migrations.tables import BIG_ID, TIME, create_table

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("instances", sa.Column("block_devices", sa.JSON(none_as_null=True), nullable=True))
    create_table(
        "volumes",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("user_id", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("description", sa.String(length=255), nullable=True),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(length=32), nullable=False),
        sa.Column("availability_zone", sa.String(length=255), nullable=False),
        sa.Column("volume_type", sa.String(length=255), nullable=False),
        sa.Column("bootable", sa.Boolean(), nullable=False),
        sa.Column("metadata", sa.JSON(), nullable=False),
        sa.Column("image", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("snapshot_id", sa.String(length=36), nullable=True),
        sa.Column("source_volid", sa.String(length=36), nullable=True),
        sa.Column("instance_uuid", sa.String(length=36), nullable=True),
        sa.Column("attachment_id", sa.String(length=36), nullable=True),
        sa.Column("device", sa.String(length=64), nullable=True),
        sa.Column("attached_at", TIME, nullable=True),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_volumes"),
    )
    op.create_index("ix_volumes_project_id_created_at", "volumes", ["project_id", "created_at"], unique=False)
    op.create_index("ix_volumes_instance_uuid", "volumes", ["instance_uuid"], unique=False)
    create_table(
        "volume_snapshots",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("volume_id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("user_id", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("description", sa.String(length=255), nullable=True),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(length=32), nullable=False),
        sa.Column("metadata", sa.JSON(), nullable=False),
        sa.Column("image", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_volume_snapshots"),
    )
    op.create_index("ix_volume_snapshots_volume_id", "volume_snapshots", ["volume_id"], unique=False)
    op.create_index(
        "ix_volume_snapshots_project_id_created_at", "volume_snapshots", ["project_id", "created_at"], unique=False
    )
    create_table(
        "volume_tasks",
        sa.Column("id", BIG_ID, nullable=False),
        sa.Column("verb", sa.String(length=32), nullable=False),
        sa.Column("volume_id", sa.String(length=36), nullable=False),
        sa.Column("reads", sa.String(length=36), nullable=True),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=True),
        sa.Column("request_id", sa.String(length=255), nullable=False),
        sa.Column("lease_expires_at", TIME, nullable=False),
        sa.Column("deadline", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_volume_tasks"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_volume_tasks_volume_id", "volume_tasks", ["volume_id"], unique=False)
    op.create_index("ix_volume_tasks_reads", "volume_tasks", ["reads"], unique=False)
    op.create_index("ix_volume_tasks_lease_expires_at", "volume_tasks", ["lease_expires_at"], unique=False)
