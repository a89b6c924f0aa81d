"""What servers have, or are to have, of Cinder."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from nova_lite.db.migrations.tables import TIME, create_table

revision = "0018"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_table(
        "cinder_attachments",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("instance_uuid", sa.String(length=36), nullable=False),
        sa.Column("volume_id", sa.String(length=36), nullable=True),
        sa.Column("wanted", sa.Boolean(), nullable=False),
        sa.Column("to_be_made", sa.Boolean(), nullable=False),
        sa.Column("delete_volume", sa.Boolean(), nullable=False),
        sa.Column("attachments", sa.JSON(), nullable=False),
        sa.Column("error", sa.String(length=1024), nullable=True),
        sa.Column("lease_owner", sa.String(length=36), nullable=True),
        sa.Column("due_at", TIME, nullable=True),
        sa.Column("unsure_until", TIME, nullable=True),
        sa.Column("deadline", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_cinder_attachments"),
        sa.UniqueConstraint("volume_id", name="uq_cinder_attachments_volume_id"),
    )
    op.create_index("ix_cinder_attachments_instance_uuid", "cinder_attachments", ["instance_uuid"], unique=False)
    op.create_index("ix_cinder_attachments_due_at", "cinder_attachments", ["due_at"], unique=False)
