"""Volumes that several servers have, and volumes that servers only read."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from nova_lite.db.migrations.tables import TIME, create_table

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name in ("multiattach", "read_only"):
        op.add_column("volumes", sa.Column(name, sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("cinder_attachments", sa.Column("shared_volume_id", sa.String(length=36)))
    op.create_index("ix_cinder_attachments_shared_volume_id", "cinder_attachments", ["shared_volume_id"])
    create_table(
        "volume_attachments",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("volume_id", sa.String(length=36), nullable=False),
        sa.Column("instance_uuid", sa.String(length=36)),
        sa.Column("recorded", sa.Boolean(), nullable=False),
        sa.Column("status", sa.String(length=32), nullable=False),
        sa.Column("mode", sa.String(length=2), nullable=False),
        sa.Column("device", sa.String(length=64)),
        sa.Column("host", sa.String(length=255)),
        sa.Column("attached_at", TIME),
        sa.PrimaryKeyConstraint("id", name="pk_volume_attachments"),
        sa.UniqueConstraint("volume_id", "instance_uuid", name="uq_volume_attachments_volume_id_instance_uuid"),
    )
    op.create_index("ix_volume_attachments_instance_uuid", "volume_attachments", ["instance_uuid"])
