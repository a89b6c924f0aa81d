"""Snapshots of volumes that are being made for the image of a server."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("volume_snapshots", sa.Column("instance_uuid", sa.String(length=36), nullable=True))
    op.create_index("ix_volume_snapshots_instance_uuid", "volume_snapshots", ["instance_uuid"], unique=False)
